"""Quotas of principals, per second, as a part of the metadata image: pure, and identical on every node.

Keys and meanings are Kafka's. Each value of a principal takes precedence over the default's, key by key. Kafka limits
the share of a node's threads that requests use (``request_percentage``); here one thread steps a node, so the number of
requests is limited instead. ``index`` grows with every change, so that quotas need not be read again before that.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping
from types import MappingProxyType

from quorumlog.server.metadata.credentials import MAX_NAME_LENGTH
from quorumlog.server.step.request_context import EVERYBODY, USER_PREFIX
from quorumlog.server.step.wire_errors import error
from quorumlog.v1 import metadata_log_pb2, peer_pb2
from quorumlog.v1.errors_pb2 import Error, ErrorCode
from quorumlog.v1.quotas_pb2 import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    ClientQuota,
    ClientQuotaAlteration,
    ClientQuotaOp,
    DescribeClientQuotasRequest,
)
from quorumlog.wire.request_limits import MAX_QUOTAS_CHANGED

#: Bytes of batches that a node accepts from a principal, and bytes of entries that it sends, per second.
PRODUCER_BYTE_RATE, CONSUMER_BYTE_RATE = "producer_byte_rate", "consumer_byte_rate"
#: Requests that a node serves per second.
REQUEST_RATE = "request_rate"
#: Partitions that the controller creates and deletes per second.
CONTROLLER_MUTATION_RATE = "controller_mutation_rate"
#: By key: the smallest allowed value. With less, even a request that raises it would not get through.
LEAST_VALUES: Mapping[str, float] = MappingProxyType(
    {PRODUCER_BYTE_RATE: 1_024.0, CONSUMER_BYTE_RATE: 1_024.0, REQUEST_RATE: 1.0, CONTROLLER_MUTATION_RATE: 0.1}
)
#: A larger value would not be a limit.
MOST_VALUE = 1e15
#: Maximum number of principals with quotas in one cluster, including the default.
MAX_QUOTAS = 10_000
#: By key, per second.
QuotaValues = Mapping[str, float]
_NO_VALUES: QuotaValues = MappingProxyType({})


class ClientQuotas:
    """The quotas of a cluster.

    Attributes:
        index: of the last entry of the metadata log that changed them; 0 if none has.
        by_principal: the configured values: by principal, by key, per second.
    """

    def __init__(self) -> None:
        self.index = 0
        self.by_principal: dict[str, dict[str, float]] = {}

    # -- asking -----------------------------------------------------------------------------------------------

    def limits_of(self, principal: str) -> QuotaValues:
        """Returns the effective quotas of a principal, by key, per second. Nodes are not users and have none.

        Arguments:
            principal: of the requester.
        """
        default = self.by_principal.get(EVERYBODY)
        own = self.by_principal.get(principal)
        if default is None and own is None:
            return _NO_VALUES
        if not principal.startswith(USER_PREFIX):
            return _NO_VALUES
        return {**(default or _NO_VALUES), **(own or _NO_VALUES)}

    def shown(self, principals: Collection[str] = ()) -> list[ClientQuota]:
        """Returns the configured quotas, by principal.

        Arguments:
            principals: the principals to include; empty: all.
        """
        wanted = {*principals} & self.by_principal.keys() if principals else self.by_principal.keys()
        return [ClientQuota(principal=each, values=self.by_principal[each]) for each in sorted(wanted)]

    # -- changes ----------------------------------------------------------------------------------------------

    def check(self, alterations: Iterable[ClientQuotaAlteration]) -> Error | None:
        """Returns the error if the alterations would exceed the limit, or None."""
        count = len(self.by_principal)
        for each in alterations:
            count += bool(self._altered(each)) - (each.principal in self.by_principal)
        if count <= MAX_QUOTAS:
            return None
        problem = (
            f"the cluster has quotas of {len(self.by_principal)} principals of {MAX_QUOTAS}: delete unused"
            " ones, or set the default"
        )
        return error(ErrorCode.POLICY_VIOLATION, problem)

    def alter(self, index: int, command: metadata_log_pb2.ClientQuotasAltered) -> peer_pb2.ControllerResponse:
        """Sets and removes values, all or none, when the entry is applied.

        Arguments:
            index: of the entry.
        """
        refused = self.check(command.alterations)
        if refused is not None:
            return peer_pb2.ControllerResponse(alter_client_quotas=AlterClientQuotasResponse(error=refused))
        altered = 0
        for each in command.alterations:
            values = self._altered(each)
            altered += values != self.by_principal.get(each.principal, {})
            if values:
                self.by_principal[each.principal] = values
            else:
                self.by_principal.pop(each.principal, None)
        if altered:
            self.index = index
        return peer_pb2.ControllerResponse(alter_client_quotas=AlterClientQuotasResponse(altered=altered))

    def _altered(self, alteration: ClientQuotaAlteration) -> dict[str, float]:
        """Returns the values of a principal after a change."""
        values = dict(self.by_principal.get(alteration.principal, {}))
        for op in alteration.ops:
            if op.HasField("value"):
                values[op.key] = op.value
            else:
                values.pop(op.key, None)
        return values

    # -- snapshots --------------------------------------------------------------------------------------------

    @classmethod
    def from_snapshot(cls, snapshot: metadata_log_pb2.MetadataSnapshot) -> ClientQuotas:
        """Returns the quotas from a snapshot."""
        made = cls()
        made.index = snapshot.client_quotas_index
        made.by_principal = {each.principal: dict(each.values) for each in snapshot.client_quotas}
        return made


# -- checks of requests -------------------------------------------------------------------------------------------


def check_quotas(request: AlterClientQuotasRequest) -> Error | None:
    """Returns the error for quotas that are invalid regardless of existing ones, or None."""
    principals = [each.principal for each in request.alterations]
    problem = None
    if not 1 <= len(principals) <= MAX_QUOTAS_CHANGED:
        problem = (
            f"quotas of {len(principals)} principals in the request: give 1 to {MAX_QUOTAS_CHANGED} in one request"
        )
    elif len(set(principals)) < len(principals):
        problem = "a principal is in the request twice: name each once"
    else:
        problem = next((found for each in request.alterations if (found := _problem_with(each))), None)
    return None if problem is None else error(ErrorCode.INVALID_REQUEST, problem)


def check_quota_question(request: DescribeClientQuotasRequest) -> Error | None:
    """Returns the error for a query of too many principals, or None."""
    if len(request.principals) <= MAX_QUOTAS_CHANGED:
        return None
    problem = f"{len(request.principals)} principals are asked for: give at most {MAX_QUOTAS_CHANGED}, or none for all"
    return error(ErrorCode.INVALID_REQUEST, problem)


def _problem_with(alteration: ClientQuotaAlteration) -> str | None:
    principal, keys = alteration.principal, [op.key for op in alteration.ops]
    name = principal.removeprefix(USER_PREFIX)
    if name == principal or not 1 <= len(name) <= MAX_NAME_LENGTH or not name.isprintable():
        return (
            f"principal {principal[:40]!r} is not {USER_PREFIX} and 1 to {MAX_NAME_LENGTH} printable characters;"
            f" {EVERYBODY} is the default"
        )
    if not keys:
        return f"no change requested for {principal}: give a quota"
    if len(set(keys)) < len(keys):
        return f"a quota of {principal} is given twice: name each once"
    return next((found for op in alteration.ops if (found := _problem_with_op(op))), None)


def _problem_with_op(op: ClientQuotaOp) -> str | None:
    least = LEAST_VALUES.get(op.key)
    if least is None:
        return f"there is no quota {op.key[:40]!r}: give one of {', '.join(LEAST_VALUES)}"
    if not op.HasField("value"):
        return None
    if not math.isfinite(op.value) or not least <= op.value <= MOST_VALUE:
        return f"{op.key} is {op.value:g}: give {least:g} to {MOST_VALUE:g} per second, or remove it"
    return None

"""Quotas of principals, with Kafka's names."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping

from quorumlog.sdk.arguments import is_text
from quorumlog.sdk.cluster.cluster import Cluster
from quorumlog.sdk.errors import IllegalArgumentError
from quorumlog.v1 import quotas_pb2
from quorumlog.wire.request_limits import MAX_QUOTAS_CHANGED


class QuotaAdmin(ABC):
    """The part of :class:`AsyncAdmin` for quotas.

    Attributes:
        _limit_s: time limit of one call, in seconds.
    """

    _cluster: Cluster
    _limit_s: float

    @abstractmethod
    def _check_usable(self) -> None:
        """Raises unless the client is open."""

    async def alter_client_quotas(self, quotas: Mapping[str, Mapping[str, float | None]]) -> int:
        """Sets and removes quotas; see :meth:`quorumlog.sdk.Admin.alter_client_quotas`."""
        self._check_usable()
        request = quotas_pb2.AlterClientQuotasRequest(
            alterations=_checked_alterations(quotas), timeout_ms=int(self._limit_s * 1000)
        )

        async def attempt() -> quotas_pb2.AlterClientQuotasResponse:
            return await self._cluster.ask_any(lambda node, limit: node.admin.AlterClientQuotas(request, timeout=limit))

        answer = await self._cluster.retrying(attempt, self._limit_s, "alter_client_quotas")
        return answer.altered

    async def describe_client_quotas(self, principals: Iterable[str] | None = None) -> dict[str, dict[str, float]]:
        """Returns the quotas that are set; see :meth:`quorumlog.sdk.Admin.describe_client_quotas`."""
        self._check_usable()
        wanted = None if principals is None else _checked_principals(principals)
        if wanted == []:
            return {}
        request = quotas_pb2.DescribeClientQuotasRequest(principals=wanted, timeout_ms=int(self._limit_s * 1000))

        async def attempt() -> quotas_pb2.DescribeClientQuotasResponse:
            return await self._cluster.ask_any(
                lambda node, limit: node.admin.DescribeClientQuotas(request, timeout=limit)
            )

        answer = await self._cluster.retrying(attempt, self._limit_s, "describe_client_quotas")
        return {each.principal: dict(sorted(each.values.items())) for each in answer.quotas}


# -- arguments --------------------------------------------------------------------------------------------------------


def _checked_alterations(quotas: Mapping[str, Mapping[str, float | None]]) -> list[quotas_pb2.ClientQuotaAlteration]:
    if not isinstance(quotas, Mapping):
        raise IllegalArgumentError(f"quotas is {quotas!r:.80}: map principals to keys and values")
    if not 1 <= len(quotas) <= MAX_QUOTAS_CHANGED:
        raise IllegalArgumentError(f"quotas has {len(quotas)} principals: give 1 to {MAX_QUOTAS_CHANGED}")
    return [
        quotas_pb2.ClientQuotaAlteration(principal=principal, ops=_checked_ops(principal, values))
        for principal, values in zip(_checked_principals(quotas), quotas.values(), strict=True)
    ]


def _checked_ops(principal: str, values: Mapping[str, float | None]) -> list[quotas_pb2.ClientQuotaOp]:
    if not isinstance(values, Mapping):
        raise IllegalArgumentError(f"quotas of {principal} are {values!r:.80}: map keys to values")
    ops = []
    for key, value in values.items():
        if not isinstance(key, str) or not is_text(key):
            raise IllegalArgumentError(f"a quota of {principal} is called {key!r:.80}, which is not text")
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if value is not None and (not is_number or not _is_sendable(value)):
            raise IllegalArgumentError(f"{key} of {principal} is {value!r:.80}: give a number, or None to remove it")
        ops.append(quotas_pb2.ClientQuotaOp(key=key, value=value))
    return ops


def _is_sendable(value: float) -> bool:
    try:
        return math.isfinite(value)
    except OverflowError:  # a whole number too large for a float
        return False


def _checked_principals(principals: Iterable[str]) -> list[str]:
    if isinstance(principals, str | bytes) or not isinstance(principals, Iterable):
        raise IllegalArgumentError(f"principals is {principals!r:.80}: give a list of texts")
    checked = list(principals)
    for each in checked:
        if not isinstance(each, str) or not is_text(each):
            raise IllegalArgumentError(f"principal {each!r:.80} is not text, such as User:alice")
    checked = list(dict.fromkeys(checked))
    if len(checked) > MAX_QUOTAS_CHANGED:
        raise IllegalArgumentError(f"{len(checked)} principals are given: at most {MAX_QUOTAS_CHANGED} are allowed")
    return checked

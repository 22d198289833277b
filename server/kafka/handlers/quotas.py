"""DescribeClientQuotas and AlterClientQuotas. Only users have quotas."""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum

from quorumlog.server.kafka.codec.administration.quota_requests import (
    AlterClientQuotasRequest,
    AlterClientQuotasRequestEntityData,
    AlterClientQuotasRequestEntryData,
    DescribeClientQuotasRequest,
    QuotaComponent,
)
from quorumlog.server.kafka.codec.administration.quota_responses import (
    AlterClientQuotasResponse,
    AlterClientQuotasResponseEntityData,
    AlterClientQuotasResponseEntryData,
    DescribeClientQuotasResponse,
    DescribeClientQuotasResponseEntityData,
    DescribeClientQuotasResponseEntryData,
    QuotaValue,
)
from quorumlog.server.kafka.handlers.error_codes import KafkaError, kafka_code
from quorumlog.server.kafka.handlers.handler import KafkaCall, Steps, ask
from quorumlog.server.kafka.handlers.single_changes import each_by_itself
from quorumlog.v1 import quotas_pb2
from quorumlog.v1.errors_pb2 import Error
from quorumlog.wire.request_limits import MAX_QUOTAS_CHANGED

_USER, _CLIENT_ID, _IP = "user", "client-id", "ip"
_PREFIX, _EVERYBODY = "User:", "*"
_DEFAULT = _PREFIX + _EVERYBODY
_TIMEOUT_MS = 30_000


class _Match(IntEnum):
    EXACT = 0
    DEFAULT = 1
    ANY = 2


# -- describing ------------------------------------------------------------------------------------------------


def describe_quotas(call: KafkaCall[DescribeClientQuotasRequest]) -> Steps[DescribeClientQuotasResponse]:
    """Answers DescribeClientQuotas."""
    components = call.message.components
    refused = _problem_with_components(components)
    if refused is not None:
        return DescribeClientQuotasResponse(error_code=refused[0], error_message=refused[1], entries=None)
    # Addresses and client ids have no quotas.
    none_fits = any(each.entity_type != _USER for each in components) or (call.message.strict and not components)
    principals = [_principal_of(each) for each in components if each.match_type != _Match.ANY]
    question = quotas_pb2.DescribeClientQuotasRequest(principals=principals, timeout_ms=_TIMEOUT_MS)
    reply = yield from ask(question, quotas_pb2.DescribeClientQuotasResponse)
    if reply.HasField("error"):
        code = kafka_code(reply.error)
        return DescribeClientQuotasResponse(error_code=code, error_message=reply.error.message, entries=None)
    entries = [
        DescribeClientQuotasResponseEntryData(
            [DescribeClientQuotasResponseEntityData(_USER, _name_of(each.principal))],
            [QuotaValue(key, each.values[key]) for key in sorted(each.values)],
        )
        for each in (() if none_fits else reply.quotas)
    ]
    return DescribeClientQuotasResponse(error_message=None, entries=entries)


def _problem_with_components(components: Sequence[QuotaComponent]) -> tuple[KafkaError, str] | None:
    kinds = [each.entity_type for each in components]
    if len(set(kinds)) < len(kinds):
        return KafkaError.INVALID_REQUEST, "the request names an entity type twice"
    for each in components:
        if each.entity_type not in (_USER, _CLIENT_ID, _IP):
            return KafkaError.UNSUPPORTED_VERSION, "unknown entity type: only users have quotas"
        is_named = each.match is not None
        if each.match_type not in list(_Match) or is_named != (each.match_type == _Match.EXACT):
            return KafkaError.INVALID_REQUEST, "set a name for an exact match, and only for that"
    return None


def _principal_of(component: QuotaComponent) -> str:
    if component.match_type == _Match.DEFAULT:
        return _DEFAULT
    # No user has that name: in Kafka it stands for the default.
    return _PREFIX if component.match == _EVERYBODY else f"{_PREFIX}{component.match}"


def _name_of(principal: str) -> str | None:
    return None if principal == _DEFAULT else principal.removeprefix(_PREFIX)


# -- altering --------------------------------------------------------------------------------------------------


def alter_quotas(call: KafkaCall[AlterClientQuotasRequest]) -> Steps[AlterClientQuotasResponse]:
    """Answers AlterClientQuotas: each user succeeds or fails independently."""
    entries, waiting, count = [], [], len(call.message.entries)
    refused = None
    if count > MAX_QUOTAS_CHANGED:
        refused = f"{count} entities exceed the limit: send at most {MAX_QUOTAS_CHANGED} in one request"
    for each in call.message.entries:
        entity = [AlterClientQuotasResponseEntityData(one.entity_type, one.entity_name) for one in each.entity]
        entry = AlterClientQuotasResponseEntryData(KafkaError.NONE, None, entity)
        entries.append(entry)
        problem = refused or _problem_with_entity(each.entity)
        if problem is not None:
            entry.error_code, entry.error_message = KafkaError.INVALID_REQUEST, problem
        else:
            waiting.append((_alteration(each), entry))

    def alter(alterations: Sequence[quotas_pb2.ClientQuotaAlteration]) -> Steps[Error | None]:
        question = quotas_pb2.AlterClientQuotasRequest(
            alterations=alterations, timeout_ms=_TIMEOUT_MS, validate_only=call.message.validate_only
        )
        reply = yield from ask(question, quotas_pb2.AlterClientQuotasResponse)
        return reply.error if reply.HasField("error") else None

    outcomes = yield from each_by_itself([each for each, _ in waiting], alter)
    for (_, entry), refusal in zip(waiting, outcomes, strict=True):
        if refusal is not None:
            entry.error_code, entry.error_message = kafka_code(refusal), refusal.message
    return AlterClientQuotasResponse(entries=entries)


def _problem_with_entity(entity: Sequence[AlterClientQuotasRequestEntityData]) -> str | None:
    if [each.entity_type for each in entity] != [_USER]:
        return "only users have quotas: name one user, or the default"
    if entity[0].entity_name == _EVERYBODY:
        return "* is not a valid user: omit the name for the default"
    return None


def _alteration(entry: AlterClientQuotasRequestEntryData) -> quotas_pb2.ClientQuotaAlteration:
    name = entry.entity[0].entity_name
    return quotas_pb2.ClientQuotaAlteration(
        principal=_DEFAULT if name is None else f"{_PREFIX}{name}",
        ops=[quotas_pb2.ClientQuotaOp(key=op.key, value=None if op.remove else op.value) for op in entry.ops],
    )

"""Descriptions of changes for the audit log: names, never record data."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import islice
from typing import TypeVar, cast

from google.protobuf.descriptor import EnumDescriptor
from google.protobuf.message import Message as ProtoMessage

from quorumlog.server.metadata.acl_rules import operation_name, resource_name, rule_of, shown
from quorumlog.server.metadata.image import MetadataImage
from quorumlog.server.metadata.node_settings import name_of
from quorumlog.v1 import (
    acls_pb2,
    admin_pb2,
    credentials_pb2,
    groups_pb2,
    node_settings_pb2,
    quotas_pb2,
    transaction_admin_pb2,
)

#: Maximum number of items of one change that are named.
MOST_NAMED = 20
#: Maximum length of one item in characters.
MOST_CHARACTERS = 300

RequestT = TypeVar("RequestT", bound=ProtoMessage)
_Words = Callable[[ProtoMessage, MetadataImage], Sequence[str]]
_WORDS: dict[type[ProtoMessage], _Words] = {}


def what_changes(request: ProtoMessage, image: MetadataImage) -> list[str]:
    """Returns the items that a request changes; empty if it only validates.

    Arguments:
        image: resolves topic ids to names.
    """
    if "validate_only" in request.DESCRIPTOR.fields_by_name and request.validate_only:  # type: ignore[attr-defined]
        return []
    words = _WORDS[type(request)](request, image)
    shown = [each[:MOST_CHARACTERS] for each in islice(words, MOST_NAMED)]
    return shown if len(words) <= MOST_NAMED else [*shown, f"and {len(words) - MOST_NAMED} more"]


def _declare(kind: type[RequestT], words: Callable[[RequestT, MetadataImage], Iterable[str]]) -> None:
    _WORDS[kind] = cast("_Words", lambda request, image: list(words(cast("RequestT", request), image)))


def _topic(image: MetadataImage, topic_id: bytes) -> str:
    topic = image.topics_by_id.get(topic_id)
    return topic.name if topic is not None else topic_id.hex()


def _configs(change: admin_pb2.AlterTopicConfig) -> str:
    changes = [*(f"{key}={change.set[key]}" for key in sorted(change.set)), *(f"-{key}" for key in change.clear)]
    return f"{change.name}: {' '.join(changes)}"


def _filter(wanted: acls_pb2.AclFilter) -> str:
    pattern = _word(acls_pb2.AclPatternType.DESCRIPTOR, wanted.pattern_type, "ACL_PATTERN_")
    permission = _word(acls_pb2.AclPermission.DESCRIPTOR, wanted.permission, "ACL_PERMISSION_")
    name = wanted.resource_name if wanted.HasField("resource_name") else "(any name)"
    who = wanted.principal if wanted.HasField("principal") else "(anybody)"
    kind, operation = resource_name(wanted.resource_type), operation_name(wanted.operation)
    return f"{permission} {who} {operation} on {kind} {pattern} {name}"


def _quotas(alteration: quotas_pb2.ClientQuotaAlteration) -> str:
    ops = (f"{op.key}={op.value:.16g}" if op.HasField("value") else f"-{op.key}" for op in alteration.ops)
    return f"quotas of {alteration.principal}: {' '.join(ops)}"


def _node_settings(alteration: node_settings_pb2.NodeSettingsAlteration) -> str:
    ops = (f"{op.key}={op.value}" if op.HasField("value") else f"-{op.key}" for op in alteration.ops)
    return f"settings of {name_of(alteration)}: {' '.join(ops)}"


def _restore_step(request: admin_pb2.RestorePartitionRequest) -> list[str]:
    """Returns the step to log; steps with batches are too many to be logged."""
    step = request.WhichOneof("step")
    return [step] if step in ("begin", "finish") else []


_declare(admin_pb2.CreateTopicsRequest, lambda request, image: (each.name for each in request.topics))
_declare(admin_pb2.DeleteTopicsRequest, lambda request, image: request.names)
_declare(
    admin_pb2.CreatePartitionsRequest,
    lambda request, image: (f"{each.name}: {each.total_count} partitions" for each in request.topics),
)
_declare(admin_pb2.AlterConfigsRequest, lambda request, image: map(_configs, request.topics))
_declare(
    admin_pb2.DeleteRecordsRequest,
    lambda request, image: (
        f"{_topic(image, each.topic_id)}-{each.partition} before {each.before_offset}" for each in request.partitions
    ),
)
_declare(
    admin_pb2.ReassignPartitionsRequest,
    lambda request, image: (
        f"{each.topic}-{each.partition} to {','.join(map(str, each.replicas)) or 'nowhere else'}"
        for each in request.reassignments
    ),
)
_declare(
    admin_pb2.ElectLeadersRequest,
    lambda request, image: [f"{each.topic}-{each.partition}" for each in request.partitions] or ["all partitions"],
)
_declare(admin_pb2.DeleteProducersRequest, lambda request, image: request.names)
_declare(
    admin_pb2.AlterQuorumRequest,
    lambda request, image: (*(f"add {node}" for node in request.add), *(f"remove {node}" for node in request.remove)),
)
_declare(
    admin_pb2.AlterNodeRequest,
    lambda request, image: [
        f"node {request.node_id}: {_word(admin_pb2.NodeAction.DESCRIPTOR, request.action, 'NODE_ACTION_')}"
    ],
)
_declare(admin_pb2.UpgradeFeaturesRequest, lambda request, image: ["feature level"])
_declare(admin_pb2.RebalancePartitionsRequest, lambda request, image: ["all partitions"])
_declare(
    admin_pb2.RestorePartitionRequest,
    lambda request, image: [
        f"{_topic(image, request.topic_id)}-{request.partition}: {step}" for step in _restore_step(request)
    ],
)
_declare(admin_pb2.RestoreProducerNamesRequest, lambda request, image: (each.name for each in request.producers))
_declare(groups_pb2.DeleteGroupsRequest, lambda request, image: request.group_ids)
_declare(
    groups_pb2.DeleteOffsetsRequest,
    lambda request, image: (f"{request.group_id}: {_topic(image, each.topic_id)}" for each in request.topics),
)
_declare(
    transaction_admin_pb2.AbortTransactionRequest,
    lambda request, image: [
        f"{request.transactional_id}: transaction that started at {request.place.term}/{request.place.index}"
    ],
)
_declare(
    transaction_admin_pb2.HoldCommitsRequest,
    lambda request, image: [f"commits: {'hold' if request.hold_ms else 'continue'}"],
)
_declare(acls_pb2.CreateAclsRequest, lambda request, image: (shown(rule_of(acl)) for acl in request.acls))
_declare(acls_pb2.DeleteAclsRequest, lambda request, image: map(_filter, request.filters))
_declare(
    credentials_pb2.AlterUserScramCredentialsRequest,
    lambda request, image: (
        *(f"password of {each.user}" for each in request.upsertions),
        *(f"delete user {name}" for name in request.deletions),
    ),
)
_declare(
    credentials_pb2.AlterRevocationsRequest,
    lambda request, image: (
        *(f"revoke {each.serial or each.principal}" for each in request.revoke),
        *(f"restore {each.serial or each.principal}" for each in request.restore),
    ),
)
_declare(quotas_pb2.AlterClientQuotasRequest, lambda request, image: map(_quotas, request.alterations))
_declare(node_settings_pb2.AlterNodeSettingsRequest, lambda request, image: map(_node_settings, request.alterations))


def _word(kind: EnumDescriptor, value: int, prefix: str) -> str:
    """Returns the name of an enumeration value; for an unknown one its number."""
    known = kind.values_by_number.get(value)
    return known.name.removeprefix(prefix).lower() if known is not None else str(value)

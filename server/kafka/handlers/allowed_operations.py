"""What a client may do to groups and the cluster, as the sets of bits that Kafka tells it in (KIP-430).

What it may do to topics comes with their metadata.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from quorumlog.server.kafka.handlers.handler import Steps, ask_all
from quorumlog.v1.acls_pb2 import (
    ACL_OPERATION_ALTER,
    ACL_OPERATION_ALTER_CONFIGS,
    ACL_OPERATION_CREATE,
    ACL_OPERATION_DELETE,
    ACL_OPERATION_DESCRIBE,
    ACL_OPERATION_DESCRIBE_CONFIGS,
    ACL_OPERATION_IDEMPOTENT_WRITE,
    ACL_OPERATION_READ,
    ACL_RESOURCE_CLUSTER,
    ACL_RESOURCE_GROUP,
    AclOperation,
    AclResourceType,
    CheckAclsRequest,
    CheckAclsResponse,
)

#: Operations have Kafka's numbers, which are those of the bits.
_OF_GROUPS = (ACL_OPERATION_READ, ACL_OPERATION_DELETE, ACL_OPERATION_DESCRIBE)
_OF_THE_CLUSTER = (
    ACL_OPERATION_CREATE, ACL_OPERATION_ALTER, ACL_OPERATION_DESCRIBE, ACL_OPERATION_DESCRIBE_CONFIGS,
    ACL_OPERATION_ALTER_CONFIGS, ACL_OPERATION_IDEMPOTENT_WRITE,
)  # fmt: skip
_CLUSTER = "kafka-cluster"


def group_operations(group_ids: Iterable[str]) -> Steps[list[int]]:
    """What the client may do to consumer groups."""
    return (yield from _operations(ACL_RESOURCE_GROUP, list(group_ids), _OF_GROUPS))


def cluster_operations() -> Steps[int]:
    """What the client may do to the cluster."""
    (found,) = yield from _operations(ACL_RESOURCE_CLUSTER, [_CLUSTER], _OF_THE_CLUSTER)
    return found


def _operations(
    kind: AclResourceType.ValueType, names: list[str], operations: Sequence[AclOperation.ValueType]
) -> Steps[list[int]]:
    questions = [
        CheckAclsRequest(operation=operation, resource_type=kind, resource_name=name)
        for name in names
        for operation in operations
    ]
    replies = iter((yield from ask_all(questions, CheckAclsResponse)))
    return [sum(1 << operation for operation in operations if _is_allowed(next(replies))) for _ in names]


def _is_allowed(reply: CheckAclsResponse) -> bool:
    """Whether the client may do that: where nobody is asked for permission, whatever the rules say."""
    return reply.allowed or not (reply.enforced or reply.HasField("error"))

"""Operations that a client may perform on groups and the cluster, as bit sets (KIP-430).

Those on topics are part of topic metadata.
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

#: ACL operations have Kafka's numbers, which are also their positions in the bit set.
_OF_GROUPS = (ACL_OPERATION_READ, ACL_OPERATION_DELETE, ACL_OPERATION_DESCRIBE)
_OF_THE_CLUSTER = (
    ACL_OPERATION_CREATE, ACL_OPERATION_ALTER, ACL_OPERATION_DESCRIBE, ACL_OPERATION_DESCRIBE_CONFIGS,
    ACL_OPERATION_ALTER_CONFIGS, ACL_OPERATION_IDEMPOTENT_WRITE,
)  # fmt: skip
_CLUSTER = "kafka-cluster"


def group_operations(group_ids: Iterable[str]) -> Steps[list[int]]:
    """Returns the operations that the client may perform on each consumer group."""
    return (yield from _operations(ACL_RESOURCE_GROUP, list(group_ids), _OF_GROUPS))


def cluster_operations() -> Steps[int]:
    """Returns the operations that the client may perform on the cluster."""
    (operations,) = yield from _operations(ACL_RESOURCE_CLUSTER, [_CLUSTER], _OF_THE_CLUSTER)
    return operations


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
    """True if the operation is allowed, or if the node does not enforce ACLs at all."""
    return reply.allowed or not (reply.enforced or reply.HasField("error"))

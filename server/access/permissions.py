"""Permissions that each RPC requires, one row each. A test walks the descriptors of all services and fails if one is
missing.

Operations and resources are those that Kafka requires for the corresponding request. If Kafka has no such request, the
row uses the nearest equivalent.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from google.protobuf.message import Message as ProtoMessage

from quorumlog.v1 import (
    acls_pb2,
    admin_pb2,
    credentials_pb2,
    data_plane_pb2,
    groups_pb2,
    node_settings_pb2,
    quotas_pb2,
    sign_in_pb2,
    transaction_admin_pb2,
    transactions_pb2,
)
from quorumlog.v1.acls_pb2 import (
    ACL_OPERATION_ALTER,
    ACL_OPERATION_ALTER_CONFIGS,
    ACL_OPERATION_CREATE,
    ACL_OPERATION_DELETE,
    ACL_OPERATION_DESCRIBE,
    ACL_OPERATION_DESCRIBE_CONFIGS,
    ACL_OPERATION_READ,
    ACL_OPERATION_WRITE,
    ACL_RESOURCE_CLUSTER,
    ACL_RESOURCE_GROUP,
    ACL_RESOURCE_PRODUCER_NAME,
    ACL_RESOURCE_TOPIC,
    AclOperation,
    AclResourceType,
)


class Scope(Enum):
    """The part of a request that an RPC's permission applies to."""

    OPEN = "no permission: every client may call it"
    WHOLE = "the request as a whole: the cluster, or the one group or producer that it names"
    EACH = "each item that it names: the allowed ones are served"
    LISTED = "each item in the response: the denied ones are left out"
    PEERS = "no permission: only for nodes, which are authenticated separately"


@dataclass(slots=True, frozen=True)
class Permission:
    """The permission that an RPC requires.

    Arguments:
        operation, kind: the required operation and type of resource; None for scopes that require none.
        request: its message type; None if the request does not reach a node's step.
        is_change: True if it changes something; it is then recorded in the audit log.
    """

    scope: Scope
    operation: AclOperation.ValueType | None = None
    kind: AclResourceType.ValueType | None = None
    request: type[ProtoMessage] | None = None
    is_change: bool = False


def _cluster(operation: AclOperation.ValueType, request: type[ProtoMessage] | None) -> Permission:
    is_change = operation in (ACL_OPERATION_ALTER, ACL_OPERATION_ALTER_CONFIGS)
    return Permission(Scope.WHOLE, operation, ACL_RESOURCE_CLUSTER, request, is_change)


def _group(operation: AclOperation.ValueType, request: type[ProtoMessage]) -> Permission:
    """Returns the permission for a request about one group; topics in it are authorized separately."""
    return Permission(Scope.WHOLE, operation, ACL_RESOURCE_GROUP, request, operation == ACL_OPERATION_DELETE)


def _transaction(request: type[ProtoMessage]) -> Permission:
    """Returns the permission for a request about one transactional id, which is the name of a producer."""
    return Permission(Scope.WHOLE, ACL_OPERATION_WRITE, ACL_RESOURCE_PRODUCER_NAME, request)


def _each(
    operation: AclOperation.ValueType, kind: AclResourceType.ValueType, request: type[ProtoMessage]
) -> Permission:
    return Permission(Scope.EACH, operation, kind, request)


def _change_each(
    operation: AclOperation.ValueType, kind: AclResourceType.ValueType, request: type[ProtoMessage]
) -> Permission:
    return Permission(Scope.EACH, operation, kind, request, is_change=True)


def _listed(kind: AclResourceType.ValueType, request: type[ProtoMessage]) -> Permission:
    return Permission(Scope.LISTED, ACL_OPERATION_DESCRIBE, kind, request)


_OPEN = Permission(Scope.OPEN)
_PEERS = Permission(Scope.PEERS)
_DATA_PLANE, _GROUPS, _ADMIN = "quorumlog.v1.DataPlane", "quorumlog.v1.Groups", "quorumlog.v1.Admin"
_TRANSACTIONS = "quorumlog.v1.Transactions"
_HEALTH, _REFLECTION = "grpc.health.v1.Health", "grpc.reflection.v1alpha.ServerReflection"

#: Permissions by service and method.
PERMISSIONS: dict[str, Permission] = {
    f"{_DATA_PLANE}/Produce": _each(ACL_OPERATION_WRITE, ACL_RESOURCE_TOPIC, data_plane_pb2.ProduceRequest),
    f"{_DATA_PLANE}/Fetch": _each(ACL_OPERATION_READ, ACL_RESOURCE_TOPIC, data_plane_pb2.FetchRequest),
    f"{_DATA_PLANE}/ListOffsets": _each(ACL_OPERATION_DESCRIBE, ACL_RESOURCE_TOPIC, data_plane_pb2.ListOffsetsRequest),
    # An identity without a name: IdempotentWrite on the cluster, or Write on some topic.
    f"{_DATA_PLANE}/InitProducerId": _each(
        ACL_OPERATION_WRITE, ACL_RESOURCE_PRODUCER_NAME, data_plane_pb2.InitProducerIdRequest
    ),
    # Brokers are visible to every client: otherwise clients could not find the node to ask.
    f"{_DATA_PLANE}/Metadata": _listed(ACL_RESOURCE_TOPIC, data_plane_pb2.MetadataRequest),
    f"{_GROUPS}/FindCoordinators": _each(
        ACL_OPERATION_DESCRIBE, ACL_RESOURCE_GROUP, groups_pb2.FindCoordinatorsRequest
    ),
    # And Read on the topics that it subscribes to.
    f"{_GROUPS}/Heartbeat": _group(ACL_OPERATION_READ, groups_pb2.GroupHeartbeatRequest),
    # And Read on each topic.
    f"{_GROUPS}/CommitOffsets": _group(ACL_OPERATION_READ, groups_pb2.CommitOffsetsRequest),
    # And Describe on each topic.
    f"{_GROUPS}/FetchOffsets": _group(ACL_OPERATION_DESCRIBE, groups_pb2.FetchOffsetsRequest),
    f"{_GROUPS}/ListGroups": _listed(ACL_RESOURCE_GROUP, groups_pb2.ListGroupsRequest),
    f"{_GROUPS}/DescribeGroups": _each(ACL_OPERATION_DESCRIBE, ACL_RESOURCE_GROUP, groups_pb2.DescribeGroupsRequest),
    f"{_GROUPS}/DeleteGroups": _change_each(ACL_OPERATION_DELETE, ACL_RESOURCE_GROUP, groups_pb2.DeleteGroupsRequest),
    # And Read on each topic.
    f"{_GROUPS}/DeleteOffsets": _group(ACL_OPERATION_DELETE, groups_pb2.DeleteOffsetsRequest),
    # The coordinator cannot find out which topics the members read: their fetches and commits are authorized instead.
    f"{_GROUPS}/JoinClassicGroup": _group(ACL_OPERATION_READ, groups_pb2.JoinClassicGroupRequest),
    f"{_GROUPS}/SyncClassicGroup": _group(ACL_OPERATION_READ, groups_pb2.SyncClassicGroupRequest),
    f"{_GROUPS}/ClassicHeartbeat": _group(ACL_OPERATION_READ, groups_pb2.ClassicHeartbeatRequest),
    f"{_GROUPS}/LeaveClassicGroup": _group(ACL_OPERATION_READ, groups_pb2.LeaveClassicGroupRequest),
    f"{_TRANSACTIONS}/InitTransactions": _transaction(transactions_pb2.InitTransactionsRequest),
    f"{_TRANSACTIONS}/JoinTransaction": _transaction(transactions_pb2.JoinTransactionRequest),
    # The leader of each partition authorizes the batches, and the coordinator of a group the offsets.
    f"{_TRANSACTIONS}/AddToTransaction": _transaction(transactions_pb2.AddToTransactionRequest),
    f"{_TRANSACTIONS}/EndTransaction": _transaction(transactions_pb2.EndTransactionRequest),
    # Create on the cluster is also sufficient.
    f"{_ADMIN}/CreateTopics": _change_each(ACL_OPERATION_CREATE, ACL_RESOURCE_TOPIC, admin_pb2.CreateTopicsRequest),
    f"{_ADMIN}/DeleteTopics": _change_each(ACL_OPERATION_DELETE, ACL_RESOURCE_TOPIC, admin_pb2.DeleteTopicsRequest),
    f"{_ADMIN}/CreatePartitions": _change_each(
        ACL_OPERATION_ALTER, ACL_RESOURCE_TOPIC, admin_pb2.CreatePartitionsRequest
    ),
    f"{_ADMIN}/AlterConfigs": _change_each(
        ACL_OPERATION_ALTER_CONFIGS, ACL_RESOURCE_TOPIC, admin_pb2.AlterConfigsRequest
    ),
    f"{_ADMIN}/DescribeConfigs": _each(
        ACL_OPERATION_DESCRIBE_CONFIGS, ACL_RESOURCE_TOPIC, admin_pb2.DescribeConfigsRequest
    ),
    f"{_ADMIN}/DeleteRecords": _change_each(ACL_OPERATION_DELETE, ACL_RESOURCE_TOPIC, admin_pb2.DeleteRecordsRequest),
    f"{_ADMIN}/ReassignPartitions": _cluster(ACL_OPERATION_ALTER, admin_pb2.ReassignPartitionsRequest),
    f"{_ADMIN}/ListReassignments": _cluster(ACL_OPERATION_DESCRIBE, admin_pb2.ListReassignmentsRequest),
    f"{_ADMIN}/ElectLeaders": _cluster(ACL_OPERATION_ALTER, admin_pb2.ElectLeadersRequest),
    f"{_ADMIN}/DescribeLogDir": _cluster(ACL_OPERATION_DESCRIBE, admin_pb2.DescribeLogDirRequest),
    # Like Metadata.
    f"{_ADMIN}/WatchCluster": _listed(ACL_RESOURCE_TOPIC, admin_pb2.WatchClusterRequest),
    f"{_ADMIN}/ListProducers": _listed(ACL_RESOURCE_PRODUCER_NAME, admin_pb2.ListProducersRequest),
    f"{_ADMIN}/DeleteProducers": _change_each(
        ACL_OPERATION_DELETE, ACL_RESOURCE_PRODUCER_NAME, admin_pb2.DeleteProducersRequest
    ),
    f"{_ADMIN}/DescribeQuorum": _cluster(ACL_OPERATION_DESCRIBE, admin_pb2.DescribeQuorumRequest),
    f"{_ADMIN}/AlterQuorum": _cluster(ACL_OPERATION_ALTER, admin_pb2.AlterQuorumRequest),
    f"{_ADMIN}/AlterNode": _cluster(ACL_OPERATION_ALTER, admin_pb2.AlterNodeRequest),
    f"{_ADMIN}/UpgradeFeatures": _cluster(ACL_OPERATION_ALTER, admin_pb2.UpgradeFeaturesRequest),
    f"{_ADMIN}/RebalancePartitions": _cluster(ACL_OPERATION_ALTER, admin_pb2.RebalancePartitionsRequest),
    # A backup reads all of a log.
    f"{_ADMIN}/DescribePartitionLog": _each(
        ACL_OPERATION_READ, ACL_RESOURCE_TOPIC, admin_pb2.DescribePartitionLogRequest
    ),
    f"{_ADMIN}/RestorePartition": _cluster(ACL_OPERATION_ALTER, admin_pb2.RestorePartitionRequest),
    f"{_ADMIN}/RestoreProducerNames": _cluster(ACL_OPERATION_ALTER, admin_pb2.RestoreProducerNamesRequest),
    f"{_ADMIN}/CreateAcls": _cluster(ACL_OPERATION_ALTER, acls_pb2.CreateAclsRequest),
    f"{_ADMIN}/DescribeAcls": _cluster(ACL_OPERATION_DESCRIBE, acls_pb2.DescribeAclsRequest),
    f"{_ADMIN}/DeleteAcls": _cluster(ACL_OPERATION_ALTER, acls_pb2.DeleteAclsRequest),
    # Every client may ask about itself; about others, clients that may describe the cluster.
    f"{_ADMIN}/CheckAcls": Permission(
        Scope.EACH, ACL_OPERATION_DESCRIBE, ACL_RESOURCE_CLUSTER, acls_pb2.CheckAclsRequest
    ),
    f"{_ADMIN}/AlterUserScramCredentials": _cluster(
        ACL_OPERATION_ALTER, credentials_pb2.AlterUserScramCredentialsRequest
    ),
    f"{_ADMIN}/DescribeUserScramCredentials": _cluster(
        ACL_OPERATION_DESCRIBE, credentials_pb2.DescribeUserScramCredentialsRequest
    ),
    f"{_ADMIN}/AlterRevocations": _cluster(ACL_OPERATION_ALTER, credentials_pb2.AlterRevocationsRequest),
    f"{_ADMIN}/DescribeRevocations": _cluster(ACL_OPERATION_DESCRIBE, credentials_pb2.DescribeRevocationsRequest),
    f"{_ADMIN}/AlterClientQuotas": _cluster(ACL_OPERATION_ALTER_CONFIGS, quotas_pb2.AlterClientQuotasRequest),
    f"{_ADMIN}/DescribeClientQuotas": _cluster(ACL_OPERATION_DESCRIBE_CONFIGS, quotas_pb2.DescribeClientQuotasRequest),
    # Kafka requires AlterConfigs. But one of the settings switches the audit log off: only clients may do so that may
    # also change the ACLs.
    f"{_ADMIN}/AlterNodeSettings": _cluster(ACL_OPERATION_ALTER, node_settings_pb2.AlterNodeSettingsRequest),
    f"{_ADMIN}/DescribeNodeSettings": _cluster(ACL_OPERATION_DESCRIBE, node_settings_pb2.DescribeNodeSettingsRequest),
    f"{_ADMIN}/DescribeNode": _cluster(ACL_OPERATION_DESCRIBE, admin_pb2.DescribeNodeRequest),
    f"{_ADMIN}/ListTransactions": _listed(ACL_RESOURCE_PRODUCER_NAME, transaction_admin_pb2.ListTransactionsRequest),
    # And Describe on each topic.
    f"{_ADMIN}/DescribeTransaction": Permission(
        Scope.WHOLE,
        ACL_OPERATION_DESCRIBE,
        ACL_RESOURCE_PRODUCER_NAME,
        transaction_admin_pb2.DescribeTransactionRequest,
    ),
    # As for WriteTxnMarkers.
    f"{_ADMIN}/AbortTransaction": _cluster(ACL_OPERATION_ALTER, transaction_admin_pb2.AbortTransactionRequest),
    # Every producer's commits wait for it.
    f"{_ADMIN}/HoldCommits": _cluster(ACL_OPERATION_ALTER, transaction_admin_pb2.HoldCommitsRequest),
    f"{_ADMIN}/DescribeProducers": _each(
        ACL_OPERATION_READ, ACL_RESOURCE_TOPIC, transaction_admin_pb2.DescribeProducersRequest
    ),
    # An unauthenticated client has no principal yet.
    "quorumlog.v1.SignIn/BeginScram": Permission(Scope.OPEN, request=sign_in_pb2.BeginScramRequest),
    "quorumlog.v1.SignIn/FinishScram": Permission(Scope.OPEN, request=sign_in_pb2.FinishScramRequest),
    "quorumlog.v1.SignIn/SignInByToken": Permission(Scope.OPEN, request=sign_in_pb2.SignInByTokenRequest),
    "quorumlog.v1.Peer/Identify": _PEERS,
    "quorumlog.v1.Peer/Control": _PEERS,
    "quorumlog.v1.Peer/Data": _PEERS,
    "quorumlog.v1.Peer/Snapshot": _PEERS,
    # Load balancers and monitoring have no identity, and learn only whether a node serves.
    f"{_HEALTH}/Check": _OPEN,
    f"{_HEALTH}/List": _OPEN,
    f"{_HEALTH}/Watch": _OPEN,
    f"{_REFLECTION}/ServerReflectionInfo": _cluster(ACL_OPERATION_DESCRIBE, None),
}

_BY_REQUEST = {each.request: each for each in PERMISSIONS.values() if each.request is not None}
_NAMES = {each.request: name.rpartition("/")[2] for name, each in PERMISSIONS.items() if each.request is not None}


def permission_of(kind: type[ProtoMessage]) -> Permission:
    """Returns the permission that a kind of request requires."""
    return _BY_REQUEST[kind]


def operation_of(kind: type[ProtoMessage]) -> AclOperation.ValueType:
    """Returns the operation that a kind of request requires."""
    operation = _BY_REQUEST[kind].operation
    assert operation is not None, f"{kind.__name__} asks for nothing"
    return operation


def rpc_of(kind: type[ProtoMessage]) -> str:
    """Returns the name of the RPC for a kind of request."""
    return _NAMES[kind]

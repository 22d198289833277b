"""Every request from a client without permissions changes nothing and discloses nothing."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from google.protobuf.message import Message as ProtoMessage
from quiet_cluster import TOPIC
from restricted_cluster import Restricted

from quorumlog.server.access.permissions import PERMISSIONS, Scope
from quorumlog.v1 import (
    acls_pb2,
    admin_pb2,
    credentials_pb2,
    groups_pb2,
    node_settings_pb2,
    quotas_pb2,
    transaction_admin_pb2,
    transactions_pb2,
)
from quorumlog.v1 import data_plane_pb2 as pb
from quorumlog.v1.errors_pb2 import ErrorCode

FORBIDDEN = {
    ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ErrorCode.GROUP_AUTHORIZATION_FAILED,
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    ErrorCode.PRODUCER_NAME_AUTHORIZATION_FAILED,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
}
ANY = acls_pb2.AclFilter(
    resource_type=acls_pb2.ACL_RESOURCE_ANY,
    pattern_type=acls_pb2.ACL_PATTERN_ANY,
    operation=acls_pb2.ACL_OPERATION_ANY,
    permission=acls_pb2.ACL_PERMISSION_ANY,
)
RULE = acls_pb2.Acl(
    resource_type=acls_pb2.ACL_RESOURCE_TOPIC,
    resource_name="*",
    pattern_type=acls_pb2.ACL_PATTERN_LITERAL,
    principal="User:bob",
    operation=acls_pb2.ACL_OPERATION_ALL,
    permission=acls_pb2.ACL_PERMISSION_ALLOW,
)

#: One of each kind, made of the id of a topic that exists.
REQUESTS: dict[str, Callable[[bytes], ProtoMessage]] = {
    "Produce": lambda t: pb.ProduceRequest(acks=-1, timeout_ms=500, batches=[pb.PartitionBatch(topic_id=t)]),
    "Fetch": lambda t: pb.FetchRequest(partitions=[pb.FetchPartition(topic_id=t, leader_epoch=-1)]),
    "ListOffsets": lambda t: pb.ListOffsetsRequest(
        timeout_ms=500, partitions=[pb.ListOffsetsPartition(topic_id=t, timestamp_ms=-1, leader_epoch=-1)]
    ),
    "InitProducerId": lambda t: pb.InitProducerIdRequest(timeout_ms=500, name="etl", epoch=-1, known_epoch=-1),
    "Metadata": lambda t: pb.MetadataRequest(topics=[TOPIC], all_topics=True),
    "FindCoordinators": lambda t: groups_pb2.FindCoordinatorsRequest(group_ids=["g"]),
    "Heartbeat": lambda t: groups_pb2.GroupHeartbeatRequest(group_id="g", member_id="m", topics=[TOPIC]),
    "CommitOffsets": lambda t: groups_pb2.CommitOffsetsRequest(
        group_id="g", member_epoch=-1, offsets=[groups_pb2.CommittedOffset(topic_id=t)]
    ),
    "FetchOffsets": lambda t: groups_pb2.FetchOffsetsRequest(group_id="g", member_epoch=-1),
    "JoinClassicGroup": lambda t: groups_pb2.JoinClassicGroupRequest(group_id="g", timeout_ms=500),
    "SyncClassicGroup": lambda t: groups_pb2.SyncClassicGroupRequest(group_id="g", member_id="m", timeout_ms=500),
    "ClassicHeartbeat": lambda t: groups_pb2.ClassicHeartbeatRequest(group_id="g", member_id="m"),
    "LeaveClassicGroup": lambda t: groups_pb2.LeaveClassicGroupRequest(group_id="g"),
    "ListGroups": lambda t: groups_pb2.ListGroupsRequest(timeout_ms=500),
    "DescribeGroups": lambda t: groups_pb2.DescribeGroupsRequest(group_ids=["g"]),
    "DeleteGroups": lambda t: groups_pb2.DeleteGroupsRequest(group_ids=["g"]),
    "DeleteOffsets": lambda t: groups_pb2.DeleteOffsetsRequest(group_id="g"),
    "InitTransactions": lambda t: transactions_pb2.InitTransactionsRequest(
        transactional_id="etl", transaction_timeout_ms=500, timeout_ms=500
    ),
    "JoinTransaction": lambda t: transactions_pb2.JoinTransactionRequest(transactional_id="etl", timeout_ms=500),
    "AddToTransaction": lambda t: transactions_pb2.AddToTransactionRequest(transactional_id="etl", timeout_ms=500),
    "EndTransaction": lambda t: transactions_pb2.EndTransactionRequest(transactional_id="etl", timeout_ms=500),
    "CreateTopics": lambda t: admin_pb2.CreateTopicsRequest(
        timeout_ms=500, topics=[admin_pb2.NewTopic(name="new", num_partitions=1, replication_factor=1)]
    ),
    "DeleteTopics": lambda t: admin_pb2.DeleteTopicsRequest(names=[TOPIC], topic_ids=[t], timeout_ms=500),
    "CreatePartitions": lambda t: admin_pb2.CreatePartitionsRequest(
        timeout_ms=500, topics=[admin_pb2.NewPartitions(name=TOPIC, total_count=9)]
    ),
    "AlterConfigs": lambda t: admin_pb2.AlterConfigsRequest(
        timeout_ms=500, topics=[admin_pb2.AlterTopicConfig(name=TOPIC, set={"retention.ms": "1"})]
    ),
    "DescribeConfigs": lambda t: admin_pb2.DescribeConfigsRequest(names=[TOPIC]),
    "DeleteRecords": lambda t: admin_pb2.DeleteRecordsRequest(
        timeout_ms=500, partitions=[admin_pb2.DeleteRecordsPartition(topic_id=t, before_offset=-1)]
    ),
    "ReassignPartitions": lambda t: admin_pb2.ReassignPartitionsRequest(
        timeout_ms=500, reassignments=[admin_pb2.Reassignment(topic=TOPIC, replicas=[1])]
    ),
    "ListReassignments": lambda t: admin_pb2.ListReassignmentsRequest(timeout_ms=500),
    "ElectLeaders": lambda t: admin_pb2.ElectLeadersRequest(
        timeout_ms=500, partitions=[admin_pb2.PartitionName(topic=TOPIC)]
    ),
    "DescribeLogDir": lambda t: admin_pb2.DescribeLogDirRequest(),
    "WatchCluster": lambda t: admin_pb2.WatchClusterRequest(timeout_ms=500),
    "ListProducers": lambda t: admin_pb2.ListProducersRequest(timeout_ms=500),
    "DeleteProducers": lambda t: admin_pb2.DeleteProducersRequest(names=["etl"], timeout_ms=500),
    "DescribeQuorum": lambda t: admin_pb2.DescribeQuorumRequest(),
    "AlterQuorum": lambda t: admin_pb2.AlterQuorumRequest(remove=[1], timeout_ms=500),
    "AlterNode": lambda t: admin_pb2.AlterNodeRequest(node_id=1, action=admin_pb2.NODE_ACTION_DRAIN, timeout_ms=500),
    "UpgradeFeatures": lambda t: admin_pb2.UpgradeFeaturesRequest(timeout_ms=500),
    "RebalancePartitions": lambda t: admin_pb2.RebalancePartitionsRequest(timeout_ms=500),
    "ListTransactions": lambda t: transaction_admin_pb2.ListTransactionsRequest(timeout_ms=500),
    "DescribeTransaction": lambda t: transaction_admin_pb2.DescribeTransactionRequest(
        transactional_id="etl", timeout_ms=500
    ),
    "AbortTransaction": lambda t: transaction_admin_pb2.AbortTransactionRequest(transactional_id="etl", timeout_ms=500),
    "HoldCommits": lambda t: transaction_admin_pb2.HoldCommitsRequest(hold_id=b"h", hold_ms=1, timeout_ms=500),
    "DescribeProducers": lambda t: transaction_admin_pb2.DescribeProducersRequest(topic_id=t, timeout_ms=500),
    "DescribePartitionLog": lambda t: admin_pb2.DescribePartitionLogRequest(topic_id=t, timeout_ms=500),
    "RestorePartition": lambda t: admin_pb2.RestorePartitionRequest(
        topic_id=t, restore_id=b"r" * 16, begin=admin_pb2.BeginPartitionRestore(), timeout_ms=500
    ),
    "RestoreProducerNames": lambda t: admin_pb2.RestoreProducerNamesRequest(next_producer_id=5_000, timeout_ms=500),
    "CreateAcls": lambda t: acls_pb2.CreateAclsRequest(acls=[RULE], timeout_ms=500),
    "DescribeAcls": lambda t: acls_pb2.DescribeAclsRequest(filter=ANY, timeout_ms=500),
    "DeleteAcls": lambda t: acls_pb2.DeleteAclsRequest(filters=[ANY], timeout_ms=500),
    "CheckAcls": lambda t: acls_pb2.CheckAclsRequest(
        principal="User:root",
        operation=acls_pb2.ACL_OPERATION_READ,
        resource_type=acls_pb2.ACL_RESOURCE_TOPIC,
        resource_name=TOPIC,
    ),
    "AlterUserScramCredentials": lambda t: credentials_pb2.AlterUserScramCredentialsRequest(
        deletions=["nobody"], timeout_ms=500
    ),
    "DescribeUserScramCredentials": lambda t: credentials_pb2.DescribeUserScramCredentialsRequest(timeout_ms=500),
    "AlterRevocations": lambda t: credentials_pb2.AlterRevocationsRequest(
        revoke=[credentials_pb2.Revocation(serial="1f")], timeout_ms=500
    ),
    "DescribeRevocations": lambda t: credentials_pb2.DescribeRevocationsRequest(timeout_ms=500),
    "AlterClientQuotas": lambda t: quotas_pb2.AlterClientQuotasRequest(
        alterations=[
            quotas_pb2.ClientQuotaAlteration(
                principal="User:nobody", ops=[quotas_pb2.ClientQuotaOp(key="request_rate", value=5)]
            )
        ],
        timeout_ms=500,
    ),
    "DescribeClientQuotas": lambda t: quotas_pb2.DescribeClientQuotasRequest(timeout_ms=500),
    "AlterNodeSettings": lambda t: node_settings_pb2.AlterNodeSettingsRequest(
        alterations=[
            node_settings_pb2.NodeSettingsAlteration(
                node_id=1, ops=[node_settings_pb2.NodeSettingOp(key="offsets_retention_ms", value="86400000")]
            )
        ],
        timeout_ms=500,
    ),
    "DescribeNodeSettings": lambda t: node_settings_pb2.DescribeNodeSettingsRequest(timeout_ms=500),
    "DescribeNode": lambda t: admin_pb2.DescribeNodeRequest(),
}
#: Open RPCs are left out: clients call them to authenticate, and need no permission.
STEPPED = {
    name.rpartition("/")[2]: row
    for name, row in PERMISSIONS.items()
    if row.request is not None and row.scope is not Scope.OPEN
}


@pytest.fixture(scope="module")
def cluster() -> Restricted:
    made = Restricted(21, nodes=1)
    made.run(1)
    return made


def problems(answer: ProtoMessage) -> list[int]:
    """The codes of all errors in an answer, however deep."""
    found = []
    for field, value in answer.ListFields():
        for each in value if field.is_repeated else [value]:
            if field.message_type is not None and field.message_type.name == "Error":
                found.append(each.code)
            elif field.message_type is not None and not field.message_type.GetOptions().map_entry:
                found += problems(each)
    return found


def test_there_is_one_of_each_kind() -> None:
    assert set(REQUESTS) == set(STEPPED)
    assert {type(make(b"")) for make in REQUESTS.values()} == {row.request for row in STEPPED.values()}


@pytest.mark.parametrize("rpc", REQUESTS)
def test_whom_no_rule_allows_anything_gets_nothing(cluster: Restricted, rpc: str) -> None:
    request = REQUESTS[rpc](cluster.topic_id(TOPIC))
    process = cluster.cluster.processes[1]
    assert process.image is not None
    before = process.image.applied_index
    answer = cluster.ask("bob", request, ProtoMessage)
    cluster.run(0.2)
    found = problems(answer)
    assert set(found) <= FORBIDDEN, answer
    if STEPPED[rpc].scope is not Scope.LISTED:
        assert found, answer
    reported = [*getattr(answer, "topics", ()), *getattr(answer, "producers", ()), *getattr(answer, "acls", ())]
    assert [each for each in reported if not each.HasField("error")] == []
    groups = answer.groups if isinstance(answer, groups_pb2.DescribeGroupsResponse) else ()
    assert [each for each in groups if each.error.code not in FORBIDDEN] == []
    assert process.image.applied_index == before, "nothing came into the metadata"
    assert len(process.image.acls) == 0
    leader = [r for g, r in process.replicas.items() if g]
    assert all(replica.raft.last_id.index <= 2 for replica in leader), "nothing came into the log"

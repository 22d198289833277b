"""The permissions that a node requires for each RPC, compared with Kafka's documentation, ACL by ACL.

Each cell is a user of its own, whose rules allow just enough, or all but one thing. All rules are made at once.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import count, product

import pytest
from google.protobuf.message import Message as ProtoMessage
from quiet_cluster import TOPIC
from restricted_cluster import Restricted
from rights import rule

from quorumlog.server.access.permissions import PERMISSIONS, Scope
from quorumlog.server.metadata.acl_rules import CLUSTER_NAME, OPERATIONS
from quorumlog.server.step.request_context import RequestContext
from quorumlog.simulator.models.coordinator_model import OUTSIDER, CommitLabel
from quorumlog.v1 import acls_pb2 as acls
from quorumlog.v1 import admin_pb2 as admin
from quorumlog.v1 import credentials_pb2 as credentials
from quorumlog.v1 import data_plane_pb2 as pb
from quorumlog.v1 import groups_pb2 as groups
from quorumlog.v1 import node_settings_pb2 as node_settings
from quorumlog.v1 import quotas_pb2 as quotas
from quorumlog.v1 import transaction_admin_pb2 as tx
from quorumlog.v1 import transactions_pb2 as transactions
from quorumlog.v1.errors_pb2 import ErrorCode

READ, WRITE, CREATE, DELETE, ALTER, DESCRIBE, DESCRIBE_CONFIGS, ALTER_CONFIGS, IDEMPOTENT_WRITE, ALL = (
    acls.ACL_OPERATION_READ, acls.ACL_OPERATION_WRITE, acls.ACL_OPERATION_CREATE, acls.ACL_OPERATION_DELETE,
    acls.ACL_OPERATION_ALTER, acls.ACL_OPERATION_DESCRIBE, acls.ACL_OPERATION_DESCRIBE_CONFIGS,
    acls.ACL_OPERATION_ALTER_CONFIGS, acls.ACL_OPERATION_IDEMPOTENT_WRITE, acls.ACL_OPERATION_ALL,
)  # fmt: skip
TOPICS, GROUPS, CLUSTER, NAMES = (
    acls.ACL_RESOURCE_TOPIC,
    acls.ACL_RESOURCE_GROUP,
    acls.ACL_RESOURCE_CLUSTER,
    acls.ACL_RESOURCE_PRODUCER_NAME,
)
LITERAL, PREFIXED, DENY = acls.ACL_PATTERN_LITERAL, acls.ACL_PATTERN_PREFIXED, acls.ACL_PERMISSION_DENY

#: Kafka's documentation, "Operations and Resources on Protocols": request -> (operation, resource) for each row. Rows
#: about brokers' own requests, broker configurations and delegation tokens are left out: there is nothing of the kind
#: here. TransactionalId is what producer names are here. Partitions are added by their leaders, which check the topic.
KAFKA: dict[str, set[tuple[int, int]]] = {
    "PRODUCE": {(WRITE, TOPICS), (WRITE, NAMES), (IDEMPOTENT_WRITE, CLUSTER)},
    "FETCH": {(READ, TOPICS)},
    "LIST_OFFSETS": {(DESCRIBE, TOPICS)},
    "METADATA": {(DESCRIBE, TOPICS), (CREATE, CLUSTER), (CREATE, TOPICS)},
    "OFFSET_COMMIT": {(READ, GROUPS), (READ, TOPICS)},
    "TXN_OFFSET_COMMIT": {(WRITE, NAMES), (READ, GROUPS), (READ, TOPICS)},
    "OFFSET_FETCH": {(DESCRIBE, GROUPS), (DESCRIBE, TOPICS)},
    "FIND_COORDINATOR": {(DESCRIBE, GROUPS), (DESCRIBE, NAMES)},
    "HEARTBEAT": {(READ, GROUPS)},
    "JOIN_GROUP": {(READ, GROUPS)},
    "SYNC_GROUP": {(READ, GROUPS)},
    "LEAVE_GROUP": {(READ, GROUPS)},
    "DESCRIBE_GROUPS": {(DESCRIBE, GROUPS)},
    "LIST_GROUPS": {(DESCRIBE, CLUSTER), (DESCRIBE, GROUPS)},
    "CREATE_TOPICS": {(CREATE, CLUSTER), (CREATE, TOPICS)},
    "DELETE_TOPICS": {(DELETE, TOPICS)},
    "DELETE_RECORDS": {(DELETE, TOPICS)},
    "END_TXN": {(WRITE, NAMES)},
    "INIT_PRODUCER_ID": {(WRITE, NAMES), (IDEMPOTENT_WRITE, CLUSTER)},
    "DESCRIBE_ACLS": {(DESCRIBE, CLUSTER)},
    "CREATE_ACLS": {(ALTER, CLUSTER)},
    "DELETE_ACLS": {(ALTER, CLUSTER)},
    "DESCRIBE_CONFIGS": {(DESCRIBE_CONFIGS, TOPICS)},
    "INCREMENTAL_ALTER_CONFIGS": {(ALTER_CONFIGS, TOPICS)},
    "CREATE_PARTITIONS": {(ALTER, TOPICS)},
    "DELETE_GROUPS": {(DELETE, GROUPS)},
    "OFFSET_DELETE": {(DELETE, GROUPS), (READ, TOPICS)},
    "ELECT_PREFERRED_LEADERS": set(),  # ClusterAction, which there is not: see DIFFERENT
    "ALTER_PARTITION_REASSIGNMENTS": {(ALTER, CLUSTER)},
    "LIST_PARTITION_REASSIGNMENTS": {(DESCRIBE, CLUSTER)},
    "DESCRIBE_LOG_DIRS": {(DESCRIBE, CLUSTER)},
    "DESCRIBE_USER_SCRAM_CREDENTIALS": {(DESCRIBE, CLUSTER)},
    "ALTER_USER_SCRAM_CREDENTIALS": {(ALTER, CLUSTER)},
    "DESCRIBE_CLIENT_QUOTAS": {(DESCRIBE_CONFIGS, CLUSTER)},
    "ALTER_CLIENT_QUOTAS": {(ALTER_CONFIGS, CLUSTER)},
    "DESCRIBE_QUORUM": {(DESCRIBE, CLUSTER)},
    "UPDATE_FEATURES": {(ALTER, CLUSTER)},
    "DESCRIBE_PRODUCERS": {(READ, TOPICS)},
    "UNREGISTER_BROKER": {(ALTER, CLUSTER)},
    "DESCRIBE_TRANSACTIONS": {(DESCRIBE, NAMES), (DESCRIBE, TOPICS)},
    "WRITE_TXN_MARKERS": {(ALTER, CLUSTER)},
    "LIST_TRANSACTIONS": {(DESCRIBE, NAMES)},
    "ADD_RAFT_VOTER": {(ALTER, CLUSTER)},
}
#: Where we ask for something else, and why.
DIFFERENT: dict[str, tuple[set[tuple[int, int]], str]] = {
    "Produce": ({(WRITE, TOPICS), (WRITE, NAMES)}, "permission for a producer id is checked when it is assigned"),
    "ListOffsets": ({(DESCRIBE, TOPICS), (READ, TOPICS)}, "the answer to a look-up by time may hold records"),
    "Metadata": ({(DESCRIBE, TOPICS)}, "topics are not created by mentioning them"),
    "Heartbeat": ({(READ, GROUPS), (READ, TOPICS)}, "the coordinator assigns, and so has to check who may read"),
    "InitProducerId": (
        {(WRITE, NAMES), (IDEMPOTENT_WRITE, CLUSTER), (WRITE, TOPICS)},
        "as Kafka since 3.0: Write on any topic does",
    ),
    "DescribeTransaction": ({(DESCRIBE, NAMES)}, "topics that the client may not describe are left out, as in Kafka"),
    "ElectLeaders": ({(ALTER, CLUSTER)}, "nodes are known by certificate, and there is no ClusterAction"),
    "AlterNodeSettings": ({(ALTER, CLUSTER)}, "AlterConfigs must not be enough to switch the audit log off"),
    "DescribeNodeSettings": ({(DESCRIBE, CLUSTER)}, "as other descriptions of a node"),
}
#: What Kafka has no request for; what comes nearest.
OURS_ALONE = {"WatchCluster", "DeleteProducers", "CheckAcls", "AlterRevocations", "DescribeRevocations", "DescribeNode",
              "RebalancePartitions", "RestorePartition", "RestoreProducerNames", "InitTransactions", "JoinTransaction",
              "AddToTransaction", "HoldCommits"}  # fmt: skip

Need = tuple[int, int, str]
GROUP, NAME, NEW, ABSENT, INTERNAL = "a-group", "an-etl", "new-topic", "absent-thing", "__groups"
ANY_FILTER = acls.AclFilter(
    resource_type=acls.ACL_RESOURCE_ANY,
    pattern_type=acls.ACL_PATTERN_ANY,
    principal="User:nobody",
    operation=acls.ACL_OPERATION_ANY,
    permission=acls.ACL_PERMISSION_ANY,
)
KNOWN_RULE = rule("User:known", READ, TOPICS, "known")
REFUSED = {
    ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ErrorCode.GROUP_AUTHORIZATION_FAILED,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    ErrorCode.PRODUCER_NAME_AUTHORIZATION_FAILED,
}
MS = {"timeout_ms": 2_000}


@dataclass(frozen=True)
class Row:
    """A request that does no harm, and what it asks for.

    Arguments:
        enough: each of these allows it.
        kafka: the request of Kafka that it stands for.
        shown: the field of the answer that is empty for a user who may see nothing; None: the request is refused.
        hides: a topic that the user may not see is left out.
    """

    request: ProtoMessage
    enough: list[set[Need]]
    kafka: str | None
    shown: str | None = None
    hides: bool = False


def on_topic(operation: int, name: str = TOPIC) -> list[set[Need]]:
    return [{(operation, TOPICS, name)}]


def on_cluster(operation: int) -> list[set[Need]]:
    return [{(operation, CLUSTER, CLUSTER_NAME)}]


def rows(topic: bytes = b"") -> dict[str, Row]:
    """By RPC, and what is said of it behind a colon."""
    label = str(CommitLabel(OUTSIDER, -1, 0))
    offset = groups.CommittedOffset(topic_id=topic, offset=0, leader_epoch=-1, metadata=label)
    heartbeat: dict[str, object] = {
        "correlation_id": 1,
        "group_id": GROUP,
        "session_timeout_ms": 45_000,
        "rebalance_timeout_ms": 60_000,
    }
    read_both: list[set[Need]] = [{(READ, GROUPS, GROUP), (READ, TOPICS, TOPIC)}]
    alter, describe = on_cluster(ALTER), on_cluster(DESCRIBE)

    def look_up(timestamp_ms: int) -> ProtoMessage:
        wanted = pb.ListOffsetsPartition(topic_id=topic, timestamp_ms=timestamp_ms, leader_epoch=-1)
        return pb.ListOffsetsRequest(**MS, partitions=[wanted])

    return {
        "Produce": Row(
            pb.ProduceRequest(acks=-1, **MS, batches=[pb.PartitionBatch(topic_id=topic, batch=b"no batch")]),
            on_topic(WRITE), "PRODUCE",
        ),
        "Produce: in a transaction": Row(
            pb.ProduceRequest(
                acks=-1, **MS, batches=[pb.PartitionBatch(topic_id=topic, batch=b"no batch")], transactional_id=NAME
            ),
            [{(WRITE, NAMES, NAME), (WRITE, TOPICS, TOPIC)}], "PRODUCE",
        ),
        "Fetch": Row(
            pb.FetchRequest(partitions=[pb.FetchPartition(topic_id=topic, leader_epoch=-1)]), on_topic(READ), "FETCH"
        ),
        "ListOffsets": Row(look_up(-1), on_topic(DESCRIBE), "LIST_OFFSETS"),
        "ListOffsets: by time": Row(look_up(5), on_topic(READ), "LIST_OFFSETS"),
        "InitProducerId": Row(
            pb.InitProducerIdRequest(**MS, epoch=-1, known_epoch=-1),
            [{(IDEMPOTENT_WRITE, CLUSTER, CLUSTER_NAME)}, {(WRITE, TOPICS, TOPIC)}], "INIT_PRODUCER_ID",
        ),
        "InitProducerId: under a name": Row(
            pb.InitProducerIdRequest(**MS, name=NAME, epoch=-1, known_epoch=-1), [{(WRITE, NAMES, NAME)}],
            "INIT_PRODUCER_ID",
        ),
        "InitTransactions": Row(
            transactions.InitTransactionsRequest(transactional_id=NAME, transaction_timeout_ms=1_000, **MS),
            [{(WRITE, NAMES, NAME)}], None,
        ),
        "JoinTransaction": Row(
            transactions.JoinTransactionRequest(transactional_id=NAME, **MS), [{(WRITE, NAMES, NAME)}], None
        ),
        "AddToTransaction": Row(
            transactions.AddToTransactionRequest(transactional_id=NAME, **MS), [{(WRITE, NAMES, NAME)}], None
        ),
        "EndTransaction": Row(
            transactions.EndTransactionRequest(transactional_id=NAME, **MS), [{(WRITE, NAMES, NAME)}], "END_TXN"
        ),
        "Metadata": Row(pb.MetadataRequest(topics=[TOPIC]), on_topic(DESCRIBE), "METADATA"),
        "Metadata: all": Row(pb.MetadataRequest(all_topics=True), on_topic(DESCRIBE), "METADATA", shown="topics"),
        "FindCoordinators: of a transactional id": Row(
            groups.FindCoordinatorsRequest(group_ids=[NAME], type=groups.COORDINATOR_TYPE_TRANSACTION),
            [{(DESCRIBE, NAMES, NAME)}], "FIND_COORDINATOR",
        ),
        "FindCoordinators": Row(
            groups.FindCoordinatorsRequest(group_ids=[GROUP]), [{(DESCRIBE, GROUPS, GROUP)}], "FIND_COORDINATOR"
        ),
        "Heartbeat": Row(
            groups.GroupHeartbeatRequest(**heartbeat, member_id="m", member_epoch=-1), [{(READ, GROUPS, GROUP)}],
            "HEARTBEAT",
        ),
        "Heartbeat: of topics": Row(
            groups.GroupHeartbeatRequest(**heartbeat, member_id="m", topics=[TOPIC], full=True), read_both, "HEARTBEAT",
            hides=True,
        ),
        "CommitOffsets": Row(
            groups.CommitOffsetsRequest(group_id=GROUP, member_epoch=-1, offsets=[offset], **MS), read_both,
            "OFFSET_COMMIT",
        ),
        # Topics are checked once the transaction is found.
        "CommitOffsets: in a transaction": Row(
            groups.CommitOffsetsRequest(
                group_id=GROUP, member_epoch=-1, offsets=[offset], transactional_id=NAME, adds_group=True, **MS
            ),
            [{(WRITE, NAMES, NAME), (READ, GROUPS, GROUP)}], "TXN_OFFSET_COMMIT",
        ),
        "FetchOffsets": Row(
            groups.FetchOffsetsRequest(group_id=GROUP, member_epoch=-1, **MS),
            [{(DESCRIBE, GROUPS, GROUP), (DESCRIBE, TOPICS, TOPIC)}], "OFFSET_FETCH", shown="offsets",
        ),
        "JoinClassicGroup": Row(
            groups.JoinClassicGroupRequest(group_id=GROUP, can_be_named_first=True, session_timeout_ms=10_000, **MS),
            [{(READ, GROUPS, GROUP)}], "JOIN_GROUP",
        ),
        "SyncClassicGroup": Row(
            groups.SyncClassicGroupRequest(group_id=GROUP, member_id="m", **MS), [{(READ, GROUPS, GROUP)}], "SYNC_GROUP"
        ),
        "ClassicHeartbeat": Row(
            groups.ClassicHeartbeatRequest(group_id=GROUP, member_id="m", **MS), [{(READ, GROUPS, GROUP)}], "HEARTBEAT"
        ),
        "LeaveClassicGroup": Row(
            groups.LeaveClassicGroupRequest(group_id=GROUP, **MS), [{(READ, GROUPS, GROUP)}], "LEAVE_GROUP"
        ),
        "ListGroups": Row(
            groups.ListGroupsRequest(**MS), [{(DESCRIBE, GROUPS, GROUP)}, *on_cluster(DESCRIBE)], "LIST_GROUPS",
            shown="groups",
        ),
        "DescribeGroups": Row(
            groups.DescribeGroupsRequest(group_ids=[GROUP], **MS), [{(DESCRIBE, GROUPS, GROUP)}], "DESCRIBE_GROUPS"
        ),
        "DeleteGroups": Row(
            groups.DeleteGroupsRequest(group_ids=[ABSENT], **MS), [{(DELETE, GROUPS, ABSENT)}], "DELETE_GROUPS"
        ),
        "DeleteOffsets": Row(
            groups.DeleteOffsetsRequest(
                group_id=GROUP, topics=[groups.TopicPartitions(topic_id=topic, partitions=[7])], **MS
            ),
            [{(DELETE, GROUPS, GROUP), (READ, TOPICS, TOPIC)}], "OFFSET_DELETE", hides=True,
        ),
        "CreateTopics": Row(
            admin.CreateTopicsRequest(
                topics=[admin.NewTopic(name=NEW, num_partitions=1, replication_factor=9)], **MS
            ),
            [{(CREATE, TOPICS, NEW)}, *on_cluster(CREATE)], "CREATE_TOPICS",
        ),
        "DeleteTopics": Row(
            admin.DeleteTopicsRequest(names=[INTERNAL], **MS), on_topic(DELETE, INTERNAL), "DELETE_TOPICS"
        ),
        "CreatePartitions": Row(
            admin.CreatePartitionsRequest(topics=[admin.NewPartitions(name=TOPIC, total_count=1)], **MS),
            on_topic(ALTER), "CREATE_PARTITIONS",
        ),
        "AlterConfigs": Row(
            admin.AlterConfigsRequest(topics=[admin.AlterTopicConfig(name=TOPIC, set={"no.such": "1"})], **MS),
            on_topic(ALTER_CONFIGS), "INCREMENTAL_ALTER_CONFIGS",
        ),
        "DescribeConfigs": Row(
            admin.DescribeConfigsRequest(names=[TOPIC]), on_topic(DESCRIBE_CONFIGS), "DESCRIBE_CONFIGS"
        ),
        "DeleteRecords": Row(
            admin.DeleteRecordsRequest(
                partitions=[admin.DeleteRecordsPartition(topic_id=topic, before_offset=0)], **MS
            ),
            on_topic(DELETE), "DELETE_RECORDS",
        ),
        "DescribePartitionLog": Row(
            admin.DescribePartitionLogRequest(topic_id=topic, after_producer_id=-1, **MS), on_topic(READ),
            "DESCRIBE_PRODUCERS",
        ),
        "DescribeProducers": Row(
            tx.DescribeProducersRequest(topic_id=topic, after_producer_id=-1, **MS), on_topic(READ),
            "DESCRIBE_PRODUCERS",
        ),
        "ListTransactions": Row(
            tx.ListTransactionsRequest(**MS), [{(DESCRIBE, NAMES, NAME)}], "LIST_TRANSACTIONS", shown="transactions"
        ),
        "DescribeTransaction": Row(
            tx.DescribeTransactionRequest(transactional_id=NAME, **MS), [{(DESCRIBE, NAMES, NAME)}],
            "DESCRIBE_TRANSACTIONS",
        ),
        "AbortTransaction": Row(
            tx.AbortTransactionRequest(transactional_id=NAME, **MS), alter, "WRITE_TXN_MARKERS"
        ),
        "HoldCommits": Row(tx.HoldCommitsRequest(hold_id=b"h", hold_ms=1, **MS), alter, None),
        "WatchCluster": Row(
            admin.WatchClusterRequest(timeout_ms=1), on_topic(DESCRIBE), None, shown="topics"
        ),
        "ListProducers": Row(
            admin.ListProducersRequest(**MS), [{(DESCRIBE, NAMES, NAME)}], "LIST_TRANSACTIONS", shown="producers"
        ),
        "DeleteProducers": Row(
            admin.DeleteProducersRequest(names=[ABSENT], **MS), [{(DELETE, NAMES, ABSENT)}], None
        ),
        "ReassignPartitions": Row(
            admin.ReassignPartitionsRequest(reassignments=[admin.Reassignment(topic=TOPIC, replicas=[77])], **MS),
            alter, "ALTER_PARTITION_REASSIGNMENTS",
        ),
        "ListReassignments": Row(admin.ListReassignmentsRequest(**MS), describe, "LIST_PARTITION_REASSIGNMENTS"),
        "ElectLeaders": Row(
            admin.ElectLeadersRequest(partitions=[admin.PartitionName(topic=TOPIC)], **MS), alter,
            "ELECT_PREFERRED_LEADERS",
        ),
        "ElectLeaders: all": Row(admin.ElectLeadersRequest(**MS), alter, "ELECT_PREFERRED_LEADERS"),
        "DescribeLogDir": Row(admin.DescribeLogDirRequest(), describe, "DESCRIBE_LOG_DIRS"),
        "DescribeQuorum": Row(admin.DescribeQuorumRequest(), describe, "DESCRIBE_QUORUM"),
        "AlterQuorum": Row(admin.AlterQuorumRequest(remove=[77], **MS), alter, "ADD_RAFT_VOTER"),
        "AlterNode": Row(
            admin.AlterNodeRequest(node_id=77, action=admin.NODE_ACTION_DRAIN, **MS), alter, "UNREGISTER_BROKER"
        ),
        "UpgradeFeatures": Row(admin.UpgradeFeaturesRequest(**MS), alter, "UPDATE_FEATURES"),
        "RebalancePartitions": Row(admin.RebalancePartitionsRequest(**MS), alter, None),
        "RestorePartition": Row(
            admin.RestorePartitionRequest(
                topic_id=topic, restore_id=b"no id", begin=admin.BeginPartitionRestore(), **MS
            ),
            alter, None,
        ),
        "RestoreProducerNames": Row(admin.RestoreProducerNamesRequest(next_producer_id=1, **MS), alter, None),
        "CreateAcls": Row(acls.CreateAclsRequest(acls=[KNOWN_RULE], **MS), alter, "CREATE_ACLS"),
        "DescribeAcls": Row(acls.DescribeAclsRequest(filter=ANY_FILTER, **MS), describe, "DESCRIBE_ACLS"),
        "DeleteAcls": Row(acls.DeleteAclsRequest(filters=[ANY_FILTER], **MS), alter, "DELETE_ACLS"),
        "CheckAcls": Row(
            acls.CheckAclsRequest(
                principal="User:root", operation=READ, resource_type=TOPICS, resource_name=TOPIC
            ),
            describe, None,
        ),
        "AlterUserScramCredentials": Row(
            credentials.AlterUserScramCredentialsRequest(deletions=[ABSENT], **MS), alter,
            "ALTER_USER_SCRAM_CREDENTIALS",
        ),
        "DescribeUserScramCredentials": Row(
            credentials.DescribeUserScramCredentialsRequest(**MS), describe, "DESCRIBE_USER_SCRAM_CREDENTIALS"
        ),
        "AlterRevocations": Row(
            credentials.AlterRevocationsRequest(restore=[credentials.Revocation(serial="1f")], **MS), alter, None
        ),
        "DescribeRevocations": Row(credentials.DescribeRevocationsRequest(**MS), describe, None),
        "AlterClientQuotas": Row(
            quotas.AlterClientQuotasRequest(
                alterations=[
                    quotas.ClientQuotaAlteration(
                        principal="User:nobody", ops=[quotas.ClientQuotaOp(key="request_rate")]
                    )
                ], **MS,
            ), on_cluster(ALTER_CONFIGS), "ALTER_CLIENT_QUOTAS",
        ),
        "DescribeClientQuotas": Row(
            quotas.DescribeClientQuotasRequest(**MS), on_cluster(DESCRIBE_CONFIGS), "DESCRIBE_CLIENT_QUOTAS"
        ),
        # Kafka requires AlterConfigs and DescribeConfigs for configurations of brokers.
        "AlterNodeSettings": Row(
            node_settings.AlterNodeSettingsRequest(
                alterations=[
                    node_settings.NodeSettingsAlteration(ops=[node_settings.NodeSettingOp(key="log_level")])
                ], **MS,
            ), alter, None,
        ),
        "DescribeNodeSettings": Row(node_settings.DescribeNodeSettingsRequest(**MS), describe, None),
        "DescribeNode": Row(admin.DescribeNodeRequest(), describe, None),
    }  # fmt: skip


# -- the table --------------------------------------------------------------------------------------------------------


def rpc_of(what: str) -> str:
    return what.partition(":")[0]


def test_each_rpc_asks_for_what_kafka_documents_or_says_why_not() -> None:
    requests: dict[str, set[tuple[int, int]]] = {}
    documented: dict[str, set[tuple[int, int]]] = {}
    for what, row in rows().items():
        needs = {(operation, kind) for some in row.enough for operation, kind, _ in some}
        requests.setdefault(rpc_of(what), set()).update(needs)
        documented.setdefault(rpc_of(what), set()).update(KAFKA[row.kafka] if row.kafka else ())
    other = {rpc for rpc in requests if requests[rpc] != documented[rpc]}
    assert other == DIFFERENT.keys() | OURS_ALONE
    assert {rpc: requests[rpc] for rpc in DIFFERENT} == {rpc: needs for rpc, (needs, _) in DIFFERENT.items()}
    assert {row.kafka for row in rows().values()} - {None} == KAFKA.keys()


def test_no_rpc_is_left_out() -> None:
    stepped = {
        name.rpartition("/")[2]
        for name, permission in PERMISSIONS.items()
        if permission.request is not None and permission.scope is not Scope.OPEN
    }
    assert {rpc_of(what) for what in rows()} == stepped


# -- by the step ------------------------------------------------------------------------------------------------------


@dataclass
class Cell:
    """A user, its rules, and whether it may."""

    what: str
    why: str
    may: bool
    rules: list[acls.Acl] = field(default_factory=list)
    user: str = ""


def patterns(kind: int, name: str) -> list[tuple[str, int]]:
    """Names and types of patterns that a resource matches."""
    if kind == CLUSTER:
        return [(name, LITERAL)]
    return [(name, LITERAL), (name[: max(1, len(name) // 2)], PREFIXED), ("*", LITERAL)]


def implying(kind: int, operation: int) -> set[int]:
    """Operations that allow this one."""
    more = {
        DESCRIBE: {READ, WRITE, DELETE, ALTER},
        DESCRIBE_CONFIGS: {ALTER_CONFIGS},
    }
    return {operation} | (more.get(operation, set()) & set(OPERATIONS[kind]))  # type: ignore[call-overload]


EVERYTHING = [(TOPICS, "*"), (GROUPS, "*"), (NAMES, "*"), (CLUSTER, CLUSTER_NAME)]


def cells() -> Iterator[Cell]:
    """For each request: what is enough by each pattern; all but one thing; all, and that denied; another name."""
    for what, row in rows().items():
        for enough in row.enough:
            spelled = [patterns(kind, name) for _, kind, name in sorted(enough)]
            for number in range(max(map(len, spelled))):
                made = Cell(what, f"enough by pattern {number}", True)
                for (operation, kind, _), ways in zip(sorted(enough), spelled, strict=True):
                    name, pattern = ways[number % len(ways)]
                    made.rules.append(rule("", operation, kind, name, pattern))
                yield made
            yield Cell(what, "all", True, [rule("", ALL, kind, name) for _, kind, name in enough])
        # One of each way that leads there is missing, whatever else is allowed.
        for missing in product(*(sorted(enough) for enough in row.enough)):
            without: dict[tuple[int, str], set[int]] = {
                each: set(OPERATIONS[each[0]])
                for each in EVERYTHING  # type: ignore[index]
            }
            for operation, kind, _ in missing:
                for each in EVERYTHING:
                    if each[0] == kind:
                        without[each] -= implying(kind, operation)
            made = Cell(what, f"without {missing}", False)
            made.rules = [rule("", each, kind, name) for (kind, name), some in without.items() for each in sorted(some)]
            if not row.hides or any(
                each.operation in implying(TOPICS, DESCRIBE) for each in made.rules if each.resource_type == TOPICS
            ):
                yield made
            for number in range(max(len(patterns(kind, name)) for _, kind, name in missing)):
                made = Cell(what, f"denied {missing} by pattern {number}", False)
                made.rules = [rule("", ALL, kind, name) for kind, name in EVERYTHING]
                for operation, kind, name in missing:
                    ways = patterns(kind, name)
                    denied, pattern = ways[number % len(ways)]
                    made.rules.append(rule("", operation, kind, denied, pattern, DENY))
                if not denies_any_topic(made, row):
                    yield made
        named = [need for enough in row.enough for need in enough if need[1] != CLUSTER]
        if named and not row.hides and not any(need[1] == CLUSTER for enough in row.enough for need in enough):
            elsewhere = [rule("", ALL, kind, f"{name}-other") for _, kind, name in named]
            if what != "InitProducerId":
                yield Cell(what, "on another name", False, elsewhere)


def denies_any_topic(cell: Cell, row: Row) -> bool:
    """True if an ACL denies some topics and the request needs Write on any topic: other topics then remain."""
    return row.kafka == "INIT_PRODUCER_ID" and any(
        each.permission == DENY and each.resource_type == TOPICS and each.resource_name != "*" for each in cell.rules
    )


@pytest.fixture(scope="module")
def judged() -> dict[str, list[str]]:
    """By request: cells that were decided otherwise than they should be, with the answers."""
    cluster = Restricted(31, nodes=1)
    cluster.run(1)
    topic = cluster.topic_id(TOPIC)
    requests = {what: row.request for what, row in rows(topic).items()}
    prepare(cluster, requests)
    numbers, every = count(1), list(cells())
    for cell in every:
        cell.user = f"user-{next(numbers)}"
        cluster.cluster.clients[cell.user] = RequestContext(principal=f"User:{cell.user}")
        for each in cell.rules:
            each.principal = f"User:{cell.user}"
    rules = [each for cell in every for each in cell.rules]
    for first in range(0, len(rules), 1_000):
        cluster.allow(*rules[first : first + 1_000])
    wrong: dict[str, list[str]] = {what: [] for what in requests}
    for cell in every:
        answer = cluster.ask(cell.user, requests[cell.what], ProtoMessage)
        if is_served(answer, rows()[cell.what]) is not cell.may:
            wrong[cell.what].append(f"{cell.why}: {answer}")
    print(len(every), "cells,", len(rules), "rules")
    return wrong


def prepare(cluster: Restricted, requests: dict[str, ProtoMessage]) -> None:
    """Creates what the requests refer to: a group with an offset, a producer name and an ACL."""
    cluster.allow(KNOWN_RULE)
    found = groups.FindCoordinatorsResponse()

    def is_found() -> bool:
        found.CopyFrom(cluster.ask("admin", requests["FindCoordinators"], groups.FindCoordinatorsResponse))
        return not any(each.HasField("error") for each in found.coordinators)

    cluster.until(is_found, 20)
    find = groups.FindCoordinatorsRequest(group_ids=[NAME], type=groups.COORDINATOR_TYPE_TRANSACTION)
    begin = transactions.InitTransactionsRequest(transactional_id=NAME, transaction_timeout_ms=60_000)
    for request in (find, begin):
        for _ in range(100):
            answer = cluster.ask("admin", request, ProtoMessage)
            if ErrorCode.NONE in codes_in(answer) or not codes_in(answer):
                break
            cluster.run(0.1)
    for what in ("CommitOffsets", "InitProducerId: under a name"):
        answer = cluster.ask("admin", requests[what], ProtoMessage)
        assert codes_in(answer) <= {ErrorCode.NONE}, answer


def is_served(answer: ProtoMessage, row: Row) -> bool:
    if codes_in(answer) & REFUSED:
        return False
    # The cells are about topics of records: beside these, a user may see those of coordinators.
    return row.shown is None or any(not getattr(each, "internal", False) for each in getattr(answer, row.shown))


def codes_in(answer: ProtoMessage) -> set[int]:
    """The codes of all errors in an answer, however deep."""
    found: set[int] = set()
    for each, value in answer.ListFields():
        if each.message_type is None or each.message_type.GetOptions().map_entry:
            continue
        for part in value if each.is_repeated else [value]:
            found |= {part.code} if each.message_type.name == "Error" else codes_in(part)
    return found


@pytest.mark.parametrize("what", rows())
def test_a_request_is_served_to_who_may_and_to_nobody_else(judged: dict[str, list[str]], what: str) -> None:
    assert judged[what] == []

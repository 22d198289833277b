"""A topic that one may not describe does not exist for one: the answers are those to names and ids that nothing has."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator

import pytest
from google.protobuf.descriptor import Descriptor
from google.protobuf.message import Message as ProtoMessage
from quiet_cluster import TOPIC
from restricted_cluster import Restricted
from rights import rule

from quorumlog.server.access.permissions import PERMISSIONS
from quorumlog.simulator.models.coordinator_model import OUTSIDER, CommitLabel
from quorumlog.simulator.models.records import text_payload
from quorumlog.v1 import acls_pb2, admin_pb2, groups_pb2, transaction_admin_pb2
from quorumlog.v1 import data_plane_pb2 as pb
from quorumlog.v1.errors_pb2 import ErrorCode
from quorumlog.wire.entry import Codec, build_batch

SECRET = "secret"
ALL, TOPICS, GROUPS, CLUSTER = (
    acls_pb2.ACL_OPERATION_ALL,
    acls_pb2.ACL_RESOURCE_TOPIC,
    acls_pb2.ACL_RESOURCE_GROUP,
    acls_pb2.ACL_RESOURCE_CLUSTER,
)
PREFIXED = acls_pb2.ACL_PATTERN_PREFIXED


def batch() -> bytes:
    return build_batch(
        text_payload(["hope"]),
        record_count=1,
        codec=Codec.NONE,
        base_timestamp_ms=1_700_000_000_000,
        max_timestamp_ms=1_700_000_000_000,
    )


def offset_of(topic: bytes, offset: int) -> groups_pb2.CommittedOffset:
    """An offset to be committed, with what the simulator wants to find beside it."""
    label = str(CommitLabel(OUTSIDER, -1, offset))
    return groups_pb2.CommittedOffset(topic_id=topic, partition=0, offset=offset, leader_epoch=-1, metadata=label)


#: A node answers from its own state within this time; a request that the controller decides takes longer.
AT_ONCE_US = 6_000
#: What names a topic, with the type of its answer. Each is made of the id that the topic has, or had.
BY_NAME: dict[str, tuple[Callable[[], ProtoMessage], type[ProtoMessage]]] = {
    "Metadata": (lambda: pb.MetadataRequest(topics=[SECRET, "no/name"]), pb.MetadataResponse),
    "Metadata of all": (lambda: pb.MetadataRequest(all_topics=True), pb.MetadataResponse),
    "DescribeConfigs": (
        lambda: admin_pb2.DescribeConfigsRequest(names=[SECRET, TOPIC]),
        admin_pb2.DescribeConfigsResponse,
    ),
    "DeleteTopics": (
        lambda: admin_pb2.DeleteTopicsRequest(names=["nothing", SECRET], timeout_ms=3_000),
        admin_pb2.DeleteTopicsResponse,
    ),
    "CreatePartitions": (
        lambda: admin_pb2.CreatePartitionsRequest(
            topics=[admin_pb2.NewPartitions(name=SECRET, total_count=5)], timeout_ms=3_000
        ),
        admin_pb2.CreatePartitionsResponse,
    ),
    "AlterConfigs": (
        lambda: admin_pb2.AlterConfigsRequest(
            topics=[admin_pb2.AlterTopicConfig(name=SECRET, set={"retention.ms": "1000"})], timeout_ms=3_000
        ),
        admin_pb2.AlterConfigsResponse,
    ),
    "CheckAcls": (
        lambda: acls_pb2.CheckAclsRequest(
            operation=acls_pb2.ACL_OPERATION_READ, resource_type=TOPICS, resource_name=SECRET
        ),
        acls_pb2.CheckAclsResponse,
    ),
    "ReassignPartitions": (
        lambda: admin_pb2.ReassignPartitionsRequest(
            reassignments=[admin_pb2.Reassignment(topic=SECRET, replicas=[1])], timeout_ms=3_000
        ),
        admin_pb2.ReassignPartitionsResponse,
    ),
    "ElectLeaders": (
        lambda: admin_pb2.ElectLeadersRequest(partitions=[admin_pb2.PartitionName(topic=SECRET)], timeout_ms=3_000),
        admin_pb2.ElectLeadersResponse,
    ),
    "DescribeLogDir": (
        lambda: admin_pb2.DescribeLogDirRequest(partitions=[admin_pb2.PartitionName(topic=SECRET)]),
        admin_pb2.DescribeLogDirResponse,
    ),
}
BY_ID: dict[str, tuple[Callable[[bytes], ProtoMessage], type[ProtoMessage]]] = {
    "Produce": (
        lambda topic: pb.ProduceRequest(
            correlation_id=1,
            acks=-1,
            timeout_ms=1_000,
            batches=[pb.PartitionBatch(topic_id=topic, partition=0, batch=batch())],
        ),
        pb.ProduceResponse,
    ),
    "Produce to no partition": (
        lambda topic: pb.ProduceRequest(
            correlation_id=1,
            acks=-1,
            timeout_ms=1_000,
            batches=[pb.PartitionBatch(topic_id=topic, partition=7, batch=b"no batch")],
        ),
        pb.ProduceResponse,
    ),
    "Fetch": (
        lambda topic: pb.FetchRequest(
            correlation_id=1, max_wait_ms=100, partitions=[pb.FetchPartition(topic_id=topic, leader_epoch=-1)]
        ),
        pb.FetchResponse,
    ),
    "ListOffsets": (
        lambda topic: pb.ListOffsetsRequest(
            timeout_ms=1_000,
            partitions=[
                pb.ListOffsetsPartition(topic_id=topic, timestamp_ms=each, leader_epoch=-1) for each in (-2, -1, 5)
            ],
        ),
        pb.ListOffsetsResponse,
    ),
    "DeleteRecords": (
        lambda topic: admin_pb2.DeleteRecordsRequest(
            timeout_ms=1_000, partitions=[admin_pb2.DeleteRecordsPartition(topic_id=topic, before_offset=-1)]
        ),
        admin_pb2.DeleteRecordsResponse,
    ),
    "DescribePartitionLog": (
        lambda topic: admin_pb2.DescribePartitionLogRequest(topic_id=topic, after_producer_id=-1, timeout_ms=1_000),
        admin_pb2.DescribePartitionLogResponse,
    ),
    "DescribeProducers": (
        lambda topic: transaction_admin_pb2.DescribeProducersRequest(
            topic_id=topic, after_producer_id=-1, timeout_ms=1_000
        ),
        transaction_admin_pb2.DescribeProducersResponse,
    ),
    "RestorePartition": (
        lambda topic: admin_pb2.RestorePartitionRequest(
            topic_id=topic, restore_id=b"r" * 16, begin=admin_pb2.BeginPartitionRestore(), timeout_ms=1_000
        ),
        admin_pb2.RestorePartitionResponse,
    ),
    "DeleteTopics by another name": (
        lambda topic: admin_pb2.DeleteTopicsRequest(names=["mine-not"], topic_ids=[topic], timeout_ms=1_000),
        admin_pb2.DeleteTopicsResponse,
    ),
    "CommitOffsets": (
        lambda topic: groups_pb2.CommitOffsetsRequest(
            group_id="g",
            member_epoch=-1,
            timeout_ms=1_000,
            offsets=[offset_of(topic, 0)],
        ),
        groups_pb2.CommitOffsetsResponse,
    ),
    "FetchOffsets": (
        lambda topic: groups_pb2.FetchOffsetsRequest(group_id="g", member_epoch=-1, timeout_ms=1_000),
        groups_pb2.FetchOffsetsResponse,
    ),
    "DescribeGroups with offsets": (
        lambda topic: groups_pb2.DescribeGroupsRequest(group_ids=["g"], include_offsets=True, timeout_ms=1_000),
        groups_pb2.DescribeGroupsResponse,
    ),
    "DeleteOffsets": (
        lambda topic: groups_pb2.DeleteOffsetsRequest(
            group_id="h",
            topics=[groups_pb2.TopicPartitions(topic_id=topic, partitions=[0, 1])],
            timeout_ms=1_000,
        ),
        groups_pb2.DeleteOffsetsResponse,
    ),
}
#: Where the others that can name a topic are compared, or why they are not.
ELSEWHERE = {
    "AddToTransaction": "by the topic's id, which only users who may describe the topic receive",
    "Heartbeat": "test_a_member_hears_nothing_of_a_hidden_topic_that_comes_and_goes",
    "CreateTopics": "docs/operate/security.md: a user who may create a topic learns that its name is in use",
    "CreateAcls": "rules are about names, whether topics have them or not, and take Alter on the Cluster",
    "DeleteAcls": "as CreateAcls",
    "DescribeAcls": "as CreateAcls",
}
#: Fields of requests that name a topic. Of those called name or names some are of other things.
_NAMING = ("topic", "topics", "topic_id", "topic_ids", "resource_name", "name", "names")
_NAMES_OF_OTHERS = {"InitProducerId", "ListProducers", "DeleteProducers", "RestoreProducerNames", "JoinClassicGroup"}


def naming_fields(kind: Descriptor, depth: int = 0) -> Iterator[str]:
    for each in kind.fields:
        if each.message_type is None:
            yield from (each.name for name in _NAMING if name == each.name)
        elif depth < 3 and not each.message_type.GetOptions().map_entry:
            yield from naming_fields(each.message_type, depth + 1)


def test_every_request_that_names_topics_is_compared() -> None:
    naming = {
        rpc.rpartition("/")[2]
        for rpc, permission in PERMISSIONS.items()
        if permission.request is not None and any(naming_fields(permission.request.DESCRIPTOR))
    }
    compared = {what.partition(" ")[0] for what in (*BY_NAME, *BY_ID)}
    compared -= {"DescribeGroups"}  # It names groups; what it is answered names topics.
    assert naming - _NAMES_OF_OTHERS == compared | ELSEWHERE.keys()


def coordinator(cluster: Restricted, group: str = "g") -> int:
    """The node that coordinates a group."""
    found: list[int] = []

    def is_found() -> bool:
        request = groups_pb2.FindCoordinatorsRequest(group_ids=[group])
        answer = cluster.ask("admin", request, groups_pb2.FindCoordinatorsResponse)
        found[:] = [each.node_id for each in answer.coordinators if not each.HasField("error")]
        return bool(found)

    cluster.until(is_found, 20)
    return found[0]


def told(answer: ProtoMessage) -> bytes:
    """Returns a serialized answer; for metadata, only its topics."""
    if isinstance(answer, pb.MetadataResponse):
        return b"".join(each.SerializeToString(deterministic=True) for each in answer.topics)
    return answer.SerializeToString(deterministic=True)


@pytest.fixture
def cluster() -> Restricted:
    made = Restricted(7)
    made.allow(
        rule("User:alice", ALL, TOPICS, "mine", PREFIXED),
        rule("User:alice", ALL, GROUPS, "g"),
        rule("User:alice", ALL, GROUPS, "h"),
        rule("User:alice", acls_pb2.ACL_OPERATION_DESCRIBE, TOPICS, TOPIC),
    )
    return made


def delete(cluster: Restricted, name: str) -> None:
    request = admin_pb2.DeleteTopicsRequest(names=[name], timeout_ms=5_000)
    answer = cluster.ask("admin", request, admin_pb2.DeleteTopicsResponse)
    assert not answer.results[0].HasField("error"), answer
    cluster.run(1)


@pytest.mark.parametrize("what", BY_NAME)
def test_a_name_says_nothing_of_whether_a_topic_has_it(cluster: Restricted, what: str) -> None:
    make, kind = BY_NAME[what]

    def answers() -> list[tuple[bytes, bool]]:
        """Returns each node's answer, and True if it came at once: the node then asked no other one."""
        found = []
        for node in (1, 2, 3):
            began = cluster.scheduler.now
            answer = told(cluster.ask("alice", make(), kind, node))
            found.append((answer, cluster.scheduler.now - began <= AT_ONCE_US))
        return found

    before = answers()
    cluster.create(SECRET, partitions=2)
    cluster.run(1)
    while_there = answers()
    delete(cluster, SECRET)
    assert before == while_there == answers()


def test_what_the_controller_is_asked_for_is_not_answered_at_once(cluster: Restricted) -> None:
    follower = next(node for node in (1, 2, 3) if node != cluster.led_by(0))
    request = admin_pb2.DeleteTopicsRequest(names=["mine-not"], timeout_ms=3_000)
    began = cluster.scheduler.now
    cluster.ask("alice", request, admin_pb2.DeleteTopicsResponse, follower)
    assert cluster.scheduler.now - began > AT_ONCE_US


@pytest.mark.parametrize("what", BY_ID)
def test_an_id_says_nothing_of_whether_a_topic_has_it(cluster: Restricted, what: str) -> None:
    make, kind = BY_ID[what]
    cluster.create(SECRET, partitions=2)
    topic = cluster.topic_id(SECRET)
    nodes = [1, 2, 3]
    if what in ("CommitOffsets", "FetchOffsets", "DescribeGroups with offsets", "DeleteOffsets"):
        nodes = [coordinator(cluster, "h" if what == "DeleteOffsets" else "g")]
        offset = offset_of(topic, 0)
        for group in ("g", "h"):
            request = groups_pb2.CommitOffsetsRequest(
                group_id=group, member_epoch=-1, timeout_ms=1_000, offsets=[offset]
            )
            stored = cluster.ask("admin", request, groups_pb2.CommitOffsetsResponse, coordinator(cluster, group))
            assert not stored.results[0].HasField("error"), stored
    cluster.run(1)
    while_there = [told(cluster.ask("alice", make(topic), kind, node)) for node in nodes]
    if what == "FetchOffsets":
        offsets = cluster.ask("admin", make(topic), groups_pb2.FetchOffsetsResponse, nodes[0]).offsets
        assert [each.offset for each in offsets] == [0], "what was committed of it has stayed"
    if what == "DescribeGroups with offsets":
        (group,) = cluster.ask("admin", make(topic), groups_pb2.DescribeGroupsResponse, nodes[0]).groups
        assert [each.topic for each in group.offsets] == [SECRET]
    delete(cluster, SECRET)
    afterwards = [told(cluster.ask("alice", make(topic), kind, node)) for node in nodes]
    assert while_there == afterwards
    assert SECRET.encode() not in b"".join(while_there)


def test_a_fetch_session_is_told_of_a_hidden_topic_as_of_none(cluster: Restricted) -> None:
    cluster.create(SECRET)
    topic = cluster.topic_id(SECRET)
    cluster.run(1)

    def first_answer(node: int) -> bytes:
        request = pb.FetchRequest(
            correlation_id=1,
            session_epoch=1,
            max_wait_ms=5_000,
            partitions=[pb.FetchPartition(topic_id=topic, leader_epoch=-1)],
        )
        return told(cluster.ask("alice", request, pb.FetchResponse, node, cluster.cluster.open_stream(node)))

    while_there = [first_answer(node) for node in (1, 2, 3)]
    delete(cluster, SECRET)
    assert while_there == [first_answer(node) for node in (1, 2, 3)]


def test_who_may_describe_a_topic_but_no_more_is_told_so(cluster: Restricted) -> None:
    topic = cluster.topic_id(TOPIC)
    cluster.run(1)
    for what, code in (
        ("Produce", ErrorCode.TOPIC_AUTHORIZATION_FAILED),
        ("Fetch", ErrorCode.TOPIC_AUTHORIZATION_FAILED),
        ("DeleteRecords", ErrorCode.TOPIC_AUTHORIZATION_FAILED),
    ):
        make, kind = BY_ID[what]
        answer = cluster.ask("alice", make(topic), kind)
        assert [each.error.code for each in answer.results] == [code], what  # type: ignore[attr-defined]
    description = cluster.ask("alice", BY_ID["DescribePartitionLog"][0](topic), admin_pb2.DescribePartitionLogResponse)
    assert description.error.code == ErrorCode.TOPIC_AUTHORIZATION_FAILED


def test_a_look_up_by_time_needs_to_read_because_its_answer_holds_records(cluster: Restricted) -> None:
    leader = cluster.leader().node_id
    answer = cluster.ask("alice", BY_ID["ListOffsets"][0](cluster.topic_id(TOPIC)), pb.ListOffsetsResponse, leader)
    codes = [each.error.code for each in answer.results]
    assert codes[:2] == [ErrorCode.NONE, ErrorCode.NONE]
    assert codes[2] == ErrorCode.TOPIC_AUTHORIZATION_FAILED


def test_metadata_show_of_a_configuration_what_clients_need_unless_more_is_allowed(cluster: Restricted) -> None:
    change = admin_pb2.AlterTopicConfig(name=TOPIC, set={"retention.ms": "5000", "max.message.bytes": "2000"})
    request = admin_pb2.AlterConfigsRequest(topics=[change], timeout_ms=3_000)
    done = cluster.ask("admin", request, admin_pb2.AlterConfigsResponse)
    assert not done.results[0].HasField("error"), done

    def shown(client: str) -> dict[str, str]:
        (topic,) = cluster.ask(client, pb.MetadataRequest(topics=[TOPIC]), pb.MetadataResponse).topics
        return dict(topic.configs)

    assert shown("alice") == {"max.message.bytes": "2000"}
    assert shown("admin") == {"max.message.bytes": "2000", "retention.ms": "5000"}


@pytest.mark.parametrize("subscription", [{"topics": [SECRET, "mine"]}, {"topic_pattern": "secret|mine|t"}])
def test_a_member_waits_for_a_hidden_topic_as_for_one_that_is_to_be_created(
    cluster: Restricted, subscription: dict[str, object]
) -> None:
    cluster.create(SECRET)
    cluster.create("mine")
    node = coordinator(cluster)
    sent = 0

    def beat(epoch: int) -> groups_pb2.GroupHeartbeatResponse:
        nonlocal sent
        sent += 1
        request = groups_pb2.GroupHeartbeatRequest(
            correlation_id=sent,
            group_id="g",
            member_id="m",
            member_epoch=epoch,
            session_timeout_ms=45_000,
            rebalance_timeout_ms=60_000,
            full=True,
            **subscription,  # type: ignore[arg-type]
        )
        return cluster.ask("alice", request, groups_pb2.GroupHeartbeatResponse, node)

    joined = beat(0)
    assert not joined.HasField("error"), joined
    again = beat(joined.member_epoch)
    assert [each.topic for each in again.assignment.topics] == ["mine"]
    described = cluster.ask(
        "alice",
        groups_pb2.DescribeGroupsRequest(group_ids=["g"], timeout_ms=1_000),
        groups_pb2.DescribeGroupsResponse,
        node,
    )
    (member,) = described.groups[0].members
    assert {each.topic for each in (*member.assignment, *member.target)} == {"mine"}
    assert SECRET not in member.topics
    cluster.allow(rule("User:alice", ALL, TOPICS, SECRET))
    cluster.run(1)
    told_later = beat(again.member_epoch)
    assert {each.topic for each in beat(told_later.member_epoch).assignment.topics} == {"mine", SECRET}
    cluster.withdraw("User:alice")
    cluster.allow(rule("User:alice", ALL, GROUPS, "g"), rule("User:alice", ALL, TOPICS, SECRET))
    cluster.run(1)
    revoked = beat(told_later.member_epoch)
    assert not revoked.HasField("error"), revoked
    image = cluster.cluster.processes[node].image
    assert image is not None
    described = cluster.ask(
        "admin",
        groups_pb2.DescribeGroupsRequest(group_ids=["g"], timeout_ms=1_000),
        groups_pb2.DescribeGroupsResponse,
        node,
    )
    assert {each.topic for each in described.groups[0].members[0].target} == {SECRET}


def test_a_member_that_names_a_topic_which_it_sees_and_may_not_read_is_told_so(cluster: Restricted) -> None:
    request = groups_pb2.GroupHeartbeatRequest(
        correlation_id=1,
        group_id="g",
        member_id="m",
        session_timeout_ms=45_000,
        rebalance_timeout_ms=60_000,
        topics=[TOPIC],
        full=True,
    )
    answer = cluster.ask("alice", request, groups_pb2.GroupHeartbeatResponse, coordinator(cluster))
    assert answer.error.code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    other = groups_pb2.GroupHeartbeatRequest(correlation_id=1, group_id="other", member_id="m", topics=[TOPIC])
    answer = cluster.ask("alice", other, groups_pb2.GroupHeartbeatResponse, coordinator(cluster, "other"))
    assert answer.error.code == ErrorCode.GROUP_AUTHORIZATION_FAILED


@pytest.mark.parametrize("subscription", [{"topics": [SECRET, "mine"]}, {"topic_pattern": "sec.*|mine"}])
def test_a_member_hears_nothing_of_a_hidden_topic_that_comes_and_goes(
    cluster: Restricted, subscription: dict[str, object]
) -> None:
    cluster.create("mine")
    node, epoch, owned = coordinator(cluster), 0, b"o" * 16
    cluster.run(1)
    numbers = itertools.count(1)

    def told_now() -> tuple[bytes, bytes]:
        """Returns the answers about a member that claims a partition of the hidden topic, and about its group."""
        nonlocal epoch
        request = groups_pb2.GroupHeartbeatRequest(
            correlation_id=next(numbers),
            group_id="g",
            member_id="m",
            member_epoch=epoch,
            session_timeout_ms=45_000,
            rebalance_timeout_ms=60_000,
            full=True,
            owned=[groups_pb2.TopicPartitions(topic_id=owned, partitions=[0])] if epoch else [],
            **subscription,  # type: ignore[arg-type]
        )
        beat = cluster.ask("alice", request, groups_pb2.GroupHeartbeatResponse, node)
        assert not beat.HasField("error"), beat
        epoch, beat.correlation_id = beat.member_epoch, 0
        described = groups_pb2.DescribeGroupsRequest(group_ids=["g"], timeout_ms=1_000)
        return told(beat), told(cluster.ask("alice", described, groups_pb2.DescribeGroupsResponse, node))

    for _ in range(3):
        before = told_now()
    cluster.create(SECRET, partitions=3)
    owned = cluster.topic_id(SECRET)
    cluster.run(2)
    while_there = told_now()
    delete(cluster, SECRET)
    cluster.run(2)
    assert before == while_there == told_now()


def test_a_group_tells_nothing_of_a_hidden_topic_that_its_members_had(cluster: Restricted) -> None:
    cluster.create(SECRET)
    secret, node = cluster.topic_id(SECRET), coordinator(cluster)
    cluster.run(1)
    epoch = 0
    for number in (1, 2):
        request = groups_pb2.GroupHeartbeatRequest(
            correlation_id=number,
            group_id="g",
            member_id="m",
            member_epoch=epoch,
            session_timeout_ms=45_000,
            rebalance_timeout_ms=60_000,
            topics=[SECRET],
            full=True,
        )
        epoch = cluster.ask("admin", request, groups_pb2.GroupHeartbeatResponse, node).member_epoch

    def rows_for(client: str) -> list[bytes]:
        described = groups_pb2.DescribeGroupsRequest(group_ids=["g"], timeout_ms=1_000)
        (group,) = cluster.ask(client, described, groups_pb2.DescribeGroupsResponse, node).groups
        (member,) = group.members
        return [row.topic_id for row in (*member.assignment, *member.target)]

    assert secret in rows_for("admin")
    assert rows_for("alice") == []
    delete(cluster, SECRET)
    assert secret in rows_for("admin"), "the member has not received it yet"
    assert rows_for("alice") == []

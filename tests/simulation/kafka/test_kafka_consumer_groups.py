"""Members by Kafka's clients in groups whose coordinator assigns, through the shipped connection and mapping."""

from __future__ import annotations

from typing import TypeVar

import pytest

from quorumlog.server.config.options import ConsumerGroupOptions
from quorumlog.server.kafka.codec.groups.commit_requests import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from quorumlog.server.kafka.codec.groups.commit_responses import OffsetCommitResponse
from quorumlog.server.kafka.codec.groups.committed_requests import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from quorumlog.server.kafka.codec.groups.committed_responses import OffsetFetchResponse, OffsetFetchResponseGroup
from quorumlog.server.kafka.codec.groups.consumer_group_requests import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupHeartbeatRequest,
    OwnedTopicPartitions,
)
from quorumlog.server.kafka.codec.groups.consumer_group_responses import (
    ConsumerGroupDescribeResponse,
    ConsumerGroupHeartbeatResponse,
)
from quorumlog.server.kafka.codec.groups.group_requests import ListGroupsRequest
from quorumlog.server.kafka.codec.groups.group_responses import ListGroupsResponse
from quorumlog.server.kafka.codec.groups.membership_requests import (
    FindCoordinatorRequest,
    JoinGroupRequest,
    JoinGroupRequestProtocol,
)
from quorumlog.server.kafka.codec.groups.membership_responses import FindCoordinatorResponse, JoinGroupResponse
from quorumlog.server.kafka.codec.primitives import KafkaMessage
from quorumlog.server.kafka.handlers.error_codes import KafkaError
from quorumlog.simulator.world.kafka_link import SimKafkaLink
from quorumlog.v1 import admin_pb2, groups_pb2
from quorumlog.v1.acls_pb2 import (
    ACL_OPERATION_DESCRIBE,
    ACL_OPERATION_READ,
    ACL_PATTERN_LITERAL,
    ACL_PERMISSION_ALLOW,
    ACL_RESOURCE_GROUP,
    ACL_RESOURCE_TOPIC,
    Acl,
)
from tests.support.quiet_cluster import TOPIC, Quiet
from tests.support.restricted_cluster import Restricted

Response = TypeVar("Response", bound=KafkaMessage)
GROUP = "readers"
NOWHERE = b"\x07" * 16


class GroupRig:
    """A client that asks the coordinator of the group."""

    def __init__(self, cluster: Quiet, name: str = "kafka") -> None:
        self.cluster = cluster
        cluster.run(1)
        self.links = {
            node: SimKafkaLink(f"{name}-{node}", cluster.cluster, node, cluster.scheduler)
            for node in cluster.cluster.node_ids
        }
        self.node = 1

    def ask(self, message: KafkaMessage, version: int, kind: type[Response], node: int = 0) -> Response:
        link = self.links[node or self.node]
        number = link.send(message, version)
        self.cluster.until(lambda: number in link.answers or link.end is not None, 20)
        assert link.end is None, link.end
        answer = link.answers[number]
        assert isinstance(answer, kind)
        return answer

    def find(self) -> None:
        """Finds the coordinator, once there is one."""
        request = FindCoordinatorRequest(coordinator_keys=[GROUP])
        for _ in range(100):
            (found,) = self.ask(request, 6, FindCoordinatorResponse, node=1).coordinators
            if found.error_code == KafkaError.NONE:
                self.node = found.node_id
                return
            self.cluster.run(0.2)
        raise AssertionError("no node coordinates the group")

    def topic_id(self) -> bytes:
        image = self.cluster.cluster.processes[1].image
        assert image is not None
        return image.topics[TOPIC].topic_id

    def beat(self, member: str, epoch: int, version: int = 1, **said: object) -> ConsumerGroupHeartbeatResponse:
        request = ConsumerGroupHeartbeatRequest(GROUP, member, epoch, **said)  # type: ignore[arg-type]
        # The simulator judges who is put out by what members have said.
        said_of_it = groups_pb2.GroupHeartbeatRequest(group_id=GROUP, member_id=member, member_epoch=epoch)
        self.cluster.cluster.invariants.coordinators.heard.sent(said_of_it)
        return self.ask(request, version, ConsumerGroupHeartbeatResponse)

    def join(self, member: str, version: int = 1, **said: object) -> ConsumerGroupHeartbeatResponse:
        whole = {"rebalance_timeout_ms": 5_000, "subscribed_topic_names": [TOPIC], "topic_partitions": [], **said}
        return self.beat(member, 0, version, **whole)

    def commit(self, member: str, epoch: int, topic: OffsetCommitRequestTopic, version: int) -> int:
        request = OffsetCommitRequest(GROUP, epoch, member, topics=[topic])
        (reported,) = self.ask(request, version, OffsetCommitResponse).topics
        assert (reported.name, reported.topic_id) == (topic.name, topic.topic_id)
        return reported.partitions[0].error_code

    def committed(self, version: int, *topics: OffsetFetchRequestTopics, **asks: object) -> OffsetFetchResponseGroup:
        wanted = OffsetFetchRequestGroup(GROUP, topics=topics or None, **asks)  # type: ignore[arg-type]
        (group,) = self.ask(OffsetFetchRequest(groups=[wanted]), version, OffsetFetchResponse).groups
        return group


@pytest.fixture
def rig() -> GroupRig:
    made = GroupRig(Quiet(1, partitions=4, groups=ConsumerGroupOptions(coordinators=1), kafka=(1, 2, 3)))
    made.find()
    return made


def given(answer: ConsumerGroupHeartbeatResponse) -> list[int]:
    assert answer.error_code == KafkaError.NONE, answer.error_message
    assert answer.assignment is not None
    return sorted(number for each in answer.assignment.topic_partitions for number in each.partitions)


def place(offset: int, note: str) -> list[OffsetCommitRequestPartition]:
    return [OffsetCommitRequestPartition(0, offset, 1, note)]


def test_a_member_joins_lives_shares_and_leaves(rig: GroupRig) -> None:
    joined = rig.join("one")
    assert (joined.member_id, given(joined)) == ("one", [0, 1, 2, 3])
    assert joined.assignment is not None
    assert [each.topic_id for each in joined.assignment.topic_partitions] == [rig.topic_id()]
    epoch = joined.member_epoch
    quiet = rig.beat("one", epoch)
    assert (quiet.error_code, quiet.member_epoch, quiet.assignment) == (KafkaError.NONE, epoch, None)
    assert quiet.heartbeat_interval_ms == 3_000
    second = rig.join("two")
    assert (given(second), second.heartbeat_interval_ms) == ([], 500)
    kept = given(rig.beat("one", epoch))
    assert len(kept) == 2
    after = rig.beat("one", epoch, topic_partitions=[OwnedTopicPartitions(rig.topic_id(), kept)])
    assert after.member_epoch > epoch
    reported, epoch = second, second.member_epoch
    for _ in range(3):
        answer = rig.beat("two", epoch)
        epoch = answer.member_epoch
        reported = answer if answer.assignment is not None else reported
    assert sorted(given(reported) + kept) == [0, 1, 2, 3]
    left = rig.beat("one", -1)
    assert (left.error_code, left.member_epoch) == (KafkaError.NONE, -1)
    assert given(rig.beat("two", epoch)) == [0, 1, 2, 3]
    assert rig.beat("one", 3).error_code == KafkaError.UNKNOWN_MEMBER_ID
    assert rig.beat("two", epoch + 7).error_code == KafkaError.FENCED_MEMBER_EPOCH


def test_a_member_of_the_first_version_gets_its_id(rig: GroupRig) -> None:
    names = [rig.join("", version=0).member_id for _ in range(2)]
    assert names[0] and names[1] and names[0] != names[1]
    assert rig.beat(names[0] or "", 1, version=0).error_code == KafkaError.NONE
    assert rig.join("").error_code == KafkaError.INVALID_REQUEST, "of later versions members bring it"
    assert rig.beat("", 1, version=0).error_code == KafkaError.INVALID_REQUEST


@pytest.mark.parametrize(
    ("said", "code"),
    [
        ({"rebalance_timeout_ms": -1}, KafkaError.INVALID_REQUEST),
        ({"rebalance_timeout_ms": 0}, KafkaError.INVALID_REQUEST),
        ({"subscribed_topic_names": None}, KafkaError.INVALID_REQUEST),
        ({"topic_partitions": None}, KafkaError.INVALID_REQUEST),
        ({"topic_partitions": [OwnedTopicPartitions(NOWHERE, [0])]}, KafkaError.INVALID_REQUEST),
        ({"instance_id": ""}, KafkaError.INVALID_REQUEST),
        ({"rack_id": ""}, KafkaError.INVALID_REQUEST),
        ({"server_assignor": "sticky"}, KafkaError.UNSUPPORTED_ASSIGNOR),
        ({"subscribed_topic_regex": "t("}, KafkaError.INVALID_REGULAR_EXPRESSION),
        ({"subscribed_topic_regex": "t" * 1_001}, KafkaError.INVALID_REGULAR_EXPRESSION),
    ],
)
def test_what_makes_no_sense_is_refused(rig: GroupRig, said: dict[str, object], code: KafkaError) -> None:
    refused = rig.join("one", **said)
    assert (refused.error_code, bool(refused.error_message)) == (code, True)
    assert rig.join("one").error_code == KafkaError.NONE


def test_a_regular_expression_matches_the_whole_name_and_is_taken_back_by_an_empty_one(rig: GroupRig) -> None:
    joined = rig.join("one", subscribed_topic_names=None, subscribed_topic_regex="[a-z]")
    assert given(joined) == [0, 1, 2, 3]
    rig.cluster.create("tt")
    rig.cluster.run(1)
    assert rig.beat("one", joined.member_epoch).assignment is None
    changed = rig.beat("one", joined.member_epoch, subscribed_topic_regex="t+")
    assert given(changed) == [0, 0, 1, 2, 3]
    nothing = rig.beat("one", changed.member_epoch, subscribed_topic_regex="")
    assert given(nothing) == []


def test_a_static_member_comes_back_and_another_of_its_name_is_refused(rig: GroupRig) -> None:
    joined = rig.join("one", instance_id="i")
    assert rig.join("two", instance_id="i").error_code == KafkaError.UNRELEASED_INSTANCE_ID
    assert rig.beat("one", -2, instance_id="i").member_epoch == -2
    assert given(rig.join("two", instance_id="i")) == [0, 1, 2, 3]
    assert rig.beat("one", joined.member_epoch, instance_id="i").error_code == KafkaError.FENCED_INSTANCE_ID


def test_what_a_member_omits_stays(rig: GroupRig) -> None:
    """Kafka's consumer sends its subscription in its first heartbeat, and null afterwards."""
    said = {"rack_id": "r", "instance_id": "i", "server_assignor": "range", "subscribed_topic_regex": "x.*"}
    epoch = rig.join("one", **said).member_epoch
    assert rig.beat("one", epoch).error_code == KafkaError.NONE
    rig.join("two", server_assignor="range")
    (group,) = rig.ask(ConsumerGroupDescribeRequest([GROUP]), 1, ConsumerGroupDescribeResponse).groups
    assert group.assignor_name == "range"
    (member,) = (each for each in group.members if each.member_id == "one")
    assert (member.rack_id, member.instance_id) == ("r", "i")
    assert (list(member.subscribed_topic_names), member.subscribed_topic_regex) == ([TOPIC], "x.*")


def test_the_two_kinds_of_group_keep_apart(rig: GroupRig) -> None:
    protocols = [JoinGroupRequestProtocol("range", b"")]
    join = JoinGroupRequest(GROUP, 10_000, 10_000, "", None, "consumer", protocols)
    named = rig.ask(join, 9, JoinGroupResponse)
    join.member_id = named.member_id
    assert rig.ask(join, 9, JoinGroupResponse).error_code == KafkaError.NONE
    assert rig.join("one").error_code == KafkaError.INCONSISTENT_GROUP_PROTOCOL
    (reported,) = rig.ask(ConsumerGroupDescribeRequest([GROUP]), 1, ConsumerGroupDescribeResponse).groups
    assert (reported.error_code, reported.members) == (KafkaError.GROUP_ID_NOT_FOUND, [])


def test_a_group_is_described_once_and_listed_by_its_kind(rig: GroupRig) -> None:
    joined = rig.join("one", rack_id="r", instance_id="i", server_assignor="range", subscribed_topic_regex="x.*")
    request = ConsumerGroupDescribeRequest([GROUP, "nobody", GROUP], True)
    group, none = rig.ask(request, 1, ConsumerGroupDescribeResponse).groups
    assert none.error_code == KafkaError.GROUP_ID_NOT_FOUND
    assert (group.group_state, group.assignor_name) == ("Stable", "range")
    assert (group.group_epoch, group.assignment_epoch) == (joined.member_epoch,) * 2
    assert group.authorized_operations == 1 << 3 | 1 << 6 | 1 << 8  # Read, Delete, Describe.
    (member,) = group.members
    assert (member.member_id, member.instance_id, member.rack_id, member.member_type) == ("one", "i", "r", 1)
    assert (member.subscribed_topic_names, member.subscribed_topic_regex) == ([TOPIC], "x.*")
    assert member.client_host.startswith("/")
    for has in (member.assignment, member.target_assignment):
        assert has is not None
        (row,) = has.topic_partitions
        assert (row.topic_id, row.topic_name, list(row.partitions)) == (rig.topic_id(), TOPIC, [0, 1, 2, 3])
    old = rig.ask(request, 0, ConsumerGroupDescribeResponse).groups[0]
    assert (old.members[0].member_type, old.authorized_operations) == (-1, group.authorized_operations)
    listed = rig.ask(ListGroupsRequest([], ["Consumer"]), 5, ListGroupsResponse)
    assert [(each.group_id, each.group_type, each.group_state) for each in listed.groups] == [
        (GROUP, "consumer", "Stable")
    ]
    assert rig.ask(ListGroupsRequest([], ["classic"]), 5, ListGroupsResponse).groups == []


def test_members_commit_and_read_by_their_epoch_and_name_topics_by_id(rig: GroupRig) -> None:
    epoch = rig.join("one").member_epoch
    note = f"one {epoch} 1"  # By which the simulator finds the member of the commit.
    by_id, by_name = (
        OffsetCommitRequestTopic(topic_id=rig.topic_id(), partitions=place(0, note)),
        OffsetCommitRequestTopic(TOPIC, partitions=place(0, note)),
    )
    assert rig.commit("one", epoch, by_id, 10) == KafkaError.NONE
    assert rig.commit("one", epoch, by_name, 9) == KafkaError.NONE
    for version, topic, code in (
        (10, by_id, KafkaError.STALE_MEMBER_EPOCH),
        (9, by_name, KafkaError.STALE_MEMBER_EPOCH),
        (8, by_name, KafkaError.ILLEGAL_GENERATION),
    ):
        assert rig.commit("one", epoch + 1, topic, version) == code
    assert rig.commit("nobody", epoch, by_id, 10) == KafkaError.UNKNOWN_MEMBER_ID
    nowhere = OffsetCommitRequestTopic(topic_id=NOWHERE, partitions=place(0, note))
    assert rig.commit("one", epoch, nowhere, 10) == KafkaError.UNKNOWN_TOPIC_ID
    beyond = [OffsetCommitRequestPartition(9, 0, 1, note)]
    beyond_end = OffsetCommitRequestTopic(topic_id=rig.topic_id(), partitions=beyond)
    assert rig.commit("one", epoch, beyond_end, 10) == KafkaError.UNKNOWN_TOPIC_OR_PARTITION

    ask = OffsetFetchRequestTopics(topic_id=rig.topic_id(), partition_indexes=[0, 1])
    unknown = OffsetFetchRequestTopics(topic_id=NOWHERE, partition_indexes=[0])
    known, other = rig.committed(10, ask, unknown, member_id="one", member_epoch=epoch).topics
    assert (known.topic_id, [(each.committed_offset, each.error_code) for each in known.partitions]) == (
        rig.topic_id(),
        [(0, 0), (-1, 0)],
    )
    assert (other.topic_id, other.partitions[0].error_code) == (NOWHERE, KafkaError.UNKNOWN_TOPIC_ID)
    everything = rig.committed(10).topics
    assert [(each.topic_id, each.partitions[0].metadata) for each in everything] == [(rig.topic_id(), note)]
    named = OffsetFetchRequestTopics(TOPIC, partition_indexes=[0])
    assert rig.committed(9, named, member_id="one", member_epoch=epoch).topics[0].partitions[0].committed_offset == 0
    stale = rig.committed(9, named, member_id="one", member_epoch=epoch + 1)
    assert (stale.error_code, stale.topics) == (KafkaError.STALE_MEMBER_EPOCH, [])
    assert rig.committed(9, named, member_id="nobody", member_epoch=1).error_code == KafkaError.UNKNOWN_MEMBER_ID


def test_offsets_by_name_are_those_of_the_topic_that_has_it_now(rig: GroupRig) -> None:
    outsider = OffsetCommitRequestTopic(TOPIC, partitions=place(0, "- 0 1"))
    assert rig.commit("", -1, outsider, 9) == KafkaError.NONE
    former = rig.topic_id()
    request = admin_pb2.DeleteTopicsRequest(names=[TOPIC], timeout_ms=1_000)
    rig.cluster.cluster.request("admin", 1, request, lambda answer: None)
    rig.cluster.run(2)
    rig.cluster.create(TOPIC, 4)
    rig.cluster.run(2)
    assert rig.topic_id() != former
    named = OffsetFetchRequestTopics(TOPIC, partition_indexes=[0])
    assert rig.committed(9, named).topics[0].partitions[0].committed_offset == -1
    by_former = OffsetFetchRequestTopics(topic_id=former, partition_indexes=[0])
    assert rig.committed(10, by_former).topics[0].partitions[0].error_code == KafkaError.UNKNOWN_TOPIC_ID


def test_a_node_that_does_not_coordinate_the_group_says_so(rig: GroupRig) -> None:
    rig.node = next(node for node in rig.links if node != rig.node)
    assert rig.join("one").error_code == KafkaError.NOT_COORDINATOR
    (reported,) = rig.ask(ConsumerGroupDescribeRequest([GROUP]), 1, ConsumerGroupDescribeResponse).groups
    assert reported.error_code == KafkaError.NOT_COORDINATOR


def test_members_share_a_group_with_those_of_our_own_clients(rig: GroupRig) -> None:
    epoch = rig.join("one").member_epoch
    answers: list[object] = []
    ours = groups_pb2.GroupHeartbeatRequest(
        correlation_id=1,
        group_id=GROUP,
        member_id="sdk",
        topics=[TOPIC],
        session_timeout_ms=10_000,
        rebalance_timeout_ms=10_000,
        full=True,
    )
    rig.cluster.cluster.request("sdk", rig.node, ours, answers.append)
    rig.cluster.until(lambda: bool(answers), 5)
    kept = given(rig.beat("one", epoch))
    rig.beat("one", epoch, topic_partitions=[OwnedTopicPartitions(rig.topic_id(), kept)])
    (group,) = rig.ask(ConsumerGroupDescribeRequest([GROUP]), 1, ConsumerGroupDescribeResponse).groups
    assert [(each.member_id, each.member_type) for each in group.members] == [("one", 1), ("sdk", 1)]
    assert sorted(kept + [n for t in group.members[1].target_assignment.topic_partitions for n in t.partitions]) == [  # type: ignore[union-attr]
        0,
        1,
        2,
        3,
    ]


def test_members_may_do_what_rules_say() -> None:
    cluster = Restricted(1, kafka=(1, 2, 3))
    rig = GroupRig(cluster)

    def allow(operation: int, kind: int, name: str) -> None:
        cluster.allow(
            Acl(
                principal="User:ANONYMOUS",
                operation=operation,
                permission=ACL_PERMISSION_ALLOW,
                resource_type=kind,  # type: ignore[arg-type]
                resource_name=name,
                pattern_type=ACL_PATTERN_LITERAL,
            )
        )

    assert rig.join("one").error_code == KafkaError.GROUP_AUTHORIZATION_FAILED
    (reported,) = rig.ask(ConsumerGroupDescribeRequest([GROUP]), 1, ConsumerGroupDescribeResponse).groups
    assert reported.error_code == KafkaError.GROUP_AUTHORIZATION_FAILED
    allow(ACL_OPERATION_READ, ACL_RESOURCE_GROUP, GROUP)
    rig.find()
    joined = rig.join("one")
    assert given(joined) == [], "it receives nothing of a topic that it may not see"
    allow(ACL_OPERATION_DESCRIBE, ACL_RESOURCE_TOPIC, TOPIC)
    assert rig.join("two").error_code == KafkaError.TOPIC_AUTHORIZATION_FAILED
    allow(ACL_OPERATION_READ, ACL_RESOURCE_TOPIC, TOPIC)
    rig.cluster.run(1)
    assert given(rig.beat("one", joined.member_epoch)) == [0]

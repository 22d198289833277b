"""Coordinators of consumer groups on several nodes: creation on first use, failover, catching up and moves."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from google.protobuf.message import Message
from quiet_cluster import SECOND, TOPIC, Quiet

from quorumlog.server.config.options import ConsumerGroupOptions
from quorumlog.server.groups.group_shard import GroupShard
from quorumlog.simulator.world.clients import Unanswered
from quorumlog.v1 import admin_pb2, groups_pb2
from quorumlog.v1.errors_pb2 import ErrorCode
from quorumlog.wire.topic_names import GROUPS_TOPIC

SESSION_MS = 10_000


class Grouped(Quiet):
    """A quiet cluster with coordinators, and a client that sends them requests."""

    def __init__(self, seed: int, coordinators: int = 1, nodes: int = 3, **checkpoints: int) -> None:
        super().__init__(
            seed, partitions=4, nodes=nodes, groups=ConsumerGroupOptions(coordinators=coordinators, **checkpoints)
        )
        self.numbers = 0

    def ask(self, node: int, request: Message, seconds: float = 5) -> Message:
        """A node's answer to a request."""
        answers: list[object] = []
        self.cluster.request("client", node, request, answers.append)
        self.until(lambda: bool(answers), seconds)
        assert isinstance(answers[0], Message), answers
        return answers[0]

    def ask_coordinator(self, node: int, request: Message) -> Message:
        """The answer of a node that leads it. One that has just been elected has yet to find out what is committed, and
        has itself asked again."""
        end = self.scheduler.now + 5 * SECOND
        while True:
            answer = self.ask(node, request)
            if answer.error.code != ErrorCode.COORDINATOR_NOT_AVAILABLE or self.scheduler.now >= end:  # type: ignore[attr-defined]
                return answer
            self.run(0.01)

    def find(self, group_id: str = "g", seconds: float = 5) -> int:
        """The node that coordinates a group, as soon as one that runs says so."""
        end = self.scheduler.now + int(seconds * SECOND)
        while True:
            contacted = min(node for node, process in self.cluster.processes.items() if process.running)
            found = self.ask(contacted, groups_pb2.FindCoordinatorsRequest(group_ids=[group_id]))
            if found.coordinators and found.coordinators[0].node_id in self.running:
                return found.coordinators[0].node_id
            assert self.scheduler.now < end, found
            self.run(0.01)

    @property
    def running(self) -> set[int]:
        return {node for node, process in self.cluster.processes.items() if process.running and not process.paused}

    def beat(self, node: int, member_id: str, epoch: int, **fields: object) -> groups_pb2.GroupHeartbeatResponse:
        """The answer to a member's heartbeat."""
        self.numbers += 1
        request = groups_pb2.GroupHeartbeatRequest(
            correlation_id=self.numbers,
            group_id="g",
            member_id=member_id,
            member_epoch=epoch,
            topics=[TOPIC],
            session_timeout_ms=SESSION_MS,
            rebalance_timeout_ms=SESSION_MS,
            **fields,
        )
        answer = self.ask_coordinator(node, request)
        assert isinstance(answer, groups_pb2.GroupHeartbeatResponse)
        return answer

    def coordinators(self) -> dict[int, GroupShard]:
        """The replicas of the coordinator on the nodes that run."""
        return {
            node: replica.machine
            for node, process in self.cluster.processes.items()
            for replica in process.replicas.values()
            if isinstance(replica.machine, GroupShard)
        }

    def topic_id(self) -> bytes:
        image = next(process.image for process in self.cluster.processes.values() if process.image is not None)
        return image.topics[TOPIC].topic_id

    def commit(self, node: int, member_id: str, epoch: int, note: int) -> int:
        """Commits the offset of an empty partition, with a note; returns the error's code."""
        request = groups_pb2.CommitOffsetsRequest(group_id="g", member_id=member_id, member_epoch=epoch)
        request.offsets.add(
            topic_id=self.topic_id(), partition=0, offset=0, leader_epoch=-1, metadata=f"{member_id} {epoch} {note}"
        )
        answer = self.ask(node, request)
        assert isinstance(answer, groups_pb2.CommitOffsetsResponse)
        return answer.error.code or answer.results[0].error.code

    def committed(self, node: int) -> dict[int, int]:
        """The notes beside the group's offsets, by partition."""
        answer = self.ask_coordinator(node, groups_pb2.FetchOffsetsRequest(group_id="g", member_epoch=-1))
        assert isinstance(answer, groups_pb2.FetchOffsetsResponse) and not answer.HasField("error"), answer
        return {row.partition: int(row.metadata.split()[-1]) for row in answer.offsets}


def numbers(answer: groups_pb2.GroupHeartbeatResponse) -> list[int]:
    return [number for topic in answer.assignment.topics for number in topic.partitions]


@pytest.mark.parametrize(("nodes", "factor"), [(1, 1), (3, 3)])
def test_coordinators_come_to_be_when_one_is_looked_for(nodes: int, factor: int) -> None:
    quiet = Grouped(1, coordinators=4, nodes=nodes)
    assert not quiet.coordinators(), "no client has asked for one"
    quiet.find()
    images = [process.image for process in quiet.cluster.processes.values()]
    topic = next(image.topics[GROUPS_TOPIC] for image in images if image is not None)
    assert [len(partition.replicas) for partition in topic.partitions] == [factor] * 4
    again = quiet.ask(nodes, groups_pb2.FindCoordinatorsRequest(all=True))
    assert [found.partition for found in again.coordinators] == [0, 1, 2, 3]


def test_a_killed_coordinator_s_groups_go_on_at_the_next_leader() -> None:
    quiet = Grouped(2)
    node = quiet.find()
    first = quiet.beat(node, "a", 0, full=True)
    assert numbers(first) == [0, 1, 2, 3]
    assert quiet.commit(node, "a", first.member_epoch, 42) == ErrorCode.NONE
    quiet.run(2)
    killed_at = quiet.scheduler.now
    quiet.cluster.processes[node].die(silent=False)
    heir = quiet.find()
    again = quiet.beat(heir, "a", first.member_epoch, full=True, owned=first.assignment.topics)
    while again.error.code in (ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE):
        heir = quiet.find()
        again = quiet.beat(heir, "a", first.member_epoch, full=True, owned=first.assignment.topics)
    took_ms = (quiet.scheduler.now - killed_at) / 1000
    assert took_ms < 1_500, f"{took_ms} ms"
    assert heir != node
    assert (again.error.code, again.member_epoch, numbers(again)) == (0, first.member_epoch, [0, 1, 2, 3])
    assert quiet.committed(heir) == {0: 42}


def test_who_asks_another_node_is_told_where_the_leader_is() -> None:
    quiet = Grouped(3)
    leader = quiet.find()
    other = next(node for node in quiet.cluster.node_ids if node != leader)
    answer = quiet.beat(other, "a", 0, full=True)
    assert (answer.error.code, answer.error.leader.node_id) == (ErrorCode.NOT_COORDINATOR, leader)
    assert answer.error.retriable
    assert answer.error.definite


def test_news_reach_a_waiting_member_at_once() -> None:
    quiet = Grouped(4)
    node = quiet.find()
    first = quiet.beat(node, "a", 0, full=True)
    heard: list[Message | Unanswered] = []
    waiting = groups_pb2.GroupHeartbeatRequest(
        correlation_id=100,
        group_id="g",
        member_id="a",
        member_epoch=first.member_epoch,
        topics=[TOPIC],
        session_timeout_ms=SESSION_MS,
        rebalance_timeout_ms=SESSION_MS,
        max_wait_ms=3_000,
        owned=first.assignment.topics,
    )
    quiet.cluster.request("waiting", node, waiting, heard.append)
    quiet.run(1)
    assert not heard
    quiet.beat(node, "b", 0, full=True)
    took = quiet.until(lambda: bool(heard), 1)
    assert took < 0.1
    assert numbers(heard[0]) == [0, 1]  # type: ignore[arg-type]


def test_a_leader_that_stood_still_throws_nobody_out() -> None:
    quiet = Grouped(5, nodes=1)
    node = quiet.find()
    first = quiet.beat(node, "a", 0, full=True)
    quiet.cluster.processes[node].pause()
    quiet.run(3 * SESSION_MS / 1000)
    quiet.cluster.processes[node].resume()
    quiet.run(1)
    again = quiet.beat(node, "a", first.member_epoch, owned=first.assignment.topics)
    assert (again.error.code, again.member_epoch) == (ErrorCode.NONE, first.member_epoch)


def test_a_paused_leader_s_members_go_on_elsewhere_and_keep_what_they_have() -> None:
    quiet = Grouped(6)
    node = quiet.find()
    first = quiet.beat(node, "a", 0, full=True)
    quiet.cluster.processes[node].pause()
    heir = quiet.until(lambda: any(c.leads for n, c in quiet.coordinators().items() if n != node), 5) and next(
        n for n, c in quiet.coordinators().items() if c.leads and n != node
    )
    again = quiet.beat(heir, "a", first.member_epoch, full=True, owned=first.assignment.topics)
    assert (again.error.code, again.member_epoch, numbers(again)) == (0, first.member_epoch, [0, 1, 2, 3])
    quiet.run(2)
    quiet.cluster.processes[node].resume()
    late = quiet.beat(node, "a", first.member_epoch, owned=first.assignment.topics)
    assert late.error.code == ErrorCode.NOT_COORDINATOR


def test_a_silent_member_s_partitions_go_to_the_others_after_its_session() -> None:
    quiet = Grouped(7)
    node = quiet.find()
    quiet.beat(node, "a", 0, full=True)
    other = quiet.beat(node, "b", 0, full=True)
    silent_since = quiet.scheduler.now
    while len(numbers(other)) < 4:
        answer = quiet.beat(node, "b", other.member_epoch, max_wait_ms=1_000, owned=other.assignment.topics)
        other = answer if answer.HasField("assignment") or answer.error.code else other
        assert not other.HasField("error"), other
    took = (quiet.scheduler.now - silent_since) / SECOND
    assert SESSION_MS / 1000 - 0.5 < took < SESSION_MS / 1000 + 0.5


def test_a_restarted_node_has_its_groups_again_and_one_far_behind_gets_a_snapshot() -> None:
    quiet = Grouped(8, checkpoint_entries=10)
    node = quiet.find()
    behind = next(n for n in quiet.cluster.node_ids if n != node)
    quiet.cluster.processes[behind].die(silent=False)
    epoch = quiet.beat(node, "a", 0, full=True).member_epoch
    for note in range(40):
        assert quiet.commit(node, "a", epoch, note) == ErrorCode.NONE
        quiet.run(0.02)
    leading = quiet.coordinators()[node]
    assert leading.snapshot is not None
    assert leading.raft.anchor.index > 20, "the log has been given up"
    quiet.cluster.start(behind)
    quiet.until(lambda: behind in quiet.coordinators() and is_same(quiet, behind, node), 10)
    for each in quiet.cluster.node_ids:
        quiet.cluster.processes[each].die(silent=False)
    quiet.run(1)
    for each in quiet.cluster.node_ids:
        quiet.cluster.start(each)
    # Until then the metadata name the leader from before.
    quiet.until(lambda: any(each.raft.is_leader for each in quiet.coordinators().values()), 10)
    heir = next(each for each, machine in quiet.coordinators().items() if machine.raft.is_leader)
    assert quiet.committed(heir) == {0: 39}


def is_same(quiet: Grouped, one: int, other: int) -> bool:
    machines = quiet.coordinators()
    index = machines[other].last_applied.index
    return machines[one].table.to_snapshot(index) == machines[other].table.to_snapshot(index)


def test_a_coordinator_moves_to_another_node_with_its_groups() -> None:
    quiet = Grouped(9, nodes=4)
    node = quiet.find()
    first = quiet.beat(node, "a", 0, full=True)
    assert quiet.commit(node, "a", first.member_epoch, 5) == ErrorCode.NONE
    hosts = set(quiet.coordinators())
    [free] = set(quiet.cluster.node_ids) - hosts
    stays = sorted(hosts - {node})
    request = admin_pb2.ReassignPartitionsRequest(timeout_ms=5_000)
    request.reassignments.add(topic=GROUPS_TOPIC, partition=0, replicas=[free, *stays])
    assert not quiet.ask(1, request).results[0].HasField("error")
    quiet.until(lambda: set(quiet.coordinators()) == {free, *stays}, 20)
    heir = quiet.find()
    assert heir != node
    again = quiet.beat(heir, "a", first.member_epoch, full=True, owned=first.assignment.topics)
    assert (again.error.code, numbers(again)) == (ErrorCode.NONE, [0, 1, 2, 3])
    assert quiet.committed(heir) == {0: 5}
    assert quiet.beat(node, "a", first.member_epoch, full=True).error.code == ErrorCode.NOT_COORDINATOR


def test_a_topic_that_grows_is_news_and_a_deleted_one_takes_its_offsets_along() -> None:
    quiet = Grouped(10)
    node = quiet.find()
    first = quiet.beat(node, "a", 0, full=True)
    assert quiet.commit(node, "a", first.member_epoch, 5) == ErrorCode.NONE
    grow = admin_pb2.CreatePartitionsRequest(timeout_ms=5_000)
    grow.topics.add(name=TOPIC, total_count=6)
    quiet.ask(1, grow)
    news = quiet.beat(node, "a", first.member_epoch, max_wait_ms=2_000, owned=first.assignment.topics)
    assert numbers(news) == [0, 1, 2, 3, 4, 5]
    quiet.ask(1, admin_pb2.DeleteTopicsRequest(names=[TOPIC], timeout_ms=5_000))
    gone = quiet.beat(node, "a", news.member_epoch, max_wait_ms=2_000, owned=news.assignment.topics)
    assert gone.HasField("assignment")
    assert numbers(gone) == []
    group = quiet.coordinators()[node].table.groups["g"]
    quiet.until(lambda: not group.offsets, 8)


@pytest.mark.parametrize(
    ("request_of", "code"),
    [
        (lambda: admin_pb2.DeleteTopicsRequest(names=[GROUPS_TOPIC], timeout_ms=1_000), ErrorCode.INVALID_TOPIC),
        (
            lambda: admin_pb2.CreatePartitionsRequest(
                topics=[admin_pb2.NewPartitions(name=GROUPS_TOPIC, total_count=9)], timeout_ms=1_000
            ),
            ErrorCode.INVALID_TOPIC,
        ),
        (
            lambda: admin_pb2.AlterConfigsRequest(
                topics=[admin_pb2.AlterTopicConfig(name=GROUPS_TOPIC, set={"retention.ms": "1000"})], timeout_ms=1_000
            ),
            ErrorCode.INVALID_TOPIC,
        ),
    ],
    ids=("delete", "grow", "configure"),
)
def test_nobody_changes_the_coordinators_topic(request_of: Callable[[], Message], code: int) -> None:
    quiet = Grouped(11, nodes=1)
    quiet.find()
    assert quiet.ask(1, request_of()).results[0].error.code == code

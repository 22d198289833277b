"""Coordinators of real nodes, as clients use them: members continue when theirs is killed, stopped or paused."""

from __future__ import annotations

import queue
import time
from collections.abc import Iterator

import grpc
import pytest

from quorumlog.local import LocalCluster
from quorumlog.sdk import Admin, NewTopic
from quorumlog.v1 import (
    admin_pb2,
    admin_pb2_grpc,
    data_plane_pb2,
    data_plane_pb2_grpc,
    groups_pb2,
    groups_pb2_grpc,
)
from quorumlog.v1.errors_pb2 import ErrorCode
from quorumlog.wire.entry import Codec, build_batch

pytestmark = [pytest.mark.alone, pytest.mark.cluster]
#: Longer than a member takes to find its next coordinator, on a busy machine too.
SESSION_MS = 4_000
#: For what ends as soon as there is an answer.
PATIENCE_S = 30.0
TOPIC = "orders"


class RawMember:
    """A member that speaks the protocol by hand, with whichever node coordinates its group.

    Heartbeats wait for news at most ``max_wait_ms``.
    """

    def __init__(self, cluster: LocalCluster, group_id: str, session_ms: int = SESSION_MS) -> None:
        self._cluster = cluster
        self._group_id = group_id
        self._member_id = "a"
        self._session_ms = session_ms
        self._number = 0
        self._heartbeats: queue.SimpleQueue[groups_pb2.GroupHeartbeatRequest | None] = queue.SimpleQueue()
        self._channels: dict[int, grpc.Channel] = {}
        self._answers: Iterator[groups_pb2.GroupHeartbeatResponse] = iter(())
        self.epoch = 0
        self.assignment: list[groups_pb2.TopicPartitions] = []
        self.node = 0

    def stub(self, node: int) -> groups_pb2_grpc.GroupsStub:
        """The service of one node."""
        if node not in self._channels:
            options = [("grpc.primary_user_agent", "raw member")]
            self._channels[node] = grpc.insecure_channel(self._cluster.address(node), options=options)
        return groups_pb2_grpc.GroupsStub(self._channels[node])

    def connect(self, timeout_s: float = PATIENCE_S) -> None:
        """Finds the coordinator, and opens a stream to it."""
        deadline = time.monotonic() + timeout_s
        running = [node for node in self._cluster.node_ids if self._cluster.is_running(node)]
        while True:
            assert time.monotonic() < deadline, "no coordinator in time"
            for node in running:
                request = groups_pb2.FindCoordinatorsRequest(group_ids=[self._group_id])
                try:
                    found = self.stub(node).FindCoordinators(request, timeout=0.5).coordinators[0]
                except grpc.RpcError:
                    continue
                if found.node_id in running and found.node_id != self.node:
                    self.node = found.node_id
                    self._heartbeats = queue.SimpleQueue()
                    self._answers = self.stub(self.node).Heartbeat(
                        iter(self._heartbeats.get, None), timeout=4 * PATIENCE_S
                    )
                    return
            time.sleep(0.02)

    def send(self, *, full: bool = False, max_wait_ms: int = 0) -> None:
        self._number += 1
        request = groups_pb2.GroupHeartbeatRequest(
            correlation_id=self._number,
            group_id=self._group_id,
            member_id=self._member_id,
            member_epoch=self.epoch,
            topics=[TOPIC],
            session_timeout_ms=self._session_ms,
            rebalance_timeout_ms=self._session_ms,
            full=full,
            max_wait_ms=max_wait_ms,
            owned=self.assignment if self.epoch > 0 else (),
        )
        self._heartbeats.put(request)

    def receive(self) -> groups_pb2.GroupHeartbeatResponse:
        answer = next(self._answers)
        if not answer.HasField("error"):
            self.epoch = answer.member_epoch
            if answer.HasField("assignment"):
                self.assignment = list(answer.assignment.topics)
        return answer

    def beat(self, *, full: bool = False) -> groups_pb2.GroupHeartbeatResponse:
        self.send(full=full)
        return self.receive()

    def join(self) -> None:
        """Joins, at whichever node is ready to have it."""
        deadline = time.monotonic() + PATIENCE_S
        self.connect()
        while (answer := self.beat(full=True)).HasField("error"):
            assert answer.error.retriable and time.monotonic() < deadline, answer
            time.sleep(0.02)

    def go_on(self) -> None:
        """Continues at the next coordinator, as the member that it was."""
        epoch, deadline = self.epoch, time.monotonic() + PATIENCE_S
        while True:
            assert time.monotonic() < deadline
            self.connect()
            try:
                answer = self.beat(full=True)
            except grpc.RpcError:
                self.node = 0
                continue
            if answer.error.code not in (ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE):
                assert (answer.error.code, answer.member_epoch) == (ErrorCode.NONE, epoch), answer
                return
            self.node = 0
            time.sleep(0.02)

    @property
    def partitions(self) -> list[int]:
        return [number for topic in self.assignment for number in topic.partitions]

    def commit(self, offset: int) -> None:
        request = groups_pb2.CommitOffsetsRequest(
            group_id=self._group_id, member_id=self._member_id, member_epoch=self.epoch
        )
        request.offsets.add(topic_id=self.assignment[0].topic_id, partition=0, offset=offset, leader_epoch=-1)
        answer = self.stub(self.node).CommitOffsets(request, timeout=PATIENCE_S)
        assert not answer.results[0].HasField("error"), answer

    def committed(self) -> dict[int, int]:
        request = groups_pb2.FetchOffsetsRequest(
            group_id=self._group_id, member_id=self._member_id, member_epoch=self.epoch
        )
        return {
            row.partition: row.offset for row in self.stub(self.node).FetchOffsets(request, timeout=PATIENCE_S).offsets
        }

    def close(self) -> None:
        self._heartbeats.put(None)
        for channel in self._channels.values():
            channel.close()


def create(cluster: LocalCluster) -> None:
    with Admin(bootstrap_servers=cluster.bootstrap_servers) as admin:
        admin.create_topics([NewTopic(TOPIC, num_partitions=4, replication_factor=1)])


@pytest.fixture(scope="module")
def three() -> Iterator[LocalCluster]:
    with LocalCluster(nodes=3) as cluster:
        create(cluster)
        yield cluster


@pytest.fixture(scope="module")
def one() -> Iterator[LocalCluster]:
    with LocalCluster(nodes=1, settings={"group_coordinators": 2}) as cluster:
        create(cluster)
        yield cluster


def test_a_member_goes_on_where_it_was_when_its_coordinator_is_killed(three: LocalCluster) -> None:
    member = RawMember(three, "killed", session_ms=10_000)
    member.join()
    assert member.partitions == [0, 1, 2, 3]
    member.commit(17)
    first = member.node
    three.kill(first)
    killed_at = time.monotonic()
    member.go_on()
    took = time.monotonic() - killed_at
    assert took < 3, f"{took:.2f} s"
    assert member.node != first
    assert member.partitions == [0, 1, 2, 3]
    assert member.committed() == {0: 17}
    three.start(first)
    three.wait_ready()
    member.close()


def test_a_paused_coordinator_s_members_go_on_elsewhere(three: LocalCluster) -> None:
    member = RawMember(three, "paused")
    member.join()
    first = member.node
    three.pause(first)
    try:
        member.go_on()
        held, until = member.partitions, time.monotonic() + 1.5 * SESSION_MS / 1000
        while time.monotonic() < until:
            assert not member.beat().HasField("error")
            time.sleep(0.1)
    finally:
        three.resume(first)
    assert member.node != first
    assert not member.beat().HasField("error")
    assert member.partitions == held
    member.close()


def test_a_coordinator_that_stops_sends_its_members_on(three: LocalCluster) -> None:
    member = RawMember(three, "stopped", session_ms=10_000)
    member.join()
    while member.beat().member_epoch != member.epoch:
        pass
    first = member.node
    member.send(max_wait_ms=3_000)
    three.stop(first)
    reported = member.receive()
    if reported.HasField("error"):
        assert (reported.error.code, reported.error.retriable) == (ErrorCode.NOT_COORDINATOR, True)
    member.go_on()
    assert member.node != first
    three.start(first)
    three.wait_ready()
    member.close()


def test_a_coordinator_that_was_paused_for_longer_than_a_session_throws_nobody_out(one: LocalCluster) -> None:
    member = RawMember(one, "g")
    member.join()
    one.pause(1)
    time.sleep(1.5 * SESSION_MS / 1000)  # No member sends a heartbeat for this time: that is what is tested.
    one.resume(1)
    assert not member.beat().HasField("error")
    [described] = member.stub(1).DescribeGroups(groups_pb2.DescribeGroupsRequest(group_ids=["g"])).groups
    assert [(each.member_id, each.client_id, each.host) for each in described.members] == [
        ("a", "raw member", "127.0.0.1")
    ]
    member.close()


def test_the_coordinators_topic_is_described_by_name_and_holds_no_records(one: LocalCluster) -> None:
    member = RawMember(one, "any")
    member.connect()
    with Admin(bootstrap_servers=one.bootstrap_servers) as admin:
        assert TOPIC in admin.list_topics()
        assert "__groups" not in admin.list_topics()
        [topic] = admin.describe_topics(["__groups"])
    assert len(topic.partitions) == 2
    topic_id = bytes.fromhex(topic.topic_id)
    batch = build_batch(b"x" * 64, record_count=1, codec=Codec.NONE, base_timestamp_ms=1, max_timestamp_ms=1)
    produce = data_plane_pb2.ProduceRequest(acks=-1, timeout_ms=1_000)
    produce.batches.add(topic_id=topic_id, batch=batch)
    fetch = data_plane_pb2.FetchRequest(max_wait_ms=100)
    fetch.partitions.add(topic_id=topic_id, leader_epoch=-1)
    offsets = data_plane_pb2.ListOffsetsRequest(timeout_ms=1_000)
    offsets.partitions.add(topic_id=topic_id, timestamp_ms=-1, leader_epoch=-1)
    deletion = admin_pb2.DeleteRecordsRequest(timeout_ms=1_000)
    deletion.partitions.add(topic_id=topic_id, before_offset=0)
    with grpc.insecure_channel(one.address(1)) as channel:
        stub = data_plane_pb2_grpc.DataPlaneStub(channel)
        problems = [
            next(stub.Produce(iter([produce]))).results[0].error,
            next(stub.Fetch(iter([fetch]))).results[0].error,
            stub.ListOffsets(offsets).results[0].error,
            admin_pb2_grpc.AdminStub(channel).DeleteRecords(deletion).results[0].error,
        ]
    assert {problem.code for problem in problems} == {ErrorCode.INVALID_TOPIC}
    assert {problem.message for problem in problems} == {
        "topic __groups belongs to the cluster itself: it holds no records to write, read or delete"
    }
    member.close()

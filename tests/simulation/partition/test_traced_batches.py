"""Traced batches in virtual time: the times of each replica, and the batches that have no trace."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from quiet_cluster import Quiet
from sequenced_client import SequencedClient

from quorumlog.server.requests.produce_traces import ANOTHER_UNDER_WAY, DUPLICATE, NOT_ALONE
from quorumlog.simulator.world.disk import DiskOptions
from quorumlog.v1 import data_plane_pb2 as pb
from quorumlog.v1.errors_pb2 import ErrorCode

#: What a message or a step may take besides, in µs.
SLACK_US = 1_500


@dataclass
class Watched:
    """A cluster with one partition, and disks that take exactly so long."""

    quiet: Quiet
    client: SequencedClient
    group: int
    leader: int

    @classmethod
    def of(cls, seed: int) -> Watched:
        quiet = Quiet(seed)
        quiet.until(lambda: bool(quiet.groups()) and quiet.led_by(quiet.groups()[0]) is not None, 5)
        (group,) = quiet.groups()
        client = SequencedClient(quiet)
        assert client.sent("first", 0).base_offset == 0
        leader = quiet.led_by(group)
        assert leader is not None
        return cls(quiet, client, group, leader)

    @property
    def followers(self) -> tuple[int, int]:
        one, other = sorted({1, 2, 3} - {self.leader})
        return one, other

    def sync_takes(self, leader_us: int, *followers_us: int) -> None:
        for node, sync_us in zip((self.leader, *self.followers), (leader_us, *followers_us), strict=True):
            self.quiet.cluster.processes[node].disk._options = DiskOptions((sync_us, sync_us), slow_probability=0)

    def traced(self, value: str, sequence: int) -> pb.BatchTrace:
        """Sends a batch to the leader, and returns its trace."""
        self.quiet.run(0.5)
        self.client.send(self.leader, value, sequence, trace=True)
        self.quiet.until(lambda: value in self.client.traces, 5)
        return self.client.traces[value]

    def are_forgotten(self) -> bool:
        node = self.quiet.cluster.processes[self.leader].node
        assert node is not None and node._member is not None
        return not node._member.services.logs.produce.traces.by_request


def test_each_disk_has_its_own_time_and_who_was_not_needed_has_none() -> None:
    watched = Watched.of(1)
    for sequence, (fast, slow) in enumerate((watched.followers, watched.followers[::-1]), start=1):
        times = {fast: 6_000, slow: 90_000}
        watched.sync_takes(20_000, *(times[node] for node in watched.followers))
        trace = watched.traced(f"v{sequence}", sequence)
        by_node = {each.node_id: each for each in trace.replicas}
        assert trace.replicas[0].node_id == trace.node_id == watched.leader
        assert 20_000 <= by_node[watched.leader].sync_us < 20_000 + SLACK_US
        assert 6_000 <= by_node[fast].sync_us < 6_000 + SLACK_US, "its own word, not the leader's disk"
        assert not by_node[slow].HasField("durable_us") and not by_node[slow].HasField("sync_us")
        assert by_node[fast].sync_us < by_node[fast].durable_us < by_node[watched.leader].durable_us
        assert trace.committed_us == trace.answered_us == by_node[watched.leader].durable_us
        assert (trace.voters, trace.majority, trace.copies_needed, trace.min_insync_replicas) == (3, 2, 2, 1)
    assert watched.are_forgotten()


def test_a_trace_is_of_its_own_batch_and_not_of_the_one_before_it() -> None:
    """The batch before it is being synced when it comes: its own sync comes after that."""
    watched = Watched.of(2)
    watched.sync_takes(40_000, 60_000, 60_000)
    watched.client.send(watched.leader, "a", 1)
    last = watched.quiet.replicas_of(watched.group)[watched.leader].last_id.index
    watched.quiet.until(lambda: watched.quiet.replicas_of(watched.group)[watched.leader].last_id.index > last, 1)
    watched.client.send(watched.leader, "b", 2, trace=True)
    watched.quiet.until(lambda: "b" in watched.client.traces, 5)
    trace = watched.client.traces["b"]
    assert watched.client.acknowledged("b") == [2] and "a" not in watched.client.traces
    own = trace.replicas[0]
    assert own.durable_us > own.sync_us + 20_000, "it waited for the sync that was under way"


def test_what_was_not_asked_for_is_not_told() -> None:
    watched = Watched.of(3)
    watched.client.send(watched.leader, "a", 1)
    watched.quiet.until(lambda: watched.client.acknowledged("a") == [1], 2)
    assert watched.client.traces == {}


def test_a_stream_has_one_traced_batch_at_a_time_and_the_other_is_told_so() -> None:
    watched = Watched.of(4)
    watched.sync_takes(20_000, 20_000, 20_000)
    process = watched.quiet.cluster.processes[watched.leader]
    streams = process.open_stream(), process.open_stream()
    watched.client.send(watched.leader, "a", 1, trace=True, stream=streams[0])
    watched.client.send(watched.leader, "b", 2, trace=True, stream=streams[0])
    watched.client.send(watched.leader, "c", 3, trace=True, stream=streams[1])
    watched.quiet.until(lambda: len(watched.client.traces) == 3, 5)
    reported = {value: trace.untraced for value, trace in watched.client.traces.items()}
    assert reported == {"a": "", "b": ANOTHER_UNDER_WAY, "c": ""}
    assert [watched.client.acknowledged(value) for value in "abc"] == [[1], [2], [3]], "what is not traced is appended"
    assert watched.traced("d", 4).untraced == "", "the stream is free again"


def test_a_batch_that_was_in_the_log_already_has_no_way_to_tell_of() -> None:
    watched = Watched.of(5)
    assert watched.traced("first", 0).untraced == DUPLICATE
    assert watched.client.acknowledged("first") == [0, 0]
    assert watched.are_forgotten()


def test_several_batches_in_one_request_are_not_traced() -> None:
    watched = Watched.of(6)
    watched.quiet.create("two", 2)
    answers: list[pb.ProduceResponse] = []
    image = watched.quiet.cluster.processes[watched.leader].image
    assert image is not None
    topic_id = next(topic.topic_id for topic in image.topics.values() if topic.name == "two")
    batch = pb.PartitionBatch(topic_id=topic_id, partition=0, batch=b"")
    request = watched.client.request_of("a", 1)
    request.trace = True
    request.batches.append(batch)
    watched.quiet.cluster.request("client", watched.leader, request, answers.append)  # type: ignore[arg-type]
    watched.quiet.until(lambda: bool(answers), 5)
    assert answers[0].trace.untraced == NOT_ALONE


def test_of_a_batch_that_is_not_confirmed_in_time_is_told_what_is_known() -> None:
    watched = Watched.of(7)
    watched.quiet.run(0.5)
    for follower in watched.followers:
        watched.quiet.cluster.processes[follower].pause()
    watched.client.send(watched.leader, "a", 1, trace=True)
    watched.quiet.until(lambda: "a" in watched.client.traces, 5)
    trace = watched.client.traces["a"]
    (result,) = watched.client.results["a"]
    assert result.error.code != ErrorCode.NONE
    assert trace.replicas[0].HasField("durable_us") and not trace.HasField("committed_us")
    assert not any(each.HasField("durable_us") for each in trace.replicas[1:])
    assert trace.answered_us > 100_000
    assert watched.are_forgotten()


@pytest.mark.parametrize("seed", range(8, 11))
def test_a_client_that_goes_leaves_no_trace(seed: int) -> None:
    watched = Watched.of(seed)
    watched.sync_takes(200_000, 200_000, 200_000)
    process = watched.quiet.cluster.processes[watched.leader]
    stream = process.open_stream()
    watched.client.send(watched.leader, "a", 1, trace=True, stream=stream)
    watched.quiet.until(lambda: not watched.are_forgotten(), 1)
    process.close_stream(stream)
    watched.quiet.run(0.05)
    assert watched.are_forgotten()

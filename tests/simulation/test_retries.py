"""Retries of batches that are appended and not committed: nobody is told that they are safe before they are."""

from __future__ import annotations

import pytest
from quiet_cluster import TOPIC, Quiet

from quorumlog.chaos.invariants import values_of
from quorumlog.raft.types import EntryKind, TimeoutNow
from quorumlog.server.events import FrameReceived, PeerFrame, Stream
from quorumlog.v1 import data_plane_pb2 as pb
from quorumlog.v1.entry import Codec, build_batch
from quorumlog.v1.errors_pb2 import ErrorCode

SEEDS = range(1, 5)


class Client:
    """An idempotent producer of single records that says itself where and how often a batch is sent."""

    def __init__(self, quiet: Quiet) -> None:
        self.quiet = quiet
        self.results: dict[str, list[pb.ProduceResult]] = {}
        image = quiet.cluster.processes[1].image
        assert image is not None
        self.topic_id = next(topic.topic_id for topic in image.topics.values() if topic.name == TOPIC)
        answers: list[object] = []
        quiet.cluster.request("client", 1, pb.InitProducerIdRequest(timeout_ms=1_000), answers.append)
        quiet.until(lambda: bool(answers), 2)
        (self.identity,) = (answer for answer in answers if isinstance(answer, pb.InitProducerIdResponse))

    def send(self, node: int, value: str, sequence: int) -> None:
        """Sends a batch of one record; ``results`` gathers what is answered."""
        batch = build_batch(
            value.encode().ljust(8, b"\0"),
            record_count=1,
            codec=Codec.NONE,
            base_timestamp_ms=1_700_000_000_000,
            max_timestamp_ms=1_700_000_000_000,
            producer_id=self.identity.producer_id,
            producer_epoch=self.identity.producer_epoch,
            base_sequence=sequence,
        )
        request = pb.ProduceRequest(
            acks=-1,
            timeout_ms=2_000,
            batches=[pb.PartitionBatch(topic_id=self.topic_id, partition=0, batch=batch)],
        )

        def answered(answer: object) -> None:
            if isinstance(answer, pb.ProduceResponse):
                self.results.setdefault(value, []).append(answer.results[0])

        self.quiet.cluster.request("client", node, request, answered)

    def acknowledged(self, value: str) -> list[int]:
        """Offsets at which the value was said to be."""
        return [r.base_offset for r in self.results.get(value, []) if r.error.code == ErrorCode.NONE]


def log_of(quiet: Quiet, group: int) -> list[str]:
    """The values in the leader's committed log, in order."""
    leader = quiet.led_by(group)
    assert leader is not None
    raft = quiet.replicas_of(group)[leader]
    entries = raft.entries_between(1, raft.commit_index, 1 << 30)
    return [value for entry in entries if entry.kind is EntryKind.BATCH for value in values_of(entry.data)]


def leader_with_an_uncommitted_batch(seed: int) -> tuple[Quiet, Client, int, int]:
    """A partition with ``a`` in it. Its leader was cut off, does not know it yet, and has ``b`` for itself alone.

    Returns:
        The cluster, the client, the partition's group and the old leader.
    """
    quiet = Quiet(seed)
    quiet.until(lambda: bool(quiet.groups()) and quiet.led_by(quiet.groups()[0]) is not None, 5)
    (group,) = quiet.groups()
    client = Client(quiet)
    old = quiet.led_by(group)
    assert old is not None
    client.send(old, "a", 0)
    quiet.until(lambda: client.acknowledged("a") == [0], 2)
    quiet.cluster.network.sever(old)
    client.send(old, "b", 1)
    last = quiet.replicas_of(group)[old].last_id.index
    quiet.until(lambda: quiet.replicas_of(group)[old].last_id.index > last, 0.1)
    return quiet, client, group, old


def make_leader(quiet: Quiet, group: int, node: int) -> None:
    """Hands a group's leadership to a node, as often as it takes: its links may only just be opening again."""
    raft = quiet.replicas_of(group)[node]
    for _ in range(10):
        leader = quiet.led_by(group)
        if leader == node and raft.leads_committed:
            return
        if leader is not None and leader != node:
            transfer = TimeoutNow(leader, node, raft.term)
            quiet.cluster.deliver(node, FrameReceived(leader, PeerFrame(Stream.CONTROL, messages=[(group, transfer)])))
        quiet.run(0.5)
    raise AssertionError(f"node {node} does not come to lead group {group}")


@pytest.mark.scenario("22a")
@pytest.mark.parametrize("seed", SEEDS)
def test_a_retry_of_what_is_only_appended_is_not_answered_duplicate_and_fine(seed: int) -> None:
    quiet, client, group, old = leader_with_an_uncommitted_batch(seed)
    for _ in range(3):
        client.send(old, "b", 1)
        quiet.run(0.02)
    quiet.until(lambda: quiet.led_by(group) not in (None, old), 3)
    assert client.acknowledged("b") == []
    # The original is lost: a new client's record takes its place.
    other = Client(quiet)
    new = quiet.led_by(group)
    assert new is not None
    other.send(new, "x", 0)
    quiet.until(lambda: other.acknowledged("x") == [1], 2)
    quiet.cluster.network.heal()
    quiet.run(5)
    assert client.acknowledged("b") == []
    assert log_of(quiet, group) == ["a", "x"]


@pytest.mark.scenario("22b")
@pytest.mark.parametrize("seed", SEEDS)
def test_a_deposed_leader_that_leads_again_takes_the_batch_that_was_cut_off_for_new(seed: int) -> None:
    quiet, client, group, old = leader_with_an_uncommitted_batch(seed)
    quiet.until(lambda: quiet.led_by(group) not in (None, old), 3)
    quiet.cluster.network.heal()
    replicas = quiet.replicas_of(group)
    quiet.until(lambda: replicas[old].last_id == replicas[quiet.led_by(group) or old].last_id, 5)
    make_leader(quiet, group, old)
    assert log_of(quiet, group) == ["a"]
    client.send(old, "b", 1)
    quiet.until(lambda: bool(client.acknowledged("b")), 3)
    assert client.acknowledged("b") == [1]
    assert log_of(quiet, group) == ["a", "b"]

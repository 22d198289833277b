"""Deletion of topics in whole nodes in virtual time: nothing remains, not even on nodes that were down or crashed."""

from __future__ import annotations

import random

import pytest
from compacting_cluster import Compacting
from google.protobuf.message import Message as ProtoMessage
from quiet_cluster import TOPIC, Quiet

from quorumlog.simulator.world.clients import PartitionName, SimProducer, SimProducerOptions, Unanswered
from quorumlog.simulator.world.metadata_probe import MetadataProbe
from quorumlog.v1 import admin_pb2
from quorumlog.v1 import data_plane_pb2 as pb
from quorumlog.v1.errors_pb2 import ErrorCode


class Deleting(Quiet):
    """A cluster with a topic that is written to, to be deleted."""

    def __init__(self, seed: int, *, checkpoint_entries: int = 2_000, partitions: int = 1) -> None:
        super().__init__(seed, partitions, checkpoint_entries=checkpoint_entries)
        self.rng = random.Random(seed)
        options = SimProducerOptions(interval_us=(2_000, 4_000), request_timeout_us=200_000, records=(1, 1))
        names = [PartitionName(TOPIC, number) for number in range(partitions)]
        self.producer = SimProducer("writer", names, self.cluster, self.scheduler, options, self.history, self.cluster)
        self.run(0.5)
        assert self.producer.acknowledged > 20

    def ask(self, node: int, request: ProtoMessage) -> list[ProtoMessage | Unanswered]:
        answers: list[ProtoMessage | Unanswered] = []
        self.cluster.request(f"asker-{self.rng.random()}", node, request, answers.append)
        return answers

    def delete(self, node: int = 1) -> None:
        def deleted() -> bool:
            return bool(answers) and isinstance(answers[0], admin_pb2.DeleteTopicsResponse)

        answers = self.ask(node, admin_pb2.DeleteTopicsRequest(names=[TOPIC], timeout_ms=5_000))
        self.until(deleted, 6)
        assert answers[0].results[0].error.code == ErrorCode.NONE, answers  # type: ignore[union-attr]

    def topic_id(self, node: int) -> bytes:
        image = self.cluster.processes[node].image
        assert image is not None
        return image.topics[TOPIC].topic_id

    def remains(self, groups: list[int]) -> list[tuple[int, int]]:
        """Returns the pairs of node and group of which a replica remains, in memory or on disk."""
        return [
            (node, group)
            for node, process in self.cluster.processes.items()
            for group in groups
            if group in process.replicas or group in process.disk.synced
        ]

    def until_gone(self, groups: list[int], seconds: float = 10) -> None:
        self.until(lambda: not self.remains(groups), seconds)


def test_a_deleted_topic_leaves_every_node_and_its_name_is_free_at_once() -> None:
    quiet = Deleting(1, partitions=3)
    groups = quiet.groups()
    quiet.delete(node=2)
    quiet.producer.stop()
    quiet.create(TOPIC, node=3)
    (new,) = set(quiet.groups()) - set(groups)
    quiet.until_gone(groups)
    quiet.until(lambda: quiet.led_by(new) is not None, 2)
    assert new > max(groups)
    quiet.run(2)
    assert quiet.groups() == [new]


def test_the_answer_comes_when_the_answering_node_shows_the_deletion() -> None:
    for node in (1, 2, 3):
        quiet = Deleting(10 + node)
        quiet.delete(node)
        image = quiet.cluster.processes[node].image
        assert image is not None
        assert TOPIC not in image.topics


def test_who_waits_for_a_deleted_partition_is_told() -> None:
    quiet = Deleting(2)
    (group,) = quiet.groups()
    quiet.producer.stop()
    quiet.run(1)
    leader = quiet.led_by(group)
    assert leader is not None
    topic_id = quiet.topic_id(leader)
    fetch = pb.FetchRequest(max_wait_ms=60_000, min_bytes=1)
    end = quiet.cluster.invariants.model(group).log.next_offset
    fetch.partitions.add(topic_id=topic_id, partition=0, fetch_offset=end, leader_epoch=-1)
    waiting = quiet.ask(leader, fetch)
    quiet.run(0.2)
    assert not waiting
    quiet.delete(leader)
    quiet.until(lambda: bool(waiting), 1)
    (fetched,) = waiting[0].results  # type: ignore[union-attr]
    assert fetched.error.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    late: dict[str, ProtoMessage] = {
        "offsets": pb.ListOffsetsRequest(
            partitions=[pb.ListOffsetsPartition(topic_id=topic_id, partition=0, timestamp_ms=-1, leader_epoch=-1)]
        ),
        "records": admin_pb2.DeleteRecordsRequest(
            partitions=[admin_pb2.DeleteRecordsPartition(topic_id=topic_id, partition=0, before_offset=1)]
        ),
        "produce": pb.ProduceRequest(
            acks=-1, timeout_ms=1_000, batches=[pb.PartitionBatch(topic_id=topic_id, partition=0, batch=b"x")]
        ),
    }
    for request in late.values():
        answers = quiet.ask(leader, request)
        quiet.until(lambda answers=answers: bool(answers), 2)  # type: ignore[misc]
        problem = answers[0].results[0].error  # type: ignore[union-attr]
        assert (problem.code, problem.definite) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, True)


@pytest.mark.parametrize("checkpoint_entries", [2_000, 2])
@pytest.mark.parametrize("away", [1, 3])
def test_a_node_that_was_down_destroys_its_replicas_when_it_is_back(checkpoint_entries: int, away: int) -> None:
    quiet = Deleting(20 + away, checkpoint_entries=checkpoint_entries, partitions=2)
    groups = quiet.groups()
    quiet.cluster.processes[away].die(silent=False)
    quiet.run(1)
    other = next(node for node in quiet.cluster.node_ids if node != away)
    quiet.delete(other)
    quiet.producer.stop()
    for number in range(4):
        quiet.create(f"other{number}", node=other)
    assert {node for node, _ in quiet.remains(groups)} == {away}
    quiet.cluster.start(away)
    quiet.until_gone(groups)
    quiet.run(2)
    assert len(quiet.groups()) == 4
    assert all(quiet.led_by(group) is not None for group in quiet.groups())


@pytest.mark.parametrize("seed", range(12))
def test_nothing_comes_back_when_nodes_crash_while_they_delete(seed: int) -> None:
    quiet = Deleting(100 + seed, checkpoint_entries=seed % 2 * 2_000 + 3, partitions=2)
    groups = quiet.groups()
    quiet.ask(1, admin_pb2.DeleteTopicsRequest(names=[TOPIC], timeout_ms=5_000))
    for _ in range(6):
        quiet.run(quiet.rng.uniform(0, 0.02))
        node = quiet.rng.choice(quiet.cluster.node_ids)
        if quiet.cluster.is_up(node):
            quiet.cluster.processes[node].die(silent=False)
        quiet.run(quiet.rng.uniform(0, 0.05))
        if not quiet.cluster.is_up(node):
            quiet.cluster.start(node)
    quiet.producer.stop()
    for node in quiet.cluster.node_ids:
        if not quiet.cluster.is_up(node):
            quiet.cluster.start(node)
    quiet.run(3)
    if any(TOPIC in process.image.topics for process in quiet.cluster.processes.values() if process.image):
        quiet.delete()  # The request was lost with the node.
    quiet.until_gone(groups)


@pytest.mark.parametrize("seed", range(3))
def test_no_linearizable_read_shows_a_deleted_topic_or_lacks_a_change(seed: int) -> None:
    quiet = Quiet(300 + seed, checkpoint_entries=10)
    rng = random.Random(seed)
    stopped = False
    probe = MetadataProbe(quiet.cluster, quiet.scheduler, 3, lambda: stopped, (10_000, 40_000))
    for _ in range(4):
        quiet.run(2)
        node = rng.choice(quiet.cluster.node_ids)
        quiet.cluster.processes[node].die(silent=False)
        quiet.run(rng.uniform(0, 1))
        quiet.cluster.start(node)
    stopped = True
    assert probe.deleted > 5
    assert probe.answered > 50
    quiet.run(3)
    present = {group for process in quiet.cluster.processes.values() for group in process.image.partitions}  # type: ignore[union-attr]
    assert set(quiet.groups()) == present, "no replica of what is deleted is left"


@pytest.mark.parametrize("seed", range(4))
def test_a_topic_is_deleted_in_the_midst_of_its_compaction(seed: int) -> None:
    rng = random.Random(seed)
    cluster = Compacting(400 + seed)
    cluster.write(80)
    cluster.run(rng.uniform(0, 0.5))
    name = cluster.partition(1).identity.topic
    answers: list[ProtoMessage | Unanswered] = []
    request = admin_pb2.DeleteTopicsRequest(names=[name], timeout_ms=5_000)
    cluster.cluster.request("deleter", 2, request, answers.append)
    cluster.until(lambda: bool(answers), 6)
    assert answers[0].results[0].error.code == ErrorCode.NONE  # type: ignore[union-attr]

    def gone() -> bool:
        processes = cluster.cluster.processes.values()
        return not any(cluster.group in p.replicas or cluster.group in p.disk.synced for p in processes)

    cluster.until(gone, 10)
    cluster.run(2)
    assert gone()

"""A partition is restored from a backup in virtual time, while its leaders die; every invariant is watched."""

from __future__ import annotations

import random

import pytest
from quiet_cluster import TOPIC, Quiet
from sequenced_client import log_of, tables_of

from quorumlog.server.partition.partition import Partition
from quorumlog.v1 import admin_pb2, data_plane_pb2
from quorumlog.v1.admin_pb2 import ProducerBatch, ProducerRecord
from quorumlog.v1.errors_pb2 import ErrorCode
from quorumlog.wire.entry import Codec, build_batch, seal_batch

START, BATCHES = 1_000, 30
PRODUCER = 77
TIME_MS = 1_700_000_000_000


def batch(value: str, sequence: int) -> bytes:
    """One record of the producer, as it sends it."""
    return build_batch(
        value.encode().ljust(8, b"\0"),
        record_count=1,
        codec=Codec.NONE,
        base_timestamp_ms=TIME_MS,
        max_timestamp_ms=TIME_MS,
        producer_id=PRODUCER,
        producer_epoch=0,
        base_sequence=sequence,
    )


def stored(number: int) -> bytes:
    """A batch as a node of another cluster has stored it."""
    return seal_batch(
        batch(f"r{number}", number), group=9, term=4, index=number + 1, previous_hash=7, base_offset=START + number
    )


class Restoring(Quiet):
    """A cluster into which a client restores one partition, through the current leader."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.rng = random.Random(seed)
        self.until(lambda: bool(self.groups()) and self.led_by(self.groups()[0]) is not None, 20)
        image = self.cluster.processes[1].image
        assert image is not None
        self.topic_id = next(topic.topic_id for topic in image.topics.values() if topic.name == TOPIC)

    def asked(self, request: object, patience_s: float) -> object | None:
        """Asks the leader; None where it does not answer in time."""
        group = self.groups()[0]
        leader = self.led_by(group)
        answers: list[object] = []
        if leader is not None:
            self.cluster.request("restorer", leader, request, answers.append)  # type: ignore[arg-type]
        end = self.scheduler.now + int(patience_s * 1_000_000)
        while not answers and self.scheduler.now < end:
            self.run(0.005)
        return answers[0] if answers else None

    def step(self, **body: object) -> admin_pb2.RestorePartitionResponse:
        """Repeats a step of the restore until it succeeds, while nodes crash at random."""
        request = admin_pb2.RestorePartitionRequest(
            topic_id=self.topic_id,
            restore_id=b"r" * 16,
            timeout_ms=500,
            **body,  # type: ignore[arg-type]
        )
        for _ in range(60):
            if self.rng.random() < 0.2:
                self.kill_somebody()
            answer = self.asked(request, 1)
            if isinstance(answer, admin_pb2.RestorePartitionResponse) and not answer.HasField("error"):
                return answer
            self.run(0.2)
        raise AssertionError(f"no answer to {request}: {answer}")

    def kill_somebody(self) -> None:
        """Kills a random node, and restarts it soon."""
        node = self.rng.choice(self.cluster.node_ids)
        self.cluster.processes[node].die(silent=self.rng.random() < 0.5)
        self.run(self.rng.uniform(0.0, 0.3))
        self.cluster.start(node)

    def send(self, value: str, sequence: int) -> data_plane_pb2.ProduceResult:
        """Sends a batch of the producer until it is answered."""
        request = data_plane_pb2.ProduceRequest(acks=-1, timeout_ms=1_000)
        request.batches.add(topic_id=self.topic_id, batch=batch(value, sequence))
        for _ in range(60):
            answer = self.asked(request, 2)
            if isinstance(answer, data_plane_pb2.ProduceResponse) and not answer.results[0].error.retriable:
                return answer.results[0]
            self.run(0.2)
        raise AssertionError(f"no answer: {answer}")


@pytest.mark.parametrize("seed", range(12))
def test_a_restore_is_whole_whoever_dies(seed: int) -> None:
    cluster = Restoring(seed)
    position = cluster.step(begin={"log_start_offset": START, "next_offset": START}).next_offset
    while position < START + BATCHES:
        first = position - START
        end = min(BATCHES, first + cluster.rng.randint(1, 7))
        entries = [stored(number) for number in range(first, end)]
        position = cluster.step(append={"entries": entries, "next_offset": START + end}).next_offset
    batches = [
        ProducerBatch(base_sequence=number, record_count=1, base_offset=START + number)
        for number in range(BATCHES - 5, BATCHES)
    ]
    record = ProducerRecord(producer_id=PRODUCER, records=BATCHES, batches=batches)
    cluster.step(producers={"producers": [record]})
    finish = {"log_start_offset": START + 3, "next_offset": START + BATCHES}
    assert cluster.step(finish=finish).finished
    retried = cluster.send(f"r{BATCHES - 1}", BATCHES - 1)
    assert (retried.error.code, retried.base_offset) == (ErrorCode.NONE, START + BATCHES - 1)
    following = cluster.send("new", BATCHES)
    assert (following.error.code, following.base_offset) == (ErrorCode.NONE, START + BATCHES)
    cluster.run(5)
    group = cluster.groups()[0]
    assert log_of(cluster, group) == [*(f"r{number}" for number in range(3, BATCHES)), "new"], "the others are trimmed"
    tables = tables_of(cluster, group)
    assert all(table == tables[0] for table in tables[1:])
    for process in cluster.cluster.processes.values():
        machine = process.replicas[group].machine
        assert isinstance(machine, Partition)
        assert (machine.log_start_offset, machine.high_watermark) == (START + 3, START + BATCHES + 1)
        assert not machine.restoring

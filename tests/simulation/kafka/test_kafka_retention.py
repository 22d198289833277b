"""Retention and look-ups by time go by what records say, or by when they were appended, and not by clients' headers."""

from __future__ import annotations

import itertools

import pytest

from quorumlog.server.kafka.codec import position_requests, produce_requests
from quorumlog.server.kafka.codec.position_responses import ListOffsetsResponse
from quorumlog.server.kafka.codec.produce_responses import ProduceResponse
from quorumlog.server.kafka.handlers.error_codes import KafkaError
from quorumlog.server.step.request_context import UNKNOWN_CLIENT
from quorumlog.v1 import admin_pb2, data_plane_pb2
from quorumlog.v1.errors_pb2 import ErrorCode
from quorumlog.wire.kafka.batch import KafkaCodec
from quorumlog.wire.kafka.entry import entry_of_kafka
from tests.support.kafka_batches import KafkaRow, changed, kafka_batch
from tests.support.kafka_nodes import KafkaNodes
from tests.support.quiet_cluster import SECOND

#: About when the simulator's clocks start.
WALL_MS = 1_700_000_000_000
HOUR_MS = 3_600_000
YEAR_MS = 365 * 24 * HOUR_MS
MAX_TIMESTAMP_AT = 35
RETENTION_S = 20


class Nodes(KafkaNodes):
    """Three nodes, or ``size``, with topics that keep records for some seconds."""

    def __init__(self, *topics: str, size: int = 3, **configs: str) -> None:
        super().__init__(nodes=size)
        created: list[admin_pb2.CreateTopicsResponse] = []
        configs = {"retention.ms": str(RETENTION_S * 1_000)} | {
            key.replace("_", "."): value for key, value in configs.items()
        }
        request = admin_pb2.CreateTopicsRequest(timeout_ms=1_000)
        for topic in topics or ("short",):
            request.topics.add(name=topic, num_partitions=1, replication_factor=size, configs=configs)
        self.cluster.request("admin", 1, request, created.append)  # type: ignore[arg-type]
        self.until(lambda: bool(created) and all(map(self.leader, topics or ("short",))), 20)

    def leader(self, topic: str = "short") -> int | None:
        """The node that leads a topic."""
        return self.led_by(self.record(topic).group)

    def produce_request(self, batch: bytes, topic: str = "short") -> produce_requests.ProduceRequest:
        """Returns the request that a client sends with a batch."""
        data = produce_requests.PartitionProduceData(0, batch)
        wanted = produce_requests.TopicProduceData(topic_id=self.image.topics[topic].topic_id, partition_data=[data])
        return produce_requests.ProduceRequest(None, -1, 5_000, [wanted])

    def produce(self, batch: bytes, topic: str = "short") -> int:
        """The error code of what a client produces."""
        answer = self.ask(self.produce_request(batch, topic), ProduceResponse, self.leader(topic) or 1)
        return answer.responses[0].partition_responses[0].error_code

    def offset_at(self, timestamp_ms: int, topic: str = "short") -> int:
        """The first offset at or after a time, as Kafka's clients ask for it."""
        wanted = position_requests.ListOffsetsPartition(0, -1, timestamp_ms)
        request = position_requests.ListOffsetsRequest(-1, 0, [position_requests.ListOffsetsTopic(topic, [wanted])])
        return self.ask(request, ListOffsetsResponse, self.leader(topic) or 1).topics[0].partitions[0].offset

    def log_start(self, topic: str = "short") -> int:
        """The first offset that is kept."""
        return self.offset_at(-2, topic)

    def run_until_removed(self, before: int, *topics: str) -> None:
        """Runs until all records before an offset are gone."""
        for _ in range(RETENTION_S):
            self.run(3)
            starts = {topic: self.log_start(topic) for topic in topics}
            if set(starts.values()) == {before}:
                return
        raise AssertionError(f"log starts: {starts}")


def rows_at(*times_ms: int) -> list[KafkaRow]:
    """Records with these timestamps. The simulator wants each value to be there once."""
    return [(b"k", b"%d-%d" % (next(_numbers), time_ms), time_ms, []) for time_ms in times_ms]


_numbers = itertools.count()

#: Timestamps of a batch, what its header states as the largest, and the codec.
OLD_CLIENTS = {
    "header-left-out": ((WALL_MS, WALL_MS + 3), -1, KafkaCodec.NONE),
    "header-left-out-lz4": ((WALL_MS, WALL_MS + 3), -1, KafkaCodec.LZ4),
    "header-zero": ((WALL_MS, WALL_MS + 3), 0, KafkaCodec.GZIP),
    "header-too-early": ((WALL_MS, WALL_MS + 3), WALL_MS - YEAR_MS, KafkaCodec.NONE),
    "header-of-the-first": ((WALL_MS - YEAR_MS, WALL_MS), WALL_MS - YEAR_MS, KafkaCodec.SNAPPY),
    "no-timestamps": ((-1, -1), -1, KafkaCodec.NONE),
    "filled-in": ((WALL_MS - YEAR_MS, WALL_MS - YEAR_MS), WALL_MS - YEAR_MS, KafkaCodec.ZSTD),
}


def test_records_are_kept_for_their_time_and_no_longer() -> None:
    nodes = Nodes(*OLD_CLIENTS)
    for _ in range(3):
        for topic, (times_ms, stated_ms, codec) in OLD_CLIENTS.items():
            batch = changed(kafka_batch(rows_at(*times_ms), codec), MAX_TIMESTAMP_AT, ">q", stated_ms)
            assert nodes.produce(batch, topic) == KafkaError.NONE
        nodes.run(1)
    nodes.run(RETENTION_S - 8)
    assert {topic: nodes.log_start(topic) for topic in OLD_CLIENTS} == dict.fromkeys(OLD_CLIENTS, 0)
    nodes.run_until_removed(6, *OLD_CLIENTS)


def test_a_later_leader_keeps_what_the_former_appended() -> None:
    nodes = Nodes()
    assert nodes.produce(kafka_batch(rows_at(WALL_MS - YEAR_MS))) == KafkaError.NONE
    leader = nodes.leader()
    assert leader is not None
    nodes.cluster.processes[leader].die(silent=False)
    nodes.until(lambda: nodes.leader() not in (None, leader), 20)
    nodes.run(5)
    assert nodes.log_start() == 0


def test_an_uncommitted_batch_hides_no_young_one() -> None:
    """Retention is due while the last batch waits for its followers: only what has expired is removed."""
    nodes = Nodes()
    old = [kafka_batch(rows_at(WALL_MS - YEAR_MS)) for _ in range(3)]
    assert nodes.produce(old[0]) == KafkaError.NONE
    expiry = nodes.scheduler.now + RETENTION_S * SECOND
    nodes.run(RETENTION_S / 2)
    assert nodes.produce(old[1]) == KafkaError.NONE
    nodes.run((expiry - nodes.scheduler.now) / SECOND - 0.2)
    leader = nodes.leader()
    assert leader is not None
    for follower in set(nodes.cluster.node_ids) - {leader}:
        nodes.cluster.network.cut(leader, follower)
    nodes.links[leader].send(nodes.produce_request(old[2]), produce_requests.ProduceRequest.HIGHEST)
    nodes.run(0.4)
    nodes.cluster.network.heal()
    nodes.run(3)
    assert nodes.leader() == leader
    assert nodes.log_start() == 1


@pytest.mark.parametrize("stated_ms", [-1, 0, WALL_MS - YEAR_MS, WALL_MS + YEAR_MS])
def test_records_are_found_by_their_time(stated_ms: int) -> None:
    nodes = Nodes(retention_ms="-1")
    for first in (0, 100, 200):
        times = (WALL_MS + first, WALL_MS + first + 50, WALL_MS + first + 20)
        assert (
            nodes.produce(changed(kafka_batch(rows_at(*times)), MAX_TIMESTAMP_AT, ">q", stated_ms)) == KafkaError.NONE
        )
    found = [nodes.offset_at(WALL_MS + after) for after in (0, 1, 50, 51, 120, 151, 250, 251)]
    assert found == [0, 1, 1, 3, 4, 6, 7, -1]


@pytest.mark.parametrize("codec", [KafkaCodec.NONE, KafkaCodec.LZ4])
def test_records_far_in_the_future_are_refused_by_their_own_time(codec: KafkaCodec) -> None:
    nodes = Nodes()
    ahead = changed(kafka_batch(rows_at(WALL_MS, WALL_MS + 2 * HOUR_MS), codec), MAX_TIMESTAMP_AT, ">q", WALL_MS)
    assert nodes.produce(ahead) == KafkaError.INVALID_TIMESTAMP
    overstated = changed(kafka_batch(rows_at(WALL_MS), codec), MAX_TIMESTAMP_AT, ">q", WALL_MS + YEAR_MS)
    assert nodes.produce(overstated) == KafkaError.NONE


def test_append_time_takes_any_timestamp_and_replaces_it() -> None:
    nodes = Nodes(**{"message_timestamp_type": "LogAppendTime"})
    assert nodes.produce(kafka_batch(rows_at(WALL_MS + YEAR_MS))) == KafkaError.NONE
    assert nodes.offset_at(WALL_MS) == 0
    assert nodes.offset_at(WALL_MS + HOUR_MS) == -1


def test_a_clock_far_ahead_keeps_nothing_for_ever() -> None:
    """A leader whose clock showed the next year would have its batches, and all after them, kept until then."""
    nodes = Nodes()
    for node in nodes.cluster.node_ids:
        nodes.cluster.processes[node].wall_offset_ms = YEAR_MS
    assert nodes.produce(kafka_batch(rows_at(WALL_MS))) == KafkaError.NONE
    for node in nodes.cluster.node_ids:
        nodes.cluster.processes[node].wall_offset_ms = 0
    nodes.cluster.invariants.latest_wall_ms = 0
    assert nodes.produce(kafka_batch(rows_at(WALL_MS))) == KafkaError.NONE
    nodes.run_until_removed(2, "short")


def test_batches_of_kafkas_format_come_in_at_their_port_only() -> None:
    """The gRPC port checks no records."""
    nodes = Nodes()
    leader = nodes.leader()
    assert leader is not None
    entry = entry_of_kafka(kafka_batch(rows_at(WALL_MS)), null_keys=False)
    request = data_plane_pb2.ProduceRequest(acks=-1, timeout_ms=1_000)
    request.batches.add(topic_id=nodes.image.topics["short"].topic_id, partition=0, batch=entry)
    answers: list[object] = []
    nodes.cluster.processes[leader].request(request, answers.append, None, 0, UNKNOWN_CLIENT)
    nodes.until(lambda: bool(answers), 5)
    [answer] = answers
    assert isinstance(answer, data_plane_pb2.ProduceResponse)
    assert answer.results[0].error.code == ErrorCode.INVALID_RECORD


def test_recent_records_outlast_an_hour() -> None:
    """10,000 records of each kind, in a topic that keeps a week, are there after an hour of the node's time."""
    count, per_batch = 10_000, 500
    nodes = Nodes(*OLD_CLIENTS, size=1, retention_ms=str(7 * 24 * HOUR_MS))
    for _ in range(count // per_batch):
        for topic, (times_ms, stated_ms, codec) in OLD_CLIENTS.items():
            rows = rows_at(*times_ms * (per_batch // len(times_ms)))
            batch = changed(kafka_batch(rows, codec), MAX_TIMESTAMP_AT, ">q", stated_ms)
            assert nodes.produce(batch, topic) == KafkaError.NONE
    began_ms = nodes.cluster.processes[1].wall_ms
    nodes.run(3_600)
    assert nodes.cluster.processes[1].wall_ms >= began_ms + HOUR_MS
    kept = {topic: (nodes.log_start(topic), nodes.offset_at(-1, topic)) for topic in OLD_CLIENTS}
    assert kept == dict.fromkeys(OLD_CLIENTS, (0, count))

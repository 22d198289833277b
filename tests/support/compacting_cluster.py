"""A quiet simulated cluster with a compacted topic, a writer of keys, and the model of what must be left of them."""

from __future__ import annotations

import random

from quiet_cluster import Quiet

from quorumlog.raft.types import EntryKind
from quorumlog.server.config.options import NodeLimits
from quorumlog.server.partition.compaction_state import ROW, CompactionState
from quorumlog.server.partition.partition import Partition
from quorumlog.simulator.world.durable_raft_group import DurableRaftGroup
from quorumlog.simulator.world.process import SimProcess
from quorumlog.v1 import admin_pb2, errors_pb2
from quorumlog.v1 import data_plane_pb2 as pb
from quorumlog.v1.errors_pb2 import ErrorCode
from quorumlog.v1.partition_log_pb2 import PartitionCommand, TrimLog
from tests.support.compaction_samples import Placed, Sample, records_in, unsealed_batch, unsealed_by_kafka

KEYED = "keyed"
#: So small that a pass has many pieces and many transactions, and points gather faster than one pass takes them in.
SMALL = NodeLimits(
    compaction_batch_bytes=700,
    compaction_chunk_bytes=2_000,
    compaction_pass_bytes=20_000,
    compaction_bytes_per_second=400_000,
)


class Compacting(Quiet):
    """The cluster, a random writer, and every record that was acknowledged, by offset."""

    def __init__(self, seed: int, *, limits: NodeLimits = SMALL, **configs: str) -> None:
        super().__init__(seed, limits=limits, compaction_interval_s=0.3)
        self.rng = random.Random(seed)
        configs = {"cleanup_policy": "compact", "delete_retention_ms": "1500"} | configs
        request = admin_pb2.CreateTopicsRequest(timeout_ms=1_000)
        request.topics.add(
            name=KEYED,
            num_partitions=1,
            replication_factor=3,
            configs={key.replace("_", "."): value for key, value in configs.items()},
        )
        answers: list[admin_pb2.CreateTopicsResponse] = []
        self.cluster.request("admin", 1, request, answers.append)  # type: ignore[arg-type]
        self.until(lambda: bool(answers), 5)
        assert answers[0].results[0].error.code == ErrorCode.NONE, answers
        self.run(1)
        self.group = max(self.groups())
        image = self.process(1).image
        assert image is not None
        self.topic_id = image.topics[KEYED].topic_id
        self.written: dict[int, Sample] = {}
        self._values = 0

    # -- writing ----------------------------------------------------------------------------------------------------

    def write(self, batches: int, keys: int = 12) -> None:
        """Batches of random keys, one after the other; one record in five deletes its key."""
        for _ in range(batches):
            records = []
            for _ in range(self.rng.randint(1, 6)):
                self._values += 1
                value = None if self.rng.random() < 0.2 else b"hope-%d" % self._values
                records.append(Sample(b"key-%d" % self.rng.randrange(keys), value, self.now_ms()))
            self.send(records, by_kafka=self._values % 3 == 0)

    def send(self, records: list[Sample], *, by_kafka: bool = False) -> None:
        """One batch, sent until it is acknowledged or refused for good. A retry may be in the log twice.

        Arguments:
            by_kafka: as a Kafka client writes it.
        """
        batch = unsealed_by_kafka(records) if by_kafka else unsealed_batch(records)
        for _ in range(100):
            result = self._attempt(batch)
            if result is not None and result.error.code == ErrorCode.NONE:
                for place, record in enumerate(records):
                    self.written[result.base_offset + place] = record
                return
            assert result is None or result.error.retriable, result
            self.run(0.1)
        raise AssertionError("no node accepts the batch")

    def refusal(self, records: list[Sample]) -> errors_pb2.Error:
        """Why a batch is refused."""
        result = self._attempt(unsealed_batch(records))
        assert result is not None
        return result.error

    def _attempt(self, batch: bytes) -> pb.ProduceResult | None:
        leader = self.led_by(self.group)
        if leader is None:
            return None
        request = pb.ProduceRequest(
            acks=-1,
            timeout_ms=2_000,
            batches=[pb.PartitionBatch(topic_id=self.topic_id, partition=0, batch=batch)],
        )
        answers: list[object] = []
        self.cluster.request("writer", leader, request, answers.append)
        self.until(lambda: bool(answers), 10)
        (answer,) = answers
        return answer.results[0] if isinstance(answer, pb.ProduceResponse) else None

    def now_ms(self) -> int:
        return 1_700_000_000_000 + self.scheduler.now // 1_000

    def alter(self, **configs: str) -> None:
        """Changes the topic's configuration."""
        request = admin_pb2.AlterConfigsRequest(timeout_ms=1_000)
        request.topics.add(name=KEYED, set={key.replace("_", "."): value for key, value in configs.items()})
        answers: list[admin_pb2.AlterConfigsResponse] = []
        self.cluster.request("admin", 1, request, answers.append)  # type: ignore[arg-type]
        self.until(lambda: bool(answers), 5)
        assert answers[0].results[0].error.code == ErrorCode.NONE, answers
        self.run(0.5)

    def trim(self, before: int) -> None:
        """Moves the log start, as retention does once the topic's policy is another."""
        leader = self.led_by(self.group)
        assert leader is not None
        self.cluster.invariants.model(self.group).log.deletable = before
        command = PartitionCommand(trim_log=TrimLog(log_start_offset=before))
        process = self.process(leader)
        assert process.node is not None
        assert self.partition(leader).propose_command(process.node._time.now, command)
        self.write(1)
        for offset in [offset for offset in self.written if offset < before]:
            del self.written[offset]

    # -- state ----------------------------------------------------------------------------------------------

    def process(self, node: int) -> SimProcess:
        return self.cluster.processes[node]

    def partition(self, node: int) -> Partition:
        machine = self.process(node).replicas[self.group].machine
        assert isinstance(machine, Partition)
        return machine

    def durable(self, node: int) -> DurableRaftGroup:
        return self.process(node).disk.synced[self.group]

    def reached(self, node: int) -> int:
        """The compaction point on the node's disk."""
        table = self.durable(node).table
        return CompactionState(table[ROW]).compacted_offset if ROW in table else 0

    def content(self, node: int) -> tuple[list[Placed], int]:
        """Returns the partition's records on a node's disk, and the end of their compacted part."""
        durable = self.durable(node)
        slices: list[bytes] = []
        if durable.snapshot is not None:
            pieces = durable.slices[durable.snapshot.data.stage]
            slices = [pieces[number] for number in range(durable.snapshot.data.slices - 1)]
        entries = [entry.data for entry in durable.entries if entry.kind is EntryKind.BATCH]
        return [*records_in(slices), *records_in(entries)], self.reached(node)

    def read(self) -> dict[int, Sample]:
        """Everything that the leader serves, from the beginning to the high watermark."""
        return self.read_from(0)

    def read_from(self, position: int) -> dict[int, Sample]:
        """The same from an offset on."""
        found: dict[int, Sample] = {}
        high_watermark = position + 1
        while position < high_watermark:
            self.until(lambda: self.led_by(self.group) is not None, 20)
            leader = self.led_by(self.group)
            assert leader is not None
            request = pb.FetchRequest(
                max_wait_ms=500, min_bytes=1, max_bytes=self.rng.choice((1, 2_000, 1 << 20)), takes_kafka_batches=True
            )
            request.partitions.add(
                topic_id=self.topic_id, partition=0, fetch_offset=position, leader_epoch=-1, max_bytes=1 << 20
            )
            answers: list[object] = []
            self.cluster.request("reader", leader, request, answers.append)
            self.until(lambda answers=answers: bool(answers), 5)  # type: ignore[misc]
            (answer,) = answers
            if not isinstance(answer, pb.FetchResponse) or answer.results[0].HasField("error"):
                self.run(0.05)
                continue
            result = answer.results[0]
            high_watermark = result.high_watermark
            for placed in records_in(list(result.entries)):
                if placed.offset >= position:
                    assert placed.offset < high_watermark
                    found[placed.offset] = placed.record
            if result.entries:
                position = max(position, max(found, default=-1) + 1)
        return found

    # -- what must hold ---------------------------------------------------------------------------------------------

    def check(self, node: int) -> None:
        """Checks the records on a node's disk: none is lost, none reappears, keys in the compacted part are unique."""
        content, compacted = self.content(node)
        end = max((placed.offset for placed in content), default=-1) + 1
        self.judge({placed.offset: placed.record for placed in content}, compacted, end)

    def judge(self, content: dict[int, Sample], compacted: int, end: int) -> None:
        """Compares records with those that were acknowledged."""
        assert list(content) == sorted(content)
        for offset, record in content.items():
            assert self.written.get(offset, record) == record, f"another record at {offset}"
        missing = [offset for offset in self.written if compacted <= offset < end and offset not in content]
        assert not missing, f"records at {missing} are lost above the compaction point {compacted}"
        below = [record.key for offset, record in content.items() if offset < compacted]
        assert len(below) == len(set(below)), f"a key has two records below {compacted}"
        everything = self.written | content
        last = {record.key: offset for offset, record in sorted(everything.items()) if offset < compacted}
        for key, offset in last.items():
            if everything[offset].value is not None:
                assert offset in content, f"the last value of {key!r}, at {offset}, is lost"
        for offset, record in content.items():
            if offset < compacted:
                assert last[record.key] == offset, f"{record.key!r} at {offset} was removed and has returned"

    def judge_with_retention(self, content: dict[int, Sample], compacted: int, retention_ms: int) -> None:
        """Compares records with those that were acknowledged, where those older than the retention may be gone.

        Arguments:
            content: from the log start on.
        """
        assert list(content) == sorted(content)
        last = {record.key: offset for offset, record in sorted((self.written | content).items())}
        for offset, record in content.items():
            assert self.written.get(offset, record) == record, f"another record at {offset}"
        for offset, record in self.written.items():
            young = record.timestamp_ms >= self.now_ms() - retention_ms
            needed = last[record.key] == offset and record.value is not None
            assert offset in content or not young or not (needed or offset >= compacted), f"{record} is lost"

    def settle(self) -> None:
        """Everything that was asked for has been carried out everywhere, and all replicas have the same."""
        self.rest()
        contents = [self.content(node) for node in self.cluster.node_ids]
        assert contents.count(contents[0]) == len(contents), "replicas differ"
        for node in self.cluster.node_ids:
            self.check(node)

    def rest(self) -> None:
        """Waits until all replicas have reached the same point and no leader finds another compaction worthwhile."""
        nodes = self.cluster.node_ids
        for _ in range(60):
            before = {(self.durable(node).last, self.reached(node)) for node in nodes}
            self.run(1.0)
            states = [self.partition(node).compaction for node in nodes if self.cluster.is_up(node)]
            done = all(state is not None and not state.pending for state in states)
            if (
                done
                and len(before) == 1
                and before == {(self.durable(node).last, self.reached(node)) for node in nodes}
            ):
                return
        raise AssertionError("compaction does not come to rest")

    def settle_after_trim(self, log_start: int) -> None:
        """As ``settle``, but of records before the log start each replica may have kept some."""
        self.rest()
        nodes = self.cluster.node_ids
        assert {self.partition(node).log_start_offset for node in nodes} == {log_start}
        assert min(self.reached(node) for node in nodes) > log_start
        read = self.read_from(log_start)
        self.judge(read, self.reached(1), max(read) + 1)

"""Partitions' logs lose their beginning, by command, by size and by age, in whole nodes in virtual time."""

from __future__ import annotations

import random

import pytest
from quiet_cluster import Quiet

from quorumlog.chaos.checkers.history import OperationOutcome
from quorumlog.server.partition.checkpoints import MAX_UNDER_WAY
from quorumlog.server.partition.partition import Partition
from quorumlog.simulator.world.clients import PartitionName, SimProducer, SimProducerOptions
from quorumlog.simulator.world.disk import SimDisk
from quorumlog.simulator.world.durable_raft_group import DurableRaftGroup
from quorumlog.storage.transaction import StorageTransaction
from quorumlog.v1 import admin_pb2
from quorumlog.v1.errors_pb2 import ErrorCode

LIMITED = "limited"
SEEDS = (1,)


class Retaining(Quiet):
    """A cluster with one topic of which not everything is kept, and a producer that fills it."""

    def __init__(self, seed: int, **configs: str) -> None:
        super().__init__(seed)
        self.configured(LIMITED, {key.replace("_", "."): value for key, value in configs.items()})
        options = SimProducerOptions(interval_us=(2_000, 4_000), request_timeout_us=200_000, records=(1, 1))
        self.producer = SimProducer(
            "writer", [PartitionName(LIMITED, 0)], self.cluster, self.scheduler, options, self.history, self.cluster
        )
        self.run(1)
        self.group = max(self.groups())

    def configured(self, name: str, configs: dict[str, str]) -> None:
        created: list[admin_pb2.CreateTopicsResponse] = []
        request = admin_pb2.CreateTopicsRequest(timeout_ms=1_000)
        request.topics.add(name=name, num_partitions=1, replication_factor=3, configs=configs)
        self.cluster.request("admin", 1, request, created.append)  # type: ignore[arg-type]
        self.until(lambda: bool(created), 5)
        assert created[0].results[0].error.code == ErrorCode.NONE, created

    def partition(self, node: int) -> Partition:
        machine = self.cluster.processes[node].replicas[self.group].machine
        assert isinstance(machine, Partition)
        return machine

    def durable(self, node: int) -> DurableRaftGroup:
        return self.cluster.processes[node].disk.synced[self.group]

    def starts(self) -> set[int]:
        return {self.partition(node).log_start_offset for node in self.cluster.node_ids if self.cluster.is_up(node)}

    def delete_before(self, offset: int) -> admin_pb2.DeleteRecordsResult:
        leader = self.led_by(self.group)
        assert leader is not None
        answers: list[admin_pb2.DeleteRecordsResponse] = []
        request = admin_pb2.DeleteRecordsRequest(timeout_ms=2_000)
        topic_id = self.partition(leader).identity.topic_id
        request.partitions.add(topic_id=topic_id, partition=0, before_offset=offset)
        self.cluster.request("admin", leader, request, answers.append)  # type: ignore[arg-type]
        self.until(lambda: bool(answers), 5)
        return answers[0].results[0]

    def settle(self) -> None:
        """Nothing more is written, and all replicas have applied and kept the same."""
        self.producer.stop()
        # What is on its way yet would come on top of what is equal already.
        self.until(lambda: self.producer.idle, 20)

        def equal() -> bool:
            partitions = [self.partition(node) for node in self.cluster.node_ids]
            return (
                len({partition.high_watermark for partition in partitions}) == 1
                and len({partition.log_start_offset for partition in partitions}) == 1
                and len({tuple(row[:3] for row in self.durable(n).batches[-20:]) for n in self.cluster.node_ids}) == 1
            )

        self.until(equal, 20)
        rows = {tuple(sorted(self.partition(node).producers.rows().items())) for node in self.cluster.node_ids}
        assert len(rows) == 1, "replicas remember the same of producers"


def retained_bytes(durable: DurableRaftGroup) -> int:
    return sum(len(entry.data) for entry in durable.entries)


@pytest.mark.parametrize("seed", SEEDS)
def test_records_deleted_by_command_are_gone_on_every_replica(seed: int) -> None:
    cluster = Retaining(seed)
    result = cluster.delete_before(100)
    assert (result.error.code, result.log_start_offset) == (ErrorCode.NONE, 100)
    cluster.until(lambda: cluster.starts() == {100}, 5)
    cluster.until(lambda: all(cluster.durable(node).anchor.index > 90 for node in cluster.cluster.node_ids), 5)
    for node in cluster.cluster.node_ids:
        durable = cluster.durable(node)
        first = durable.find_batch(0, lambda row: True)
        assert first is not None and first.base_offset <= 100 <= first.last_offset
        assert durable.snapshot is not None and durable.snapshot.last == durable.anchor
    assert cluster.delete_before(50).log_start_offset == 100, "what is gone stays gone"
    assert cluster.delete_before(1 << 40).error.code == ErrorCode.OFFSET_OUT_OF_RANGE
    everything = cluster.delete_before(-1)
    assert everything.log_start_offset > 100
    cluster.settle()


@pytest.mark.parametrize("seed", SEEDS)
def test_a_log_stays_within_its_limit_of_bytes(seed: int) -> None:
    limit = 20_000
    cluster = Retaining(seed, retention_bytes=str(limit))
    written = 0
    for _ in range(10):
        cluster.run(1)
        for node in cluster.cluster.node_ids:
            assert retained_bytes(cluster.durable(node)) < 1.3 * limit
    written = sum(1 for _ in cluster.history.sends(OperationOutcome.OK)) * 200
    assert written > 3 * limit, "too little for a test"
    cluster.settle()
    assert all(retained_bytes(cluster.durable(node)) >= limit for node in cluster.cluster.node_ids)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_sleeping_log_wakes_when_its_oldest_batch_expires_and_ends_empty(seed: int) -> None:
    cluster = Retaining(seed, retention_ms="20000")
    cluster.settle()
    end = cluster.partition(1).high_watermark
    leader = cluster.led_by(cluster.group)
    assert leader is not None
    cluster.until(lambda: all(raft.quiescent for raft in cluster.replicas_of(cluster.group).values()), 10)
    assert cluster.starts() == {0}
    cluster.run(8)
    assert cluster.starts() == {0}, "nothing has expired yet"
    cluster.until(lambda: cluster.starts() == {end}, 15)
    cluster.until(lambda: all(not cluster.durable(node).batches for node in cluster.cluster.node_ids), 5)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_replica_that_was_away_gets_the_snapshot_and_then_the_entries(seed: int) -> None:
    cluster = Retaining(seed, retention_bytes="5000")
    leader = cluster.led_by(cluster.group)
    away = next(node for node in cluster.cluster.node_ids if node != leader)
    cluster.cluster.processes[away].die(silent=False)
    at = cluster.durable(away).last.index
    cluster.until(lambda: all(cluster.durable(n).anchor.index > at for n in cluster.cluster.node_ids if n != away), 30)
    cluster.cluster.start(away)
    cluster.until(lambda: cluster.durable(away).anchor.index > at, 20)
    cluster.run(1)
    cluster.settle()
    assert cluster.durable(away).snapshot is not None


@pytest.mark.parametrize("seed", SEEDS)
def test_replicas_agree_after_power_losses_while_logs_are_trimmed(seed: int) -> None:
    cluster = Retaining(seed, retention_bytes="3000")
    rng = random.Random(seed)
    for _ in range(8):
        node = rng.choice(cluster.cluster.node_ids)
        cluster.cluster.processes[node].die(silent=rng.random() < 0.5)
        cluster.run(rng.uniform(0.05, 1.5))
        cluster.cluster.start(node)
        cluster.run(rng.uniform(0.3, 1.5))
    cluster.settle()
    starts = cluster.starts()
    assert len(starts) == 1 and min(starts) > 0


def test_what_was_trimmed_in_an_idle_log_stays_so_after_a_power_loss_of_all() -> None:
    cluster = Retaining(1)
    cluster.settle()
    end = cluster.delete_before(-1).log_start_offset
    cluster.until(lambda: all(not cluster.durable(node).batches for node in cluster.cluster.node_ids), 5)
    for process in cluster.cluster.processes.values():
        process.die(silent=True)
    for node in cluster.cluster.node_ids:
        cluster.cluster.start(node)
    cluster.until(lambda: len(cluster.replicas_of(cluster.group)) == 3, 20)
    cluster.until(lambda: cluster.led_by(cluster.group) is not None, 20)
    cluster.until(lambda: cluster.starts() == {end}, 5)
    assert {cluster.partition(node).high_watermark for node in cluster.cluster.node_ids} == {end}


def test_a_new_configuration_holds_at_once_also_where_everything_sleeps() -> None:
    cluster = Retaining(1)
    cluster.settle()
    cluster.until(lambda: all(raft.quiescent for raft in cluster.replicas_of(cluster.group).values()), 10)
    cluster.run(5)
    answers: list[admin_pb2.AlterConfigsResponse] = []
    request = admin_pb2.AlterConfigsRequest(timeout_ms=1_000)
    request.topics.add(name=LIMITED, set={"retention.ms": "1000"})
    cluster.cluster.request("admin", 1, request, answers.append)  # type: ignore[arg-type]
    end = cluster.partition(1).high_watermark
    assert cluster.starts() == {0}
    cluster.until(lambda: cluster.starts() == {end}, 2)


def test_many_logs_that_expire_together_are_trimmed_a_few_at_a_time() -> None:
    cluster = Quiet(1)
    many = 60
    created: list[admin_pb2.CreateTopicsResponse] = []
    request = admin_pb2.CreateTopicsRequest(timeout_ms=1_000)
    request.topics.add(name=LIMITED, num_partitions=many, replication_factor=3, configs={"retention.ms": "15000"})
    cluster.cluster.request("admin", 1, request, created.append)  # type: ignore[arg-type]
    cluster.until(lambda: len(cluster.groups()) == many + 1, 10)
    names = [PartitionName(LIMITED, number) for number in range(many)]
    options = SimProducerOptions(interval_us=(500, 1_000), request_timeout_us=200_000, records=(1, 1))
    producer = SimProducer(
        "writer", names, cluster.cluster, cluster.scheduler, options, cluster.history, cluster.cluster
    )
    groups = cluster.groups()[1:]

    def logs() -> list[DurableRaftGroup]:
        return [process.disk.synced[group] for process in cluster.cluster.processes.values() for group in groups]

    cluster.run(1)
    cluster.until(lambda: all(log.batches for log in logs()), 10)
    producer.stop()
    at_once: list[int] = []

    def witness(disk: SimDisk, transaction: StorageTransaction) -> None:
        at_once.append(sum(write.checkpoint is not None for write in transaction.writes))

    for process in cluster.cluster.processes.values():
        process.disk._witness = witness
    cluster.until(lambda: not any(log.batches for log in logs()), 30)
    assert sum(at_once) >= 3 * many and 1 < max(at_once) <= MAX_UNDER_WAY

"""A named producer that dies again and again, and replays its epochs, in simulations with every kind of fault."""

from __future__ import annotations

import pytest
from google.protobuf.message import Message as ProtoMessage

from quorumlog.chaos.checkers.history import History, Operation, OperationKind, OperationOutcome
from quorumlog.simulator.models.records import arrow_payload
from quorumlog.simulator.seeds.simulation import Simulation
from quorumlog.simulator.world.clients import Answer, Directory, PartitionName, Unanswered
from quorumlog.simulator.world.cluster import SimCluster
from quorumlog.simulator.world.scheduler import Scheduler
from quorumlog.v1 import data_plane_pb2 as pb
from quorumlog.v1.errors_pb2 import ErrorCode
from quorumlog.wire.entry import Attributes, Codec, build_batch

SEEDS = range(500, 508)
MS = 1_000
EPOCH_BATCHES = 9
DEATH = 0.04
#: Of every record, so that an epoch is replayed byte by byte.
AT_MS = 1_700_000_000_000


class Replaying:
    """A producer of epochs of single records to one partition, which restarts an epoch after a crash.

    A batch is tried until it is acknowledged: nothing may ever be refused for good.
    """

    def __init__(self, partition: PartitionName, cluster: SimCluster, scheduler: Scheduler, history: History) -> None:
        self.name = f"replaying-{partition}"
        self.acknowledged = 0
        self.replayed = 0
        self._partition = partition
        self._cluster = cluster
        self._scheduler = scheduler
        self._history = history
        self._rng = scheduler.stream(self.name)
        self._directory = Directory(self.name, cluster, scheduler, scheduler.stream(f"{self.name}/directory"))
        self.epoch, self._next = 0, 0
        self._producer_id = -1
        self._attempt = 0
        self._stopping = False
        self._done = False
        self._first_us: dict[str, int] = {}
        self._recorded: set[str] = set()
        self._turn()

    @property
    def idle(self) -> bool:
        """It was stopped, and its last epoch is complete."""
        return self._done

    def stop(self) -> None:
        """Ends with the epoch that is under way."""
        self._stopping = True

    def describe(self) -> str:
        """Returns the batch and the epoch that it has reached."""
        return f"{self.name} is at batch {self._next} of epoch {self.epoch}"

    def _later(self, least_ms: int, most_ms: int) -> None:
        self._scheduler.after(self._rng.randint(least_ms, most_ms) * MS, self._turn)

    def _turn(self) -> None:
        if self._next == EPOCH_BATCHES:
            if self._stopping:
                self._done = True
                return
            self.epoch, self._next, self._producer_id = self.epoch + 1, 0, -1
        if not self._stopping and self._rng.random() < DEATH:
            self._next, self._producer_id = 0, -1
            self.replayed += 1
        if self._producer_id < 0:
            self._ask(pb.InitProducerIdRequest(timeout_ms=300, name=self.name, epoch=self.epoch), self._claimed)
            return
        known = self._directory.partitions.get(self._partition)
        if known is None or known.leader < 0:
            self._directory.refresh()
            self._later(50, 150)
            return
        value = f"{self._partition}.{self.epoch}.{self._next}"
        self._first_us.setdefault(value, self._scheduler.now)
        batch = build_batch(
            arrow_payload(None, [value], AT_MS),
            record_count=1,
            codec=Codec.NONE,
            base_timestamp_ms=AT_MS,
            max_timestamp_ms=AT_MS,
            producer_id=self._producer_id,
            producer_epoch=self.epoch,
            base_sequence=self._next,
            attributes=Attributes.REPLAYABLE,
        )
        request = pb.ProduceRequest(acks=-1, timeout_ms=500)
        request.batches.add(topic_id=known.topic_id, partition=self._partition.number, batch=batch)
        self._ask(request, lambda answer: self._produced(value, answer), known.leader)

    def _ask(self, message: ProtoMessage, answered: Answer, node: int | None = None) -> None:
        self._attempt += 1
        attempt = self._attempt

        def take(answer: ProtoMessage | Unanswered) -> None:
            if attempt == self._attempt:
                self._attempt += 1
                answered(answer)

        target = self._rng.choice(self._cluster.node_ids) if node is None else node
        self._cluster.request(self.name, target, message, take)
        self._scheduler.after(600 * MS, lambda: take(Unanswered.LOST))

    def _claimed(self, answer: ProtoMessage | Unanswered) -> None:
        if isinstance(answer, pb.InitProducerIdResponse) and answer.error.code == ErrorCode.NONE:
            self._producer_id = answer.producer_id
            assert answer.producer_epoch == self.epoch
            self._later(0, 5)
        else:
            self._later(50, 150)

    def _produced(self, value: str, answer: ProtoMessage | Unanswered) -> None:
        if not isinstance(answer, pb.ProduceResponse):
            self._directory.refresh()
            self._later(20, 120)
            return
        result = answer.results[0]
        if result.error.code == ErrorCode.NONE:
            self.acknowledged += 1
            self._record(value, result)
            self._next += 1
            self._later(2, 30)
        elif result.error.retriable or result.error.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:  # not received yet
            self._directory.learn(self._partition, result.error)
            self._later(20, 120)
        else:
            raise AssertionError(f"{value} was refused: {result.error.message}")

    def _record(self, value: str, result: pb.ProduceResult) -> None:
        """Once per value, with the time of its first attempt: it may have been in the log since then."""
        if value in self._recorded:
            return
        self._recorded.add(value)
        self._history.add(
            Operation(
                process=self.name,
                kind=OperationKind.SEND,
                invoked_us=self._first_us[value],
                returned_us=self._scheduler.now,
                outcome=OperationOutcome.OK if result.base_offset >= 0 else OperationOutcome.INFO,
                partition=str(self._partition),
                value=value,
                offset=result.base_offset,
                leader_epoch=result.leader_epoch,
            )
        )


class Stormy(Simulation):
    """A seed's simulation, with a replaying producer beside its own."""

    replaying: Replaying

    def _load_and_hurt(self) -> None:
        self.replaying = Replaying(self.plan.partitions[0], self.cluster, self.scheduler, self.history)
        self._producers.append(self.replaying)  # type: ignore[arg-type]
        super()._load_and_hurt()


@pytest.mark.parametrize("seed", SEEDS)
def test_replayed_epochs_are_in_the_log_once_and_in_order_whatever_happens(seed: int) -> None:
    stormy = Stormy(seed)
    result = stormy.run()
    print(f"seed {seed}: {stormy.replaying.epoch + 1} epochs, {stormy.replaying.replayed} deaths")
    assert result.violation is None, f"seed {seed}: {result.violation}\n{result.traceback}"
    # All that was ever committed: retention and compaction may have taken some of it since.
    committed = [
        value
        for model in stormy.cluster.invariants.groups.values()
        for batch in model.log.batches_in_order
        for value in batch.values
        if value.startswith(f"{stormy.plan.partitions[0]}.")
    ]
    epochs = stormy.replaying.epoch + 1
    expected = [
        f"{stormy.plan.partitions[0]}.{epoch}.{number}" for epoch in range(epochs) for number in range(EPOCH_BATCHES)
    ]
    assert committed == expected

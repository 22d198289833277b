"""Readers in virtual time: consumers that fetch, and probes that request linearizable end offsets."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from google.protobuf.message import Message as ProtoMessage

from quorumlog.chaos.checkers.history import History, Operation, OperationKind, OperationOutcome
from quorumlog.simulator.models.records import TOMBSTONE, records_of
from quorumlog.simulator.world.clients import Directory, KnownPartition, PartitionName, Port, Unanswered
from quorumlog.simulator.world.scheduler import Scheduler
from quorumlog.v1 import data_plane_pb2 as pb
from quorumlog.v1.errors_pb2 import ErrorCode

#: Time after a leader change for which the former leader is queried, and the interval.
FORMER_ASKED_US = 1_000_000
DOUBTFUL_US = (10_000, 60_000)


class ReadJudge(Protocol):
    """Receives the nodes' answers to fetches."""

    def entries_served(
        self, node: int, name: PartitionName, group: int, request: pb.FetchRequest, result: pb.FetchResult
    ) -> None:
        """Judges an answer to a fetch of one partition."""


@dataclass(slots=True, frozen=True)
class ReaderOptions:
    """The way in which a consumer reads.

    Arguments:
        final: it reads after the cluster has healed, and must read everything.
        from_replicas: it changes from replica to replica; if final, it reads from no leader of several replicas.
    """

    final: bool = False
    from_replicas: bool = False


#: Reads from leaders, under faults.
PLAIN = ReaderOptions()


class SimConsumer:
    """Reads one partition from offset 0 on until it is stopped. Records that are no longer retained are skipped.

    Arguments:
        options: how it reads.
    """

    def __init__(
        self,
        name: str,
        partition: PartitionName,
        port: Port,
        scheduler: Scheduler,
        history: History,
        judge: ReadJudge,
        options: ReaderOptions = PLAIN,
    ) -> None:
        self.name = name
        self.partition = partition
        self.position = 0
        self._port = port
        self._scheduler = scheduler
        self._rng = scheduler.stream(name)
        self._history = history
        self._judge = judge
        self._final = options.final
        self._from_replicas = options.from_replicas
        self._directory = Directory(name, port, scheduler, scheduler.stream(f"{name}/directory"))
        self._attempt = 0
        self._stopped = False
        self._fetch()

    def stop(self) -> None:
        """Stops fetching."""
        self._stopped = True

    def _fetch(self) -> None:
        if self._stopped:
            return
        known = self._directory.partitions.get(self.partition)
        if known is None or known.leader < 0:
            self._directory.refresh()
            self._later()
            return
        self._attempt += 1
        attempt, node, invoked = self._attempt, self._node(known), self._scheduler.now
        request = pb.FetchRequest(
            correlation_id=attempt,
            max_wait_ms=200,
            min_bytes=1,
            max_bytes=self._rng.choice((300, 4_000, 1 << 20)),
            takes_kafka_batches=True,
            from_replicas=self._from_replicas,
            partitions=[
                pb.FetchPartition(
                    topic_id=known.topic_id,
                    partition=self.partition.number,
                    fetch_offset=self.position,
                    leader_epoch=known.epoch if self._rng.random() < 0.5 else -1,
                    max_bytes=1 << 20,
                )
            ],
        )

        def served(message: ProtoMessage) -> None:
            assert isinstance(message, pb.FetchResponse)
            for result in message.results:
                self._judge.entries_served(node, self.partition, known.group, request, result)

        def answered(answer: ProtoMessage | Unanswered) -> None:
            if attempt == self._attempt and not self._stopped:
                self._attempt += 1
                self._answered(known, invoked, answer)

        self._port.request(self.name, node, request, answered, served)
        self._scheduler.after(1_000_000, lambda: answered(Unanswered.LOST))

    def _node(self, known: KnownPartition) -> int:
        """Returns the node to read from. A reader of replicas asks any, so former replicas, too."""
        others = [node for node in self._port.node_ids if node != known.leader]
        if not self._from_replicas or known.replicas == 1 or not others:
            return known.leader
        return self._rng.choice(others if self._final else [*others, known.leader])

    def _answered(self, known: KnownPartition, invoked: int, answer: ProtoMessage | Unanswered) -> None:
        if not isinstance(answer, pb.FetchResponse):
            self._directory.refresh()
            self._later()
            return
        for result in answer.results:
            if result.error.code == ErrorCode.OFFSET_OUT_OF_RANGE and result.log_start_offset > self.position:
                self._reset(invoked, result)
                continue
            if result.error.code != ErrorCode.NONE:
                self._directory.learn(self.partition, result.error)
                self._later()
                return
            self._take(invoked, result)
        self._scheduler.after(self._rng.randint(1_000, 30_000), self._fetch)

    def _reset(self, invoked: int, result: pb.FetchResult) -> None:
        """Continues at the new log start: ``auto_offset_reset="earliest"``."""
        self.position = result.log_start_offset
        self._history.add(
            Operation(
                process=self.name,
                kind=OperationKind.RESET,
                invoked_us=invoked,
                returned_us=self._scheduler.now,
                outcome=OperationOutcome.OK,
                partition=str(self.partition),
                offset=self.position,
                leader_epoch=result.leader_epoch,
                final=self._final,
            )
        )

    def _take(self, invoked: int, result: pb.FetchResult) -> None:
        records: list[tuple[int, str]] = []
        for entry in result.entries:
            for offset, _, value in records_of(entry):
                if offset >= self.position:
                    # A tombstone has no value of its own: its position identifies it.
                    unique = f"{value}@{self.partition}@{offset}" if value == TOMBSTONE else value
                    records.append((offset, unique))
        if not records:
            return
        self.position = records[-1][0] + 1
        self._history.add(
            Operation(
                process=self.name,
                kind=OperationKind.POLL,
                invoked_us=invoked,
                returned_us=self._scheduler.now,
                outcome=OperationOutcome.OK,
                partition=str(self.partition),
                leader_epoch=result.leader_epoch,
                records=records,
                high_watermark=result.high_watermark,
                compacted_offset=result.compacted_offset,
                final=self._final,
            )
        )

    def _later(self) -> None:
        self._scheduler.after(self._rng.randint(20_000, 120_000), self._fetch)


class EndOffsetProbe:
    """Requests the end of a partition from the presumed leader from time to time: a linearizable read.

    After a leader change it also queries the former leader, and often: that node may not have learned yet that it was
    deposed, and must not answer from its stale state.
    """

    def __init__(
        self,
        name: str,
        partition: PartitionName,
        port: Port,
        scheduler: Scheduler,
        history: History,
        stopped: Callable[[], bool],
        interval_us: tuple[int, int] = (20_000, 300_000),
    ) -> None:
        self._name = name
        self._partition = partition
        self._port = port
        self._scheduler = scheduler
        self._rng = scheduler.stream(name)
        self._history = history
        self._stopped = stopped
        self._interval_us = interval_us
        self._leader = self._former = -1
        self._former_until = 0
        self._directory = Directory(name, port, scheduler, scheduler.stream(f"{name}/directory"))
        self._ask()

    def _ask(self) -> None:
        if self._stopped():
            return
        doubtful = self._scheduler.now < self._former_until
        self._scheduler.after(self._rng.randint(*(DOUBTFUL_US if doubtful else self._interval_us)), self._ask)
        if self._rng.random() < 0.2:
            self._directory.refresh()
        known = self._directory.partitions.get(self._partition)
        if known is None:
            self._directory.refresh()
            return
        if known.leader != self._leader:
            self._leader, self._former = known.leader, self._leader
            self._former_until = self._scheduler.now + FORMER_ASKED_US
        if doubtful and self._former >= 0:
            self._ask_of(self._former, known)
        node = known.leader if self._rng.random() < 0.8 else self._rng.choice(self._port.node_ids)
        if node >= 0:
            self._ask_of(node, known)

    def _ask_of(self, node: int, known: KnownPartition) -> None:
        invoked = self._scheduler.now
        request = pb.ListOffsetsRequest(
            partitions=[
                pb.ListOffsetsPartition(
                    topic_id=known.topic_id, partition=self._partition.number, timestamp_ms=-1, leader_epoch=-1
                )
            ],
            timeout_ms=500,
        )
        self._port.request(self._name, node, request, lambda answer: self._answered(invoked, answer))

    def _answered(self, invoked: int, answer: ProtoMessage | Unanswered) -> None:
        if not isinstance(answer, pb.ListOffsetsResponse):
            return
        result = answer.results[0]
        if result.error.code != ErrorCode.NONE:
            self._directory.refresh()
            return
        self._history.add(
            Operation(
                process=self._name,
                kind=OperationKind.END_OFFSET,
                invoked_us=invoked,
                returned_us=self._scheduler.now,
                outcome=OperationOutcome.OK,
                partition=str(self._partition),
                offset=result.offset,
                leader_epoch=result.leader_epoch,
            )
        )

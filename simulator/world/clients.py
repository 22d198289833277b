"""Clients in virtual time: their search for leaders, and a producer that retries like the SDK.

They send the shipped wire messages to the shipped node, record a history, and compare each reply with the model of the
committed log at the moment when the node gives it.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple, Protocol

from google.protobuf.message import Message as ProtoMessage

from quorumlog.chaos.checkers.history import History, Operation, OperationKind, OperationOutcome
from quorumlog.server.requests.refused_batches import REMEMBERED_US
from quorumlog.simulator.models.committed_partition import Violation
from quorumlog.simulator.models.records import TOMBSTONE, arrow_payload, kafka_entry, text_payload
from quorumlog.simulator.world.scheduler import Scheduler
from quorumlog.v1 import data_plane_pb2 as pb
from quorumlog.v1.errors_pb2 import Error, ErrorCode
from quorumlog.wire.entry import (
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    SEQUENCE_MODULUS,
    BatchHeader,
    Codec,
    build_batch,
    parse_header,
)

ACKS_ALL = -1
#: Number of a producer's batches that a partition remembers: none may be sent further ahead of the oldest unsettled
#: one; otherwise its retry would no longer be recognized as a duplicate.
REMEMBERED_BATCHES = 5


class Unanswered(Enum):
    """Reason why a request has no response."""

    REFUSED = "refused"
    LOST = "lost"


Answer = Callable[[ProtoMessage | Unanswered], None]


class Port(Protocol):
    """The clients' access to nodes."""

    @property
    def node_ids(self) -> tuple[int, ...]:
        """Every node, running or not."""

    def request(
        self,
        client: str,
        node: int,
        message: ProtoMessage,
        answered: Answer,
        served: Callable[[ProtoMessage], None] | None = None,
    ) -> None:
        """Sends a request; ``served`` is called when the node replies, ``answered`` when the reply arrives."""


class PartitionName(NamedTuple):
    """A partition as clients name it."""

    topic: str
    number: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.number}"


@dataclass(slots=True)
class KnownPartition:
    """A client's knowledge of one partition."""

    topic_id: bytes
    group: int
    leader: int
    epoch: int
    replicas: int


class Directory:
    """One client's knowledge of leaders, refreshed from any node that answers."""

    def __init__(self, client: str, port: Port, scheduler: Scheduler, rng: random.Random) -> None:
        self.partitions: dict[PartitionName, KnownPartition] = {}
        self._client = client
        self._port = port
        self._scheduler = scheduler
        self._rng = rng
        self._asked = 0
        self._pending = False

    def refresh(self) -> None:
        """Requests metadata from some node, unless a request is under way."""
        if self._pending:
            return
        self._pending = True
        self._asked += 1
        number = self._asked
        request = pb.MetadataRequest(all_topics=True)
        self._port.request(
            self._client, self._rng.choice(self._port.node_ids), request, lambda answer: self._answered(number, answer)
        )
        self._scheduler.after(300_000, lambda: self._answered(number, Unanswered.LOST))

    def _answered(self, number: int, answer: ProtoMessage | Unanswered) -> None:
        if number != self._asked:
            return
        self._pending = False
        if not isinstance(answer, pb.MetadataResponse):
            return
        for topic in answer.topics:
            for row in topic.partitions:
                name = PartitionName(topic.name, row.partition)
                known = self.partitions.get(name)
                if known is None or row.leader_epoch >= known.epoch:
                    self.partitions[name] = KnownPartition(
                        topic.topic_id, row.group_id, row.leader, row.leader_epoch, len(row.replicas)
                    )

    def learn(self, name: PartitionName, error: Error) -> bool:
        """Applies an error's hint about the leader; refreshes if it contains no news.

        Returns:
            True if the known leader has changed.
        """
        known = self.partitions[name]
        hint = error.leader
        if not error.HasField("leader") or hint.node_id < 0 or hint.leader_epoch < known.epoch:
            self.refresh()
            return False
        is_news = known.leader != hint.node_id
        known.leader, known.epoch = hint.node_id, hint.leader_epoch
        return is_news


@dataclass(slots=True)
class Batch:
    """A batch in flight. ``attempt`` numbers attempts, to identify late answers to earlier ones."""

    values: list[str]
    data: bytes
    invoked_us: int
    deadline_us: int
    number: int
    attempt: int = 0
    outstanding: bool = False
    maybe_applied: bool = False


@dataclass(slots=True)
class Lane:
    """One producer's state for one partition, with a producer id of its own. ``settled``: acknowledged batches, for
    replays; including those of former epochs.
    """

    name: PartitionName
    queue: deque[Batch] = field(default_factory=deque)
    waiting: deque[list[str]] = field(default_factory=deque)
    producer_id: int = NO_PRODUCER_ID
    producer_epoch: int = NO_PRODUCER_EPOCH
    known_epoch: int = NO_PRODUCER_EPOCH
    next_sequence: int = 0
    next_number: int = 0
    settled: list[Batch] = field(default_factory=list)
    asking_id: bool = False
    retry_at: int = 0


@dataclass(slots=True)
class SimProducerOptions:
    """Behaviour of a producer. Times in µs; ``acks`` 1 is without idempotence and without retries. ``records`` and
    ``padding_bytes`` are of a batch; ``silence_us`` is the duration of occasional silences, (0, 0) for never.
    ``named``: its ids belong to names, which it claims. ``replays``: probability that a new batch is accompanied by one
    that was acknowledged long ago. ``lag_ms``: records are up to this much older than their sending. ``keyed``: topics
    whose records have one of ``keys`` keys, and sometimes no value. ``kafka``: the share of its batches in Kafka's
    format; ``arrow``: all others are Arrow, even without keys. ``gives_up``: it gives up late batches even at the end.
    """

    interval_us: tuple[int, int] = (5_000, 60_000)
    max_in_flight: int = 3
    delivery_timeout_us: int = 30_000_000
    request_timeout_us: int = 1_000_000
    acks: int = ACKS_ALL
    records: tuple[int, int] = (1, 3)
    padding_bytes: int = 0
    silence_us: tuple[int, int] = (0, 0)
    named: bool = False
    replays: float = 0.0
    kafka: float = 0.0
    arrow: bool = False
    lag_ms: int = 0
    gives_up: bool = False
    keyed: frozenset[str] = frozenset()
    keys: int = 8


def claimed_name(producer: str, partition: PartitionName) -> str:
    """Returns the name under which a producer writes to a partition, if it has one."""
    return f"{producer}/{partition}"


class Judge(Protocol):
    """Receives the nodes' answers to clients."""

    def batch_acknowledged(
        self, node: int, name: PartitionName, group: int, values: list[str], acks: int, result: pb.ProduceResult
    ) -> None:
        """Judges an acknowledgement of a batch by a node."""

    def batch_refused(self, node: int, group: int, header: BatchHeader, problem: Error) -> None:
        """Judges a node's refusal of an idempotent producer's batch."""


class SequenceJudge:
    """Verifies that no node calls a sequence broken because it has itself refused a batch of it for a moment."""

    def __init__(self) -> None:
        #: By node, its life, the group, the producer, its epoch and the sequence number: when it was refused (µs).
        self._refused: dict[tuple[int, ...], int] = {}

    def refused(
        self, now: int, process: tuple[int, int], group: int, header: BatchHeader, problem: Error, expected: int
    ) -> None:
        """Judges the refusal of a batch.

        Arguments:
            process: the node and its life.
            expected: the sequence number that the node expects next.

        Raises:
            Violation: the next batch of the sequence was refused by the same process just before.
        """
        place = *process, group, header.producer_id, header.producer_epoch
        if problem.code in (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.UNKNOWN_PRODUCER_ID):
            since = now - self._refused.get((*place, expected), -REMEMBERED_US)
            # The node's clock may deviate from the simulation's.
            if header.base_sequence > expected and since < REMEMBERED_US * 4 // 5:
                raise Violation(
                    f"node {process[0]} calls sequence {header.base_sequence} of producer {header.producer_id} broken"
                    f" {since} us after it has refused sequence {expected} itself: {problem.message}"
                )
        elif problem.retriable and problem.definite:
            self._refused[(*place, header.base_sequence)] = now


class SimProducer:
    """An idempotent producer of unique values (or, with acks=1, one without retries)."""

    def __init__(
        self,
        name: str,
        partitions: list[PartitionName],
        port: Port,
        scheduler: Scheduler,
        options: SimProducerOptions,
        history: History,
        judge: Judge,
    ) -> None:
        self.name = name
        self.acknowledged = 0
        self._port = port
        self._scheduler = scheduler
        self._rng = scheduler.stream(name)
        self._options = options
        self._history = history
        self._judge = judge
        self._directory = Directory(name, port, scheduler, scheduler.stream(f"{name}/directory"))
        self._lanes = [Lane(partition) for partition in partitions]
        self._made = 0
        self._stopped = False
        self._tick()

    @property
    def idle(self) -> bool:
        """True if no batch waits for an outcome."""
        return not any(lane.queue or lane.waiting for lane in self._lanes)

    def stop(self) -> None:
        """Creates no new batches, and from now on never gives up on those under way, unless configured to."""
        self._stopped = True
        if self._options.gives_up:
            return
        for lane in self._lanes:
            for batch in lane.queue:
                batch.deadline_us = 1 << 62

    def describe(self) -> str:
        """Describes pending batches, for a report on a run that does not converge."""
        waiting = [
            f"{lane.name}: {[batch.values for batch in lane.queue]}, and to send {len(lane.waiting)} more"
            for lane in self._lanes
            if lane.queue or lane.waiting
        ]
        return f"{self.name} waits for {'; '.join(waiting)}"

    def _tick(self) -> None:
        if self._stopped:
            return
        lane = self._rng.choice(self._lanes)
        if self._rng.random() < 0.1:
            self._directory.refresh()  # Metadata becomes outdated in any client.
        if self._options.named and not lane.queue and self._rng.random() < 0.1:
            lane.producer_id = NO_PRODUCER_ID  # Another instance takes over; requests of the former one are fenced.
        if len(lane.queue) + len(lane.waiting) < 2 * self._options.max_in_flight:
            count = self._rng.randint(*self._options.records)
            values = [f"{self.name}.{self._made + n}" for n in range(count)]
            if lane.name.topic in self._options.keyed:
                values[1:] = [TOMBSTONE if self._rng.random() < 0.3 else value for value in values[1:]]
            lane.waiting.append(values)
            self._made += count
            self._pump(lane)
        if lane.settled and self._rng.random() < self._options.replays:
            self._replay(lane)
        wait = self._rng.randint(*self._options.interval_us)
        if self._options.silence_us[1] and self._rng.random() < 0.1:
            wait += self._rng.randint(*self._options.silence_us)
        self._scheduler.after(wait, self._tick)

    # -- sending ------------------------------------------------------------------------------------------------

    def _pump(self, lane: Lane) -> None:
        """Sends what may be sent, in sequence order."""
        known = self._directory.partitions.get(lane.name)
        if known is None or known.leader < 0:
            self._directory.refresh()
            self._pump_later(lane)
            return
        if self._options.acks == ACKS_ALL and lane.producer_id == NO_PRODUCER_ID:
            self._ask_for_id(lane)
            return
        while lane.waiting and self._may_take(lane):
            lane.queue.append(self._build(lane, lane.waiting.popleft()))
        self._give_up_overdue(lane)
        for batch in lane.queue:
            if not batch.outstanding:
                self._send(lane, batch, known)

    def _may_take(self, lane: Lane) -> bool:
        if not lane.queue:
            return True
        ahead = lane.next_number - lane.queue[0].number
        return len(lane.queue) < self._options.max_in_flight and ahead < REMEMBERED_BATCHES

    def _pump_later(self, lane: Lane) -> None:
        if lane.retry_at <= self._scheduler.now:
            lane.retry_at = self._scheduler.now + self._rng.randint(20_000, 120_000)
            self._scheduler.at(lane.retry_at, lambda: self._pump(lane))

    def _ask_for_id(self, lane: Lane) -> None:
        if lane.asking_id:
            return
        lane.asking_id = True
        node = self._rng.choice(self._port.node_ids)
        finished = False

        def answered(answer: ProtoMessage | Unanswered) -> None:
            nonlocal finished
            if finished:
                return
            finished = True
            lane.asking_id = False
            if isinstance(answer, pb.InitProducerIdResponse) and answer.error.code == ErrorCode.NONE:
                # Id -1: the claim of the name was based on an outdated epoch, and is repeated.
                lane.known_epoch = answer.producer_epoch
                lane.producer_id, lane.producer_epoch = answer.producer_id, answer.producer_epoch
                lane.next_sequence = 0
                self._pump(lane)
            else:
                self._pump_later(lane)

        identity = claimed_name(self.name, lane.name) if self._options.named else ""
        # A claim is an entry of the metadata log. Dozens of lanes that repeat theirs before it can be answered would
        # keep slow disks busy with nothing else.
        limit_ms = 3_000 if identity else 300
        request = pb.InitProducerIdRequest(timeout_ms=limit_ms, name=identity, epoch=-1, known_epoch=lane.known_epoch)
        self._port.request(self.name, node, request, answered)
        self._scheduler.after((limit_ms + 100) * 1_000, lambda: answered(Unanswered.LOST))

    def _build(self, lane: Lane, values: list[str]) -> Batch:
        idempotent = self._options.acks == ACKS_ALL
        now_ms = 1_700_000_000_000 + self._scheduler.now // 1_000
        if self._options.lag_ms:
            now_ms -= self._rng.randint(0, self._options.lag_ms)
        sequence = lane.next_sequence if idempotent else NO_SEQUENCE
        data = self._data(lane, values, now_ms, sequence)
        lane.next_sequence = (lane.next_sequence + len(values)) % SEQUENCE_MODULUS
        deadline = (
            1 << 62
            if self._stopped and not self._options.gives_up
            else self._scheduler.now + self._options.delivery_timeout_us
        )
        lane.next_number += 1
        return Batch(values, data, self._scheduler.now, deadline, lane.next_number - 1)

    def _data(self, lane: Lane, values: list[str], now_ms: int, sequence: int) -> bytes:
        """Returns the bytes of a batch, in one of the formats."""
        keys = None
        if lane.name.topic in self._options.keyed:
            keys = [f"key-{self._rng.randrange(self._options.keys)}" for _ in values]
        if self._options.kafka and self._rng.random() < self._options.kafka:
            producer = (lane.producer_id, lane.producer_epoch, sequence)
            return kafka_entry(keys, values, now_ms, codec=self._rng.randrange(5), producer=producer)
        if keys is not None or self._options.arrow:
            payload = arrow_payload(keys, values, now_ms)
        else:
            payload = text_payload(values, self._rng.randint(0, self._options.padding_bytes))
        return build_batch(
            payload,
            record_count=len(values),
            codec=Codec.NONE,
            base_timestamp_ms=now_ms,
            max_timestamp_ms=now_ms,
            producer_id=lane.producer_id,
            producer_epoch=lane.producer_epoch,
            base_sequence=sequence,
        )

    def _send(self, lane: Lane, batch: Batch, known: KnownPartition) -> None:
        batch.outstanding = True
        batch.attempt += 1
        attempt = batch.attempt

        def answered(answer: ProtoMessage | Unanswered) -> None:
            if attempt == batch.attempt and batch.outstanding and batch in lane.queue:
                batch.outstanding = False
                self._answered(lane, batch, answer)

        self._request(lane, batch, known, answered)
        timeout_us = self._options.request_timeout_us
        self._scheduler.after(timeout_us + timeout_us // 4, lambda: answered(Unanswered.LOST))

    def _replay(self, lane: Lane) -> None:
        """Sends an acknowledged batch again, however old: it must not be appended again."""
        known = self._directory.partitions.get(lane.name)
        if known is not None and known.leader >= 0:
            batch = self._rng.choice(lane.settled)
            self._request(lane, batch, known, lambda answer: None)

    def _request(self, lane: Lane, batch: Batch, known: KnownPartition, answered: Answer) -> None:
        node = known.leader
        request = pb.ProduceRequest(
            correlation_id=batch.attempt,
            acks=self._options.acks,
            timeout_ms=self._options.request_timeout_us // 1_000,
            batches=[pb.PartitionBatch(topic_id=known.topic_id, partition=lane.name.number, batch=batch.data)],
        )

        def served(message: ProtoMessage) -> None:
            assert isinstance(message, pb.ProduceResponse)
            result = message.results[0]
            if result.error.code == ErrorCode.NONE:
                self._judge.batch_acknowledged(node, lane.name, known.group, batch.values, self._options.acks, result)
            elif self._options.acks == ACKS_ALL:
                self._judge.batch_refused(node, known.group, parse_header(batch.data), result.error)

        self._port.request(self.name, node, request, answered, served)

    # -- answers ------------------------------------------------------------------------------------------------

    def _answered(self, lane: Lane, batch: Batch, answer: ProtoMessage | Unanswered) -> None:
        if isinstance(answer, pb.ProduceResponse):
            result = answer.results[0]
            if result.error.code == ErrorCode.NONE:
                lane.queue.remove(batch)
                self.acknowledged += len(batch.values)
                if self._options.replays:
                    lane.settled.append(batch)
                self._record(lane, batch, OperationOutcome.OK, result.base_offset, result.leader_epoch)
                self._pump(lane)
                return
            batch.maybe_applied |= not result.error.definite
            moved = self._directory.learn(lane.name, result.error)
            in_sequence = result.error.code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
            if not result.error.retriable and not in_sequence:
                self._give_up(lane, batch)
                return
            if moved and self._options.acks == ACKS_ALL:
                self._pump(lane)
                return
        else:
            batch.maybe_applied |= answer is Unanswered.LOST
            self._directory.refresh()
        if self._options.acks != ACKS_ALL and batch.maybe_applied:
            self._give_up(lane, batch)  # Without a sequence number a second attempt could append the values twice.
        else:
            self._pump_later(lane)

    def _give_up_overdue(self, lane: Lane) -> None:
        overdue = [b for b in lane.queue if b.deadline_us < self._scheduler.now and not b.outstanding]
        if overdue:
            self._give_up(lane, overdue[0])

    def _give_up(self, lane: Lane, batch: Batch) -> None:
        """Ends a batch without an acknowledgement. Those after it in the sequence can no longer follow it, so they end
        too, and the lane continues under a new producer id.
        """
        abandoned = list(lane.queue) if self._options.acks == ACKS_ALL else [batch]
        for other in abandoned:
            lane.queue.remove(other)
            indefinite = other.maybe_applied or other.outstanding
            self._record(lane, other, OperationOutcome.INFO if indefinite else OperationOutcome.FAIL, -1, -1)
        if self._options.acks == ACKS_ALL:
            lane.producer_id = NO_PRODUCER_ID
        self._pump_later(lane)

    def _record(self, lane: Lane, batch: Batch, outcome: OperationOutcome, offset: int, epoch: int) -> None:
        for place, value in enumerate(batch.values):
            if value == TOMBSTONE:
                continue
            self._history.add(
                Operation(
                    process=self.name,
                    kind=OperationKind.SEND,
                    invoked_us=batch.invoked_us,
                    returned_us=self._scheduler.now,
                    outcome=outcome,
                    partition=str(lane.name),
                    value=value,
                    offset=offset + place if offset >= 0 else -1,
                    leader_epoch=epoch,
                    acks_all=self._options.acks == ACKS_ALL,
                )
            )

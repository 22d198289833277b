"""Transactional producers in virtual time, and readers of what they write.

The load plays the part of the coordinator itself: it gives out the places of its log, decides each transaction once,
and reports to the leaders of the partitions, late and repeatedly. An answer to a leader's request to enlist counts
only in the term in which it was requested, as in the shipped protocol.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field

from google.protobuf.message import Message as ProtoMessage

from quorumlog.raft.types import NO_NODE
from quorumlog.server.partition.acknowledgements import ACKS_ALL, ProduceCall
from quorumlog.server.partition.partition import Partition
from quorumlog.server.partition.transaction_steps import (
    TransactionDecision,
    TransactionEnding,
    end_transaction,
    open_transaction,
)
from quorumlog.simulator.models.committed_partition import CommittedPartition, Violation
from quorumlog.simulator.models.committed_transactions import BatchFate
from quorumlog.simulator.models.records import Record, arrow_payload, kafka_entry, records_of, text_payload
from quorumlog.simulator.world.clients import Unanswered
from quorumlog.simulator.world.cluster import SimCluster
from quorumlog.simulator.world.scheduler import Scheduler
from quorumlog.v1 import data_plane_pb2 as pb
from quorumlog.v1 import errors_pb2
from quorumlog.v1.errors_pb2 import ErrorCode
from quorumlog.wire.entry import NO_PRODUCER_ID, Attributes, Codec, build_batch, parse_header
from quorumlog.wire.kafka.control import LogPlace

#: The topic of the load: no other client uses it.
TOPIC = "transfers"
#: The first id of its producers: no node gives out such ids in a run.
_FIRST_PRODUCER = 1 << 40
#: No coordinator of the cluster, so that leaders ask none what became of these transactions.
_COORDINATOR = 1 << 20
#: How long a producer waits for an acknowledgement before it sends the batch again (µs).
_ACKNOWLEDGED_US = 400_000
_ALL_LIVE = 99
#: Refusals that pass although a client should not retry: the feature level rises, and clocks are set right.
_PASSING = (ErrorCode.UNSUPPORTED_VERSION, ErrorCode.INVALID_TIMESTAMP)
#: An answer that allows a reader to continue at once, and one that does not (µs).
_SOON_US, _LATER_US = (1_000, 30_000), (20_000, 120_000)


@dataclass(slots=True)
class TransactionPlan:
    """The decisions of a seed for transactions.

    Arguments:
        partitions: of the topic.
        producers: that write transactions.
        configs: of the topic.
        step_us: time between two actions of a producer.
        batches: maximum number of batches in a transaction.
        commits: share of transactions that commit.
        keeps_epoch: share of decisions after which the producer keeps its epoch.
        late: share of actions that reach their node late, and of decisions that are repeated long after.
        keys: number of keys in a compacted topic; 0: records have none.
        kafka: share of batches in Kafka's format.
        others: share of actions that append a batch outside of transactions.
    """

    partitions: int = 2
    producers: int = 3
    configs: dict[str, str] = field(default_factory=dict)
    step_us: tuple[int, int] = (2_000, 60_000)
    batches: int = 4
    commits: float = 0.6
    keeps_epoch: float = 0.5
    late: float = 0.1
    keys: int = 0
    kafka: float = 0.0
    others: float = 0.3


@dataclass(slots=True)
class _Sent:
    """A batch that is not acknowledged yet."""

    number: int
    batch: bytes
    count: int
    value: str
    call: ProduceCall | None = None
    sent_us: int = 0
    refused: errors_pb2.Error | None = None


@dataclass(slots=True, eq=False)
class _Transaction:
    """One transaction, as its coordinator has it.

    Arguments:
        enlisted: the place of each partition's number.
        values: of the batches sent: partition and first value.
    """

    producer_id: int
    epoch: int
    left: int
    enlisted: dict[int, LogPlace] = field(default_factory=dict)
    values: list[tuple[int, str]] = field(default_factory=list)
    acknowledged: set[str] = field(default_factory=set)
    decision: TransactionDecision | None = None


@dataclass(slots=True, eq=False)
class _TransactionalWriter:
    """A transactional producer."""

    producer_id: int
    epoch: int = 0
    sequences: dict[int, int] = field(default_factory=dict)
    transaction: _Transaction | None = None
    sent: _Sent | None = None


class TransactionTopic:
    """A topic that is used by transactions: where its partitions are, what was committed, and new batches.

    Attributes:
        stopped: True once its readers must stop.
    """

    def __init__(self, topic: str, plan: TransactionPlan, cluster: SimCluster, scheduler: Scheduler) -> None:
        self.topic = topic
        self.plan = plan
        self.stopped = False
        self._cluster = cluster
        self._scheduler = scheduler
        self._rng = scheduler.stream(topic)
        self._values = 0

    def group_of(self, number: int) -> int | None:
        """Returns the Raft group of a partition, once a node has it."""
        for process in self._cluster.processes.values():
            topic = None if process.image is None else process.image.topics.get(self.topic)
            if topic is not None and number < len(topic.partitions):
                return topic.partitions[number].group
        return None

    def topic_id(self) -> bytes:
        """Returns the id of the topic, from any node that has it."""
        images = (process.image for process in self._cluster.processes.values())
        return next((each.topics[self.topic].topic_id for each in images if each and self.topic in each.topics), b"")

    def log_of(self, group: int) -> CommittedPartition:
        """Returns the committed log of a group."""
        return self._cluster.invariants.model(group).log

    def open_in_logs(self) -> str:
        """Returns a partition with open transactions, in words; empty if none has any."""
        for number in range(self.plan.partitions):
            group = self.group_of(number)
            if group is not None and (opened := self.log_of(group).transactions.open):
                return f"{self.topic}-{number} has open transactions: {opened}"
        return ""

    def fate_of(self, number: int, value: str) -> BatchFate | None:
        """Returns the state of the batch that starts with a value, by the committed log of a partition; None if the log
        does not contain it."""
        group = self.group_of(number)
        offset = -1 if group is None else self._cluster.invariants.place_of(group, value)
        if group is None or offset < 0:
            return None
        log = self.log_of(group)
        batch = log.batch_of(offset)
        return None if batch is None else log.transactions.fate_of(parse_header(batch.entry.data))

    def leader_of(self, group: int) -> tuple[int, int]:
        """Returns the node that leads a group in the newest term of any node, and the term."""
        leaders = self._cluster.invariants.model(group).leaders
        return (leaders[max(leaders)], max(leaders)) if leaders else (NO_NODE, 0)

    def new_batch(self, count: int, producer_id: int, epoch: int, sequence: int) -> tuple[str, bytes]:
        """Returns the first value of a new batch, and the batch; outside of transactions without a producer."""
        self._values += 1
        values = [f"{self.topic}-{self._values}-{place}" for place in range(count)]
        at_ms = max(process.wall_ms for process in self._cluster.processes.values())
        keys = [f"k{self._rng.randrange(self.plan.keys)}" for _ in values] if self.plan.keys else None
        is_transactional = producer_id >= 0
        if self._rng.random() < self.plan.kafka:
            entry = kafka_entry(
                keys, values, at_ms, codec=0, producer=(producer_id, epoch, sequence), is_transactional=is_transactional
            )
            return values[0], entry
        batch = build_batch(
            text_payload(values) if keys is None else arrow_payload(keys, values, at_ms),
            record_count=count,
            codec=Codec.NONE,
            base_timestamp_ms=at_ms,
            max_timestamp_ms=at_ms,
            producer_id=producer_id,
            producer_epoch=epoch,
            base_sequence=sequence,
            attributes=Attributes.TRANSACTIONAL if is_transactional else Attributes.NONE,
        )
        return values[0], batch


class TransactionalLoad(TransactionTopic):
    """Producers with transactions, their coordinator, and readers of each level.

    Attributes:
        committed, aborted: number of transactions decided so.
    """

    def __init__(self, plan: TransactionPlan, cluster: SimCluster, scheduler: Scheduler) -> None:
        super().__init__(TOPIC, plan, cluster, scheduler)
        self.committed = self.aborted = 0
        self._place = LogPlace(1, 0)
        self._calls = self._others = 0
        self._healed = False
        self._due: list[tuple[TransactionDecision, int]] = []
        self._decided: list[_Transaction] = []
        self._writers = [_TransactionalWriter(_FIRST_PRODUCER + number) for number in range(plan.producers)]
        for writer in self._writers:
            self._again(writer)
        self._end_due()
        self._readers = readers_of(self, cluster, scheduler)

    def heal(self) -> None:
        """Starts no further transaction, and ends those that are open."""
        self._healed = True

    def stop(self) -> None:
        """Ends all activity."""
        self.stopped = True

    def missing(self) -> str:
        """Returns what is not finished yet; empty once all transactions have ended and all readers are at the end."""
        if any(writer.transaction is not None for writer in self._writers) or self._due:
            return f"{len(self._due)} transactions are not ended in a partition"
        return self.open_in_logs() or next((missing for reader in self._readers if (missing := reader.missing())), "")

    def judge(self) -> None:
        """Judges the outcome of all transactions.

        Raises:
            Violation: a transaction took effect in a part, or not as decided.
        """
        for each in self._decided:
            assert each.decision is not None
            for number, value in each.values:
                fate = self.fate_of(number, value)
                if fate is None:
                    if value in each.acknowledged:
                        raise Violation(f"{value} of {TOPIC}-{number} was acknowledged, and is not in the log")
                    continue
                if fate is not (BatchFate.COMMITTED if each.decision.commit else BatchFate.ABORTED):
                    raise Violation(f"{value} of {TOPIC}-{number} is {fate.value}; the decision was {each.decision}")

    def _act(self, node: int, group: int, action: Callable[[Partition, int, int], None]) -> None:
        """Has a node act on its replica, in one of its next steps, or late."""
        delay = self._rng.randint(100, 2_000)
        if self._rng.random() < self.plan.late:
            delay += self._rng.randint(1_000, 1_500_000)
        process = self._cluster.processes[node]
        life = process.life
        self._scheduler.after(delay, lambda: process.act(life, group, action))

    def _next_place(self) -> LogPlace:
        """Returns the next place of the coordinator's log. In a later term indexes may go back."""
        term, index = self._place
        if self._rng.random() < 0.02:
            term, index = term + 1, self._rng.randint(0, index)
        self._place = LogPlace(term, index + self._rng.randint(1, 3))
        return self._place

    # -- producers ------------------------------------------------------------------------------------------------

    def _again(self, writer: _TransactionalWriter) -> None:
        if not self.stopped:
            self._scheduler.after(self._rng.randint(*self.plan.step_us), lambda: self._step(writer))

    def _step(self, writer: _TransactionalWriter) -> None:
        self._again(writer)
        if writer.transaction is None:
            if self._healed:
                return
            if self._rng.random() < self.plan.others:
                self._append_other()
            elif not any(decision.producer_id == writer.producer_id for decision, _ in self._due) or (
                self._rng.random() < 0.3
            ):
                # Sometimes the next transaction starts before the last one has its markers.
                left = self._rng.randint(0, self.plan.batches)
                writer.transaction = _Transaction(writer.producer_id, writer.epoch, left)
            return
        transaction = writer.transaction
        if writer.sent is not None:
            self._look_at_sent(writer, transaction, writer.sent)
        elif transaction.left > 0 and not self._healed:
            transaction.left -= 1
            self._send_next(writer, transaction)
        else:
            self._decide(writer, transaction, commit=self._rng.random() < self.plan.commits)

    def _send_next(self, writer: _TransactionalWriter, transaction: _Transaction) -> None:
        number = self._rng.randrange(self.plan.partitions)
        if number not in transaction.enlisted:
            transaction.enlisted[number] = self._next_place()
        count = self._rng.randint(1, 4)
        sequence = writer.sequences.get(number, 0)
        value, batch = self.new_batch(count, writer.producer_id, writer.epoch, sequence)
        transaction.values.append((number, value))
        writer.sent = _Sent(number, batch, count, value)
        self._send(transaction, writer.sent)

    def _send(self, transaction: _Transaction, sent: _Sent) -> None:
        group = self.group_of(sent.number)
        node, term = (NO_NODE, 0) if group is None else self.leader_of(group)
        sent.call, sent.refused, sent.sent_us = None, None, self._scheduler.now
        if group is None or node == NO_NODE:
            return
        response = pb.ProduceResponse()
        response.results.add()
        self._calls += 1
        call = sent.call = ProduceCall(-self._calls, response, 1 << 62, 1, {0})
        enlisted = transaction.enlisted[sent.number]

        def append(partition: Partition, now: int, wall_ms: int) -> None:
            if partition.raft.term != term:
                return  # The answer of the coordinator was for another term.
            problem = open_transaction(
                now, partition, transaction.producer_id, transaction.epoch, _COORDINATOR, enlisted
            )
            problem = problem or partition.append(now, wall_ms, sent.batch, ACKS_ALL, call, 0, _ALL_LIVE)
            if sent.call is call:
                sent.refused = problem

        self._act(node, group, append)

    def _look_at_sent(self, writer: _TransactionalWriter, transaction: _Transaction, sent: _Sent) -> None:
        """Waits for a batch, sends it again, or gives the transaction up."""
        acknowledged = sent.call is not None and sent.call.done and not sent.call.response.results[0].HasField("error")
        if acknowledged:
            transaction.acknowledged.add(sent.value)
            writer.sequences[sent.number] = writer.sequences.get(sent.number, 0) + sent.count
            writer.sent = None
        elif sent.refused is not None and not sent.refused.retriable and sent.refused.code not in _PASSING:
            raise Violation(f"{sent.value} of {TOPIC}-{sent.number} is refused: {sent.refused.message}")
        elif self._healed and self._rng.random() < 0.2:
            self._decide(writer, transaction, commit=False)
        elif sent.refused is not None or self._scheduler.now - sent.sent_us > _ACKNOWLEDGED_US:
            if self._rng.random() < 0.05:
                self._decide(writer, transaction, commit=False)
            else:
                self._send(transaction, sent)

    def _append_other(self) -> None:
        """Appends a batch outside of all transactions; half of them from producers that write once."""
        number = self._rng.randrange(self.plan.partitions)
        group = self.group_of(number)
        node = NO_NODE if group is None else self.leader_of(group)[0]
        if group is None or node == NO_NODE:
            return
        self._calls += 1
        self._others += 1
        response = pb.ProduceResponse()
        response.results.add()
        call = ProduceCall(-self._calls, response, 1 << 62, 1, {0})
        _, batch = self.new_batch(self._rng.randint(1, 3), NO_PRODUCER_ID, -1, -1)
        self._act(node, group, lambda partition, now, wall_ms: _append(partition, now, wall_ms, batch, call))

    # -- the coordinator ------------------------------------------------------------------------------------------

    def _decide(self, writer: _TransactionalWriter, transaction: _Transaction, *, commit: bool) -> None:
        unknown = writer.sent is not None
        if unknown or self._rng.random() >= self.plan.keeps_epoch:
            writer.epoch += 1
            writer.sequences.clear()
        # One entry of the coordinator may start a transaction and decide it.
        at_once = self._place in transaction.enlisted.values() and self._rng.random() < 0.3
        place = self._place if at_once else self._next_place()
        decision = TransactionDecision(writer.producer_id, writer.epoch, LogPlace(0, 0), place, commit and not unknown)
        transaction.decision = decision
        self.committed += decision.commit
        self.aborted += not decision.commit
        self._decided.append(transaction)
        self._due += [(decision._replace(origin=place), number) for number, place in transaction.enlisted.items()]
        writer.transaction = writer.sent = None

    def _end_due(self) -> None:
        if self.stopped:
            return
        self._scheduler.after(self._rng.randint(2_000, 50_000), self._end_due)
        for decision, number in self._rng.sample(self._due, min(3, len(self._due))):
            self._end(decision, number)
        if self._decided and self._rng.random() < self.plan.late and not self._healed:
            old = self._rng.choice(self._decided)
            assert old.decision is not None
            for number, place in old.enlisted.items():
                self._end(old.decision._replace(origin=place), number)

    def _end(self, decision: TransactionDecision, number: int) -> None:
        group = self.group_of(number)
        node = NO_NODE if group is None else self.leader_of(group)[0]
        if group is None or node == NO_NODE:
            return
        if self._rng.random() < 0.05:
            node = self._rng.choice(self._cluster.node_ids)

        def end(partition: Partition, now: int, wall_ms: int) -> None:
            ending = end_transaction(now, wall_ms, partition, decision)
            # A former leader may not have the transaction.
            is_confirmed = self.leader_of(group) == (partition.raft.node_id, partition.raft.term)
            if ending == TransactionEnding(None, 0) and is_confirmed and (decision, number) in self._due:
                self._due.remove((decision, number))

        self._act(node, group, end)


def _append(partition: Partition, now: int, wall_ms: int, batch: bytes, call: ProduceCall) -> None:
    partition.append(now, wall_ms, batch, ACKS_ALL, call, 0, _ALL_LIVE)


class TransactionReader:
    """Reads one partition of the load from its beginning, at one isolation level.

    Arguments:
        takes_control: it gets every batch, and leaves out aborted ones itself, as Kafka's clients do.
    """

    def __init__(
        self,
        number: int,
        level: pb.IsolationLevel.ValueType,
        takes_control: bool,
        cluster: SimCluster,
        scheduler: Scheduler,
        load: TransactionTopic,
    ) -> None:
        self.position = 0
        self._name = name = f"{load.topic}-{number}-{level}-{takes_control}"
        self._number = number
        self._level = level
        self._takes_control = takes_control
        self._cluster = cluster
        self._scheduler = scheduler
        self._load = load
        self._rng = scheduler.stream(name)
        self._attempt = 0
        self._later(_LATER_US)

    def missing(self) -> str:
        """Returns how far it is from the end; empty at the end."""
        group = self._load.group_of(self._number)
        end = 0 if group is None else self._load.log_of(group).next_offset
        return f"{self._name} is at {self.position} of {end}" if self.position < end else ""

    def _later(self, delay_us: tuple[int, int]) -> None:
        self._scheduler.after(self._rng.randint(*delay_us), self._fetch)

    def _fetch(self) -> None:
        if self._load.stopped:
            return
        group = self._load.group_of(self._number)
        node = NO_NODE if group is None else self._load.leader_of(group)[0]
        if group is None or node == NO_NODE:
            self._later(_LATER_US)
            return
        self._attempt += 1
        attempt = self._attempt
        request = pb.FetchRequest(
            max_wait_ms=self._rng.choice((0, 200)),
            min_bytes=self._rng.choice((1, 1, 2_000)),
            max_bytes=self._rng.choice((300, 4_000, 1 << 20)),
            takes_kafka_batches=True,
            isolation_level=self._level,
            takes_control_batches=self._takes_control,
        )
        request.partitions.add(
            topic_id=self._load.topic_id(), partition=self._number, fetch_offset=self.position, leader_epoch=-1,
            max_bytes=1 << 20,
        )  # fmt: skip

        def served(message: ProtoMessage) -> None:
            assert isinstance(message, pb.FetchResponse)
            for result in message.results:
                self._judge(node, group, request.partitions[0].fetch_offset, result)

        def answered(answer: ProtoMessage | Unanswered) -> None:
            if attempt == self._attempt:
                self._attempt += 1
                self._answered(answer)

        self._cluster.request(self._name, node, request, answered, served)
        self._scheduler.after(1_000_000, lambda: answered(Unanswered.LOST))

    def _answered(self, answer: ProtoMessage | Unanswered) -> None:
        if not isinstance(answer, pb.FetchResponse) or not answer.results:
            self._later(_LATER_US)
            return
        (result,) = answer.results
        if result.error.code == ErrorCode.OFFSET_OUT_OF_RANGE and result.log_start_offset > self.position:
            self.position = result.log_start_offset
        elif result.HasField("error"):
            self._later(_LATER_US)
            return
        elif result.entries:
            self.position = parse_header(result.entries[-1]).last_offset + 1
        self._later(_SOON_US)

    # -- what it gets ---------------------------------------------------------------------------------------------

    def _judge(self, node: int, group: int, first: int, result: pb.FetchResult) -> None:
        """Compares an answer with the committed log.

        Raises:
            Violation: it has other records than those that count at the level.
        """
        if result.HasField("error") or not result.entries:
            return
        log = self._load.log_of(group)
        end = parse_header(result.entries[-1]).last_offset + 1
        start = max(first, result.log_start_offset)
        found = [record for record in self._records_in(result) if record.offset >= start]
        where = f"node {node} answers {self._name} from {first} to {end}"
        offsets = [record.offset for record in found]
        if offsets != sorted(set(offsets)):
            raise Violation(f"{where}: offsets do not rise: {offsets}")
        expected = self._expected(log, start, end, where)
        by_offset = {record.offset: record.value for record in found}
        strangers = {offset: value for offset, value in by_offset.items() if expected.get(offset) != value}
        if strangers:
            raise Violation(f"{where}: {strangers} must not be read")
        missing = expected.keys() - by_offset.keys()
        compacted = log.compaction.points[-1].end_offset if log.compaction.points else 0
        left = log.compaction.left(compacted, log.entries()) if missing and compacted else {}
        lost = sorted(offset for offset in missing if offset >= compacted or offset in left)
        if lost:
            raise Violation(f"{where}: offsets {lost} are missing")

    def _records_in(self, result: pb.FetchResult) -> list[Record]:
        records: list[Record] = []
        aborted = sorted(result.aborted, key=lambda each: each.first_offset, reverse=True)
        active: set[int] = set()
        for entry in result.entries:
            header = parse_header(entry)
            while aborted and aborted[-1].first_offset <= header.last_offset:
                active.add(aborted.pop().producer_id)
            if header.is_control:
                active.discard(header.producer_id)
            elif not (header.is_transactional and header.producer_id in active):
                records += records_of(entry)
        return records

    def _expected(self, log: CommittedPartition, start: int, end: int, where: str) -> dict[int, str]:
        """Returns the values that count, by offset."""
        is_committed = self._level == pb.ISOLATION_LEVEL_READ_COMMITTED
        expected: dict[int, str] = {}
        for batch in log.batches_in_order:
            if batch.last_offset < start or batch.base_offset >= end:
                continue
            fate = log.transactions.fate_of(parse_header(batch.entry.data))
            if fate is BatchFate.OPEN and is_committed:
                raise Violation(f"{where}: offset {batch.base_offset} is of an open transaction")
            if fate is BatchFate.MARKER or (fate is BatchFate.ABORTED and is_committed):
                continue
            values = zip(batch.offsets, batch.values, strict=True)
            expected |= {offset: value for offset, value in values if start <= offset < end}
        return expected


def readers_of(load: TransactionTopic, cluster: SimCluster, scheduler: Scheduler) -> list[TransactionReader]:
    """Returns readers of each level for every partition of a topic."""
    levels = [
        (pb.ISOLATION_LEVEL_READ_COMMITTED, False),
        (pb.ISOLATION_LEVEL_READ_COMMITTED, True),
        (pb.ISOLATION_LEVEL_READ_UNCOMMITTED, False),
    ]
    return [
        TransactionReader(number, level, takes_control, cluster, scheduler, load)
        for number in range(load.plan.partitions)
        for level, takes_control in levels
    ]


def draw_transactions(rng: random.Random) -> TransactionPlan:
    """Draws the load of a seed."""
    configs: dict[str, str] = {}
    kind = rng.choice(("keep", "delete", "compact", "compact,delete"))
    if kind != "keep":
        configs["cleanup.policy"] = kind
    if "compact" in kind:
        configs |= {
            "delete.retention.ms": rng.choice(("0", "300", "2000")),
            "min.cleanable.dirty.ratio": rng.choice(("0", "0.5")),
        }
    if "delete" in kind:
        configs |= {
            "retention.bytes": rng.choice(("-1", "2000", "10000")),
            "retention.ms": rng.choice(("500", "2000", "9223372036854775807")),
        }
    return TransactionPlan(
        partitions=rng.choice((1, 2, 3)),
        producers=rng.choice((1, 3, 6)),
        configs=configs,
        step_us=rng.choice(((1_000, 20_000), (5_000, 100_000))),
        batches=rng.choice((1, 3, 8)),
        commits=rng.choice((0.2, 0.6, 0.9)),
        keeps_epoch=rng.choice((0.0, 0.5, 1.0)),
        late=rng.choice((0.0, 0.1, 0.4)),
        keys=rng.choice((2, 8, 40)) if "compact" in kind else 0,
        kafka=rng.choice((0.0, 0.5, 1.0)),
        others=rng.choice((0.1, 0.4)),
    )

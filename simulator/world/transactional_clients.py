"""Transactional clients in virtual time: they use coordinators and leaders by requests alone, as clients do.

Several instances may use one transactional id. An instance that another one has fenced continues until it notices. The
outcome that a client receives is compared with the committed logs (X3 to X5 and X8 of the rules of transactions):

- A commit that was answered: every record of the transaction counts; at once if the answer says that it does.
- An abort, or a definite failure: none ever counts.
- No answer: all or none.
- What an instance sends after another one has received its identity never counts.
- Each marker is that of the one decision that the coordinator's log has.

A client may also commit in the transaction how far it has consumed a partition: all of the above holds for that, too.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator
from dataclasses import dataclass, field
from enum import Enum
from itertools import count
from typing import NamedTuple, Protocol, TypeVar

from google.protobuf.message import Message as ProtoMessage

from quorumlog.raft.types import NO_NODE
from quorumlog.simulator.models.committed_partition import Violation
from quorumlog.simulator.models.committed_transactions import BatchFate
from quorumlog.simulator.models.transaction_models import Partition, as_participant
from quorumlog.simulator.world.clients import Unanswered
from quorumlog.simulator.world.cluster import SimCluster
from quorumlog.simulator.world.consumed_offsets import Commit, Consumption
from quorumlog.simulator.world.old_connections import OldConnection, OldConnections
from quorumlog.simulator.world.scheduler import Scheduler
from quorumlog.simulator.world.transactions import TOPIC as TRANSFERS
from quorumlog.simulator.world.transactions import TransactionalLoad, TransactionPlan, TransactionTopic, readers_of
from quorumlog.v1 import data_plane_pb2 as pb
from quorumlog.v1 import errors_pb2, groups_pb2, transactions_pb2
from quorumlog.v1.errors_pb2 import ErrorCode
from quorumlog.wire.entry import parse_header

#: The topic of the load: no other client uses it.
TOPIC = "payments"
#: The topics of all loads with transactions.
TOPICS = (TRANSFERS, TOPIC)
#: How long a client waits for an answer (µs), and between two attempts.
_ANSWER_US = 1_500_000
_PAUSE_US = (2_000, 40_000)
#: Attempts of one request before a client gives its transaction up.
_ATTEMPTS = 30
#: How long a message that is repeated may be under way (µs).
_LATE_US = 1_500_000
#: Share of transactions that commit offsets; and, where clients share groups, of these that are overtaken by a commit
#: outside of transactions.
_CONSUMES, _OVERTAKES = 0.6, 0.3
#: Clients beyond the number of producers that a plan draws.
_MORE = 3
#: Timeouts of transactions that are drawn, in milliseconds.
_TIMEOUTS_MS = (1_000, 5_000, 20_000)
#: Producers that expire sooner than this may be forgotten in a run (µs).
_SOON_FORGOTTEN_US = 600_000_000
#: Errors of batches that end a transaction: its producer is fenced, or the transaction is over.
_ENDS = frozenset(
    (
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
        ErrorCode.INVALID_TXN_STATE,
        ErrorCode.TRANSACTION_ABORTABLE,
        ErrorCode.UNSUPPORTED_VERSION,
        ErrorCode.INVALID_TIMESTAMP,
    )
)


class _Ask(NamedTuple):
    """A request to a node, on a connection if the client needs one."""

    node: int
    request: ProtoMessage
    connection: OldConnection | None = None


#: What a client does: asks a node, and receives the answer or None; or waits, in microseconds.
ResultT = TypeVar("ResultT")
_Steps = Generator[_Ask | int, ProtoMessage | None, ResultT]


class Outcome(Enum):
    """The outcome of a transaction, as its client has learned it."""

    OPEN = "open"
    COMMITTED = "committed"
    ABORTED = "aborted"
    UNKNOWN = "unknown"


class _Identity(NamedTuple):
    producer_id: int
    epoch: int


class _Value(NamedTuple):
    """The first value of a batch, and when it was first sent (µs)."""

    partition: int
    value: str
    sent_us: int


@dataclass(slots=True, eq=False)
class _Attempt:
    """A transaction of one instance.

    Attributes:
        commits: the offsets that it has sent.
        fenced_us: when another instance received its identity; None if none did.
        acknowledged: the values whose batch was acknowledged, and the labels of stored offsets.
        committed_us: when the client learned that it is committed.
    """

    name: str
    identity: _Identity
    values: list[_Value] = field(default_factory=list)
    commits: list[Commit] = field(default_factory=list)
    acknowledged: set[str] = field(default_factory=set)
    outcome: Outcome = Outcome.OPEN
    fenced_us: int | None = None
    committed_us: int | None = None


class CommittedBatches(NamedTuple):
    """The batches of a transaction that count.

    Arguments:
        answered_us: when its client has learned that it is committed; None if it has not.
        batches: first value, partition, first offset and producer id of each.
        consumed: how far it has consumed its partition; 0 if it has consumed nothing.
    """

    name: str
    answered_us: int | None
    batches: list[tuple[str, int, int, int]]
    consumed: int


class TransactionalClients(TransactionTopic):
    """The clients of a seed, and readers of each level.

    Attributes:
        outcomes: number of transactions by outcome.
        consumption: the offsets that they commit.
        connections: numbers of connections of clients that keep their epoch.
        names: the transactional ids.
    """

    def __init__(self, plan: TransactionPlan, cluster: SimCluster, scheduler: Scheduler) -> None:
        super().__init__(TOPIC, plan, cluster, scheduler)
        self.healed = False
        self.consumption = Consumption(self, cluster, Consumption.share(self._rng.random()))
        self.connections = count(1)
        self._running = 0
        self._attempts: list[_Attempt] = []
        self._readers = readers_of(self, cluster, scheduler)
        self.names = [f"payer-{number}" for number in range(plan.producers + _MORE)]
        for name in self.names:
            self._start(name, self._rng.randint(0, 500_000))

    @property
    def outcomes(self) -> dict[Outcome, int]:
        counted = dict.fromkeys(Outcome, 0)
        for each in self._attempts:
            counted[each.outcome] += 1
        return counted

    def heal(self) -> None:
        """Starts no further transaction; those that run come to an end."""
        self.healed = True

    def stop(self) -> None:
        """Ends the readers."""
        self.stopped = True

    def missing(self) -> str:
        """Returns what is not finished yet; empty once all transactions have ended and all readers are at the end."""
        if self._running:
            return f"{self._running} transactional clients run"
        coordinators = self._cluster.invariants.transactions
        if coordinators.open:
            return f"transactions are open at their coordinators: {coordinators.open}"
        missing = self.open_in_logs() or self.consumption.missing()
        return missing or next((missing for reader in self._readers if (missing := reader.missing())), "")

    # -- running ------------------------------------------------------------------------------------------------------

    def _start(self, name: str, delay_us: int) -> None:
        self._running += 1
        client = _Instance(self, name, self._attempts, self._cluster, self._scheduler)
        self._scheduler.after(delay_us, lambda: self._drive(name, client.live()))

    def start_another(self, name: str) -> None:
        """Starts another instance of a transactional id, which will fence the others."""
        self._start(name, self._rng.randint(0, 200_000))

    def _drive(self, name: str, steps: _Steps[None], answer: ProtoMessage | None = None) -> None:
        try:
            wanted = steps.send(answer)
        except StopIteration:
            self._running -= 1
            return
        if isinstance(wanted, int):
            self._scheduler.after(wanted, lambda: self._drive(name, steps))
            return
        is_answered = False

        def answered(message: ProtoMessage | Unanswered) -> None:
            nonlocal is_answered
            if not is_answered:
                is_answered = True
                self._drive(name, steps, None if isinstance(message, Unanswered) else message)

        client, stream = wanted.connection or (name, 0)
        self._cluster.request(client, wanted.node, wanted.request, answered, stream=stream)
        self._scheduler.after(_ANSWER_US, lambda: answered(Unanswered.LOST))

    # -- judging ------------------------------------------------------------------------------------------------------

    def committed_batches(self) -> Iterator[CommittedBatches]:
        """Yields the batches of each transaction with some that count."""
        for attempt in self._attempts:
            batches: list[tuple[str, int, int, int]] = []
            for each in attempt.values:
                group = self.group_of(each.partition)
                if group is not None and self.fate_of(each.partition, each.value) is BatchFate.COMMITTED:
                    batch = self.log_of(group).batch_of(self._cluster.invariants.place_of(group, each.value))
                    assert batch is not None
                    producer_id = parse_header(batch.entry.data).producer_id
                    batches.append((each.value, each.partition, batch.base_offset, producer_id))
            if batches:
                in_effect = (each.end for each in attempt.commits if self.consumption.is_in_effect(each.label))
                yield CommittedBatches(attempt.name, attempt.committed_us, batches, max(in_effect, default=0))

    def judge(self) -> None:
        """Judges the outcome of all transactions, and the markers of all partitions.

        Raises:
            Violation: an outcome is another one than its client received, or it holds for a part only.
        """
        for each in self._attempts:
            self.judge_attempt(each)
        self.consumption.judge()
        judge_markers(self._cluster, [self])

    def judge_attempt(self, attempt: _Attempt) -> None:
        """Judges one transaction.

        Raises:
            Violation: see above.
        """
        where = f"the transaction of {attempt.name} with {attempt.identity}, {attempt.outcome.value},"
        counts: dict[str, bool | None] = {
            each.label: self.consumption.is_in_effect(each.label) for each in attempt.commits
        }
        fates = {each.value: self.fate_of(each.partition, each.value) for each in attempt.values}
        counts |= {value: fate is BatchFate.COMMITTED for value, fate in fates.items()}
        counted = {name for name, is_counted in counts.items() if is_counted}
        missing = attempt.acknowledged - counted
        if attempt.outcome is Outcome.COMMITTED and missing:
            raise Violation(f"{where} has parts that do not count: {[(each, fates.get(each)) for each in missing]}")
        if attempt.outcome in (Outcome.ABORTED, Outcome.OPEN) and counted:
            raise Violation(f"{where} has parts that count: {counted}")
        if attempt.outcome is Outcome.UNKNOWN and counted and missing:
            raise Violation(f"{where} counts in a part: {counted}, without {missing}")
        if attempt.fenced_us is not None:
            sent_us = {each.value: each.sent_us for each in attempt.values}
            sent_us |= {each.label: each.sent_us for each in attempt.commits}
            late = {name for name in counted if sent_us[name] > attempt.fenced_us}
            if late:
                raise Violation(f"{where} was fenced at {attempt.fenced_us}, and these count: {late}")


def judge_markers(cluster: SimCluster, topics: Iterable[TransactionTopic]) -> None:
    """Judges the markers of topics, and the ends of transactions in consumer groups, by the coordinators' logs.

    Raises:
        Violation: a marker is that of no decision, or has another outcome.
    """
    decided = {
        (writer[0], transaction.decided): (writer in transaction.committed, partitions)
        for transaction in cluster.invariants.transactions.transactions
        for writer, partitions in transaction.writers.items()
    }
    for participant, producer, place, commit in _markers(cluster, topics):
        where = f"{participant} has a marker of producer {producer} at {place}, commit {commit}"
        found = decided.get((producer, place))
        if found is None:
            raise Violation(f"{where}: its coordinator has no such decision")
        if found[0] != commit or participant not in found[1]:
            raise Violation(f"{where}: the decision was {found}")


def _markers(
    cluster: SimCluster, topics: Iterable[TransactionTopic]
) -> Iterator[tuple[Partition, int, tuple[int, int], bool]]:
    """Yields each end of a transaction: the participant, the producer, the place of the decision, the outcome."""
    for topic in topics:
        for number in range(topic.plan.partitions):
            group = topic.group_of(number)
            for producer, place, commit in topic.log_of(group).transactions.markers() if group is not None else ():
                yield (topic.topic_id(), number), producer, place, commit
    for ended in cluster.invariants.coordinators.ended:
        yield as_participant(ended.group_id), ended.producer_id, ended.decided, ended.commit


class TransactionLoad(Protocol):
    """A load with transactions."""

    def heal(self) -> None:
        """Starts no further transaction, and ends those that are open."""

    def stop(self) -> None:
        """Ends all activity."""

    def missing(self) -> str:
        """Returns what is not finished yet; empty once all transactions have ended and all readers are at the end."""

    def judge(self) -> None:
        """Judges the outcome of all transactions.

        Raises:
            Violation: a rule is broken.
        """


def transaction_loads(plan: TransactionPlan, cluster: SimCluster, scheduler: Scheduler) -> list[TransactionLoad]:
    """Starts the loads with transactions of a seed, each on its topic."""
    return [TransactionalLoad(plan, cluster, scheduler), TransactionalClients(plan, cluster, scheduler)]


class _Instance:
    """One instance of a transactional producer."""

    def __init__(
        self,
        clients: TransactionalClients,
        name: str,
        attempts: list[_Attempt],
        cluster: SimCluster,
        scheduler: Scheduler,
    ) -> None:
        self._clients = clients
        self._plan = clients.plan
        self._name = name
        self._attempts = attempts
        self._cluster = cluster
        self._scheduler = scheduler
        self._rng = scheduler.stream(f"{name}-{len(attempts)}-{scheduler.now}")
        #: Of the first version, which adds its partitions itself and keeps its epoch.
        self._is_old = self._rng.random() < self._plan.keeps_epoch
        self._timeout_ms = self._rng.choice(_TIMEOUTS_MS)
        self._identity: _Identity | None = None
        self._sequences: dict[int, int] = {}
        self._connections = OldConnections(name, clients.connections, cluster, scheduler)
        #: How far it has consumed; None if it must ask.
        self._position: int | None = None

    @property
    def _is_over(self) -> bool:
        return self._clients.healed

    def live(self) -> _Steps[None]:
        """Runs transactions until the cluster is healed, or another instance has taken over."""
        while not self._is_over:
            if self._identity is None and not (yield from self._init()):
                return
            yield from self._run()
            if self._identity is None and self._rng.random() < 0.3:
                return  # It is gone, as a process that was fenced.
            if self._rng.random() < 0.05:
                self._clients.start_another(self._name)
            yield self._rng.randint(*self._plan.step_us)

    # -- requests -----------------------------------------------------------------------------------------------------

    def _pause(self) -> int:
        return self._rng.randint(*_PAUSE_US)

    def _call(self, request: ProtoMessage, group_id: str | None = None) -> _Steps[tuple[ProtoMessage | None, bool]]:
        """Asks the coordinator until the answer is definite.

        Arguments:
            group_id: asks the coordinator of this consumer group, not that of the transactional id.

        Returns:
            The answer, None if the client has given up; and whether an attempt has no known outcome.
        """
        is_uncertain = False
        for _ in range(_ATTEMPTS):
            node = yield from self._coordinator(group_id)
            if node != NO_NODE:
                answer = yield _Ask(node, request, self._connections.to(node) if self._is_old else None)
                if answer is None:
                    is_uncertain = True
                    self._connections.give_up(node)
                else:
                    problem: errors_pb2.Error = answer.error  # type: ignore[attr-defined]
                    if not problem.retriable:
                        return answer, is_uncertain or not (problem.code == 0 or problem.definite)
                    is_uncertain = is_uncertain or not problem.definite
            yield self._pause()
        return None, is_uncertain

    def _coordinator(self, group_id: str | None) -> _Steps[int]:
        request = groups_pb2.FindCoordinatorsRequest(
            group_ids=[self._name], type=groups_pb2.COORDINATOR_TYPE_TRANSACTION
        )
        if group_id is not None:
            request = groups_pb2.FindCoordinatorsRequest(group_ids=[group_id])
        found = yield _Ask(self._rng.choice(self._cluster.node_ids), request)
        if isinstance(found, groups_pb2.FindCoordinatorsResponse) and found.coordinators:
            node: int = found.coordinators[0].node_id
            return node if node in self._cluster.processes else NO_NODE
        return NO_NODE

    def _init(self) -> _Steps[bool]:
        request = transactions_pb2.InitTransactionsRequest(
            transactional_id=self._name, transaction_timeout_ms=self._timeout_ms
        )
        answer, _ = yield from self._call(request)
        if not isinstance(answer, transactions_pb2.InitTransactionsResponse) or answer.HasField("error"):
            yield self._pause()
            return False
        self._adopt(answer.identity)
        self._position = None
        for each in self._attempts:
            if each.name == self._name and each.identity != self._identity and each.fenced_us is None:
                each.fenced_us = self._scheduler.now
        return True

    def _adopt(self, identity: transactions_pb2.ProducerIdentity) -> None:
        following = _Identity(identity.producer_id, identity.producer_epoch)
        if following != self._identity:
            self._identity = following
            self._sequences.clear()

    # -- one transaction ----------------------------------------------------------------------------------------------

    def _run(self) -> _Steps[None]:
        assert self._identity is not None
        if any(self._clients.group_of(number) is None for number in range(self._plan.partitions)):
            yield self._pause()
            return
        attempt = _Attempt(self._name, self._identity)
        part = yield from self._consume()
        added: set[int] = set()
        is_whole = True
        for _ in range(self._rng.randint(1, self._plan.batches)):
            number = self._rng.randrange(self._plan.partitions)
            if self._is_old and number not in added:
                partition = transactions_pb2.TransactionParticipant(topic_id=self._clients.topic_id(), partition=number)
                is_whole = yield from self._add(partition)
            if is_whole:
                added.add(number)
                is_whole = yield from self._produce(attempt, number)
            if not is_whole:
                break
            yield self._rng.randint(0, 5_000)
        if is_whole and part is not None:
            is_whole = yield from self._commit(attempt, *part)
        if not added:
            self._identity = None
            return
        if self._rng.random() < 0.05:
            self._identity = None  # It is killed: its transaction stays open until its timeout, or the next instance.
            return
        yield from self._end(attempt, commit=is_whole and self._rng.random() < self._plan.commits)
        self._position = part[1] if part is not None and attempt.outcome is Outcome.COMMITTED else None
        if not is_whole:
            self._identity = None

    def _consume(self) -> _Steps[tuple[int, int] | None]:
        """Returns the part of its partition that the client consumes in a transaction; None if it consumes nothing."""
        consumption = self._clients.consumption
        if self._rng.random() >= _CONSUMES:
            return None
        for _ in range(_ATTEMPTS):
            if self._position is not None:
                break
            node = yield from self._coordinator(consumption.group_of(self._name))
            answer = (yield _Ask(node, consumption.fetch(self._name))) if node != NO_NODE else None
            self._position = consumption.position_in(answer)
            yield self._pause()
        if self._position is None:
            return None
        end = min(self._position + self._rng.randint(1, 5), consumption.end_of(self._name))
        return (self._position, end) if end > self._position else None

    def _commit(self, attempt: _Attempt, first: int, end: int) -> _Steps[bool]:
        """Commits in the transaction what the client has consumed."""
        assert self._identity is not None
        consumption, group_id = self._clients.consumption, self._clients.consumption.group_of(self._name)
        if self._is_old:
            is_added = yield from self._add(transactions_pb2.TransactionParticipant(group_id=group_id))
            if not is_added:
                return False
        commit = consumption.begin(self._name, first, end, self._scheduler.now)
        attempt.commits.append(commit)
        identity = transactions_pb2.ProducerIdentity()
        identity.producer_id, identity.producer_epoch = self._identity
        request = consumption.request_in(commit, identity, adds_group=not self._is_old)
        self._repeat_late(request)
        answer, _ = yield from self._call(request, group_id)
        is_stored = consumption.is_stored(answer)
        if is_stored:
            attempt.acknowledged.add(commit.label)
        if consumption.is_shared and self._rng.random() < _OVERTAKES:
            other = consumption.begin(self._name, first, end, self._scheduler.now)
            yield from self._call(consumption.request(other), group_id)
        return is_stored

    def _add(self, participant: transactions_pb2.TransactionParticipant) -> _Steps[bool]:
        assert self._identity is not None
        request = transactions_pb2.AddToTransactionRequest(transactional_id=self._name, participants=[participant])
        request.identity.producer_id, request.identity.producer_epoch = self._identity
        answer, _ = yield from self._call(request)
        return answer is not None and not answer.HasField("error")

    def _produce(self, attempt: _Attempt, number: int) -> _Steps[bool]:
        assert self._identity is not None
        count, sequence = self._rng.randint(1, 4), self._sequences.get(number, 0)
        value, batch = self._clients.new_batch(count, *self._identity, sequence)
        request = pb.ProduceRequest(
            acks=-1, timeout_ms=1_000, transactional_id=self._name, adds_partitions=not self._is_old
        )
        request.batches.add(topic_id=self._clients.topic_id(), partition=number, batch=batch)
        attempt.values.append(_Value(number, value, self._scheduler.now))
        if attempt not in self._attempts:
            self._attempts.append(attempt)
        for _ in range(_ATTEMPTS):
            group = self._clients.group_of(number)
            node = NO_NODE if group is None else self._clients.leader_of(group)[0]
            if node != NO_NODE:
                if self._rng.random() < self._plan.late:
                    self._send_late(node, request)
                answer = yield _Ask(node, request)
                if isinstance(answer, pb.ProduceResponse):
                    problem = answer.results[0].error
                    if not problem.code:
                        attempt.acknowledged.add(value)
                        self._sequences[number] = sequence + count
                        return True
                    if not problem.retriable and problem.code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                        self._judge_refusal(attempt, value, problem)
                        return False
            yield self._pause()
        return False

    def _repeat_late(self, request: ProtoMessage) -> None:
        """Sends a request to a coordinator that may arrive a second time, long after."""
        if self._rng.random() < self._plan.late:
            node = self._rng.choice(self._cluster.node_ids)
            if self._is_old:
                # Such a client keeps its epoch: only the order of its connections fences what it repeats.
                self._connections.send_late(node, request, self._rng.randint(0, _LATE_US))
            else:
                self._send_late(node, request)

    def _send_late(self, node: int, request: ProtoMessage) -> None:
        """Sends a request again, long after; no client waits for the answer."""
        sender = f"{self._name}-late"
        self._scheduler.after(
            self._rng.randint(0, _LATE_US), lambda: self._cluster.request(sender, node, request, lambda answer: None)
        )

    def _judge_refusal(self, attempt: _Attempt, value: str, problem: errors_pb2.Error) -> None:
        # A node forgets an idle producer, and with it the sequence at which it continues.
        is_forgotten = problem.code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER and self._is_old
        if is_forgotten and self._cluster.options.producer_id_expiration_us < _SOON_FORGOTTEN_US:
            return
        if problem.code not in _ENDS:
            raise Violation(f"{value} of {attempt.name} with {attempt.identity} is refused: {problem}")

    def _end(self, attempt: _Attempt, *, commit: bool) -> _Steps[None]:
        assert self._identity is not None
        request = transactions_pb2.EndTransactionRequest(
            transactional_id=self._name, commit=commit, raises_epoch=not self._is_old
        )
        request.identity.producer_id, request.identity.producer_epoch = self._identity
        self._repeat_late(request)
        answer, is_uncertain = yield from self._call(request)
        if not isinstance(answer, transactions_pb2.EndTransactionResponse):
            attempt.outcome = Outcome.UNKNOWN if commit else Outcome.ABORTED
            self._identity = None
        elif answer.HasField("error"):
            attempt.outcome = Outcome.UNKNOWN if commit and is_uncertain else Outcome.ABORTED
            self._identity = None
        else:
            attempt.outcome = Outcome.COMMITTED if commit else Outcome.ABORTED
            attempt.committed_us = self._scheduler.now if commit else None
            if commit and answer.markers_committed:
                self._clients.judge_attempt(attempt)
            self._adopt(answer.identity)

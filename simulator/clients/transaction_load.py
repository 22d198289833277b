"""Transactions of the SDK's own clients in virtual time: they feed, copy, and share transactions among writers.

- A *feeder* writes orders in transactions, and aborts some of them.
- *Copiers* are the members of one consumer group. Each reads orders, writes an invoice for each of them, and commits
  what it has consumed in the same transaction. In the end, each committed order has exactly one committed invoice.
- A *twin* has the transactional id of a copier. The two fence each other.
- A *runner* commits numbered work, whose records several joined writers have sent.

All of them are killed, paused and cut off. Whatever their transactions report must be what the committed logs contain
(X2 to X5, X8 and X9 of the rules of transactions).
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Any

from quorumlog.sdk.consumer.async_consumer import AsyncConsumer
from quorumlog.sdk.errors import (
    CommitUnknownError,
    IllegalStateError,
    InvalidProducerEpochError,
    QuorumlogError,
    TransactionAbortedError,
)
from quorumlog.sdk.producer.async_producer import AsyncProducer
from quorumlog.sdk.producer.async_transaction import AsyncTransaction
from quorumlog.sdk.producer.transaction_control import Phase
from quorumlog.simulator.clients.client_faults import ClientFaultPlan, ClientFaults, ClientLoad
from quorumlog.simulator.clients.client_host import ClientHost
from quorumlog.simulator.clients.client_network import SimClientNetwork
from quorumlog.simulator.clients.committed_values import CommittedValues
from quorumlog.simulator.clients.transaction_operator import TransactionOperator
from quorumlog.simulator.clients.transaction_outcomes import SentTransaction, SentTransactions
from quorumlog.simulator.clients.transaction_readers import IsolationReader
from quorumlog.simulator.models.committed_partition import Violation
from quorumlog.simulator.world.cluster import SimCluster
from quorumlog.simulator.world.scheduler import Scheduler
from quorumlog.simulator.world.transactional_clients import Outcome, judge_markers
from quorumlog.simulator.world.transactions import TransactionPlan, TransactionTopic

#: The topics of the load: no other client uses them.
ORDERS, INVOICES, RESULTS = TOPICS = ("orders", "invoices", "results")
#: Their configuration: nothing is removed, whatever faults change for other topics.
CONFIGS = {"cleanup.policy": "delete", "retention.ms": "9223372036854775807", "retention.bytes": "-1"}
GROUP = "copiers"
_POLL_MS = 200
#: Faults of clients that need nothing of the nodes.
_FAULTS = ("crash", "pause", "late", "broken", "alone", "client-clock")


@dataclass(slots=True)
class TransactionHabits:
    """The decisions of a seed for the SDK's transactional clients.

    Arguments:
        partitions: of each topic.
        copiers: number of members of the group.
        twins: number of further processes with the transactional id of the first copier.
        runners: number of processes with numbered work.
        producer, consumer: options of the SDK, without addresses.
        pause_s: minimum and maximum pause between two transactions.
        most_records: maximum number of records of a poll.
        aborts: share of transactions that their processes abort.
        closes: share of transactions after which a process opens new clients.
        operator_s: minimum and maximum pause between two actions of the operator.
        operator_aborts: share of open transactions that the operator aborts.
    """

    partitions: int
    copiers: int
    twins: int
    runners: int
    producer: dict[str, Any]
    consumer: dict[str, Any]
    faults: ClientFaultPlan
    pause_s: tuple[float, float] = (0.0, 0.1)
    most_records: int = 5
    aborts: float = 0.1
    closes: float = 0.05
    operator_s: tuple[float, float] = (0.1, 1.0)
    operator_aborts: float = 0.3


def draw_transaction_habits(rng: random.Random, election_timeout_ms: int) -> TransactionHabits:
    """Draws the SDK's transactional clients of a seed."""
    session_ms = int(election_timeout_ms * rng.choice((2.5, 4, 6)))
    request_ms = rng.choice((500, 1_000, 5_000))
    kinds = [kind for kind in _FAULTS if rng.random() < 0.6] or ["crash"]
    return TransactionHabits(
        partitions=rng.choice((1, 2, 3)),
        copiers=rng.choice((1, 2, 3)),
        twins=rng.choice((0, 1)),
        runners=rng.choice((0, 1)),
        producer={
            "linger_ms": rng.choice((0, 5, 20)),
            "batch_size": rng.choice((200, 100_000)),
            "max_in_flight": rng.choice((1, 2, 5)),
            "request_timeout_ms": request_ms,
            "delivery_timeout_ms": max(request_ms, rng.choice((2_000, 10_000))),
            "max_block_ms": rng.choice((1_000, 5_000)),
            "metadata_max_age_ms": rng.choice((200, 5_000)),
            "partitioner": rng.choice(("sticky", "round_robin")),
            "bootstrap_timeout_ms": rng.choice((500, 3_000)),
            "transaction_timeout_ms": rng.choice((1_000, 5_000, 20_000)),
        },
        consumer={
            "session_timeout_ms": session_ms,
            "heartbeat_interval_ms": max(50, session_ms // 6),
            "max_poll_interval_ms": session_ms * 2,
            "request_timeout_ms": request_ms,
            "metadata_max_age_ms": rng.choice((200, 2_000)),
            "fetch_max_wait_ms": rng.choice((50, 200)),
            "bootstrap_timeout_ms": rng.choice((500, 3_000)),
        },
        faults=ClientFaultPlan(
            {kind: rng.choice((1, 1, 2, 4)) for kind in kinds},
            rng.choice(((50_000, 300_000), (100_000, 600_000))),
            rng.choice((0.15, 0.5, 1.0)),
        ),
        pause_s=rng.choice(((0.0, 0.02), (0.01, 0.2))),
        most_records=rng.choice((1, 5, 100)),
        aborts=rng.choice((0.0, 0.1, 0.3)),
        closes=rng.choice((0.0, 0.05)),
        operator_s=rng.choice(((0.02, 0.2), (0.1, 1.0))),
        operator_aborts=rng.choice((0.0, 0.2, 0.7)),
    )


class _RolledBack(Exception):
    """Raised by a process in its block."""


class _Verdict(Enum):
    """The next step of a process after a transaction."""

    #: It is committed.
    DONE = auto()
    #: It is not, or that is not known yet. The consumer returns records again that are not processed.
    NEXT = auto()
    #: Another producer has the transactional id.
    FENCED = auto()


_Body = Callable[[AsyncTransaction, SentTransaction], Awaitable[None]]


@dataclass(slots=True)
class LoadContext:
    """Context that all processes of a load share."""

    habits: TransactionHabits
    network: SimClientNetwork
    scheduler: Scheduler
    values: CommittedValues
    sent: SentTransactions
    #: Numbers of all records.
    records: int = 0
    healed: bool = False
    #: Every order has its invoice.
    copied: bool = False
    happened: Counter[str] = field(default_factory=Counter)

    def host(self, name: str) -> ClientHost:
        """Returns a new process."""
        return self.network.host(name, 0)

    def new_value(self, prefix: str) -> str:
        """Returns a value that no other record has."""
        self.records += 1
        return f"{prefix}.{self.records}"


class _TransactionalProcess:
    """A process with a transactional producer, and those that replace it."""

    def __init__(self, name: str, transactional_id: str, around: LoadContext) -> None:
        self.ended = False
        self._name = name
        self._id = transactional_id
        self._around = around
        self._rng = around.scheduler.stream(f"sdk transactions/{name}")
        self._lives = 0
        self._current: tuple[AsyncTransaction, SentTransaction] | None = None
        #: A transaction whose commit had no answer; the next one shows whether it counts.
        self._unknown: SentTransaction | None = None
        self.host = self._begin()

    def _begin(self) -> ClientHost:
        self._lives += 1
        host = self._around.host(f"{self._name}/{self._lives}")
        host.run(self._work(host))
        return host

    def crash(self) -> None:
        """Sends SIGKILL."""
        self.host.kill()
        if self._current is not None:
            transaction, sent = self._current
            sent.outcome = _outcome_of_killed(transaction._state.phase)
        self._current = self._unknown = None

    def restart(self) -> None:
        """Starts a new process."""
        self.host = self._begin()

    @property
    def is_done(self) -> bool:
        """True once the process must end."""
        return self._around.healed

    async def _work(self, host: ClientHost) -> None:
        while not self.is_done:
            producer = AsyncProducer(
                runtime=host.runtime,
                bootstrap_servers=self._around.network.bootstrap_servers,
                transactional_id=self._id,
                **self._around.habits.producer,
            )
            self._unknown = None
            try:
                await self._use(host, producer)
            finally:
                if host.alive:
                    await producer.close()
            await asyncio.sleep(self._rng.uniform(0.0, 0.5))
        self.ended = True

    async def _use(self, host: ClientHost, producer: AsyncProducer) -> None:
        raise NotImplementedError

    async def _pause(self) -> None:
        await asyncio.sleep(self._rng.uniform(*self._around.habits.pause_s))

    def _closes(self) -> bool:
        return self._rng.random() < self._around.habits.closes

    async def _transact(
        self, producer: AsyncProducer, body: _Body, consumer: AsyncConsumer | None = None, work: int | None = None
    ) -> _Verdict:
        """Runs a transaction, and notes what its block reports."""
        sent: SentTransaction | None = None
        transaction = producer.transaction(consumer, work)
        try:
            async with transaction:
                self._settle(Outcome.COMMITTED)
                token = producer._core.control()._token
                assert token is not None, "a transaction that was entered has an identity"
                sent = self._around.sent.begin(token, self._around.scheduler.now, work)
                self._current = transaction, sent
                await body(transaction, sent)
                if self._rng.random() < self._around.habits.aborts:
                    raise _RolledBack
        except _RolledBack:
            return self._failed(sent, Outcome.ABORTED, _Verdict.NEXT)
        except TransactionAbortedError:
            if sent is None:  # It is about the transaction before, to whose beginning the consumer has returned.
                self._settle(Outcome.ABORTED)
            return self._failed(sent, Outcome.ABORTED, _Verdict.NEXT)
        except CommitUnknownError:
            self._unknown = sent or self._unknown
            return self._failed(sent, Outcome.UNKNOWN, _Verdict.NEXT)
        except IllegalStateError:
            raise  # The process uses its clients as it may.
        except QuorumlogError as error:
            is_doubtful = transaction._state.phase is Phase.COMMITTING
            if sent is not None and is_doubtful and error.definite:
                raise Violation(f"a commit of {self._id} may take effect, and fails with {error!r}") from error
            verdict = _Verdict.FENCED if isinstance(error, InvalidProducerEpochError) else _Verdict.NEXT
            return self._failed(sent, Outcome.UNKNOWN if is_doubtful else Outcome.ABORTED, verdict)
        assert sent is not None
        sent.outcome = Outcome.COMMITTED
        self._current = None
        self._around.happened["sdk committed"] += 1
        return _Verdict.DONE

    def _failed(self, sent: SentTransaction | None, outcome: Outcome, verdict: _Verdict) -> _Verdict:
        self._current = None
        if sent is not None:
            sent.outcome = outcome
        self._around.happened[f"sdk {'not entered' if sent is None else outcome.value}"] += 1
        return verdict

    def _settle(self, outcome: Outcome) -> None:
        """Notes what the next transaction reports about one whose commit had no answer."""
        if self._unknown is not None:
            self._unknown.outcome = outcome
            self._around.happened[f"sdk unknown, then {outcome.value}"] += 1
        self._unknown = None

    async def _send(self, transaction: AsyncTransaction, sent: SentTransaction, topic: str, value: str) -> None:
        sent.values[value] = self._around.scheduler.now
        await transaction.send(topic, value.encode(), key=f"k{self._rng.randrange(8)}".encode())


def _outcome_of_killed(phase: Phase) -> Outcome:
    """Returns the outcome of a transaction whose process was killed. Without a request to commit it is aborted."""
    known = {Phase.COMMITTED: Outcome.COMMITTED, Phase.COMMITTING: Outcome.UNKNOWN}
    return known.get(phase, Outcome.ABORTED)


class _Feeder(_TransactionalProcess):
    """Writes orders."""

    async def _use(self, host: ClientHost, producer: AsyncProducer) -> None:
        while not self.is_done:
            verdict = await self._transact(producer, self._feed)
            if verdict is _Verdict.FENCED or self._closes():
                return
            await self._pause()

    async def _feed(self, transaction: AsyncTransaction, sent: SentTransaction) -> None:
        for _ in range(self._rng.randint(1, 4)):
            await self._send(transaction, sent, ORDERS, self._around.new_value("order"))


class _Copier(_TransactionalProcess):
    """Writes an invoice for each order.

    Arguments:
        stays: it continues after the cluster is healed, until each order has its invoice.
    """

    def __init__(self, name: str, transactional_id: str, around: LoadContext, stays: bool) -> None:
        self._stays = stays
        self._taken: list[str] = []
        super().__init__(name, transactional_id, around)

    @property
    def is_done(self) -> bool:
        """True once the process must end."""
        return self._around.copied or (self._around.healed and not self._stays)

    async def _use(self, host: ClientHost, producer: AsyncProducer) -> None:
        if self._rng.random() < 0.5:
            # What a former process has left open may hold offsets.
            await self._transact(producer, self._nothing)
        consumer = AsyncConsumer(
            ORDERS,
            runtime=host.runtime,
            bootstrap_servers=self._around.network.bootstrap_servers,
            group_id=GROUP,
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            **self._around.habits.consumer,
        )
        try:
            await self._copy(producer, consumer)
        finally:
            if host.alive:
                await consumer.close()

    async def _nothing(self, transaction: AsyncTransaction, sent: SentTransaction) -> None:
        return None

    async def _copy(self, producer: AsyncProducer, consumer: AsyncConsumer) -> None:
        while not self.is_done:
            try:
                polled = await consumer.poll(_POLL_MS, max_records=self._around.habits.most_records)
            except QuorumlogError as error:
                if not error.retriable:
                    return
                await asyncio.sleep(0.05)
                continue
            records = [each for part in polled.values() for each in part]
            if not records:
                continue
            self._taken = [each.value.decode() for each in records if each.value is not None]
            verdict = await self._transact(producer, self._bill, consumer)
            if verdict is _Verdict.FENCED or self._closes():
                return
            await self._pause()

    async def _bill(self, transaction: AsyncTransaction, sent: SentTransaction) -> None:
        for order in self._taken:
            await self._send(transaction, sent, INVOICES, self._around.new_value(f"{order}/invoice"))


class _Runner(_TransactionalProcess):
    """Commits numbered work, one number after the other, which outlive its processes."""

    def __init__(self, name: str, transactional_id: str, around: LoadContext) -> None:
        self.work = 0
        super().__init__(name, transactional_id, around)

    async def _use(self, host: ClientHost, producer: AsyncProducer) -> None:
        async def run(transaction: AsyncTransaction, sent: SentTransaction) -> None:
            if not transaction.work_committed:
                await self._run(host, transaction, sent)

        while not self.is_done:
            verdict = await self._transact(producer, run, work=self.work)
            self.work += verdict is _Verdict.DONE
            if verdict is _Verdict.FENCED or self._closes():
                return
            await self._pause()

    async def _run(self, host: ClientHost, transaction: AsyncTransaction, sent: SentTransaction) -> None:
        await self._send(transaction, sent, RESULTS, self._around.new_value(f"work{self.work}"))
        for _ in range(self._rng.randint(0, 3)):
            values = [self._around.new_value(f"part{self.work}") for _ in range(self._rng.randint(1, 3))]
            # Until the writer is named, none of its records counts.
            sent.left_out.update(values)
            number = await self._write(host, transaction, values)
            if number is not None and self._rng.random() < 0.7:
                transaction.include([number])
                sent.left_out.difference_update(values)
                sent.values |= dict.fromkeys(values, self._around.scheduler.now)

    async def _write(self, host: ClientHost, transaction: AsyncTransaction, values: Sequence[str]) -> int | None:
        """Writes with a writer that joins; returns its producer id, or None if it fails."""
        options = {key: value for key, value in self._around.habits.producer.items() if key != "transaction_timeout_ms"}
        writer = AsyncProducer(
            runtime=host.runtime,
            bootstrap_servers=self._around.network.bootstrap_servers,
            joins=transaction.token,
            **options,
        )
        try:
            for value in values:
                await writer.send(RESULTS, value.encode())
            return await writer.finish()
        except QuorumlogError:
            return None
        finally:
            if host.alive:
                await writer.close()


class SdkTransactions:
    """The SDK's transactional clients of a seed, readers of each level, and an operator."""

    def __init__(
        self, habits: TransactionHabits, network: SimClientNetwork, cluster: SimCluster, scheduler: Scheduler
    ) -> None:
        self._cluster = cluster
        self.values = CommittedValues(cluster)
        self.sent = SentTransactions(self.values)
        around = self._around = LoadContext(habits, network, scheduler, self.values, self.sent)
        plan = TransactionPlan(partitions=habits.partitions)
        self._topics = [TransactionTopic(name, plan, cluster, scheduler) for name in TOPICS]
        self._feeder = _Feeder("feeder", "feeder", around)
        names = [(f"copier-{number}", f"copier-{number}") for number in range(habits.copiers)]
        self._copiers = [_Copier(name, each, around, stays=True) for name, each in names]
        twins = [_Copier(f"twin-{number}", "copier-0", around, stays=False) for number in range(habits.twins)]
        self._runners = [_Runner(f"runner-{number}", f"runner-{number}", around) for number in range(habits.runners)]
        self._brief: list[_TransactionalProcess] = [self._feeder, *twins, *self._runners]
        levels = (True, False)
        self._readers = [IsolationReader(TOPICS, each, network, scheduler, self.values) for each in levels]
        self._operator = TransactionOperator(
            (habits.operator_s, habits.operator_aborts), network, cluster, scheduler, around.happened
        )
        loads: list[ClientLoad] = [*self._brief, *self._copiers, *self._readers, self._operator]
        self._faults = ClientFaults(habits.faults, loads, network, cluster, scheduler)

    @property
    def happened(self) -> Counter[str]:
        """The number of events, by name."""
        return self._around.happened

    def heal(self) -> None:
        """Starts no further work; orders that are committed are still copied."""
        self._faults.end()
        self._around.healed = True
        self._operator.settle()

    def stop(self) -> None:
        """Does nothing: the load ends itself."""

    def missing(self) -> str:
        """Returns what is not finished yet; empty once all clients have ended, and what they did is complete."""
        if not all(each.ended for each in self._brief):
            return "transactional clients of the SDK run"
        left = {value for _, value in self.sent.committed_in(ORDERS)}
        left -= {value.partition("/")[0] for _, value in self.sent.committed_in(INVOICES)}
        if left and not self._around.copied:
            return f"orders have no invoice: {sorted(left)[:5]}"
        self._around.copied = True
        if not all(each.ended for each in self._copiers):
            return "copiers run"
        opened = self._cluster.invariants.transactions.open
        missing = f"transactions are open at their coordinators: {opened}" if opened else ""
        for topic in self._topics:
            missing = missing or topic.open_in_logs()
        if missing:
            return missing
        for reader in self._readers:
            if missing := reader.missing():
                return missing
        last: list[IsolationReader | TransactionOperator] = [*self._readers, self._operator]
        for each in last:
            each.stop()
        return next((f"{each.name} runs" for each in last if not each.ended), "")

    def judge(self) -> None:
        """Judges the outcome of all transactions.

        Raises:
            Violation: a rule is broken.
        """
        self.sent.judge()
        judge_markers(self._cluster, self._topics)
        self._operator.judge()
        orders = Counter(value for _, value in self.sent.committed_in(ORDERS))
        invoices = Counter(value.partition("/")[0] for _, value in self.sent.committed_in(INVOICES))
        if orders != invoices:
            raise Violation(
                f"orders without invoices: {sorted((orders - invoices).elements())}; invoices without orders, or more"
                f" than one: {sorted((invoices - orders).elements())}"
            )

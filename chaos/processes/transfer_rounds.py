"""Transactions through faults: workers make transfers between accounts while nodes and workers are killed, stopped and
paused, partitions move, and all nodes lose power at once; then no transfer is lost, none was made twice, and every
reader of committed records saw the same sum at each audit.

Requests are numbered. Workers consume them in a consumer group; each transaction debits one account, credits another
one in another partition, and commits the group's offsets. A run has one share of the requests for each round and one
more. A round injects its fault while its share is processed, waits until all of it is visible, ends the fault, and
audits.
"""

from __future__ import annotations

import itertools
import random
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from quorumlog.chaos.checkers.transfer_checkers import (
    Ledger,
    TransactionOutcome,
    Transfer,
    TransferHistory,
    check_attempts,
)
from quorumlog.chaos.processes.ledger_readers import CommittedReader, KafkaReader, LedgerFollower, SdkReader, audit
from quorumlog.chaos.processes.nemesis import ChaosError, Nemesis, wait_until
from quorumlog.chaos.processes.replica_logs import replicas_agree
from quorumlog.chaos.processes.report import Report
from quorumlog.chaos.processes.scenario_cluster import ScenarioCluster
from quorumlog.chaos.processes.scenario_run import (
    REPLICAS_AGREE,
    Say,
    announced,
    attempted,
    disks_of,
    fresh_cluster,
    heal,
    in_round,
    judged,
)
from quorumlog.chaos.processes.transfer_figures import TransferFigures, TransferRound
from quorumlog.chaos.processes.transfer_log import WorkerPlan
from quorumlog.chaos.processes.worker_processes import LIBRDKAFKA, WorkerProcess, WorkerProcesses
from quorumlog.sdk import Admin, NewTopic, Producer, TopicPartition

NAME = "transactions"
SUMMARY = "transfers in transactions, while nodes and workers are killed, stopped, paused, and all nodes lose power"
ROUNDS = 8
TRANSFERS = 8_000
NODES = 4
REPLICAS = 3
PARTITIONS = 8
ACCOUNTS = 24
WORKERS = 3
REQUESTS, ACCOUNTS_TOPIC, GROUP = "requests", "accounts", "tellers"
BATCH = 5
ABORT_SHARE = 0.02
SESSION_MS = 6_000
TRANSACTION_MS = 30_000
#: Part of a share that is visible before the fault.
STRIKE_AT = 0.2
STRETCH_TIMEOUT_S = 180.0
FULL_TIMEOUT_S = 90.0
#: How long the nodes are without power (s).
POWER_OFF_S = 0.5
#: Elements in the lists of an audit up to which it becomes part of the history.
HISTORY_ELEMENTS = 20_000
SENT_AT_ONCE = 2_000


class TransferRun:
    """One run against a cluster of its own.

    Arguments:
        folder: of the workers' logs.
    """

    def __init__(
        self, cluster: ScenarioCluster, admin: Admin, report: Report, count: int, workers: WorkerProcesses, folder: Path
    ) -> None:
        self._rng = random.Random(report.seed)
        self._cluster = cluster
        self._admin = admin
        self._workers = workers
        self._folder = folder
        self._transfers = [self._transfer() for _ in range(count)]
        self._requested = 0
        self._nemesis = Nemesis(cluster, admin, TopicPartition(ACCOUNTS_TOPIC, 0), self._rng)
        self._follower = LedgerFollower(self._sdk_reader(), self._ledger("follower"))
        self._audits: list[Ledger] = []
        self._moved: tuple[TopicPartition, tuple[int, ...]] | None = None
        self._paused: WorkerProcess | None = None
        self._restarted = 0
        self.history = TransferHistory(self._transfers)
        self.figures = TransferFigures("", count)

    def _transfer(self) -> Transfer:
        source = self._rng.randrange(ACCOUNTS)
        # In another partition.
        target = (source + self._rng.randrange(1, PARTITIONS)) % ACCOUNTS
        return Transfer(source, target, self._rng.randrange(1, 100))

    def _ledger(self, name: str) -> Ledger:
        return Ledger(name, self._transfers, PARTITIONS)

    def _sdk_reader(self) -> CommittedReader:
        return SdkReader(self._cluster.client_options, ACCOUNTS_TOPIC, PARTITIONS)

    # -- workers --------------------------------------------------------------------------------------------------

    def _start_worker(self, number: int) -> WorkerProcess:
        name = f"worker-{number}-{len(self._workers.all)}"
        plan = WorkerPlan(
            name=name,
            transactional_id=f"worker-{number}",
            options=dict(self._cluster.kafka_options),
            requests=REQUESTS,
            accounts=ACCOUNTS_TOPIC,
            partitions=PARTITIONS,
            group=GROUP,
            log=str(self._folder / f"{name}.jsonl"),
            batch=BATCH,
            abort_share=ABORT_SHARE,
            session_timeout_ms=SESSION_MS,
            transaction_timeout_ms=TRANSACTION_MS,
        )
        return self._workers.start(plan)

    def _replace(self, worker: WorkerProcess) -> None:
        self._start_worker(int(worker.plan.transactional_id.rpartition("-")[2]))

    # -- the run --------------------------------------------------------------------------------------------------

    def go(self, rounds: int, duration_s: float | None, say: Say) -> None:
        """Makes all transfers during the faults; or those that fit into the duration."""
        self._follower.start()
        self._workers.await_started([self._start_worker(number) for number in range(WORKERS)])
        began, count = time.monotonic(), len(self._transfers)
        blows = itertools.cycle(BLOWS)
        for number in range(rounds):
            if duration_s is not None and time.monotonic() - began > duration_s:
                break
            with in_round(number + 1):
                made = self._round(number + 1, count * (number + 1) // (rounds + 1), next(blows))
            self.figures.rounds.append(made)
            say(made.line())
        else:
            self._request_to(count)
        self._wait(self._all_visible, "all transfers are visible")
        took_s = time.monotonic() - began
        say(f"{self._requested} transfers in {took_s:.0f} s, {self._requested / took_s:.0f}/s, faults included")

    def _round(self, number: int, limit: int, blow: TransferBlow) -> TransferRound:
        visible, began = self._follower.ledger.whole, time.monotonic()
        share = limit - self._requested
        self._request_to(limit)
        self._wait(lambda: self._follower.ledger.whole >= visible + STRIKE_AT * share, "transfers become visible")
        restarted, struck = self._restarted, time.monotonic()
        what = blow.hurt(self)
        self._wait(self._all_visible, f"a share is made during the fault ({what})")
        moments = [struck, *(one for one in self._follower.progress_s if one > struck), time.monotonic()]
        gap_s = max(later - earlier for earlier, later in itertools.pairwise(moments))
        blow.mend(self)
        self._audit(number)
        wait_until(self._is_whole, FULL_TIMEOUT_S, "every node serves and all replicas are in sync again")
        self._workers.require_alive()
        took_s, visible = time.monotonic() - began, self._follower.ledger.whole
        return TransferRound(number, what, took_s, gap_s, visible, self._restarted - restarted)

    def _request_to(self, limit: int) -> None:
        """Requests transfers in a thread of its own, so that faults hit these batches too."""
        first, self._requested = self._requested, limit

        def send() -> None:
            with Producer(**self._cluster.client_options, delivery_timeout_ms=120_000) as producer:
                for start in range(first, limit, SENT_AT_ONCE):
                    numbers = range(start, min(start + SENT_AT_ONCE, limit))
                    for sent in [producer.send(REQUESTS, self._request(one), key=b"%d" % one) for one in numbers]:
                        sent.result(130)

        threading.Thread(target=send, name="requests", daemon=True).start()

    def _request(self, number: int) -> bytes:
        transfer = self._transfers[number]
        return b"%d,%d,%d,%d" % (number, *transfer)

    def _all_visible(self) -> bool:
        return self._follower.ledger.whole >= self._requested

    def _wait(self, condition: Callable[[], bool], what: str) -> None:
        def holds() -> bool:
            if self._follower.failure is not None:
                raise ChaosError(self._follower.failure)
            for worker in self._workers.fenced():
                self._restarted += 1
                self._replace(worker)
            self._workers.require_alive()
            return condition()

        try:
            wait_until(holds, STRETCH_TIMEOUT_S, what)
        except ChaosError as error:
            raise ChaosError(f"{error}; {self._follower.ledger.whole} of {self._requested} are visible") from None

    def _audit(self, number: int) -> None:
        """Reads everything with a fresh reader of either client."""
        ledger = self._ledger(f"audit {number}")
        self._audits.append(ledger)
        reader = (
            KafkaReader(self._cluster.kafka_options, ACCOUNTS_TOPIC, PARTITIONS) if number % 2 else self._sdk_reader()
        )
        reads = audit(reader, ledger)
        if ledger.read <= HISTORY_ELEMENTS:
            self.history.reads.append(reads)

    # -- faults of nodes ------------------------------------------------------------------------------------------

    def _leader(self) -> int:
        """Returns the leader of a random partition, and remembers it as the victim."""
        number = self._rng.randrange(PARTITIONS)
        self._nemesis = Nemesis(self._cluster, self._admin, TopicPartition(ACCOUNTS_TOPIC, number), self._rng)
        self._target, self._victim = number, self._nemesis.partition_leader()
        return self._victim

    def kill(self) -> str:
        """Sends SIGKILL to a leader."""
        self._cluster.kill(self._leader())
        return f"node {self._victim} killed"

    def stop(self) -> str:
        """Sends SIGTERM to a leader."""
        self._cluster.stop(self._leader())
        return f"node {self._victim} stopped"

    def start(self) -> None:
        """Restarts the node."""
        self._cluster.start(self._victim)
        self._cluster.wait_ready()

    def pause(self) -> str:
        """Sends SIGSTOP to a leader."""
        self._cluster.pause(self._leader())
        return f"node {self._victim} paused"

    def resume(self) -> None:
        """Sends SIGCONT."""
        self._cluster.resume(self._victim)

    def move(self) -> str:
        """Starts to move a partition from its leader to the node that has no replica of it."""
        victim = self._leader()
        now = next(one for one in self._nemesis.partitions() if one.partition == self._target)
        (other,) = set(self._cluster.node_ids) - set(now.replicas)
        replicas = tuple(other if node == victim else node for node in now.replicas)
        self._moved = TopicPartition(ACCOUNTS_TOPIC, self._target), replicas
        self._admin.reassign_partitions({self._moved[0]: replicas})
        return f"partition {self._target} moved from node {victim} to {other}"

    def await_move(self) -> None:
        """Waits until the partition has moved."""
        assert self._moved is not None
        where, replicas = self._moved

        def there() -> bool:
            now = next(one for one in self._nemesis.partitions() if one.partition == where.partition)
            return where not in self._admin.list_partition_reassignments() and set(now.replicas) == set(replicas)

        wait_until(there, FULL_TIMEOUT_S, f"{where.topic}-{where.partition} has moved to {replicas}")

    def cut_power(self) -> str:
        """Sends SIGKILL to all nodes, and starts them again with what is on their disks."""
        for node in self._cluster.node_ids:
            self._cluster.kill(node)
        time.sleep(POWER_OFF_S)
        for node in self._cluster.node_ids:
            self._cluster.start(node)
        self._cluster.wait_ready()
        return "all nodes without power"

    def nothing(self) -> None:
        """Ends a fault that has ended already."""

    # -- faults of workers ----------------------------------------------------------------------------------------

    def kill_worker(self) -> str:
        """Sends SIGKILL to a worker; another one continues under its transactional id."""
        worker = self._rng.choice(self._workers.running)
        self._workers.kill(worker)
        self._replace(worker)
        return f"{worker.plan.name} killed and replaced"

    def pause_worker(self) -> str:
        """Sends SIGSTOP to a worker; another one continues under its transactional id."""
        self._paused = self._rng.choice(self._workers.running)
        self._workers.pause(self._paused)
        self._paused.may_be_fenced = True
        self._replace(self._paused)
        return f"{self._paused.plan.name} paused and replaced"

    def resume_worker(self) -> None:
        """Sends SIGCONT to the worker that was replaced: whatever it still tries must have no effect."""
        assert self._paused is not None
        self._workers.resume(self._paused)

    # -- the verdict ----------------------------------------------------------------------------------------------

    def judge(self, report: Report) -> None:
        """Reads everything back, then kills the nodes and compares their disks."""
        attempted(report, self._workers.stop_all)
        together = attempted(
            report,
            lambda: wait_until(self._is_whole, FULL_TIMEOUT_S, "all replicas are in sync again"),
            REPLICAS_AGREE,
        )
        complete = not report.failures
        final = self._ledger("final")
        if attempted(report, lambda: self._read_back(final), "X2 and X4"):
            if complete:
                final.finish()
            for ledger in (*self._audits, self._follower.ledger):
                ledger.check_prefix_of(final)
            report.anomalies.extend(check_attempts(self.history.attempts, final))
        self._follower.stop()
        for ledger in (*self._audits, self._follower.ledger, final):
            report.anomalies.extend(ledger.anomalies)
        if self._follower.failure is not None:
            report.failures.append(self._follower.failure)
        if together:
            report.anomalies.extend(replicas_agree(disks_of(self._cluster)))
        self._count(report, final)

    def _read_back(self, final: Ledger) -> None:
        self.history.attempts = self._workers.attempts()
        self.history.reads.append(audit(self._sdk_reader(), final))
        wait_until(lambda: self._follower.ledger.read >= final.read, STRETCH_TIMEOUT_S, "the follower is at the end")

    def _count(self, report: Report, final: Ledger) -> None:
        self.figures.transfers = final.whole
        self.figures.audits = len(self._audits) + 1
        by_outcome = {
            outcome: [one for one in self.history.attempts if one.outcome is outcome] for outcome in TransactionOutcome
        }
        self.figures.committed = len(by_outcome[TransactionOutcome.COMMITTED])
        self.figures.aborted = len(by_outcome[TransactionOutcome.ABORTED])
        self.figures.unknown = len(by_outcome[TransactionOutcome.UNKNOWN])
        # Two records each.
        report.acknowledged = 2 * sum(len(one.transfers) for one in by_outcome[TransactionOutcome.COMMITTED])
        report.unknown = 2 * sum(len(one.transfers) for one in by_outcome[TransactionOutcome.UNKNOWN])
        report.failed = 2 * sum(len(one.transfers) for one in by_outcome[TransactionOutcome.ABORTED])
        report.read = final.read

    def _is_whole(self) -> bool:
        # A restarted node is fenced until the controller has received a heartbeat: until then it gets no replica.
        brokers = self._admin.describe_cluster(linearizable=True).brokers
        in_sync = all(set(one.isr) == set(one.replicas) for one in self._nemesis.partitions())
        return in_sync and not any(broker.fenced for broker in brokers)


@dataclass(slots=True, frozen=True)
class TransferBlow:
    """A fault and its end. ``hurt`` describes the fault."""

    hurt: Callable[[TransferRun], str]
    mend: Callable[[TransferRun], None]


BLOWS: Sequence[TransferBlow] = (
    TransferBlow(TransferRun.kill, TransferRun.start),
    TransferBlow(TransferRun.pause_worker, TransferRun.resume_worker),
    TransferBlow(TransferRun.cut_power, TransferRun.nothing),
    TransferBlow(TransferRun.move, TransferRun.await_move),
    TransferBlow(TransferRun.stop, TransferRun.start),
    TransferBlow(TransferRun.kill_worker, TransferRun.nothing),
    TransferBlow(TransferRun.pause, TransferRun.resume),
    TransferBlow(TransferRun.cut_power, TransferRun.nothing),
)


def run_transactions(
    seed: int | None,
    rounds: int | None,
    transfers: int | None,
    duration_s: float | None,
    report_dir: str | Path | None,
    say: Say,
    secure: bool = False,
    client: str = LIBRDKAFKA,
) -> Report:
    """Runs the scenario on a fresh cluster, and judges it; see `scenarios.run_scenario`.

    Arguments:
        client: librdkafka, or a command that starts a worker with another client; see `transfer_log`.

    Raises:
        ValueError: too few transfers to distinguish the rounds.
    """
    rounds = ROUNDS if rounds is None else rounds
    transfers = TRANSFERS if transfers is None else transfers
    if transfers < 100 * (rounds + 1):
        raise ValueError(f"{transfers} transfers are too few for {rounds} rounds: give at least {100 * (rounds + 1)}")
    report = announced(NAME, SUMMARY, seed, f"{rounds} rounds, {transfers} transfers, {client}", say)
    topic = NewTopic(ACCOUNTS_TOPIC, PARTITIONS, REPLICAS, {"min.insync.replicas": 2})
    with (
        judged(report, report_dir, say),
        fresh_cluster(NODES, topic, secure=secure, kafka=True) as (cluster, admin),
        tempfile.TemporaryDirectory(prefix="quorumlog-transfers-") as folder,
        WorkerProcesses(client) as workers,
    ):
        admin.create_topics([NewTopic(REQUESTS, PARTITIONS, REPLICAS, {"min.insync.replicas": 2})])
        run = TransferRun(cluster, admin, report, transfers, workers, Path(folder))
        run.figures.client = client
        report.transfers, report.transfer_history = run.figures, run.history
        if not attempted(report, lambda: run.go(rounds, duration_s, say)):
            heal(report, cluster)
        run.judge(report)
    return report

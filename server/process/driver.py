"""Drives a node: collects events, steps it, executes its effects.

All events that arrive in one iteration of the event loop become one step: the first of them schedules the round, the
others join it. While a transaction is being synced, the node collects what arrives for the next one. That is all of the
group commit; it needs no timer.
"""

from __future__ import annotations

import asyncio
import time
import traceback
from collections.abc import Mapping
from typing import Protocol

from quorumlog.server.metadata.image import MetadataImage
from quorumlog.server.observability.logging_setup import Log
from quorumlog.server.observability.metric_catalogue import Readings
from quorumlog.server.observability.metrics import Meters
from quorumlog.server.process.audit_log import AuditLog
from quorumlog.server.process.job_thread import JobThread
from quorumlog.server.step.dynamic_values import FollowsSettings
from quorumlog.server.step.events import (
    AuditLine,
    ClusterStanding,
    Effects,
    Event,
    JobDone,
    LogLine,
    LossAnswered,
    PeerIdentity,
    StorageDone,
    StorageFailed,
)
from quorumlog.server.transport.clients.client_requests import ClientRequests
from quorumlog.server.transport.credentials import PeerDialer
from quorumlog.server.transport.peers.disk_loss_report import report_loss
from quorumlog.server.transport.peers.peer_links import PeerLinks
from quorumlog.server.transport.supervision import Supervisor
from quorumlog.storage.interface import StorageEngineError
from quorumlog.storage.transaction import StorageTransaction
from quorumlog.v1 import admin_pb2

#: Storage transactions that take this long are logged.
SLOW_STORAGE_S = 1.0


class DrivenNode(Protocol):
    """The interface of a node to the driver; ``Node`` is the only implementation outside of tests."""

    @property
    def identity(self) -> PeerIdentity:
        """Its identity."""

    def standing(self, asker: int) -> ClusterStanding:
        """Returns its view of the cluster, for a node that looks for one."""

    @property
    def next_deadline(self) -> int:
        """Latest time of the next step, in microseconds."""

    def accepts_peer(self, identity: PeerIdentity) -> str | None:
        """Returns why that peer's streams are refused; None if they are accepted."""

    def step(self, now: int, wall_ms: int, events: list[Event]) -> Effects:
        """Processes events; returns the effects to execute."""

    def describe(self) -> admin_pb2.DescribeNodeResponse:
        """Returns its state, for operators."""

    def readings(self) -> Readings:
        """Returns its state, for metrics."""

    @property
    def image(self) -> MetadataImage | None:
        """The cluster metadata; None while it belongs to no cluster."""

    def sees_topic(self, principal: str, name: str) -> bool:
        """True if a principal may learn whether a topic of this name exists."""


class TransactionWriter(Protocol):
    """The storage thread."""

    def submit(self, transaction: StorageTransaction) -> None:
        """Queues a transaction; its completion is reported once it is durable."""


class Driver:
    """The loop around one node. Runs on one event loop; only ``storage_completed`` may be called from other threads.

    Arguments:
        controllers: as configured: node id -> host:port. A majority of these addresses determines the cluster.
        dialer: opens connections to peers; without TLS unless given.
        audit: records denied requests and changes; None: they are not recorded.

    Attributes:
        followers: are notified when settings are changed at run time.
    """

    def __init__(
        self,
        node: DrivenNode,
        controllers: Mapping[int, str],
        log: Log,
        meters: Meters,
        dialer: PeerDialer | None = None,
        audit: AuditLog | None = None,
    ) -> None:
        self._audit = audit
        self.followers: list[FollowsSettings] = [audit] if audit is not None else []
        self._node = node
        self._dialer = dialer or PeerDialer()
        self._node_at = {address: node_id for node_id, address in controllers.items()}
        own = node.identity.node_id
        self._others = frozenset(at for each, at in controllers.items() if each != own)
        self._log = log
        self._meters = meters
        self._loop = asyncio.get_running_loop()
        self._writer: TransactionWriter | None = None
        self._events: list[Event] = []
        self._round_scheduled = False
        self._timer: asyncio.TimerHandle | None = None
        self._timer_deadline = 0
        self._submitted_at = 0.0
        self._foreign: dict[str, str] = {}
        self._may_be_foreign = True
        self._halted = asyncio.Event()
        self.error: str | None = None
        self.supervisor = Supervisor(self._task_failed)
        self.requests = ClientRequests(self.emit)
        self.jobs = JobThread(self._job_done)
        self.links = PeerLinks(
            identity=lambda: node.identity,
            accepts=node.accepts_peer,
            emit=self.emit,
            supervisor=self.supervisor,
            log=log,
            meters=meters,
            on_cluster=self.heard_cluster,
            dialer=self._dialer,
            node_at=self._node_at.get,
        )

    def start(self, writer: TransactionWriter) -> None:
        """Steps the node for the first time. ``writer`` completes each transaction with ``storage_completed``."""
        self._writer = writer
        self._schedule()

    # -- incoming events -------------------------------------------------------------------------------------------

    def emit(self, event: Event) -> None:
        """Adds an event to the next round."""
        self._events.append(event)
        if not self._round_scheduled:
            self._schedule()

    def storage_completed(self, number: int, error: StorageEngineError | None) -> None:
        """Reports that a transaction is durable, or failed. Called on the storage thread."""
        elapsed = time.perf_counter() - self._submitted_at
        self._loop.call_soon_threadsafe(self._transaction_ended, number, error, elapsed)

    def _job_done(self, event: JobDone) -> None:
        self._loop.call_soon_threadsafe(self.emit, event)

    def heard_cluster(self, address: str, cluster_id: str) -> None:
        """Records the cluster id of the node that answered at an address (host:port) that we dialled.

        A node that starts on another cluster's data must report it and stop, rather than wait forever for nodes that
        refuse it.
        A single misconfigured neighbour must not stop a healthy node: so it takes a majority of the controllers, and
        only until this node has been ready in its cluster once.
        """
        own = self._node.identity.cluster_id
        if not self._may_be_foreign or address not in self._others or not own or not cluster_id:
            return
        if own == cluster_id:
            self._foreign.pop(address, None)
            return
        self._foreign[address] = cluster_id
        if len(self._foreign) > len(self._others) // 2:
            self.halt(
                f"the data directory belongs to cluster {own}, but the reachable controllers form cluster {cluster_id}:"
                " set --data-dir to the right directory, or to an empty one"
            )

    def become_settled(self) -> None:
        """Records that the node has been ready: from now on, nodes of other clusters are only refused."""
        self._may_be_foreign = False

    def fail(self, what: str, error: BaseException) -> None:
        """Stops the node because of an internal error: logs one line with the place, for debugging."""
        trace = " < ".join(
            f"{frame.name} ({frame.filename.rpartition('/')[2]}:{frame.lineno})"
            for frame in reversed(traceback.extract_tb(error.__traceback__)[-6:])
        )
        self.halt(f"{what} failed: {type(error).__name__}: {error}; in {trace}")

    def halt(self, error: str | None) -> None:
        """Stops the node: no further steps or effects."""
        if not self._halted.is_set():
            self.error = None if error is None else " ".join(error.split())
            self._halted.set()

    async def wait_halted(self) -> None:
        """Waits until the node has stopped, as requested or not; ``error`` then has the reason."""
        await self._halted.wait()

    # -- rounds ----------------------------------------------------------------------------------------------------

    def _schedule(self) -> None:
        self._round_scheduled = True
        self._loop.call_soon(self._round)

    def _round(self) -> None:
        self._round_scheduled = False
        if self._halted.is_set():
            return
        events, self._events = self._events, []
        self._meters.rounds += 1
        self._meters.events += len(events)
        taken = self.requests.times.step_begins()
        try:
            effects = self._node.step(time.monotonic_ns() // 1_000, time.time_ns() // 1_000_000, events)
            self.requests.times.step_ends(taken, effects.transaction is not None)
            self._carry_out(effects)
            self._arm_timer()
        except Exception as error:
            # A violated invariant, or storage that returned invalid data: continuing could only cause harm.
            self.fail("a step of the node", error)

    def _carry_out(self, effects: Effects) -> None:
        # Frames are sent before the transaction is even started (Raft thesis §10.2.1): followers write while we do. The
        # tasks that write them run in the next iteration of the loop, and the transaction is submitted behind them:
        # otherwise the storage thread would take the interpreter in between, and keep it until its first system call.
        for peer, frame in effects.frames:
            self.links.send(peer, frame)
        if effects.transaction is not None:
            if effects.frames and effects.halt is None:
                self._loop.call_soon(self._submit, effects.transaction)
            else:
                self._submit(effects.transaction)
        for job in effects.jobs:
            self.jobs.submit(job)
        for reply in effects.replies:
            self.requests.deliver(reply)
        for ended in effects.ended_streams:
            self.requests.end_stream(ended)
        for pause in effects.stream_pauses:
            self.requests.pause_stream(pause)
        for address in effects.identify:
            self.links.identify(address)
        for address, directory_id in effects.report_loss:
            self.supervisor.start(self._report_loss(address, directory_id), "report-loss")
        if effects.connect is not None:
            self.links.connect(effects.connect)
        if effects.settings is not None:
            for follower in self.followers:
                follower.follow_settings(effects.settings)
        for line in effects.logs:
            self._write_log(line)
        if self._audit is not None:
            for audited in effects.audit:
                self._audit.write(audited)
        if effects.halt is not None:
            self.halt(effects.halt.error)

    def tell_audit(self, line: AuditLine) -> None:
        """Writes a line of an adapter to the audit log, if there is one and it is on."""
        if self._audit is not None and self._audit.is_on:
            self._audit.write(line)

    def _submit(self, transaction: StorageTransaction) -> None:
        assert self._writer is not None
        self._meters.transactions += 1
        self._submitted_at = time.perf_counter()
        self._writer.submit(transaction)

    async def _report_loss(self, address: str, directory_id: str) -> None:
        refused = await report_loss(
            self._dialer, address, self._node_at.get(address), self._node.identity.node_id, directory_id
        )
        self.emit(LossAnswered(refused))

    def _arm_timer(self) -> None:
        """Schedules a step at the node's deadline.

        A timer that fires too early costs less than rescheduling it in every round, so a later deadline waits until
        then.
        """
        deadline = self._node.next_deadline
        if self._timer is not None:
            if self._timer_deadline <= deadline:
                return
            self._timer.cancel()
        delay_us = max(0, deadline - time.monotonic_ns() // 1_000)
        # The loop counts in milliseconds: rounded down, it would spin through the last one.
        self._timer = self._loop.call_later(-(-delay_us // 1_000) / 1_000, self._timer_fired)
        self._timer_deadline = deadline

    def _timer_fired(self) -> None:
        self._timer = None
        if not self._round_scheduled:
            if time.monotonic_ns() // 1_000 >= self._node.next_deadline:
                self._round()
            else:
                self._arm_timer()

    def _transaction_ended(self, number: int, error: StorageEngineError | None, elapsed_s: float) -> None:
        self._meters.fsync_seconds.observe(elapsed_s)
        self.requests.times.synced()
        if elapsed_s >= SLOW_STORAGE_S:
            self._log.warning("slow_storage", seconds=round(elapsed_s, 3))
        self.emit(StorageDone(number) if error is None else StorageFailed(number, error))

    def _write_log(self, line: LogLine) -> None:
        getattr(self._log.named(line.logger), line.level)(line.event, **line.fields)

    def _task_failed(self, name: str, error: BaseException) -> None:
        self.fail(f"the task {name}", error)

"""This node as a broker of the cluster: registration, heartbeats, and reports of its leaderships.

Everything is requested from the active controller and retried until it is answered. Nothing here delays produce: while
the metadata group has no leader, reports and in-sync sets are merely stale.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Protocol

from quorumlog.server.config.options import NodeOptions
from quorumlog.server.metadata.controller_client import ControllerClient
from quorumlog.server.metadata.image import CurrentImage
from quorumlog.server.metadata.records import FEATURE_LEVEL
from quorumlog.server.step.node_service import ServiceHooks
from quorumlog.server.step.request_context import Listener
from quorumlog.v1 import peer_pb2
from quorumlog.v1.errors_pb2 import ErrorCode

#: Delay before a request that failed is retried.
RETRY_US = 100_000

OnProducerId = Callable[[int | None], None]

_WIRE_NAMES = {listener: peer_pb2.Listener.Value(f"LISTENER_{listener.name}") for listener in Listener}


class LedPartitions(Protocol):
    """The broker's reports about the partitions that this node leads."""

    def unreported(self) -> list[peer_pb2.LeaderReport]:
        """Returns leaderships that the metadata do not contain yet."""

    def isr_changes(self, now: int) -> list[peer_pb2.IsrChange]:
        """Returns in-sync sets that differ from the metadata's."""

    def log_sizes(self) -> list[peer_pb2.LogSize]:
        """Returns the sizes of a few of the logs."""


class Broker:
    """The broker's side of the communication with the controller."""

    def __init__(
        self,
        options: NodeOptions,
        directory_id: str,
        boot_id: int,
        client: ControllerClient,
        led: LedPartitions,
        current: CurrentImage,
    ) -> None:
        self._options = options
        self._directory_id = directory_id
        self._boot_id = boot_id
        self._client = client
        self._led = led
        self._current = current
        self.epoch = -1
        self.fenced = True
        self.refusal = ""
        self.stopping = False
        #: Index of the newest loss of a disk that this node has stored durably.
        self.lost_index = 0
        self._heartbeat_due = 0
        self._report_due = 0
        self._isr_due = 0
        self._asking: set[str] = set()
        self._producer_ids: deque[range] = deque()
        self._id_waiters: deque[tuple[int, OnProducerId]] = deque()
        self._ids_due = 0
        self._deadline_moved: Callable[[], None] = lambda: None

    def register(self, hooks: ServiceHooks) -> None:
        hooks.on_time(self.on_time)
        self._deadline_moved = hooks.deadline(self)

    @property
    def registered(self) -> bool:
        """True if this process has a broker epoch."""
        return self.epoch >= 0

    def on_time(self, now: int, wall_ms: int) -> None:
        """Sends the requests to the controller that are due."""
        if now >= self._heartbeat_due:
            self._heartbeat_due = now + self._options.broker_heartbeat_interval_us
            if self.registered:
                self._heartbeat(now)
            elif not self.stopping:
                self._register(now)
        if self.registered and now >= self._report_due:
            self._report_due = now + self._options.broker_heartbeat_interval_us
            self._report(now)
        if self.registered and now >= self._isr_due:
            self._isr_due = now + self._options.isr_check_interval_us
            self._alter_isr(now)
        if self._id_waiters and now >= self._ids_due:
            self._ids_due = now + RETRY_US
            self._fetch_ids(now)
        if self._id_waiters:
            self._give_up_late(now)

    def not_ready(self) -> str:
        """Returns why this node does not serve yet, in one line; empty when it does."""
        if not self.registered:
            return self.refusal or "not registered with the controller yet"
        return "the controller has not unfenced this node yet" if self.fenced else ""

    @property
    def next_deadline(self) -> int:
        """Time at which ``on_time`` is due."""
        due = self._heartbeat_due
        if self.registered:
            due = min(due, self._report_due, self._isr_due)
        if self._id_waiters:
            due = min(due, self._ids_due, *(deadline for deadline, _ in self._id_waiters))
        return due

    def report_soon(self, now: int) -> None:
        """Makes the next report due now, after a leadership has started."""
        self._report_due = now
        self._deadline_moved()

    def controller_changed(self, now: int) -> None:
        """Makes heartbeat and report due now, because a new controller needs them soon."""
        self._heartbeat_due = self._report_due = now

    def stop(self, now: int) -> None:
        """Announces that this node stops, so that the controller fences it immediately."""
        self.stopping = True
        self._heartbeat_due = now
        self._deadline_moved()

    # -- registration and heartbeats --------------------------------------------------------------------------

    def _ask(
        self,
        now: int,
        what: str,
        request: peer_pb2.ControllerRequest,
        on_answer: Callable[[peer_pb2.ControllerResponse], None],
    ) -> None:
        """Sends a request unless the same one is in flight; after an error or a timeout it is due again soon."""
        if what in self._asking:
            return
        self._asking.add(what)

        def answered(response: peer_pb2.ControllerResponse | None) -> None:
            self._asking.discard(what)
            if response is None:
                return
            if response.error.code == ErrorCode.STALE_BROKER_EPOCH:
                self.epoch = -1
                self._heartbeat_due = 0
            elif response.error.code in (ErrorCode.NOT_CONTROLLER, ErrorCode.NONE):
                on_answer(response)
            else:
                self.refusal = response.error.message

        self._client.ask(now + self._options.controller_request_timeout_us, request, answered)

    def _register(self, now: int) -> None:
        options = self._options
        host, port = options.told_everybody
        body = peer_pb2.RegisterBroker(
            node_id=options.node_id,
            directory_id=self._directory_id,
            boot_id=self._boot_id,
            host=host,
            port=port,
            rack=options.rack,
            machine=options.machine,
            version=options.version,
            feature_level=FEATURE_LEVEL,
            witness_only=options.witness_only,
            endpoints=[
                peer_pb2.Endpoint(listener=_WIRE_NAMES[each.listener], host=each.host, port=each.port)
                for each in options.endpoints
            ],
        )
        self._heartbeat_due = now + RETRY_US

        def registered(response: peer_pb2.ControllerResponse) -> None:
            if response.HasField("broker_registered"):
                self.epoch = response.broker_registered.broker_epoch
                self.fenced = True
                self.refusal = ""
                self._heartbeat_due = 0

        self._ask(now, "register", peer_pb2.ControllerRequest(register_broker=body), registered)

    def _heartbeat(self, now: int) -> None:
        body = peer_pb2.BrokerHeartbeat(
            node_id=self._options.node_id,
            broker_epoch=self.epoch,
            applied_index=self._current.image.applied_index,
            stopping=self.stopping,
            log_sizes=self._led.log_sizes(),
            lost_index=self.lost_index,
        )
        if self.fenced:
            self._heartbeat_due = now + RETRY_US

        def heard(response: peer_pb2.ControllerResponse) -> None:
            if response.HasField("heartbeat"):
                self.fenced = response.heartbeat.fenced

        self._ask(now, "heartbeat", peer_pb2.ControllerRequest(heartbeat=body), heard)

    # -- partitions -------------------------------------------------------------------------------------------

    def _report(self, now: int) -> None:
        reports = self._led.unreported()
        if not reports:
            return
        body = peer_pb2.ReportLeaders(node_id=self._options.node_id, broker_epoch=self.epoch, reports=reports)
        self._report_due = now + RETRY_US
        self._ask(now, "report", peer_pb2.ControllerRequest(report_leaders=body), lambda response: None)

    def _alter_isr(self, now: int) -> None:
        changes = self._led.isr_changes(now)
        if changes:
            body = peer_pb2.AlterIsr(node_id=self._options.node_id, broker_epoch=self.epoch, changes=changes)
            self._ask(now, "isr", peer_pb2.ControllerRequest(alter_isr=body), lambda response: None)

    # -- producer ids -----------------------------------------------------------------------------------------

    def producer_id(self, now: int, deadline: int, on_id: OnProducerId) -> None:
        """Assigns a producer id: immediately from this broker's block, or when the controller has assigned another
        block.

        ``on_id`` is called with None if that takes longer than ``deadline`` (µs).
        """
        if self._producer_ids:
            on_id(self._take_id())
            return
        if len(self._id_waiters) >= self._options.limits.controller_requests:
            on_id(None)
            return
        self._id_waiters.append((deadline, on_id))
        self._fetch_ids(now)

    def _give_up_late(self, now: int) -> None:
        """Fails the waiters whose own deadline has passed, in whatever order they came."""
        late = [on_id for deadline, on_id in self._id_waiters if deadline <= now]
        self._id_waiters = deque(waiter for waiter in self._id_waiters if waiter[0] > now)
        for on_id in late:
            on_id(None)

    def _take_id(self) -> int:
        block = self._producer_ids[0]
        self._producer_ids.popleft()
        if len(block) > 1:
            self._producer_ids.appendleft(block[1:])
        return block[0]

    def _fetch_ids(self, now: int) -> None:
        if not self.registered:
            return
        body = peer_pb2.AllocateProducerIds(node_id=self._options.node_id, broker_epoch=self.epoch)

        def allocated(response: peer_pb2.ControllerResponse) -> None:
            if response.HasField("producer_id_block"):
                block = response.producer_id_block
                self._producer_ids.append(range(block.first_id, block.first_id + block.count))
                while self._id_waiters and self._producer_ids:
                    self._id_waiters.popleft()[1](self._take_id())

        self._ask(now, "producer-ids", peer_pb2.ControllerRequest(allocate_producer_ids=body), allocated)

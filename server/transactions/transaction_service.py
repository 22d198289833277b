"""Transaction service: routes requests of clients and of other nodes to the coordinators led by this node."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from functools import partial
from typing import Protocol, get_args

from quorumlog.raft.types import NO_NODE
from quorumlog.server.config.transaction_limits import TransactionLimits
from quorumlog.server.deciding.connection_fence import FencedConnections
from quorumlog.server.deciding.decision_queue import CoordinatorCall
from quorumlog.server.deciding.dependencies import CoordinatorDependencies
from quorumlog.server.deciding.finder import CoordinatorFinder, coordinator_of
from quorumlog.server.deciding.led_coordinators import LedCoordinators
from quorumlog.server.deciding.pending_answers import PendingAnswers
from quorumlog.server.deciding.transaction_participants import Participant
from quorumlog.server.observability.metric_catalogue import Readings
from quorumlog.server.step.deadlines import wait_us
from quorumlog.server.step.events import ClientRequest
from quorumlog.server.step.node_service import ServiceHooks, StepTime
from quorumlog.server.step.request_context import Listener
from quorumlog.server.step.wire_errors import error
from quorumlog.server.transactions.transaction_administration import TransactionAdministration
from quorumlog.server.transactions.transaction_calls import (
    REQUEST_ITEMS,
    ClientCall,
    EnlistAnswer,
    EnlistCall,
    ResolveCall,
    Respond,
    TransactionRequest,
    failed_transaction,
)
from quorumlog.server.transactions.transaction_draft import TransactionDraft
from quorumlog.server.transactions.transaction_leader import LeaderServices, TransactionLeader
from quorumlog.server.transactions.transaction_shard import TRANSACTION_COORDINATORS, TransactionShard
from quorumlog.v1 import errors_pb2, peer_pb2
from quorumlog.v1.errors_pb2 import ErrorCode
from quorumlog.wire.topic_names import GROUPS_TOPIC

#: Time for which a producer id is waited for (µs), and the number of ids that are kept at most.
PRODUCER_ID_US = 5_000_000
SPARE_IDS = 1_000


class ProducerIdAllocator(Protocol):
    """Assigns producer ids to this node."""

    def producer_id(self, now: int, deadline: int, on_id: Callable[[int | None], None], /) -> None:
        """Calls ``on_id`` with a new producer id, at once or later; with None if that takes too long."""


class TransactionService:
    """The transaction coordinators of a node, and the requests that they serve.

    Attributes:
        connections: those of clients that keep their epoch.
    """

    def __init__(
        self,
        now: int,
        services: CoordinatorDependencies[TransactionShard],
        ids: ProducerIdAllocator,
        limits: TransactionLimits,
    ) -> None:
        self._services = services
        self._answers = PendingAnswers(services.reply)
        self._led: LedCoordinators[TransactionShard, TransactionLeader] = LedCoordinators(
            now, TRANSACTION_COORDINATORS, services, self._begin
        )
        self.finder = CoordinatorFinder(
            TRANSACTION_COORDINATORS,
            services.metadata,
            services.leaders,
            services.controller,
            self._answers,
            services.refusals,
        )
        self._administration = TransactionAdministration(services.options.node_id, services, self._led, self._answers)
        self._ids = SpareProducerIds(ids, self._now)
        self._leader_services = LeaderServices(
            self._led.clock,
            services.metadata,
            limits,
            self._ids,
            MarkersRoute(services),
            services.options.limits.group_calls,
            self._confirm,
            self._wake,
        )
        self._deadline_moved: Callable[[], None] = lambda: None
        self.connections = FencedConnections(self._has_to_close)

    def _has_to_close(self) -> None:
        self._deadline_moved()

    def _begin(self, coordinator: TransactionShard) -> TransactionLeader:
        # The first producer would otherwise be asked to try again.
        self._ids.prepare()
        return TransactionLeader(coordinator, self._leader_services)

    def _now(self) -> int:
        return self._led.clock.now

    def _wake(self, raft_group: int) -> None:
        # A participant of this node answers in the step of its own Raft group.
        self._led.wake(raft_group)
        self._deadline_moved()

    def _confirm(self, leader: TransactionLeader, call: CoordinatorCall[TransactionDraft]) -> None:
        self._led.read(self._led.clock.now, leader, call)

    def begin_step(self, now: int, wall_ms: int) -> None:
        """Starts a step of the node: sets the clock."""
        self._led.clock.step(now, wall_ms)

    def register(self, hooks: ServiceHooks) -> None:
        for kind in get_args(TransactionRequest):
            hooks.serve(kind, self._call)
        self._administration.register(hooks)
        hooks.after_events(self.after_events)
        self._deadline_moved = hooks.deadline(self)
        hooks.client_gone(self.client_gone)
        hooks.raft_group_gone(self.raft_group_gone)
        hooks.calls(self._answers.pending)

    # -- clients ------------------------------------------------------------------------------------------------------

    def _call(self, time: StepTime, asked: ClientRequest, request: TransactionRequest) -> None:
        deadline = time.now + wait_us(request.timeout_ms)
        self._answers.expect(asked.request_id, deadline, partial(failed_transaction, request))
        items = len(request.participants) if hasattr(request, "participants") else 0
        keeper = self._led.keeper_of(request.transactional_id)
        if isinstance(keeper, errors_pb2.Error):
            self._answers.fail(asked.request_id, keeper)
        elif items > self._leader_services.limits.participants:
            most = self._leader_services.limits.participants
            many = error(ErrorCode.INVALID_REQUEST, f"{items} participants in one request: at most {most} are allowed")
            self._answers.fail(asked.request_id, many)
        else:
            # Kafka's old clients keep their epoch. Our own get the next one with each transaction.
            is_kafka = asked.client.listener is Listener.KAFKA
            connection = self.connections.of(asked) if is_kafka else None
            keeper.queue.submit(ClientCall(asked.request_id, request, self._answers, keeper, connection))

    def client_gone(self, request_id: int) -> None:
        """Forgets a request whose client is gone."""
        self._answers.forget(request_id)
        self.finder.client_gone(request_id)

    # -- other nodes --------------------------------------------------------------------------------------------------

    def enlist(self, now: int, request: peer_pb2.ControllerRequest, respond: Respond) -> None:
        """Serves a leader of partitions whose producers write in transactions."""
        if self._is_too_long(request, len(request.enlist.items), respond):
            return
        gathered = EnlistAnswer(request, respond)
        for item, result in zip(request.enlist.items, gathered.results, strict=True):
            keeper = self._led.keeper_of(item.transactional_id)
            if isinstance(keeper, errors_pb2.Error):
                result.error.CopyFrom(keeper)
                gathered.done()
            else:
                keeper.queue.submit(EnlistCall(item, result, gathered, keeper))
        self._deadline_moved()

    def resolve(self, now: int, request: peer_pb2.ControllerRequest, respond: Respond) -> None:
        """Serves a leader that asks what became of transactions."""
        if self._is_too_long(request, len(request.resolve_transactions.items), respond):
            return
        keeper = self._led.keeper_at(request.resolve_transactions.coordinator)
        if isinstance(keeper, errors_pb2.Error):
            respond(peer_pb2.ControllerResponse(request_id=request.request_id, error=keeper))
        else:
            self._led.read(now, keeper, ResolveCall(request, respond, keeper))
            self._deadline_moved()

    @staticmethod
    def _is_too_long(request: peer_pb2.ControllerRequest, items: int, respond: Respond) -> bool:
        if items > REQUEST_ITEMS:
            problem = error(ErrorCode.INVALID_REQUEST, f"{items} items in one request: at most {REQUEST_ITEMS} are")
            respond(peer_pb2.ControllerResponse(request_id=request.request_id, error=problem))
        return items > REQUEST_ITEMS

    # -- events of the node -------------------------------------------------------------------------------------------

    def after_round(self, coordinator: TransactionShard) -> None:
        """Continues after a step of a coordinator's Raft group, and takes a snapshot if one is due."""
        self._led.after_round(coordinator)
        self._deadline_moved()
        options = self._services.options.groups
        coordinator.take_due_checkpoint(self._services.snapshots, options.checkpoint_entries, options.checkpoint_bytes)

    def metadata_changed(self) -> None:
        """Notifies the finder and the coordinators of a new metadata image."""
        self.finder.on_applied()
        self._led.metadata_changed()

    def raft_group_gone(self, now: int, group: int) -> None:
        """Ends the leadership of a coordinator whose replica was removed from this node."""
        self._led.end(group)

    def after_events(self, now: int, wall_ms: int) -> None:
        """Answers expired requests and decides the calls of this step."""
        if self._answers.pending.deadlines:
            self._answers.on_time(now)
        self._led.on_time()
        if self._led.clock.stood_still:
            self._deadline_moved()

    @property
    def next_deadline(self) -> int | None:
        """Time at which the node must be stepped next."""
        return self._led.next_deadline

    def readings(self) -> Readings:
        """Returns figures for metrics, by name."""
        led = list(self._led)
        opened = [each.open.started_ms for leader in led for each in leader.table.records.values() if each.open]
        oldest_ms = max(0, self._led.clock.wall_ms - min(opened)) if opened else 0
        return {
            "transaction_coordinators_led": len(led),
            "transactional_ids": sum(len(each.table.records) for each in led),
            "open_transactions": len(opened),
            "oldest_open_transaction_seconds": oldest_ms / 1_000,
            "transaction_markers_due": sum(len(each.markers) for each in led),
        }


class SpareProducerIds:
    """Producer ids for the coordinators of this node, from its broker.

    Arguments:
        now: returns the time of the step.
    """

    def __init__(self, allocator: ProducerIdAllocator, now: Callable[[], int]) -> None:
        self._allocator = allocator
        self._now = now
        self._spare: deque[int] = deque()
        self._is_asking = False

    def take(self) -> int | None:
        """Returns a new producer id; None if none is available now. Another one is requested then."""
        self.prepare()
        taken = self._spare.popleft() if self._spare else None
        self.prepare()
        return taken

    def prepare(self) -> None:
        """Requests an id if none is left."""
        if not self._spare and not self._is_asking:
            self._is_asking = True
            self._allocator.producer_id(self._now(), self._now() + PRODUCER_ID_US, self._assigned)

    def _assigned(self, producer_id: int | None) -> None:
        self._is_asking = False
        if producer_id is not None:
            self._spare.append(producer_id)

    def give_back(self, producer_ids: Iterable[int]) -> None:
        """Takes back ids that were not used."""
        self._spare.extend(producer_ids)
        while len(self._spare) > SPARE_IDS:
            self._spare.pop()


class MarkersRoute:
    """The way to the leaders of participants, by this node's metadata."""

    def __init__(self, services: CoordinatorDependencies[TransactionShard]) -> None:
        self._services = services
        self.ask = services.controller.ask

    def leader_of(self, participant: Participant) -> int | None:
        """Returns the node that leads a participant; NO_NODE if none does at the moment; None if the participant was
        deleted. Every leader's metadata contain the topics that a participant was enlisted with."""
        image = self._services.metadata.image
        if participant.group_id:
            topic = image.topics.get(GROUPS_TOPIC)
            record = coordinator_of(topic, participant.group_id) if topic is not None else None
            return NO_NODE if record is None else self._services.leaders.known_leader(record)[0]
        topic = image.topics_by_id.get(participant.topic_id)
        if topic is None or participant.number >= len(topic.partitions):
            return None
        return self._services.leaders.known_leader(topic.partitions[participant.number])[0]

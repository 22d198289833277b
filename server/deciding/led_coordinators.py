"""The coordinators of one kind that this node leads: starts their terms, notifies them of events, and ends them."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator
from typing import Any, Generic, Protocol, TypeVar

from quorumlog.server.deciding.coordinator_kind import CoordinatorKind
from quorumlog.server.deciding.coordinator_replica import CoordinatorReplica, CoordinatorTerm
from quorumlog.server.deciding.decision_queue import CoordinatorCall, DecisionQueue
from quorumlog.server.deciding.dependencies import CoordinatorDependencies, ReplicaT
from quorumlog.server.deciding.finder import coordinator_of
from quorumlog.server.deciding.stall_aware_clock import AwakeClock
from quorumlog.server.metadata.records import PartitionRecord
from quorumlog.server.step.wire_errors import error
from quorumlog.v1 import errors_pb2
from quorumlog.v1.errors_pb2 import ErrorCode

#: Retry interval of a doubtful leader for the confirmation of its leadership, while its disk was stalled (µs).
DOUBT_US = 100_000


class CoordinatorLeader(CoordinatorTerm[Any], Protocol):
    """The leader of one coordinator, during one term."""

    @property
    def coordinator(self) -> CoordinatorReplica[Any, Any]:
        """The replica that leads."""

    @property
    def queue(self) -> DecisionQueue[Any]:
        """The calls of the term."""

    def do_what_is_due(self) -> bool:
        """Answers and decides what is due. Returns True if it proposed a command."""

    @property
    def next_deadline(self) -> int:
        """Time at which ``do_what_is_due`` is due, on the awake clock."""

    def end(self) -> None:
        """Ends the leadership: all waiting clients are sent to the next leader."""


LeaderT = TypeVar("LeaderT", bound=CoordinatorLeader)


class LedCoordinators(Generic[ReplicaT, LeaderT]):
    """The terms of this node's coordinators of one kind.

    Arguments:
        begin: returns the leader of a replica for its current term.

    Attributes:
        clock: clock shared by the leaders.
    """

    def __init__(
        self,
        now: int,
        kind: CoordinatorKind[Any, Any],
        services: CoordinatorDependencies[ReplicaT],
        begin: Callable[[ReplicaT], LeaderT],
    ) -> None:
        self.clock = AwakeClock(now, services.options.heartbeat_interval_us)
        self._kind = kind
        self._services = services
        self._begin = begin
        #: By Raft group.
        self._led: dict[int, LeaderT] = {}
        #: Led, but waiting until this node has applied the metadata that the previous leader had.
        self._behind: set[int] = set()
        #: Coordinators with new calls in this step, and the deadlines of all of them on the awake clock.
        self._asked: dict[int, None] = {}
        self._timers: list[tuple[int, int]] = []
        self._armed: dict[int, int] = {}

    def __iter__(self) -> Iterator[LeaderT]:
        return iter(self._led.values())

    # -- which coordinator ------------------------------------------------------------------------------------

    def keeper_of(self, key: str) -> LeaderT | errors_pb2.Error:
        """Returns the leader that keeps a key and marks it as due in this step; the error if no coordinator on this
        node can serve it."""
        refused = self._kind.check_key(key)
        if refused is not None:
            return refused
        topic = self._services.metadata.image.topics.get(self._kind.topic)
        return _no_coordinators() if topic is None else self._keeper(coordinator_of(topic, key))

    def keeper_at(self, number: int) -> LeaderT | errors_pb2.Error:
        """Returns the leader of a coordinator by its number and marks it as due in this step; the error if this node
        cannot serve it."""
        topic = self._services.metadata.image.topics.get(self._kind.topic)
        if topic is None or not 0 <= number < len(topic.partitions):
            return _no_coordinators()
        return self._keeper(topic.partitions[number])

    def _keeper(self, record: PartitionRecord) -> LeaderT | errors_pb2.Error:
        self._asked[record.group] = None
        leader = self._led.get(record.group)
        if leader is not None and leader.coordinator.leads:
            return leader
        replica = self._services.replicas.get(record.group)
        if replica is not None and replica.raft.is_leader:
            return replica.not_leader()
        node, epoch = self._services.leaders.known_leader(record)
        return error(
            ErrorCode.NOT_COORDINATOR,
            f"this node does not lead {record.name}, which keeps the {self._kind.noun}: ask FindCoordinators",
            leader=node,
            leader_epoch=epoch,
        )

    def read(self, now: int, leader: LeaderT, call: CoordinatorCall[Any]) -> None:
        """Has a leader answer a call that changes nothing, once a quorum has confirmed that it still leads."""
        coordinator = leader.coordinator
        confirming_round = self._services.rounds.begin(now, coordinator.group)
        if confirming_round is None:
            call.refuse(error(ErrorCode.SERVER_BUSY, f"the leader of {coordinator.name} is stalled: try again"))
        else:
            leader.queue.read(call, confirming_round)

    # -- roles ------------------------------------------------------------------------------------------------

    def after_round(self, coordinator: ReplicaT) -> None:
        """Follows the role of a coordinator after a step of its Raft group, and decides what can be decided by now."""
        self._follow_role(coordinator)
        leader = self._led.get(coordinator.group)
        if leader is not None:
            leader.queue.after_round()
            self._do_what_is_due(leader)

    def _follow_role(self, coordinator: ReplicaT) -> None:
        raft_group = coordinator.group
        if raft_group in self._led and not coordinator.leads:
            self.end(raft_group)
        if raft_group in self._led or not coordinator.raft.is_leader:
            self._behind.discard(raft_group)
        elif coordinator.may_lead(self._services.metadata.image.applied_index):
            self._behind.discard(raft_group)
            coordinator.leadership = self._led[raft_group] = self._begin(coordinator)
        else:
            self._behind.add(raft_group)

    def metadata_changed(self) -> None:
        """Starts leaders that waited for the new metadata image."""
        for raft_group in sorted(self._behind):
            self.after_round(self._services.replicas[raft_group])

    def wake(self, raft_group: int) -> None:
        """Marks a coordinator as due in this step, because something happened that its leader waited for."""
        self._asked[raft_group] = None

    def notify(self, event: Callable[[LeaderT], None]) -> None:
        """Notifies all leaders of an event, and has each decide what is due then."""
        for leader in list(self._led.values()):
            event(leader)
            self._do_what_is_due(leader)

    def end(self, raft_group: int) -> None:
        """Ends the term of a coordinator that this node no longer leads, or whose replica was removed."""
        self._behind.discard(raft_group)
        self._armed.pop(raft_group, None)
        leader = self._led.pop(raft_group, None)
        if leader is not None:
            leader.coordinator.leadership = None
            leader.end()

    # -- time -------------------------------------------------------------------------------------------------

    def on_time(self) -> None:
        """Runs timers that are due, and decides the calls of this step. Coordinators with neither cost nothing."""
        if self.clock.stood_still:
            for leader in self._led.values():
                leader.queue.is_doubtful = True
            self._asked.update(dict.fromkeys(self._led))
        while self._timers and self._timers[0][0] <= self.clock.awake_us:
            armed, raft_group = heapq.heappop(self._timers)
            if self._armed.get(raft_group) == armed:
                del self._armed[raft_group]
                self._asked[raft_group] = None
        due, self._asked = self._asked, {}
        for raft_group in due:
            if raft_group in self._led:
                self._do_what_is_due(self._led[raft_group])

    def _do_what_is_due(self, leader: LeaderT) -> None:
        """Lets a leader answer and decide, as soon as its leadership is confirmed."""
        coordinator, queue = leader.coordinator, leader.queue
        if not coordinator.leads:
            self.end(coordinator.group)
            return
        if queue.is_doubtful:
            confirming_round = self._services.rounds.begin(self.clock.now, coordinator.group)
            if confirming_round is None:
                self._arm(coordinator.group, self.clock.awake_us + DOUBT_US)
                return
            queue.confirm_by(confirming_round)
        if not queue.is_certain:
            return  # The Raft group is stepped when a quorum has confirmed it.
        if leader.do_what_is_due():
            self._services.host.touch(coordinator.group)
        self._arm(coordinator.group, leader.next_deadline)

    def _arm(self, raft_group: int, deadline: int) -> None:
        # Deadlines mostly move into the future: a timer that fires too early is armed again then.
        armed = self._armed.get(raft_group)
        if armed is None or deadline < armed:
            self._armed[raft_group] = deadline
            heapq.heappush(self._timers, (deadline, raft_group))

    @property
    def next_deadline(self) -> int | None:
        """Time at which ``on_time`` is due."""
        if self._asked:
            return self.clock.now  # A call or an answer of this node itself arrived after ``on_time``.
        while self._timers and self._armed.get(self._timers[0][1]) != self._timers[0][0]:
            heapq.heappop(self._timers)
        return self.clock.due(self._timers[0][0]) if self._timers else None


def _no_coordinators() -> errors_pb2.Error:
    none = "this node has no coordinators in its metadata: call FindCoordinators first, which creates them"
    return error(ErrorCode.COORDINATOR_NOT_AVAILABLE, none)

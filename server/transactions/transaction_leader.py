"""The leader of a transaction coordinator, during one term.

It decides the queued calls together (`DecisionQueue`), and with them timeouts, the ends of transactions and the removal
of unused transactional ids. It pushes each decision to its participants (`MarkersDue`).

No state here outlives the leadership: timeouts restart with the next leader, and every waiting client is sent to it.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from itertools import islice

from google.protobuf.message import Message as ProtoMessage

from quorumlog.server.config.transaction_limits import TransactionLimits
from quorumlog.server.deciding.connection_fence import ConnectionFence
from quorumlog.server.deciding.decision_queue import (
    DECISION_CALLS,
    AgendaDecisions,
    CoordinatorCall,
    DecisionQueue,
    WaitingCall,
)
from quorumlog.server.deciding.stall_aware_clock import AwakeClock
from quorumlog.server.deciding.transaction_participants import Participant
from quorumlog.server.metadata.image import CurrentImage
from quorumlog.server.step.deadlines import earlier
from quorumlog.server.transactions.commit_hold import CommitHold
from quorumlog.server.transactions.markers_due import MarkerRoute, MarkersDue
from quorumlog.server.transactions.transaction_decisions import expire_id, expire_transaction, record_ended
from quorumlog.server.transactions.transaction_draft import ProducerIdSource, TransactionDraft
from quorumlog.server.transactions.transaction_shard import TransactionShard
from quorumlog.server.transactions.transaction_table import TransactionTable
from quorumlog.v1 import errors_pb2
from quorumlog.v1.transaction_log_pb2 import TransactionCommand
from quorumlog.wire.kafka.control import LogPlace

#: Time after which the end of a transaction is recorded if no other decision takes it along (µs).
ENDED_US = 1_000_000
#: Interval between reviews of unused transactional ids (µs).
EXPIRY_US = 600_000_000
#: Pause before a timeout is tried again for which there was no producer id (µs).
RETRY_US = 100_000
#: Number of deadlines beyond twice the open transactions at which those of decided ones are removed.
SWEEP_ABOVE = 1_024
#: Time for which an answer waits for markers (µs).
MARKERS_US = 500_000


#: Answers a call once a quorum has confirmed that this node still leads the coordinator.
Confirm = Callable[["TransactionLeader", CoordinatorCall[TransactionDraft]], None]


@dataclass(slots=True, frozen=True)
class LeaderServices:
    """Dependencies that leaders of transaction coordinators share with their node.

    Arguments:
        clock: clock shared by the node's coordinators.
        ids: new producer ids.
        route: the way to the leaders of participants.
        max_calls: maximum number of calls that may wait for a decision.
        confirm: answers a call once a quorum has confirmed the leadership.
        wake: asks the leader of a Raft group what is due.
    """

    clock: AwakeClock
    metadata: CurrentImage
    limits: TransactionLimits
    ids: ProducerIdSource
    route: MarkerRoute
    max_calls: int
    confirm: Confirm
    wake: Callable[[int], None]


class TransactionLeader:
    """One term of one coordinator: the agenda of its `DecisionQueue`, and its state beside the log.

    Attributes:
        queue: decides the calls of clients, and what is due here.
        markers: pushes decisions to their participants.
        fence: the connections of producers that keep their epoch.
        hold: the commits that wait for a backup.
    """

    def __init__(self, coordinator: TransactionShard, services: LeaderServices) -> None:
        self.coordinator = coordinator
        clock = self._clock = services.clock
        self._services = services
        self.queue: DecisionQueue[TransactionDraft] = DecisionQueue(coordinator, clock, self, services.max_calls)
        self.markers = MarkersDue(clock, services.route, partial(services.wake, coordinator.group))
        self.fence = ConnectionFence(clock.now)
        self.hold = CommitHold(services.max_calls)
        self._timeouts = _Timeouts()
        self._unused: dict[str, None] = {}
        self._expiry_due = clock.awake_us + EXPIRY_US
        self._ended_due: int | None = None
        for name, record in coordinator.table.records.items():
            self._arm_timeout(name)
            for decision in record.decisions:
                self.markers.track(name, decision)

    @property
    def term(self) -> int:
        """The Raft term in which it leads."""
        return self.queue.term

    @property
    def table(self) -> TransactionTable:
        """The transactional ids as the log has made them."""
        return self.coordinator.table

    def _arm_timeout(self, name: str) -> None:
        record = self.table.records[name]
        if record.open is not None:
            self._timeouts.set(name, self._clock.awake_us + record.producer.timeout_ms * 1_000, record.open.place)

    # -- the state beside the log -------------------------------------------------------------------------------------

    @property
    def metadata_index(self) -> int:
        """The index of the metadata log that this node has applied."""
        return self._services.metadata.image.applied_index

    def has_partition(self, topic_id: bytes, number: int) -> bool:
        """True if the metadata contain a partition of a topic of clients."""
        topic = self._services.metadata.image.topics_by_id.get(topic_id)
        return topic is not None and not topic.is_internal and 0 <= number < len(topic.partitions)

    def is_answered(self, name: str, decided: LogPlace, producer_id: int, participant: Participant) -> bool:
        """True if a participant of a decision has answered to this leader."""
        return self.markers.is_answered(name, decided, producer_id, participant)

    # -- holds --------------------------------------------------------------------------------------------------------

    def hold_commits(self, hold_id: bytes, hold_us: int) -> None:
        """Holds commits back for a while, unless a hold prevents that."""
        self.hold.begin(hold_id, self._clock.now, hold_us, self.queue.in_flight)

    @property
    def is_settled(self) -> bool:
        """True during a hold if every participant has the outcome of all commits before it."""
        return self.hold.is_decided(self.coordinator.raft.applied_index) and not self.markers.has_commits

    def end_hold(self) -> None:
        """Ends the hold: the commits that have waited are decided next."""
        self.queue.submit_again(self.hold.end(self._clock.now))

    # -- decisions ----------------------------------------------------------------------------------------------------

    def do_what_is_due(self) -> bool:
        """Sends, reviews and decides what is due. Returns True if it proposed a command."""
        self.markers.do_what_is_due()
        if self.hold.deadline is not None and self._clock.now >= self.hold.deadline:
            self.end_hold()
        if self.markers.complete and self._ended_due is None:
            self._ended_due = self._clock.awake_us + ENDED_US
        if self._clock.awake_us >= self._expiry_due:
            self._expiry_due = self._clock.awake_us + EXPIRY_US
            self._unused.update(dict.fromkeys(name for name, each in self.table.records.items() if each.is_idle))
        return self.queue.decide()

    @property
    def decision_due(self) -> int | None:
        """Time at which something is due to be decided beside the queued calls, on the awake clock."""
        if self._unused:
            return self._clock.awake_us
        return earlier(self._timeouts.next_deadline, self._ended_due)

    def draft(self) -> TransactionDraft:
        """Returns a draft without changes over the transactional ids."""
        services = self._services
        return TransactionDraft(
            self.table,
            services.limits,
            services.ids,
            self,
            self._clock.wall_ms,
            self.coordinator.raft.applied_index,
        )

    def decide(self, draft: TransactionDraft, *, calls_left: bool) -> AgendaDecisions[TransactionDraft]:
        """Decides timeouts that are due, and the removal of unused ids. Records the ends of transactions whenever
        anything else is decided, and after a while otherwise."""
        now = self._clock.awake_us
        timeouts = self._timeouts.take_due(now, DECISION_CALLS)
        for name, place in timeouts:
            # The producer of a commit that waits has ended its transaction in time.
            if self.hold.waits(name) or not expire_transaction(draft, name, place):
                self._timeouts.set(name, now + RETRY_US, place)
        unused = list(islice(self._unused, DECISION_CALLS))
        for name in unused:
            expire_id(draft, name)
            del self._unused[name]
        ended_due, self._ended_due = self._ended_due, None
        for name, place in islice(self.markers.complete, DECISION_CALLS):
            record_ended(draft, name, place)
        return AgendaDecisions([], [], partial(self._put_back, draft, timeouts, unused, ended_due))

    def _put_back(
        self,
        draft: TransactionDraft,
        timeouts: Iterable[tuple[str, LogPlace]],
        unused: Iterable[str],
        ended_due: int | None,
    ) -> None:
        for name, place in timeouts:
            self._timeouts.set(name, self._clock.awake_us, place)
        self._unused.update(dict.fromkeys(unused))
        self._ended_due = ended_due
        draft.drop()

    def keep(self, waiter: WaitingCall) -> None:
        """Never called: the agenda has no waiters."""
        raise AssertionError(f"nothing waits for the next decision on {waiter.key}")

    # -- answers ------------------------------------------------------------------------------------------------------

    def settle(
        self, call: CoordinatorCall[TransactionDraft], draft: TransactionDraft, answer: ProtoMessage
    ) -> ProtoMessage | None:
        """Returns an answer that waits for the decision. One that changes nothing waits until a quorum has confirmed
        that this node leads: a former leader would otherwise refuse an identity as fenced that its successor has
        assigned, or confirm a participant of a transaction that is over."""
        if draft.changed(call.key):
            return answer
        self._services.confirm(self, _Confirmed(call, answer))
        return None

    def applied(self, index: int, term: int, command: TransactionCommand, changed: set[str]) -> None:
        """Handles an applied command: this leader's own."""
        for change in command.changes:
            name = change.transactional_id
            record = self.table.records.get(name)
            if record is None:
                continue
            if change.HasField("start"):
                self._arm_timeout(name)
            if change.HasField("decision") and record.newest is not None:
                self._timeouts.forget(name)
                self.markers.track(name, record.newest)
            for place in change.ended:
                self.markers.forget(name, LogPlace(place.term, place.index))
        if self.markers.complete:
            self._ended_due = self._clock.awake_us + ENDED_US
        self.queue.applied(index, term)

    def when_markers_are_committed(self, name: str, answer: Callable[[bool], None]) -> None:
        """Calls ``answer`` when all participants of the newest decision have answered, or after half a second."""
        record = self.table.records.get(name)
        newest = record.newest if record is not None else None
        if newest is None:
            answer(True)
        else:
            self.markers.when_answered(name, newest.place, self._clock.awake_us + MARKERS_US, answer)

    # -- events -------------------------------------------------------------------------------------------------------

    @property
    def next_deadline(self) -> int:
        """Time at which ``do_what_is_due`` is due, on the awake clock."""
        hold_due = None if self.hold.deadline is None else self._clock.at(self.hold.deadline)
        due = (self.queue.decision_due, self.markers.next_deadline, self._expiry_due, hold_due)
        return min(deadline for deadline in due if deadline is not None)

    def end(self) -> None:
        """Ends the leadership: all waiting clients are sent to the next leader."""
        self.markers.end()
        self.queue.end(self.hold.end(self._clock.now), ())


class _Timeouts:
    """Deadlines of open transactions on the awake clock."""

    def __init__(self) -> None:
        self._open: dict[str, tuple[int, LogPlace]] = {}
        #: It may contain deadlines of transactions that are decided.
        self._heap: list[tuple[int, str]] = []

    def set(self, name: str, deadline: int, place: LogPlace) -> None:
        """Sets the deadline of a transaction."""
        self._open[name] = (deadline, place)
        heapq.heappush(self._heap, (deadline, name))
        if len(self._heap) > 2 * len(self._open) + SWEEP_ABOVE:
            # A timeout of an hour would otherwise keep the deadlines of an hour's transactions.
            self._heap = [(each[0], of) for of, each in self._open.items()]
            heapq.heapify(self._heap)

    def forget(self, name: str) -> None:
        """Forgets a transaction that is decided."""
        self._open.pop(name, None)

    def take_due(self, now: int, most: int) -> list[tuple[str, LogPlace]]:
        """Removes and returns the transactions whose deadline has passed, with the place of each."""
        due: list[tuple[str, LogPlace]] = []
        while (deadline := self.next_deadline) is not None and deadline <= now and len(due) < most:
            name = heapq.heappop(self._heap)[1]
            due.append((name, self._open.pop(name)[1]))
        return due

    @property
    def next_deadline(self) -> int | None:
        """The earliest deadline."""
        while self._heap and self._open.get(self._heap[0][1], (None,))[0] != self._heap[0][0]:
            heapq.heappop(self._heap)
        return self._heap[0][0] if self._heap else None


@dataclass(slots=True, frozen=True)
class _Confirmed:
    """A call whose answer is known, and is sent once the leadership is confirmed."""

    call: CoordinatorCall[TransactionDraft]
    response: ProtoMessage

    @property
    def key(self) -> str:
        return self.call.key

    def decide(self, draft: TransactionDraft) -> ProtoMessage:
        return self.response

    def answer(self, response: ProtoMessage) -> None:
        self.call.answer(response)

    def refuse(self, problem: errors_pb2.Error) -> None:
        self.call.refuse(problem)

"""The calls of one term of one coordinator: decided together, one decision at a time, answered when that is applied.

Calls are queued while a decision is being replicated. They are decided in the order of their arrival, each based on the
state after those before it (a draft), and the final changes are one command for the log. So a thousand clients that
call together cost a few writes. A call that changed nothing, under an unchanged key, is answered immediately.

No state here outlives the leadership: every waiting client is sent to the next leader.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

from google.protobuf.message import Message as ProtoMessage

from quorumlog.server.deciding.coordinator_replica import CoordinatorReplica
from quorumlog.server.deciding.stall_aware_clock import AwakeClock
from quorumlog.server.step.wire_errors import error
from quorumlog.v1 import errors_pb2
from quorumlog.v1.errors_pb2 import ErrorCode

#: Bytes of changes at which a decision accepts no further calls.
DECISION_BYTES = 1 << 20
#: Maximum number of calls in one decision, and of items of each kind: the node does nothing else in the meantime.
DECISION_CALLS = 500
#: Retry interval of a decision that Raft did not accept (µs).
RETRY_US = 20_000


class CommandDraft(Protocol):
    """Draft of a coordinator's next command: a view of its state in which calls make changes, one after the other."""

    @property
    def size_bytes(self) -> int:
        """Approximate size of the command so far, in bytes."""

    def changed(self, key: str) -> bool:
        """True if the draft changes what has this key."""

    def command(self) -> ProtoMessage | None:
        """Returns the changes as a command for the log; None if nothing changed."""


DraftT = TypeVar("DraftT", bound=CommandDraft)
DraftT_contra = TypeVar("DraftT_contra", bound=CommandDraft, contravariant=True)


class WaitingCall(Protocol):
    """A call of a client that waits for its answer."""

    @property
    def key(self) -> str:
        """The key that the call is about; empty if it is about all keys of a coordinator."""

    def answer(self, response: ProtoMessage, /) -> None:
        """Receives the answer once it is applied."""

    def refuse(self, problem: errors_pb2.Error, /) -> None:
        """Receives the error if the call is not decided."""


class CoordinatorCall(WaitingCall, Protocol[DraftT_contra]):
    """A call that a coordinator decides, or that reads its state."""

    def decide(self, draft: DraftT_contra, /) -> ProtoMessage | None:
        """Decides on a draft and returns the answer; None if the call was queued elsewhere and is answered from
        there."""


@dataclass(slots=True, frozen=True)
class AgendaDecisions(Generic[DraftT]):
    """Decisions of an agenda on one draft.

    Arguments:
        calls: calls that had left the queue undecided, with their answers. If the log does not accept the draft, they
            return to the queue.
        others: other waiters, with their answers; None if the agenda keeps the waiter instead of answering it.
        put_back: restores the agenda, except for ``calls``, if the log does not accept the draft. It submits the calls
            again that the agenda took while the draft was decided.
    """

    calls: list[tuple[CoordinatorCall[DraftT], ProtoMessage]]
    others: list[tuple[WaitingCall, ProtoMessage | None]]
    put_back: Callable[[], None]


class Agenda(Protocol[DraftT]):
    """The matters that one kind of coordinator decides beside the queued calls: timeouts, checks, queues of its own."""

    @property
    def decision_due(self) -> int | None:
        """Time at which it has something to decide, on the awake clock; None: nothing until an event happens."""

    def draft(self) -> DraftT:
        """Returns a draft without changes over the state that the log has made."""

    def decide(self, draft: DraftT, *, calls_left: bool) -> AgendaDecisions[DraftT]:
        """Decides what is due, after the calls.

        Arguments:
            calls_left: calls are left in the queue for the next decision.
        """

    def keep(self, waiter: WaitingCall) -> None:
        """Takes a waiter that was decided without an answer, now that the decision is applied."""


@dataclass(slots=True, frozen=True)
class _Decision:
    """A command in flight, and the calls that wait for it. The agenda keeps waiters with the answer None."""

    index: int
    waiting: list[tuple[WaitingCall, ProtoMessage | None]]


@dataclass(slots=True, frozen=True)
class _Read(Generic[DraftT]):
    """A call that only reads, and waits until the commit index at its arrival is confirmed and applied."""

    confirming_round: int
    index: int
    call: CoordinatorCall[DraftT]


class DecisionQueue(Generic[DraftT]):
    """The calls of one term of one coordinator.

    Arguments:
        coordinator: the replica that leads.
        clock: clock shared by the node's coordinators.
        agenda: what is decided beside the calls.
        max_calls: maximum number of calls that may wait for a decision.

    Attributes:
        term: the Raft term.
        is_doubtful: the node was stalled, and has not yet asked for a confirmation of its leadership.
    """

    def __init__(
        self, coordinator: CoordinatorReplica[Any, Any], clock: AwakeClock, agenda: Agenda[DraftT], max_calls: int
    ) -> None:
        self.term = coordinator.raft.term
        self.is_doubtful = False
        self._coordinator = coordinator
        self._clock = clock
        self._agenda = agenda
        self._max_calls = max_calls
        self._calls: deque[CoordinatorCall[DraftT]] = deque()
        self._reads: list[_Read[DraftT]] = []
        self._decision: _Decision | None = None
        self._retry_at = 0
        self._unconfirmed = 0

    # -- incoming calls ---------------------------------------------------------------------------------------

    def submit(self, call: CoordinatorCall[DraftT]) -> None:
        """Queues a call that may change something; call ``decide`` afterwards."""
        if len(self._calls) >= self._max_calls:
            noun = self._coordinator.kind.noun
            call.refuse(error(ErrorCode.SERVER_BUSY, f"{len(self._calls)} calls of {noun}s wait here; try again later"))
        else:
            self._calls.append(call)

    def submit_again(self, calls: Iterable[CoordinatorCall[DraftT]]) -> None:
        """Queues calls that were accepted before, and that must be decided again."""
        self._calls.extend(calls)

    def read(self, call: CoordinatorCall[DraftT], confirming_round: int) -> None:
        """Queues a call that changes nothing.

        Arguments:
            confirming_round: the round of Raft heartbeats that confirms that this node still leads.
        """
        self._reads.append(_Read(confirming_round, self._coordinator.raft.commit_index, call))

    @property
    def in_flight(self) -> int:
        """Index of the decision that is being replicated; 0 if none is."""
        return 0 if self._decision is None else self._decision.index

    # -- certainty --------------------------------------------------------------------------------------------

    def confirm_by(self, confirming_round: int) -> None:
        """Suspends answers after a stall of the node until a quorum has confirmed that no other node leads.

        Otherwise a client that only this leader reaches would rely on the answer after the next leader has decided
        otherwise: a member of a consumer group would count a new session from it, after its partitions were given away.

        Arguments:
            confirming_round: the round of Raft heartbeats that confirms it.
        """
        self.is_doubtful = False
        self._unconfirmed = confirming_round

    @property
    def is_certain(self) -> bool:
        """True if this node's leadership is confirmed since it was last in doubt."""
        return self._coordinator.raft.confirmed_round >= self._unconfirmed

    # -- decisions --------------------------------------------------------------------------------------------

    @property
    def decision_due(self) -> int | None:
        """Time at which ``decide`` is due, on the awake clock."""
        if self._decision is not None or not self.is_certain:
            return None
        due = self._clock.awake_us if self._calls else self._agenda.decision_due
        return None if due is None else max(due, self._retry_at)

    def decide(self) -> bool:
        """Decides the queued calls, unless a decision is in flight. Returns True if it proposed a command."""
        due = self.decision_due
        if due is None or due > self._clock.awake_us:
            return False
        # All of them change one draft, and later calls see what earlier ones have changed. The log gets one command.
        draft = self._agenda.draft()
        calls = self._decide_calls(draft)
        others = self._agenda.decide(draft, calls_left=bool(self._calls))
        calls.extend(others.calls)
        decided: list[tuple[WaitingCall, ProtoMessage | None]] = [*calls, *others.others]
        command = draft.command()
        index = None
        if command is not None:
            index = self._coordinator.propose(self._clock.now, command)
            if index is None:
                # Raft accepts nothing now (a leadership transfer, a full log): the queues are as they were before, in
                # the same order. The draft is dropped, so nothing that was decided has happened.
                self._calls.extendleft(call for call, _ in reversed(calls))
                others.put_back()
                self._retry_at = self._clock.awake_us + RETRY_US
                return False
            # Answers about changed keys wait until the command is applied: another leader may take over before it is
            # committed, and its state would contradict the answer.
            self._decision = _Decision(index, [each for each in decided if draft.changed(each[0].key)])
        for waiter, answer in decided:
            if index is None or not draft.changed(waiter.key):
                self._answer(waiter, answer)
        return index is not None

    def _decide_calls(self, draft: DraftT) -> list[tuple[CoordinatorCall[DraftT], ProtoMessage]]:
        decided: list[tuple[CoordinatorCall[DraftT], ProtoMessage]] = []
        while self._calls and len(decided) < DECISION_CALLS and draft.size_bytes < DECISION_BYTES:
            call = self._calls.popleft()
            answer = call.decide(draft)
            if answer is not None:
                decided.append((call, answer))
        return decided

    # -- answers ----------------------------------------------------------------------------------------------

    def applied(self, index: int, term: int) -> None:
        """Answers the calls of an applied decision: none if the entry is not this leader's own."""
        decision = self._decision
        if decision is not None and (index, term) == (decision.index, self.term):
            self._decision = None
            for waiter, answer in decision.waiting:
                self._answer(waiter, answer)

    def _answer(self, waiter: WaitingCall, answer: ProtoMessage | None) -> None:
        if answer is not None:
            waiter.answer(answer)
        else:
            self._agenda.keep(waiter)

    def after_round(self) -> None:
        """Answers reads that a step of the coordinator's Raft group has confirmed."""
        if not self._reads:
            return
        raft = self._coordinator.raft
        still = []
        for each in self._reads:
            if each.confirming_round <= raft.confirmed_round and each.index <= raft.applied_index:
                answer = each.call.decide(self._agenda.draft())
                assert answer is not None, "a read does not wait for other calls"
                each.call.answer(answer)
            else:
                still.append(each)
        self._reads = still

    def end(self, queued: Iterable[WaitingCall], waiting: Iterable[WaitingCall]) -> errors_pb2.Error:
        """Ends the leadership: all waiting clients are sent to the next leader. Whether a call may have taken effect is
        unknown for the decision in flight, and for no other.

        Arguments:
            queued: waiters of the agenda that wait for a decision.
            waiting: its waiters that wait for other calls.

        Returns:
            The error for all further waiters that were not decided.
        """
        definite = self._coordinator.not_coordinator(definite=True)
        for waiter in (*self._calls, *queued, *(each.call for each in self._reads), *waiting):
            waiter.refuse(definite)
        self._calls.clear()
        self._reads.clear()
        decision, self._decision = self._decision, None
        if decision is not None:
            indefinite = self._coordinator.not_coordinator(definite=False)
            for waiter, _ in decision.waiting:
                waiter.refuse(indefinite)
        return definite

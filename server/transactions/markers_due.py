"""The markers that a coordinator's leader pushes: each participant of a decided transaction receives the decision
until it has answered.

The answers are known to this leader only. The next one pushes the decisions again whose end is not in the log.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import count
from typing import NamedTuple, Protocol

from quorumlog.server.deciding.stall_aware_clock import AwakeClock
from quorumlog.server.deciding.transaction_participants import Participant
from quorumlog.server.step.deadlines import earlier
from quorumlog.server.transactions.transaction_decisions import end_item
from quorumlog.server.transactions.transaction_record import Decision
from quorumlog.v1 import peer_pb2
from quorumlog.wire.kafka.control import LogPlace

#: Maximum number of decisions in one message, and of messages to one node that are not answered.
MESSAGE_ITEMS = 1_000
MESSAGES_IN_FLIGHT = 2
#: Time after which a message without an answer is repeated (µs).
MESSAGE_WAIT_US = 5_000_000
#: Pause before a decision is sent again that a participant could not take: the first one, and the longest (µs).
FIRST_PAUSE_US = 50_000
LONGEST_PAUSE_US = 2_000_000

#: Receives True once all participants have answered; False if that takes too long, or the leadership ends.
OnMarkers = Callable[[bool], None]


class MarkerRoute(Protocol):
    """The way to the leaders of participants."""

    def leader_of(self, participant: Participant) -> int | None:
        """Returns the node that leads a participant; NO_NODE if none does at the moment; None if the participant was
        deleted."""

    def ask(
        self,
        deadline: int,
        request: peer_pb2.ControllerRequest,
        on_answer: Callable[[peer_pb2.ControllerResponse | None], None],
        to: int,
    ) -> None:
        """Sends a request to a node. ``on_answer`` is called once, with None if there is no answer by ``deadline``."""


class DecisionId(NamedTuple):
    """A decision: its transactional id, and where it was made."""

    name: str
    place: LogPlace


@dataclass(slots=True, eq=False)
class _Marker:
    """A decision for one participant."""

    of: DecisionId
    decision: Decision
    producer_id: int
    participant: Participant
    pause_us: int = FIRST_PAUSE_US


@dataclass(slots=True, eq=False)
class _Tracked:
    """A decision whose participants have not all answered, or whose end is not in the log yet."""

    commit: bool
    missing: set[tuple[int, Participant]]
    waiting: list[OnMarkers]


class MarkersDue:
    """The markers of one term of one coordinator.

    Arguments:
        clock: clock shared by the node's coordinators.
        answered: called when an answer has arrived, so that the leader is asked what is due.

    Attributes:
        complete: decisions of which every participant has answered; the log does not contain that yet.
    """

    def __init__(self, clock: AwakeClock, route: MarkerRoute, answered: Callable[[], None]) -> None:
        self.complete: dict[DecisionId, None] = {}
        self._clock = clock
        self._route = route
        self._answered = answered
        self._tracked: dict[DecisionId, _Tracked] = {}
        #: Markers by the time at which they are due, in the order in which they became due.
        self._due: list[tuple[int, int, _Marker]] = []
        self._numbers = count()
        self._ready: dict[int, list[_Marker]] = {}
        self._in_flight: dict[int, int] = {}
        self._waits: list[tuple[int, int, DecisionId, OnMarkers]] = []
        self._is_over = False

    def __len__(self) -> int:
        return sum(len(tracked.missing) for tracked in self._tracked.values())

    # -- what is due --------------------------------------------------------------------------------------------------

    def track(self, name: str, decision: Decision) -> None:
        """Starts to push a decision to its participants."""
        of = DecisionId(name, decision.place)
        if decision.ended or of in self._tracked:
            return
        missing: set[tuple[int, Participant]] = set()
        for producer_id, _, participant in decision.participants():
            missing.add((producer_id, participant))
            self._push_at(self._clock.awake_us, _Marker(of, decision, producer_id, participant))
        self._tracked[of] = _Tracked(decision.commit, missing, [])

    def forget(self, name: str, place: LogPlace) -> None:
        """Forgets a decision whose end is in the log."""
        self._tracked.pop(DecisionId(name, place), None)
        self.complete.pop(DecisionId(name, place), None)

    def is_answered(self, name: str, place: LogPlace, producer_id: int, participant: Participant) -> bool:
        """True if a participant of a decision has answered to this leader."""
        tracked = self._tracked.get(DecisionId(name, place))
        return tracked is None or (producer_id, participant) not in tracked.missing

    def is_complete(self, name: str, place: LogPlace) -> bool:
        """True if all participants of a decision have answered to this leader."""
        tracked = self._tracked.get(DecisionId(name, place))
        return tracked is None or not tracked.missing

    @property
    def has_commits(self) -> bool:
        """True if a participant of a commit has not answered to this leader."""
        return any(tracked.commit and tracked.missing for tracked in self._tracked.values())

    def when_answered(self, name: str, place: LogPlace, deadline: int, on_markers: OnMarkers) -> None:
        """Calls ``on_markers`` when all participants of a decision have answered, or at a time on the awake clock."""
        of = DecisionId(name, place)
        tracked = self._tracked.get(of)
        if tracked is None or not tracked.missing:
            on_markers(True)
            return
        tracked.waiting.append(on_markers)
        heapq.heappush(self._waits, (deadline, next(self._numbers), of, on_markers))

    def _push_at(self, due: int, marker: _Marker) -> None:
        heapq.heappush(self._due, (due, next(self._numbers), marker))

    # -- messages -----------------------------------------------------------------------------------------------------

    def do_what_is_due(self) -> None:
        """Sends the messages that are due, and answers clients that have waited long enough for markers."""
        now = self._clock.awake_us
        while self._waits and self._waits[0][0] <= now:
            _, _, of, on_markers = heapq.heappop(self._waits)
            tracked = self._tracked.get(of)
            if tracked is not None and on_markers in tracked.waiting:
                tracked.waiting.remove(on_markers)
                on_markers(False)
        while self._due and self._due[0][0] <= now:
            marker = heapq.heappop(self._due)[2]
            if not self.is_answered(*marker.of, marker.producer_id, marker.participant):
                self._route_marker(now, marker)
        for node in list(self._ready):
            self._send(node)

    def _route_marker(self, now: int, marker: _Marker) -> None:
        node = self._route.leader_of(marker.participant)
        if node is None:
            self._take_answer(marker)
        elif node < 0:
            self._again(now, marker)
        else:
            self._ready.setdefault(node, []).append(marker)

    def _again(self, now: int, marker: _Marker) -> None:
        self._push_at(now + marker.pause_us, marker)
        marker.pause_us = min(2 * marker.pause_us, LONGEST_PAUSE_US)

    def _send(self, node: int) -> None:
        while self._ready.get(node) and self._in_flight.get(node, 0) < MESSAGES_IN_FLIGHT:
            waiting = self._ready[node]
            batch, self._ready[node] = waiting[:MESSAGE_ITEMS], waiting[MESSAGE_ITEMS:]
            self._in_flight[node] = self._in_flight.get(node, 0) + 1
            request = peer_pb2.ControllerRequest()
            request.end_transactions.timeout_ms = MESSAGE_WAIT_US // 1_000
            request.end_transactions.items.extend(
                end_item(marker.decision, marker.producer_id, marker.participant) for marker in batch
            )
            deadline = self._clock.now + MESSAGE_WAIT_US
            self._route.ask(deadline, request, _OnAnswer(self, node, batch), node)
        if not self._ready.get(node):
            self._ready.pop(node, None)

    def take_answers(self, node: int, batch: list[_Marker], response: peer_pb2.ControllerResponse | None) -> None:
        """Handles the answer to a message; None if it has no answer."""
        if self._is_over:
            return
        self._in_flight[node] -= 1
        if not self._in_flight[node]:
            del self._in_flight[node]
        results = response.end_transactions.results if response is not None else ()
        for position, marker in enumerate(batch):
            if position < len(results) and not results[position].HasField("error"):
                self._take_answer(marker)
            else:
                self._again(self._clock.awake_us, marker)
        self._answered()

    def _take_answer(self, marker: _Marker) -> None:
        tracked = self._tracked.get(marker.of)
        if tracked is None:
            return
        tracked.missing.discard((marker.producer_id, marker.participant))
        if not tracked.missing:
            self.complete[marker.of] = None
            waiting, tracked.waiting = tracked.waiting, []
            for on_markers in waiting:
                on_markers(True)

    # -- time ---------------------------------------------------------------------------------------------------------

    @property
    def next_deadline(self) -> int | None:
        """Time at which ``do_what_is_due`` is due, on the awake clock."""
        due = self._due[0][0] if self._due else None
        for node, markers in self._ready.items():
            if markers and self._in_flight.get(node, 0) < MESSAGES_IN_FLIGHT:
                due = self._clock.awake_us
        return earlier(due, self._waits[0][0] if self._waits else None)

    def end(self) -> None:
        """Ends the term. The decisions that clients wait for are made; only the markers may not be committed."""
        self._is_over = True
        for on_markers in self._waiting():
            on_markers(False)
        self._tracked.clear()
        self._due.clear()
        self._ready.clear()
        self._waits.clear()

    def _waiting(self) -> Iterator[OnMarkers]:
        for tracked in self._tracked.values():
            waiting, tracked.waiting = tracked.waiting, []
            yield from waiting


@dataclass(slots=True, frozen=True, eq=False)
class _OnAnswer:
    """Hands the answer to a message back to the markers that it is about."""

    markers: MarkersDue
    node: int
    batch: list[_Marker]

    def __call__(self, response: peer_pb2.ControllerResponse | None) -> None:
        self.markers.take_answers(self.node, self.batch, response)

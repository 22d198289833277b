"""The markers of decided transactions: pushed until each participant has answered."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import pytest
from transaction_rig import INVOICES, NAME, ORDERS, TransactionRig

from quorumlog.raft.types import NO_NODE
from quorumlog.server.deciding.stall_aware_clock import AwakeClock
from quorumlog.server.deciding.transaction_participants import Participant
from quorumlog.server.step.wire_errors import error
from quorumlog.server.transactions.markers_due import (
    FIRST_PAUSE_US,
    LONGEST_PAUSE_US,
    MESSAGE_ITEMS,
    MESSAGES_IN_FLIGHT,
    MarkersDue,
)
from quorumlog.server.transactions.transaction_record import Decision, Writer
from quorumlog.v1 import peer_pb2
from quorumlog.v1.errors_pb2 import ErrorCode
from quorumlog.wire.kafka.control import LogPlace

Answer = Callable[[peer_pb2.ControllerResponse | None], None]


@dataclass
class Route:
    """Leaders of participants, and the messages to them."""

    leaders: dict[Participant, int | None] = field(default_factory=lambda: {ORDERS: 1, INVOICES: 2})
    sent: list[tuple[int, peer_pb2.ControllerRequest, Answer]] = field(default_factory=list)

    def leader_of(self, participant: Participant) -> int | None:
        return self.leaders.get(participant, 1)

    def ask(self, deadline: int, request: peer_pb2.ControllerRequest, on_answer: Answer, to: int) -> None:
        self.sent.append((to, request, on_answer))


class Rig:
    """A coordinator with one decided transaction in two partitions."""

    def __init__(self) -> None:
        self.rig = TransactionRig()
        producer = self.rig.identity()
        self.rig.enlist(producer, ORDERS)
        self.rig.enlist(producer, INVOICES)
        self.rig.ended(producer)
        self.clock = AwakeClock(0, 100_000)
        self.route = Route()
        self.wakes = 0
        self.markers = MarkersDue(self.clock, self.route, self._wake)
        self.markers.track(NAME, self.decision)

    def _wake(self) -> None:
        self.wakes += 1

    @property
    def decision(self) -> Decision:
        assert self.rig.record.newest is not None
        return self.rig.record.newest

    def pass_us(self, passed: int) -> None:
        """Time passes, in steps of a node."""
        while passed > 0:
            self.clock.step(self.clock.now + min(passed, 50_000), 0)
            passed -= 50_000
            self.markers.do_what_is_due()

    def push(self) -> list[tuple[int, peer_pb2.ControllerRequest, Answer]]:
        """Sends what is due."""
        self.markers.do_what_is_due()
        sent, self.route.sent = self.route.sent, []
        return sent


def answer(request: peer_pb2.ControllerRequest, code: ErrorCode.ValueType | None = None) -> peer_pb2.ControllerResponse:
    """The answer of a leader to all items of a message."""
    response = peer_pb2.ControllerResponse()
    response.end_transactions.SetInParent()
    for _ in request.end_transactions.items:
        result = response.end_transactions.results.add()
        if code is not None:
            result.error.CopyFrom(error(code, "not now"))
    return response


@pytest.fixture
def rig() -> Rig:
    return Rig()


def test_each_leader_is_asked(rig: Rig) -> None:
    sent = rig.push()
    assert sorted(node for node, _, _ in sent) == [1, 2]
    for _, request, on_answer in sent:
        (item,) = request.end_transactions.items
        assert (item.commit, item.next_epoch, item.identity.producer_epoch) == (True, 1, 0)
        assert LogPlace(item.decided.term, item.decided.index) == rig.decision.place
        on_answer(answer(request))
    assert [of.place for of in rig.markers.complete] == [rig.decision.place]
    assert len(rig.markers) == 0
    assert rig.wakes == 2
    rig.markers.forget(NAME, rig.decision.place)
    assert not rig.markers.complete and rig.markers.next_deadline is None


@pytest.mark.parametrize("failure", ["lost", "refused", "short"])
def test_message_is_repeated_until_answered(rig: Rig, failure: str) -> None:
    """KAFKA-19999: a leader that cannot write the marker now is asked again, with longer pauses."""
    pauses = 0
    for _ in range(12):
        for _, request, on_answer in rig.push():
            if failure == "refused":
                on_answer(answer(request, ErrorCode.NOT_LEADER_OR_FOLLOWER))
            else:
                on_answer(None if failure == "lost" else peer_pb2.ControllerResponse())
        assert not rig.markers.complete
        due = rig.markers.next_deadline
        assert due is not None
        pauses = due - rig.clock.awake_us
        assert FIRST_PAUSE_US <= pauses <= LONGEST_PAUSE_US
        rig.clock.awake_us = due
    assert pauses == LONGEST_PAUSE_US
    for _, request, on_answer in rig.push():
        on_answer(answer(request))
    assert rig.markers.complete


def test_new_leader_is_found(rig: Rig) -> None:
    rig.route.leaders[ORDERS] = NO_NODE
    assert [node for node, _, _ in rig.push()] == [2]
    rig.route.leaders[ORDERS] = 3
    rig.clock.awake_us += FIRST_PAUSE_US
    assert [node for node, _, _ in rig.push()] == [3]


def test_deleted_topic_counts_as_answered(rig: Rig) -> None:
    rig.route.leaders[ORDERS] = None
    ((node, request, on_answer),) = rig.push()
    assert node == 2
    on_answer(answer(request))
    assert rig.markers.complete


def test_answered_participants_are_known(rig: Rig) -> None:
    place = rig.decision.place
    assert not rig.markers.is_answered(NAME, place, 1, ORDERS)
    for node, request, on_answer in rig.push():
        if node == 1:
            on_answer(answer(request))
    assert rig.markers.is_answered(NAME, place, 1, ORDERS)
    assert not rig.markers.is_answered(NAME, place, 1, INVOICES)


def test_client_waits_for_all_markers(rig: Rig) -> None:
    told: list[bool] = []
    rig.markers.when_answered(NAME, rig.decision.place, 500_000, told.append)
    sent = rig.push()
    sent[0][2](answer(sent[0][1]))
    assert not told
    sent[1][2](answer(sent[1][1]))
    assert told == [True]
    rig.markers.when_answered(NAME, rig.decision.place, 500_000, told.append)
    assert told == [True, True], "they are committed already"
    rig.pass_us(1_000_000)
    assert told == [True, True]


def test_client_waits_for_half_a_second(rig: Rig) -> None:
    told: list[bool] = []
    rig.markers.when_answered(NAME, rig.decision.place, 500_000, told.append)
    rig.push()
    rig.pass_us(450_000)
    assert not told
    rig.pass_us(100_000)
    assert told == [False]


def test_end_of_the_term_answers_those_who_wait(rig: Rig) -> None:
    """The decision is made: only the markers are not known to be committed."""
    told: list[bool] = []
    rig.markers.when_answered(NAME, rig.decision.place, 500_000, told.append)
    sent = rig.push()
    rig.markers.end()
    assert told == [False]
    for _, request, on_answer in sent:
        on_answer(answer(request))
    assert told == [False] and not rig.markers.complete and not rig.wakes


def test_messages_are_bounded(rig: Rig) -> None:
    """A leader receives at most 1,000 decisions in a message, and two messages at once."""
    many = {Participant(b"t" * 16, number) for number in range(3 * MESSAGE_ITEMS)}
    writer = Writer(0)
    writer.add(many)
    decision = Decision(
        LogPlace(3, 99), LogPlace(3, 98), True, 1, rig.decision.producer, rig.decision.following, {1: writer}
    )
    for _, request, on_answer in rig.push():
        on_answer(answer(request))
    rig.route.leaders = {}
    rig.markers.track("large", decision)
    sent = rig.push()
    assert [len(request.end_transactions.items) for _, request, _ in sent] == [MESSAGE_ITEMS] * MESSAGES_IN_FLIGHT
    assert rig.markers.next_deadline is None, "it waits for an answer"
    sent[0][2](answer(sent[0][1]))
    assert rig.markers.next_deadline == rig.clock.awake_us
    (third,) = rig.push()
    assert len(third[1].end_transactions.items) == MESSAGE_ITEMS
    for _, request, on_answer in (sent[1], third):
        on_answer(answer(request))
    assert len(rig.markers) == 0

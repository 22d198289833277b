"""Requests that wait because their principal is over a quota, on a clock of the test's."""

from __future__ import annotations

from typing import Any

import pytest
from google.protobuf.message import Message as ProtoMessage
from limited import limit
from rights import holder

from quorumlog.server.access.throttle import LEAST_FETCH_WAIT_US, MOST_WAIT_US, Throttle, ThrottleLimits
from quorumlog.server.metadata.image import MetadataImage
from quorumlog.server.observability.principal_totals import MOST_PRINCIPALS, OTHERS, PrincipalTotals
from quorumlog.server.step.events import ClientRequest, StreamPause
from quorumlog.server.step.node_service import NodeServices, StepTime
from quorumlog.server.step.request_context import RequestContext
from quorumlog.v1 import admin_pb2, groups_pb2, sign_in_pb2
from quorumlog.v1 import data_plane_pb2 as pb
from quorumlog.v1.errors_pb2 import Error, ErrorCode

SECOND = 1_000_000
ALICE, BOB = "User:alice", "User:bob"


def produce(size_bytes: int = 2_000, acks: int = -1, timeout_ms: int = 60_000) -> pb.ProduceRequest:
    """Returns a produce request of exactly that size."""
    request = pb.ProduceRequest(acks=acks, timeout_ms=timeout_ms)
    request.batches.add(topic_id=b"t" * 16, batch=b"x" * size_bytes)
    request.batches[0].batch = b"x" * (2 * size_bytes - request.ByteSize())
    assert request.ByteSize() == size_bytes
    return request


FETCH = pb.FetchRequest(max_wait_ms=500)
METADATA = pb.MetadataRequest(all_topics=True)


class Rig:
    """A throttle, what it has served, and what it has answered."""

    def __init__(self, **limits: int) -> None:
        self.image = MetadataImage()
        self.time = StepTime(0, 0)
        self.served: list[int] = []
        self.empty: list[int] = []
        self.refused: list[tuple[int, Error]] = []
        self.throttle = Throttle(holder(self.image), self.time, self, ThrottleLimits(**limits))
        self.services = NodeServices([self.throttle])
        self._number = 0

    def serve_held(self, request: ClientRequest, credentials_index: int) -> None:
        self.served.append(request.request_id)

    def refuse_throttled(self, request: ClientRequest, problem: Error) -> None:
        if isinstance(request.message, pb.FetchRequest):
            self.empty.append(request.request_id)
        else:
            self.refused.append((request.request_id, problem))

    def limit(self, principal: str, **values: Any) -> None:
        limit(self.image, principal, **values)
        self.services.deadlines_moved()
        self.throttle.metadata_changed()

    def ask(self, message: ProtoMessage, principal: str = ALICE, stream: int = 0) -> int:
        """Submits a request and returns its number; it is served at once unless the throttle holds it."""
        self._number += 1
        request = ClientRequest(self._number, message, stream, RequestContext(principal=principal))
        if not self.throttle.holds(request):
            self.served.append(self._number)
        self.services.check_deadlines()
        return self._number

    def wait(self, microseconds: int) -> None:
        """Advances the time, and calls the throttle at each of its deadlines."""
        end = self.time.now + microseconds
        due = self.services.next_deadline
        while due is not None and due <= end:
            self.time.now = max(self.time.now, due)
            self.services.on_time(self.time.now, 0)
            due = self.services.next_deadline
        self.time.now = end


def test_nobody_waits_where_nobody_is_limited() -> None:
    rig = Rig()
    numbers = [rig.ask(each) for each in (produce(10 << 20), FETCH, METADATA)]
    assert rig.served == numbers
    assert rig.services.next_deadline is None


def test_a_producer_waits_in_line_until_its_debt_is_paid_and_no_longer() -> None:
    rig = Rig()
    rig.limit(ALICE, producer_byte_rate=2_000)
    first, second, third = (rig.ask(produce(6_000)) for _ in range(3))
    assert rig.served == [first], "one request takes debt"
    rig.wait(2 * SECOND - 1)
    assert rig.served == [first]
    rig.wait(1)
    assert rig.served == [first, second]
    rig.wait(3 * SECOND)
    assert rig.served == [first, second, third]
    assert len(rig.throttle) == 0
    assert rig.throttle.throttled_seconds.readings() == {(ALICE,): pytest.approx(7)}


def test_in_the_long_run_a_producer_gets_its_rate() -> None:
    rig = Rig()
    rig.limit(ALICE, producer_byte_rate=10_000)
    for _ in range(200):
        rig.ask(produce(5_000))
        while len(rig.throttle):
            rig.wait(SECOND // 10)
    assert 200 * 5_000 - 10_000 - 5_000 <= 10_000 * rig.time.now / SECOND <= 200 * 5_000


def test_others_go_on_and_so_do_other_kinds_of_requests_of_the_same_principal() -> None:
    rig = Rig()
    rig.limit(ALICE, producer_byte_rate=2_000)
    rig.ask(produce(50_000))
    waiting = rig.ask(produce())
    numbers = [rig.ask(produce(), BOB), rig.ask(FETCH), rig.ask(METADATA), rig.ask(produce(), "Node:2")]
    assert rig.served[1:] == numbers
    assert waiting not in rig.served


def test_a_fetch_waits_before_anything_is_looked_for_and_is_answered_without_records_in_the_end() -> None:
    rig = Rig()
    rig.limit(ALICE, consumer_byte_rate=2_000)
    assert rig.throttle.most_bytes(ALICE, 1 << 20) == 2_000
    assert rig.throttle.most_bytes(BOB, 1 << 20) == 1 << 20
    first = rig.ask(FETCH)
    rig.throttle.handed_out(ALICE, 5_000)
    rig.throttle.handed_out(BOB, 5_000)
    second = rig.ask(FETCH)
    rig.wait(SECOND)
    assert (rig.served, rig.empty) == ([first], [second]), "a second, though its client would wait for half of one"
    third = rig.ask(FETCH)
    rig.wait(SECOND // 2)
    assert rig.served == [first, third]


def test_requests_of_all_kinds_are_counted_but_for_memberships_and_sign_in() -> None:
    rig = Rig()
    rig.limit(ALICE, request_rate=2)
    served = [rig.ask(each) for each in (FETCH, METADATA, produce())]
    waiting = [rig.ask(each) for each in (FETCH, METADATA, produce())]
    sign_in = (
        sign_in_pb2.BeginScramRequest(),
        sign_in_pb2.FinishScramRequest(),
        sign_in_pb2.SignInByTokenRequest(),
    )
    heartbeats = (groups_pb2.GroupHeartbeatRequest(), groups_pb2.ClassicHeartbeatRequest())
    free = [rig.ask(each) for each in (*heartbeats, *sign_in)]
    assert rig.served == served + free
    rig.wait(SECOND // 2)
    assert rig.served[len(served + free) :] == [waiting[0]], "one of them in half a second: the others find its debt"


def test_the_default_counts_for_whoever_has_no_value() -> None:
    rig = Rig()
    rig.limit("User:*", producer_byte_rate=2_000)
    rig.limit(BOB, producer_byte_rate=1_000_000)
    for principal in (ALICE, BOB):
        rig.ask(produce(10_000), principal)
    late = rig.ask(produce(), ALICE)
    assert rig.ask(produce(), BOB) in rig.served
    assert late not in rig.served


def test_a_stream_is_paused_while_a_request_of_it_waits() -> None:
    rig = Rig()
    rig.limit(ALICE, producer_byte_rate=2_000)
    rig.ask(produce(4_000), stream=7)
    assert rig.throttle.take_pauses() == []
    for _ in range(2):
        rig.ask(produce(2_000), stream=7)
    assert rig.throttle.take_pauses() == [StreamPause(7, is_paused=True)]
    rig.wait(SECOND)
    assert rig.throttle.take_pauses() == []
    rig.wait(SECOND)
    assert rig.throttle.take_pauses() == [StreamPause(7, is_paused=False)]


def test_a_quota_that_is_removed_or_raised_counts_at_once_and_order_is_kept() -> None:
    rig = Rig()
    rig.limit(ALICE, producer_byte_rate=2_000)
    rig.ask(produce(20_000_000), stream=7)
    waiting = [rig.ask(produce(), stream=7) for _ in range(3)]
    rig.limit(ALICE, producer_byte_rate=None)
    behind = rig.ask(produce(), stream=7)
    rig.wait(0)
    assert rig.served[1:] == [*waiting, behind], "what comes in the same step stays behind those that waited"
    assert rig.throttle.take_pauses()[-1] == StreamPause(7, is_paused=False)
    rig.limit(ALICE, producer_byte_rate=2_000)
    rig.ask(produce(20_000_000))
    late = rig.ask(produce())
    rig.limit(ALICE, producer_byte_rate=40_000_000)
    rig.wait(SECOND)
    assert rig.served[-1] == late


def test_whoever_has_gone_makes_way() -> None:
    rig = Rig()
    rig.limit(ALICE, producer_byte_rate=2_000)
    rig.ask(produce(4_000), stream=7)
    gone, stays = rig.ask(produce(), stream=7), rig.ask(produce(), stream=8)
    rig.throttle.client_gone(gone)
    rig.throttle.stream_closed(7)
    rig.wait(SECOND)
    assert rig.served[1:] == [stays]
    assert len(rig.throttle) == 0


def test_a_wait_is_bounded_and_its_end_says_that_nothing_was_done_and_when_to_come_again() -> None:
    rig = Rig()
    rig.limit(ALICE, producer_byte_rate=2_000, request_rate=1_000_000)
    rig.ask(produce(2_000_000))
    waiting = [rig.ask(produce(timeout_ms=timeout_ms)) for timeout_ms in (4_000, 4_000_000)]
    rig.wait(2 * SECOND)
    ((number, problem),) = rig.refused
    assert number == waiting[0]
    assert (problem.code, problem.retriable, problem.definite) == (ErrorCode.THROTTLING_QUOTA_EXCEEDED, True, True)
    assert "producer_byte_rate = 2000 per second" in problem.message
    assert problem.throttle_time_ms == 997_000
    rig.wait(MOST_WAIT_US)
    assert [number for number, _ in rig.refused] == waiting
    assert rig.services.next_deadline is not None
    rig.wait(1_000 * SECOND)
    assert rig.services.next_deadline is None, "nothing is left of it"


def test_what_nobody_is_answered_is_not_dropped_but_late() -> None:
    rig = Rig()
    rig.limit(ALICE, producer_byte_rate=2_000)
    rig.ask(produce(200_000, acks=0))
    late = rig.ask(produce(acks=0, timeout_ms=0))
    rig.wait(99 * SECOND)
    assert late in rig.served
    assert not rig.refused


def test_a_call_waits_for_half_of_the_time_that_it_has() -> None:
    rig = Rig()
    rig.limit(ALICE, request_rate=1)
    for _ in range(50):
        rig.ask(admin_pb2.AlterQuorumRequest(timeout_ms=5_000))
    assert len(rig.served) == 2
    rig.wait(5 * SECOND // 2)
    assert len(rig.served) == 4
    assert len(rig.refused) == 46
    assert len(rig.throttle) == 0


def test_so_much_waits_and_no_more_but_one_request_of_each_may() -> None:
    rig = Rig(principal_bytes=10_000, principal_requests=3, size_bytes=40_000, requests=5)
    rig.limit("User:*", producer_byte_rate=2_000, consumer_byte_rate=2_000)
    for principal in (ALICE, BOB, "User:carol"):
        rig.ask(produce(4_000_000), principal)
    large = rig.ask(produce(20_000))
    assert len(rig.throttle) == 1, "it is larger than what may wait of one principal"
    assert [rig.ask(produce(1_500))] == [number for number, _ in rig.refused]
    for _ in range(4):
        rig.ask(produce(1_500), BOB)
    assert len(rig.throttle) == 4
    assert len(rig.refused) == 2
    rig.ask(produce(20_000), "User:carol")
    assert len(rig.refused) == 3, "all of them together have their bounds, too"
    rig.throttle.client_gone(large)
    rig.ask(produce(20_000), "User:carol")
    assert len(rig.refused) == 3
    rig.throttle.handed_out(ALICE, 50_000)
    rig.ask(FETCH)
    assert rig.empty == []
    beyond = rig.ask(FETCH)
    assert rig.empty == [beyond], "a fetch is never refused"


def test_metrics_tell_of_so_many_principals_by_name() -> None:
    totals = PrincipalTotals()
    for number in range(MOST_PRINCIPALS + 50):
        totals.add(f"User:u{number}", 2)
    totals.add("User:u0")
    readings = totals.readings()
    assert len(readings) == MOST_PRINCIPALS + 1
    assert readings[(OTHERS,)] == 100
    assert readings[("User:u0",)] == 3


@pytest.mark.parametrize(
    ("max_wait_ms", "waits_us"),
    [(0, LEAST_FETCH_WAIT_US), (999, LEAST_FETCH_WAIT_US), (1_500, 1_500_000), (2**31 - 1, MOST_WAIT_US)],
)
def test_fetches_wait_within_bounds(max_wait_ms: int, waits_us: int) -> None:
    """A throttled fetch waits for its max_wait_ms, but at least a second (to prevent polling) and at most 30 s."""
    rig = Rig()
    rig.limit(ALICE, consumer_byte_rate=1)
    rig.throttle.handed_out(ALICE, 1_000)
    request = rig.ask(pb.FetchRequest(max_wait_ms=max_wait_ms))
    rig.wait(waits_us - 1)
    assert rig.empty == []
    rig.wait(1)
    assert rig.empty == [request]


def test_bytes_that_wait_are_bounded_exactly() -> None:
    """The waiting bytes of a principal, including its next request, may reach the limit but not exceed it."""
    rig = Rig(principal_bytes=4_000)
    rig.limit(ALICE, producer_byte_rate=1)
    rig.ask(produce(2_000))
    held = [rig.ask(produce(2_000)), rig.ask(produce(2_000))]
    assert (len(rig.throttle), rig.refused) == (2, [])
    late = rig.ask(produce(200))
    assert [number for number, _ in rig.refused] == [late] and late not in held
    other = Rig(principal_bytes=4_000)
    other.limit(ALICE, producer_byte_rate=1)
    other.ask(produce(2_000))
    other.ask(produce(2_000))
    assert (other.ask(produce(2_001)), len(other.throttle)) == (3, 1)


@pytest.mark.parametrize(("rate", "most"), [(0.5, 1), (1.9, 1), (700, 700), (10_000, 5_000)])
def test_answers_hold_at_most_a_burst(rate: float, most: int) -> None:
    """An answer may hold at most a burst but never nothing: a client that receives no byte would ask indefinitely."""
    rig = Rig()
    assert rig.throttle.most_bytes(ALICE, 5_000) == 5_000
    rig.limit(ALICE, consumer_byte_rate=rate)
    assert rig.throttle.most_bytes(ALICE, 5_000) == most


def test_waits_are_measured_to_their_end() -> None:
    """A request that is served or given up has waited until then, not until its deadline."""
    rig = Rig()
    rig.limit(ALICE, producer_byte_rate=1_000)
    rig.ask(produce(2_000))
    rig.ask(produce(300, timeout_ms=60_000))
    rig.wait(1 * SECOND)
    assert rig.throttle.throttled_seconds.readings() == {(ALICE,): pytest.approx(1)}

"""Bounded queues: requests that were answered, timed out or abandoned are removed from them."""

from __future__ import annotations

from quorumlog.server.partition import acknowledgements
from quorumlog.server.partition.acknowledgements import ACKS_ALL, Acknowledgements, ProduceCall, Waiter
from quorumlog.server.requests.fetch_sessions import PendingFetch, ServedFetchSession
from quorumlog.server.step import pending_calls
from quorumlog.server.step.pending_calls import PendingCalls
from quorumlog.v1 import data_plane_pb2

MANY = 20_000


def a_call(number: int, deadline: int = 1 << 60) -> ProduceCall:
    response = data_plane_pb2.ProduceResponse()
    response.results.add()
    return ProduceCall(number, response, deadline, 1, {0})


def test_retries_that_timed_out_do_not_gather_behind_a_batch_that_is_short_of_copies() -> None:
    waiting, calls = Acknowledgements(), a_nodes_calls()
    for number in range(MANY):
        call = a_call(number, deadline=number)
        waiting.add(ACKS_ALL, Waiter(7, 3, call, 0, 0, -1))
        calls.add(call)
        (late,) = calls.take_expired(number)
        late.time_out()
    assert len(waiting) <= acknowledgements.SWEEP_ABOVE + 1


def test_abandoned_calls_do_not_gather_either() -> None:
    waiting, calls = Acknowledgements(), a_nodes_calls()
    for number in range(MANY):
        call = a_call(number)
        waiting.add(ACKS_ALL, Waiter(7, 3, call, 0, 0, -1))
        calls.add(call)
        gone = calls.take(number)
        assert gone is not None
        gone.abandon()
    assert len(waiting) <= acknowledgements.SWEEP_ABOVE + 1


def test_whoever_still_waits_outlives_every_sweep_and_is_answered_in_order() -> None:
    waiting = Acknowledgements()
    patient = [a_call(number) for number in range(3 * acknowledgements.SWEEP_ABOVE)]
    for index, call in enumerate(patient, start=1):
        waiting.add(ACKS_ALL, Waiter(index, 1, call, 0, index, -1))
    answered = [waiter.base_offset for waiter in waiting.resolve(MANY, MANY, lambda copies: MANY, 1)]
    assert answered == list(range(1, len(patient) + 1))
    assert not waiting


def test_deadlines_of_answered_calls_do_not_gather() -> None:
    calls = a_nodes_calls()
    calls.add(a_call(MANY, deadline=300))
    for number in range(MANY):
        calls.add(a_call(number, deadline=300))
        assert calls.take(number) is not None
    assert len(calls.deadlines) <= pending_calls.SWEEP_ABOVE + 3
    assert [call.request_id for call in calls.take_expired(300)] == [MANY]


def test_deadlines_of_answered_fetches_do_not_gather() -> None:
    fetches: PendingCalls[PendingFetch] = PendingCalls(MANY)
    fetches.add(a_fetch(MANY))
    for number in range(MANY):
        fetches.add(a_fetch(number))
        assert fetches.take(number) is not None
    assert len(fetches.deadlines) <= pending_calls.SWEEP_ABOVE + 3
    assert [fetch.request_id for fetch in fetches.take_expired(300)] == [MANY]


def a_nodes_calls() -> PendingCalls[ProduceCall]:
    return PendingCalls(MANY)


def a_fetch(number: int) -> PendingFetch:
    return PendingFetch(number, number, ServedFetchSession(0), deadline=300, min_bytes=1, max_bytes=1)

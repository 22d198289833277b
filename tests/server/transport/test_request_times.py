"""Times of requests, stage by stage, on a clock that advances only when a test moves it."""

from __future__ import annotations

from quorumlog.server.transport.clients import request_times
from quorumlog.server.transport.clients.request_times import STAGES, RequestTimes
from quorumlog.v1 import data_plane_pb2 as pb
from quorumlog.v1.errors_pb2 import Error, ErrorCode

PRODUCE, PRODUCED = pb.ProduceRequest(), pb.ProduceResponse()


class Watched:
    """Times on a clock of our own, and the shortest way of a request through them."""

    def __init__(self) -> None:
        self.now_s = 100.0
        self.times = RequestTimes(lambda: self.now_s)

    def after(self, seconds: float) -> RequestTimes:
        self.now_s += seconds
        return self.times

    def step(self, queued_s: float, takes_s: float, writes: bool) -> None:
        taken = self.after(queued_s).step_begins()
        self.after(takes_s).step_ends(taken, writes)

    def stages(self) -> dict[str, float]:
        return {stage: round(self.times.stages[stage].total, 6) for stage in STAGES}


def test_each_stage_has_its_part_of_the_time() -> None:
    watched = Watched()
    watched.times.came(1, PRODUCE)
    watched.step(0.001, 0.002, writes=True)
    watched.after(0.004).synced()
    watched.after(0.008).answered(1, PRODUCED)
    watched.after(0.016).written(1)
    assert watched.stages() == {
        "queue": 0.001,
        "append": 0.002,
        "fsync": 0.004,
        "replication": 0.008,
        "answer": 0.016,
    }
    assert round(watched.times.seconds["Produce"].total, 6) == 0.031


def test_a_traced_batch_is_answered_when_its_answer_is_handed_over_and_not_when_the_step_began() -> None:
    watched = Watched()
    traced = pb.ProduceResponse(trace=pb.BatchTrace(node_id=1, answered_us=7_000))
    watched.times.came(1, PRODUCE)
    watched.step(0.001, 0.002, writes=True)
    watched.after(0.0125).answered(1, traced)
    assert traced.trace.answered_us == 15_500
    untraced = pb.ProduceResponse(trace=pb.BatchTrace(untraced="one at a time"))
    watched.times.came(2, PRODUCE)
    watched.after(0.001).answered(2, untraced)
    assert untraced.trace.answered_us == 0


def test_what_is_appended_while_a_transaction_is_under_way_waits_for_the_next_one() -> None:
    watched = Watched()
    watched.step(0, 0, writes=True)
    watched.times.came(1, PRODUCE)
    watched.step(0, 0, writes=False)
    watched.after(0.004).synced()
    watched.step(0, 0, writes=True)
    watched.after(0.004).synced()
    watched.times.answered(1, PRODUCED)
    watched.times.written(1)
    assert watched.stages()["fsync"] == 0.008


def test_an_answer_that_does_not_wait_for_the_own_disk_ends_that_stage() -> None:
    """The fsync stage ends with an answer that does not wait for the leader's disk: two followers are a majority."""
    watched = Watched()
    watched.times.came(1, PRODUCE)
    watched.step(0, 0, writes=True)
    watched.after(0.002).answered(1, PRODUCED)
    watched.times.written(1)
    watched.after(1).synced()
    assert watched.stages()["fsync"] == 0.0
    assert watched.stages()["replication"] == 0.002


def test_a_request_that_is_refused_at_once_has_waited_for_no_disk() -> None:
    watched = Watched()
    watched.times.came(1, PRODUCE)
    watched.step(0.001, 0.001, writes=False)
    watched.times.answered(1, PRODUCED)
    watched.after(0.003).written(1)
    assert watched.stages() == {"queue": 0.001, "append": 0.001, "fsync": 0.0, "replication": 0.0, "answer": 0.003}


def test_errors_are_counted_by_request_and_name_of_the_whole_and_of_parts() -> None:
    times = RequestTimes()
    refused = Error(code=ErrorCode.NOT_LEADER_OR_FOLLOWER)
    parts = [pb.FetchResult(error=refused), pb.FetchResult(), pb.FetchResult(error=refused)]
    times.came(1, pb.FetchRequest())
    times.answered(1, pb.FetchResponse(results=parts))
    times.came(2, pb.FetchRequest())
    times.answered(2, pb.FetchResponse(error=Error(code=ErrorCode.SERVER_BUSY)))
    assert times.errors == {("Fetch", "NOT_LEADER_OR_FOLLOWER"): 2, ("Fetch", "SERVER_BUSY"): 1}


def test_nothing_is_kept_of_requests_that_are_over() -> None:
    most = request_times._MOST_UNSYNCED
    times = RequestTimes()
    for number in range(1, 3 * most):
        times.came(number, PRODUCE)
        times.step_ends(times.step_begins(), writes=False)
        if number % 2:
            times.answered(number, PRODUCED)
            times.written(number)
        else:
            times.abandoned(number)
    assert not times._traces
    assert not times._queued
    assert len(times._unsynced) <= most + 1

"""The partitions that are read: what is handed out of them, and what is left when they are revoked, paused, sought."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from stored_batches import fetched_rows

from quorumlog.sdk.consumer.assignment import Assignment, PartitionState, Start
from quorumlog.sdk.consumer.iteration import Iteration
from quorumlog.sdk.errors import CorruptRecordError, IllegalStateError
from quorumlog.sdk.records.fetched import FetchedRows, to_records
from quorumlog.sdk.types import ConsumerRecord, TopicPartition

P0, P1, P2 = (TopicPartition("t", number) for number in range(3))
TOPIC_ID = b"0123456789abcdef"
LIMIT_BYTES = 1000


class Reading:
    """An assignment with partitions at offset 0, and a clock that only the test moves."""

    def __init__(self, *partitions: TopicPartition) -> None:
        self.now = 50.0
        self.assignment = Assignment(LIMIT_BYTES, lambda: self.now)
        self.assignment.add(partitions or [P0], "earliest")
        for state in self.assignment.states.values():
            state.position = state.fetch_offset = 0

    def fetch(self, count: int, tp: TopicPartition = P0, *, leader_epoch: int = 1) -> FetchedRows:
        """So many records come for a partition."""
        state = self[tp]
        assert state.fetch_offset is not None
        rows = fetched_rows(tp, state.fetch_offset, count, leader_epoch=leader_epoch)
        state.queued.append(rows)
        state.queued_bytes += rows.size_bytes
        state.fetch_offset += count
        return rows

    def take(self, most: int = 100) -> list[tuple[int, int]]:
        """Returns what a poll hands out: partitions and offsets."""
        return offsets(self.assignment.take_fetched(most)[0])

    def __getitem__(self, tp: TopicPartition) -> PartitionState:
        return self.assignment.states[tp]


def offsets(parts: Sequence[FetchedRows]) -> list[tuple[int, int]]:
    return [(part.tp.partition, offset) for part in parts for offset in part.offsets().to_pylist()]


def the(partition: int, *numbers: int) -> list[tuple[int, int]]:
    return [(partition, number) for number in numbers]


# --- revoked, paused, sought, and return to ------------------------------------------------------------------------


def test_what_is_revoked_and_given_back_goes_on_where_it_was_handed_out() -> None:
    reading = Reading()
    reading.fetch(5)
    assert reading.take(2) == the(0, 0, 1)
    state = reading[P0]
    generation = state.generation
    state.session = object()
    state.revoke()
    assert reading.take() == []
    assert (state.fetch_offset, state.position, state.queued_bytes, len(state.queued)) == (2, 2, 0, 0)
    assert state.generation > generation, "responses in flight are ignored"
    assert state.session is None
    state.revoked = False
    reading.fetch(3)
    assert reading.take() == the(0, 2, 3, 4)


def test_what_is_revoked_while_its_beginning_is_looked_up_is_looked_up_again_when_it_is_given_back() -> None:
    state = PartitionState(P0, "earliest")
    state.resetting = True
    state.revoke()
    state.revoked = False
    assert not state.resetting, "nothing else would ever end it: the answer is for an earlier generation"


def test_what_is_revoked_is_not_handed_out_and_says_no_error() -> None:
    reading = Reading()
    reading.fetch(1)
    state = reading[P0]
    state.revoked = True
    state.error = CorruptRecordError("damaged")
    assert reading.take() == []
    assert not reading.assignment.has_records()
    state.queued.clear()
    assert reading.take() == [], "an error of a revoked partition is not raised"


def test_what_is_paused_keeps_its_rows_and_its_error_until_it_is_resumed() -> None:
    reading = Reading()
    reading.fetch(2)
    reading[P0].paused = True
    assert not reading.assignment.has_records()
    assert reading.take() == []
    reading[P0].paused = False
    assert reading.assignment.has_records()
    assert reading.take() == the(0, 0, 1)
    reading[P0].error = CorruptRecordError("damaged")
    reading[P0].paused = True
    assert reading.take() == []
    reading[P0].paused = False
    with pytest.raises(CorruptRecordError):
        reading.take()


def test_paused_rows_make_room_for_others_and_are_fetched_again_from_where_they_were_handed_out() -> None:
    reading = Reading(P0, P1)
    reading.fetch(6)
    reading.take(2)
    reading.fetch(1, P1)
    reading[P0].paused = True
    assert not reading.assignment.release_paused(), "there is something to hand out: room will come of itself"
    assert reading[P0].queued
    assert reading.take() == the(1, 0)
    generation = reading[P0].generation
    assert reading.assignment.release_paused()
    assert (reading[P0].fetch_offset, reading[P0].position, reading[P0].queued_bytes) == (2, 2, 0)
    assert reading[P0].generation > generation
    assert not reading.assignment.release_paused(), "once"
    reading[P0].paused = False
    reading.fetch(4)
    assert reading.take() == the(0, 2, 3, 4, 5)


def test_only_what_is_paused_makes_room() -> None:
    reading = Reading(P0, P1)
    for tp in (P0, P1):
        reading.fetch(1, tp)
    reading[P0].paused = True
    reading[P1].revoked = True
    reading.assignment.release_paused()
    assert reading[P1].queued and not reading[P0].queued


def test_a_seek_leaves_nothing_of_what_was_before() -> None:
    reading = Reading()
    reading.fetch(3)
    state = reading[P0]
    state.error, state.session, state.resetting = CorruptRecordError("damaged"), object(), True
    state.retry_at_s, state.failures, state.read_epoch = 99.0, 4, 7
    state.said_done, state.unproven, state.committed = 2, True, 11
    generation = state.generation
    state.move(40, "latest")
    assert (state.position, state.fetch_offset, state.reset, state.generation) == (40, 40, "latest", generation + 1)
    assert (list(state.queued), state.queued_bytes, state.error, state.session) == ([], 0, None, None)
    assert (state.resetting, state.retry_at_s, state.failures, state.unproven) == (False, 0.0, 0, False)
    assert (state.read_epoch, state.said_done) == (-1, -1)
    assert state.committed == 11, "what the group has committed is not changed by a seek"


def test_a_pause_holds_over_a_seek() -> None:
    reading = Reading()
    reading[P0].paused = True
    reading[P0].move(5, "earliest")
    assert reading[P0].paused


# --- what is assigned -------------------------------------------------------------------------------------------------


def test_partitions_that_stay_keep_their_state_and_those_that_go_take_nothing_that_is_on_its_way() -> None:
    reading = Reading(P0, P1)
    reading.fetch(2)
    kept, gone = reading[P0], reading[P1]
    generation = gone.generation
    reading.assignment.assign([P0, P2], "latest")
    assert set(reading.assignment.states) == {P0, P2}
    assert reading[P0] is kept and kept.queued and kept.reset == "earliest"
    assert reading[P2].position is None and reading[P2].reset == "latest"
    assert gone.generation > generation
    reading.assignment.add([P0], "latest")
    reading.assignment.place({P0: PartitionState.at(P0, TOPIC_ID, Start("latest", 9))})
    assert reading[P0] is kept
    reading.assignment.remove([P1, P0])
    assert set(reading.assignment.states) == {P2}


def test_a_partition_of_a_group_begins_at_what_was_committed_and_that_is_not_proven() -> None:
    state = PartitionState.at(P0, TOPIC_ID, Start("latest", 7, 3))
    assert (state.position, state.fetch_offset, state.committed, state.read_epoch, state.unproven) == (7, 7, 7, 3, True)
    assert (state.topic_id, state.reset) == (TOPIC_ID, "latest")
    fresh = PartitionState.at(P0, TOPIC_ID, Start("earliest"))
    assert (fresh.position, fresh.committed, fresh.unproven, fresh.reset) == (None, -1, False, "earliest")


def test_a_partition_that_is_not_assigned_is_named() -> None:
    reading = Reading(P0)
    assert reading.assignment.state(P0) is reading[P0]
    with pytest.raises(IllegalStateError, match="t-1 is not assigned"):
        reading.assignment.state(P1)


# --- what a poll takes ------------------------------------------------------------------------------------------------


def test_positions_follow_what_is_handed_out_and_so_do_bytes_and_epochs() -> None:
    reading = Reading()
    first, second = reading.fetch(4, leader_epoch=2), reading.fetch(3, leader_epoch=5)
    state = reading[P0]
    assert reading.assignment.queued_bytes() == first.size_bytes + second.size_bytes
    assert reading.take(3) == the(0, 0, 1, 2)
    assert (state.position, state.read_epoch) == (3, 2)
    assert state.queued_bytes == first.size_bytes + second.size_bytes, "the rest keeps the bytes alive"
    assert reading.take(2) == the(0, 3, 4)
    assert (state.position, state.read_epoch, state.queued_bytes) == (5, 5, second.size_bytes)
    assert reading.take() == the(0, 5, 6)
    assert (state.position, state.queued_bytes) == (7, 0)
    assert reading.take() == []


def test_where_partitions_were_before_the_last_poll_is_remembered_of_that_poll_only() -> None:
    reading = Reading(P0, P1)
    reading.fetch(2)
    reading.fetch(2)
    reading.fetch(2, P1)
    reading.take(5)
    assert set(reading.assignment.before_last.values()) == {0}
    assert set(reading.assignment.before_last) == {P0, P1}
    reading.take(5)
    assert list(reading.assignment.before_last.values()) in ([3], [1])
    reading.take(5)
    assert reading.assignment.before_last == {}


def test_partitions_take_turns_to_be_first() -> None:
    reading = Reading(P0, P1, P2)
    for tp in (P0, P1, P2):
        reading.fetch(10, tp)
    firsts = [reading.take(1)[0][0] for _ in range(6)]
    assert sorted(firsts[:3]) == sorted(firsts[3:]) == [0, 1, 2]


def test_an_error_comes_behind_the_rows_before_it_and_once() -> None:
    reading = Reading(P0, P1)
    reading.fetch(2)
    reading.fetch(1, P1)
    state = reading[P0]
    state.error, state.failures = CorruptRecordError("damaged"), 3
    assert sorted(reading.take()) == [*the(0, 0, 1), *the(1, 0)]
    reading.fetch(1, P1)
    with pytest.raises(CorruptRecordError):
        reading.take()
    assert (state.error, state.failures) == (None, 0), "it is tried again"
    assert reading.take() == the(1, 1), "nothing of the others was lost"


def test_nothing_is_handed_out_from_when_the_group_may_have_given_it_to_others() -> None:
    reading = Reading()
    reading.fetch(2)
    reading.assignment.valid_until_s = 51.0
    reading.now = 50.999
    assert reading.take(1) == the(0, 0)
    reading.now = 51.0
    assert reading.take() == []
    assert reading[P0].position == 1
    assert reading.assignment.before_last == {}


def test_it_is_said_when_a_partition_that_was_full_may_be_fetched_for_again() -> None:
    reading = Reading()
    rows = reading.fetch(2)
    assert rows.size_bytes < LIMIT_BYTES
    assert reading.assignment.take_fetched(10)[1] is False, "it was not full"
    while reading[P0].queued_bytes < LIMIT_BYTES:
        reading.fetch(2)
    held = len(reading[P0].queued)
    reading.fetch(2)
    assert reading.assignment.take_fetched(1)[1] is False, "it is full yet"
    assert reading.assignment.take_fetched(2 * held)[1] is True


# --- what is given back -----------------------------------------------------------------------------------------------


def test_what_is_given_back_comes_again_in_its_order_with_its_bytes() -> None:
    reading = Reading(P0, P1)
    sizes = reading.fetch(3).size_bytes + reading.fetch(2).size_bytes
    other = reading.fetch(2, P1).size_bytes
    taken, _ = reading.assignment.take_fetched(100)
    assert reading.assignment.queued_bytes() == 0
    reading.assignment.give_back(taken)
    assert (reading[P0].queued_bytes, reading[P1].queued_bytes) == (sizes, other)
    assert (reading[P0].position, reading[P1].position, reading[P0].read_epoch) == (0, 0, -1)
    assert sorted(reading.take()) == [*the(0, 0, 1, 2, 3, 4), *the(1, 0, 1)]


def test_what_was_sought_or_taken_away_meanwhile_is_not_given_back() -> None:
    reading = Reading(P0, P1)
    reading.fetch(2)
    reading.fetch(2, P1)
    taken, _ = reading.assignment.take_fetched(100)
    reading[P0].move(40, "earliest")
    reading.assignment.remove([P1])
    reading.assignment.give_back(taken)
    assert (reading[P0].position, len(reading[P0].queued), reading[P0].queued_bytes) == (40, 0, 0)


# --- record by record -------------------------------------------------------------------------------------------------


def iterating(reading: Reading) -> Iteration:
    iteration = Iteration(reading.assignment, to_records)
    reading.assignment.take_fetched(100)
    return iteration


def next_of(iteration: Iteration) -> ConsumerRecord | None:
    """The next record, which the application is given."""
    record = iteration.peek()
    iteration.given += record is not None
    return record


def test_an_iteration_knows_where_it_is_in_every_partition() -> None:
    reading = Reading(P0, P1)
    reading.fetch(2)
    reading.fetch(2, P1)
    iteration = iterating(reading)
    assert iteration.positions() == {P0: 0, P1: 0} and iteration.current() is None
    first = next_of(iteration)
    assert first is not None and iteration.current() is first
    tp = TopicPartition("t", first.partition)
    assert iteration.positions() == {P0: 0, P1: 0} | {tp: 1}
    assert next_of(iteration) is not None
    assert iteration.positions() == {P1 if tp == P0 else P0: 0}
    assert [next_of(iteration) is not None for _ in range(3)] == [True, True, False]
    assert iteration.positions() == {} and iteration.current() is None


def test_the_rest_of_an_iteration_is_given_back_from_the_next_record_on() -> None:
    reading = Reading()
    reading.fetch(3)
    reading.fetch(2)
    iteration = iterating(reading)
    for _ in range(2):
        next_of(iteration)
    iteration.give_back()
    assert next_of(iteration) is None and iteration.positions() == {} and iteration.current() is None
    assert reading[P0].position == 2
    assert reading.take() == the(0, 2, 3, 4)


@pytest.mark.parametrize(("steps", "rest"), [(0, [0, 1, 2, 3, 4]), (3, [3, 4]), (5, [])])
def test_what_was_handed_out_to_its_end_is_not_given_back(steps: int, rest: list[int]) -> None:
    reading = Reading()
    reading.fetch(3)
    reading.fetch(2)
    iteration = iterating(reading)
    for _ in range(steps):
        assert next_of(iteration) is not None
    iteration.give_back()
    assert reading.take() == the(0, *rest)

"""Offsets of the source become offsets here, and no group misses a record."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from quorumlog.sdk.mirror.offset_map import MOST_RUNS, OffsetRun, joined, runs_of, translated


def test_records_without_a_gap_are_one_run() -> None:
    assert runs_of([40, 41, 42], [7, 8, 9]) == [OffsetRun(40, 7, 3)]


def test_a_gap_begins_another_run() -> None:
    assert runs_of([0, 2, 3, 9], [5, 6, 7, 8]) == [OffsetRun(0, 5, 1), OffsetRun(2, 6, 2), OffsetRun(9, 8, 1)]


def test_runs_that_follow_each_other_here_and_there_are_joined() -> None:
    assert joined([OffsetRun(0, 0, 5), OffsetRun(5, 5, 3), OffsetRun(9, 8, 1)]) == [
        OffsetRun(0, 0, 8),
        OffsetRun(9, 8, 1),
    ]


def test_what_is_before_all_runs_is_not_known() -> None:
    assert translated([OffsetRun(10, 0, 4)], 9) is None


@given(st.lists(st.integers(1, 4), min_size=1, max_size=3 * MOST_RUNS), st.integers(1, 7))
def test_who_goes_on_here_misses_nothing(steps: list[int], lap: int) -> None:
    source = [sum(steps[:count]) for count in range(1, len(steps) + 1)]
    runs: list[OffsetRun] = []
    for at in range(0, len(source), lap):
        runs = joined([*runs, *runs_of(source[at : at + lap], range(at, min(at + lap, len(source))))])
    for offset in range(source[-1] + 3):
        here = translated(runs, offset)
        unread = sum(each < offset for each in source)
        assert here is None or here <= unread, (offset, here, unread)
        if len(runs) < MOST_RUNS and here is not None:
            assert here == unread


def test_runs_are_joined_only_if_both_sides_continue() -> None:
    """Records that the target has from elsewhere in between shift what follows."""
    apart = [OffsetRun(0, 0, 5), OffsetRun(5, 6, 3)]
    assert joined(apart) == apart
    assert translated(apart, 5) == 6


def test_the_newest_runs_are_kept() -> None:
    """Groups whose positions are near the end of a log."""
    runs = [OffsetRun(10 * number, number, 1) for number in range(MOST_RUNS + 3)]
    assert joined(runs) == runs[3:]
    assert translated(joined(runs), runs[-1].source) == runs[-1].target


def test_records_of_others_begin_another_run() -> None:
    """A producer of the target has written in between."""
    assert runs_of([0, 1, 2, 3], [4, 5, 9, 10]) == [OffsetRun(0, 4, 2), OffsetRun(2, 9, 2)]


def test_unknown_offsets_are_completed() -> None:
    """A cluster does not remember where older batches of a repeated lap are."""
    before = [OffsetRun(0, 3, 2)]
    assert runs_of([2, 3, 4, 5], [-1, -1, 7, 8], before) == [OffsetRun(2, 5, 4)]
    assert runs_of([2, 3, 4, 5], [5, -1, -1, 8]) == [OffsetRun(2, 5, 4)]


def test_ambiguous_offsets_are_left_out() -> None:
    """Records of others are somewhere in between: a group there reads on behind the last known record."""
    before = [OffsetRun(0, 3, 2)]
    runs = runs_of([2, 3, 4, 5], [-1, -1, 9, 10], before)
    assert runs == [OffsetRun(4, 9, 2)]
    assert translated(joined([*before, *runs]), 3) == 5

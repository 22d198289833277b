"""Changes of leadership that count, and the limits for gaps."""

from quorumlog.chaos.processes.leaderships import METADATA, Leadership, differences
from quorumlog.chaos.processes.report import GapBounds, Report, Round


def test_another_leader_or_another_term_is_a_difference_and_a_new_partition_is_none() -> None:
    before = {"t-0": Leadership(1, 3, True), "t-1": Leadership(2, 1, True), METADATA: Leadership(1, 5, True)}
    now = {**before, "t-1": Leadership(3, 2, False), METADATA: Leadership(1, 6, True), "t-2": Leadership(1, 1, True)}
    assert differences(before, before) == []
    assert differences(before, now) == [
        "t-1 was led by node 2 in term 1, is now by node 3 in term 2",
        "metadata was led by node 1 in term 5, is now by node 1 in term 6",
    ]


def test_gaps_are_held_against_their_median_and_their_most() -> None:
    bounds = GapBounds(100, 300)
    assert bounds.met([50, 90, 300])
    assert not bounds.met([50, 110, 120])
    assert not bounds.met([50, 60, 301])


def test_a_missed_bound_is_told_and_breaks_no_promise() -> None:
    gap = Round(1, 2, True, 0, 1, gap_ms=450, recovery_gap_ms=1, shrink_s=None, full_s=0.1, stalls=0)
    report = Report("stop-leader", "", 1, bounds=GapBounds(100, 300), rounds=[gap])
    assert report.passed
    assert "required are a median of 100 ms and 300 ms at most: NOT met" in report.summary()

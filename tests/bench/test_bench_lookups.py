"""The benchmark of look-ups, in small: every answer is right, and everything is measured."""

import pytest

from bench.lookups import lines_of, measure


@pytest.mark.cluster
def test_look_ups_find_what_was_written_before_and_after_a_restart() -> None:
    figures = measure(records=20_000, small_batch=50, large_batch=2_000, repetitions=3, nodes=1)
    assert set(figures.partitions) == {"large-batches", "small-batches"}
    assert [one.batches for one in figures.partitions.values()] == [10, 400]
    assert all(taken.p50_ms > 0 for one in figures.partitions.values() for taken in one.latencies.values())
    assert 0 < figures.restart_s < 60
    assert len(lines_of(figures)) == 9

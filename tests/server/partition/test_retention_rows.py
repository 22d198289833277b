"""Which batches retention by time removes, by the rows of the offset index."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from quorumlog.server.metadata.topic_config import parse_topic_config
from quorumlog.server.partition.retention import LogRetention
from quorumlog.storage.batch_row import BatchRow, BatchTimes, next_row

NOW_MS = 1_700_000_000_000
RETENTION_MS = 10_000
OLD, YOUNG = NOW_MS - 60_000, NOW_MS - 5_000
YEAR_MS = 365 * 86_400_000


class Rows:
    """An offset index of batches of one record."""

    def __init__(self, times: Sequence[tuple[int, int]]) -> None:
        self.rows: list[BatchRow] = []
        for place, each in enumerate(times):
            row = next_row(self.rows[-1] if self.rows else None, place + 1, place, 1, BatchTimes(*each), 100)
            assert row is not None
            self.rows.append(row)

    def last_batch(self, group: int) -> BatchRow | None:
        return self.rows[-1] if self.rows else None

    def find_batch(self, group: int, first_offset: int, reached: Callable[[BatchRow], bool]) -> BatchRow | None:
        return next((row for row in self.rows if row.last_offset >= first_offset and reached(row)), None)


def log_start(*times: tuple[int, int]) -> int:
    """Where a log of batches with these largest timestamps and append times starts."""
    config = parse_topic_config({"retention.ms": str(RETENTION_MS)})
    rows = Rows(times)
    partition: Any = SimpleNamespace(
        group=1, config=config, log_start_offset=0, compacted_offset=-1, high_watermark=len(times)
    )
    retention = LogRetention(SimpleNamespace(), rows, {})  # type: ignore[arg-type]
    return retention._log_start(NOW_MS, partition)


@pytest.mark.parametrize(
    ("times", "start"),
    [
        pytest.param([(OLD, OLD), (OLD, OLD), (YOUNG, YOUNG)], 2, id="old-before-young"),
        pytest.param([(OLD, OLD), (OLD, YOUNG)], 1, id="filled-in"),
        pytest.param([(OLD, OLD), (YOUNG, OLD)], 1, id="young-timestamp"),
        pytest.param([(-1, OLD), (-1, YOUNG)], 1, id="no-timestamps"),
        pytest.param([(-1, -1), (OLD, OLD), (OLD, OLD)], 3, id="unknown-age-before-old"),
        pytest.param([(-1, -1), (OLD, YOUNG)], 0, id="unknown-age-before-young"),
        pytest.param([(-1, -1), (-1, -1)], 0, id="unknown-age-alone"),
        pytest.param([(OLD, NOW_MS + YEAR_MS), (OLD, OLD), (OLD, YOUNG)], 2, id="wrong-clock"),
        pytest.param([(OLD, NOW_MS + YEAR_MS)], 1, id="wrong-clock-alone"),
        pytest.param([(OLD, NOW_MS + 1_000)], 0, id="clock-a-little-ahead"),
    ],
)
def test_batches_are_removed_after_their_time(times: list[tuple[int, int]], start: int) -> None:
    assert log_start(*times) == start

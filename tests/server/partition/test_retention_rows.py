"""Retention by time: the batches that it removes, by the offset index and their append times."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from quorumlog.server.metadata.topic_config import parse_topic_config
from quorumlog.server.partition.retention import LogRetention
from quorumlog.storage.batch_row import BatchRow, next_row
from quorumlog.wire.entry import Codec, build_batch, seal_batch

pytestmark = pytest.mark.interpreted("a stand-in for the partition: compiled code checks types")

NOW_MS = 1_700_000_000_000
RETENTION_MS = 10_000
OLD, YOUNG = NOW_MS - 60_000, NOW_MS - 5_000
YEAR_MS = 365 * 86_400_000


class Log:
    """A log of batches of one record, with these largest timestamps and append times."""

    group = 1
    log_start_offset = 0
    compacted_offset = -1

    def __init__(self, times: Sequence[tuple[int, int]]) -> None:
        self.config = parse_topic_config({"retention.ms": str(RETENTION_MS)})
        self.high_watermark = self.last_stable_offset = len(times)
        self.rows: list[BatchRow] = []
        self.entries: list[bytes] = []
        for place, (largest_ms, appended_ms) in enumerate(times):
            row = next_row(self.rows[-1] if self.rows else None, place + 1, place, 1, largest_ms, 100)
            assert row is not None
            self.rows.append(row)
            batch = build_batch(
                bytes(8), record_count=1, codec=Codec.NONE, base_timestamp_ms=largest_ms, max_timestamp_ms=largest_ms
            )
            self.entries.append(
                seal_batch(
                    batch,
                    group=1,
                    term=1,
                    index=place + 1,
                    previous_hash=0,
                    base_offset=place,
                    append_time_ms=appended_ms,
                    stamps_records=False,
                )
            )

    def last_batch(self, group: int) -> BatchRow | None:
        return self.rows[-1] if self.rows else None

    def find_batch(self, group: int, first_offset: int, reached: Callable[[BatchRow], bool]) -> BatchRow | None:
        return next((row for row in self.rows if row.last_offset >= first_offset and reached(row)), None)

    def read(self, offset: int, max_bytes: int) -> list[bytes]:
        return self.entries[offset : offset + 1]


def log_start(*times: tuple[int, int]) -> int:
    """Returns the log start that retention chooses for batches with these largest timestamps and append times."""
    log: Any = Log(times)
    return LogRetention(SimpleNamespace(), log, {})._log_start(NOW_MS, log)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("times", "start"),
    [
        pytest.param([(OLD, OLD), (OLD, OLD), (YOUNG, YOUNG)], 2, id="old-before-young"),
        pytest.param([(OLD, OLD), (OLD, YOUNG)], 1, id="filled-in"),
        pytest.param([(OLD, OLD), (YOUNG, OLD)], 1, id="young-timestamp"),
        pytest.param([(-1, OLD), (-1, YOUNG)], 1, id="no-timestamps"),
        pytest.param([(-1, -1), (OLD, OLD), (OLD, OLD)], 3, id="unknown-age-before-old"),
        pytest.param([(-1, -1), (-1, -1), (YOUNG, YOUNG)], 0, id="unknown-age-before-young"),
        pytest.param([(-1, -1), (-1, -1)], 0, id="unknown-age-alone"),
        pytest.param([(OLD, NOW_MS + YEAR_MS), (OLD, OLD), (OLD, YOUNG)], 2, id="wrong-clock"),
        pytest.param([(OLD, YOUNG), (YOUNG, YOUNG)], 0, id="filled-in-before-young"),
        pytest.param([(OLD, NOW_MS + YEAR_MS)], 1, id="wrong-clock-alone"),
        pytest.param([(OLD, NOW_MS + 1_000)], 0, id="clock-a-little-ahead"),
    ],
)
def test_batches_are_removed_after_their_time(times: list[tuple[int, int]], start: int) -> None:
    assert log_start(*times) == start


def test_an_uncommitted_end_removes_nothing_young() -> None:
    """Recently appended batches with old timestamps are kept, also while the last batch waits for its followers."""
    log: Any = Log([(OLD, YOUNG), (OLD, YOUNG), (OLD, YOUNG)])
    log.high_watermark = log.last_stable_offset = 2
    log.read = lambda offset, most: log.entries[offset : offset + 1] if offset < log.high_watermark else []
    assert LogRetention(SimpleNamespace(), log, {})._log_start(NOW_MS, log) == 0  # type: ignore[arg-type]

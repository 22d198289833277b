"""A node reports the sizes of the logs that it leads to the controller."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from quorumlog.server.replicas.log_sizes import LogSizes
from quorumlog.storage.batch_row import BatchRow, next_row

GROUP = 1_000


def sizes_of(batches: list[int], first_kept: int = 0) -> int:
    """Returns the reported size of a log of batches of these sizes, ten records each.

    Arguments:
        first_kept: number of leading batches that retention has removed.
    """
    rows: list[BatchRow] = []
    for number, size in enumerate(batches):
        row = next_row(rows[-1] if rows else None, number + 1, number * 10, 10, 0, size)
        assert row is not None
        rows.append(row)
    kept = rows[first_kept:]
    partition = SimpleNamespace(
        group=GROUP,
        log_start_offset=first_kept * 10,
        compacted_log=None,
        snapshot=None,
        raft=SimpleNamespace(durable_index=len(batches)),
    )
    reader = SimpleNamespace(last_batch=lambda group: kept[-1] if kept else None, find_batch=lambda *_: kept[0])
    host = SimpleNamespace(led=lambda: [(GROUP, None)])
    reported = LogSizes(cast(Any, reader), cast(Any, host), cast(Any, SimpleNamespace(logs={GROUP: partition})))
    (one,) = reported.next_sizes()
    return one.size_bytes


@pytest.mark.parametrize("batches", [[600_000], [100, 200, 300], []], ids=["one", "some", "none"])
def test_all_batches_count_where_the_log_begins_at_its_first_offset(batches: list[int]) -> None:
    assert sizes_of(batches) == sum(batches)


def test_behind_what_retention_took_the_first_batch_is_not_counted() -> None:
    assert sizes_of([100, 200, 300, 400], first_kept=1) == 700

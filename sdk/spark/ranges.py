"""Reads exactly the offsets [start, end) of a partition: no gap, no duplicates, nothing beyond."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator

from quorumlog.sdk.spark.errors import DataLossError
from quorumlog.sdk.spark.planning import OffsetRange
from quorumlog.sdk.spark.rows import StoredRows

_log = logging.getLogger("quorumlog.sdk.spark")
_REMOVED = "retention or delete-records removed them"


def exact(stored: Iterable[StoredRows], wanted: OffsetRange, fail_on_data_loss: bool) -> Iterator[StoredRows]:
    """Clips fetched batches to the range, and verifies that no offset is missing.

    Exceptions are offsets removed by compaction, those of markers and aborted records, and unreadable batches that were
    skipped, which are logged.

    Raises:
        DataLossError: offsets of the range are missing, and ``fail_on_data_loss`` is set. Without it they are left out
            and logged.
    """
    expected = wanted.start
    for rows in stored:
        if rows.end <= expected:
            continue
        if rows.offset > max(expected, rows.compacted_offset):
            _lost(wanted, expected, min(rows.offset, wanted.end), fail_on_data_loss)
        if rows.skipped is not None:
            _log.warning(
                "topic %s partition %d: offsets [%d, %d) cannot be read and were skipped, since onCorrupt is skip: %s",
                wanted.topic, wanted.partition, rows.offset, rows.end, rows.skipped.reason,
            )  # fmt: skip
        elif not rows.is_empty and (piece := rows.clip(expected, wanted.end)).columns.num_rows:
            yield piece
        expected = rows.end
        if expected >= wanted.end:
            return
    if expected < wanted.end:
        _lost(wanted, expected, wanted.end, fail_on_data_loss, "the topic was deleted")


def _lost(wanted: OffsetRange, start: int, end: int, fail_on_data_loss: bool, why: str = _REMOVED) -> None:
    if fail_on_data_loss:
        raise missing(wanted, start, end)
    _log.warning("left out, since failOnDataLoss is false: %s", _gone(wanted, start, end, why))


def missing(wanted: OffsetRange, start: int, end: int) -> DataLossError:
    """Returns the error that names the missing offsets."""
    return DataLossError(
        f"{_gone(wanted, start, end)}: read from a later offset, or set failOnDataLoss to false to continue with what"
        " is there"
    )


def _gone(wanted: OffsetRange, start: int, end: int, why: str = _REMOVED) -> str:
    return (
        f"topic {wanted.topic} partition {wanted.partition}: offsets [{start}, {end}) are gone, the query reads"
        f" [{wanted.start}, {wanted.end}); {why}"
    )

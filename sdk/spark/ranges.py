"""Reading exactly the offsets [start, end) of a partition: no gap, nothing twice, nothing beyond."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from quorumlog.sdk.spark.errors import DataLossError
from quorumlog.sdk.spark.planning import OffsetRange
from quorumlog.sdk.spark.rows import StoredRows


def exact(stored: Iterable[StoredRows], wanted: OffsetRange, fail_on_data_loss: bool) -> Iterator[StoredRows]:
    """Clips stored batches, as fetched from ``wanted.start`` on, to the range and checks that none is missing.

    Raises:
        DataLossError: offsets of the range are missing, and ``fail_on_data_loss``; else they are left out.
    """
    expected = wanted.start
    for rows in stored:
        if rows.end <= expected:
            continue
        if rows.offset > expected:
            missing_end = min(rows.offset, wanted.end)
            if fail_on_data_loss:
                raise missing(wanted, expected, missing_end)
        piece = rows.clip(expected, wanted.end)
        if piece.columns.num_rows:
            yield piece
        expected = rows.end
        if expected >= wanted.end:
            return
    if expected < wanted.end and fail_on_data_loss:
        raise missing(wanted, expected, wanted.end)


def missing(wanted: OffsetRange, start: int, end: int) -> DataLossError:
    """The error that names what is gone."""
    return DataLossError(
        f"topic {wanted.topic} partition {wanted.partition}: offsets [{start}, {end}) are gone, the query reads"
        f" [{wanted.start}, {wanted.end}); retention or delete-records removed them: read from a later offset, or set"
        " failOnDataLoss to false to go on with what is there"
    )

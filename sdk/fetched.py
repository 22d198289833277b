"""Fetched batches on their way to the application: trimmed, cut to what a poll takes, turned into records or Arrow."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import lru_cache
from itertools import repeat
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from quorumlog.sdk.record_batch import HEADERS_TYPE, LOG_SCHEMA, TIMESTAMP_TYPE
from quorumlog.sdk.types import ConsumerRecord, Headers, TopicPartition
from quorumlog.v1.entry import BatchHeader, TimestampType

_COLUMNS: list[pa.Field[Any]] = [
    pa.field("topic", pa.string()),
    pa.field("partition", pa.int32()),
    pa.field("offset", pa.int64()),
    pa.field("timestamp", TIMESTAMP_TYPE),
    pa.field("key", pa.binary()),
    pa.field("value", pa.binary()),
    pa.field("headers", HEADERS_TYPE),
]
#: What ``poll_arrow`` returns.
CONSUMED_SCHEMA = pa.schema(_COLUMNS)
#: Constant columns are kept this long and sliced, so that a batch's share of them costs nothing.
_KEPT_ROWS = 16_384
#: As an Arrow value: given a Python number, pyarrow looks for the dateutil package on disk at every call.
_US_PER_MS = pa.scalar(1_000, pa.int64())
_new_record: Callable[[type[ConsumerRecord], Iterable[object]], ConsumerRecord] = tuple.__new__
_KEY, _VALUE, _TIMESTAMP, _HEADERS = (
    LOG_SCHEMA.get_field_index(name) for name in ("key", "value", "timestamp", "headers")
)


class FetchedRows(NamedTuple):
    """Rows of one stored batch, the first of them at ``offset``."""

    tp: TopicPartition
    offset: int
    header: BatchHeader
    columns: pa.RecordBatch
    size_bytes: int

    @property
    def next_offset(self) -> int:
        """The offset after the last row."""
        return self.offset + self.columns.num_rows

    def split(self, rows: int) -> tuple[FetchedRows, FetchedRows]:
        """The first ``rows`` rows and the others; the size goes with the latter, which keeps the bytes alive."""
        head = FetchedRows(self.tp, self.offset, self.header, self.columns.slice(0, rows), 0)
        rest = FetchedRows(self.tp, self.offset + rows, self.header, self.columns.slice(rows), self.size_bytes)
        return head, rest


def to_records(
    fetched: FetchedRows,
    key_deserializer: Callable[[bytes], Any] | None = None,
    value_deserializer: Callable[[bytes], Any] | None = None,
) -> list[ConsumerRecord]:
    """The rows as records."""
    columns = fetched.columns
    keys = columns.column(_KEY).to_pylist()
    values = columns.column(_VALUE).to_pylist()
    if key_deserializer is not None:
        keys = [None if key is None else key_deserializer(key) for key in keys]
    if value_deserializer is not None:
        values = [None if value is None else value_deserializer(value) for value in values]
    offsets = range(fetched.offset, fetched.next_offset)
    # zip and tuple.__new__ keep the loop in C: a fifth of the cost of calling the class.
    rows = zip(
        repeat(fetched.tp.topic), repeat(fetched.tp.partition), offsets, _timestamps_ms(fetched), keys, values,
        _headers(columns.column(_HEADERS)), strict=False,
    )  # fmt: skip
    return list(map(_new_record, repeat(ConsumerRecord), rows))


def _timestamps_ms(fetched: FetchedRows) -> Iterable[int | None]:
    if fetched.header.timestamp_type is TimestampType.LOG_APPEND_TIME:
        return repeat(fetched.header.max_timestamp_ms)
    microseconds = fetched.columns.column(_TIMESTAMP).view(pa.int64())
    milliseconds: list[int | None] = pc.divide(microseconds, _US_PER_MS).to_pylist()
    return milliseconds


def _headers(column: pa.Array[Any]) -> Iterable[Headers]:
    if column.null_count == len(column):
        return repeat(())
    return [[(pair["key"], pair["value"]) for pair in pairs] if pairs else () for pairs in column.to_pylist()]


def to_table(fetched: Iterable[FetchedRows]) -> pa.Table:
    """The rows as one table of :data:`CONSUMED_SCHEMA`; keys, values and headers point into the fetched bytes."""
    return pa.Table.from_batches([_with_place(rows) for rows in fetched], CONSUMED_SCHEMA)


def _with_place(fetched: FetchedRows) -> pa.RecordBatch:
    count = fetched.columns.num_rows
    if fetched.header.timestamp_type is TimestampType.LOG_APPEND_TIME:
        timestamps: pa.Array[Any] = pa.array([fetched.header.max_timestamp_ms * 1_000] * count, TIMESTAMP_TYPE)
    else:
        timestamps = fetched.columns.column(_TIMESTAMP)
    return pa.RecordBatch.from_arrays(
        [
            _constant(fetched.tp.topic, pa.string(), count),
            _constant(fetched.tp.partition, pa.int32(), count),
            pc.add(_ramp(count), pa.scalar(fetched.offset, pa.int64())),
            timestamps,
            fetched.columns.column(_KEY),
            fetched.columns.column(_VALUE),
            fetched.columns.column(_HEADERS),
        ],
        schema=CONSUMED_SCHEMA,
    )


def _constant(value: str | int, kind: pa.DataType, count: int) -> pa.Array[Any]:
    return _kept_constant(value, kind).slice(0, count) if count <= _KEPT_ROWS else pa.array([value] * count, kind)


@lru_cache(maxsize=256)
def _kept_constant(value: str | int, kind: pa.DataType) -> pa.Array[Any]:
    return pa.array([value] * _KEPT_ROWS, kind)


def _ramp(count: int) -> pa.Array[Any]:
    return _kept_ramp().slice(0, count) if count <= _KEPT_ROWS else pa.array(range(count), pa.int64())


@lru_cache(maxsize=1)
def _kept_ramp() -> pa.Array[Any]:
    return pa.array(range(_KEPT_ROWS), pa.int64())

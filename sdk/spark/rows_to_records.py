"""Converts Spark's rows to records for topics and partitions: pure Arrow.

The order of rows is kept within each partition, and so for records of one key.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from quorumlog.sdk.records.arrow_partitioner import partitions_of
from quorumlog.sdk.records.record_batch import BATCH_BASE_BYTES, split_by_bytes, without_empty_headers
from quorumlog.sdk.spark.errors import DeliveryError, SchemaError
from quorumlog.sdk.spark.planning import TopicShape
from quorumlog.wire.payload import LOG_SCHEMA, TIMESTAMP_TYPE

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

#: Approximate size of one stored batch: with overhead it is below the default limit of a topic (max.message.bytes, 1
#: MiB). A node's work is per batch, so that a few large ones cost least.
BATCH_BYTES = 960 << 10
#: Rows without a key and a partition go to one partition in runs of this many.
KEYLESS_RUN = 8_192

_HEADERS = "array<struct<key:string,value:binary>>"
#: Columns that can be written, and the Spark types allowed for each.
COLUMNS: Mapping[str, tuple[str, ...]] = {
    "topic": ("string",),
    "partition": ("int",),
    "key": ("binary", "string"),
    "value": ("binary", "string"),
    "timestamp": ("timestamp",),
    "headers": (_HEADERS,),
}
_TYPES = {"topic": pa.string(), "partition": pa.int32(), **{field.name: field.type for field in LOG_SCHEMA}}


#: Rows that follow each other and go to one partition: (its number, first row, row after the last).
Run = tuple[int, int, int]


class TargetPartition(NamedTuple):
    """A partition to write to."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"topic {self.topic} partition {self.partition}"


@dataclass(frozen=True, slots=True)
class Spread:
    """The parameters that decide the partition of rows.

    Attributes:
        shapes: the present topics.
        timestamp_ms: of rows without one.
        turn: number that makes tasks start with different partitions where nothing else decides.
        rows_before: number of rows that the task has already sent: rows without a key fill partitions in turn from
            there.
    """

    shapes: Mapping[str, TopicShape]
    timestamp_ms: int
    turn: int
    rows_before: int


def check_columns(schema: StructType, topic: str | None) -> None:
    """Validates the columns to write.

    Arguments:
        topic: of all rows; None if a column names it.

    Raises:
        SchemaError: a column is unknown, missing, or of another type.
    """
    types = {column.name: column.dataType.simpleString() for column in schema.fields}
    for name, actual in types.items():
        if [column.name for column in schema.fields].count(name) > 1:
            raise SchemaError(f"column {name!r} is there twice: drop one of them")
        if name not in COLUMNS:
            raise SchemaError(f"column {name!r} cannot be written: the columns of a record are {', '.join(COLUMNS)}")
        if actual not in COLUMNS[name]:
            raise SchemaError(f"column {name!r} is {actual}: cast it to {' or '.join(COLUMNS[name])}")
    if "value" not in types:
        raise SchemaError("there is no column 'value': give that name to the column to write")
    if topic is None and "topic" not in types:
        raise SchemaError("neither option topic nor a column 'topic' says where to write: give one of them")
    if topic is not None and "topic" in types:
        raise SchemaError(f"option topic ({topic!r}) and a column 'topic' are given: remove one of them")


def rows_of(batch: pa.RecordBatch, topic: str | None) -> pa.Table:
    """Returns Spark's rows with all columns of a record, those of :data:`COLUMNS`; missing ones are null.

    Raises:
        DeliveryError: a row has no topic, or a partition below 0.
    """
    columns: list[Any] = []
    for name, kind in _TYPES.items():
        if name == "topic" and topic is not None:
            column: Any = pa.repeat(pa.scalar(topic, pa.string()), batch.num_rows)
        elif name in batch.schema.names:
            column = batch.column(name)
            column = column if column.type == kind else column.cast(kind)
            if name == "headers":
                _check_headers(column)
                column = without_empty_headers(column)
        else:
            column = pa.nulls(batch.num_rows, kind)
        columns.append(column)
    rows = pa.Table.from_arrays(columns, names=list(_TYPES))
    if rows.column("topic").null_count:
        raise DeliveryError("a row's topic is null: every row needs one, or give option topic")
    lowest: Any = pc.min(rows.column("partition")).as_py()
    if lowest is not None and lowest < 0:
        raise DeliveryError(f"a row's partition is {lowest}: partitions are numbered from 0, null leaves the choice")
    return rows


def _check_headers(column: Any) -> None:
    pairs = column.flatten()
    if pairs.null_count or pairs.field("key").null_count:
        raise DeliveryError("a row has a header without a name: name every header, or leave it out of the list")


def topics_of(rows: pa.Table) -> list[str]:
    """Returns the topics of rows, sorted."""
    names: Any = pc.unique(rows.column("topic")).to_pylist()
    return sorted(names)


def spread(rows: pa.Table, how: Spread) -> Iterator[tuple[TargetPartition, pa.Table]]:
    """Yields rows by partition, with the columns of a record, in the order of topics and partitions.

    Raises:
        DeliveryError: a row names a partition that its topic does not have.
    """
    one = len(how.shapes) == 1 and rows.num_rows > 0
    for topic in how.shapes if one else topics_of(rows):
        mine = (rows if one else _going_to(rows, topic)).combine_chunks()
        runs, records = _destinations(mine, topic, how), _records(mine, how.timestamp_ms)
        if not isinstance(runs, list):
            order = pc.array_sort_indices(runs)
            records, runs = records.take(order), list(_runs(runs.take(order)))
        slices: dict[int, list[pa.Table]] = {}
        for number, first, last in runs:
            slices.setdefault(number, []).append(records.slice(first, last - first))
        for number in sorted(slices):
            yield TargetPartition(topic, number), pa.concat_tables(slices[number])


def _going_to(rows: pa.Table, topic: str) -> pa.Table:
    return rows.filter(pc.equal(rows.column("topic"), pa.scalar(topic, pa.string())))


def _destinations(rows: pa.Table, topic: str, how: Spread) -> list[Run] | Any:
    """Returns the partition of each row: the fixed one, otherwise one in turn; as runs if they are long anyway."""
    count = how.shapes[topic].partition_count
    if count == 1 and rows.column("partition").null_count == rows.num_rows:
        return [(0, 0, rows.num_rows)]
    chosen = _fixed(rows, topic, how)
    in_turn = list(_in_turn(rows.num_rows, count, how))
    if chosen.null_count == len(chosen):
        return in_turn
    if not chosen.null_count:
        return chosen
    return pc.coalesce(
        chosen,
        pa.concat_arrays([pa.repeat(pa.scalar(number, pa.int32()), last - first) for number, first, last in in_turn]),
    )


def _in_turn(rows: int, count: int, how: Spread) -> Iterator[Run]:
    """Yields runs for rows without a fixed partition, which fill one partition's batch, then the next one's."""
    first = 0
    while first < rows:
        turn, filled = divmod(how.rows_before + first, KEYLESS_RUN)
        last = min(rows, first + KEYLESS_RUN - filled)
        yield (how.turn + turn) % count, first, last
        first = last


def _fixed(rows: pa.Table, topic: str, how: Spread) -> Any:
    """Returns the partition that each row names, otherwise that of its key; null for rows with neither."""
    named = _flat(rows.column("partition"))
    highest: Any = pc.max(named).as_py()
    there = how.shapes[topic].partition_count
    if highest is not None and highest >= there:
        raise DeliveryError(f"a row names partition {highest} of topic {topic}, which has {there} (0 to {there - 1})")
    if not named.null_count:
        return named
    keys = _flat(rows.column("key"))
    if keys.null_count == len(keys):
        return named
    keys = keys.dictionary_encode()
    of_keys = partitions_of(keys.dictionary, there)
    return pc.coalesce(named, of_keys.take(keys.indices))


def _records(rows: pa.Table, timestamp_ms: int) -> pa.Table:
    records = rows.select(LOG_SCHEMA.names)
    place = LOG_SCHEMA.get_field_index("timestamp")
    if records.column(place).null_count:
        now: Any = pa.scalar(timestamp_ms * 1_000, TIMESTAMP_TYPE)
        records = records.set_column(place, LOG_SCHEMA.field(place), pc.fill_null(records.column(place), now))
    return records.cast(LOG_SCHEMA)


def _runs(numbers: Any) -> Iterator[Run]:
    """Yields runs of equal consecutive numbers."""
    runs = pc.call_function("run_end_encode", [numbers])
    ends = [0, *runs.run_ends.to_pylist()]
    for number, (first, last) in zip(runs.values.to_pylist(), pairwise(ends), strict=True):
        yield number, first, last


def _flat(column: pa.ChunkedArray[Any]) -> Any:
    return column.chunk(0) if column.num_chunks == 1 else pa.concat_arrays(column.chunks)


def cut(records: pa.Table, max_message_bytes: int) -> Iterator[pa.RecordBatch]:
    """Cuts records into the batches to store.

    Arguments:
        max_message_bytes: the topic's limit of a batch. A larger row is alone in its batch.
    """
    # Incompressible data grows slightly.
    limit = min(BATCH_BYTES, max_message_bytes - BATCH_BASE_BYTES - max_message_bytes // 256)
    for batch in records.combine_chunks().to_batches():
        yield from (piece for piece in split_by_bytes(batch, limit) if piece.num_rows)

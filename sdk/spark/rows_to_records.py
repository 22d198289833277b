"""Converts Spark's rows to records for topics and partitions: pure Arrow, the same in every run.

The order of rows is kept within each partition, and so for records of one key.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
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


#: A record's key, value, timestamp and headers.
Record = tuple[Any, ...]
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
    """The parameters that decide the partition of rows: the same in every run of a piece of work.

    Attributes:
        shapes: the present topics.
        timestamp_ms: of rows without one.
        turn: number that makes tasks start with different partitions where nothing else decides.
        rows_before: number of rows that the task has already sent: rows without a key fill partitions in turn from
            there. None if rows may be repeated in another order: then all those without a key go to one partition.
            Otherwise two concurrent runs would put one row into different partitions, and neither log could recognise
            it as a duplicate.
        first_counts: of partitions, if a first run saw fewer than the present ones.
    """

    shapes: Mapping[str, TopicShape]
    timestamp_ms: int
    turn: int
    rows_before: int | None = None
    first_counts: Mapping[str, int] = field(default_factory=dict)

    def partition_count(self, topic: str) -> int:
        """Returns the number of partitions among which a topic's rows are distributed."""
        return self.first_counts.get(topic, self.shapes[topic].partition_count)


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


def no_rows() -> pa.Table:
    """Returns an empty table with all columns."""
    return pa.Table.from_arrays([pa.array([], kind) for kind in _TYPES.values()], names=list(_TYPES))


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
    count = how.partition_count(topic)
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
    if how.rows_before is None:
        yield how.turn % count, 0, rows
        return
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
    # The present number counts: a user who adds the missing partition may continue.
    there = how.shapes[topic].partition_count
    if highest is not None and highest >= there:
        raise DeliveryError(f"a row names partition {highest} of topic {topic}, which has {there} (0 to {there - 1})")
    if not named.null_count:
        return named
    keys = _flat(rows.column("key"))
    if keys.null_count == len(keys):
        return named
    keys = keys.dictionary_encode()
    of_keys = partitions_of(keys.dictionary, how.partition_count(topic))
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
    """Cuts records into the batches to store, in the same places whenever the records are the same.

    Arguments:
        max_message_bytes: the topic's limit of a batch. A larger row is alone in its batch.
    """
    # Incompressible data grows slightly.
    limit = min(BATCH_BYTES, max_message_bytes - BATCH_BASE_BYTES - max_message_bytes // 256)
    for batch in records.combine_chunks().to_batches():
        yield from (piece for piece in split_by_bytes(batch, limit) if piece.num_rows)


def rest_of(
    rows: pa.Table, stored: Mapping[TargetPartition, Sequence[pa.RecordBatch]], how: Spread
) -> list[tuple[TargetPartition, pa.Table]]:
    """Returns the records that an earlier run of the same work has not stored yet, by partition.

    Stored records are usually the first ones of each partition. A plan that shuffles returns the same rows in another
    order each time: then they are compared one by one.

    Raises:
        DeliveryError: a stored record is not among the rows: the plan returns different rows each time.
    """
    there = {target: pa.Table.from_batches(batches) for target, batches in stored.items() if batches}
    rest: list[tuple[TargetPartition, pa.Table]] = []
    for target, records in spread(rows, how):
        found = there.pop(target, None)
        rest.append((target, records if found is None else _without(records, found, target)))
    for target, found in there.items():
        raise _other_rows(target, found.num_rows)
    return [(target, records) for target, records in rest if records.num_rows]


def _without(records: pa.Table, found: pa.Table, target: TargetPartition) -> pa.Table:
    """Returns the records that are not stored yet, in order, counting duplicates."""
    if records.slice(0, found.num_rows).equals(found):
        return records.slice(found.num_rows)
    left = Counter(as_tuples(found))
    new: list[int] = []
    for place, record in enumerate(as_tuples(records)):
        if left[record] > 0:
            left[record] -= 1
        else:
            new.append(place)
    if surplus := left.total():
        raise _other_rows(target, surplus)
    return records.take(pa.array(new, pa.int64()))


def _other_rows(target: TargetPartition, count: int) -> DeliveryError:
    return DeliveryError(
        f"{count} records that an earlier run of this batch wrote to {target} are not among its task's rows now: the"
        " query does not give the same rows each time (now(), rand(), a source that has changed), or its tasks are"
        " divided otherwise. This task has added nothing. Start it again with another checkpoint, or"
        " another transactionId"
    )


def as_tuples(records: pa.Table) -> Iterator[Record]:
    """Yields records as tuples that can be compared and counted."""
    headers = (
        None if pairs is None else tuple((pair["key"], pair["value"]) for pair in pairs)
        for pairs in records.column("headers").to_pylist()
    )
    times: Any = records.column("timestamp").cast(pa.int64()).to_pylist()
    return zip(records.column("key").to_pylist(), records.column("value").to_pylist(), times, headers, strict=True)

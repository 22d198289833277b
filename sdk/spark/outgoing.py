"""Rows that Spark hands to a sink, as records for topics and partitions: pure Arrow, the same in every run.

The order of rows stays within each partition, so that records of one key keep theirs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from quorumlog.sdk.arrow_murmur2 import partitions_of
from quorumlog.sdk.record_batch import split_by_bytes, without_empty_headers
from quorumlog.sdk.spark.errors import DeliveryError, SchemaError
from quorumlog.v1.payload import LOG_SCHEMA, TIMESTAMP_TYPE

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

#: Bytes of one stored batch, about: with what is stored around it, it is below what a topic takes unless told otherwise
#: (max.message.bytes, 1 MiB). A node's work is by the batch, so that few large ones cost least.
BATCH_BYTES = 960 << 10
#: Rows without a key and a partition go to one partition in runs of this many.
KEYLESS_RUN = 8_192

_HEADERS = "array<struct<key:string,value:binary>>"
#: Columns that can be written, and the Spark types that each may have.
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


class Target(NamedTuple):
    """A partition to write to."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"topic {self.topic} partition {self.partition}"


@dataclass(frozen=True, slots=True)
class Spread:
    """What decides where rows go: the same in every run of the same piece of work.

    Attributes:
        partition_counts: of each topic.
        timestamp_ms: of rows that have none.
        task: number of the Spark partition, so that tasks begin with different partitions where nothing else decides.
        rows_before: that the task has sent already: partitions go on in turn from there.
    """

    partition_counts: Mapping[str, int]
    timestamp_ms: int
    task: int
    rows_before: int = 0


def check_columns(schema: StructType, topic: str | None) -> None:
    """Checks the columns of what is to be written.

    Arguments:
        topic: that all rows go to; None where a column says.

    Raises:
        SchemaError: a column is unknown, missing, or of another type.
    """
    types = {field.name: field.dataType.simpleString() for field in schema.fields}
    for name, given in types.items():
        if name not in COLUMNS:
            raise SchemaError(f"column {name!r} cannot be written: the columns of a record are {', '.join(COLUMNS)}")
        if given not in COLUMNS[name]:
            raise SchemaError(f"column {name!r} is {given}: cast it to {' or '.join(COLUMNS[name])}")
    if "value" not in types:
        raise SchemaError("there is no column 'value': name what is to be written so")
    if topic is None and "topic" not in types:
        raise SchemaError("neither option topic nor a column 'topic' says where to write: give one of them")
    if topic is not None and "topic" in types:
        raise SchemaError(f"option topic ({topic!r}) and a column 'topic' are given: remove one of them")


def rows_of(batch: pa.RecordBatch, topic: str | None) -> pa.Table:
    """Spark's rows with all columns that a record can have, those of :data:`COLUMNS`; what is missing is null.

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


def no_rows() -> pa.Table:
    """No rows, with all columns."""
    return pa.Table.from_arrays([pa.array([], kind) for kind in _TYPES.values()], names=list(_TYPES))


def topics_of(rows: pa.Table) -> list[str]:
    """The topics that rows go to, in order."""
    names: Any = pc.unique(rows.column("topic")).to_pylist()
    return sorted(names)


def spread(rows: pa.Table, how: Spread) -> Iterator[tuple[Target, pa.Table]]:
    """Rows by partition, with the columns of a record, in the order of topics and partitions.

    Raises:
        DeliveryError: a row names a partition that its topic does not have.
    """
    one = len(how.partition_counts) == 1 and rows.num_rows > 0
    for topic in how.partition_counts if one else topics_of(rows):
        mine = (rows if one else _going_to(rows, topic)).combine_chunks()
        runs, records = _destinations(mine, topic, how), _records(mine, how.timestamp_ms)
        if not isinstance(runs, list):
            order = pc.array_sort_indices(runs)
            records, runs = records.take(order), list(_runs(runs.take(order)))
        slices: dict[int, list[pa.Table]] = {}
        for number, first, last in runs:
            slices.setdefault(number, []).append(records.slice(first, last - first))
        for number in sorted(slices):
            yield Target(topic, number), pa.concat_tables(slices[number])


def _going_to(rows: pa.Table, topic: str) -> pa.Table:
    return rows.filter(pc.equal(rows.column("topic"), pa.scalar(topic, pa.string())))


def _destinations(rows: pa.Table, topic: str, how: Spread) -> list[Run] | Any:
    """The partition of each row: where it belongs, else some in turn; as runs where they are long anyway."""
    count = how.partition_counts[topic]
    if count == 1 and rows.column("partition").null_count == rows.num_rows:
        return [(0, 0, rows.num_rows)]
    chosen = _fixed(rows, topic, count)
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
    """Rows that may go anywhere fill one partition's batch, then the next one's."""
    first = 0
    while first < rows:
        turn, filled = divmod(how.rows_before + first, KEYLESS_RUN)
        last = min(rows, first + KEYLESS_RUN - filled)
        yield (how.task + turn) % count, first, last
        first = last


def _fixed(rows: pa.Table, topic: str, count: int) -> Any:
    """The partition that each row names, else that of its key; null for rows with neither."""
    named = _flat(rows.column("partition"))
    highest: Any = pc.max(named).as_py()
    if highest is not None and highest >= count:
        raise DeliveryError(f"a row names partition {highest} of topic {topic}, which has {count} (0 to {count - 1})")
    if not named.null_count:
        return named
    keys = _flat(rows.column("key"))
    if keys.null_count == len(keys):
        return named
    keys = keys.dictionary_encode()
    return pc.coalesce(named, partitions_of(keys.dictionary, count).take(keys.indices))


def _records(rows: pa.Table, timestamp_ms: int) -> pa.Table:
    records = rows.select(LOG_SCHEMA.names)
    place = LOG_SCHEMA.get_field_index("timestamp")
    if records.column(place).null_count:
        now: Any = pa.scalar(timestamp_ms * 1_000, TIMESTAMP_TYPE)
        records = records.set_column(place, LOG_SCHEMA.field(place), pc.fill_null(records.column(place), now))
    return records.cast(LOG_SCHEMA)


def _runs(numbers: Any) -> Iterator[Run]:
    """Equal numbers that follow each other."""
    runs = pc.call_function("run_end_encode", [numbers])
    ends = [0, *runs.run_ends.to_pylist()]
    for number, (first, last) in zip(runs.values.to_pylist(), pairwise(ends), strict=True):
        yield number, first, last


def _flat(column: pa.ChunkedArray[Any]) -> Any:
    return column.chunk(0) if column.num_chunks == 1 else pa.concat_arrays(column.chunks)


def cut(records: pa.Table) -> Iterator[pa.RecordBatch]:
    """Records as the batches that are stored, cut in the same places whenever the records are the same."""
    for batch in records.combine_chunks().to_batches():
        yield from (piece for piece in split_by_bytes(batch, BATCH_BYTES) if piece.num_rows)


def rest_of(rows: pa.Table, stored: Mapping[Target, Sequence[pa.RecordBatch]], how: Spread) -> pa.Table:
    """The rows that an earlier run of the same work has not stored yet.

    A plan that shuffles hands over the same rows in another order each time: so they are compared one by one.

    Raises:
        DeliveryError: something is stored that is not among the rows: the plan gives other rows each time.
    """
    there = _Stored(stored)
    kept: list[Any] = []
    for topic in topics_of(rows):
        mine = _going_to(rows, topic).combine_chunks()
        fixed: Any = _fixed(mine, topic, how.partition_counts[topic]).to_pylist()
        records = _as_tuples(_records(mine, how.timestamp_ms))
        left = [place for place, record in enumerate(records) if not there.take(topic, fixed[place], record)]
        kept.append(mine.take(pa.array(left, pa.int64())))
    there.check_empty()
    return pa.concat_tables(kept) if kept else rows


class _Stored:
    """Records that are there, counted, to be struck off."""

    def __init__(self, stored: Mapping[Target, Sequence[pa.RecordBatch]]) -> None:
        self._left = {
            target: Counter(_as_tuples(pa.Table.from_batches(batches))) for target, batches in stored.items() if batches
        }

    def take(self, topic: str, partition: int | None, record: tuple[Any, ...]) -> bool:
        """Strikes a record off, wherever it is when ``partition`` is None; False where it is not there."""
        for target, left in self._left.items():
            if target.topic == topic and partition in {None, target.partition} and left[record] > 0:
                left[record] -= 1
                return True
        return False

    def check_empty(self) -> None:
        """Raises where something is there that nobody has struck off."""
        for target, left in self._left.items():
            surplus = left.total()
            if surplus:
                raise DeliveryError(
                    f"{surplus} records that an earlier run of this batch wrote to {target} are not among its rows now:"
                    " the query does not give the same rows each time (now(), rand(), a source that has changed), or"
                    " its tasks are divided otherwise. Nothing was added. Start it anew with another checkpoint"
                )


def _as_tuples(records: pa.Table) -> Iterator[tuple[Any, ...]]:
    headers = (
        None if pairs is None else tuple((pair["key"], pair["value"]) for pair in pairs)
        for pairs in records.column("headers").to_pylist()
    )
    times: Any = records.column("timestamp").cast(pa.int64()).to_pylist()
    return zip(records.column("key").to_pylist(), records.column("value").to_pylist(), times, headers, strict=True)

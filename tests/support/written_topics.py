"""Topics filled with records that differ in all that a record can differ in, and what has to be in them, as Arrow."""

from __future__ import annotations

from contextlib import ExitStack
from random import Random
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from quorumlog.local import LocalCluster
from quorumlog.sdk import Admin, NewTopic, Producer
from quorumlog.sdk.records.fetched import CONSUMED_SCHEMA
from quorumlog.wire.payload import LOG_SCHEMA

#: All codecs there are.
CODECS = ("none", "lz4", "zstd")
#: Records that are sent between two flushes, by one producer and in one way.
ROUND = 250
#: One record of so many has a value of up to 900 KiB.
LARGE_EVERY = 4_000
LARGEST_BYTES = 900 << 10
COMPACTED_KEYS = 500
#: 2023-11-14T22:13:20Z.
START_US = 1_700_000_000_000_000
YEAR_US = 365 * 86_400 * 1_000_000
_HEADER_NAMES = ("h", "", "trace-id", "\u00fc\u4e16\U0001f600")


class Record(NamedTuple):
    """A record to be sent."""

    key: bytes | None
    value: bytes | None
    timestamp_us: int
    headers: list[tuple[str, bytes | None]] | None


class Topic(NamedTuple):
    """A topic, and how it is filled.

    Attributes:
        codec: under which Spark writes it back.
        is_compacted: it has few keys, each of them often, and the last record of each is kept.
        is_stamped: the timestamps are the leaders'.
    """

    name: str
    partitions: int
    codec: str
    is_compacted: bool = False
    is_stamped: bool = False

    def new(self) -> NewTopic:
        """As it is created."""
        # The records' times are made up, and old: retention would take them.
        configs = {"retention.ms": "-1"}
        if self.is_compacted:
            configs |= {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.2"}
        if self.is_stamped:
            configs["message.timestamp.type"] = "LogAppendTime"
        return NewTopic(self.name, self.partitions, 3, configs)


def create(cluster: LocalCluster, *topics: Topic) -> None:
    """Creates topics."""
    with Admin(bootstrap_servers=cluster.bootstrap_servers) as admin:
        admin.create_topics([topic.new() for topic in topics])


def fill(cluster: LocalCluster, topic: Topic, count: int, random: Random) -> pa.Table:
    """Writes ``count`` records, record by record and as tables, under all codecs.

    Returns:
        what was written, sorted by partition and offset, with the columns of ``Consumer.poll_arrow``.
    """
    rounds: list[pa.Table] = []
    with ExitStack() as stack:
        producers = [
            stack.enter_context(Producer(bootstrap_servers=cluster.bootstrap_servers, compression_type=codec))
            for codec in CODECS
        ]
        for number, first in enumerate(range(0, count, ROUND)):
            records = [_record(random, topic, place) for place in range(first, min(first + ROUND, count))]
            producer = producers[number % len(CODECS)]
            # Of records in a table no producer has the time that the leader gives them.
            one_by_one = topic.is_stamped or number // len(CODECS) % 2 == 0
            rounds.append((_send if one_by_one else _send_table)(producer, topic, records, random))
    table = pa.concat_tables(rounds).sort_by([("partition", "ascending"), ("offset", "ascending")])
    for partition in range(topic.partitions):
        offsets = of_partition(table, partition).column("offset")
        assert offsets.to_pylist() == list(range(len(offsets))), "offsets follow each other"
    return table


def of_partition(table: pa.Table, partition: int) -> pa.Table:
    """The rows of one partition."""
    return table.filter(pc.equal(table.column("partition"), pa.scalar(partition, pa.int32())))


def _record(random: Random, topic: Topic, place: int) -> Record:
    return Record(
        _key(random, topic.is_compacted),
        _value(random, place),
        # Whole milliseconds where a record is sent on its own; tables have microseconds, see _send_table.
        random.choice((0, START_US + random.randrange(-YEAR_US, YEAR_US), START_US + place * 1_000)) // 1_000 * 1_000,
        _headers(random),
    )


def _key(random: Random, is_compacted: bool) -> bytes | None:
    if is_compacted:
        number = random.randrange(COMPACTED_KEYS)
        return b"" if number == 0 else b"\xff%d" % number
    chosen = random.random()
    if chosen < 0.1:
        return None
    if chosen < 0.15:
        return b""
    return random.randbytes(2_000) if chosen < 0.152 else b"key-%d\x00" % random.randrange(5_000)


def _value(random: Random, place: int) -> bytes | None:
    if place % LARGE_EVERY == LARGE_EVERY // 2:
        size = random.randrange(LARGEST_BYTES // 2, LARGEST_BYTES)
        return random.choice((random.randbytes(size), b"x" * size))
    chosen = random.random()
    if chosen < 0.1:
        return None
    if chosen < 0.15:
        return b""
    return random.randbytes(random.randrange(5_000, 20_000) if chosen < 0.16 else random.randrange(1, 100))


def _headers(random: Random) -> list[tuple[str, bytes | None]] | None:
    chosen = random.random()
    if chosen < 0.6:
        return None
    names = random.choices(_HEADER_NAMES, k=1 if chosen < 0.8 else random.randrange(5))
    return [(name, random.choice((None, b"", random.randbytes(8)))) for name in names]


def _send(producer: Producer, topic: Topic, records: list[Record], random: Random) -> pa.Table:
    futures = [
        producer.send(
            topic.name,
            record.value,
            key=record.key,
            headers=record.headers,
            partition=random.choice((None, random.randrange(topic.partitions))),
            timestamp_ms=record.timestamp_us // 1_000,
        )
        for record in records
    ]
    producer.flush()
    places = [future.result() for future in futures]
    if topic.is_stamped:
        records = [
            record._replace(timestamp_us=place.timestamp * 1_000) for record, place in zip(records, places, strict=True)
        ]
    return _table(topic, records, [place.partition for place in places], [place.offset for place in places])


def _send_table(producer: Producer, topic: Topic, records: list[Record], random: Random) -> pa.Table:
    partition = random.randrange(topic.partitions)
    records = [record._replace(timestamp_us=record.timestamp_us + random.randrange(1_000)) for record in records]
    sent = producer.send_arrow(topic.name, _log_table(records), partition=partition).result()
    offsets = [batch.base_offset + row for batch in sent for row in range(batch.record_count)]
    return _table(topic, records, [partition] * len(records), offsets)


def _log_table(records: list[Record]) -> pa.Table:
    headers = [
        None if record.headers is None else [{"key": name, "value": value} for name, value in record.headers]
        for record in records
    ]
    columns: list[Any] = [
        pa.array([record.key for record in records], pa.binary()),
        pa.array([record.value for record in records], pa.binary()),
        pa.array([record.timestamp_us for record in records], pa.int64()).view(LOG_SCHEMA.field("timestamp").type),
        pa.array(headers, LOG_SCHEMA.field("headers").type),
    ]
    return pa.Table.from_arrays(columns, schema=LOG_SCHEMA)


def _table(topic: Topic, records: list[Record], partitions: list[int], offsets: list[int]) -> pa.Table:
    # What a log keeps of a record with an empty list of headers is that it has none.
    sent = _log_table([record._replace(headers=record.headers or None) for record in records])
    columns = {
        "topic": pa.array([topic.name] * len(records), pa.string()),
        "partition": pa.array(partitions, pa.int32()),
        "offset": pa.array(offsets, pa.int64()),
        **{name: sent.column(name) for name in LOG_SCHEMA.names},
    }
    return pa.table([columns[name] for name in CONSUMED_SCHEMA.names], schema=CONSUMED_SCHEMA)

"""Checks given records, chooses their partitions, and adds them to the accumulator.

Compiled, unlike the clients with their coroutines: each record passes :meth:`RecordIntake.try_send`. What users give is
annotated as ``Any``, because compiled code raises its own TypeError for any other annotation.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import pyarrow as pa

from quorumlog.sdk.arguments import is_text
from quorumlog.sdk.errors import (
    IllegalArgumentError,
    InvalidPartitionsError,
    InvalidRecordError,
    QuorumlogError,
    RecordTooLargeError,
)
from quorumlog.sdk.producer.accumulator import Accumulator, TopicBuffers
from quorumlog.sdk.producer.batch import RecordColumns
from quorumlog.sdk.producer.config import ProducerConfig, Serializer
from quorumlog.sdk.producer.delivery import BatchRows, Delivery, RecordFuture, RecordsFuture, SentRecords
from quorumlog.sdk.producer.explanation import BatchNotes
from quorumlog.sdk.records.arrow_partitioner import partitions_of_rows
from quorumlog.sdk.records.partitioner import ask_custom, partition_for_key
from quorumlog.sdk.records.record_batch import BATCH_BASE_BYTES, HEADER_OVERHEAD_BYTES, RECORD_OVERHEAD_BYTES
from quorumlog.sdk.types import Headers

#: The largest that fits into 64 bits as nanoseconds (the year 2262). Larger timestamps are replaced by it: topics with
#: append time overwrite it, and nodes refuse it for all others, as they refuse any time more than an hour ahead.
_LARGEST_TIMESTAMP_MS = (1 << 63) // 1_000_000 - 1
#: From this number on, keys are hashed by Arrow's kernels; below, the cache of the partitioner takes less time.
_MANY_KEYS = 4_000


class RecordShare(NamedTuple):
    """The records of one ``send_many`` for one partition (None: any), and their positions in the call."""

    partition: int | None
    records: RecordColumns
    positions: Sequence[int]


class RecordIntake:
    """Accepts the records of one producer, on any thread.

    Arguments:
        wall_ns: nanoseconds since the epoch, for records without a timestamp.
    """

    def __init__(self, config: ProducerConfig, accumulator: Accumulator, wall_ns: Callable[[], int]) -> None:
        self._config = config
        self._accumulator = accumulator
        self._wall_ns = wall_ns
        self._plain = config.key_serializer is None and config.value_serializer is None
        self._sticky = config.partitioner == "sticky"
        self._replayable = config.replayable
        self._largest_record = config.max_request_size - BATCH_BASE_BYTES
        self._turn = 0

    def try_send(
        self,
        topic: Any,
        value: Any,
        key: Any,
        headers: Any,
        partition: Any,
        timestamp_ms: Any,
        notes: BatchNotes | None = None,
    ) -> RecordFuture | None:
        """Adds a record; returns None if the topic is not known yet or the buffer is full.

        If a signal handler raises during the call, the record is in its batch completely or not at all.

        Arguments:
            notes: filled with the times of the record, which becomes a batch of its own.
        """
        try:
            buffers = self._accumulator.topics.get(topic)
        except TypeError:  # Not a hashable name; loading the topic raises the error.
            return None
        if buffers is None:
            return None
        if not self._plain:
            key, value = (
                _serialized(self._config.key_serializer, key),
                _serialized(self._config.value_serializer, value),
            )
        size = RECORD_OVERHEAD_BYTES
        if value is not None:
            if type(value) is not bytes:
                value = _as_bytes(value, "value", "value")
            size += len(value)
        if key is not None:
            if type(key) is not bytes:
                key = _as_bytes(key, "key", "key")
            size += len(key)
        elif buffers.compacted:
            raise no_key(buffers)
        checked: Headers | None = None
        if headers:
            checked = _checked_headers(headers)
            size += _headers_size(checked)
        if size > self._largest_record:
            raise self._too_large("the record", size)
        if partition is not None:
            check_partition(buffers, partition)
        elif not self._sticky or key is not None:
            partition = self._choose(buffers, key)
        elif self._replayable:
            raise not_replayable("neither a key nor a partition")
        if timestamp_ms is None:
            if self._replayable:
                raise not_replayable("no timestamp_ms")
            timestamp_ns = self._wall_ns()
        else:
            timestamp_ns = _nanoseconds(timestamp_ms, "timestamp_ms")
        if notes is not None:
            return self._accumulator.append_alone(buffers, partition, key, value, timestamp_ns, checked, size, notes)
        return self._accumulator.append(buffers, partition, key, value, timestamp_ns, checked, size)

    def _too_large(self, what: str, size: int) -> RecordTooLargeError:
        return RecordTooLargeError(
            f"{what} takes {size + BATCH_BASE_BYTES} bytes, more than max_request_size"
            f" ({self._config.max_request_size}): make it smaller, or raise that and the topic's max.message.bytes"
        )

    def _choose(self, buffers: TopicBuffers, key: bytes | None) -> int | None:
        partitioner = self._config.partitioner
        if callable(partitioner):
            return ask_custom(partitioner, key, len(buffers.partitions), buffers.available)
        if key is not None:
            return partition_for_key(key, len(buffers.partitions))
        if self._replayable:
            raise not_replayable("neither a key nor a partition")
        if self._sticky:
            return None
        candidates = buffers.available or range(len(buffers.partitions))
        self._turn += 1
        return candidates[self._turn % len(candidates)]

    # --- many records of one call --------------------------------------------------------------------------------

    def begin_many(
        self, topic: str, values: Any, keys: Any, headers: Any, partition: Any, timestamps_ms: Any
    ) -> SendMany:
        """Checks all records of one ``send_many``, of which none is sent yet.

        Arguments:
            topic: of a topic that is known.

        Raises:
            the errors of :meth:`try_send`, for the first record that is wrong.
        """
        buffers = self._accumulator.topics[topic]
        if partition is not None:
            check_partition(buffers, partition)
        contents = _contents(values, "value", None, self._config.value_serializer)
        count = len(contents)
        names = [] if keys is None else _contents(keys, "key", count, self._config.key_serializer)
        if buffers.compacted and count and (not names or None in names):
            raise no_key(buffers)
        pairs: dict[int, Headers] = {}
        if headers is not None:
            for row, each in enumerate(_listed(headers, "headers", count)):
                if each:
                    pairs[row] = _checked_headers(each)
        records = RecordColumns(
            names, contents, self._times(timestamps_ms, count), pairs, _sizes(names, contents, pairs)
        )
        if count and max(records.sizes) > self._largest_record:
            row = next(row for row, size in enumerate(records.sizes) if size > self._largest_record)
            raise self._too_large(f"values[{row}]", records.sizes[row])
        return SendMany(self._accumulator, buffers, self._shares(buffers, partition, records))

    def _times(self, timestamps_ms: Any, count: int) -> array[int]:
        if timestamps_ms is not None:
            given = enumerate(_listed(timestamps_ms, "timestamps_ms", count))
            return array("q", [_nanoseconds(each, f"timestamps_ms[{row}]") for row, each in given])
        if self._replayable and count:
            raise not_replayable("no timestamp")
        return array("q", [self._wall_ns()]) * count

    def _shares(self, buffers: TopicBuffers, partition: int | None, records: RecordColumns) -> list[RecordShare]:
        """Divides records by partition; they keep their order within each."""
        count = len(records.values)
        if not count:
            return []
        if partition is not None or (self._sticky and not records.keys):
            if partition is None and self._replayable:
                raise not_replayable("neither a key nor a partition")
            return [RecordShare(partition, records, range(count))]
        shares: list[RecordShare] = []
        rows: dict[int | None, list[int]] = {}
        is_free = False
        for row, target in enumerate(self._partitions(buffers, records)):
            # A free record may come into any partition, so it must not overtake those before it, nor be overtaken.
            if (target is None) != is_free:
                shares += [RecordShare(to, records.of(positions), positions) for to, positions in rows.items()]
                rows, is_free = {}, target is None
            rows.setdefault(target, []).append(row)
        shares += [RecordShare(to, records.of(positions), positions) for to, positions in rows.items()]
        return shares

    def _partitions(self, buffers: TopicBuffers, records: RecordColumns) -> list[int | None]:
        keys = records.keys or [None] * len(records.values)
        if self._sticky and not self._replayable and len(keys) >= _MANY_KEYS:
            of_rows: list[int | None] = partitions_of_rows(
                pa.array(keys, pa.binary()), len(buffers.partitions)
            ).to_pylist()
            return of_rows
        return [self._choose(buffers, key) for key in keys]


class SendMany:
    """The progress of one ``send_many``: its records are added batch by batch, as memory becomes free.

    Arguments:
        shares: the records in the order in which they are added.
    """

    def __init__(self, accumulator: Accumulator, buffers: TopicBuffers, shares: list[RecordShare]) -> None:
        self._accumulator = accumulator
        self._buffers = buffers
        self._shares = shares
        #: The share that is being added, and how many of its records were added.
        self._share = 0
        self._added = 0
        self._sent: list[SentRecords] = []

    @property
    def is_complete(self) -> bool:
        """True once all records were added."""
        return self._share == len(self._shares)

    def add_some(self) -> BatchRows | None:
        """Adds as many records as their batch accepts; returns None if the memory is full.

        Raises:
            InvalidPartitionsError: the topic was created again, with fewer partitions.
        """
        share = self._shares[self._share]
        if share.partition is not None:
            check_partition(self._buffers, share.partition)
        rows = self._accumulator.append_many(self._buffers, share.partition, share.records, self._added)
        if rows is not None:
            end = self._added + rows.record_count
            self._sent.append(SentRecords(rows.delivery, rows.first, share.positions[self._added : end]))
            self._added = end
            if end == len(share.positions):
                self._share += 1
                self._added = 0
        return rows

    def future(self) -> RecordsFuture:
        """Returns the handle for the outcome of the records, all of which were added."""
        return RecordsFuture(self._sent)

    def broken_off(self, error: QuorumlogError) -> RecordsFuture:
        """Returns the handle after an error, with which the records that were not added have failed.

        Raises:
            QuorumlogError: the error, if no record was added.
        """
        if not self._sent:
            raise error
        failed = Delivery(self._buffers.name, -1, self._accumulator.loop_thread)
        failed.resolve(type(error)(error.message, retriable=error.retriable, definite=True))
        for number, share in enumerate(self._shares[self._share :]):
            self._sent.append(SentRecords(failed, 0, share.positions[0 if number else self._added :]))
        return self.future()


def _serialized(serializer: Serializer | None, value: Any) -> Any:
    return value if serializer is None or value is None else serializer(value)


def _as_bytes(value: Any, what: str, where: str) -> bytes:
    if isinstance(value, (bytes, bytearray, memoryview)):
        return bytes(value)
    raise IllegalArgumentError(
        f"{where} is {type(value).__name__}, not bytes: encode it, or give the producer a {what}_serializer"
    )


def _listed(given: Any, what: str, count: int | None) -> list[Any]:
    """Returns a new list of what is given for each record."""
    if isinstance(given, (str, bytes, bytearray, memoryview, Mapping)) or not isinstance(given, Iterable):
        raise IllegalArgumentError(f"{what} is {type(given).__name__}: give a list with an element for each record")
    listed = list(given)
    if count is not None and len(listed) != count:
        raise IllegalArgumentError(
            f"{what} has {len(listed)} elements and values has {count}: give one for each record"
        )
    return listed


def _contents(given: Any, what: str, count: int | None, serializer: Serializer | None) -> list[bytes | None]:
    contents = _listed(given, f"{what}s", count)
    if serializer is not None:
        contents = [_serialized(serializer, each) for each in contents]
    for row, each in enumerate(contents):
        if each is not None and type(each) is not bytes:
            contents[row] = _as_bytes(each, what, f"{what}s[{row}]")
    return contents


def _sizes(keys: list[bytes | None], values: list[bytes | None], headers: Mapping[int, Headers]) -> list[int]:
    """Returns the bytes of each record in a batch."""
    sizes = [RECORD_OVERHEAD_BYTES + (0 if value is None else len(value)) for value in values]
    for row, key in enumerate(keys):
        if key is not None:
            sizes[row] += len(key)
    for row, pairs in headers.items():
        sizes[row] += _headers_size(pairs)
    return sizes


def _headers_size(headers: Headers) -> int:
    return sum(HEADER_OVERHEAD_BYTES + len(name) * 4 + len(content or b"") for name, content in headers)


def _nanoseconds(timestamp_ms: Any, what: str) -> int:
    if isinstance(timestamp_ms, int) and 0 <= timestamp_ms < 1 << 63:
        return min(timestamp_ms, _LARGEST_TIMESTAMP_MS) * 1_000_000
    raise IllegalArgumentError(f"{what} is {timestamp_ms!r}: give milliseconds since 1970, as an int")


def _checked_headers(headers: Any) -> Headers:
    if isinstance(headers, (str, bytes)) or not isinstance(headers, Iterable):
        raise IllegalArgumentError(f"headers are {headers!r}: give pairs such as [('trace', b'42')], or a mapping")
    checked: list[tuple[str, bytes | None]] = []
    for pair in headers.items() if isinstance(headers, Mapping) else headers:
        if not (isinstance(pair, (tuple, list)) and len(pair) == 2 and isinstance(pair[0], str) and is_text(pair[0])):
            raise IllegalArgumentError(f"header {pair!r} is not a pair of a str and bytes, such as ('trace', b'42')")
        checked.append((pair[0], _header_value(pair[0], pair[1])))
    return checked


def _header_value(name: str, value: Any) -> bytes | None:
    if value is None or type(value) is bytes:
        content: bytes | None = value
        return content
    if isinstance(value, (bytearray, memoryview)):
        return bytes(value)
    if isinstance(value, str) and is_text(value):
        return value.encode()
    raise IllegalArgumentError(f"header {name!r} has a value of {type(value).__name__}: give bytes, text or None")


def check_partition(buffers: TopicBuffers, partition: Any) -> None:
    """Raises InvalidPartitionsError if a topic does not have a partition."""
    if not (isinstance(partition, int) and 0 <= partition < len(buffers.partitions)):
        raise InvalidPartitionsError(
            f"topic {buffers.name!r} has no partition {partition!r}: it has 0 to {len(buffers.partitions) - 1}"
        )


def no_key(buffers: TopicBuffers) -> InvalidRecordError:
    """Returns the error for a record without a key, which its topic needs."""
    return InvalidRecordError(
        f"topic {buffers.name!r} is compacted, it keeps the last record of each key: give every record a key"
    )


def not_replayable(what: str) -> IllegalArgumentError:
    """Returns the error for a record that a replay could not repeat, for lack of something."""
    return IllegalArgumentError(f"a record has {what}, which a replay with the same producer_epoch needs: set it")

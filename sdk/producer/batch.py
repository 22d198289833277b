"""A batch in the producer: records while it is being gathered, then bytes to send."""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate
from operator import itemgetter
from typing import Any

import pyarrow as pa

from quorumlog.sdk.producer.delivery import Delivery
from quorumlog.sdk.producer.explanation import BatchNotes
from quorumlog.sdk.producer.identity import ProducerIdentity
from quorumlog.sdk.records.record_batch import EncodedPayload, batch_from_columns, encode, one_batch
from quorumlog.sdk.types import Headers
from quorumlog.wire.entry import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, NO_SEQUENCE, Attributes, Codec, build_batch

#: Memory of the objects of a piece of Arrow rows, however few rows it has.
PIECE_BYTES = 2 * 1024
#: Limit of pieces in a batch: each adds a cost when they are combined.
MOST_PIECES = 1_000


class RecordColumns:
    """Checked records of one call, as columns: a batch takes slices of them.

    Arguments:
        keys: empty if no record has one.
        headers: by row, of records that have any.
        sizes: bytes of each record in a batch.
    """

    __slots__ = ("_ends", "headers", "keys", "sizes", "timestamps_ns", "values")

    def __init__(
        self,
        keys: list[bytes | None],
        values: list[bytes | None],
        timestamps_ns: array[int],
        headers: dict[int, Headers],
        sizes: list[int],
    ) -> None:
        self.keys = keys
        self.values = values
        self.timestamps_ns = timestamps_ns
        self.headers = headers
        self.sizes = sizes
        #: Bytes of all records before each row, and of all.
        self._ends: list[int] = [0, *accumulate(sizes)]

    def of(self, rows: Sequence[int]) -> RecordColumns:
        """Returns some of the records."""
        # Loops of C. With a single row, itemgetter returns no tuple.
        chosen: Any = itemgetter(*rows) if len(rows) > 1 else lambda column: (column[rows[0]],)
        return RecordColumns(
            [*chosen(self.keys)] if self.keys else [],
            [*chosen(self.values)],
            array("q", chosen(self.timestamps_ns)),
            {at: self.headers[row] for at, row in enumerate(rows) if row in self.headers} if self.headers else {},
            [*chosen(self.sizes)],
        )

    def bytes_between(self, first: int, end: int) -> int:
        """Returns the bytes of the records from row ``first`` up to ``end``."""
        return self._ends[end] - self._ends[first]

    def end_within(self, first: int, room: int) -> int:
        """Returns the row after the last record that fits into ``room`` bytes together with all from ``first`` on."""
        return bisect_right(self._ends, self._ends[first] + room) - 1


class ProducerBatch:
    """Records for one partition. The accumulator's lock guards it while it gathers; once closed, it belongs to the
    sender.

    A signal handler may raise between any two steps of :meth:`add`. So the last step commits the record: the number of
    records is the length of ``values``. An interrupted call may leave extra elements in the other columns; the next
    record is inserted before them, and closing the batch cuts them off.

    Invariants: ``room`` is negative once closed, and then all columns have one length, except ``keys`` if no record has
    one; a waiting batch has a record or a piece; ``sequence`` and ``identity`` never change while ``maybe_applied`` is
    set, otherwise the log could not recognise a duplicate.
    """

    __slots__ = ("attempt", "created_s", "delivery", "encoded", "entry", "headers", "identity", "keys",
                 "maybe_applied", "maybe_applied_before", "notes", "ordinal", "partition", "pieces", "record_count",
                 "refused_with_bytes", "reserved_bytes", "room", "sequence", "timestamps_ns", "topic", "used_bytes",
                 "values")  # fmt: skip

    def __init__(self, topic: str, partition: int, created_s: float, loop_thread: int) -> None:
        self.topic = topic
        self.partition = partition
        #: Time of its first record, by the producer's monotonic clock.
        self.created_s = created_s
        self.keys: list[bytes | None] = []
        self.values: list[bytes | None] = []
        self.timestamps_ns: array[int] = array("q")
        #: By row; from the first record with headers on.
        self.headers: dict[int, Headers | None] = {}
        #: Rows from Arrow data, instead of the lists, each with its first row's index in the batch.
        self.pieces: list[tuple[int, pa.RecordBatch]] = []
        self.delivery = Delivery(topic, partition, loop_thread, self.timestamps_ns)
        #: Bytes of the reserved memory that records may still use; negative once closed.
        self.room = 0
        self.reserved_bytes = 0
        #: Final size once closed.
        self.used_bytes = 0
        self.record_count = 0
        # Fields of the sender.
        self.encoded: EncodedPayload | None = None
        self.entry: bytes | None = None
        self.identity: ProducerIdentity | None = None
        self.sequence = NO_SEQUENCE
        #: Number of batches that its pipeline numbered before it, under the same identity.
        self.ordinal = 0
        #: Size of the request with several batches that a node refused as too large, in bytes; 0 if none was.
        self.refused_with_bytes = 0
        #: The attempt that awaits its response, if any: an opaque token of the sender.
        self.attempt: object | None = None
        #: True once an attempt ended without a definite outcome: the batch may be in the log, or may still be appended.
        self.maybe_applied = False
        #: The same for a deleted topic of that name: consumers may have read the batch there.
        self.maybe_applied_before = False
        #: Set for a batch that must be explained, otherwise None.
        self.notes: BatchNotes | None = None

    @property
    def goes_alone(self) -> bool:
        """True if its request may contain no other batch."""
        return bool(self.refused_with_bytes) or self.notes is not None

    @property
    def closed(self) -> bool:
        """True once no record can be added."""
        return self.room < 0

    def close(self) -> None:
        """Ends gathering. The last step closes the batch, so an interrupted close can be repeated."""
        assert not self.closed
        count = self.record_count = self.delivery.record_count = self._row_count() if self.pieces else len(self.values)
        assert count > 0
        del self.keys[count:], self.timestamps_ns[count:]
        self.used_bytes = self.reserved_bytes - self.room - PIECE_BYTES * len(self.pieces)
        self.room = -1

    def _row_count(self) -> int:
        if not self.pieces:
            return 0
        first, rows = self.pieces[-1]
        return first + rows.num_rows

    def add(self, key: bytes | None, value: bytes | None, timestamp_ns: int, headers: Headers | None) -> int:
        """Adds a record, for which the caller has reserved bytes, and returns its index in the batch."""
        values = self.values
        index = len(values)
        self.timestamps_ns.insert(index, timestamp_ns)
        keys = self.keys
        if key is not None or keys:
            if len(keys) < index:
                keys.extend([None] * (index - len(keys)))
            keys.insert(index, key)
        if headers or self.headers:
            self.headers[index] = headers
        values.append(value)
        return index

    def add_many(self, records: RecordColumns, first: int, end: int) -> int:
        """Adds records, for which the caller has reserved bytes, and returns the index of the first in the batch.

        Arguments:
            first, end: the rows to add: from ``first`` up to, but not including, ``end``.
        """
        values = self.values
        index = len(values)
        self.timestamps_ns[index:] = records.timestamps_ns[first:end]
        keys = self.keys
        if records.keys or keys:
            if len(keys) < index:
                keys.extend([None] * (index - len(keys)))
            keys[index:] = records.keys[first:end] if records.keys else [None] * (end - first)
        if records.headers or self.headers:
            # Also of records without any: an interrupted call may have left some at their place.
            for row in range(first, end):
                self.headers[index + row - first] = records.headers.get(row)
        values.extend(records.values[first:end])
        return index

    def takes_rows(self, size: int, full_at: int) -> bool:
        """True if this is an open Arrow batch with room for ``size`` bytes.

        Arguments:
            full_at: bytes at which it is full, without the memory of its pieces as objects.
        """
        if self.closed or not self.pieces or len(self.pieces) >= MOST_PIECES:
            return False
        return self.reserved_bytes - PIECE_BYTES * len(self.pieces) + size <= full_at

    def add_rows(self, rows: pa.RecordBatch) -> int:
        """Adds rows, for which the caller has reserved bytes, and returns the index of the first in the batch.

        Arguments:
            rows: of ``LOG_SCHEMA``.
        """
        assert not self.values, "a batch has rows or records"
        first = self._row_count()
        self.pieces.append((first, rows))
        return first

    def seal(self, codec: Codec, identity: ProducerIdentity | None, sequence: int) -> bytes:
        """Returns the batch's bytes with an identity and sequence. The records are encoded once and then released."""
        assert self.closed and not self.maybe_applied
        if self.encoded is None:
            if self.pieces:
                rows = one_batch([rows for _, rows in self.pieces])
            else:
                headers = {row: pairs for row, pairs in self.headers.items() if pairs and row < self.record_count}
                rows = batch_from_columns(self.keys, self.values, self.timestamps_ns, headers)
            self.encoded = encode(rows, codec)
            self.keys, self.values, self.headers, self.pieces = [], [], {}, []
        self.identity, self.sequence = identity, sequence
        replayable = Attributes.REPLAYABLE if identity and identity.replayable else Attributes.NONE
        if identity and identity.transactional:
            replayable |= Attributes.TRANSACTIONAL
        self.entry = build_batch(
            self.encoded.payload,
            record_count=self.encoded.record_count,
            codec=codec,
            base_timestamp_ms=self.encoded.base_timestamp_ms,
            max_timestamp_ms=self.encoded.max_timestamp_ms,
            producer_id=identity.producer_id if identity else NO_PRODUCER_ID,
            producer_epoch=identity.epoch if identity else NO_PRODUCER_EPOCH,
            base_sequence=sequence,
            attributes=self.encoded.attributes | replayable,
        )
        return self.entry

    def release(self) -> None:
        """Releases the bytes once the outcome is known."""
        self.encoded = self.entry = None
        self.keys, self.values, self.headers, self.pieces = [], [], {}, []

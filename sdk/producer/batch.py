"""A batch on its way through the producer: records being gathered, then bytes being sent."""

from __future__ import annotations

from array import array

import pyarrow as pa

from quorumlog.sdk.producer.delivery import Delivery
from quorumlog.sdk.producer.explanation import BatchNotes
from quorumlog.sdk.producer.identity import ProducerIdentity
from quorumlog.sdk.records.record_batch import EncodedPayload, batch_from_columns, encode, one_batch
from quorumlog.sdk.types import Headers
from quorumlog.wire.entry import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, NO_SEQUENCE, Attributes, Codec, build_batch

#: What the objects of a piece of Arrow rows take of the producer's memory, however few rows they are.
PIECE_BYTES = 2 * 1024
#: More pieces are not put together: each costs something when they are.
MOST_PIECES = 1_000


class ProducerBatch:
    """Records for one partition. Gathers under the accumulator's lock; once closed, it belongs to the sender.

    A signal handler may raise between any two steps of :meth:`add`. So the last one commits the record: there are as
    many records as ``values``. What an interrupted call has put into the other columns behind that is overtaken by the
    next record, which is inserted before it, and is cut off when the batch is closed.

    Invariants: ``room`` is negative once closed, and then all columns have one length, but for ``keys`` if no record
    has one; a batch that waits has a record or a piece; ``sequence`` and ``identity`` never change while
    ``maybe_applied`` is set, or the log could not recognise a duplicate.
    """

    __slots__ = ("attempt", "created_s", "delivery", "encoded", "entry", "headers", "identity", "keys",
                 "maybe_applied", "maybe_applied_before", "notes", "ordinal", "partition", "pieces", "record_count",
                 "refused_with_bytes", "reserved_bytes", "room", "sequence", "timestamps_ns", "topic", "used_bytes",
                 "values")  # fmt: skip

    def __init__(self, topic: str, partition: int, created_s: float, loop_thread: int) -> None:
        self.topic = topic
        self.partition = partition
        #: When its first record arrived, by the producer's monotonic clock.
        self.created_s = created_s
        self.keys: list[bytes | None] = []
        self.values: list[bytes | None] = []
        self.timestamps_ns: array[int] = array("q")
        #: By row; of all records that came after the first with headers.
        self.headers: dict[int, Headers | None] = {}
        #: Rows that came as Arrow, instead of the lists, each with the row of the batch that it begins at.
        self.pieces: list[tuple[int, pa.RecordBatch]] = []
        self.delivery = Delivery(topic, partition, loop_thread, self.timestamps_ns)
        #: Bytes that records may still take of what is reserved from the producer's memory; negative once closed.
        self.room = 0
        self.reserved_bytes = 0
        #: Final size once closed.
        self.used_bytes = 0
        self.record_count = 0
        # The sender's part.
        self.encoded: EncodedPayload | None = None
        self.entry: bytes | None = None
        self.identity: ProducerIdentity | None = None
        self.sequence = NO_SEQUENCE
        #: How many batches its pipeline had numbered before it, under the same identity.
        self.ordinal = 0
        #: Bytes of the request that a node has refused for its size, with this and others in it; 0 if none was.
        self.refused_with_bytes = 0
        #: The attempt that awaits its answer, if any: an opaque token of the sender's.
        self.attempt: object | None = None
        #: True once an attempt ended without a definite outcome: it may be in the log, or get there yet.
        self.maybe_applied = False
        #: The same, of a topic of that name which was deleted meanwhile: somebody may have read it there.
        self.maybe_applied_before = False
        #: Of a batch that is to be explained; None of all others.
        self.notes: BatchNotes | None = None

    @property
    def goes_alone(self) -> bool:
        """Whether no other batch may be in its request."""
        return bool(self.refused_with_bytes) or self.notes is not None

    @property
    def closed(self) -> bool:
        """True once no record can be added any more."""
        return self.room < 0

    def close(self) -> None:
        """Ends gathering. The last step closes the batch: an interrupted close can be repeated."""
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
        """Adds a record for which there is room, and returns its place in the batch."""
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

    def takes_rows(self, size: int, full_at: int) -> bool:
        """Whether it gathers rows, and may take more.

        Arguments:
            size: of those, in bytes.
            full_at: bytes at which it is full, without what its pieces take as objects.
        """
        if self.closed or not self.pieces or len(self.pieces) >= MOST_PIECES:
            return False
        return self.reserved_bytes - PIECE_BYTES * len(self.pieces) + size <= full_at

    def add_rows(self, rows: pa.RecordBatch) -> int:
        """Adds rows for which there is room, and returns the place of the first in the batch.

        Arguments:
            rows: of ``LOG_SCHEMA``.
        """
        assert not self.values, "a batch has rows or records"
        first = self._row_count()
        self.pieces.append((first, rows))
        return first

    def seal(self, codec: Codec, identity: ProducerIdentity | None, sequence: int) -> bytes:
        """The batch's bytes under an identity and sequence. The records are encoded once and let go."""
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
        """Lets go of the bytes once the outcome is known."""
        self.encoded = self.entry = None
        self.keys, self.values, self.headers, self.pieces = [], [], {}, []

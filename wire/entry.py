"""The byte layout of log entries and record batches, the one format on disk, on the wire and in clients.

An entry is an envelope of 40 bytes and a body. For kind ``BATCH`` the body is a header of 56 bytes and an
opaque payload: one Arrow IPC record-batch message (a multiple of 8 bytes from the entry's start), or with
``Attributes.KAFKA`` a record batch of a Kafka client as it came (:mod:`quorumlog.wire.kafka.entry`). All
integers are little-endian::

    envelope   0  u8   magic           format version, 1
               1  u8   kind            EntryKind
               2  u16  flags           Flags; 0 for all kinds but BATCH
               4  u32  length          of the whole entry, in bytes
               8  u32  crc32c          over bytes [0, 8) and [12, length)
              12  u32  group           the Raft group; 0 until sealed
              16  u64  term            0 until sealed
              24  u64  index           0 until sealed
              32  u64  previous_hash   entry_hash of the entry before; 0 until sealed
    header    40  i64  base_offset     0 until sealed
              48  u32  record_count
              52  u8   codec           Codec; with KAFKA what compaction takes instead of the batch's own
              53  u8   timestamp_type  TimestampType
              54  u16  attributes      Attributes
              56  i64  append_time_ms  the leader's clock when it appended the batch; of an unsealed batch the smallest
                                       timestamp, with KAFKA that of its first record
              64  i64  max_timestamp_ms   largest, -1: no record has any; the append time under LOG_APPEND_TIME
              72  i64  producer_id     -1: not idempotent
              80  i64  producer_epoch  -1: not idempotent; of a batch with GAPS the delete horizon
              88  i32  base_sequence   -1: not idempotent
              92  u32  offset_delta    last offset minus base offset of a batch with GAPS; otherwise 0
    payload   96

For kind ``TRACE``, what a witness keeps of an entry of any other kind but CONFIG, group, term, index and previous_hash
are that entry's, and the body is its entry_hash (u64): 48 bytes in all.

A producer sends an unsealed batch: group, term, index, previous_hash and base_offset are zero, the checksum is
already right; with KAFKA it says nothing, for the batch in the payload has its own, and the header repeats what that
one says. The leader checks it, fills in those fields and the append time, and seals it with a new checksum. Nothing
else of the batch ever changes, except timestamp type and max timestamp on topics with append time. Leaders of version
0.1.0 and before left the smallest timestamp where the append time is now.

Compaction leaves batches with ``Flags.GAPS``: their records kept their offsets, which are no longer consecutive.
Their payload has one more column, ``offset_delta: uint32``, the offset minus the batch's base offset. In a log that was
restored from a backup, such a batch also covers the offsets that are missing behind its last record. Their tombstones
(records without a value) are removed by the first compaction at or after the delete horizon, in milliseconds since the
epoch; -1 without tombstones. Their append time is that of their records, rounded up; below feature level 3 it was the
smallest timestamp.

A *marker* ends a transaction: ``TRANSACTIONAL``, ``CONTROL``, ``KAFKA`` and, if the transaction is committed,
``COMMIT``. Its payload is Kafka's control batch (:mod:`quorumlog.wire.kafka.control`), it takes one offset, and it has
no largest timestamp. A *cover* stands for batches that a reader does not get: ``CONTROL`` and ``Flags.GAPS``, without
payload. Neither has rows, though both state one record.
"""

from __future__ import annotations

import hashlib
import struct
from enum import IntEnum, IntFlag
from typing import NamedTuple

import google_crc32c

MAGIC = 1
ENVELOPE_BYTES = 40
HEADER_BYTES = 56
BATCH_OVERHEAD_BYTES = ENVELOPE_BYTES + HEADER_BYTES
TRACE_BYTES = ENVELOPE_BYTES + 8
_ALIGNMENT = 8
NO_PRODUCER_ID = -1
NO_PRODUCER_EPOCH = -1
NO_SEQUENCE = -1
NO_DELETE_HORIZON = -1
#: Producer ids from here on belong to named identities.
FIRST_NAMED_PRODUCER_ID = 1 << 62
#: Sequences have 31 bits and wrap to 0, as Kafka's do.
SEQUENCE_MODULUS = 1 << 31

_PREFIX = struct.Struct("<BBHI")
_CRC = struct.Struct("<I")
_POSITION = struct.Struct("<IQQQ")
_ENVELOPE = struct.Struct("<BBHIIIQQQ")
_HEADER = struct.Struct("<qIBBHqqqqiI")
assert _ENVELOPE.size == ENVELOPE_BYTES and _HEADER.size == HEADER_BYTES


class EnvelopeKind(IntEnum):
    """Kind of an entry's body."""

    NOOP = 0
    BATCH = 1
    CONFIG = 2
    COMMAND = 3
    TRACE = 4


class Codec(IntEnum):
    """Compression of the Arrow buffers in a payload."""

    NONE = 0
    LZ4 = 1
    ZSTD = 2


class TimestampType(IntEnum):
    """Source of a batch's timestamps: the producer, or the leader."""

    CREATE_TIME = 0
    LOG_APPEND_TIME = 1


class Flags(IntFlag):
    """Special properties of an entry."""

    NONE = 0
    GAPS = 1  #: a compacted batch: its records' offsets are in its payload


class Attributes(IntFlag):
    """Properties of a batch's records as stated by its producer, which servers do not check; and those of markers."""

    NONE = 0
    NULL_KEYS = 1  #: some record has no key; refused on compacted topics
    REPLAYABLE = 2  #: its producer may send the epoch again from the start: the log keeps a digest of each batch
    KAFKA = 4  #: the payload is a record batch of Kafka's, not Arrow
    TRANSACTIONAL = 8  #: its records count only if the transaction of its producer commits
    CONTROL = 16  #: it has no records for readers: a marker (``kafka.control``), or a cover
    COMMIT = 32  #: of a marker: the transaction is committed, not aborted


class CorruptEntryError(Exception):
    """Raised for bytes that are not the entry they claim to be. The message says what is wrong, and where."""


class Envelope(NamedTuple):
    """The decoded envelope of an entry."""

    magic: int
    kind: EnvelopeKind
    flags: Flags
    length: int
    crc32c: int
    group: int
    term: int
    index: int  # type: ignore[assignment]
    previous_hash: int


class BatchHeader(NamedTuple):
    """The decoded header of a record batch. Timestamps are milliseconds since the epoch.

    Arguments:
        append_time_ms: of a sealed batch, when its leader appended it; of an unsealed one its smallest timestamp.
        max_timestamp_ms: -1 if no record has a timestamp.
    """

    base_offset: int
    record_count: int
    codec: Codec
    timestamp_type: TimestampType
    append_time_ms: int
    max_timestamp_ms: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    attributes: Attributes = Attributes.NONE
    offset_delta: int = 0

    @property
    def last_offset(self) -> int:
        """Offset of the batch's last record."""
        return self.base_offset + (self.offset_delta or self.record_count - 1)

    @property
    def replayable(self) -> bool:
        """True if its producer may send the epoch again from the start."""
        return _REPLAYABLE[self.attributes]

    @property
    def is_kafka(self) -> bool:
        """True if the payload is a Kafka record batch."""
        return _KAFKA[self.attributes]

    @property
    def is_transactional(self) -> bool:
        """True if the batch belongs to a transaction, or is the marker that ends one."""
        return _TRANSACTIONAL[self.attributes]

    @property
    def is_control(self) -> bool:
        """True if the batch has no records for readers: it is a marker or a cover."""
        return _CONTROL[self.attributes]

    @property
    def is_of_leader(self) -> bool:
        """True if only a leader may write the batch, not a client."""
        return _OF_LEADER[self.attributes]

    @property
    def next_sequence(self) -> int:
        """The sequence that the producer's next batch must have."""
        return (self.base_sequence + self.record_count) % SEQUENCE_MODULUS


def crc32c_of(entry: bytes) -> int:
    """Returns the CRC32C of an entry without its own four bytes. Costs one copy: the C code needs `bytes`."""
    return int(google_crc32c.extend(google_crc32c.value(entry[:8]), entry[12:]))


def entry_hash(entry: bytes) -> int:
    """Returns the 64-bit hash by which the next entry refers to this one.

    It covers the envelope, and through the checksum and ``previous_hash`` in it the body and all entries before it. A
    trace has the hash of the entry that it stands for, so the hashes of logs with and without traces are the same.
    """
    if entry[_KIND_AT] == EnvelopeKind.TRACE:
        return int.from_bytes(entry[ENVELOPE_BYTES:TRACE_BYTES], "little")
    return int.from_bytes(hashlib.blake2b(entry[:ENVELOPE_BYTES], digest_size=8).digest(), "little")


def trace_of(entry: bytes) -> bytes:
    """Returns what a witness keeps of a sealed entry: its position, its term, and the hashes of it and the one before.

    Raises:
        CorruptEntryError: the bytes are not an entry.
    """
    envelope = parse_envelope(entry)
    body = entry_hash(entry).to_bytes(8, "little")
    return seal(envelope.group, envelope.term, envelope.index, envelope.previous_hash, EnvelopeKind.TRACE, body)


def seal(
    group: int,
    term: int,
    index: int,
    previous_hash: int,
    kind: EnvelopeKind,
    body: bytes,
    flags: Flags = Flags.NONE,
) -> bytes:
    """Builds the bytes of an entry from its position and body."""
    length = ENVELOPE_BYTES + len(body)
    prefix = _PREFIX.pack(MAGIC, kind, flags, length)
    position = _POSITION.pack(group, term, index, previous_hash)
    crc = google_crc32c.extend(google_crc32c.extend(google_crc32c.value(prefix), position), body)
    return b"".join((prefix, _CRC.pack(crc), position, body))


def build_batch(
    payload: bytes,
    *,
    record_count: int,
    codec: Codec,
    base_timestamp_ms: int,
    max_timestamp_ms: int,
    timestamp_type: TimestampType = TimestampType.CREATE_TIME,
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = NO_PRODUCER_EPOCH,
    base_sequence: int = NO_SEQUENCE,
    attributes: Attributes = Attributes.NONE,
) -> bytes:
    """Builds an unsealed batch, as a producer sends it.

    Arguments:
        payload: one Arrow IPC record-batch message, or a Kafka batch if the attributes say so.
        record_count: its rows, at least 1.
        base_timestamp_ms, max_timestamp_ms: smallest and largest timestamp of its rows.
    """
    header = _HEADER.pack(
        0, record_count, codec, timestamp_type, attributes, base_timestamp_ms, max_timestamp_ms,
        producer_id, producer_epoch, base_sequence, 0,
    )  # fmt: skip
    return seal(0, 0, 0, 0, EnvelopeKind.BATCH, header + payload)


def build_around(
    batch: bytes | memoryview,
    *,
    record_count: int,
    codec: Codec,
    base_timestamp_ms: int,
    max_timestamp_ms: int,
    producer_id: int,
    producer_epoch: int,
    base_sequence: int,
    attributes: Attributes,
) -> bytes:
    """Builds the same around a Kafka batch, which is copied once. The entry has no checksum, because the batch has one.

    Arguments:
        batch: of any length; padded with zeros to a multiple of 8.
    """
    padding = -len(batch) % _ALIGNMENT
    length = BATCH_OVERHEAD_BYTES + len(batch) + padding
    head = _ENVELOPE.pack(MAGIC, EnvelopeKind.BATCH, Flags.NONE, length, 0, 0, 0, 0, 0)
    header = _HEADER.pack(
        0, record_count, codec, TimestampType.CREATE_TIME, attributes, base_timestamp_ms, max_timestamp_ms,
        producer_id, producer_epoch, base_sequence, 0,
    )  # fmt: skip
    return b"".join((head, header, batch, bytes(padding)))


def build_compacted(
    payload: bytes,
    *,
    group: int,
    base_offset: int,
    last_offset: int,
    record_count: int,
    codec: Codec,
    timestamp_type: TimestampType,
    append_time_ms: int,
    max_timestamp_ms: int,
    delete_horizon_ms: int = NO_DELETE_HORIZON,
) -> bytes:
    """Builds a batch that results from compaction: it has offsets, but no position in the Raft log.

    Arguments:
        payload: one Arrow IPC record-batch message, with the column ``offset_delta``.
        base_offset, last_offset: of its first and last record.
        append_time_ms: when its records were appended, or a later time.
        delete_horizon_ms: time from which its tombstones may be removed.
    """
    header = _HEADER.pack(
        base_offset, record_count, codec, timestamp_type, 0, append_time_ms, max_timestamp_ms,
        NO_PRODUCER_ID, delete_horizon_ms, NO_SEQUENCE, last_offset - base_offset,
    )  # fmt: skip
    return seal(group, 0, 0, 0, EnvelopeKind.BATCH, header + payload, Flags.GAPS)


def seal_batch(
    batch: bytes,
    *,
    group: int,
    term: int,
    index: int,
    previous_hash: int,
    base_offset: int,
    append_time_ms: int | None = None,
    stamps_records: bool = True,
    last_offset: int | None = None,
) -> bytes:
    """Returns the sealed entry of a batch that has been checked: position and base offset are filled in.

    Arguments:
        append_time_ms: the leader's clock; None for a batch of another log, which keeps its own, and no longer belongs
            to a transaction.
        stamps_records: use it as the timestamp of all records, as on topics with append time.
        last_offset: for a batch that also covers missing offsets behind it: the last of them.
    """
    head = bytearray(batch[:BATCH_OVERHEAD_BYTES])
    if last_offset is not None:
        head[_FLAGS_AT] = Flags.GAPS
        struct.pack_into("<I", head, 92, last_offset - base_offset)
    _POSITION.pack_into(head, 12, group, term, index, previous_hash)
    struct.pack_into("<q", head, 40, base_offset)
    if append_time_ms is not None:
        struct.pack_into("<q", head, 56, append_time_ms)
        if stamps_records:
            head[53] = TimestampType.LOG_APPEND_TIME
            struct.pack_into("<q", head, 64, append_time_ms)
    else:
        head[_ATTRIBUTES_AT] &= ~Attributes.TRANSACTIONAL.value
    payload = batch[BATCH_OVERHEAD_BYTES:]
    crc = google_crc32c.extend(google_crc32c.value(bytes(head[:8])), bytes(head[12:]))
    _CRC.pack_into(head, 8, google_crc32c.extend(crc, payload))
    return b"".join((head, payload))


def parse_envelope(entry: bytes) -> Envelope:
    """Decodes an envelope and checks magic, kind and length, not the checksum.

    Raises:
        CorruptEntryError: the bytes are too short or the fields impossible.
    """
    if len(entry) < ENVELOPE_BYTES:
        raise CorruptEntryError(f"entry of {len(entry)} bytes is shorter than an envelope ({ENVELOPE_BYTES} bytes)")
    magic, kind, flags, length, crc, group, term, index, previous = _ENVELOPE.unpack_from(entry)
    if magic != MAGIC:
        raise CorruptEntryError(f"entry format {magic} is not {MAGIC}, the only one that this version reads")
    if length != len(entry):
        raise CorruptEntryError(f"entry states a length of {length} bytes but has {len(entry)}")
    if kind not in _KINDS or (flags and (flags != Flags.GAPS or kind != EnvelopeKind.BATCH)):
        raise CorruptEntryError(f"entry kind {kind} with flags {flags} is unknown to this version")
    if kind == EnvelopeKind.TRACE and length != TRACE_BYTES:
        raise CorruptEntryError(f"a trace has {length} bytes, not {TRACE_BYTES}")
    return Envelope(magic, _KINDS[kind], _FLAGS[flags], length, crc, group, term, index, previous)


def verify(entry: bytes) -> Envelope:
    """Decodes an envelope and checks everything in the entry that can be checked, including the checksum.

    Raises:
        CorruptEntryError: the entry is not what was written.
    """
    envelope = _verify_checksum(entry)
    if envelope.kind is EnvelopeKind.BATCH:
        parse_header(entry)
    return envelope


def verify_batch(entry: bytes) -> tuple[Envelope, BatchHeader]:
    """Does the same as ``verify`` for an entry that must be a record batch.

    Raises:
        CorruptEntryError: the entry is not what was written, or is not a batch.
    """
    envelope = _verify_checksum(entry)
    if envelope.kind is not EnvelopeKind.BATCH:
        raise CorruptEntryError(f"an entry of kind {envelope.kind.name} is not a record batch")
    return envelope, parse_header(entry)


def parse_batch(entry: bytes) -> tuple[Envelope, BatchHeader]:
    """Decodes a batch without checking its checksum: for an unsealed Kafka batch, which has its own.

    Raises:
        CorruptEntryError: the entry contradicts itself, or is not a batch.
    """
    envelope = parse_envelope(entry)
    if envelope.kind is not EnvelopeKind.BATCH:
        raise CorruptEntryError(f"an entry of kind {envelope.kind.name} is not a record batch")
    return envelope, parse_header(entry)


def _verify_checksum(entry: bytes) -> Envelope:
    envelope = parse_envelope(entry)
    computed = crc32c_of(entry)
    if computed != envelope.crc32c:
        raise CorruptEntryError(
            f"checksum of entry {envelope.index} in group {envelope.group} is {computed:#010x},"
            f" stored {envelope.crc32c:#010x}"
        )
    return envelope


def parse_header(entry: bytes) -> BatchHeader:
    """Decodes the header of an entry of kind BATCH.

    Raises:
        CorruptEntryError: the header is missing, or has impossible fields.
    """
    if len(entry) < BATCH_OVERHEAD_BYTES:
        raise CorruptEntryError(f"batch of {len(entry)} bytes is shorter than its header ({BATCH_OVERHEAD_BYTES})")
    (base_offset, count, codec, ts_type, attributes, base_ts, max_ts, producer, epoch, sequence, delta) = (
        _HEADER.unpack_from(entry, ENVELOPE_BYTES)
    )
    if count == 0:
        raise CorruptEntryError("batch without records")
    if codec > Codec.ZSTD or ts_type > TimestampType.LOG_APPEND_TIME or attributes >= len(_ATTRIBUTES):
        raise CorruptEntryError(f"batch with unknown codec {codec}, timestamp type {ts_type} or attributes")
    if (delta < count - 1) if entry[_FLAGS_AT] else delta:
        raise CorruptEntryError(f"batch of {count} records with an impossible offset delta of {delta}")
    if base_offset < 0 or sequence >= SEQUENCE_MODULUS:
        raise CorruptEntryError(f"batch with impossible base offset {base_offset} or sequence {sequence}")
    return BatchHeader(
        base_offset, count, _CODECS[codec], _TIMESTAMP_TYPES[ts_type], base_ts, max_ts, producer, epoch, sequence,
        _ATTRIBUTES[attributes], delta,
    )  # fmt: skip


def is_of_transaction(entry: bytes) -> bool:
    """True if an entry of kind ``BATCH`` belongs to a transaction, or is a marker or a cover. Reads one byte."""
    return len(entry) > _ATTRIBUTES_AT and bool(entry[_ATTRIBUTES_AT] & _OF_TRANSACTION)


def build_cover(group: int, first_offset: int, last_offset: int) -> bytes:
    """Builds a cover: a batch without rows in place of batches that a reader does not get, so that it continues behind
    them. It is only sent, never stored.

    Arguments:
        first_offset, last_offset: at most 2^32 offsets.
    """
    header = _HEADER.pack(
        first_offset, 1, Codec.NONE, TimestampType.CREATE_TIME, Attributes.CONTROL, -1, -1,
        NO_PRODUCER_ID, NO_PRODUCER_EPOCH, NO_SEQUENCE, last_offset - first_offset,
    )  # fmt: skip
    return seal(group, 0, 0, 0, EnvelopeKind.BATCH, header, Flags.GAPS)


def states_offsets(envelope: Envelope, header: BatchHeader) -> bool:
    """Returns True if the payload of a batch has the offsets of its records, so that it may also cover others."""
    return header.is_kafka or envelope.flags is Flags.GAPS


def payload_of(entry: bytes) -> memoryview:
    """Returns the payload of a batch, without copying."""
    return memoryview(entry)[BATCH_OVERHEAD_BYTES:]


_KINDS = {int(kind): kind for kind in EnvelopeKind}
_CODECS = tuple(Codec)
_TIMESTAMP_TYPES = tuple(TimestampType)
# Tables instead of calls: an enum's constructor would cost as much as the rest of a header.
_FLAGS = (Flags.NONE, Flags.GAPS)
_ATTRIBUTES = tuple(Attributes(bits) for bits in range(64))
_REPLAYABLE = tuple(bool(bits & Attributes.REPLAYABLE) for bits in range(64))
_KAFKA = tuple(bool(bits & Attributes.KAFKA) for bits in range(64))
_TRANSACTIONAL = tuple(bool(bits & Attributes.TRANSACTIONAL) for bits in range(64))
_CONTROL = tuple(bool(bits & Attributes.CONTROL) for bits in range(64))
_OF_LEADER = tuple(bool(bits & (Attributes.CONTROL | Attributes.COMMIT)) for bits in range(64))
_OF_TRANSACTION = int(Attributes.TRANSACTIONAL | Attributes.CONTROL)
#: Positions of the kind, and the low bytes of the flags and of a batch's attributes, in an entry.
_KIND_AT = 1
_FLAGS_AT = 2
_ATTRIBUTES_AT = 54

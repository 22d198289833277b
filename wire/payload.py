"""Payload of a record batch: conversion of its columns to bytes and back.

A payload is one Arrow IPC record-batch message of :data:`LOG_SCHEMA`, or in a compacted batch (``Flags.GAPS``) of
:data:`COMPACTED_SCHEMA`, without the schema message before it. Decoding copies nothing: the columns point into the
entry's bytes, unless Arrow has to decompress them.

Only clients read payloads, and of a node its compaction: no other part of a server imports this.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from quorumlog.wire.decoded_size import MOST_DECODED_BYTES, DecodedSizeError, check_decoded_size
from quorumlog.wire.entry import BatchHeader, Codec, CorruptEntryError, Flags, parse_envelope, payload_of

HEADERS_TYPE: pa.DataType = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
TIMESTAMP_TYPE: pa.DataType = pa.timestamp("us", tz="UTC")
#: The columns of every batch, all nullable.
LOG_SCHEMA = pa.schema(
    [
        pa.field("key", pa.binary()),
        pa.field("value", pa.binary()),
        pa.field("timestamp", TIMESTAMP_TYPE),
        pa.field("headers", HEADERS_TYPE),
    ]
)
#: Positions of its columns.
KEY, VALUE, TIMESTAMP, HEADERS, OFFSET_DELTA = range(5)
#: The columns of a compacted batch: its timestamps are as a reader sees them, also on topics with append time, and each
#: record has the distance of its offset from the batch's base offset.
COMPACTED_SCHEMA = pa.schema([*LOG_SCHEMA, pa.field("offset_delta", pa.uint32(), nullable=False)])

_COMPRESSED = {
    Codec.LZ4: pa.ipc.IpcWriteOptions(compression="lz4", use_threads=False),
    Codec.ZSTD: pa.ipc.IpcWriteOptions(compression="zstd", use_threads=False),
}
_END_MARKER_BYTES = 8
#: Margin between the size of columns and that of their buffers as written.
_ROOM_BYTES = 1 << 20
_NO_PAIRS = pa.array([], pa.struct([("key", pa.string()), ("value", pa.binary())]))


def null_headers(count: int) -> pa.Array[Any]:
    """Returns a headers column of nulls.

    ``pa.nulls`` would give the empty lists' children buffers as long as the column's own, and all of them would be
    written:
    a twentieth of a batch of small records, and with a slice the buffers of the whole.
    """
    zeros = pa.py_buffer(bytes(4 * (count + 1)))
    return pa.Array.from_buffers(HEADERS_TYPE, count, [zeros, zeros], count, children=[_NO_PAIRS])


def write_payload(columns: pa.RecordBatch, codec: Codec) -> bytes:
    """Returns the record-batch message of columns.

    Arrow compresses buffers only as part of a stream, so the message is cut out of one. Columns that would be too large
    to be decompressed (:mod:`quorumlog.wire.decoded_size`) stay uncompressed.
    """
    if codec is Codec.NONE or columns.nbytes > MOST_DECODED_BYTES - _ROOM_BYTES:
        return columns.serialize().to_pybytes()
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, columns.schema, options=_COMPRESSED[codec]) as stream:
        stream.write_batch(columns)
    written = sink.getvalue()
    begin = columns.schema.serialize().size
    return written.slice(begin, written.size - begin - _END_MARKER_BYTES).to_pybytes()


def read_payload(entry: bytes, header: BatchHeader) -> pa.RecordBatch:
    """Returns the columns of a batch whose envelope and checksum have been checked.

    Servers do not validate the content that they append, so anything that a foreign producer wrote may arrive here: it
    is fully validated before any column is used.

    Arguments:
        header: of the entry.

    Raises:
        CorruptEntryError: the payload does not match the header.
    """
    gaps = parse_envelope(entry).flags is Flags.GAPS
    try:
        # Check before Arrow allocates what the payload requests.
        check_decoded_size(entry)
    except DecodedSizeError as error:
        raise CorruptEntryError(f"the batch at offset {header.base_offset} is not decompressed: {error}") from None
    except CorruptEntryError as error:
        raise CorruptEntryError(f"the batch at offset {header.base_offset} is not Arrow: {error}") from None
    try:
        schema = COMPACTED_SCHEMA if gaps else LOG_SCHEMA
        columns = pa.ipc.read_record_batch(pa.py_buffer(payload_of(entry)), schema)
        columns.validate(full=True)
    except MemoryError:
        # One of Arrow's exceptions, too, but it says nothing about the batch: a reader must not skip it for that.
        raise
    except (pa.ArrowException, OSError, EOFError) as error:
        raise CorruptEntryError(f"the batch at offset {header.base_offset} is not Arrow: {error}") from None
    if columns.num_rows != header.record_count:
        raise CorruptEntryError(
            f"the batch at offset {header.base_offset} states {header.record_count} records but has {columns.num_rows}"
        )
    if gaps:
        _check_deltas(columns.column(OFFSET_DELTA), header)
    return columns


def _check_deltas(deltas: pa.Array[Any], header: BatchHeader) -> None:
    rising = len(deltas) == 1 or pc.all(pc.less(deltas[:-1], deltas[1:])).as_py()
    if deltas.null_count or not rising or deltas[0].as_py() or deltas[-1].as_py() > header.offset_delta:
        raise CorruptEntryError(
            f"the batch at offset {header.base_offset} does not have offsets up to {header.last_offset} in order"
        )


def has_gaps(columns: pa.RecordBatch) -> bool:
    """True if these are the columns of a compacted batch."""
    return columns.num_columns > OFFSET_DELTA

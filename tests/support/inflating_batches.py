"""Batches of a few kilobytes that Arrow would decompress into hundreds of megabytes: no producer of ours makes them."""

from __future__ import annotations

import struct

import pyarrow as pa

from quorumlog.wire.entry import Codec, build_batch, seal_batch
from quorumlog.wire.payload import LOG_SCHEMA, null_headers

_END_MARKER_BYTES = 8


def inflating_payload(value_bytes: int, codec: str = "zstd", key: bytes = b"key") -> bytes:
    """The payload of one record whose value is so many equal bytes."""
    columns = pa.RecordBatch.from_arrays(
        [
            pa.array([key], pa.binary()),
            pa.array([b"v" * value_bytes], pa.binary()),
            pa.array([1_000], pa.int64()).cast(LOG_SCHEMA.field("timestamp").type),
            null_headers(1),
        ],
        schema=LOG_SCHEMA,
    )
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, LOG_SCHEMA, options=pa.ipc.IpcWriteOptions(compression=codec)) as stream:
        stream.write_batch(columns)
    return sink.getvalue().to_pybytes()[LOG_SCHEMA.serialize().size : -_END_MARKER_BYTES]


def inflating_batch(value_bytes: int, codec: Codec = Codec.ZSTD, key: bytes = b"key") -> bytes:
    """Such a batch as a producer would send it."""
    payload = inflating_payload(value_bytes, codec.name.lower(), key)
    return build_batch(payload, record_count=1, codec=codec, base_timestamp_ms=1, max_timestamp_ms=1)


def stored_inflating_batch(value_bytes: int, codec: Codec = Codec.ZSTD, base_offset: int = 0) -> bytes:
    """Such a batch as a log that has it would hand it out."""
    made = inflating_batch(value_bytes, codec)
    return seal_batch(made, group=7, term=1, index=base_offset + 1, previous_hash=0, base_offset=base_offset)


def as_arrow_0_17(payload: bytes) -> bytes:
    """The same message as Arrow 0.17 wrote it: metadata version 4, the codec not in its place but under a key of the
    message's own metadata. Readers of today still take that."""
    (length,) = struct.unpack_from("<I", payload, 4)
    metadata, body = bytearray(payload[8 : 8 + length]), payload[8 + length :]
    (message,) = struct.unpack_from("<I", metadata, 0)
    header = _place(metadata, message, 2)
    batch = header + struct.unpack_from("<I", metadata, header)[0]
    (body_length,) = struct.unpack_from("<q", metadata, _place(metadata, message, 3))
    vtable = batch - struct.unpack_from("<i", metadata, batch)[0]
    struct.pack_into("<H", metadata, vtable + 4 + 2 * 3, 0)  # It no longer names a codec.
    # A message of version 4 in front of the old one, which refers to the old one's description of the batch.
    fresh = bytearray(struct.pack("<I4x7H2x", 24, 14, 32, 4, 6, 8, 16, 24))
    fresh += struct.pack("<ihBxI4xqI4x", 16, 3, 3, 0, body_length, 8)
    fresh += struct.pack("<II", 1, 12) + struct.pack("<4H", 8, 12, 4, 8) + struct.pack("<iII", 8, 0, 0)
    for place, text in ((len(fresh) - 8, b"ARROW:experimental_compression"), (len(fresh) - 4, b"zstd")):
        struct.pack_into("<I", fresh, place, len(fresh) - place)
        fresh += struct.pack("<I", len(text)) + text + b"\0"
        fresh += bytes(-len(fresh) % 8)
    struct.pack_into("<I", fresh, 32, len(fresh) + batch - 32)
    return struct.pack("<II", 0xFFFF_FFFF, len(fresh) + len(metadata)) + bytes(fresh + metadata) + body


def _place(metadata: bytearray, table: int, field: int) -> int:
    vtable = table - struct.unpack_from("<i", metadata, table)[0]
    return int(table + struct.unpack_from("<H", metadata, vtable + 4 + 2 * field)[0])

"""Compression of Kafka batches: Kafka's four codecs, all of them implemented by Arrow.

A kilobyte from a hostile client may expand to gigabytes, so nothing is inflated beyond ``MOST_DECODED_BYTES``.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from quorumlog.wire.decoded_size import MOST_DECODED_BYTES
from quorumlog.wire.kafka.batch import KafkaBatchError, KafkaBatchFault, KafkaCodec, impossible

#: Parts of an LZ4 frame: magic, version 1 with independent blocks and no checksums, blocks of at most 64 KiB, the
#: checksum of these; and the end mark.
_LZ4_HEADER, _LZ4_END = b"\x04\x22\x4d\x18\x60\x40\x82", bytes(4)
_LZ4_BLOCK_BYTES = 1 << 16
#: Flag of a block that is not compressed, because that would make it larger.
_LZ4_PLAIN = 1 << 31
_XERIAL = b"\x82SNAPPY\0"
_XERIAL_HEADER_BYTES = 16
_MOST_LENGTH_BITS = 32
#: Arrow's names of codecs. All but Snappy are inflated as a stream, which the stubs do not contain.
_ARROW_CODECS: dict[KafkaCodec, Any] = {
    KafkaCodec.GZIP: "gzip",
    KafkaCodec.SNAPPY: "snappy",
    KafkaCodec.LZ4: "lz4",
    KafkaCodec.ZSTD: "zstd",
}
#: Level 1 takes 6 ms for a megabyte of JSON and leaves 28 % of it; Arrow's default, 9, takes 90 ms and leaves 23 %.
_GZIP_LEVEL = 1
#: Bytes inflated at a time, so that the limit costs no more memory than the data.
_INFLATE_BYTES = 1 << 20


def deflate(records: bytes, codec: KafkaCodec) -> bytes:
    """Compresses records. Snappy is a single block, as in librdkafka."""
    if codec is KafkaCodec.NONE:
        return records
    if codec is KafkaCodec.LZ4:
        return _lz4_frame(records)
    if codec is KafkaCodec.GZIP:
        return bytes(pa.Codec("gzip", compression_level=_GZIP_LEVEL).compress(records, asbytes=True))
    return bytes(pa.compress(records, codec=_ARROW_CODECS[codec], asbytes=True))


def _lz4_frame(records: bytes) -> bytes:
    """Compresses to an LZ4 frame with independent blocks: Java's clients refuse Arrow's own, dependent ones."""
    parts = [_LZ4_HEADER]
    for at in range(0, len(records), _LZ4_BLOCK_BYTES):
        plain = records[at : at + _LZ4_BLOCK_BYTES]
        block = bytes(pa.compress(plain, codec="lz4_raw", asbytes=True))
        if len(block) < len(plain):
            parts += (struct.pack("<I", len(block)), block)
        else:
            parts += (struct.pack("<I", len(plain) | _LZ4_PLAIN), plain)
    return b"".join([*parts, _LZ4_END])


def inflate(records: memoryview, codec: KafkaCodec) -> bytes:
    """Decompresses records.

    Raises:
        KafkaBatchError: they are not compressed with the codec, or become larger than ``MOST_DECODED_BYTES``.
    """
    if codec is KafkaCodec.NONE:
        return bytes(records)
    try:
        blocks = _snappy_blocks(records) if codec is KafkaCodec.SNAPPY else _stream_blocks(records, codec)
        found, size = [], 0
        for block in blocks:
            found.append(block)
            size += len(block)
            if size > MOST_DECODED_BYTES:
                raise _too_large(size)
    except MemoryError:
        # One of Arrow's exceptions, too, but it says nothing about the batch: a reader must not skip it for that.
        raise
    except (pa.ArrowException, OSError, EOFError, struct.error, IndexError) as error:
        raise KafkaBatchError(f"{codec.name.lower()} fails on a batch: {error}", KafkaBatchFault.CORRUPT) from None
    return found[0] if len(found) == 1 else b"".join(found)


def _stream_blocks(records: memoryview, codec: KafkaCodec) -> Iterator[bytes]:
    with pa.CompressedInputStream(pa.BufferReader(pa.py_buffer(records)), _ARROW_CODECS[codec]) as stream:
        while block := stream.read(_INFLATE_BYTES):
            yield block


def _snappy_blocks(records: memoryview) -> Iterator[bytes]:
    """Yields decompressed blocks. Snappy has no stream format of its own.

    Some clients send one block; Java's and others use the framing of snappy-java: a header, and blocks preceded by
    their lengths.
    """
    if records[: len(_XERIAL)] != _XERIAL:
        yield _snappy_block(records)
        return
    at = _XERIAL_HEADER_BYTES
    while at < len(records):
        (size,) = struct.unpack_from(">i", records, at)
        at += 4
        if size < 1 or size > len(records) - at:
            raise IndexError(f"a block of {size} bytes where {len(records) - at} are left")
        yield _snappy_block(records[at : at + size])
        at += size


def _snappy_block(block: memoryview) -> bytes:
    size = shift = at = 0
    while True:
        byte = block[at]
        size |= (byte & 0x7F) << shift
        at += 1
        shift += 7
        if byte < 0x80:
            break
        if shift > _MOST_LENGTH_BITS:
            raise IndexError("a length of more than 32 bits")
    if size > MOST_DECODED_BYTES:
        raise _too_large(size)
    return bytes(pa.decompress(pa.py_buffer(block), decompressed_size=size, codec="snappy", asbytes=True))


def _too_large(size: int) -> KafkaBatchError:
    return impossible(f"records of {size} bytes when decompressed, the maximum is {MOST_DECODED_BYTES}")

"""Compression of records for Kafka clients, in formats that all of them can read."""

from __future__ import annotations

import struct
from random import Random

import cramjam
import pyarrow as pa
import pytest

from quorumlog.wire.kafka.batch import KafkaCodec
from quorumlog.wire.kafka.compression import deflate, inflate


def test_blocks_of_lz4_do_not_depend_on_each_other() -> None:
    """Blocks of LZ4 are independent: Java clients accept no others. A batch of one block would not show that."""
    records = Random(1).randbytes(100_000) + b"quorumlog " * 20_000
    frame = deflate(records, KafkaCodec.LZ4)
    magic, flags, sizes = struct.unpack_from("<IBB", frame)
    assert (magic, flags >> 6) == (0x184D2204, 1)
    assert flags & 0x20, "blocks depend on those before them"
    assert not flags & 0x1D, "fields that are not in the header"
    most_bytes = {4: 1 << 16, 5: 1 << 18, 6: 1 << 20, 7: 1 << 22}[sizes >> 4]
    at, blocks = 7, []
    while size := struct.unpack_from("<I", frame, at)[0]:
        block = frame[at + 4 : at + 4 + (size & 0x7FFFFFFF)]
        is_plain = size >> 31
        length = min(most_bytes, len(records) - sum(map(len, blocks)))
        blocks.append(block if is_plain else pa.decompress(block, length, "lz4_raw", asbytes=True))
        at += 4 + len(block)
    assert at + 4 == len(frame)
    assert len(blocks) > 1 and b"".join(blocks) == records == inflate(memoryview(frame), KafkaCodec.LZ4)


@pytest.mark.parametrize("size", [0, 1, (1 << 16) - 1, 1 << 16, (1 << 16) + 1])
def test_lz4_of_any_size_comes_back(size: int) -> None:
    for records in (bytes(size), Random(size).randbytes(size)):
        frame = deflate(records, KafkaCodec.LZ4)
        assert inflate(memoryview(frame), KafkaCodec.LZ4) == records
        # An independent decoder reads it too.
        assert bytes(cramjam.lz4.decompress(frame)) == records

"""Decoded sizes of payloads, which are known before they are decompressed, and their limits."""

from __future__ import annotations

import struct

import pyarrow as pa
import pytest

from quorumlog.server.metadata.topic_config import TopicConfig
from quorumlog.server.partition.batch_admission import admitted
from quorumlog.server.partition.compaction_pass import CleanSection, CompactionPass
from quorumlog.server.partition.compaction_state import CompactionPoint
from quorumlog.v1 import errors_pb2
from quorumlog.wire.decoded_size import MOST_DECODED_BYTES, decoded_bytes
from quorumlog.wire.entry import BATCH_OVERHEAD_BYTES, Codec, CorruptEntryError, build_batch, parse_header, seal_batch
from quorumlog.wire.payload import LOG_SCHEMA, read_payload, write_payload
from tests.support.inflating_batches import inflating_batch, stored_inflating_batch

#: Buffers of the four columns of a batch.
BUFFERS = 17


def batch(value: bytes, codec: Codec, base_offset: int = 0, key: bytes = b"key") -> bytes:
    columns = [
        pa.array([key], pa.binary()),
        pa.array([value], pa.binary()),
        *(pa.nulls(1, LOG_SCHEMA.field(name).type) for name in ("timestamp", "headers")),
    ]
    payload = write_payload(pa.RecordBatch.from_arrays(columns, schema=LOG_SCHEMA), codec)
    made = build_batch(payload, record_count=1, codec=codec, base_timestamp_ms=1, max_timestamp_ms=1)
    return seal_batch(made, group=7, term=1, index=base_offset + 1, previous_hash=0, base_offset=base_offset)


@pytest.mark.parametrize("codec", Codec)
def test_a_payload_says_how_large_it_is(codec: Codec) -> None:
    entry = batch(b"v" * 3_000_000, codec)
    assert 3_000_000 <= decoded_bytes(entry) <= 3_001_000
    assert codec is Codec.NONE or len(entry) < 50_000


def test_what_describes_nothing_is_damaged_and_no_byte_of_it_breaks_more_than_that() -> None:
    entry = batch(b"v" * 100, Codec.ZSTD)
    for at in range(BATCH_OVERHEAD_BYTES, len(entry)):
        for value in (0, 1, 127, 128, 255):
            spoilt = entry[:at] + bytes([value]) + entry[at + 1 :]
            try:
                assert decoded_bytes(spoilt) >= 0
            except CorruptEntryError:
                continue
    for end in range(BATCH_OVERHEAD_BYTES, len(entry), 7):
        with pytest.raises(CorruptEntryError):
            decoded_bytes(entry[: min(end, BATCH_OVERHEAD_BYTES + 40)])


def test_compaction_keeps_a_batch_that_would_fill_the_memory_as_it_is() -> None:
    bomb, small = stored_inflating_batch(MOST_DECODED_BYTES), batch(b"1", Codec.NONE, 1)
    point = CompactionPoint(2, 1, 1, 0)
    work = list(CompactionPass(7, [point], CleanSection(tuple), lambda: [bomb, small], 1 << 20).run())
    assert next(made for piece in work for made in piece.batches) == bomb


def test_compaction_leaves_a_batch_at_the_limit_such_that_it_can_be_read_again() -> None:
    large = stored_inflating_batch(MOST_DECODED_BYTES - 4096)
    (made,) = (
        made
        for piece in CompactionPass(
            7, [CompactionPoint(1, 1, 1, 0)], CleanSection(tuple), lambda: [large], 1 << 20
        ).run()
        for made in piece.batches
    )
    assert made != large
    assert read_payload(made, parse_header(made)).column(1)[0].as_py() == b"v" * (MOST_DECODED_BYTES - 4096)


@pytest.mark.parametrize("codec", [Codec.LZ4, Codec.ZSTD])
def test_a_leader_refuses_what_no_reader_would_decompress(codec: Codec) -> None:
    refused = admitted(inflating_batch(MOST_DECODED_BYTES, codec), 1, 10, "orders", TopicConfig(), 8 << 20, lambda: 2)
    assert isinstance(refused, errors_pb2.Error)
    assert refused.code == errors_pb2.INVALID_RECORD
    assert "when decompressed" in refused.message
    taken = admitted(
        inflating_batch(MOST_DECODED_BYTES - 4096, codec), 1, 10, "orders", TopicConfig(), 8 << 20, lambda: 2
    )
    assert not isinstance(taken, errors_pb2.Error)


def test_a_batch_that_names_thousands_of_buffers_is_not_counted() -> None:
    entry = bytearray(batch(b"v" * 100, Codec.ZSTD))
    count = entry.index(struct.pack("<Iq", BUFFERS, 0), BATCH_OVERHEAD_BYTES)
    struct.pack_into("<I", entry, count, 5_000)
    with pytest.raises(CorruptEntryError):
        decoded_bytes(bytes(entry + bytes(16 * 5_000)))


def test_compaction_counts_what_it_holds_and_not_what_it_read() -> None:
    large = [batch(b"v" * 2_000_000, Codec.ZSTD, number, b"key %d" % number) for number in range(4)]
    assert sum(map(len, large)) < 1 << 20
    point = CompactionPoint(4, 1, 1, 0)
    work = list(CompactionPass(7, [point], CleanSection(tuple), lambda: large, 64 << 20, chunk_bytes=1 << 20).run())
    assert sum(piece.read_bytes > 0 for piece in work) == 2 * len(large), "one batch at a time, for both readings"

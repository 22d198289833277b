"""A batch of nine kilobytes that stands for 256 MiB: no reader of batches allocates as much as it states."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pyarrow as pa
import pytest

from quorumlog.sdk.cluster.offset_search import FoundOffset, OffsetSearch
from quorumlog.sdk.consumer.fetcher import FetchedRows
from quorumlog.sdk.errors import CorruptRecordError
from quorumlog.sdk.records.fetched import rows_from, to_records, to_table
from quorumlog.sdk.records.record_batch import UnreadableBatch, decode, decode_runs
from quorumlog.sdk.spark.log_access import _rows
from quorumlog.sdk.types import TopicPartition
from quorumlog.simulator.models.records import records_of
from quorumlog.v1 import data_plane_pb2
from quorumlog.wire.decoded_size import MOST_DECODED_BYTES
from quorumlog.wire.entry import BATCH_OVERHEAD_BYTES, Codec, CorruptEntryError, build_batch, parse_header, seal_batch
from quorumlog.wire.payload import read_payload, write_payload
from tests.support.inflating_batches import as_arrow_0_17, inflating_payload, stored_inflating_batch

TP = TopicPartition("orders", 0)
WHOLE = 256 << 20


def search_by_time(entry: bytes) -> None:
    """Ends at a batch that cannot be read; raises what a reader from there on meets."""
    search = OffsetSearch({TP: 1})
    search.take_answer(TP, data_plane_pb2.ListOffsetsResult(entry=entry))
    assert search.found == {TP: FoundOffset(0, 1)}
    decode(entry)


def read_by_spark(entry: bytes) -> None:
    for run in decode_runs([entry]):
        if isinstance(run, UnreadableBatch):
            raise CorruptRecordError(run.reason)
        _rows(run, 0)


#: How entries become rows: the consumer's records, its Arrow (poll_arrow; the command consume takes one of the two),
#: look-ups by time, Spark's tasks, what checks compacted replicas.
READERS: dict[str, Callable[[bytes], object]] = {
    "decode": decode,
    "records": lambda entry: [to_records(rows) for rows in rows_from(TP, [entry], 0)],
    "arrow": lambda entry: to_table(rows_from(TP, [entry], 0)),
    "look-up by time": search_by_time,
    "Spark": read_by_spark,
    "compaction": lambda entry: read_payload(entry, parse_header(entry)),
    "models": records_of,
}


@pytest.fixture
def pool() -> Iterator[pa.MemoryPool]:
    """A pool that counts what is allocated from here on."""
    counted = pa.proxy_memory_pool(pa.default_memory_pool())
    before = pa.default_memory_pool()
    pa.set_memory_pool(counted)
    yield counted
    pa.set_memory_pool(before)


@pytest.fixture(scope="module", params=[Codec.LZ4, Codec.ZSTD])
def bomb(request: pytest.FixtureRequest) -> bytes:
    entry = stored_inflating_batch(WHOLE, request.param)
    assert len(entry) < 2 << 20
    return entry


@pytest.fixture(scope="module")
def old_bomb() -> bytes:
    payload = as_arrow_0_17(inflating_payload(WHOLE))
    made = build_batch(payload, record_count=1, codec=Codec.NONE, base_timestamp_ms=1, max_timestamp_ms=1)
    return seal_batch(made, group=7, term=1, index=1, previous_hash=0, base_offset=0)


@pytest.mark.parametrize("reader", READERS)
def test_no_reader_allocates_what_a_batch_asks_for(bomb: bytes, reader: str, pool: pa.MemoryPool) -> None:
    with pytest.raises((CorruptRecordError, CorruptEntryError), match=r"268\d{6} bytes when decompressed"):
        READERS[reader](bomb)
    peak = pool.max_memory()
    assert peak is not None
    assert peak < 1 << 20


@pytest.mark.parametrize("reader", READERS)
def test_the_codec_is_found_where_old_versions_of_arrow_put_it(
    old_bomb: bytes, reader: str, pool: pa.MemoryPool
) -> None:
    with pytest.raises((CorruptRecordError, CorruptEntryError), match="does not describe its buffers"):
        READERS[reader](old_bomb)
    peak = pool.max_memory()
    assert peak is not None
    assert peak < 1 << 20


def test_arrow_itself_still_takes_such_a_message() -> None:
    """The day it does not, the one before tests nothing."""
    from quorumlog.wire.payload import LOG_SCHEMA

    columns = pa.ipc.read_record_batch(pa.py_buffer(as_arrow_0_17(inflating_payload(1 << 20))), LOG_SCHEMA)
    assert columns.column(1)[0].as_py() == b"v" * (1 << 20)


def test_what_is_large_but_within_the_limit_is_read() -> None:
    rows = FetchedRows.of_entry(TP, stored_inflating_batch(MOST_DECODED_BYTES - 4096))
    assert rows.size_bytes > MOST_DECODED_BYTES - 4096


@pytest.mark.parametrize("codec", [Codec.LZ4, Codec.ZSTD])
def test_columns_that_nobody_would_decompress_are_not_compressed(codec: Codec) -> None:
    columns = decode(stored_inflating_batch(MOST_DECODED_BYTES - 4096)).columns
    payload = write_payload(columns, codec)
    assert len(payload) > MOST_DECODED_BYTES - (1 << 20), "its writer can read it again"
    made = build_batch(payload, record_count=1, codec=codec, base_timestamp_ms=1, max_timestamp_ms=1)
    entry = seal_batch(made, group=7, term=1, index=1, previous_hash=0, base_offset=0)
    assert read_payload(entry, parse_header(entry)).equals(columns)
    assert len(entry) == BATCH_OVERHEAD_BYTES + len(payload)

"""Records of entries as columns, for either format of the payload."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import pyarrow as pa

from quorumlog.wire.entry import BatchHeader, CorruptEntryError
from quorumlog.wire.kafka.batch import KafkaBatchError
from quorumlog.wire.kafka.entry import kept_kafka_header
from quorumlog.wire.kafka.kernels import LEAST_FOR_KERNELS, MOST_FOR_KERNELS, Inflated, plain_columns
from quorumlog.wire.kafka.records import inflated, read_inflated
from quorumlog.wire.payload import LOG_SCHEMA, has_gaps, read_payload

#: Bytes of Kafka records that are decoded together: enough for Arrow's kernels to pay off, and few enough to stay in
#: the processor's cache.
_TOGETHER_BYTES = 1 << 20
_NO_ROWS = pa.RecordBatch.from_pylist([], LOG_SCHEMA)


class KafkaEntry(NamedTuple):
    """An entry with a Kafka batch, after its envelope and checksum were checked."""

    entry: bytes
    header: BatchHeader


def read_columns(entry: bytes, header: BatchHeader) -> pa.RecordBatch:
    """Returns the columns of a batch whose envelope and checksum have been checked.

    Nodes do not validate the content that they append, so anything that a foreign producer wrote may arrive here, and
    is fully validated.

    Arguments:
        header: of the entry.

    Returns:
        Columns of ``LOG_SCHEMA``, or with ``Flags.GAPS`` of ``COMPACTED_SCHEMA``; but of ``LOG_SCHEMA`` for a Kafka
        batch,
        whose records are consecutive even if it covers missing offsets behind the last. Markers and covers have none.

    Raises:
        CorruptEntryError: the payload does not match the header.
    """
    if header.is_control:
        return _NO_ROWS
    if not header.is_kafka:
        return read_payload(entry, header)
    try:
        return _read_dense(_inflated(entry, header), header)
    except KafkaBatchError as error:
        raise _unreadable(header, error) from None


def read_kafka_entries(entries: Sequence[KafkaEntry]) -> Iterator[pa.RecordBatch]:
    """Yields the columns of each of several entries with Kafka batches, as ``read_columns``, some decoded together.

    Raises:
        CorruptEntryError: at the first entry that does not match its header, after those before it.
    """
    at = 0
    for columns, count in read_kafka_runs(entries):
        if isinstance(columns, CorruptEntryError):
            raise columns
        row = 0
        for _, header in entries[at : at + count]:
            yield columns.slice(row, header.record_count) if count > 1 else columns
            row += header.record_count
        at += count


def read_kafka_runs(entries: Sequence[KafkaEntry]) -> Iterator[tuple[pa.RecordBatch | CorruptEntryError, int]]:
    """Reads the columns of several entries with Kafka batches, as ``read_columns`` does.

    Small batches are decoded together, for a third of the cost: each item has the columns and the number of entries
    whose records they hold. The amount decoded ahead is bounded. For an entry whose payload does not match its header,
    the item is the error, and reading continues after it.
    """
    waiting: list[tuple[Inflated, BatchHeader]] = []
    size = rows = 0
    for entry, header in entries:
        if header.is_control:
            yield from _read_together(waiting)
            waiting, size, rows = [], 0, 0
            yield _NO_ROWS, 1
            continue
        try:
            batch = _inflated(entry, header)
        except KafkaBatchError as error:
            yield from _read_together(waiting)
            waiting, size, rows = [], 0, 0
            yield _unreadable(header, error), 1
            continue
        if waiting and (size + len(batch.records) > _TOGETHER_BYTES or rows + header.record_count > MOST_FOR_KERNELS):
            yield from _read_together(waiting)
            waiting, size, rows = [], 0, 0
        waiting.append((batch, header))
        size += len(batch.records)
        rows += header.record_count
    yield from _read_together(waiting)


def _read_together(
    batches: Sequence[tuple[Inflated, BatchHeader]],
) -> Iterator[tuple[pa.RecordBatch | CorruptEntryError, int]]:
    whole = None
    if len(batches) > 1 and sum(header.record_count for _, header in batches) >= LEAST_FOR_KERNELS:
        whole = plain_columns([batch for batch, _ in batches])
    if whole is not None:
        yield whole, len(batches)
        return
    for batch, header in batches:
        columns: pa.RecordBatch | CorruptEntryError
        try:
            columns = _read_dense(batch, header)
        except KafkaBatchError as error:
            columns = _unreadable(header, error)
        except CorruptEntryError as error:
            columns = error
        yield columns, 1


def _inflated(entry: bytes, header: BatchHeader) -> Inflated:
    return inflated(*kept_kafka_header(entry, header))


def _read_dense(batch: Inflated, header: BatchHeader) -> pa.RecordBatch:
    columns = read_inflated(batch)
    if has_gaps(columns):
        raise CorruptEntryError(f"the Kafka batch at offset {header.base_offset} omits offsets")
    return columns


def _unreadable(header: BatchHeader, error: KafkaBatchError) -> CorruptEntryError:
    return CorruptEntryError(f"the Kafka batch at offset {header.base_offset} cannot be read: {error}")

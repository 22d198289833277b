"""The records of entries as columns, whichever way their payload was written."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import pyarrow as pa

from quorumlog.wire.entry import BatchHeader, CorruptEntryError
from quorumlog.wire.kafka.batch import KafkaBatchError
from quorumlog.wire.kafka.entry import kept_kafka_header
from quorumlog.wire.kafka.kernels import LEAST_FOR_KERNELS, MOST_FOR_KERNELS, Inflated, plain_columns
from quorumlog.wire.kafka.records import inflated, read_inflated
from quorumlog.wire.payload import has_gaps, read_payload

#: Bytes of records of Kafka's that are decoded together: so many that Arrow's kernels pay, so few that they stay in the
#: processor's cache.
_TOGETHER_BYTES = 1 << 20


class KafkaEntry(NamedTuple):
    """An entry with a batch of Kafka's whose envelope and checksum have been checked."""

    entry: bytes
    header: BatchHeader


def read_columns(entry: bytes, header: BatchHeader) -> pa.RecordBatch:
    """The columns of a batch whose envelope and checksum have been checked. Nodes never look into what they append, so
    whatever a foreign producer put there arrives here, and is fully validated.

    Arguments:
        header: of the entry.

    Returns:
        Columns of ``LOG_SCHEMA``, with ``Flags.GAPS`` of ``COMPACTED_SCHEMA``: unless it is a batch of Kafka's, whose
        records follow one another also where offsets are missing behind the last.

    Raises:
        CorruptEntryError: the payload is not what the header says.
    """
    if not header.is_kafka:
        return read_payload(entry, header)
    try:
        return _read_dense(_inflated(entry, header), header)
    except KafkaBatchError as error:
        raise _unreadable(header, error) from None


def read_kafka_entries(entries: Sequence[KafkaEntry]) -> Iterator[pa.RecordBatch]:
    """The columns of each of several entries with batches of Kafka's, as of ``read_columns``, some decoded together.

    Raises:
        CorruptEntryError: after those before it, at the first that is not what its header says.
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

    Small batches are decoded together, for a third of the cost: each item says how many entries its columns hold the
    records of. What is decoded ahead is bounded. For an entry whose payload is not what its header says the item is the
    error, and reading continues after it.
    """
    waiting: list[tuple[Inflated, BatchHeader]] = []
    size = rows = 0
    for entry, header in entries:
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
        raise CorruptEntryError(f"the Kafka batch at offset {header.base_offset} leaves offsets out")
    return columns


def _unreadable(header: BatchHeader, error: KafkaBatchError) -> CorruptEntryError:
    return CorruptEntryError(f"the Kafka batch at offset {header.base_offset} cannot be read: {error}")

"""Validation of producers' batches, record by record, before a node accepts them.

A header is only what its client states: clients have omitted the largest timestamp (sarama before 1.45.1), counted
wrongly and compressed twice. Retention, lookups by time and compaction rely on the headers of entries, and every reader
has to decode the records. So nothing in a header is trusted: the header of an entry is derived from the records, or
compared with them.

The loop over records is C if it was compiled (``native/kafka_records.c``, about 10 ns a record), otherwise Python, with
Arrow's kernels for large batches. Both accept exactly what ``records`` reads, provided that headers' keys are
UTF-8: some of Kafka's clients cannot read others. Kafka's brokers make the same checks (``LogValidator``).
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import NamedTuple

import pyarrow.compute as pc

from quorumlog.wire.kafka.batch import (
    HEADER_BYTES,
    Bytes,
    KafkaBatchError,
    KafkaBatchFault,
    KafkaBatchHeader,
    KafkaCodec,
    impossible,
    parse_kafka_header,
    verify_kafka_batch,
    with_max_timestamp,
)
from quorumlog.wire.kafka.compression import inflate
from quorumlog.wire.kafka.entry import check_produced_header, entry_of_kafka
from quorumlog.wire.kafka.kernels import LEAST_FOR_KERNELS, Inflated, plain_parts
from quorumlog.wire.kafka.records import SMALLEST_RECORD_BYTES, milliseconds_of, read_keys_and_times
from quorumlog.wire.payload import KEY, TIMESTAMP

#: The C loop: called with records, their number and the base timestamp; returns the fields of ``RecordFacts``.
_check_natively: Callable[[Bytes, int, int], tuple[int, bool]] | None = None
with contextlib.suppress(ImportError):  # A pure-Python install: slower, with the same results.
    from quorumlog.wire.kafka._records import check_records as _check_natively

#: Without the C loop, more records than these are checked on another thread.
_FEW_RECORDS = 64


class RecordFacts(NamedTuple):
    """Facts about the records of a batch.

    Arguments:
        max_timestamp_ms: the largest timestamp in milliseconds since the epoch; -1 if no record has one.
        has_null_keys: some record has no key.
    """

    max_timestamp_ms: int
    has_null_keys: bool


def entry_of_produced(batch: Bytes) -> bytes:
    """Returns the unsealed entry of a producer's batch.

    Its largest timestamp is that of its records, also in the Kafka batch in it: if the client stated another, header
    and checksum are rewritten, as Kafka's brokers do.

    Arguments:
        batch: one whole record batch, as the client sent it.

    Raises:
        KafkaBatchError: it is damaged, or no consumer could read it; ``fault`` has the reason.
    """
    header = verify_kafka_batch(batch)
    check_produced_header(batch, header)
    facts = check_kafka_records(batch, header)
    if facts.max_timestamp_ms != header.max_timestamp_ms:
        batch = with_max_timestamp(batch, facts.max_timestamp_ms)
    return entry_of_kafka(batch, null_keys=facts.has_null_keys)


def check_kafka_records(batch: Bytes, header: KafkaBatchHeader) -> RecordFacts:
    """Checks that every consumer can read the records of a batch, and that they match its header.

    The batch must be whole and its checksum correct.

    Raises:
        KafkaBatchError: they do not, or become larger than consumers accept.
    """
    try:
        compressed = memoryview(batch)[HEADER_BYTES:]
        records = compressed if header.codec is KafkaCodec.NONE else inflate(compressed, header.codec)
        if header.record_count * SMALLEST_RECORD_BYTES > len(records):
            raise impossible(f"{header.record_count} records in {len(records)} bytes")
        if _check_natively is None:
            return check_records_in_python(bytes(records), header)
        return RecordFacts(*_check_natively(records, header.record_count, header.base_timestamp_ms))
    except KafkaBatchError as problem:
        # The checksum was right: a client that receives an error about damage would retry the same batch for minutes.
        fault = KafkaBatchFault.RECORD if problem.fault is KafkaBatchFault.CORRUPT else problem.fault
        raise KafkaBatchError(str(problem), fault) from None
    except ValueError as problem:
        raise impossible(f"unreadable records: {problem}") from None


def check_records_in_python(records: bytes, header: KafkaBatchHeader) -> RecordFacts:
    """Does the check of ``native/kafka_records.c`` if that was not compiled.

    Raises:
        KafkaBatchError: the records do not match the header.
    """
    # The kernels do not support records with headers.
    parts = plain_parts(Inflated(header, records)) if header.record_count >= LEAST_FOR_KERNELS else None
    if parts is None:
        return RecordFacts(*read_keys_and_times(records, header))
    latest = max(pc.max(milliseconds_of(part.column(TIMESTAMP))).as_py() for part in parts)
    return RecordFacts(latest, any(part.column(KEY).null_count for part in parts))


def is_checked_quickly(batch: Bytes) -> bool:
    """True if the check takes microseconds, and needs no worker thread.

    Raises:
        KafkaBatchError: the bytes are not one whole record batch.
    """
    header = parse_kafka_header(batch)
    return header.codec is KafkaCodec.NONE and (_check_natively is not None or header.record_count <= _FEW_RECORDS)

"""Producers' batches, checked record by record before a node takes them.

A header is what its client says: clients have left the largest timestamp out (sarama before 1.45.1), counted wrongly
and compressed twice. Retention, look-ups by time and compaction decide by the headers of entries, and every reader has
to decode the records. So nothing of a header is believed: what is in an entry's header was derived from the records, or
compared with them.

The loop over records is C where it was compiled (``native/kafka_records.c``, about 10 ns a record), else Python, with
Arrow's kernels for large batches. Both take exactly what ``kafka_records`` reads, if headers' keys are UTF-8: some of
Kafka's clients cannot read others. Kafka's brokers make the same checks
(``LogValidator``).
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

#: The C loop: takes records, their number and the base timestamp, and returns ``RecordFacts``' fields.
_check_natively: Callable[[Bytes, int, int], tuple[int, bool]] | None = None
with contextlib.suppress(ImportError):  # A pure install: slower, and the same results.
    from quorumlog.wire.kafka._records import check_records as _check_natively

#: Without the C loop, more records than these are worth another thread.
_FEW_RECORDS = 64


class RecordFacts(NamedTuple):
    """What the records of a batch say.

    Arguments:
        max_timestamp_ms: the largest timestamp in milliseconds since the epoch; -1 where no record has any.
        has_null_keys: some record has no key.
    """

    max_timestamp_ms: int
    has_null_keys: bool


def entry_of_produced(batch: Bytes) -> bytes:
    """The unsealed entry of a producer's batch. Its largest timestamp is that of its records, also in the Kafka batch
    in it: where its client said something else, header and checksum are written anew, as Kafka's brokers do.

    Arguments:
        batch: one whole record batch, as the client sent it.

    Raises:
        KafkaBatchError: it is damaged, or no reader could read it; ``fault`` says which of Kafka's errors that is.
    """
    header = verify_kafka_batch(batch)
    check_produced_header(batch, header)
    facts = check_kafka_records(batch, header)
    if facts.max_timestamp_ms != header.max_timestamp_ms:
        batch = with_max_timestamp(batch, facts.max_timestamp_ms)
    return entry_of_kafka(batch, null_keys=facts.has_null_keys)


def check_kafka_records(batch: Bytes, header: KafkaBatchHeader) -> RecordFacts:
    """Checks that every reader can read the records of a whole batch whose checksum is right, and that they are what
    the header says.

    Raises:
        KafkaBatchError: they are not, or become larger than readers take.
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
        # The checksum was right: a client that is told of damage would send the same again for minutes.
        fault = KafkaBatchFault.RECORD if problem.fault is KafkaBatchFault.CORRUPT else problem.fault
        raise KafkaBatchError(str(problem), fault) from None
    except ValueError as problem:
        raise impossible(f"unreadable records: {problem}") from None


def check_records_in_python(records: bytes, header: KafkaBatchHeader) -> RecordFacts:
    """The check of ``native/kafka_records.c`` where that was not compiled.

    Raises:
        KafkaBatchError: the records are not what the header says.
    """
    # The kernels take no records with headers.
    parts = plain_parts(Inflated(header, records)) if header.record_count >= LEAST_FOR_KERNELS else None
    if parts is None:
        return RecordFacts(*read_keys_and_times(records, header))
    latest = max(pc.max(milliseconds_of(part.column(TIMESTAMP))).as_py() for part in parts)
    return RecordFacts(latest, any(part.column(KEY).null_count for part in parts))


def is_checked_quickly(batch: Bytes) -> bool:
    """True if the check takes microseconds: it needs no thread of its own.

    Raises:
        KafkaBatchError: the bytes are not one whole record batch.
    """
    header = parse_kafka_header(batch)
    return header.codec is KafkaCodec.NONE and (_check_natively is not None or header.record_count <= _FEW_RECORDS)

"""Largest timestamps of batches, for the offset index.

It is the one in the entry's header, except where an older version trusted a Kafka client's value. Leaders now compute
it from the records. Logs, backups and replicas that catch up also bring older batches, whose clients omitted it or set
it too low: for these, the records decide.
"""

from __future__ import annotations

import struct

from quorumlog.wire.entry import BATCH_OVERHEAD_BYTES, BatchHeader, CorruptEntryError
from quorumlog.wire.kafka.batch import HEADER_BYTES as KAFKA_HEADER_BYTES
from quorumlog.wire.kafka.entry import kept_kafka_header

#: Base and largest timestamp in the Kafka batch that is an entry's payload.
_KAFKA_TIMES = struct.Struct(">qq")
_KAFKA_TIMES_AT = BATCH_OVERHEAD_BYTES + 27


def is_largest_timestamp_missing(entry: bytes) -> bool:
    """True if an entry's Kafka batch states a largest timestamp below that of its first record.

    No batch does whose records a leader has checked.
    """
    if len(entry) < BATCH_OVERHEAD_BYTES + KAFKA_HEADER_BYTES:
        return False
    base_ms, max_ms = _KAFKA_TIMES.unpack_from(entry, _KAFKA_TIMES_AT)
    return bool(max_ms < base_ms)


def largest_timestamp_by_records(entry: bytes, header: BatchHeader) -> int:
    """Returns the largest timestamp (ms) of the records of an entry with a Kafka batch.

    It is the header's value if the records cannot be read, or have the leader's append time.
    """
    # Loads pyarrow: 0.1 s and 50 MiB that a node without such batches does not need.
    from quorumlog.wire.kafka.produced import check_kafka_records

    try:
        batch, kafka = kept_kafka_header(entry, header)
        if kafka.timestamp_type is header.timestamp_type:
            return check_kafka_records(batch, kafka).max_timestamp_ms
    except CorruptEntryError:
        pass
    return header.max_timestamp_ms

"""The largest timestamp of a batch for the offset index: the one in its entry's header, except where an older version
took a Kafka client's word for it.

Leaders derive it from the records now. Logs, backups and replicas that catch up also bring batches from before, whose
clients left it out or set it too low: for these the records decide.
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
    """True if the Kafka batch in an entry states a largest timestamp below that of its first record, which no batch has
    whose records a leader has checked."""
    if len(entry) < BATCH_OVERHEAD_BYTES + KAFKA_HEADER_BYTES:
        return False
    base_ms, max_ms = _KAFKA_TIMES.unpack_from(entry, _KAFKA_TIMES_AT)
    return bool(max_ms < base_ms)


def largest_timestamp_by_records(entry: bytes, header: BatchHeader) -> int:
    """The largest timestamp (ms) of the records of an entry with a Kafka batch; what its header states where they
    cannot be read, or have the leader's append time."""
    # It loads pyarrow, 0.1 s and 50 MiB that a node without such batches does not need.
    from quorumlog.wire.kafka.produced import check_kafka_records

    try:
        batch, kafka = kept_kafka_header(entry, header)
        if kafka.timestamp_type is header.timestamp_type:
            return check_kafka_records(batch, kafka).max_timestamp_ms
    except CorruptEntryError:
        pass
    return header.max_timestamp_ms

"""The records of an entry as columns, whichever way its payload was written."""

from __future__ import annotations

import pyarrow as pa

from quorumlog.v1.entry import BatchHeader, CorruptEntryError
from quorumlog.v1.kafka_batch import KafkaBatchError
from quorumlog.v1.kafka_entry import kept_kafka_header
from quorumlog.v1.kafka_records import read_kafka_columns
from quorumlog.v1.payload import has_gaps, read_payload


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
        columns = read_kafka_columns(*kept_kafka_header(entry, header))
    except KafkaBatchError as error:
        raise CorruptEntryError(f"the Kafka batch at offset {header.base_offset} cannot be read: {error}") from None
    if has_gaps(columns):
        raise CorruptEntryError(f"the Kafka batch at offset {header.base_offset} leaves offsets out")
    return columns

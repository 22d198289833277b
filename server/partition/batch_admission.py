"""Checks of a produce request and of its batches before anything is appended.

The checks of a whole request run twice: in the service, before the request enters the node, and in the node, which does
not depend on the service.
"""

from __future__ import annotations

from collections.abc import Callable

from quorumlog.server.metadata.records import SECOND_FEATURE_LEVEL
from quorumlog.server.metadata.topic_config import TopicConfig
from quorumlog.server.partition.acknowledgements import ACKS_ALL
from quorumlog.server.partition.producer_state import MAX_TRANSACTIONAL_EPOCH, is_named
from quorumlog.server.step.wire_errors import error
from quorumlog.v1 import errors_pb2
from quorumlog.v1.errors_pb2 import ErrorCode
from quorumlog.wire.decoded_size import DecodedSizeError, check_decoded_size
from quorumlog.wire.entry import (
    SEQUENCE_MODULUS,
    Attributes,
    BatchHeader,
    CorruptEntryError,
    TimestampType,
    parse_batch,
    verify_batch,
)
from quorumlog.wire.kafka.batch import KafkaBatchError, KafkaBatchFault
from quorumlog.wire.kafka.entry import KAFKA_ALLOWANCE_BYTES, check_kafka_entry, is_kafka, kept_kafka_header

#: Timestamps further ahead of the node's clock are refused: retention would never remove them.
MAX_AHEAD_MS = 3_600_000


def check_acks(acks: int) -> errors_pb2.Error | None:
    """Returns the error for an unknown ``acks``, or None."""
    if acks in (-1, 0, 1):
        return None
    return error(ErrorCode.INVALID_REQUIRED_ACKS, f"acks is {acks}: use 0, 1 or -1 (all)")


def check_request_size(size_bytes: int, limit: int) -> errors_pb2.Error | None:
    """Returns the error for a request that is too large, or None.

    Arguments:
        limit: the largest request that the node accepts, in bytes.
    """
    if size_bytes <= limit:
        return None
    return error(
        ErrorCode.RECORD_TOO_LARGE,
        f"the request has {size_bytes} bytes, the node accepts {limit}: send fewer or smaller batches in one request",
    )


def admitted(
    batch: bytes,
    acks: int,
    wall_ms: int,
    topic: str,
    config: TopicConfig,
    batch_bytes: int,
    feature_level: Callable[[], int],
) -> BatchHeader | errors_pb2.Error:
    """Returns the header of an unsealed batch, or the error if the batch is refused.

    Arguments:
        wall_ms: milliseconds since the epoch, by the node's clock.
        batch_bytes: the largest batch that the node accepts, whatever the topic's limit.
        feature_level: returns the cluster's feature level: batches that older nodes would misread are refused below it.
    """
    most_bytes = min(config.max_message_bytes, batch_bytes)
    if len(batch) > most_bytes and not (is_kafka(batch) and len(batch) <= most_bytes + KAFKA_ALLOWANCE_BYTES):
        return error(
            ErrorCode.RECORD_TOO_LARGE,
            f"a batch of {len(batch)} bytes exceeds max.message.bytes={config.max_message_bytes} of topic {topic};"
            " send smaller batches or raise it",
        )
    try:
        header = _check_unsealed(batch)
    except CorruptEntryError as corrupt:
        return error(ErrorCode.CORRUPT_MESSAGE, f"the batch was refused unread: {corrupt}")
    if refusal := _check_rules(header, acks):
        return refusal
    if refusal := _check_time(header, wall_ms, config):
        return refusal
    if refusal := _refuse_kafka(batch, header, feature_level) if header.is_kafka else refuse_inflating(batch):
        return refusal
    if config.compacts and header.attributes & Attributes.NULL_KEYS:
        return error(
            ErrorCode.INVALID_RECORD,
            f"topic {topic} is compacted and keeps the last record of each key: give every record a key",
        )
    return header


def refuse_inflating(batch: bytes) -> errors_pb2.Error | None:
    """Returns the error for a batch whose declared decoded size exceeds what readers decompress; None otherwise.

    A batch whose payload declares no size is accepted: servers do not inspect payloads, and readers allocate nothing
    for it either.
    """
    try:
        check_decoded_size(batch)
    except DecodedSizeError as large:
        return error(ErrorCode.INVALID_RECORD, f"a batch was refused: {large}: send smaller batches")
    except CorruptEntryError:
        return None
    return None


def refuse_unreadable_kafka(entry: bytes, header: BatchHeader) -> errors_pb2.Error | None:
    """Returns the error for a stored batch of a Kafka client whose own header contradicts the entry's; None if they
    match.

    Its other fields were checked where it was first appended.
    """
    try:
        kept_kafka_header(entry, header)
    except KafkaBatchError as problem:
        return error(ErrorCode.INVALID_RECORD, f"a Kafka batch was refused: {problem}")
    return None


def _refuse_kafka(batch: bytes, header: BatchHeader, feature_level: Callable[[], int]) -> errors_pb2.Error | None:
    if feature_level() < SECOND_FEATURE_LEVEL:
        return error(
            ErrorCode.UNSUPPORTED_VERSION,
            f"batches of Kafka's clients need feature level {SECOND_FEATURE_LEVEL}, the cluster is at"
            f" {feature_level()}: upgrade all nodes, see quorumlog features describe",
        )
    try:
        # Kafka's consumers must be able to trust the batch's own header and checksum.
        check_kafka_entry(batch, header)
    except KafkaBatchError as problem:
        code = ErrorCode.CORRUPT_MESSAGE if problem.fault is KafkaBatchFault.CORRUPT else ErrorCode.INVALID_RECORD
        return error(code, f"a Kafka batch was refused: {problem}")
    return None


def _check_unsealed(batch: bytes) -> BatchHeader:
    # A Kafka batch's own checksum is verified below, and its header compared with the entry's: one checksum is enough.
    envelope, header = parse_batch(batch) if is_kafka(batch) else verify_batch(batch)
    position = (envelope.group, envelope.term, envelope.index, envelope.previous_hash, header.base_offset)
    if envelope.flags or any(position):
        raise CorruptEntryError("a producer leaves flags, group, term, index, previous hash and base offset zero")
    return header


def _check_rules(header: BatchHeader, acks: int) -> errors_pb2.Error | None:
    if header.record_count >= SEQUENCE_MODULUS:
        # It would wrap to a sequence that its producer has used, so new batches could not be distinguished from
        # duplicates.
        return error(
            ErrorCode.INVALID_RECORD, f"a batch of {header.record_count} records: at most {SEQUENCE_MODULUS - 1} fit"
        )
    # A negative id belongs to no producer: it would be accepted as idempotent and never be recognised again.
    idempotent = header.producer_id >= 0
    if idempotent != (header.producer_epoch >= 0) or idempotent != (header.base_sequence >= 0):
        return error(
            ErrorCode.INVALID_RECORD, "producer id, epoch and sequence belong together: set all three or none (-1)"
        )
    if header.replayable and not is_named(header.producer_id):
        return error(ErrorCode.INVALID_RECORD, "only the epochs of named producers can be replayed")
    if header.is_of_leader:
        return error(ErrorCode.INVALID_RECORD, "only leaders write the markers of transactions")
    if header.is_transactional and (refusal := _check_transactional(header)):
        return refusal
    if idempotent and acks != ACKS_ALL:
        return error(ErrorCode.INVALID_REQUIRED_ACKS, "an idempotent producer needs acks=all")
    if header.timestamp_type is not TimestampType.CREATE_TIME:
        return error(ErrorCode.INVALID_RECORD, "a producer sends batches of timestamp type CREATE_TIME")
    return None


def _check_transactional(header: BatchHeader) -> errors_pb2.Error | None:
    if is_named(header.producer_id):
        return error(ErrorCode.INVALID_RECORD, "a producer with a name has no transactions")
    if 0 <= header.producer_epoch <= MAX_TRANSACTIONAL_EPOCH:
        return None
    return error(
        ErrorCode.INVALID_RECORD,
        f"a batch of a transaction needs a producer id, and an epoch up to {MAX_TRANSACTIONAL_EPOCH}",
    )


def _check_time(header: BatchHeader, wall_ms: int, config: TopicConfig) -> errors_pb2.Error | None:
    # With append time the records get the node's own timestamp.
    is_create_time = config.message_timestamp_type is TimestampType.CREATE_TIME
    if is_create_time and header.max_timestamp_ms > wall_ms + MAX_AHEAD_MS:
        return error(
            ErrorCode.INVALID_TIMESTAMP,
            f"timestamp {header.max_timestamp_ms} ms is more than an hour ahead of the node's clock ({wall_ms} ms)",
        )
    return None

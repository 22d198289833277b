"""Error codes of Kafka's protocol."""

from __future__ import annotations

from enum import IntEnum

from quorumlog.v1 import errors_pb2
from quorumlog.v1.errors_pb2 import ErrorCode
from quorumlog.wire.kafka.batch import KafkaBatchFault


class KafkaError(IntEnum):
    """Kafka's codes, by Kafka's names (``org.apache.kafka.common.protocol.Errors``)."""

    UNKNOWN_SERVER_ERROR = -1
    NONE = 0
    OFFSET_OUT_OF_RANGE = 1
    CORRUPT_MESSAGE = 2
    UNKNOWN_TOPIC_OR_PARTITION = 3
    LEADER_NOT_AVAILABLE = 5
    NOT_LEADER_OR_FOLLOWER = 6
    REQUEST_TIMED_OUT = 7
    MESSAGE_TOO_LARGE = 10
    OFFSET_METADATA_TOO_LARGE = 12
    COORDINATOR_LOAD_IN_PROGRESS = 14
    COORDINATOR_NOT_AVAILABLE = 15
    NOT_COORDINATOR = 16
    INVALID_TOPIC_EXCEPTION = 17
    NOT_ENOUGH_REPLICAS = 19
    NOT_ENOUGH_REPLICAS_AFTER_APPEND = 20
    INVALID_REQUIRED_ACKS = 21
    ILLEGAL_GENERATION = 22
    INCONSISTENT_GROUP_PROTOCOL = 23
    INVALID_GROUP_ID = 24
    UNKNOWN_MEMBER_ID = 25
    INVALID_SESSION_TIMEOUT = 26
    REBALANCE_IN_PROGRESS = 27
    TOPIC_AUTHORIZATION_FAILED = 29
    GROUP_AUTHORIZATION_FAILED = 30
    CLUSTER_AUTHORIZATION_FAILED = 31
    INVALID_TIMESTAMP = 32
    UNSUPPORTED_SASL_MECHANISM = 33
    ILLEGAL_SASL_STATE = 34
    UNSUPPORTED_VERSION = 35
    TOPIC_ALREADY_EXISTS = 36
    INVALID_PARTITIONS = 37
    INVALID_REPLICATION_FACTOR = 38
    INVALID_REPLICA_ASSIGNMENT = 39
    INVALID_CONFIG = 40
    NOT_CONTROLLER = 41
    INVALID_REQUEST = 42
    UNSUPPORTED_FOR_MESSAGE_FORMAT = 43
    POLICY_VIOLATION = 44
    OUT_OF_ORDER_SEQUENCE_NUMBER = 45
    DUPLICATE_SEQUENCE_NUMBER = 46
    INVALID_PRODUCER_EPOCH = 47
    INVALID_TXN_STATE = 48
    INVALID_PRODUCER_ID_MAPPING = 49
    INVALID_TRANSACTION_TIMEOUT = 50
    CONCURRENT_TRANSACTIONS = 51
    TRANSACTIONAL_ID_AUTHORIZATION_FAILED = 53
    OPERATION_NOT_ATTEMPTED = 55
    KAFKA_STORAGE_ERROR = 56
    SASL_AUTHENTICATION_FAILED = 58
    UNKNOWN_PRODUCER_ID = 59
    REASSIGNMENT_IN_PROGRESS = 60
    NON_EMPTY_GROUP = 68
    GROUP_ID_NOT_FOUND = 69
    FETCH_SESSION_ID_NOT_FOUND = 70
    INVALID_FETCH_SESSION_EPOCH = 71
    FENCED_LEADER_EPOCH = 74
    UNKNOWN_LEADER_EPOCH = 75
    UNSUPPORTED_COMPRESSION_TYPE = 76
    STALE_BROKER_EPOCH = 77
    OFFSET_NOT_AVAILABLE = 78
    MEMBER_ID_REQUIRED = 79
    PREFERRED_LEADER_NOT_AVAILABLE = 80
    GROUP_MAX_SIZE_REACHED = 81
    FENCED_INSTANCE_ID = 82
    ELECTION_NOT_NEEDED = 84
    NO_REASSIGNMENT_IN_PROGRESS = 85
    GROUP_SUBSCRIBED_TO_TOPIC = 86
    INVALID_RECORD = 87
    UNSTABLE_OFFSET_COMMIT = 88
    THROTTLING_QUOTA_EXCEEDED = 89
    PRODUCER_FENCED = 90
    RESOURCE_NOT_FOUND = 91
    DUPLICATE_RESOURCE = 92
    UNACCEPTABLE_CREDENTIAL = 93
    UNKNOWN_TOPIC_ID = 100
    TRANSACTIONAL_ID_NOT_FOUND = 105
    FETCH_SESSION_TOPIC_ID_ERROR = 106
    FENCED_MEMBER_EPOCH = 110
    UNRELEASED_INSTANCE_ID = 111
    UNSUPPORTED_ASSIGNOR = 112
    STALE_MEMBER_EPOCH = 113
    TRANSACTION_ABORTABLE = 120
    INVALID_REGULAR_EXPRESSION = 128


#: Codes with a different name in Kafka, or without an equivalent there.
_OTHER_NAMES = {
    ErrorCode.SERVER_BUSY: KafkaError.REQUEST_TIMED_OUT,
    ErrorCode.RECORD_TOO_LARGE: KafkaError.MESSAGE_TOO_LARGE,
    ErrorCode.STORAGE_ERROR: KafkaError.KAFKA_STORAGE_ERROR,
    ErrorCode.INVALID_TOPIC: KafkaError.INVALID_TOPIC_EXCEPTION,
    ErrorCode.DUPLICATE_SEQUENCE_MISMATCH: KafkaError.OUT_OF_ORDER_SEQUENCE_NUMBER,
    ErrorCode.PRODUCER_LIMIT_EXCEEDED: KafkaError.POLICY_VIOLATION,
    ErrorCode.CLUSTER_NOT_FORMED: KafkaError.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.PRODUCER_NAME_AUTHORIZATION_FAILED: KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    ErrorCode.TOO_MANY_FETCH_SESSIONS: KafkaError.FETCH_SESSION_ID_NOT_FOUND,
    ErrorCode.SASL_SESSION_EXPIRED: KafkaError.SASL_AUTHENTICATION_FAILED,
}
_CODES = {
    number: _OTHER_NAMES.get(number, KafkaError.__members__.get(name, KafkaError.UNKNOWN_SERVER_ERROR))
    for name, number in ErrorCode.items()
}
_BUSY = frozenset((ErrorCode.SERVER_BUSY, ErrorCode.THROTTLING_QUOTA_EXCEEDED))
_FAULTS = {
    KafkaBatchFault.CORRUPT: KafkaError.CORRUPT_MESSAGE,
    KafkaBatchFault.MAGIC: KafkaError.UNSUPPORTED_FOR_MESSAGE_FORMAT,
    KafkaBatchFault.CODEC: KafkaError.UNSUPPORTED_COMPRESSION_TYPE,
    KafkaBatchFault.RECORD: KafkaError.INVALID_RECORD,
    KafkaBatchFault.TRANSACTION: KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
}


def kafka_code(error: errors_pb2.Error) -> KafkaError:
    """Returns Kafka's code of an error; ``NONE`` for an empty one."""
    return _CODES.get(error.code, KafkaError.UNKNOWN_SERVER_ERROR)


def group_code(error: errors_pb2.Error) -> KafkaError:
    """Returns the code for requests to a group's coordinator, which have their own codes for overload and timeouts."""
    if error.code in _BUSY:
        return KafkaError.COORDINATOR_LOAD_IN_PROGRESS
    if error.code == ErrorCode.REQUEST_TIMED_OUT:
        # Brokers return this if their log is not replicated in time. A timeout would make members that use Java stop.
        return KafkaError.COORDINATOR_NOT_AVAILABLE
    return kafka_code(error)


def transaction_code(error: errors_pb2.Error, *, knows_fenced: bool, knows_abortable: bool) -> KafkaError:
    """Returns the code for requests to a transaction's coordinator.

    Arguments:
        knows_fenced, knows_abortable: the client has PRODUCER_FENCED (KIP-588), TRANSACTION_ABORTABLE (KIP-890).
    """
    code = group_code(error)
    if code is KafkaError.INVALID_PRODUCER_EPOCH and knows_fenced:
        return KafkaError.PRODUCER_FENCED
    if code is KafkaError.TRANSACTION_ABORTABLE and not knows_abortable:
        return KafkaError.INVALID_TXN_STATE
    return code


def code_of_fault(fault: KafkaBatchFault) -> KafkaError:
    """Returns Kafka's code of an invalid batch."""
    return _FAULTS[fault]

"""The error hierarchy of the clients, named as Kafka names errors, built from ``errors.proto``.

Every error answers two questions:

- ``retriable``: may the same call succeed later? The clients have already retried such errors, within their limits,
  before they raise one.
- ``definite``: is it certain that the failed call has had no effect and never will? A send that failed *indefinitely*
  may still appear in the log; sending it again may duplicate it.
"""

from __future__ import annotations

from typing import ClassVar, Self

from quorumlog.sdk.types import TopicPartition
from quorumlog.v1 import errors_pb2


class QuorumlogError(Exception):
    """Base of all errors that the clients raise.

    Attributes:
        retriable: the same call may succeed later.
        definite: the failed call has had no effect and never will.
    """

    #: Values of the class unless the server reports others.
    default_retriable: ClassVar[bool] = False
    default_definite: ClassVar[bool] = True

    def __init__(self, message: str, *, retriable: bool | None = None, definite: bool | None = None) -> None:
        super().__init__(message if message.isprintable() else _in_one_line(message))
        self.retriable = self.default_retriable if retriable is None else retriable
        self.definite = self.default_definite if definite is None else definite

    @property
    def message(self) -> str:
        """The message in one line: what is wrong and what to do."""
        return str(self.args[0]) if self.args else type(self).__name__

    def about(self, topic: str, partition: int) -> Self:
        """Returns a copy whose message names the partition, unless the message has the topic's name already."""
        message = self.message if topic in self.message else f"{topic}-{partition}: {self.message}"
        return type(self)(message, retriable=self.retriable, definite=self.definite)

    def as_indefinite(self, what: str = "an earlier attempt") -> QuorumlogError:
        """Returns this error as indefinite, for a call of which a part may still take effect.

        Arguments:
            what: the part that may take effect, for the message.
        """
        if not self.definite:
            return self
        message = f"{self.message}; {what} may have taken effect"
        return type(self)(message, retriable=self.retriable, definite=False)


def _in_one_line(message: str) -> str:
    """Returns the message without line breaks and control characters, which may come from quoted input."""
    text = " ".join(message.split())
    return "".join(letter if letter.isprintable() else repr(letter)[1:-1] for letter in text)


# --- raised by the client itself ---------------------------------------------------------------------------------


class IllegalArgumentError(QuorumlogError, ValueError):
    """An invalid argument or configuration value."""


class IllegalStateError(QuorumlogError):
    """A call that is not allowed in the client's present state."""


class ClientClosedError(IllegalStateError):
    """The client has been closed."""


class ForkedClientError(IllegalStateError):
    """The process forked after the client was created: its connections and threads belong to the parent."""


class NoBrokersAvailableError(QuorumlogError):
    """No bootstrap server answered."""

    default_retriable = True


class NetworkError(QuorumlogError):
    """The connection to a node broke or could not be established."""

    default_retriable = True
    default_definite = False


class BufferExhaustedError(QuorumlogError):
    """The producer's buffer stayed full for ``max_block_ms``."""

    default_retriable = True


class NoOffsetForPartitionError(QuorumlogError):
    """A partition has no position, and ``auto_offset_reset`` is ``none``."""


class UnsupportedError(QuorumlogError):
    """This version lacks the requested feature."""


# --- named by the server -----------------------------------------------------------------------------------------


class UnknownServerError(QuorumlogError):
    """The server met a condition for which no other error code exists."""

    default_definite = False


class InvalidRequestError(QuorumlogError):
    """The request is malformed or contradicts itself."""


class RequestTimedOutError(QuorumlogError):
    """The call did not complete in time; it may still take effect unless ``definite`` is set."""

    default_retriable = True
    default_definite = False


class ServerBusyError(QuorumlogError):
    """A bounded queue of the server is full; nothing was done."""

    default_retriable = True


class UnsupportedVersionError(QuorumlogError):
    """The server's version does not support the request."""


class UnknownTopicOrPartitionError(QuorumlogError):
    """The topic does not exist, or has no such partition."""

    # A topic that was just created may not be known to every node yet.
    default_retriable = True


class NotLeaderForPartitionError(QuorumlogError):
    """The node does not lead the partition."""

    default_retriable = True


class LeaderNotAvailableError(QuorumlogError):
    """The partition has no leader at the moment."""

    default_retriable = True


class PreferredLeaderNotAvailableError(QuorumlogError):
    """The preferred leader of a partition cannot lead now: it is down, out of sync, or did not take over."""

    default_retriable = True


class ElectionNotNeededError(QuorumlogError):
    """The preferred leader of a partition already leads it, or will soon."""


class InvalidFetchSessionEpochError(QuorumlogError):
    """A fetch session and its node disagree on the previous request. Consumers start a new session automatically."""

    default_retriable = True


class TooManyFetchSessionsError(QuorumlogError):
    """The node has reached its limit of fetch sessions. Consumers then fetch without a session automatically."""

    default_retriable = True


class FencedLeaderEpochError(QuorumlogError):
    """The client's leader epoch is older than the partition's."""

    default_retriable = True


class UnknownLeaderEpochError(QuorumlogError):
    """The client's leader epoch is newer than the node's."""

    default_retriable = True


class OffsetNotAvailableError(QuorumlogError):
    """A replica that does not lead the partition does not serve the offset now; its leader does."""

    default_retriable = True


class OffsetOutOfRangeError(QuorumlogError):
    """The offset is below the log start or beyond the log end."""


class NotEnoughReplicasError(QuorumlogError):
    """Fewer replicas are live than ``acks=all`` needs; nothing was appended."""

    default_retriable = True


class NotEnoughReplicasAfterAppendError(QuorumlogError):
    """The records were appended, but confirmed by fewer replicas than ``acks=all`` needs; they may be lost or kept."""

    default_retriable = True
    default_definite = False


class CorruptRecordError(QuorumlogError):
    """A batch has a wrong checksum or an invalid structure."""


class UnreadableBatchError(CorruptRecordError):
    """The records of a stored batch cannot be decoded, although its checksum is right: its producer wrote it so.

    Every replica has the same bytes, so reading it again does not help. Continue with ``seek(error.partition,
    error.next_offset)``, or set ``on_corrupt="skip"``.

    Attributes:
        partition: partition of the batch.
        first_offset, last_offset: of the batch.
        record_count: number of records according to its header.
        reason: what is wrong with it.
    """

    partition: TopicPartition
    first_offset: int
    last_offset: int
    record_count: int
    reason: str

    @classmethod
    def of(
        cls,
        partition: TopicPartition,
        first_offset: int,
        last_offset: int,
        record_count: int,
        reason: str,
        *,
        skip_with: str = 'set on_corrupt="skip"',
    ) -> Self:
        """Returns the error for one batch.

        Arguments:
            skip_with: how to skip such batches, for the message.
        """
        error = cls(
            f"{partition.topic}-{partition.partition}: offsets {first_offset} to {last_offset} cannot be read:"
            f" {reason}; seek to offset {last_offset + 1} to continue after the batch, or {skip_with}"
        )
        error.partition, error.first_offset, error.last_offset = partition, first_offset, last_offset
        error.record_count, error.reason = record_count, reason
        return error

    @property
    def next_offset(self) -> int:
        """The offset after the batch, from which reading can continue."""
        return self.last_offset + 1


class RecordTooLargeError(QuorumlogError):
    """A record or batch exceeds a size limit."""


class InvalidRecordError(QuorumlogError):
    """A well-formed batch violates a constraint."""


class InvalidTimestampError(QuorumlogError):
    """A timestamp is too far in the future."""


class InvalidRequiredAcksError(QuorumlogError):
    """``acks`` is not 0, 1 or all."""


class OutOfOrderSequenceNumberError(QuorumlogError):
    """The sequence number of a batch does not follow the last one of its producer."""


class InvalidProducerEpochError(QuorumlogError):
    """A newer instance of the same named producer has taken over, or its name was deleted."""


#: The name in kafka-python.
ProducerFencedError = InvalidProducerEpochError


class UnknownProducerIdError(QuorumlogError):
    """The partition has no state of this producer."""


class DuplicateSequenceMismatchError(QuorumlogError):
    """A producer repeated an epoch and sequence with records that differ from those in the log."""


class ProducerLimitExceededError(QuorumlogError):
    """The limit of named producers, or of batches in one producer epoch, is reached."""


class ProducerNameNotFoundError(QuorumlogError):
    """The producer name was never claimed, or was deleted."""


class ProducerNameInUseError(QuorumlogError):
    """The producer name was claimed after the given time, so it was not deleted."""


class StorageError(QuorumlogError):
    """The node's disk is full or failing; nothing was appended."""

    default_retriable = True


class TopicAlreadyExistsError(QuorumlogError):
    """A topic of that name exists already."""


class InvalidTopicError(QuorumlogError):
    """The topic's name is not allowed."""


class InvalidPartitionsError(QuorumlogError):
    """The number of partitions is not allowed, or the partition does not exist."""


class InvalidReplicationFactorError(QuorumlogError):
    """The replication factor is not allowed here."""


class InvalidReplicaAssignmentError(QuorumlogError):
    """An explicit replica assignment is inconsistent."""


class InvalidConfigError(QuorumlogError):
    """An unknown configuration key, or a value outside its type or range."""


class PolicyViolationError(QuorumlogError):
    """The topic's cleanup policy does not allow the request."""


class ReassignmentInProgressError(QuorumlogError):
    """The partition is being reassigned already, or has no reassignment to cancel."""


class NotControllerError(QuorumlogError):
    """The node is not the active controller."""

    default_retriable = True


class ClusterNotFormedError(QuorumlogError):
    """The cluster has not formed yet: not all configured controllers are up."""

    default_retriable = True


class CoordinatorNotAvailableError(QuorumlogError):
    """The group's coordinator has no leader at the moment, or is being created."""

    default_retriable = True


class NotCoordinatorError(QuorumlogError):
    """The contacted node does not coordinate the group."""

    default_retriable = True


class InvalidGroupIdError(QuorumlogError):
    """The group id is not allowed."""


class UnknownMemberIdError(QuorumlogError):
    """The coordinator does not have the member: it was removed from its group."""


class FencedMemberEpochError(QuorumlogError):
    """The member was removed from its group, and others have its partitions."""


class StaleMemberEpochError(QuorumlogError):
    """A commit carries a member epoch in which the member did not have the partition."""

    default_retriable = True


class UnreleasedInstanceIdError(QuorumlogError):
    """A static member of that name is already in the group."""

    default_retriable = True


class FencedInstanceIdError(QuorumlogError):
    """Another process has taken the static member's name."""


class UnsupportedAssignorError(QuorumlogError):
    """The coordinator has no assignor of that name."""


class InvalidRegularExpressionError(QuorumlogError):
    """A topic pattern is not a valid regular expression."""


class GroupMaxSizeReachedError(QuorumlogError):
    """The group or its coordinator has reached its limit of members, groups or offsets."""


class GroupIdNotFoundError(QuorumlogError):
    """The group does not exist."""


class NonEmptyGroupError(QuorumlogError):
    """The group has members."""


class GroupSubscribedToTopicError(QuorumlogError):
    """A member of the group subscribes to the topic."""


class OffsetMetadataTooLargeError(QuorumlogError):
    """The metadata of a committed offset is too long."""


class IllegalGenerationError(QuorumlogError):
    """A classic group has reached another generation; its member must rejoin."""


class InconsistentGroupProtocolError(QuorumlogError):
    """The group is of the other kind, or its members share no protocol with the one that joins."""


class RebalanceInProgressError(QuorumlogError):
    """The members of a classic group must rejoin, or wait for their leader's assignment."""

    default_retriable = True


class InvalidSessionTimeoutError(QuorumlogError):
    """The session timeout is outside the bounds that the nodes allow."""


class MemberIdRequiredError(QuorumlogError):
    """A new member of a classic group must rejoin with the member id that it received."""


class AuthorizationFailedError(QuorumlogError):
    """The caller lacks a permission. The message names the one that an administrator can grant."""


class TopicAuthorizationFailedError(AuthorizationFailedError):
    """The caller lacks a permission on the topic."""


class GroupAuthorizationFailedError(AuthorizationFailedError):
    """The caller lacks a permission on the consumer group."""


class ClusterAuthorizationFailedError(AuthorizationFailedError):
    """The caller lacks a permission on the cluster."""


class ProducerNameAuthorizationFailedError(AuthorizationFailedError):
    """The caller lacks a permission on the producer name."""


class SaslAuthenticationFailedError(QuorumlogError):
    """The client failed to authenticate."""


class SaslSessionExpiredError(QuorumlogError):
    """The call belongs to no session, or to an expired one. The clients authenticate again automatically."""

    default_retriable = True


class ThrottlingQuotaExceededError(QuorumlogError):
    """The client exceeded a quota, and nothing was done. The clients retry after the time that the node names.

    Attributes:
        throttle_time_ms: that time, in milliseconds.
    """

    default_retriable = True
    throttle_time_ms: int = 0


class InvalidTxnStateError(QuorumlogError):
    """No such transaction is open: none was started, or it has ended otherwise."""


class InvalidProducerIdMappingError(QuorumlogError):
    """The transactional id has no producer, or another one: it was not used for long, or never."""


class ConcurrentTransactionsError(QuorumlogError):
    """A former transaction of the producer is not over yet."""

    default_retriable = True


class UnstableOffsetCommitError(QuorumlogError):
    """A transaction that is not over yet commits an offset of the partition."""

    default_retriable = True


class InvalidTransactionTimeoutError(QuorumlogError):
    """The transaction timeout is outside the bounds that the nodes allow."""


class TransactionAbortableError(QuorumlogError):
    """The transaction cannot be committed. Abort it, and run it again."""


class TransactionAbortedError(QuorumlogError):
    """The transaction was aborted: nothing of it has an effect. Run it again."""

    default_retriable = True


class CommitUnknownError(QuorumlogError):
    """No answer to a commit has arrived: the transaction is committed as a whole, or not at all.

    The next ``transaction()`` of the producer finds out. If that raises :class:`TransactionAbortedError`, run this
    transaction again; if the block is entered, it is committed.
    """

    default_definite = False


class CommitFailedError(QuorumlogError):
    """The consumer may not commit: it is no longer a member of its group, or others have its partitions.

    If ``definite``, nothing was committed. Otherwise a part may have been, or all of it by an attempt without a
    response.
    """


_Code = errors_pb2.ErrorCode
_BY_CODE: dict[int, type[QuorumlogError]] = {
    _Code.UNKNOWN_SERVER_ERROR: UnknownServerError,
    _Code.INVALID_REQUEST: InvalidRequestError,
    _Code.REQUEST_TIMED_OUT: RequestTimedOutError,
    _Code.SERVER_BUSY: ServerBusyError,
    _Code.UNSUPPORTED_VERSION: UnsupportedVersionError,
    _Code.UNKNOWN_TOPIC_OR_PARTITION: UnknownTopicOrPartitionError,
    _Code.NOT_LEADER_OR_FOLLOWER: NotLeaderForPartitionError,
    _Code.LEADER_NOT_AVAILABLE: LeaderNotAvailableError,
    _Code.PREFERRED_LEADER_NOT_AVAILABLE: PreferredLeaderNotAvailableError,
    _Code.ELECTION_NOT_NEEDED: ElectionNotNeededError,
    _Code.INVALID_FETCH_SESSION_EPOCH: InvalidFetchSessionEpochError,
    _Code.TOO_MANY_FETCH_SESSIONS: TooManyFetchSessionsError,
    _Code.FENCED_LEADER_EPOCH: FencedLeaderEpochError,
    _Code.UNKNOWN_LEADER_EPOCH: UnknownLeaderEpochError,
    _Code.OFFSET_OUT_OF_RANGE: OffsetOutOfRangeError,
    _Code.OFFSET_NOT_AVAILABLE: OffsetNotAvailableError,
    _Code.NOT_ENOUGH_REPLICAS: NotEnoughReplicasError,
    _Code.NOT_ENOUGH_REPLICAS_AFTER_APPEND: NotEnoughReplicasAfterAppendError,
    _Code.CORRUPT_MESSAGE: CorruptRecordError,
    _Code.RECORD_TOO_LARGE: RecordTooLargeError,
    _Code.INVALID_RECORD: InvalidRecordError,
    _Code.INVALID_TIMESTAMP: InvalidTimestampError,
    _Code.INVALID_REQUIRED_ACKS: InvalidRequiredAcksError,
    _Code.OUT_OF_ORDER_SEQUENCE_NUMBER: OutOfOrderSequenceNumberError,
    _Code.INVALID_PRODUCER_EPOCH: InvalidProducerEpochError,
    _Code.UNKNOWN_PRODUCER_ID: UnknownProducerIdError,
    _Code.DUPLICATE_SEQUENCE_MISMATCH: DuplicateSequenceMismatchError,
    _Code.PRODUCER_LIMIT_EXCEEDED: ProducerLimitExceededError,
    _Code.PRODUCER_NAME_NOT_FOUND: ProducerNameNotFoundError,
    _Code.PRODUCER_NAME_IN_USE: ProducerNameInUseError,
    _Code.STORAGE_ERROR: StorageError,
    _Code.TOPIC_ALREADY_EXISTS: TopicAlreadyExistsError,
    _Code.INVALID_TOPIC: InvalidTopicError,
    _Code.INVALID_PARTITIONS: InvalidPartitionsError,
    _Code.INVALID_REPLICATION_FACTOR: InvalidReplicationFactorError,
    _Code.INVALID_REPLICA_ASSIGNMENT: InvalidReplicaAssignmentError,
    _Code.INVALID_CONFIG: InvalidConfigError,
    _Code.POLICY_VIOLATION: PolicyViolationError,
    _Code.REASSIGNMENT_IN_PROGRESS: ReassignmentInProgressError,
    _Code.NOT_CONTROLLER: NotControllerError,
    _Code.CLUSTER_NOT_FORMED: ClusterNotFormedError,
    _Code.COORDINATOR_NOT_AVAILABLE: CoordinatorNotAvailableError,
    _Code.NOT_COORDINATOR: NotCoordinatorError,
    _Code.INVALID_GROUP_ID: InvalidGroupIdError,
    _Code.UNKNOWN_MEMBER_ID: UnknownMemberIdError,
    _Code.FENCED_MEMBER_EPOCH: FencedMemberEpochError,
    _Code.STALE_MEMBER_EPOCH: StaleMemberEpochError,
    _Code.UNRELEASED_INSTANCE_ID: UnreleasedInstanceIdError,
    _Code.FENCED_INSTANCE_ID: FencedInstanceIdError,
    _Code.UNSUPPORTED_ASSIGNOR: UnsupportedAssignorError,
    _Code.INVALID_REGULAR_EXPRESSION: InvalidRegularExpressionError,
    _Code.GROUP_MAX_SIZE_REACHED: GroupMaxSizeReachedError,
    _Code.GROUP_ID_NOT_FOUND: GroupIdNotFoundError,
    _Code.NON_EMPTY_GROUP: NonEmptyGroupError,
    _Code.GROUP_SUBSCRIBED_TO_TOPIC: GroupSubscribedToTopicError,
    _Code.OFFSET_METADATA_TOO_LARGE: OffsetMetadataTooLargeError,
    _Code.ILLEGAL_GENERATION: IllegalGenerationError,
    _Code.INCONSISTENT_GROUP_PROTOCOL: InconsistentGroupProtocolError,
    _Code.REBALANCE_IN_PROGRESS: RebalanceInProgressError,
    _Code.INVALID_SESSION_TIMEOUT: InvalidSessionTimeoutError,
    _Code.MEMBER_ID_REQUIRED: MemberIdRequiredError,
    _Code.UNSTABLE_OFFSET_COMMIT: UnstableOffsetCommitError,
    _Code.TOPIC_AUTHORIZATION_FAILED: TopicAuthorizationFailedError,
    _Code.GROUP_AUTHORIZATION_FAILED: GroupAuthorizationFailedError,
    _Code.CLUSTER_AUTHORIZATION_FAILED: ClusterAuthorizationFailedError,
    _Code.PRODUCER_NAME_AUTHORIZATION_FAILED: ProducerNameAuthorizationFailedError,
    _Code.SASL_AUTHENTICATION_FAILED: SaslAuthenticationFailedError,
    _Code.SASL_SESSION_EXPIRED: SaslSessionExpiredError,
    _Code.THROTTLING_QUOTA_EXCEEDED: ThrottlingQuotaExceededError,
    _Code.INVALID_TXN_STATE: InvalidTxnStateError,
    _Code.INVALID_PRODUCER_ID_MAPPING: InvalidProducerIdMappingError,
    _Code.CONCURRENT_TRANSACTIONS: ConcurrentTransactionsError,
    _Code.INVALID_TRANSACTION_TIMEOUT: InvalidTransactionTimeoutError,
    _Code.TRANSACTION_ABORTABLE: TransactionAbortableError,
}
#: Errors after which the partition's leader must be looked up again.
STALE_LEADER_ERRORS = (
    NotLeaderForPartitionError,
    LeaderNotAvailableError,
    FencedLeaderEpochError,
    UnknownLeaderEpochError,
    UnknownTopicOrPartitionError,
    ClusterNotFormedError,  # The node has lost its disk and leads nothing.
    NetworkError,
)


def error_from_proto(error: errors_pb2.Error) -> QuorumlogError:
    """Returns the exception for an error in a response, with ``retriable`` and ``definite`` as the server sent them."""
    kind = kind_of_error(error.code) or UnknownServerError
    name = _Code.Name(error.code) if error.code in _Code.values() else f"error {error.code}"
    made = kind(error.message or name, retriable=error.retriable, definite=error.definite)
    if isinstance(made, ThrottlingQuotaExceededError):
        made.throttle_time_ms = error.throttle_time_ms
    return made


def kind_of_error(code: int) -> type[QuorumlogError] | None:
    """Returns the exception class for a code of ``errors.proto``, or None for an unknown code."""
    return _BY_CODE.get(code)

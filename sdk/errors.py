"""The error hierarchy of the clients, named as Kafka names errors, built from ``errors.proto``.

Two questions matter to a caller, and every error answers both:

- ``retriable``: may the same call succeed later? The clients have retried such errors themselves, within their limits,
  before a caller sees one.
- ``definite``: is it certain that the failed call has had no effect and never will? A send that failed *indefinitely*
  may still turn up in the log; to send it again may double it.
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

    #: What the class means unless the server says otherwise.
    default_retriable: ClassVar[bool] = False
    default_definite: ClassVar[bool] = True

    def __init__(self, message: str, *, retriable: bool | None = None, definite: bool | None = None) -> None:
        super().__init__(message if message.isprintable() else _in_one_line(message))
        self.retriable = self.default_retriable if retriable is None else retriable
        self.definite = self.default_definite if definite is None else definite

    @property
    def message(self) -> str:
        """One line: what is wrong and what to do."""
        return str(self.args[0]) if self.args else type(self).__name__

    def about(self, topic: str, partition: int) -> Self:
        """This error, said of a partition that its message, which comes from a node, knows by other names."""
        message = self.message if topic in self.message else f"{topic}-{partition}: {self.message}"
        return type(self)(message, retriable=self.retriable, definite=self.definite)

    def as_indefinite(self, what: str = "an earlier attempt") -> QuorumlogError:
        """The same error for a call of which something may still take effect.

        Arguments:
            what: it is, for the message.
        """
        if not self.definite:
            return self
        message = f"{self.message}; {what} may have taken effect"
        return type(self)(message, retriable=self.retriable, definite=False)


def _in_one_line(message: str) -> str:
    """A message may quote what it was given, which may be anything."""
    text = " ".join(message.split())
    return "".join(letter if letter.isprintable() else repr(letter)[1:-1] for letter in text)


# --- raised by the client itself ---------------------------------------------------------------------------------


class IllegalArgumentError(QuorumlogError, ValueError):
    """An argument or a configuration value that cannot be meant."""


class IllegalStateError(QuorumlogError):
    """A call that makes no sense in the client's present state."""


class ClientClosedError(IllegalStateError):
    """The client has been closed."""


class ForkedClientError(IllegalStateError):
    """The process forked after the client was made: its connections and threads belong to the parent."""


class NoBrokersAvailableError(QuorumlogError):
    """None of the bootstrap addresses answered."""

    default_retriable = True


class NetworkError(QuorumlogError):
    """The connection to a node broke, or could not be made."""

    default_retriable = True
    default_definite = False


class BufferExhaustedError(QuorumlogError):
    """The producer's memory stayed full for ``max_block_ms``."""

    default_retriable = True


class NoOffsetForPartitionError(QuorumlogError):
    """A partition has no position, and ``auto_offset_reset`` is ``none``."""


class UnsupportedError(QuorumlogError):
    """A feature that this version does not have."""


# --- named by the server -----------------------------------------------------------------------------------------


class UnknownServerError(QuorumlogError):
    """The server met a condition it has no better name for."""

    default_definite = False


class InvalidRequestError(QuorumlogError):
    """The request is malformed or contradicts itself."""


class RequestTimedOutError(QuorumlogError):
    """The call did not complete within its time; unless it says otherwise it may yet take effect."""

    default_retriable = True
    default_definite = False


class ServerBusyError(QuorumlogError):
    """A bounded queue of the server is full; nothing was done."""

    default_retriable = True


class UnsupportedVersionError(QuorumlogError):
    """The server's version does not speak what was asked."""


class UnknownTopicOrPartitionError(QuorumlogError):
    """No such topic, or no such partition of it."""

    # A topic that was just created may not have reached every node.
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
    """The preferred leader of a partition leads it already, or will in a moment."""


class InvalidFetchSessionEpochError(QuorumlogError):
    """A fetch session and its node do not agree on what was asked before. Consumers begin another one by themselves."""

    default_retriable = True


class TooManyFetchSessionsError(QuorumlogError):
    """The node keeps as many fetch sessions as it may. Consumers fetch without one by themselves."""

    default_retriable = True


class FencedLeaderEpochError(QuorumlogError):
    """The client's leader epoch is older than the partition's."""

    default_retriable = True


class UnknownLeaderEpochError(QuorumlogError):
    """The client's leader epoch is newer than the node knows."""

    default_retriable = True


class OffsetOutOfRangeError(QuorumlogError):
    """The offset lies below the log start or beyond the log end."""


class NotEnoughReplicasError(QuorumlogError):
    """Fewer live replicas than ``acks=all`` needs; nothing was appended."""

    default_retriable = True


class NotEnoughReplicasAfterAppendError(QuorumlogError):
    """Appended, but confirmed by fewer replicas than ``acks=all`` needs; it may survive or not."""

    default_retriable = True
    default_definite = False


class CorruptRecordError(QuorumlogError):
    """A batch fails its checksum or its structure."""


class UnreadableBatchError(CorruptRecordError):
    """The records of a stored batch cannot be read, although its checksum is right: its producer wrote it so.

    Every replica has the same bytes, so reading it again does not help. Continue with
    ``seek(error.partition, error.next_offset)``, or set ``on_corrupt="skip"``.

    Attributes:
        partition: where the batch is.
        first_offset, last_offset: of the batch.
        record_count: how many records it claims to have.
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
        """The error for one batch.

        Arguments:
            skip_with: how the caller's user skips such batches, for the message.
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
        """The offset after the batch, where reading can continue."""
        return self.last_offset + 1


class RecordTooLargeError(QuorumlogError):
    """A record or batch exceeds a limit."""


class InvalidRecordError(QuorumlogError):
    """A well-formed batch that breaks a rule."""


class InvalidTimestampError(QuorumlogError):
    """A timestamp too far in the future."""


class InvalidRequiredAcksError(QuorumlogError):
    """``acks`` is none of 0, 1 and all."""


class OutOfOrderSequenceNumberError(QuorumlogError):
    """A batch's sequence does not follow the last one of its producer."""


class InvalidProducerEpochError(QuorumlogError):
    """A newer instance of the same named producer has taken over, or its name was deleted."""


#: What kafka-python calls it.
ProducerFencedError = InvalidProducerEpochError


class UnknownProducerIdError(QuorumlogError):
    """The partition knows nothing of this producer."""


class DuplicateSequenceMismatchError(QuorumlogError):
    """The log has other records where a producer repeats its epoch: a replay that is no replay."""


class ProducerLimitExceededError(QuorumlogError):
    """No more named producers, or no more batches in one epoch, can be remembered."""


class ProducerNameNotFoundError(QuorumlogError):
    """Nobody has claimed that producer name, or it was deleted."""


class ProducerNameInUseError(QuorumlogError):
    """The producer name was claimed since the time before which it was to be deleted."""


class StorageError(QuorumlogError):
    """The node's disk is full or failing; nothing was appended."""

    default_retriable = True


class TopicAlreadyExistsError(QuorumlogError):
    """A topic of that name exists."""


class InvalidTopicError(QuorumlogError):
    """The topic's name is not allowed."""


class InvalidPartitionsError(QuorumlogError):
    """The number of partitions is not allowed, or there is no such partition."""


class InvalidReplicationFactorError(QuorumlogError):
    """The replication factor is not allowed here."""


class InvalidReplicaAssignmentError(QuorumlogError):
    """An explicit replica assignment is inconsistent."""


class InvalidConfigError(QuorumlogError):
    """An unknown configuration key, or a value outside its type or range."""


class PolicyViolationError(QuorumlogError):
    """The topic's cleanup policy does not allow what was asked."""


class ReassignmentInProgressError(QuorumlogError):
    """The partition is being moved already, or there is no move to cancel."""


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
    """The node asked does not coordinate the group."""

    default_retriable = True


class InvalidGroupIdError(QuorumlogError):
    """The group id is not allowed."""


class UnknownMemberIdError(QuorumlogError):
    """The coordinator does not know the member: it was thrown out of its group."""


class FencedMemberEpochError(QuorumlogError):
    """The member was thrown out of its group, and others have its partitions."""


class StaleMemberEpochError(QuorumlogError):
    """A commit carries an epoch in which the member did not have the partition."""

    default_retriable = True


class UnreleasedInstanceIdError(QuorumlogError):
    """A static member of that name is there already."""

    default_retriable = True


class FencedInstanceIdError(QuorumlogError):
    """Another process has taken the static member's name."""


class UnsupportedAssignorError(QuorumlogError):
    """The coordinator has no assignor of that name."""


class InvalidRegularExpressionError(QuorumlogError):
    """A topic pattern is no regular expression."""


class GroupMaxSizeReachedError(QuorumlogError):
    """The group or its coordinator has as many members, groups or offsets as it may."""


class GroupIdNotFoundError(QuorumlogError):
    """There is no such group."""


class NonEmptyGroupError(QuorumlogError):
    """The group has members."""


class GroupSubscribedToTopicError(QuorumlogError):
    """A member of the group subscribes to the topic."""


class OffsetMetadataTooLargeError(QuorumlogError):
    """The text beside a committed offset is too long."""


class IllegalGenerationError(QuorumlogError):
    """A classic group is in another generation by now: its member joins again."""


class InconsistentGroupProtocolError(QuorumlogError):
    """The group is of the other kind, or its members share no protocol with the one that joins."""


class RebalanceInProgressError(QuorumlogError):
    """The members of a classic group are to join again, or wait for their leader's assignment."""

    default_retriable = True


class InvalidSessionTimeoutError(QuorumlogError):
    """The session timeout is outside of what the nodes allow."""


class MemberIdRequiredError(QuorumlogError):
    """A new member of a classic group is to join again with the id that it was given."""


class AuthorizationFailedError(QuorumlogError):
    """Who asks has no permission for that. The message says which one an administrator can give."""


class TopicAuthorizationFailedError(AuthorizationFailedError):
    """Who asks may not do that to the topic."""


class GroupAuthorizationFailedError(AuthorizationFailedError):
    """Who asks may not do that to the consumer group."""


class ClusterAuthorizationFailedError(AuthorizationFailedError):
    """Who asks may not do that to the cluster."""


class ProducerNameAuthorizationFailedError(AuthorizationFailedError):
    """Who asks may not do that to the producer name."""


class SaslAuthenticationFailedError(QuorumlogError):
    """Who asks has not proved who they are."""


class SaslSessionExpiredError(QuorumlogError):
    """The call belongs to no session, or to one that is over. The clients sign in again by themselves."""

    default_retriable = True


class ThrottlingQuotaExceededError(QuorumlogError):
    """Who asks is over a quota, and nothing was done. The clients try again after the time that the node says.

    Attributes:
        throttle_time_ms: how long that is.
    """

    default_retriable = True
    throttle_time_ms: int = 0


class CommitFailedError(QuorumlogError):
    """The consumer may not commit: it is no member of its group any more, or others have its partitions.

    ``definite``: nothing was committed. Else a part may have been, or all of it by an attempt that nobody answered.
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
    _Code.TOPIC_AUTHORIZATION_FAILED: TopicAuthorizationFailedError,
    _Code.GROUP_AUTHORIZATION_FAILED: GroupAuthorizationFailedError,
    _Code.CLUSTER_AUTHORIZATION_FAILED: ClusterAuthorizationFailedError,
    _Code.PRODUCER_NAME_AUTHORIZATION_FAILED: ProducerNameAuthorizationFailedError,
    _Code.SASL_AUTHENTICATION_FAILED: SaslAuthenticationFailedError,
    _Code.SASL_SESSION_EXPIRED: SaslSessionExpiredError,
    _Code.THROTTLING_QUOTA_EXCEEDED: ThrottlingQuotaExceededError,
}
#: Errors after which the partition's leader has to be looked up again.
STALE_LEADER_ERRORS = (
    NotLeaderForPartitionError,
    LeaderNotAvailableError,
    FencedLeaderEpochError,
    UnknownLeaderEpochError,
    UnknownTopicOrPartitionError,
    ClusterNotFormedError,  # The node has lost its disk, and leads nothing any more.
    NetworkError,
)


def error_from_proto(error: errors_pb2.Error) -> QuorumlogError:
    """The exception for an error in a response, with the server's word on ``retriable`` and ``definite``."""
    kind = kind_of_error(error.code) or UnknownServerError
    name = _Code.Name(error.code) if error.code in _Code.values() else f"error {error.code}"
    made = kind(error.message or name, retriable=error.retriable, definite=error.definite)
    if isinstance(made, ThrottlingQuotaExceededError):
        made.throttle_time_ms = error.throttle_time_ms
    return made


def kind_of_error(code: int) -> type[QuorumlogError] | None:
    """The class of the exceptions for a code of ``errors.proto``; None where there is none."""
    return _BY_CODE.get(code)

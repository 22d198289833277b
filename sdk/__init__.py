"""The clients of quorumlog: producer, consumer, admin. `quorumlog.sdk.aio` has the same for asyncio.

Names are loaded on first use, so that a program that only administers does not load Arrow.

Modules shared by all packages:

- `aio`: the clients for asyncio.
- `types`: values that the clients accept and return.
- `acls`, `credentials`: values for ACLs, users and revocations, named as in Kafka's Python clients.
- `errors`: the error hierarchy, named as Kafka names errors; `failed_calls`: exceptions for failed calls and streams.
- `configuration`: validates keyword arguments of clients; `arguments`: validates other arguments.
- `isolation`: isolation levels of readers.
- `transaction_views`: what operators see of transactions.
- `help_text`: output of `help()` for the clients.

May import: `quorumlog.v1`; the modules that users import, `__init__` and `aio`, may use all packages.
"""

from __future__ import annotations

import os
from importlib import import_module
from typing import TYPE_CHECKING, Any

# gRPC's own fork handlers restart its threads in a forked child, where they crash over the parent's connections, even
# if the child only exits. Clients refuse to work there (`runtime/fork.py`), so the handlers are not needed.
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")
# gRPC's C core prints lines on stderr that no logging configuration reaches, such as "Got goaway" when a node closes an
# idle connection. The clients report every failure themselves. Set the variable to "info" to see these lines.
os.environ.setdefault("GRPC_VERBOSITY", "NONE")

if TYPE_CHECKING:
    from quorumlog.sdk.acls import (
        ACL,
        ACLDecision,
        ACLFilter,
        ACLOperation,
        ACLPermissionType,
        ACLResourcePatternType,
        ResourcePattern,
        ResourcePatternFilter,
        ResourceType,
    )
    from quorumlog.sdk.admin.admin import Admin
    from quorumlog.sdk.admin.cluster_watch import ClusterChange, LogDescription
    from quorumlog.sdk.consumer.commit_future import CommitFuture
    from quorumlog.sdk.consumer.consumer import Consumer
    from quorumlog.sdk.consumer.subscription import ConsumerRebalanceListener
    from quorumlog.sdk.credentials import (
        AlteredUsers,
        Revocation,
        UserScramCredential,
        UserScramCredentialDeletion,
        UserScramCredentialUpsertion,
    )
    from quorumlog.sdk.errors import (
        AuthorizationFailedError,
        BufferExhaustedError,
        ClientClosedError,
        ClusterAuthorizationFailedError,
        ClusterNotFormedError,
        CommitFailedError,
        CommitUnknownError,
        CoordinatorNotAvailableError,
        CorruptRecordError,
        DuplicateSequenceMismatchError,
        ElectionNotNeededError,
        FencedInstanceIdError,
        FencedMemberEpochError,
        ForkedClientError,
        GroupAuthorizationFailedError,
        GroupIdNotFoundError,
        GroupMaxSizeReachedError,
        GroupSubscribedToTopicError,
        IllegalArgumentError,
        IllegalStateError,
        InvalidConfigError,
        InvalidGroupIdError,
        InvalidPartitionsError,
        InvalidProducerEpochError,
        InvalidRecordError,
        InvalidRegularExpressionError,
        InvalidReplicaAssignmentError,
        InvalidReplicationFactorError,
        InvalidTimestampError,
        InvalidTopicError,
        LeaderNotAvailableError,
        NetworkError,
        NoBrokersAvailableError,
        NonEmptyGroupError,
        NoOffsetForPartitionError,
        NotCoordinatorError,
        NotEnoughReplicasAfterAppendError,
        NotEnoughReplicasError,
        NotLeaderForPartitionError,
        OffsetMetadataTooLargeError,
        OffsetOutOfRangeError,
        OutOfOrderSequenceNumberError,
        PolicyViolationError,
        PreferredLeaderNotAvailableError,
        ProducerFencedError,
        ProducerLimitExceededError,
        ProducerNameAuthorizationFailedError,
        ProducerNameInUseError,
        ProducerNameNotFoundError,
        QuorumlogError,
        ReassignmentInProgressError,
        RecordTooLargeError,
        RequestTimedOutError,
        SaslAuthenticationFailedError,
        ServerBusyError,
        StaleMemberEpochError,
        StorageError,
        ThrottlingQuotaExceededError,
        TopicAlreadyExistsError,
        TopicAuthorizationFailedError,
        TransactionAbortedError,
        UnknownMemberIdError,
        UnknownProducerIdError,
        UnknownTopicOrPartitionError,
        UnreadableBatchError,
        UnreleasedInstanceIdError,
        UnsupportedAssignorError,
        UnsupportedError,
    )
    from quorumlog.sdk.producer.delivery import ArrowFuture, BatchMetadata, RecordFuture, RecordsFuture
    from quorumlog.sdk.producer.explanation import LeaderTimes, RecordExplanation, RecordStage, ReplicaTimes
    from quorumlog.sdk.producer.producer import Producer
    from quorumlog.sdk.producer.transaction import Transaction
    from quorumlog.sdk.types import (
        BrokerDescription,
        ClusterDescription,
        ConfigEntry,
        ConsumerGroupMetadata,
        ConsumerRecord,
        GroupDescription,
        GroupKind,
        GroupListing,
        GroupState,
        MemberDescription,
        NewPartitions,
        NewTopic,
        NodeDescription,
        NodeLoad,
        NodePlan,
        NodeSetting,
        NodeSettings,
        OffsetAndMetadata,
        OffsetAndTimestamp,
        PartitionDescription,
        PartitionReassignment,
        PlannedMove,
        ProducerListing,
        QuorumDescription,
        QuorumReplicaDescription,
        RebalancePlan,
        RecordMetadata,
        ReplicaCopy,
        TopicDescription,
        TopicPartition,
        TransactionToken,
    )

_MODULES = {
    "admin.admin": ("Admin",),
    "admin.cluster_watch": ("ClusterChange", "LogDescription"),
    "consumer.consumer": ("Consumer",),
    "consumer.subscription": ("ConsumerRebalanceListener",),
    "producer.producer": ("Producer",),
    "producer.transaction": ("Transaction",),
    "consumer.commit_future": ("CommitFuture",),
    "producer.delivery": ("ArrowFuture", "BatchMetadata", "RecordFuture", "RecordsFuture"),
    "producer.explanation": ("LeaderTimes", "RecordExplanation", "RecordStage", "ReplicaTimes"),
    "acls": (
        "ACL", "ACLDecision", "ACLFilter", "ACLOperation", "ACLPermissionType", "ACLResourcePatternType",
        "ResourcePattern", "ResourcePatternFilter", "ResourceType",
    ),
    "credentials": (
        "AlteredUsers", "Revocation", "UserScramCredential", "UserScramCredentialDeletion",
        "UserScramCredentialUpsertion",
    ),
    "transaction_views": (
        "DescribedProducer", "PartitionProducers", "TransactionDescription", "TransactionListing", "TransactionPlace",
        "TransactionState",
    ),
    "types": (
        "BrokerDescription", "ClusterDescription", "ConfigEntry", "ConsumerGroupMetadata", "ConsumerRecord",
        "GroupDescription", "GroupKind", "GroupListing", "GroupState", "MemberDescription", "NewPartitions", "NewTopic",
        "NodeDescription", "NodeLoad", "NodePlan", "NodeSetting", "NodeSettings", "OffsetAndMetadata",
        "OffsetAndTimestamp", "PartitionDescription",
        "PartitionReassignment", "PlannedMove", "ProducerListing", "QuorumDescription", "QuorumReplicaDescription",
        "RebalancePlan", "RecordMetadata", "ReplicaCopy", "TopicDescription", "TopicPartition", "TransactionToken",
    ),
    "errors": (
        "AuthorizationFailedError", "ClusterAuthorizationFailedError", "GroupAuthorizationFailedError",
        "ProducerNameAuthorizationFailedError", "SaslAuthenticationFailedError", "TopicAuthorizationFailedError",
        "BufferExhaustedError", "ClientClosedError", "ClusterNotFormedError", "CommitFailedError",
        "CoordinatorNotAvailableError", "CorruptRecordError", "DuplicateSequenceMismatchError",
        "ElectionNotNeededError", "FencedInstanceIdError", "FencedMemberEpochError", "ForkedClientError",
        "GroupIdNotFoundError", "GroupMaxSizeReachedError", "GroupSubscribedToTopicError", "IllegalArgumentError",
        "IllegalStateError", "InvalidConfigError", "InvalidGroupIdError", "InvalidPartitionsError",
        "InvalidProducerEpochError", "InvalidRecordError", "InvalidRegularExpressionError",
        "InvalidReplicaAssignmentError", "InvalidReplicationFactorError", "InvalidTimestampError",
        "InvalidTopicError", "LeaderNotAvailableError", "NetworkError", "NoBrokersAvailableError",
        "NoOffsetForPartitionError", "NonEmptyGroupError", "NotCoordinatorError", "NotEnoughReplicasAfterAppendError",
        "NotEnoughReplicasError", "NotLeaderForPartitionError", "OffsetMetadataTooLargeError",
        "OffsetOutOfRangeError", "OutOfOrderSequenceNumberError", "PolicyViolationError",
        "PreferredLeaderNotAvailableError", "ProducerFencedError", "ProducerLimitExceededError",
        "ProducerNameInUseError", "ProducerNameNotFoundError", "QuorumlogError", "ReassignmentInProgressError",
        "RecordTooLargeError", "RequestTimedOutError", "ServerBusyError",
        "StaleMemberEpochError", "StorageError", "ThrottlingQuotaExceededError", "TopicAlreadyExistsError",
        "TransactionAbortedError", "CommitUnknownError", "UnknownMemberIdError",
        "UnknownProducerIdError", "UnknownTopicOrPartitionError", "UnreadableBatchError", "UnreleasedInstanceIdError",
        "UnsupportedAssignorError", "UnsupportedError",
    ),
}  # fmt: skip
_HOME = {name: module for module, names in _MODULES.items() for name in names}

__all__ = [  # noqa: RUF022 - by kind
    "Admin", "Consumer", "ConsumerRebalanceListener", "Producer", "Transaction",
    "ArrowFuture", "BatchMetadata", "CommitFuture", "RecordFuture", "RecordsFuture",
    "ClusterChange", "LogDescription", "LeaderTimes", "RecordExplanation", "RecordStage", "ReplicaTimes",
    "BrokerDescription", "ClusterDescription", "ConfigEntry", "ConsumerGroupMetadata", "ConsumerRecord",
    "GroupDescription", "GroupKind", "GroupListing", "GroupState", "MemberDescription", "NewPartitions", "NewTopic",
    "NodeDescription", "NodeLoad", "NodePlan", "NodeSetting", "NodeSettings", "OffsetAndMetadata",
    "OffsetAndTimestamp", "PartitionDescription",
    "PartitionReassignment", "PlannedMove", "ProducerListing", "QuorumDescription", "QuorumReplicaDescription",
    "RebalancePlan", "RecordMetadata", "ReplicaCopy", "TopicDescription", "TopicPartition",
    "DescribedProducer", "PartitionProducers", "TransactionDescription", "TransactionListing", "TransactionPlace",
    "TransactionState", "TransactionToken",
    "ACL", "ACLDecision", "ACLFilter", "ACLOperation", "ACLPermissionType", "ACLResourcePatternType",
    "ResourcePattern", "ResourcePatternFilter", "ResourceType",
    "AlteredUsers", "Revocation", "UserScramCredential", "UserScramCredentialDeletion",
    "UserScramCredentialUpsertion",
    "AuthorizationFailedError", "ClusterAuthorizationFailedError", "GroupAuthorizationFailedError",
    "ProducerNameAuthorizationFailedError", "SaslAuthenticationFailedError", "TopicAuthorizationFailedError",
    "BufferExhaustedError", "ClientClosedError", "ClusterNotFormedError", "CommitFailedError",
    "CoordinatorNotAvailableError", "CorruptRecordError", "DuplicateSequenceMismatchError", "ElectionNotNeededError",
    "FencedInstanceIdError", "FencedMemberEpochError", "ForkedClientError", "GroupIdNotFoundError",
    "GroupMaxSizeReachedError", "GroupSubscribedToTopicError", "IllegalArgumentError", "IllegalStateError",
    "InvalidConfigError", "InvalidGroupIdError", "InvalidPartitionsError", "InvalidProducerEpochError",
    "InvalidRecordError", "InvalidRegularExpressionError", "InvalidReplicaAssignmentError",
    "InvalidReplicationFactorError", "InvalidTimestampError", "InvalidTopicError", "LeaderNotAvailableError",
    "NetworkError", "NoBrokersAvailableError", "NoOffsetForPartitionError", "NonEmptyGroupError",
    "NotCoordinatorError", "NotEnoughReplicasAfterAppendError", "NotEnoughReplicasError",
    "NotLeaderForPartitionError", "OffsetMetadataTooLargeError", "OffsetOutOfRangeError",
    "OutOfOrderSequenceNumberError", "PolicyViolationError", "PreferredLeaderNotAvailableError",
    "ProducerFencedError", "ProducerLimitExceededError", "ProducerNameInUseError", "ProducerNameNotFoundError",
    "QuorumlogError", "ReassignmentInProgressError",
    "RecordTooLargeError", "RequestTimedOutError", "ServerBusyError", "StaleMemberEpochError", "StorageError",
    "ThrottlingQuotaExceededError", "TopicAlreadyExistsError", "UnknownMemberIdError", "UnknownProducerIdError",
    "UnknownTopicOrPartitionError", "UnreadableBatchError", "UnreleasedInstanceIdError", "UnsupportedAssignorError",
    "UnsupportedError", "TransactionAbortedError", "CommitUnknownError",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    module = _HOME.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{module}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)

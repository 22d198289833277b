"""Errors for partitions without a replica on this node, and for topics that a client may not use."""

from __future__ import annotations

from quorumlog.server.access.access_errors import Refusals
from quorumlog.server.access.permissions import operation_of
from quorumlog.server.metadata.image import CurrentImage
from quorumlog.server.metadata.records import PartitionRecord
from quorumlog.server.requests.metadata_staleness import RulesAge
from quorumlog.server.step.request_context import Listener, RequestContext
from quorumlog.server.step.wire_errors import error
from quorumlog.v1 import errors_pb2
from quorumlog.v1.acls_pb2 import ACL_RESOURCE_PRODUCER_NAME, ACL_RESOURCE_TOPIC, AclOperation
from quorumlog.v1.errors_pb2 import ErrorCode
from quorumlog.v1.transactions_pb2 import AddToTransactionRequest


class PartitionErrors:
    """Builds errors that name the location of a partition without a replica here, according to this node's metadata;
    and errors for topics that are hidden from a client.

    Arguments:
        refusals: error responses for denied requests.
        rules_age: limits the age of the ACLs; None for no limit.
    """

    def __init__(self, current: CurrentImage, refusals: Refusals, rules_age: RulesAge | None = None) -> None:
        self._current = current
        self._refusals = refusals
        self._rules_age = rules_age

    def refusal(
        self, client: RequestContext, operation: AclOperation.ValueType, topic_id: bytes
    ) -> errors_pb2.Error | None:
        """Returns the error if a client may not perform an operation on a topic; None if it may.

        An id that is not in the metadata of this node has no name to authorize against. A replica may exist
        nevertheless, if this node has restarted and has not yet applied the topic again.
        """
        authorizer = self._refusals.authorizer
        if not authorizer.enforced:
            return None
        if (stale := self.too_old(client)) is not None:
            return stale
        topic = self._current.image.topics_by_id.get(topic_id)
        if topic is None:
            return _unknown(topic_id)
        if authorizer.may(client.principal, operation, ACL_RESOURCE_TOPIC, topic.name):
            return None
        return self._refusals.topic(client, operation, topic.name, lambda: _unknown(topic_id))

    def refuse_transactions(self, client: RequestContext, transactional_id: str) -> errors_pb2.Error | None:
        """Returns the error if a client may not write in the transactions of a transactional id; None if it may."""
        operation = operation_of(AddToTransactionRequest)
        return self._refusals.resource(client, operation, ACL_RESOURCE_PRODUCER_NAME, transactional_id)

    def too_old(self, client: RequestContext) -> errors_pb2.Error | None:
        """Returns the error for a client that is served no records, whatever its rights, because the ACLs are too old;
        None otherwise."""
        return None if self._rules_age is None else self._rules_age.refusal(client)

    def allows(self, client: RequestContext, operation: AclOperation.ValueType, topic_id: bytes) -> bool:
        """True if a client may perform an operation on a topic. Unlike `refusal`, records no denial."""
        authorizer, topic = self._refusals.authorizer, self._current.image.topics_by_id.get(topic_id)
        if topic is None:
            return not authorizer.enforced
        return authorizer.may(client.principal, operation, ACL_RESOURCE_TOPIC, topic.name)

    @property
    def rights_version(self) -> int:
        """Version that increases whenever the rights of clients may have changed."""
        return self._refusals.authorizer.version

    def read_as_empty(self, client: RequestContext, topic_id: bytes, number: int) -> PartitionRecord | None:
        """Returns a partition that a client reads as an empty log from offset 0 on; None for all others.

        Kafka's clients get the cluster's own topics listed, because brokers list theirs, and tools then query each
        topic. quorumlog's own clients get an error.
        """
        topic = self._current.image.topics_by_id.get(topic_id)
        if client.listener is not Listener.KAFKA or topic is None or not topic.is_internal:
            return None
        return topic.partitions[number] if 0 <= number < len(topic.partitions) else None

    def problem(self, topic_id: bytes, number: int) -> errors_pb2.Error:
        """Returns the error for a partition without a replica on this node: it is on other nodes, or does not exist."""
        image = self._current.image
        topic = image.topics_by_id.get(topic_id)
        if topic is None:
            return _unknown(topic_id)
        if not 0 <= number < len(topic.partitions):
            what = f"topic {topic.name} has no partition {number} in this node's metadata"
            return error(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, what)
        record = topic.partitions[number]
        if topic.is_internal:
            what = f"topic {topic.name} belongs to the cluster itself: it holds no records to write, read or delete"
            return error(ErrorCode.INVALID_TOPIC, what)
        return error(
            ErrorCode.NOT_LEADER_OR_FOLLOWER,
            f"this node has no replica of {topic.name}-{number}; ask its leader",
            leader=image.available_leader(record),
            leader_epoch=record.leader_epoch,
        )


def _unknown(topic_id: bytes) -> errors_pb2.Error:
    what = f"the topic was deleted, or is not yet known on this node (topic id {topic_id.hex()})"
    return error(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, what)

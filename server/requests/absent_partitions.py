"""What clients hear of partitions that this node has no replica of."""

from __future__ import annotations

from quorumlog.server.metadata.image import CurrentImage
from quorumlog.server.wire_errors import error
from quorumlog.v1 import errors_pb2
from quorumlog.v1.errors_pb2 import ErrorCode


class AbsentPartitions:
    """Tells where a partition is that is not here, as far as the metadata of this node say."""

    def __init__(self, current: CurrentImage) -> None:
        self._current = current

    def problem(self, topic_id: bytes, number: int) -> errors_pb2.Error:
        """The error for a partition without a replica on this node: it is elsewhere, or nowhere."""
        image = self._current.image
        topic = image.topics_by_id.get(topic_id)
        if topic is None or not 0 <= number < len(topic.partitions):
            what = (
                f"topic {topic.name} has no partition {number} as far as this node knows"
                if topic
                else f"the topic was deleted, or this node has yet to hear of it (topic id {topic_id.hex()})"
            )
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

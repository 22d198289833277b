"""Handles topics that were deleted and created again under the same name.

Produce requests name a topic by its id, so that nothing that was sent to the old topic can appear in the new one, and
the records of the old one are lost. Unacknowledged batches go to the new topic, from the first sequence on.

A named producer does not follow: its sequences state which records its log has, and in the new topic they would start
in the middle, or, at sequence 0, add records that the old one may have appended. It fails for the topic that it wrote
to.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from quorumlog.sdk.cluster.cluster import Cluster
from quorumlog.sdk.errors import UnknownTopicOrPartitionError
from quorumlog.sdk.producer.batch import ProducerBatch
from quorumlog.sdk.producer.identity import ProducerIdentity
from quorumlog.sdk.producer.partition_pipeline import PartitionPipeline


def follow_recreated(
    pipelines: Iterable[PartitionPipeline], cluster: Cluster, identity: ProducerIdentity | None, now_s: float
) -> list[PartitionPipeline]:
    """Restarts every pipeline whose topic was recreated; returns those with batches to resend.

    Arguments:
        identity: the producer's; a log without state for it accepts it from sequence 0 on.
    """
    again = []
    for pipeline in pipelines:
        view = cluster.metadata.topics.get(pipeline.topic)
        if view is None or pipeline.topic_id in (b"", view.topic_id):
            continue
        pipeline.begin_anew(view.topic_id)
        if identity is not None and pipeline.needs_identity:
            pipeline.adopt(identity, now_s)
        if pipeline.in_flight:
            again.append(pipeline)
    return again


def stay_with_deleted(
    pipelines: Iterable[PartitionPipeline], cluster: Cluster
) -> Iterator[tuple[PartitionPipeline, list[ProducerBatch], UnknownTopicOrPartitionError]]:
    """Ends the pipelines of a named producer whose topic was recreated; those that sent nothing follow the new topic.

    Yields:
        The ended pipelines, each with its failed batches and the error. A batch with an attempt that may have taken
        effect before the topic was deleted is marked so.
    """
    for pipeline in pipelines:
        view = cluster.metadata.topics.get(pipeline.topic)
        if view is None or pipeline.gap or pipeline.topic_id in (b"", view.topic_id):
            continue
        if pipeline.untouched:
            pipeline.topic_id = view.topic_id
            continue
        error = UnknownTopicOrPartitionError(
            f"topic {pipeline.topic!r} was deleted and created again: a named producer that wrote to the old topic"
            " does not continue in the new one; create another producer",
            retriable=False,
        )
        yield pipeline, pipeline.end(), error


def no_such_partition(topic: str, partition: int, count: int) -> UnknownTopicOrPartitionError:
    """Returns the error for a batch whose partition no longer exists."""
    return UnknownTopicOrPartitionError(
        f"topic {topic!r} was created again and has no partition {partition}: it has 0 to {count - 1}", retriable=False
    )

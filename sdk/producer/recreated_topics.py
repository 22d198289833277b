"""What a producer does when a topic was deleted and another one of its name made.

Produce requests name a topic by its id, so that nothing that was sent to the old one can turn up in the new one, and
what the old one held is gone. Whatever is not acknowledged goes to the new topic, from the first sequence on.

Not so what a named producer sent: its sequences say what its log has, and in the new topic they would begin in the
middle, or, at sequence 0, add what the old one may have taken. It ends with the topic that it wrote to.
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
    """Begins anew with every pipeline whose topic is another one by now; returns those with something to send again.

    Arguments:
        identity: the producer's; a log that has never heard of it takes it from sequence 0 on.
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
    """Ends the pipelines of a named producer whose topic is another one by now; those that sent nothing begin anew.

    Returns:
        Those that have ended, each with the batches that have failed by that, and why. Where an attempt may have taken
        effect before the topic went, the batch says so.
    """
    for pipeline in pipelines:
        view = cluster.metadata.topics.get(pipeline.topic)
        if view is None or pipeline.gap or pipeline.topic_id in (b"", view.topic_id):
            continue
        if pipeline.untouched:
            pipeline.topic_id = view.topic_id
            continue
        error = UnknownTopicOrPartitionError(
            f"topic {pipeline.topic!r} was deleted, and another one has its name: a named producer that has written to"
            " the former goes not on to it",
            retriable=False,
        )
        yield pipeline, pipeline.end(), error


def no_such_partition(topic: str, partition: int, count: int) -> UnknownTopicOrPartitionError:
    """The error for a batch whose partition the topic has no more."""
    return UnknownTopicOrPartitionError(
        f"topic {topic!r} was created anew and has no partition {partition}: it has 0 to {count - 1}", retriable=False
    )

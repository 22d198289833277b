"""Resolves names to topic ids once, before a change is requested for the first time.

A change that is repeated because its response was lost then carries the same ids. By name it could affect another topic
that was created under the name in the meantime.
"""

from __future__ import annotations

from collections.abc import Iterable

from quorumlog.sdk.cluster.cluster import Cluster
from quorumlog.sdk.errors import UnknownTopicOrPartitionError, error_from_proto
from quorumlog.v1 import data_plane_pb2

#: Reports to a node that no topic had the name: no topic has this id.
NO_TOPIC_ID = bytes(16)


async def topic_ids_of(cluster: Cluster, names: Iterable[str], limit_s: float) -> dict[str, bytes]:
    """Returns the present ids of topics from the controller; ``NO_TOPIC_ID`` if a topic does not exist.

    Raises:
        QuorumlogError: no answer within ``limit_s``.
    """
    wanted = sorted(set(names))
    if not wanted:
        return {}

    async def attempt() -> data_plane_pb2.MetadataResponse:
        response = await cluster.ask_metadata(wanted, linearizable=True)
        if response.HasField("error"):
            raise error_from_proto(response.error)
        return response

    response = await cluster.retrying(attempt, limit_s, "the metadata request")
    found = {topic.name: topic.topic_id for topic in response.topics if not topic.HasField("error")}
    return {name: found.get(name, NO_TOPIC_ID) for name in wanted}


async def require_topic_ids(cluster: Cluster, names: Iterable[str], limit_s: float) -> dict[str, bytes]:
    """Returns the present ids of topics from the controller.

    Raises:
        UnknownTopicOrPartitionError: a topic does not exist.
        QuorumlogError: no answer within ``limit_s``.
    """
    ids = await topic_ids_of(cluster, names, limit_s)
    for name, topic_id in ids.items():
        if topic_id == NO_TOPIC_ID:
            raise UnknownTopicOrPartitionError(f"topic {name!r} does not exist: create it first", retriable=False)
    return ids

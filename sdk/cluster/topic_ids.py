"""Which topics names mean: looked up once, before a change is asked for the first time.

A change that is asked for again, because its answer was lost, then carries the same ids. By name it could hit another
topic, which somebody has created under the name meanwhile.
"""

from __future__ import annotations

from collections.abc import Iterable

from quorumlog.sdk.cluster.cluster import Cluster
from quorumlog.sdk.errors import UnknownTopicOrPartitionError, error_from_proto
from quorumlog.v1 import data_plane_pb2

#: Tells a node that there was no topic of a name: no topic has this id.
NO_TOPIC_ID = bytes(16)


async def topic_ids_of(cluster: Cluster, names: Iterable[str], limit_s: float) -> dict[str, bytes]:
    """The ids that topics have now, as the controller knows them; ``NO_TOPIC_ID`` where there is none.

    Raises:
        QuorumlogError: nobody could tell within ``limit_s``.
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
    """The ids that topics have now, as the controller knows them.

    Raises:
        UnknownTopicOrPartitionError: there is no such topic.
        QuorumlogError: nobody could tell within ``limit_s``.
    """
    ids = await topic_ids_of(cluster, names, limit_s)
    for name, topic_id in ids.items():
        if topic_id == NO_TOPIC_ID:
            raise UnknownTopicOrPartitionError(f"topic {name!r} does not exist: create it first", retriable=False)
    return ids

"""Who serves which API, in which versions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from quorumlog.server.kafka.codec.fetch_requests import FetchRequest
from quorumlog.server.kafka.codec.metadata_requests import DescribeClusterRequest, MetadataRequest
from quorumlog.server.kafka.codec.position_requests import ListOffsetsRequest
from quorumlog.server.kafka.codec.primitives import KafkaMessage
from quorumlog.server.kafka.codec.produce_requests import InitProducerIdRequest, ProduceRequest
from quorumlog.server.kafka.mapping import cluster, fetch, offsets, produce
from quorumlog.server.kafka.mapping.steps import KafkaCall, Steps
from quorumlog.server.kafka.version_table import VersionTable

#: Serves a request. Its type is that of the API which it stands beside.
_Serve = Callable[[KafkaCall[Any]], Steps[KafkaMessage | None]]


class ServedApi(NamedTuple):
    """An API that is served.

    Arguments:
        highest: the last version of which all fields are honoured; None: the last that can be read.
        holds_up: no request behind it is begun before it is answered.
    """

    serve: _Serve
    highest: int | None = None
    holds_up: bool = False


#: By the key of the API.
SERVED: dict[int, ServedApi] = {
    ProduceRequest.API_KEY: ServedApi(produce.produce),
    # What answers hold is the most that a connection takes, and clients have one such request at a time.
    FetchRequest.API_KEY: ServedApi(fetch.fetch, holds_up=True),
    # Version 7 can ask for the latest record.
    ListOffsetsRequest.API_KEY: ServedApi(offsets.list_offsets, highest=6),
    MetadataRequest.API_KEY: ServedApi(cluster.describe_topics),
    InitProducerIdRequest.API_KEY: ServedApi(produce.init_producer_id),
    DescribeClusterRequest.API_KEY: ServedApi(cluster.describe_nodes),
}


def served_versions() -> VersionTable:
    """The APIs that are served, in the versions in which they are."""
    cut = {key: served.highest for key, served in SERVED.items() if served.highest is not None}
    return VersionTable(SERVED, cut)

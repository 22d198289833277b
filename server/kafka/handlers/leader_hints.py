"""The current leader, reported beside the error that another node was asked (KIP-951)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

from quorumlog.server.kafka.handlers.handler import KafkaClusterView
from quorumlog.server.kafka.handlers.topic_names import kafka_epoch
from quorumlog.v1 import errors_pb2

T = TypeVar("T")
_NOBODY = -1


def leader_hint(error: errors_pb2.Error, cluster: KafkaClusterView, make: Callable[[int, int], T]) -> T | None:
    """Returns the leader named in an error, or None if Kafka's clients cannot reach it.

    Arguments:
        make: constructs the result from a node id and a leader epoch.
    """
    if not error.HasField("leader") or error.leader.node_id == _NOBODY:
        return None
    if cluster.kafka_address(error.leader.node_id) is None:
        return None
    return make(error.leader.node_id, kafka_epoch(error.leader.leader_epoch))


def endpoints(
    errors: Iterable[errors_pb2.Error], cluster: KafkaClusterView, make: Callable[[int, str, int], T]
) -> list[T]:
    """Returns the addresses of the leaders that errors name.

    Arguments:
        make: constructs one from a node id, a host and a port.
    """
    addresses = []
    for node_id in dict.fromkeys(error.leader.node_id for error in errors if error.HasField("leader")):
        address = cluster.kafka_address(node_id)
        if address is not None:
            addresses.append(make(node_id, *address))
    return addresses

"""Objects that a node shares with its coordinators, each reduced to the interface that they need."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

from google.protobuf.message import Message as ProtoMessage

from quorumlog.server.access.access_errors import Refusals
from quorumlog.server.config.options import NodeOptions
from quorumlog.server.deciding.coordinator_replica import CoordinatorReplica
from quorumlog.server.hosting.raft_host import RaftHost
from quorumlog.server.hosting.read_index import HeartbeatRounds
from quorumlog.server.hosting.snapshots import Snapshots
from quorumlog.server.metadata.controller_client import ControllerClient
from quorumlog.server.metadata.image import CurrentImage
from quorumlog.server.metadata.records import PartitionRecord

ReplicaT = TypeVar("ReplicaT", bound=CoordinatorReplica[Any, Any])


class KnownLeaders(Protocol):
    """The known leaders of partitions."""

    def known_leader(self, record: PartitionRecord) -> tuple[int, int]:
        """Returns the leader and leader epoch of a partition, according to this node's metadata; NO_NODE without a
        leader."""


class ReplyToClient(Protocol):
    """Sends responses to clients."""

    def __call__(self, request_id: int, response: ProtoMessage, /) -> None:
        """Answers a request."""


@dataclass(slots=True, frozen=True)
class CoordinatorDependencies(Generic[ReplicaT]):
    """Objects that a node shares with its coordinators of one kind.

    Arguments:
        replicas: the coordinators of this kind that have a replica on this node, by their Raft groups.
        controller: client of the active controller.
        host: the Raft groups of this node.
        rounds: rounds of Raft heartbeats that confirm leaderships, shared with other reads.
        snapshots: writes the snapshots of a coordinator.
        refusals: error responses for denied requests.
    """

    options: NodeOptions
    metadata: CurrentImage
    replicas: Mapping[int, ReplicaT]
    leaders: KnownLeaders
    controller: ControllerClient
    host: RaftHost
    rounds: HeartbeatRounds
    snapshots: Snapshots
    reply: ReplyToClient
    refusals: Refusals

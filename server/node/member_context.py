"""Dependencies shared by the services of a cluster member."""

from __future__ import annotations

from dataclasses import dataclass

from quorumlog.server.hosting.read_index import HeartbeatRounds
from quorumlog.server.node.append_guard import AppendGuard
from quorumlog.server.node.controller_traffic import ControllerTraffic
from quorumlog.server.node.metadata_member import MetadataMember
from quorumlog.server.node.resources import NodeResources
from quorumlog.server.requests.metadata_staleness import ImageAge
from quorumlog.server.step.node_service import StepTime


@dataclass(slots=True, frozen=True)
class MemberContext:
    """The dependencies that every group of services is built from.

    Arguments:
        resources: the node's resources that exist without a cluster: storage, Raft groups, links.
        metadata: this node's replica of the metadata.
        traffic: requests to and from other nodes.
        conditions: decides whether this node can append and lead.
        rounds: heartbeats that confirm leadership.
        image_age: the maximum age of this node's metadata image.
        time: the time of the current step.
    """

    resources: NodeResources
    metadata: MetadataMember
    traffic: ControllerTraffic
    conditions: AppendGuard
    rounds: HeartbeatRounds
    image_age: ImageAge
    time: StepTime

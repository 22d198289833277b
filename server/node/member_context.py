"""What the services of a cluster member share."""

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
    """What every group of services is built from.

    Arguments:
        resources: what the node has without a cluster: storage, Raft groups, links.
        metadata: this node's replica of the metadata.
        traffic: requests to and from other nodes.
        conditions: whether this node can append and lead.
        rounds: heartbeats that confirm leaderships.
        image_age: how old this node's image of the metadata may be.
        time: of the step under way.
    """

    resources: NodeResources
    metadata: MetadataMember
    traffic: ControllerTraffic
    conditions: AppendGuard
    rounds: HeartbeatRounds
    image_age: ImageAge
    time: StepTime

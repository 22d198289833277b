"""Decides which nodes this node exchanges messages with."""

from __future__ import annotations

from quorumlog.server.events import PeerIdentity
from quorumlog.server.node.member_context import MemberContext


class PeerAdmission:
    """Accepts or refuses the streams of other nodes."""

    def __init__(self, context: MemberContext) -> None:
        self._own_id = context.resources.options.node_id
        self._refused = context.resources.refused
        self._metadata = context.metadata

    def refusal(self, peer: PeerIdentity) -> str | None:
        """Returns why the streams of a node are refused, in one line; None if they are accepted."""
        image, cluster_id = self._metadata.replica.image, self._metadata.membership.cluster_id
        if peer.cluster_id in image.former_cluster_ids:
            return (
                f"node {peer.node_id} comes back from cluster {peer.cluster_id}, which was given up with its data"
                f" (quorumlog recover) and is {cluster_id} since: start the node with an empty data directory"
            )
        if peer.cluster_id != cluster_id:
            return (
                f"node {peer.node_id} belongs to cluster {peer.cluster_id or '(none)'}, node"
                f" {self._own_id} to {cluster_id}; check --controllers and --data-dir"
            )
        if peer.node_id == self._own_id:
            return f"node id {peer.node_id} is taken by this node; give every node its own id"
        if peer.node_id in image.departures.removed:
            return (
                f"node {peer.node_id} was removed from the cluster; give it an empty data directory and a new node id"
            )
        lost = image.lost_disks.refuse(peer.node_id, peer.directory_id)
        if lost is not None or (peer.node_id, peer.directory_id) in self._refused:
            return lost or f"data directory {peer.directory_id} of node {peer.node_id} was given up as lost"
        known = self._metadata.directory_of(peer.node_id)
        if known is not None and known != peer.directory_id:
            return (
                f"node {peer.node_id} is known with data directory {known}, not {peer.directory_id};"
                " give it the directory that it had, or another node id"
            )
        return None

"""Heartbeats and leases of a node, and how it gives up leadership while its storage stalls.

A node whose storage thread stalls must not lead: it hands over its leaderships, and stops sending heartbeats.
"""

from __future__ import annotations

from quorumlog.server.config.options import NodeOptions
from quorumlog.server.hosting.leases import Leases
from quorumlog.server.hosting.peer_queues import PeerQueues
from quorumlog.server.hosting.raft_host import RaftHost
from quorumlog.server.node.cluster_member import ClusterMember
from quorumlog.server.node.stop_handover import offer_leadership


class StorageStall:
    """Detects a storage transaction that takes too long."""

    def __init__(self, options: NodeOptions, host: RaftHost, links: PeerQueues) -> None:
        self._host = host
        self._links = links
        self._limit = options.storage_stall_us
        self._patience = options.storage_stall_us + options.raft.election_timeout_us

    def yields(self, now: int) -> bool:
        """True if the storage stalls; then every leadership is offered to the follower with most of the log."""
        if not self._host.stalled(now, self._limit):
            return False
        for group, replica in self._host.led():
            if not replica.raft.is_transferring:
                offer_leadership(now, self._host, self._links, group)
        return True

    def is_silent(self, now: int) -> bool:
        """True if it has stalled for so long that a handover would have succeeded by now if it were possible.

        Otherwise a leader that receives appends would lead forever: its followers commit without its disk, and the
        entries that it sends are signs of life to them.
        """
        return self._host.stalled(now, self._patience)


class LeaderHeartbeats:
    """Sends this node's heartbeats and leases, and handles a peer that does not acknowledge frames.

    Attributes:
        next_deadline: when the next are due (µs).
    """

    def __init__(
        self, options: NodeOptions, host: RaftHost, links: PeerQueues, leases: Leases, stall: StorageStall, now: int
    ) -> None:
        self._options = options
        self._host = host
        self._links = links
        self._leases = leases
        self._stall = stall
        self._lease_due = self.next_deadline = now

    def give(self, now: int, member: ClusterMember) -> None:
        """Sends a heartbeat of every group that is led here and awake, and periodically a lease, in one frame per peer.

        Sends none while the storage stalls: a leader that cannot write hands over its leadership, or loses it by
        silence.
        """
        self.next_deadline = now + self._options.heartbeat_interval_us
        if self._stall.yields(now):
            return
        for link in self._links:
            if link.stuck(now, self._options.frame_ack_timeout_us):
                link.in_flight.clear()
                self.resend(now, link.peer)
        if now >= self._lease_due:
            self._lease_due = now + self._options.lease_interval_us
            self._leases.begin_round()
            self._links.grant(self._leases)
        reachable = self._leases.reachable()
        for group in sorted(self._host.awake_led):
            raft = self._host.replicas[group].raft
            if not (member.may_sleep(group, reachable) and raft.quiesce(now, reachable)):
                raft.heartbeat(now)
            self._host.touch(group)

    def resend(self, now: int, peer: int) -> None:
        """Makes every group probe a peer's log again, because frames in flight may be lost."""
        for group, replica in self._host.replicas.items():
            if peer in replica.raft.configuration.members:
                replica.raft.peer_unreachable(now, peer)
                self._host.touch(group)

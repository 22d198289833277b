"""Heartbeats and leases of a node, and how it stops leading while its storage stalls.

A node whose storage thread stalls must not lead: it hands over what it leads, and falls silent.
"""

from __future__ import annotations

from quorumlog.server.config.options import NodeOptions
from quorumlog.server.hosting.leases import Leases
from quorumlog.server.hosting.peer_queues import PeerQueues
from quorumlog.server.hosting.raft_host import RaftHost
from quorumlog.server.node.cluster_member import ClusterMember
from quorumlog.server.node.stop_handover import offer_leadership


class StorageStall:
    """Watches the storage transaction under way."""

    def __init__(self, options: NodeOptions, host: RaftHost, links: PeerQueues) -> None:
        self._host = host
        self._links = links
        self._limit = options.storage_stall_us
        self._patience = options.storage_stall_us + options.raft.election_timeout_us

    def yields(self, now: int) -> bool:
        """Whether the storage stalls; then every leadership is offered to whoever has most of the log."""
        if not self._host.stalled(now, self._limit):
            return False
        for group, replica in self._host.led():
            if not replica.raft.is_transferring:
                offer_leadership(now, self._host, self._links, group)
        return True

    def is_silent(self, now: int) -> bool:
        """Whether it has stalled for so long that handing over would have succeeded if it could.

        Otherwise a leader that is written to leads for ever: its followers commit without its disk, and the entries
        that it sends are signs of life to them.
        """
        return self._host.stalled(now, self._patience)


class LeaderHeartbeats:
    """The heartbeats and leases that this node gives, and what it does about a peer that does not take them.

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
        """A heartbeat of every group that is led here and awake, and now and then a lease, in one frame per peer.

        None while the storage stalls: a leader that cannot write hands its leadership over, or loses it by silence.
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
        """What was in flight to a peer may be lost: every group probes where it stands."""
        for group, replica in self._host.replicas.items():
            if peer in replica.raft.configuration.members:
                replica.raft.peer_unreachable(now, peer)
                self._host.touch(group)

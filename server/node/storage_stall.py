"""A node whose storage thread stands still must not lead: it hands over what it leads, and falls silent."""

from __future__ import annotations

from quorumlog.server.hosting.peer_queues import PeerQueues
from quorumlog.server.hosting.raft_host import RaftHost
from quorumlog.server.node.stop_handover import offer_leadership
from quorumlog.server.options import NodeOptions


class StorageStall:
    """Watches the transaction under way."""

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

"""Graceful stop: hands over leaderships, notifies the controller, and then halts the node."""

from __future__ import annotations

from quorumlog.raft.group import RaftGroup
from quorumlog.raft.types import NO_NODE
from quorumlog.server.config.options import NodeOptions
from quorumlog.server.hosting.peer_queues import PeerQueues
from quorumlog.server.hosting.raft_host import RaftHost
from quorumlog.server.metadata.records import METADATA_GROUP
from quorumlog.server.replicas.broker import Broker

#: Interval at which a failed transfer is retried (µs).
RETRY_US = 50_000


class Handover:
    """Transfers every leadership of a stopping node to its most advanced reachable follower.

    Partitions go first and the metadata group last, so that the new leaders can be reported in between. Leaderships
    that cannot be handed over within ``stop_timeout_us`` are left to elections.
    """

    def __init__(self, options: NodeOptions, host: RaftHost, links: PeerQueues, broker: Broker, now: int) -> None:
        self._options = options
        self._host = host
        self._links = links
        self._broker = broker
        self._deadline = now + options.stop_timeout_us
        self.next_deadline = now
        self._told = False

    def on_time(self, now: int) -> bool:
        """Continues the handover; True once the node may halt."""
        led = sorted((group for group, _ in self._host.led()), reverse=True)
        others = [group for group in led if group != METADATA_GROUP]
        if not others and not self._told:
            self._told = True
            self._broker.stop(now)
        if now >= self._deadline or (not led and self._told and self._broker.fenced):
            return True
        if now >= self.next_deadline:
            self.next_deadline = now + RETRY_US
            for group in others or (led if self._broker.fenced else []):
                offer_leadership(now, self._host, self._links, group)
        alone = all(heir_of(self._host.replicas[group].raft, self._links) == NO_NODE for group in led)
        return bool(led) and alone


def offer_leadership(now: int, host: RaftHost, links: PeerQueues, group: int) -> None:
    """Starts to hand a led group over to its heir, if there is one."""
    raft = host.replicas[group].raft
    heir = heir_of(raft, links)
    if heir != NO_NODE:
        raft.transfer_leadership(now, heir)
        host.touch(group)


def heir_of(raft: RaftGroup, links: PeerQueues) -> int:
    """Returns the reachable follower with the most of a led group's log, or NO_NODE."""
    candidates = [
        (raft.progress[node].match_index, -node)
        for node in raft.configuration.data_voters
        if node != raft.node_id and links[node].up
    ]
    return -max(candidates)[1] if candidates else NO_NODE

"""What a node does before it belongs to a cluster: it asks the controllers who they are, and founds or joins one.

What their answers mean is decided by `Formation`. Here is when they are asked, and how the decision becomes durable.
"""

from __future__ import annotations

from typing import Protocol

from quorumlog.raft.replication import NEVER
from quorumlog.raft.types import ORIGIN, Configuration, HardState
from quorumlog.server.events import PeerIdentified
from quorumlog.server.hosting.raft_host import RaftHost
from quorumlog.server.metadata.records import METADATA_GROUP
from quorumlog.server.node.formation import Formation, Membership
from quorumlog.server.node.own_directory import OwnDirectory
from quorumlog.server.options import NodeOptions
from quorumlog.storage.transaction import RaftGroupState

#: Until it has been ready once, a node looks at the controllers' clusters this many times less often than before it
#: belongs to one.
RECHECK_FACTOR = 10


class ClusterSeeker(Protocol):
    """Whoever looks for its cluster."""

    def found_cluster(self, membership: Membership, state: RaftGroupState) -> None:
        """It belongs to a cluster now, and that is durable; ``state`` is that of the metadata group."""

    def returned_empty(self, reason: str) -> None:
        """There is a cluster, and it knows the node by another data directory: the node waits to be taken back."""


class ClusterSearch:
    """The search of one node for its cluster.

    Arguments:
        seeker: hears how the search ends.

    Attributes:
        next_deadline: when the controllers are asked again (µs); never again once the node has been ready.
    """

    def __init__(
        self, options: NodeOptions, directory: OwnDirectory, host: RaftHost, now: int, seeker: ClusterSeeker
    ) -> None:
        self._options = options
        self._directory = directory
        self._host = host
        self._seeker = seeker
        self._formation = Formation(options.node_id, directory.id, options.address, options.controllers)
        self._concluded = self._joined = directory.membership is not None
        self.next_deadline = now
        if not directory.is_durable:
            host.after_durable(self._consider_forming)

    def not_ready(self) -> str:
        """Why a node that still searches does not serve yet, in one line."""
        if self._formation.returned_empty:
            return self._formation.returned_empty
        waiting = ", ".join(map(str, self._formation.waiting_for))
        return f"the cluster has not formed; waiting for controllers {waiting}"

    def whom_to_ask(self, now: int) -> list[str]:
        """Addresses of the controllers that are asked now who they are: to form or find the cluster, and then, until
        this node has been ready once, to make sure that it is among its own."""
        factor = RECHECK_FACTOR if self._joined else 1
        self.next_deadline = now + factor * self._options.identify_interval_us
        self._consider_forming()
        return self._formation.missing

    def stop_asking(self) -> None:
        """The node has been ready: it is among its own."""
        self.next_deadline = NEVER

    def on_identified(self, event: PeerIdentified) -> None:
        """A controller answered."""
        # A member has nothing to learn here; whether it is among its own cluster's nodes is the driver's to judge.
        if not self._joined and self._directory.is_durable:
            before = self._formation.returned_empty
            self._conclude(self._formation.on_identified(event.identity, event.standing))
            if self._formation.returned_empty and not before:
                self._seeker.returned_empty(self._formation.returned_empty)

    def _consider_forming(self) -> None:
        if not self._joined and self._directory.is_durable and self._options.node_id in self._options.controllers:
            self._conclude(self._formation.decide())

    def _conclude(self, conclusion: Membership | None) -> None:
        """Founds or joins a cluster, once: answers go on coming until that is durable."""
        if conclusion is not None and not self._concluded:
            self._concluded = True
            voters = tuple(node for node, _, _ in conclusion.voters)
            learners = () if self._options.node_id in voters else (self._options.node_id,)
            configuration = Configuration(voters, learners)
            self._directory.join(conclusion, configuration)
            # Said to nobody before it is durable: a founder that forgets would let the cluster form twice.
            self._host.after_durable(lambda: self._join(conclusion, configuration))

    def _join(self, membership: Membership, configuration: Configuration) -> None:
        self._joined = True
        state = RaftGroupState(METADATA_GROUP, configuration, HardState(), ORIGIN, ORIGIN, None, {})
        self._seeker.found_cluster(membership, state)

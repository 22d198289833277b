"""What a node does before it belongs to a cluster: it asks the controllers who they are, and founds or joins one.

What their answers mean is decided by `Formation`. Here is when they are asked, and how the decision becomes durable.

A node whose storage was damaged, and was moved aside on its operator's word, finds that the cluster knows it by the
directory that it has given up. It says so by itself, and asks that the cluster give that disk up too: it is what
``nodes replace`` asks, with the same checks. Of another directory it never says that: it may be sound, and elsewhere.
"""

from __future__ import annotations

from typing import Protocol

from quorumlog.raft.replication import NEVER
from quorumlog.raft.types import ORIGIN, Configuration, HardState
from quorumlog.server.config.options import NodeOptions
from quorumlog.server.hosting.raft_host import RaftHost
from quorumlog.server.metadata.records import METADATA_GROUP
from quorumlog.server.node.directory_identity import DirectoryIdentity
from quorumlog.server.node.formation import Formation, Membership
from quorumlog.server.step.events import LossAnswered, PeerIdentified
from quorumlog.storage.transaction import RaftGroupState

#: Until it has been ready once, a node looks at the controllers' clusters this many times less often than before it
#: belongs to one.
RECHECK_FACTOR = 10
#: How often a node asks that the disk which it has moved aside be given up, and when no answer counts as one.
REPORT_EVERY_US = 1_000_000
REPORT_TIMEOUT_US = 10_000_000


class ClusterSeeker(Protocol):
    """Whoever looks for its cluster."""

    def found_cluster(self, membership: Membership, state: RaftGroupState) -> None:
        """It belongs to a cluster now, and that is durable; ``state`` is that of the metadata group."""

    def report_loss(self, address: str, directory_id: str) -> None:
        """The node at an address (host:port) is to have a former disk of this node given up."""

    def returned_empty(self, reason: str) -> None:
        """There is a cluster, and it knows the node by another data directory: the node waits to be taken back."""


class ClusterSearch:
    """The search of one node for its cluster.

    Arguments:
        moved_aside: ids of the damaged data directories that made way for this one.
        seeker: hears how the search ends.

    Attributes:
        next_deadline: when the controllers are asked again (µs); never again once the node has been ready.
    """

    def __init__(
        self,
        options: NodeOptions,
        directory: DirectoryIdentity,
        host: RaftHost,
        now: int,
        moved_aside: frozenset[str],
        seeker: ClusterSeeker,
    ) -> None:
        self._options = options
        self._directory = directory
        self._host = host
        self._moved_aside = moved_aside
        self._seeker = seeker
        self._now = self._report_due = now
        self._kept_because = ""
        self._formation = Formation(options.node_id, directory.id, options.address, options.controllers)
        self._concluded = self._joined = directory.membership is not None
        self.next_deadline = now
        if not directory.is_durable:
            host.after_durable(self._consider_forming)

    def not_ready(self) -> str:
        """Why a node that still searches does not serve yet, in one line."""
        if self._gave_up_itself():
            waits = f"node {self._options.node_id} has moved its damaged storage aside, and comes back by itself"
            return f"{waits}; not yet: {self._kept_because}" if self._kept_because else waits
        if self._formation.returned_empty:
            return self._formation.returned_empty
        if not self.may_found():
            return (
                f"node {self._options.node_id} has moved its damaged storage aside, and founds no cluster: it waits for"
                " a controller that still has the cluster's data; if none has, look at what quorumlog recover can do"
            )
        waiting = ", ".join(map(str, self._formation.waiting_for))
        return f"the cluster has not formed; waiting for controllers {waiting}"

    def whom_to_ask(self, now: int) -> list[str]:
        """Addresses of the controllers that are asked now who they are: to form or find the cluster, and then, until
        this node has been ready once, to make sure that it is among its own."""
        self._now = now
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
            conclusion = self._formation.on_identified(event.identity, event.standing)
            if event.standing.voters or self.may_found():
                self._conclude(conclusion)
            if self._formation.returned_empty and not before:
                self._seeker.returned_empty(self.not_ready())
            if self._gave_up_itself() and event.standing.voters and self._now >= self._report_due:
                self._report_due = self._now + REPORT_TIMEOUT_US
                self._seeker.report_loss(event.identity.address, self._formation.known_directory)

    def on_loss_answered(self, event: LossAnswered) -> None:
        """The cluster gives up the directory that was moved aside, or says why it does not."""
        self._report_due = self._now + REPORT_EVERY_US
        if event.refused and event.refused != self._kept_because:
            self._seeker.returned_empty(event.refused)
        self._kept_because = event.refused

    def _gave_up_itself(self) -> bool:
        """Whether the cluster knows this node by a directory that was damaged and made way for this one."""
        return bool(self._formation.returned_empty) and self._formation.known_directory in self._moved_aside

    def may_found(self) -> bool:
        """Whether this node may be one of those that found a cluster. One whose storage was moved aside has belonged to
        a cluster: if all of them were damaged, they must not begin anew as if there had been nothing."""
        return not self._moved_aside or set(self._options.controllers) == {self._options.node_id}

    def _consider_forming(self) -> None:
        if self._joined or not self._directory.is_durable or not self.may_found():
            return
        if self._options.node_id in self._options.controllers:
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

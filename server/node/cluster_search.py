"""Search of a node for its cluster: it identifies the controllers, and founds or joins a cluster.

`Formation` decides what the answers mean. This module decides when to ask, and makes the result durable. A node that
belongs to a cluster asks again after a restart, and when it has lost the controller: the metadata quorum may have moved
to nodes that its metadata do not contain.

If a node's damaged storage was moved aside at its operator's request, the cluster still identifies the node by the
directory that it has given up. The node reports that automatically and asks the cluster to give up that disk too, like
``nodes replace`` and with the same checks. It never does so for any other directory, which may be intact and elsewhere.
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

#: A node that belongs to a cluster identifies the controllers this many times less often than before.
RECHECK_FACTOR = 10
#: Interval of the requests to give up the disk that was moved aside, and the timeout of one.
REPORT_EVERY_US = 1_000_000
REPORT_TIMEOUT_US = 10_000_000


class ClusterSeeker(Protocol):
    """The node that searches for its cluster."""

    def found_cluster(self, membership: Membership, state: RaftGroupState) -> None:
        """Joins a cluster, once that is durable; ``state`` is that of the metadata group."""

    def report_loss(self, address: str, directory_id: str) -> None:
        """Asks the node at an address (host:port) to have a former disk of this node given up."""

    def voters_reported(self, report: PeerIdentified) -> None:
        """Handles the voters of the metadata quorum that a controller reports to this member of a cluster."""

    def returned_empty(self, reason: str) -> None:
        """Reports that the cluster identifies the node by another data directory, so that it must wait."""


class ClusterSearch:
    """The search of one node for its cluster.

    Arguments:
        moved_aside: ids of the damaged data directories that this one replaces.
        seeker: notified of the result.

    Attributes:
        next_deadline: when the controllers are asked again (µs).
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
        """Returns why a node that still searches does not serve yet, in one line."""
        if self._gave_up_itself():
            waits = f"node {self._options.node_id} has moved its damaged storage aside and will return automatically"
            return f"{waits}; not yet: {self._kept_because}" if self._kept_because else waits
        if self._formation.returned_empty:
            return self._formation.returned_empty
        if not self.may_found():
            return (
                f"node {self._options.node_id} has moved its damaged storage aside and founds no cluster: it waits for"
                " a controller that still has the cluster's data; if none has, see quorumlog recover"
            )
        if self._formation.found_cluster:
            return (
                f"node {self._options.node_id} waits for the active controller of cluster"
                f" {self._formation.found_cluster}, to join it: if none answers, see quorumlog quorum describe"
            )
        waiting = ", ".join(map(str, self._formation.waiting_for))
        return f"the cluster has not formed; waiting for controllers {waiting}"

    def whom_to_ask(self, now: int) -> list[str]:
        """Returns the addresses of the controllers to identify now: to form or find the cluster, and afterwards to
        verify that this node belongs to theirs, and to find the voters of its metadata."""
        self._now = now
        factor = RECHECK_FACTOR if self._joined else 1
        self.next_deadline = now + factor * self._options.identify_interval_us
        self._consider_forming()
        return self._formation.missing

    def ask_while(self, now: int, *, is_cut_off: bool) -> None:
        """Asks only while a node that has been ready, and so is in the right cluster, has lost the controller."""
        if not is_cut_off:
            self.next_deadline = NEVER
        elif self.next_deadline == NEVER:
            self.next_deadline = now

    def on_identified(self, event: PeerIdentified) -> None:
        """Handles a controller's answer."""
        if self._joined:
            self._seeker.voters_reported(event)
        elif self._directory.is_durable:
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
        """Handles the cluster's answer to the request to give up the directory that was moved aside."""
        self._report_due = self._now + REPORT_EVERY_US
        if event.refused and event.refused != self._kept_because:
            self._seeker.returned_empty(event.refused)
        self._kept_because = event.refused

    def _gave_up_itself(self) -> bool:
        """True if the cluster identifies this node by a damaged directory that this one replaces."""
        return bool(self._formation.returned_empty) and self._formation.known_directory in self._moved_aside

    def may_found(self) -> bool:
        """True if this node may found a cluster.

        A node whose storage was moved aside has belonged to a cluster: if all nodes were damaged, they must not start a
        new one as if there had been no data.
        """
        return not self._moved_aside or set(self._options.controllers) == {self._options.node_id}

    def _consider_forming(self) -> None:
        if self._joined or not self._directory.is_durable or not self.may_found():
            return
        if self._options.node_id in self._options.controllers:
            self._conclude(self._formation.decide())

    def _conclude(self, conclusion: Membership | None) -> None:
        """Founds or joins a cluster, once: answers keep arriving until that is durable."""
        if conclusion is not None and not self._concluded:
            self._concluded = True
            voters = tuple(node for node, _, _ in conclusion.voters)
            learners = () if self._options.node_id in voters else (self._options.node_id,)
            configuration = Configuration(voters, learners)
            self._directory.join(conclusion, configuration)
            # Not reported to any node before it is durable: a founder that forgets would let the cluster form twice.
            self._host.after_durable(lambda: self._join(conclusion, configuration))

    def _join(self, membership: Membership, configuration: Configuration) -> None:
        self._joined = True
        state = RaftGroupState(METADATA_GROUP, configuration, HardState(), ORIGIN, ORIGIN, None, {})
        self._seeker.found_cluster(membership, state)

"""Formation of a cluster, which happens once, and detection of the cluster that a node belongs to.

A cluster forms when all configured controllers are reachable and empty. Then only the one with the lowest node id
decides; the others adopt its decision when they receive it. So there is one decision, and two wiped disks of three can
never form a new cluster over the third one's data, because that one reports that it is formed.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field, replace

from quorumlog.server.controller.quorum_decisions import MAX_VOTERS
from quorumlog.server.step.events import ClusterStanding, PeerIdentity

#: A voter of the metadata quorum: node id, directory id, address.
Voter = tuple[int, str, str]
#: Maximum number of voters that another node is believed to report: those before and after a change of the quorum.
MOST_REPORTED_VOTERS = 2 * MAX_VOTERS


@dataclass(slots=True, frozen=True)
class Membership:
    """A cluster that this node belongs to.

    Arguments:
        voters: of its metadata quorum: the controllers that formed it, or, for a node that joined later, the voters at
            that time.
        votes_from: an index of the metadata log. The node may vote once it has learned that this index is committed:
            its id may have belonged to another disk before, whose acknowledgements come before this index.
    """

    cluster_id: str
    voters: tuple[Voter, ...]
    votes_from: int = 0

    def encode(self) -> bytes:
        """Returns the form that is stored in the node's own rows."""
        row = {"cluster_id": self.cluster_id, "founders": self.voters}
        return json.dumps(row | ({"votes_from": self.votes_from} if self.votes_from else {})).encode()

    @classmethod
    def decode(cls, row: bytes) -> Membership:
        """Parses the form that is stored in the node's own rows."""
        parsed = json.loads(row)
        voters = tuple((node, directory, address) for node, directory, address in parsed["founders"])
        return cls(parsed["cluster_id"], voters, parsed.get("votes_from", 0))

    def directory_of(self, node_id: int) -> str | None:
        """Returns the data directory of one of the voters."""
        return next((directory for node, directory, _ in self.voters if node == node_id), None)


@dataclass(slots=True)
class Formation:
    """The view of a node that does not belong to a cluster yet.

    Arguments:
        node_id, directory_id, address: of this node.
        controllers: as configured: node id -> address.
    """

    node_id: int
    directory_id: str
    address: str
    controllers: dict[int, str]
    #: Why the node waits to be accepted again, in one line; empty if it does not wait.
    returned_empty: str = ""
    #: The data directory by which the cluster identifies it in that case.
    known_directory: str = ""
    #: Id of the cluster that this node has found, until its active controller has answered.
    found_cluster: str = ""
    _empty: dict[int, PeerIdentity] = field(default_factory=dict)
    #: Addresses of the voters that the controllers have reported: one of them is the active controller.
    _voters: dict[int, str] = field(default_factory=dict)

    @property
    def missing(self) -> list[str]:
        """Addresses of the nodes to ask: the controllers, and the voters that they have reported."""
        # A voter may have moved since its address was configured: both are asked.
        others = sorted({*self.controllers.items(), *self._voters.items()})
        return [address for node, address in others if node != self.node_id]

    @property
    def waiting_for(self) -> list[int]:
        """Node ids of the controllers that have not reported that they are empty."""
        return [node for node in sorted(self.controllers) if node not in self._empty and node != self.node_id]

    def on_identified(self, identity: PeerIdentity, standing: ClusterStanding) -> Membership | None:
        """Handles the answer of the node at a controller's address.

        Returns:
            The cluster to join, or that has just formed; None: wait.
        """
        if not identity.directory_id:
            return None
        if standing.voters:
            # The node id is not checked: the voters may have changed since the addresses were configured.
            return self._adopt(identity.cluster_id, standing)
        if identity.node_id not in self.controllers:
            return None
        self._empty[identity.node_id] = identity
        return self.decide()

    def decide(self) -> Membership | None:
        """Forms the cluster if this node decides and every controller has answered; otherwise returns None."""
        if self.node_id != min(self.controllers) or self.waiting_for:
            return None
        founders = [(self.node_id, self.directory_id, self.address)]
        founders += [(node, peer.directory_id, self.controllers[node]) for node, peer in self._empty.items()]
        founders.sort()
        digest = hashlib.blake2b(json.dumps(founders).encode(), digest_size=11).hexdigest()
        return Membership(digest, tuple(founders))

    def _adopt(self, cluster_id: str, standing: ClusterStanding) -> Membership | None:
        membership = Membership(cluster_id, standing.voters)
        own = membership.directory_of(self.node_id)
        known = own or standing.known_directory
        if known and known != self.directory_id:
            # It has forgotten what it acknowledged: until the old disk is removed, it must not act for it.
            self.known_directory = known
            self.returned_empty = self._why_it_waits(cluster_id, known, standing.voters)
            return None
        if own:
            return membership
        if standing.may_be_outdated:
            # A controller that is behind may not have learned of this node's former disk, which has acknowledged
            # entries that the controller has not seen either.
            self.found_cluster = cluster_id
            self._voters = {node: address for node, _, address in standing.voters[:MOST_REPORTED_VOTERS]}
            return None
        return replace(membership, votes_from=standing.applied_index)

    def _why_it_waits(self, cluster_id: str, known: str, voters: tuple[Voter, ...]) -> str:
        node = self.node_id
        empty = {node, *self._empty}
        wiped = [voter for voter, directory, _ in voters if voter in empty and directory != self._directory_now(voter)]
        if 2 * len(wiped) >= len(voters) and len(voters) > 1:
            return (
                f"nodes {', '.join(map(str, wiped))} of {len(voters)} controllers of cluster {cluster_id} returned with"
                " empty data directories, and no majority remembers the metadata: give them the directories that they"
                " had"
            )
        return (
            f"node {node} returned with an empty data directory; cluster {cluster_id} has it with directory"
            f" {known}: if that disk is lost, run quorumlog nodes replace {node} --with {node}, otherwise restore the"
            " node's directory"
        )

    def _directory_now(self, node_id: int) -> str:
        if node_id == self.node_id:
            return self.directory_id
        return self._empty[node_id].directory_id

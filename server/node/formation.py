"""How a cluster comes into existence, once, and how a node finds out whether it belongs to one.

A cluster forms when all configured controllers are reachable and empty. Then the one with the lowest node id, and only
that one, decides; the others adopt its decision when they hear of it. So there is one decision, and two wiped disks of
three can never form a new cluster over the third's data: that one answers that it is formed.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field

from quorumlog.server.events import PeerIdentity

#: A voter of the metadata quorum: node id, directory id, address.
Voter = tuple[int, str, str]


@dataclass(slots=True, frozen=True)
class Membership:
    """A cluster that this node belongs to.

    Arguments:
        voters: of its metadata quorum: the controllers that formed it, or, for a node that joined later, those that
            voted then.
    """

    cluster_id: str
    voters: tuple[Voter, ...]

    def encode(self) -> bytes:
        """For the node's own rows."""
        return json.dumps({"cluster_id": self.cluster_id, "founders": self.voters}).encode()

    @classmethod
    def decode(cls, row: bytes) -> Membership:
        """From the node's own rows."""
        parsed = json.loads(row)
        return cls(parsed["cluster_id"], tuple((node, directory, addr) for node, directory, addr in parsed["founders"]))

    def directory_of(self, node_id: int) -> str | None:
        """The data directory of one of the voters."""
        return next((directory for node, directory, _ in self.voters if node == node_id), None)


@dataclass(slots=True)
class Formation:
    """A node that does not belong to a cluster yet.

    Arguments:
        node_id, directory_id, address: of this node.
        controllers: as configured: node id -> address.
    """

    node_id: int
    directory_id: str
    address: str
    controllers: dict[int, str]
    _empty: dict[int, PeerIdentity] = field(default_factory=dict)

    @property
    def missing(self) -> list[str]:
        """Addresses of the controllers that have not answered yet, or whose answer may be out of date."""
        return [address for node, address in sorted(self.controllers.items()) if node != self.node_id]

    @property
    def waiting_for(self) -> list[int]:
        """Node ids of the controllers that have not answered that they are empty."""
        return [node for node in sorted(self.controllers) if node not in self._empty and node != self.node_id]

    def on_identified(self, identity: PeerIdentity, voters: tuple[Voter, ...]) -> Membership | str | None:
        """The node at the address of a controller answered.

        Arguments:
            voters: of the metadata quorum that it belongs to; empty if it belongs to none.

        Returns:
            The cluster to join or that has just formed; or one line why this node cannot take part; or None: wait.
        """
        if not identity.directory_id:
            return None
        if voters:
            # Whatever its node id: who votes may have changed since the addresses were written down.
            return self._adopt(identity.cluster_id, voters)
        if identity.node_id not in self.controllers:
            return None
        self._empty[identity.node_id] = identity
        return self.decide()

    def decide(self) -> Membership | None:
        """Forms the cluster if this node is the one to do it and everyone is there."""
        if self.node_id != min(self.controllers) or self.waiting_for:
            return None
        founders = [(self.node_id, self.directory_id, self.address)]
        founders += [(node, peer.directory_id, self.controllers[node]) for node, peer in self._empty.items()]
        founders.sort()
        digest = hashlib.blake2b(json.dumps(founders).encode(), digest_size=11).hexdigest()
        return Membership(digest, tuple(founders))

    def _adopt(self, cluster_id: str, voters: tuple[Voter, ...]) -> Membership | str:
        membership = Membership(cluster_id, voters)
        known = membership.directory_of(self.node_id)
        if known is not None and known != self.directory_id:
            return (
                f"cluster {cluster_id} was formed with another data directory of node {self.node_id} ({known}); this"
                f" one is empty ({self.directory_id}): give it the directory that it had, or another node id"
            )
        return membership

"""Whose data directory a node was started with: what the node's own rows on disk say."""

from __future__ import annotations

import random
from collections.abc import Mapping

from quorumlog.raft.types import Configuration, HardState
from quorumlog.server.hosting.raft_host import RaftHost
from quorumlog.server.metadata.records import METADATA_GROUP
from quorumlog.server.node.formation import Membership
from quorumlog.storage.transaction import RaftGroupWrite

DIRECTORY_ROW = b"directory_id"
NODE_ROW = b"node_id"
CLUSTER_ROW = b"cluster"


class DirectoryIdentity:
    """The data directory of this node. An empty one gets its id, and belongs to this node from then on.

    Arguments:
        rows: of the node's own state, as found on disk.

    Attributes:
        id: of the directory, random.
        is_durable: the id is on disk. Nobody is told it before: a node that forgets it would be two.
        membership: the cluster that the directory belonged to when it was opened; None: to none.

    Raises:
        ValueError: the directory is another node's.
    """

    def __init__(self, node_id: int, rows: Mapping[bytes, bytes], host: RaftHost, rng: random.Random) -> None:
        self._host = host
        owner = rows.get(NODE_ROW, b"%d" % node_id).decode()
        if owner != str(node_id):
            # With another's log and votes it would speak twice in every group of that node.
            raise ValueError(f"it is node {owner}'s: start it with --node-id {owner}, or give node {node_id} its own")
        directory = rows.get(DIRECTORY_ROW)
        self.is_durable = directory is not None
        if directory is None:
            directory = f"{rng.getrandbits(128):032x}".encode()
            host.set_node_state(DIRECTORY_ROW, directory)
            host.set_node_state(NODE_ROW, b"%d" % node_id)
            host.after_durable(self._saved)
        self.id = directory.decode()
        self.membership = Membership.decode(rows[CLUSTER_ROW]) if CLUSTER_ROW in rows else None

    def _saved(self) -> None:
        self.is_durable = True

    def join(self, membership: Membership, configuration: Configuration) -> None:
        """Belongs to a cluster, and has an empty log of its metadata, with the next transaction."""
        self._host.set_node_state(CLUSTER_ROW, membership.encode())
        self._host.create(RaftGroupWrite(METADATA_GROUP, create=configuration, hard_state=HardState()))

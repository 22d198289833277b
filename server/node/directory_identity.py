"""Identity of the data directory: the rows of the node itself on disk."""

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
    """The data directory of this node. An empty one gets an id, and belongs to this node from then on.

    Arguments:
        rows: the node's own state, as read from disk.

    Attributes:
        id: random id of the directory.
        is_durable: the id is on disk. It is not reported before: a node that forgets it would appear as two.
        membership: the cluster that the directory belonged to when it was opened; None: no cluster.

    Raises:
        ValueError: the directory belongs to another node.
    """

    def __init__(self, node_id: int, rows: Mapping[bytes, bytes], host: RaftHost, rng: random.Random) -> None:
        self._host = host
        owner = rows.get(NODE_ROW, b"%d" % node_id).decode()
        if owner != str(node_id):
            # With another node's log and votes it would act as that node in every group, beside the original.
            raise ValueError(f"it belongs to node {owner}: use --node-id {owner}, or give node {node_id} its own")
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
        """Joins a cluster, with an empty log of its metadata, with the next transaction."""
        self._host.set_node_state(CLUSTER_ROW, membership.encode())
        self._host.create(RaftGroupWrite(METADATA_GROUP, create=configuration, hard_state=HardState()))

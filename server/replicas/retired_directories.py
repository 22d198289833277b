"""Data directories that were given up as lost, and whose messages this node ignores permanently.

The metadata name them. But a starting node has older metadata for a while: without rows of its own it would accept
votes again from a disk that has since been replaced.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping

from quorumlog.server.hosting.raft_host import RaftHost
from quorumlog.server.metadata.image import MetadataImage

_PREFIX = b"refused-disk/"
_ROW = struct.Struct("<Q")


class RefusedDisks:
    """The data directories that this node refuses.

    Arguments:
        rows: rows of the node's own state, as found on disk.
    """

    def __init__(self, host: RaftHost, rows: Mapping[bytes, bytes]) -> None:
        self._host = host
        #: The index of the entry that gave it up, by node id and data directory.
        self._given_up: dict[tuple[int, str], int] = {}
        for key, row in rows.items():
            if key.startswith(_PREFIX):
                node, directory = key.removeprefix(_PREFIX).decode().split("/", 1)
                self._given_up[int(node), directory] = _ROW.unpack(row)[0]

    def __contains__(self, disk: tuple[int, str]) -> bool:
        """True if a node id with a data directory is refused."""
        return disk in self._given_up

    def follow(self, image: MetadataImage, kept: Callable[[int], None]) -> None:
        """Follows a change of the metadata.

        Arguments:
            kept: called with the index of the newest loss once all up to it are on disk.
        """
        lost = image.lost_disks
        if not lost.by_node and not self._given_up:
            return
        named = {(node, directory) for node, each in lost.by_node.items() for directory in each.directories}
        # One that the metadata do not name yet stays: they may be older.
        for disk in [each for each, index in self._given_up.items() if each not in named]:
            if self._given_up[disk] <= image.applied_index:
                del self._given_up[disk]
                self._host.set_node_state(_row_of(disk), None)
        for disk in sorted(named.difference(self._given_up)):
            self._given_up[disk] = lost.by_node[disk[0]].lost_index
            self._host.set_node_state(_row_of(disk), _ROW.pack(self._given_up[disk]))
        index = lost.lost_index
        self._host.after_durable(lambda: kept(index))


def _row_of(disk: tuple[int, str]) -> bytes:
    return _PREFIX + f"{disk[0]}/{disk[1]}".encode()

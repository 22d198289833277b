"""What a node remembers of the replicas that were moved away from it: the term in which each ended.

A partition may come back to a node that it left. Its new replica begins empty, and in the term after the former one's:
then no leader takes an answer of the former life, still under way, for one of this life, and no vote is given twice.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping

from quorumlog.raft.types import ORIGIN, Configuration, HardState
from quorumlog.server.group_host import GroupHost
from quorumlog.server.metadata_records import METADATA_GROUP, Partition
from quorumlog.storage.transaction import GroupState, GroupWrite

_PREFIX = b"former-replica/"
_TERM = struct.Struct("<Q")


class FormerReplicas:
    """Begins and ends the replicas of partitions on disk.

    Arguments:
        rows: of the node's own state, as found on disk.
    """

    def __init__(self, node_id: int, host: GroupHost, rows: Mapping[bytes, bytes]) -> None:
        self._node_id = node_id
        self._host = host
        self._terms = {
            int(key.removeprefix(_PREFIX)): _TERM.unpack(row)[0] for key, row in rows.items() if key.startswith(_PREFIX)
        }

    def begin(self, record: Partition) -> GroupState:
        """Creates a replica, with the next transaction. Where the partition is being moved here it is a learner: it
        neither votes as a founder nor campaigns before the group has made it a voter."""
        group = record.group
        configuration = Configuration(record.replicas)
        if self._node_id not in record.replicas:
            configuration = Configuration(record.replicas, (self._node_id,))
        former = self._terms.get(group)
        hard_state = HardState(0 if former is None else former + 1)
        self._host.create(GroupWrite(group, create=configuration, hard_state=hard_state), decided_by=METADATA_GROUP)
        return GroupState(group, configuration, hard_state, ORIGIN, ORIGIN, None, {})

    def ended(self, group: int, term: int) -> None:
        """A replica was moved away; with the transaction that destroys it, its term is kept."""
        self._terms[group] = max(term, self._terms.get(group, 0))
        self._host.set_node_state(_row_of(group), _TERM.pack(self._terms[group]))

    def forget(self, was_deleted: Callable[[int], bool]) -> None:
        """Partitions that exist no more never come back."""
        for group in [group for group in self._terms if was_deleted(group)]:
            del self._terms[group]
            self._host.set_node_state(_row_of(group), None)


def _row_of(group: int) -> bytes:
    return _PREFIX + b"%d" % group

"""Records of the replicas that were moved away from a node: the term in which each ended.

A partition may return to a node that it left. Its new replica starts empty, and in the term after the former one's. So
no leader mistakes a delayed answer of the former replica for one of the new replica, and no vote is given twice.

The new replica has no vote either before its log has reached the last reassignment. A replica that has not applied the
reassignment still counts this node among the voters, and the new replica would elect it without the entries that the
former one helped to commit. The same holds for a node whose disk was lost, and that has no record of a former replica.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping

from quorumlog.raft.types import ORIGIN, Configuration, HardState
from quorumlog.server.hosting.raft_host import RaftHost
from quorumlog.server.metadata.records import METADATA_GROUP, PartitionRecord
from quorumlog.server.partition.witness import witness_rows
from quorumlog.storage.transaction import RaftGroupState, RaftGroupWrite

_PREFIX = b"former-replica/"
_ROW = struct.Struct("<QQ")


class ReplicaTombstones:
    """Creates and ends the replicas of partitions on disk. A ``group`` here is the number of a Raft group.

    Arguments:
        rows: rows of the node's own state, as found on disk.
    """

    def __init__(self, node_id: int, host: RaftHost, rows: Mapping[bytes, bytes]) -> None:
        self._node_id = node_id
        self._host = host
        self._lives = former_lives(rows)

    def begin(self, record: PartitionRecord) -> RaftGroupState:
        """Creates a replica, with the next transaction. If the partition is being moved here it is a learner: it
        neither votes as a founder nor campaigns before the group has made it a voter."""
        group = record.group
        rows = witness_rows() if self._node_id in record.witness_hosts else {}
        learns = self._node_id not in record.voters
        witnesses = {record.witness, self._node_id} & record.witness_hosts
        learners = (self._node_id,) if learns else ()
        configuration = Configuration(record.voters, learners, witnesses=tuple(sorted(witnesses)))
        former = self._lives.get(group)
        hard_state = HardState(0 if former is None else former[0] + 1)
        if former is not None:
            self._keep(group, former[0], max(former[1], record.moved_index))
        elif learns and record.moved_index:
            # There may have been a replica on a lost disk of this node, of which there is no record.
            hard_state = HardState(record.leader_epoch)
            self._keep(group, record.leader_epoch, record.moved_index)
        write = RaftGroupWrite(group, create=configuration, hard_state=hard_state, table={**rows})
        self._host.create(write, decided_by=METADATA_GROUP)
        return RaftGroupState(group, configuration, hard_state, ORIGIN, ORIGIN, None, rows)

    def ended(self, group: int, term: int) -> None:
        """Records the term of a replica that was moved away, with the transaction that destroys it."""
        known, votes_from = self._lives.get(group, (0, 0))
        self._keep(group, max(term, known), votes_from)

    def lost(self, group: int, term: int, last_index: int) -> None:
        """Records a replica that is given up because it is damaged. The one that replaces it lacks the entries that it
        has helped to commit: it has no vote before it has learned that all of those are committed, and so has them
        again.

        Arguments:
            last_index: upper bound of the entries that it has acknowledged.
        """
        known, votes_from = self._lives.get(group, (0, 0))
        self._keep(group, max(term, known), max(votes_from, last_index))

    def votes_from(self, group: int) -> int:
        """Returns the index from which on a returned replica has a vote; 0 for one that was never away. It is as of the
        time when the replica returned: a starting node may have older metadata."""
        _, votes_from = self._lives.get(group, (0, 0))
        return votes_from

    def _keep(self, group: int, term: int, votes_from: int) -> None:
        self._lives[group] = (term, votes_from)
        self._host.set_node_state(_row_of(group), _ROW.pack(term, votes_from))

    def forget(self, was_deleted: Callable[[int], bool]) -> None:
        """Forgets partitions that are deleted: they never return."""
        for group in [group for group in self._lives if was_deleted(group)]:
            del self._lives[group]
            self._host.set_node_state(_row_of(group), None)


def forgotten_replica(group: int) -> dict[bytes, bytes | None]:
    """Returns the node's own row that removes the record of a partition's former replicas here."""
    return {_row_of(group): None}


def former_lives(rows: Mapping[bytes, bytes]) -> dict[int, tuple[int, int]]:
    """Returns, by Raft group that left the node, or was restarted there, the term in which its former replica ended,
    and the index from which on the returned one has a vote.

    Arguments:
        rows: rows of the node's own state, as found on disk.
    """
    lives: dict[int, tuple[int, int]] = {}
    for key, row in rows.items():
        if key.startswith(_PREFIX):
            term, votes_from = _ROW.unpack(row)
            lives[int(key.removeprefix(_PREFIX))] = (term, votes_from)
    return lives


def _row_of(group: int) -> bytes:
    return _PREFIX + b"%d" % group

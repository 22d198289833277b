"""What a node remembers of the replicas that were moved away from it: the term in which each ended.

A partition may come back to a node that it left. Its new replica begins empty, and in the term after the former one's.
So no leader takes an answer of the former life, still under way, for one of this life, and no vote is given twice.

The new replica has no say either before its log has got as far as the last move. A replica that has heard of no move
still counts this node among the voters, and what the former life helped to commit would not be in the way of its
election. The same holds for a node whose disk was lost, and that remembers nothing of a former life.
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
    """Begins and ends the replicas of partitions on disk. A ``group`` here is the number of a Raft group.

    Arguments:
        rows: of the node's own state, as found on disk.
    """

    def __init__(self, node_id: int, host: RaftHost, rows: Mapping[bytes, bytes]) -> None:
        self._node_id = node_id
        self._host = host
        self._lives = former_lives(rows)

    def begin(self, record: PartitionRecord) -> RaftGroupState:
        """Creates a replica, with the next transaction. Where the partition is being moved here it is a learner: it
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
            # There may have been one on a disk that this node has lost, of which nothing is remembered here.
            hard_state = HardState(record.leader_epoch)
            self._keep(group, record.leader_epoch, record.moved_index)
        write = RaftGroupWrite(group, create=configuration, hard_state=hard_state, table={**rows})
        self._host.create(write, decided_by=METADATA_GROUP)
        return RaftGroupState(group, configuration, hard_state, ORIGIN, ORIGIN, None, rows)

    def ended(self, group: int, term: int) -> None:
        """A replica was moved away; with the transaction that destroys it, its term is kept."""
        known, votes_from = self._lives.get(group, (0, 0))
        self._keep(group, max(term, known), votes_from)

    def lost(self, group: int, term: int, last_index: int) -> None:
        """A replica is given up because it is damaged. The one that takes its place has forgotten what it has helped to
        commit: it has no say before it knows that all of that is committed, and so has it again.

        Arguments:
            last_index: it has acknowledged nothing beyond.
        """
        known, votes_from = self._lives.get(group, (0, 0))
        self._keep(group, max(term, known), max(votes_from, last_index))

    def votes_from(self, group: int) -> int:
        """The index from which on a replica that came back has a say; 0 of one that was never away. It is as of when
        the replica came back: a node that starts may see the metadata as they were before."""
        _, votes_from = self._lives.get(group, (0, 0))
        return votes_from

    def _keep(self, group: int, term: int, votes_from: int) -> None:
        self._lives[group] = (term, votes_from)
        self._host.set_node_state(_row_of(group), _ROW.pack(term, votes_from))

    def forget(self, was_deleted: Callable[[int], bool]) -> None:
        """Forgets partitions that are deleted: they never come back."""
        for group in [group for group in self._lives if was_deleted(group)]:
            del self._lives[group]
            self._host.set_node_state(_row_of(group), None)


def forgotten_replica(group: int) -> dict[bytes, bytes | None]:
    """The node's own row with which nothing is remembered any more of a partition's former lives here."""
    return {_row_of(group): None}


def former_lives(rows: Mapping[bytes, bytes]) -> dict[int, tuple[int, int]]:
    """Of each Raft group that left the node, or began anew there: the term in which its former replica ended, and from
    which index on the one that came back has a say.

    Arguments:
        rows: of the node's own state, as found on disk.
    """
    lives: dict[int, tuple[int, int]] = {}
    for key, row in rows.items():
        if key.startswith(_PREFIX):
            term, votes_from = _ROW.unpack(row)
            lives[int(key.removeprefix(_PREFIX))] = (term, votes_from)
    return lives


def _row_of(group: int) -> bytes:
    return _PREFIX + b"%d" % group

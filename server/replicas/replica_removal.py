"""Removal of replicas from this node: their topic was deleted, or they were moved away."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from quorumlog.server.hosting.partition_replica import PartitionReplica
from quorumlog.server.hosting.raft_host import RaftHost
from quorumlog.server.hosting.snapshots import Snapshots
from quorumlog.server.metadata.records import METADATA_GROUP
from quorumlog.server.replicas.replica_tombstones import ReplicaTombstones
from quorumlog.server.replicas.replicas import Replicas
from quorumlog.server.step.events import EventLog


class ReplicaRemoval:
    """Removes replicas according to the metadata.

    Arguments:
        former: records of replicas that were moved away from here.
        ended: notifies the modules that wait for a replica that was removed.
        forget_group: called for a Raft group that no longer has a replica here.
    """

    def __init__(
        self,
        host: RaftHost,
        replicas: Replicas,
        snapshots: Snapshots,
        former: ReplicaTombstones,
        ended: Callable[[PartitionReplica], None],
        forget_group: Callable[[int], None],
        log: EventLog,
    ) -> None:
        self._host = host
        self._replicas = replicas
        self._snapshots = snapshots
        self._former = former
        self._ended = ended
        self._forget_group = forget_group
        self._log = log
        self._to_leave: set[int] = set()

    def deleted(self, raft_groups: Iterable[int]) -> None:
        """Removes the replicas of topics that were deleted just now, by Raft group."""
        for raft_group in raft_groups:
            if raft_group in self._replicas.set_aside:
                # `DamagedReplicas` removes it, if that does not damage others.
                self._replicas.leaving_aside.add(raft_group)
            else:
                self._remove(raft_group)
        self._former.forget(self._replicas.was_deleted)

    def find_deleted(self) -> None:
        """Removes the replicas of topics that were deleted while this node was down."""
        self.deleted(self._replicas.deleted())

    def may_have_moved(self, raft_groups: Iterable[int]) -> None:
        """Notes Raft groups of which a replica here may have been moved away."""
        self._to_leave.update(raft_groups)

    def leave(self, now: int) -> None:
        """Destroys replicas that were moved away.

        May be called only once everything is applied that is known to be committed. A starting node applies old entries
        again: it must not destroy a replica that has returned, because an earlier one was moved away.
        """
        to_leave, self._to_leave = self._to_leave, set()
        for raft_group in sorted(to_leave):
            record = self._replicas.moved_away(raft_group)
            if record is None:
                continue
            self._log("info", "replica_moved_away", group=raft_group, replicas=list(record.replicas))
            if raft_group in self._replicas.set_aside:
                self._replicas.leaving_aside.add(raft_group)
                continue
            self._former.ended(raft_group, self._replicas.term_of(raft_group))
            self._remove(raft_group)
            # It may have returned as the other kind, a witness or a replica.
            self._replicas.ensure(now, raft_group)

    def _remove(self, raft_group: int) -> None:
        """Removes a replica, notifies the modules that wait for it, and destroys its data on disk. Late results for it
        find nothing."""
        if not self._replicas.holds(raft_group):
            return
        hosted = self._replicas.remove(raft_group)
        self._host.destroy(raft_group, decided_by=METADATA_GROUP)
        self._snapshots.group_gone(raft_group)
        self._forget_group(raft_group)
        if hosted is not None:
            self._ended(hosted)

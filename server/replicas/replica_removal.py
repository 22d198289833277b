"""Replicas of partitions that end on this node: their topic is deleted, or they were moved away."""

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
    """Ends replicas as the metadata say.

    Arguments:
        former: what is known of replicas that were moved away from here.
        ended: tells those who wait for a replica that has ended.
        forget_group: a Raft group has no replica here any more.
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
        """Raft groups of topics that were deleted just now."""
        for raft_group in raft_groups:
            if raft_group in self._replicas.set_aside:
                # `DamagedReplicas` ends it, where that does others no harm.
                self._replicas.leaving_aside.add(raft_group)
            else:
                self._remove(raft_group)
        self._former.forget(self._replicas.was_deleted)

    def find_deleted(self) -> None:
        """Replicas of topics that were deleted while this node was not told."""
        self.deleted(self._replicas.deleted())

    def may_have_moved(self, raft_groups: Iterable[int]) -> None:
        """Raft groups of which there may be a replica here that was moved away."""
        self._to_leave.update(raft_groups)

    def leave(self, now: int) -> None:
        """Destroys replicas that were moved away.

        Only to be called once everything is applied that is known to be committed. A node that starts sees once more
        what it saw before: it must not destroy a replica that came back, because an earlier one had gone.
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
            # It may have come back as the other kind, a witness or a replica.
            self._replicas.ensure(now, raft_group)

    def _remove(self, raft_group: int) -> None:
        """Ends a replica, tells those who wait for it, and destroys what it has on disk. What comes late of it finds
        nothing."""
        if not self._replicas.holds(raft_group):
            return
        hosted = self._replicas.remove(raft_group)
        self._host.destroy(raft_group, decided_by=METADATA_GROUP)
        self._snapshots.group_gone(raft_group)
        self._forget_group(raft_group)
        if hosted is not None:
            self._ended(hosted)

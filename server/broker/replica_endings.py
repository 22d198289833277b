"""Replicas of partitions that end on this node: their topic is deleted, or they were moved away."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from quorumlog.server.broker.former_replicas import FormerReplicas
from quorumlog.server.broker.replicas import Partitions
from quorumlog.server.hosting.partition_replica import PartitionReplica
from quorumlog.server.hosting.raft_host import RaftHost
from quorumlog.server.hosting.snapshots import Snapshots
from quorumlog.server.metadata.image import MetadataImage
from quorumlog.server.metadata.records import METADATA_GROUP


class ReplicaEndings:
    """Ends replicas as the metadata say.

    Arguments:
        former: what is known of replicas that were moved away from here.
        image: gives the current metadata image.
        ended: told of each replica that took part and does no more: whoever waits for it is to be told.
        forget_group: a group has no replica here any more.
        log: level, event name and fields.
    """

    def __init__(
        self,
        node_id: int,
        host: RaftHost,
        partitions: Partitions,
        snapshots: Snapshots,
        former: FormerReplicas,
        image: Callable[[], MetadataImage],
        ended: Callable[[PartitionReplica], None],
        forget_group: Callable[[int], None],
        log: Callable[..., None],
    ) -> None:
        self._node_id = node_id
        self._host = host
        self._partitions = partitions
        self._snapshots = snapshots
        self._former = former
        self._image = image
        self._ended = ended
        self._forget_group = forget_group
        self._log = log
        self._to_leave: set[int] = set()

    def deleted(self, groups: Iterable[int]) -> None:
        """Groups of topics that were deleted just now."""
        for group in groups:
            self._remove(group)
        self._former.forget(self._image().topic_table.was_deleted)

    def find_deleted(self) -> None:
        """Replicas of topics that were deleted while this node was not told."""
        self.deleted(self._partitions.deleted())

    def may_have_moved(self, groups: Iterable[int]) -> None:
        """Groups of which there may be a replica here that was moved away."""
        self._to_leave.update(groups)

    def leave(self) -> None:
        """Destroys replicas that were moved away.

        Only to be called with all applied that is known to be committed: a node that starts sees what it saw before
        once more, and must not destroy a replica that came back for its having gone earlier.
        """
        to_leave, self._to_leave = self._to_leave, set()
        for group in sorted(to_leave):
            record = self._image().partitions.get(group)
            if record is None or self._node_id in record.hosts or not self._partitions.holds(group):
                continue
            self._log("info", "replica_moved_away", group=group, replicas=list(record.replicas))
            self._former.ended(group, self._partitions.term_of(group))
            self._remove(group)

    def _remove(self, group: int) -> None:
        """A replica ends, whoever waits for it is told, and what it has on disk is destroyed. What comes late of it
        finds nothing."""
        if not self._partitions.holds(group):
            return
        hosted = self._partitions.remove(group)
        self._host.destroy(group, decided_by=METADATA_GROUP)
        self._snapshots.group_gone(group)
        self._forget_group(group)
        if hosted is not None:
            self._ended(hosted)

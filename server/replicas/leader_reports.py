"""Reports of led partitions to the controller: leaderships and in-sync replicas. They never enter the commit rule."""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping

from quorumlog.server.config.options import NodeOptions
from quorumlog.server.hosting.partition_replica import PartitionReplica
from quorumlog.server.hosting.raft_host import RaftHost
from quorumlog.server.metadata.image import CurrentImage, MetadataImage
from quorumlog.server.metadata.records import PartitionRecord
from quorumlog.server.replicas.log_sizes import LogSizes
from quorumlog.server.replicas.replicas import Replicas
from quorumlog.v1 import peer_pb2


class IsrTracker:
    """Tracks which followers of one led partition are in sync.

    A replica is in sync if its log contained, at some moment within the last ``replica.lag.time.max.ms``, everything
    that the leader's log contained at that moment (Kafka's rule, KIP-16).

    Arguments:
        now: start of the leadership (µs).
        in_sync: the members of the ISR then; they count as caught up for one lag time.
    """

    __slots__ = ("_caught_up_at", "_mark_at", "_mark_index")

    def __init__(self, now: int, in_sync: tuple[int, ...]) -> None:
        self._caught_up_at = dict.fromkeys(in_sync, now)
        self._mark_index: int | None = None
        self._mark_at = now

    def check(
        self, now: int, last_index: int, matches: Mapping[int, int], isr: tuple[int, ...], lag_time_max_us: int
    ) -> set[int]:
        """Returns the followers that belong into the ISR now.

        Arguments:
            last_index: the leader's last index.
            matches: follower -> last index known durable on it.
            isr: the current ISR. Its members stay until they lag; others join once they are caught up.
        """
        members = set()
        for node, match in matches.items():
            caught_up = match >= last_index or (self._mark_index is not None and match >= self._mark_index)
            if caught_up:
                self._caught_up_at[node] = now if match >= last_index else self._mark_at
            # A member may lag for a while; a node that is to join must be caught up now.
            recently = now - self._caught_up_at.get(node, now - lag_time_max_us - 1) <= lag_time_max_us
            if caught_up or (node in isr and recently):
                members.add(node)
        self._mark_index, self._mark_at = last_index, now
        return members


class LeaderReports:
    """Compares the partitions that this node leads with the metadata."""

    def __init__(
        self, options: NodeOptions, host: RaftHost, replicas: Replicas, metadata: CurrentImage, sizes: LogSizes
    ) -> None:
        self._options = options
        self._host = host
        self._replicas = replicas
        self._metadata = metadata
        self._sizes = sizes
        #: Of each led Raft group: the term of the leadership, and the followers that were caught up in it.
        self._trackers: dict[int, tuple[int, IsrTracker]] = {}

    def log_sizes(self) -> list[peer_pb2.LogSize]:
        """Returns the sizes of a few of the logs that this node leads, all of them in turn."""
        return self._sizes.next_sizes()

    # -- leaderships ------------------------------------------------------------------------------------------

    def needs_report(self, partition: PartitionReplica) -> bool:
        """True if this node leads a partition, with a committed entry of its term, and the metadata do not name it."""
        record = self._metadata.image.partitions.get(partition.group)
        return (
            record is not None
            and record.leader_epoch < partition.raft.term
            and partition.leads
            and partition.raft.leads_committed
        )

    def is_settled(self, partition: PartitionReplica, reachable: Container[int]) -> bool:
        """True if the metadata name this leader, and every reachable replica as in sync. Only then may the Raft group
        sleep, because the in-sync set of a sleeping group is not updated."""
        record = self._metadata.image.partitions.get(partition.group)
        return (
            record is not None
            and partition.leads
            and record.leader_epoch >= partition.raft.term
            and not record.is_moving
            and all(
                node in record.isr for node in record.replicas if node == self._options.node_id or node in reachable
            )
        )

    def unreported(self) -> list[peer_pb2.LeaderReport]:
        """Returns leaderships that the metadata do not contain yet."""
        return [
            peer_pb2.LeaderReport(group=partition.group, leader_epoch=partition.raft.term)
            for partition in self._awake_led()
            if self.needs_report(partition)
        ]

    def _awake_led(self) -> Iterator[PartitionReplica]:
        """Yields led partitions whose Raft group is awake. The others are reported, and their reachable replicas are in
        sync."""
        for raft_group in sorted(self._host.awake_led):
            partition = self._replicas.get(raft_group)
            if partition is not None:
                yield partition

    # -- in-sync replicas -------------------------------------------------------------------------------------

    def isr_changes(self, now: int) -> list[peer_pb2.IsrChange]:
        """Returns in-sync sets that differ from the metadata's, as compare-and-set proposals."""
        image = self._metadata.image
        changes = []
        # Time in which a Raft group slept does not count as lag.
        for raft_group in [raft_group for raft_group in self._trackers if raft_group not in self._host.awake_led]:
            del self._trackers[raft_group]
        for partition in self._awake_led():
            record = image.partitions.get(partition.group)
            if record is None or not partition.leads or record.leader_epoch != partition.raft.term:
                self._trackers.pop(partition.group, None)
                continue
            members = self._in_sync(now, image, partition, record)
            if set(members) != set(record.isr):
                changes.append(
                    peer_pb2.IsrChange(
                        group=partition.group,
                        leader_epoch=partition.raft.term,
                        partition_epoch=record.partition_epoch,
                        isr=[peer_pb2.IsrMember(node_id=node, broker_epoch=_epoch(image, node)) for node in members],
                    )
                )
        return changes

    def _in_sync(
        self, now: int, image: MetadataImage, partition: PartitionReplica, record: PartitionRecord
    ) -> list[int]:
        """Returns the nodes that belong into the in-sync set of a led partition now."""
        raft = partition.raft
        term, tracker = self._trackers.get(partition.group, (0, None))
        if tracker is None or term != raft.term:
            tracker = IsrTracker(now, record.isr)
            self._trackers[partition.group] = (raft.term, tracker)
        matches = {node: progress.match_index for node, progress in raft.progress.items()}
        matches.pop(self._options.node_id, None)
        last_index, lag_time_max_us = raft.last_id.index, self._options.replica_lag_time_max_us
        # A witness has no records to be in sync with.
        voting = raft.configuration.candidates
        in_sync = tracker.check(now, last_index, matches, record.isr, lag_time_max_us)
        return [
            node
            for node in record.hosts
            if node == self._options.node_id
            or (node in voting and node in in_sync and (node in record.isr or not image.is_fenced(node)))
        ]


def _epoch(image: MetadataImage, node: int) -> int:
    broker = image.brokers.get(node)
    return broker.epoch if broker is not None else -1

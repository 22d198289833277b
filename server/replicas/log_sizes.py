"""Sizes of the logs that this node leads, and the bytes that replicas being added still lack."""

from __future__ import annotations

from quorumlog.server.hosting.raft_host import RaftHost
from quorumlog.server.partition.partition import Partition
from quorumlog.server.replicas.replicas import Replicas
from quorumlog.storage.batch_row import any_batch
from quorumlog.storage.interface import StorageReader
from quorumlog.v1 import admin_pb2, peer_pb2

#: Maximum number of log sizes in one heartbeat. Each costs a search or two.
SIZES_AT_ONCE = 50
#: Maximum number of copies that a node reports. It starts far fewer at once.
MAX_COPIES = 200


class LogSizes:
    """Measures the logs that this node leads.

    Arguments:
        reader: durable state.
    """

    def __init__(self, reader: StorageReader, host: RaftHost, replicas: Replicas) -> None:
        self._reader = reader
        self._host = host
        self._replicas = replicas
        self._told_up_to = 0

    def next_sizes(self) -> list[peer_pb2.LogSize]:
        """Returns the sizes of a few logs. All led logs are reported in turn."""
        led = sorted(group for group, _ in self._host.led() if group in self._replicas.logs)
        turn = [group for group in led if group > self._told_up_to][:SIZES_AT_ONCE]
        self._told_up_to = turn[-1] if len(turn) == SIZES_AT_ONCE else 0
        return [peer_pb2.LogSize(group=group, size_bytes=self.size_of(self._replicas.logs[group])) for group in turn]

    def copies(self) -> list[admin_pb2.ReplicaCopy]:
        """Returns the replicas of led partitions that are being added, with the bytes that they lack."""
        copies: list[admin_pb2.ReplicaCopy] = []
        for group, hosted in self._host.led():
            partition, learners = self._replicas.logs.get(group), hosted.raft.configuration.learners
            if partition is None or not learners or len(copies) >= MAX_COPIES:
                continue
            size = self.size_of(partition)
            copies.extend(
                admin_pb2.ReplicaCopy(
                    topic=partition.identity.topic,
                    partition=partition.identity.number,
                    node_id=node,
                    size_bytes=size,
                    left_bytes=min(size, self._lacking(partition, node, size)),
                )
                for node in learners
            )
        return copies

    def size_of(self, partition: Partition) -> int:
        """Returns the approximate size of a log in bytes: whole batches, below the compaction point those that
        compaction has left."""
        if not partition.raft.durable_index:
            # The replica is new. Before its first write it has no log on disk, and a lookup in it would crash the node.
            return 0
        last = self._reader.last_batch(partition.group)
        compacted = 0
        if partition.compacted_log is not None and partition.snapshot is not None:
            compacted = partition.snapshot.data.size_bytes
        if last is None or last.last_offset < partition.log_start_offset:
            return compacted
        first = self._reader.find_batch(partition.group, partition.log_start_offset, any_batch)
        if first is None:
            return compacted
        # The size before the first batch is only known if it is zero: otherwise that batch is not counted.
        return compacted + last.end_position - (first.end_position if first.base_offset > 0 else 0)

    def _lacking(self, partition: Partition, node: int, size: int) -> int:
        progress = partition.raft.progress.get(node)
        last = self._reader.last_batch(partition.group)
        if progress is None or progress.match_index == 0 or last is None:
            return size
        if progress.match_index >= last.index:
            return 0
        next_one = self._reader.find_batch(
            partition.group, partition.log_start_offset, lambda row: row.index >= progress.match_index
        )
        return last.end_position - next_one.end_position if next_one is not None else 0

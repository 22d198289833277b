"""Positions of each value in the committed logs: of current topics, and of former ones with the same names."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from quorumlog.raft.types import EntryId
from quorumlog.simulator.models.committed_partition import CommittedPartition, Violation
from quorumlog.simulator.models.records import TOMBSTONE
from quorumlog.simulator.world.clients import PartitionName
from quorumlog.simulator.world.cluster import SimCluster


@dataclass(slots=True, frozen=True)
class Place:
    """Position of a value: a group, which is one partition of one topic id, and an offset."""

    group: int
    offset: int


class CommittedValues:
    """Looks up values in the models of the committed logs, which the simulation maintains beside the nodes."""

    def __init__(self, cluster: SimCluster) -> None:
        self._cluster = cluster
        self._places: dict[str, list[Place]] = {}
        self._read: dict[int, int] = {}

    def places(self, value: str) -> list[Place]:
        """Returns every position of a value."""
        self._read_on()
        return self._places.get(value, [])

    def _read_on(self) -> None:
        for group in self._cluster.partition_names:
            batches = self.log(group).batches_in_order
            for batch in batches[self._read.get(group, 0) :]:
                for number, value in enumerate(batch.values):
                    if value != TOMBSTONE:
                        self._places.setdefault(value, []).append(Place(group, batch.base_offset + number))
            self._read[group] = len(batches)

    def log(self, group: int) -> CommittedPartition:
        """Returns the committed log of a group."""
        return self._cluster.invariants.model(group).log

    def find(self, value: str, topic: str, partition: int, offset: int, wanted: int | None = None) -> int:
        """Returns the group that has a value at the position reported to a client.

        Arguments:
            wanted: the preferred group, if two topics of the name have the value at the same position: a producer sends
                records that the deleted one has not acknowledged to the next one. By default the newest of them.

        Raises:
            Violation: the value is at no such position.
        """
        found = [
            place.group
            for place in self.places(value)
            if place.offset == offset and self._cluster.partition_names[place.group][0] == (topic, partition)
        ]
        if found:
            return wanted if wanted in found else max(found)
        # Entries that a leader commits in the very step in which it applies the topic's deletion never reach the
        # models.
        candidates = sorted(self._cluster.partition_names, key=lambda group: (group == wanted, group), reverse=True)
        for group in candidates:
            name, topic_id = self._cluster.partition_names[group]
            gone = topic_id in self._cluster.topics_gone
            if name == (topic, partition) and gone and offset >= self.log(group).next_offset:
                self._places.setdefault(value, []).append(Place(group, offset))
                return group
        raise Violation(
            f"a client was notified that {value!r} is at {topic}-{partition} offset {offset}; it is at"
            f" {[(str(self._cluster.partition_names[p.group][0]), p) for p in self.places(value)]}"
        )

    def check_durable(self, value: str, group: int, offset: int) -> None:
        """Checks that an acknowledged record is on as many disks as its topic promises.

        Raises:
            Violation: it is on fewer.
        """
        log, invariants = self.log(group), self._cluster.invariants
        if invariants.is_deleted(group) or offset < log.log_start:
            return
        batch = next(each for each in reversed(log.batches_in_order) if each.base_offset <= offset)
        identity = EntryId(batch.entry.index, batch.entry.term, batch.entry.hash)
        holders = [node for node in self._cluster.node_ids if invariants.has_copy(node, group, identity)]
        copies = max(self._cluster.options.min_insync_replicas, invariants.model(group).data_quorum)
        if len(holders) < copies:
            raise Violation(f"{value!r} is acknowledged, but only on nodes {holders}; {copies} copies are promised")

    def is_gone(self, topic_id: bytes) -> bool:
        """True if a topic has been deleted according to any node."""
        return topic_id in self._cluster.topics_gone

    def current_group(self, name: PartitionName) -> int | None:
        """Returns the group of a partition of the topic that currently has its name, by the newest metadata."""
        for group in sorted(self._cluster.partition_names, reverse=True):
            found, topic_id = self._cluster.partition_names[group]
            if found == name:
                return None if topic_id in self._cluster.topics_gone else group
        return None

    def partition(self, group: int) -> tuple[PartitionName, bytes]:
        """Returns the partition that a group is, or was, and the id of its topic."""
        return self._cluster.partition_names[group]

    def group_of(self, topic_id: bytes, partition: int) -> int | None:
        """Returns the group of a partition of the topic with an id."""
        return next(
            (
                group
                for group, (name, known) in self._cluster.partition_names.items()
                if known == topic_id and name.number == partition
            ),
            None,
        )

    def groups(self) -> Iterator[tuple[int, PartitionName, bytes]]:
        """Yields every group that ever was a partition, with its name and its topic's id."""
        for group, (name, topic_id) in self._cluster.partition_names.items():
            yield group, name, topic_id

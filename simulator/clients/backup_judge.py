"""Required contents of a backup, by the committed logs between its start and the writing of its manifest."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from quorumlog.sdk.backup.manifest import Manifest, PartitionBackup, TopicBackup
from quorumlog.sdk.backup.segments import batches_in
from quorumlog.simulator.clients.backup_place import BackupPlace
from quorumlog.simulator.clients.committed_values import CommittedValues
from quorumlog.simulator.models.committed_partition import CommittedBatch, CommittedPartition, Violation
from quorumlog.simulator.models.pending_model import TopicIdPartition
from quorumlog.simulator.world.cluster import SimCluster
from quorumlog.v1 import admin_pb2
from quorumlog.wire.entry import FIRST_NAMED_PRODUCER_ID, NO_PRODUCER_ID, parse_header
from quorumlog.wire.topic_names import is_internal


@dataclass(slots=True, frozen=True)
class ClusterMoment:
    """The committed state at one moment.

    Arguments:
        at_us: the time.
        ends, starts: by Raft group: the offset after the last record, and the log start offset.
    """

    at_us: int
    ends: dict[int, int]
    starts: dict[int, int]


@dataclass(slots=True, frozen=True)
class BackedUpPartition:
    """One partition of a backup, with the committed state at its end.

    Arguments:
        batches: entries as the source stored them, from the log start to the end of the backup.
        writers: by producer, the entry of its last batch before the end.
    """

    topic: str
    topic_id: bytes
    backup: PartitionBackup
    batches: list[bytes]
    writers: dict[int, bytes]


@dataclass(slots=True, frozen=True)
class TakenBackup:
    """A backup with the required contents."""

    manifest: Manifest
    partitions: list[BackedUpPartition]


class BackupJudge:
    """Compares backups of one cluster with its models."""

    def __init__(self, cluster: SimCluster, values: CommittedValues) -> None:
        self._cluster = cluster
        self._values = values

    def moment(self) -> ClusterMoment:
        """Returns the current committed state."""
        logs = {group: self._values.log(group) for group, _, _ in self._values.groups()}
        return ClusterMoment(
            self._cluster.scheduler.now,
            {group: log.next_offset for group, log in logs.items()},
            {group: log.log_start for group, log in logs.items()},
        )

    def judge(self, manifest: Manifest, place: BackupPlace, began: ClusterMoment) -> TakenBackup:
        """Judges a backup whose manifest was just written.

        Arguments:
            began: state at its start.

        Raises:
            Violation: something is missing, or was never committed.
        """
        topics = {bytes.fromhex(topic.topic_id): topic for topic in manifest.topics}
        self._check_topics(topics, began)
        partitions = [
            self._partition(topic, topic_id, partition, place, began)
            for topic_id, topic in topics.items()
            for partition in topic.partitions
        ]
        self._check_groups(manifest, topics, began)
        _check_names(manifest, partitions)
        return TakenBackup(manifest, partitions)

    # -- topics ---------------------------------------------------------------------------------------------------

    def _check_topics(self, topics: dict[bytes, TopicBackup], began: ClusterMoment) -> None:
        seen, gone = self._cluster.topics_seen, self._cluster.topics_gone
        for topic_id, (name, seen_us) in seen.items():
            if seen_us <= began.at_us and topic_id not in gone and topic_id not in topics and not is_internal(name):
                raise Violation(f"topic {name} existed all the time, but is not in the backup")
        for topic_id, topic in topics.items():
            if topic_id not in seen or seen[topic_id][0] != topic.name:
                raise Violation(f"the backup has a topic {topic.name} ({topic.topic_id}), which never existed")
            if gone.get(topic_id, began.at_us) < began.at_us:
                raise Violation(f"the backup has topic {topic.name}, which was deleted before it started")
            states = [
                (state.configs, state.partitions) for state in self._cluster.topic_states_since(topic_id, began.at_us)
            ]
            if (topic.configs, len(topic.partitions)) not in states:
                raise Violation(
                    f"topic {topic.name} has {len(topic.partitions)} partitions and {topic.configs} in the backup;"
                    f" during the backup it had {states}"
                )

    # -- records --------------------------------------------------------------------------------------------------

    def _partition(
        self, topic: TopicBackup, topic_id: bytes, backup: PartitionBackup, place: BackupPlace, began: ClusterMoment
    ) -> BackedUpPartition:
        group = self._values.group_of(topic_id, backup.number)
        assert group is not None, "the topic has so many partitions"
        log = self._values.log(group)
        where = f"the backup of {topic.name}-{backup.number} (group {group})"
        if not began.ends.get(group, 0) <= backup.end_offset <= log.next_offset:
            raise Violation(
                f"{where} ends at {backup.end_offset}; committed was {began.ends.get(group)} when it started, and"
                f" {log.next_offset} at its end"
            )
        if not began.starts.get(group, 0) <= backup.log_start_offset <= log.log_start:
            raise Violation(
                f"{where} starts at {backup.log_start_offset}; the log started at {began.starts.get(group)} when it"
                f" started, and at {log.log_start} at its end"
            )
        before_end = [batch for batch in log.batches_in_order if batch.base_offset < backup.end_offset]
        expected = [batch.entry.data for batch in before_end if batch.last_offset >= backup.log_start_offset]
        found = list(self._found(where, backup, place, log))
        if found != expected:
            offsets = [[parse_header(entry).base_offset for entry in entries] for entries in (found, expected)]
            raise Violation(f"{where} has batches {offsets[0]}; committed are {offsets[1]}")
        writers = {header.producer_id: batch for batch in before_end for header in [parse_header(batch.entry.data)]}
        writers.pop(NO_PRODUCER_ID, None)
        _check_producers(where, backup, place, writers)
        last = {producer: batch.entry.data for producer, batch in writers.items()}
        return BackedUpPartition(topic.name, topic_id, backup, expected, last)

    @staticmethod
    def _found(where: str, backup: PartitionBackup, place: BackupPlace, log: CommittedPartition) -> Iterator[bytes]:
        for segment in backup.segments:
            for batch in batches_in(place.files[segment.file.name], segment.file.name):
                committed = log.batches.get(batch.header.base_offset)
                if committed is None or committed.entry.data != batch.entry:
                    raise Violation(f"{where} has a batch at {batch.header.base_offset} that is not committed")
                if batch.header.last_offset >= backup.log_start_offset:
                    yield batch.entry

    # -- groups ---------------------------------------------------------------------------------------------------

    def _check_groups(self, manifest: Manifest, topics: dict[bytes, TopicBackup], began: ClusterMoment) -> None:
        backed_up = {
            (group.group_id, each.topic, each.partition): each.offset
            for group in manifest.groups
            for each in group.offsets
        }
        coordinators, now = self._cluster.invariants.coordinators, self._cluster.scheduler.now
        for topic_id, topic in topics.items():
            for partition in topic.partitions:
                part = TopicIdPartition(topic_id, partition.number)
                for group_id in coordinators.group_ids:
                    had = coordinators.committed_between(group_id, part, began.at_us, now)
                    offset = backed_up.pop((group_id, topic.name, partition.number), -1)
                    if offset not in had:
                        raise Violation(
                            f"the backup says that group {group_id} has committed {offset} of"
                            f" {topic.name}-{partition.number}; while it was taken, that was {sorted(had)}"
                        )
        if backed_up:
            raise Violation(f"the backup contains commits of groups that never happened: {backed_up}")


def _check_producers(
    where: str, backup: PartitionBackup, place: BackupPlace, writers: dict[int, CommittedBatch]
) -> None:
    """Checks that the backup contains the last batch of each producer."""
    content = b"" if backup.producers is None else place.files[backup.producers.name]
    found = {
        record.producer_id: (record.epoch, record.batches[-1].base_sequence, record.batches[-1].base_offset)
        for record in admin_pb2.RestoredProducers.FromString(content).producers
    }
    headers = [parse_header(batch.entry.data) for batch in writers.values()]
    expected = {each.producer_id: (each.producer_epoch, each.base_sequence, each.base_offset) for each in headers}
    if found != expected:
        raise Violation(
            f"{where} remembers producers with (epoch, sequence, offset) {found}; their last batches are {expected}"
        )


def _check_names(manifest: Manifest, partitions: list[BackedUpPartition]) -> None:
    """Checks that no partition has a producer whose name, epoch or id is unknown to the backup."""
    epochs = {each.producer_id: each.epoch for each in manifest.producer_names}
    for partition in partitions:
        for producer, batch in partition.writers.items():
            where = f"producer {producer} has written to {partition.topic}-{partition.backup.number}"
            if producer < FIRST_NAMED_PRODUCER_ID:
                if producer >= manifest.next_producer_id:
                    raise Violation(f"{where}; the backup says that {manifest.next_producer_id} was not given out")
            elif parse_header(batch).producer_epoch > epochs.get(producer, -1):
                raise Violation(f"{where}; the backup has its name up to epoch {epochs.get(producer, -1)}")

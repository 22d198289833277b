"""Required contents of a fresh cluster after the restoration of a backup, by the committed logs of both clusters."""

from __future__ import annotations

from quorumlog.simulator.clients.backup_judge import BackedUpPartition, TakenBackup
from quorumlog.simulator.clients.committed_values import CommittedValues
from quorumlog.simulator.models.committed_partition import CommittedPartition, Violation
from quorumlog.simulator.models.pending_model import TopicIdPartition
from quorumlog.simulator.world.cluster import SimCluster
from quorumlog.wire.entry import BatchHeader, parse_header, payload_of
from quorumlog.wire.topic_names import is_internal


def told_by(entry: bytes) -> tuple[BatchHeader, bytes]:
    """Returns the parts of a stored batch that belong to its records: everything but its position in a Raft log."""
    return parse_header(entry), bytes(payload_of(entry))


class RestoreJudge:
    """Compares a fresh cluster's models with a backup that was judged."""

    def __init__(self, taken: TakenBackup, cluster: SimCluster, values: CommittedValues) -> None:
        self._taken = taken
        self._cluster = cluster
        self._values = values

    def judge(self) -> None:
        """Judges the restored cluster after the restoration has ended, before any client writes.

        Raises:
            Violation: it differs from the backup.
        """
        self._check_topics()
        for partition in self._taken.partitions:
            self._check_partition(partition)
        self._check_groups()

    def log(self, partition: BackedUpPartition) -> CommittedPartition:
        """Returns the committed log of a restored partition.

        Raises:
            Violation: the partition does not exist.
        """
        group = self._values.group_of(partition.topic_id, partition.backup.number)
        if group is None:
            raise Violation(f"{partition.topic}-{partition.backup.number} was not restored")
        return self._values.log(group)

    def _check_topics(self) -> None:
        there = {
            topic_id.hex(): (name, states[-1].configs, states[-1].partitions)
            for topic_id, states in self._cluster.topic_states.items()
            for name, _ in [self._cluster.topics_seen[topic_id]]
            if not is_internal(name)
        }
        expected = {
            topic.topic_id: (topic.name, topic.configs, len(topic.partitions)) for topic in self._taken.manifest.topics
        }
        if there != expected:
            raise Violation(f"topics are restored as {there}; they were {expected}")

    def _check_partition(self, partition: BackedUpPartition) -> None:
        log, backup = self.log(partition), partition.backup
        where = f"{partition.topic}-{backup.number}, restored as group {log.group},"
        if not log.restored or log.restoring or log.next_offset != backup.end_offset:
            raise Violation(
                f"{where} ends at {log.next_offset}, not at {backup.end_offset} (started: {log.restored}, finished:"
                f" {not log.restoring})"
            )
        if log.log_start < backup.log_start_offset:
            raise Violation(f"{where} starts at {log.log_start}, though it started at {backup.log_start_offset}")
        kept = [batch for batch in log.batches_in_order if batch.last_offset >= backup.log_start_offset]
        found = [told_by(batch.entry.data) for batch in kept]
        expected = [told_by(entry) for entry in partition.batches]
        if found != expected:
            offsets = [[header.base_offset for header, _ in batches] for batches in (found, expected)]
            other = next((pair for pair in zip(found, expected, strict=False) if pair[0] != pair[1]), None)
            raise Violation(f"{where} has batches at {offsets[0]}, the source had them at {offsets[1]}; {other}")

    def _check_groups(self) -> None:
        coordinators = self._cluster.invariants.coordinators
        ids = {topic.name: bytes.fromhex(topic.topic_id) for topic in self._taken.manifest.topics}
        expected = {
            (group.group_id, TopicIdPartition(ids[each.topic], each.partition)): each.offset
            for group in self._taken.manifest.groups
            for each in group.offsets
        }
        found = {
            (group_id, part): committed.offset
            for group_id in coordinators.group_ids
            for restored in [coordinators.group(group_id)]
            if restored is not None
            for part, committed in restored.offsets.items()
        }
        if found != expected:
            raise Violation(f"groups are restored with {found}; they had {expected}")
        for (group_id, part), offset in found.items():
            group = self._values.group_of(part.topic_id, part.number)
            end = None if group is None else self._values.log(group).next_offset
            if end is None or offset > end:
                raise Violation(f"group {group_id} has committed {offset} of {part}, whose log ends at {end}")

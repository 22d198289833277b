"""The models of all coordinators of a cluster, with the information that they need about other Raft groups."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from quorumlog.raft.types import Entry
from quorumlog.server.metadata.records import PartitionRecord
from quorumlog.simulator.models.coordinator_model import CoordinatorModel, EndedInGroup, ModelGroup
from quorumlog.simulator.models.members_heard import HeardMembers
from quorumlog.simulator.models.pending_model import TopicIdPartition
from quorumlog.wire.topic_names import GROUPS_TOPIC


class CoordinatorModels:
    """The models, by Raft group.

    Arguments:
        end_of: returns the end of the committed log of a partition, by its Raft group; None if it is unknown.

    Attributes:
        heard: members' requests to nodes.
        clock_error: maximum deviation of a node's clock, as a share.
    """

    def __init__(self, end_of: Callable[[int], int | None]) -> None:
        self.heard = HeardMembers()
        self.clock_error = 0.0
        self._end_of = end_of
        self._learned_up_to = 0
        self._models: dict[int, CoordinatorModel] = {}
        self._partitions: dict[TopicIdPartition, int] = {}
        self._applied: dict[tuple[int, int], int] = {}
        self._elected_us: dict[tuple[int, int], int] = {}

    def __contains__(self, raft_group: int) -> bool:
        return raft_group in self._models

    def __getitem__(self, raft_group: int) -> CoordinatorModel:
        return self._models[raft_group]

    def learn(self, applied: int, partitions: Iterable[PartitionRecord]) -> None:
        """Stores the cluster's partitions as known to some node.

        Arguments:
            applied: the entry of the metadata log up to which the node has applied.
        """
        if applied <= self._learned_up_to:
            return
        self._learned_up_to = applied
        for partition in partitions:
            self._partitions[TopicIdPartition(partition.topic.topic_id, partition.number)] = partition.group
            if partition.topic.name == GROUPS_TOPIC and partition.group not in self._models:
                self._models[partition.group] = CoordinatorModel(
                    partition.group, self.heard, self._end, self.clock_error
                )

    def _end(self, partition: TopicIdPartition) -> int | None:
        raft_group = self._partitions.get(partition)
        return None if raft_group is None else self._end_of(raft_group)

    def check_table(self, node: int, raft_group: int, applied: int, data: Callable[[], bytes]) -> None:
        """Judges a node's table of a coordinator, whenever it has applied more.

        Arguments:
            data: returns the whole table, as a GroupsSnapshot.

        Raises:
            Violation: it differs from the log.
        """
        if self._applied.get((node, raft_group)) != applied:
            self._applied[(node, raft_group)] = applied
            self._models[raft_group].check_table(f"node {node}'s state of coordinator {raft_group}", applied, data())

    def elected(self, raft_group: int, term: int, now_us: int) -> None:
        """Records the election of a coordinator's leader."""
        self._elected_us.setdefault((raft_group, term), now_us)

    def commit(self, raft_group: int, entry: Entry, now_us: int) -> None:
        """Applies the next committed entry of a coordinator.

        Raises:
            Violation: no leader should have proposed it.
        """
        self._models[raft_group].commit(entry, now_us, self._elected_us.get((raft_group, entry.term), 0))

    def group(self, group_id: str) -> ModelGroup | None:
        """Returns a consumer group by the log of its coordinator."""
        return next((model.groups[group_id] for model in self._models.values() if group_id in model.groups), None)

    @property
    def group_ids(self) -> list[str]:
        """Returns all consumer groups that ever had committed offsets, in order."""
        return sorted({group_id for model in self._models.values() for group_id, _ in model.committed})

    def committed_between(self, group_id: str, partition: TopicIdPartition, first_us: int, last_us: int) -> set[int]:
        """Returns the offsets of a partition that a consumer group had committed at some moment of a period; -1 for
        none.
        """
        had = {-1}
        for model in self._models.values():
            for at_us, offset in model.committed.get((group_id, partition), ()):
                if at_us <= first_us:
                    had = {offset}
                elif at_us <= last_us:
                    had.add(offset)
        return had

    # -- transactions -------------------------------------------------------------------------------------------------

    def outcome_of(self, label: str) -> bool | None:
        """Returns whether the transaction of a commit was committed; None if it is pending, or was not stored."""
        outcomes = (model.outcomes.get(label) for model in self._models.values())
        return next((outcome for outcome in outcomes if outcome is not None), None)

    @property
    def ended(self) -> list[EndedInGroup]:
        """Returns the transactions that have ended in a group."""
        return [ended for model in self._models.values() for ended in model.ended]

    @property
    def with_pending(self) -> list[str]:
        """Returns the groups with offsets in open transactions."""
        groups = (item for model in self._models.values() for item in model.groups.items())
        return sorted(name for name, group in groups if group.pending.open)

    @property
    def commands(self) -> int:
        """The number of entries that changed groups."""
        return sum(model.commands for model in self._models.values())

"""The coordinators of consumer groups that this node leads, and the events that concern their groups."""

from __future__ import annotations

from dataclasses import replace

from quorumlog.server.deciding.dependencies import CoordinatorDependencies
from quorumlog.server.deciding.led_coordinators import LedCoordinators
from quorumlog.server.groups.group_shard import GROUP_COORDINATORS, GroupShard
from quorumlog.server.groups.shard_leader import LeadershipOptions, ShardLeader


class GroupShards:
    """The terms of this node's coordinators of consumer groups.

    Attributes:
        led: the coordinators that this node leads.
    """

    def __init__(self, now: int, services: CoordinatorDependencies[GroupShard]) -> None:
        self.led: LedCoordinators[GroupShard, ShardLeader] = LedCoordinators(
            now, GROUP_COORDINATORS, services, self._begin
        )
        self._services = services
        self._leadership_options = LeadershipOptions.of_node(services.options)
        self._topics_seen = self._topic_counts()

    def _begin(self, coordinator: GroupShard) -> ShardLeader:
        shared = self._services
        leader = ShardLeader(
            coordinator, self.led.clock, shared.metadata, self._leadership_options, shared.refusals.authorizer
        )
        # The previous leader may not have processed the latest changes of topics.
        leader.topics_changed(is_deletion=False)
        return leader

    def _topic_counts(self) -> tuple[int, int]:
        """Returns counts that change whenever a topic is created, grows or is deleted: the first increases with new
        partitions, the second decreases with deleted ones."""
        table = self._services.metadata.image.topic_table
        return table.next_group, len(table.partitions)

    def metadata_changed(self) -> None:
        """Starts leaders that waited for the new metadata image, and reviews consumer groups if topics changed."""
        self.led.metadata_changed()
        before, now = self._topics_seen, self._topic_counts()
        if now == before:
            return
        self._topics_seen = now
        is_deletion = now[1] - before[1] < now[0] - before[0]
        self.led.notify(lambda leader: leader.topics_changed(is_deletion=is_deletion))

    def rights_changed(self) -> None:
        """Reviews consumer groups after a change of ACLs: members may read more than before, or less."""
        if self._services.refusals.authorizer.enforced:
            self.led.notify(ShardLeader.rights_changed)

    def keep_offsets_for(self, retention_ms: int) -> None:
        """Changes how long unused committed offsets are kept."""
        self._leadership_options = replace(self._leadership_options, offsets_retention_ms=retention_ms)
        self.led.notify(lambda leader: leader.keep_offsets_for(retention_ms))

"""The coordinators that this node leads: starts their terms, notifies them of events, and ends them."""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from dataclasses import replace

from quorumlog.server.groups.dependencies import GroupDependencies
from quorumlog.server.groups.finder import coordinator_of
from quorumlog.server.groups.group_shard import GroupShard
from quorumlog.server.groups.request_checks import check_group_id
from quorumlog.server.groups.shard_leader import LeadershipOptions, ShardLeader
from quorumlog.server.groups.stall_aware_clock import AwakeClock
from quorumlog.server.step.wire_errors import error
from quorumlog.v1 import errors_pb2
from quorumlog.v1.errors_pb2 import ErrorCode
from quorumlog.wire.topic_names import GROUPS_TOPIC

#: Retry interval of a doubtful leader for the confirmation of its leadership, while its disk was stalled (µs).
DOUBT_US = 100_000


class GroupShards:
    """The terms of this node's coordinators."""

    def __init__(self, now: int, services: GroupDependencies) -> None:
        self.clock = AwakeClock(now, services.options.heartbeat_interval_us)
        self._services = services
        self._leadership_options = LeadershipOptions.of_node(services.options)
        #: By Raft group.
        self._led: dict[int, ShardLeader] = {}
        #: Led, but waiting until this node has applied the metadata that the previous leader had.
        self._behind: set[int] = set()
        self._topics_seen = self._topic_counts()
        #: Coordinators with new calls in this step, and the deadlines of all of them on the awake clock.
        self._asked: dict[int, None] = {}
        self._timers: list[tuple[int, int]] = []
        self._armed: dict[int, int] = {}

    def __iter__(self) -> Iterator[ShardLeader]:
        return iter(self._led.values())

    # -- which coordinator ------------------------------------------------------------------------------------

    def keeper_of(self, group_id: str) -> ShardLeader | errors_pb2.Error:
        """Returns the leader that keeps a consumer group and marks it as due in this step; the error if no coordinator
        on this node can serve it."""
        refused = check_group_id(group_id)
        if refused is not None:
            return refused
        topic = self._services.metadata.image.topics.get(GROUPS_TOPIC)
        if topic is None:
            none = "this node has no coordinators in its metadata: call FindCoordinators first, which creates them"
            return error(ErrorCode.COORDINATOR_NOT_AVAILABLE, none)
        record = coordinator_of(topic, group_id)
        self._asked[record.group] = None
        leadership = self._led.get(record.group)
        if leadership is not None and leadership.coordinator.leads:
            return leadership
        replica = self._services.replicas.get(record.group)
        if replica is not None and replica.raft.is_leader:
            return replica.not_leader()
        leader, epoch = self._services.leaders.known_leader(record)
        return error(
            ErrorCode.NOT_COORDINATOR,
            f"this node does not lead {record.name}, which keeps the group: ask FindCoordinators",
            leader=leader,
            leader_epoch=epoch,
        )

    # -- roles ------------------------------------------------------------------------------------------------

    def after_round(self, coordinator: GroupShard) -> None:
        """Follows the role of a coordinator after a step of its Raft group, and decides what can be decided by now."""
        self._follow_role(coordinator)
        leadership = self._led.get(coordinator.group)
        if leadership is not None:
            leadership.after_round()
            self._do_what_is_due(leadership)

    def _follow_role(self, coordinator: GroupShard) -> None:
        raft_group = coordinator.group
        if raft_group in self._led and not coordinator.leads:
            self.end(raft_group)
        if raft_group in self._led or not coordinator.raft.is_leader:
            self._behind.discard(raft_group)
        elif coordinator.may_lead(self._services.metadata.image.applied_index):
            self._behind.discard(raft_group)
            self._begin(coordinator)
        else:
            self._behind.add(raft_group)

    def _begin(self, coordinator: GroupShard) -> None:
        shared = self._services
        leadership = ShardLeader(
            coordinator, self.clock, shared.metadata, self._leadership_options, shared.refusals.authorizer
        )
        coordinator.leadership = self._led[coordinator.group] = leadership
        # The previous leader may not have processed the latest changes of topics.
        leadership.topics_changed(is_deletion=False)

    def end(self, raft_group: int) -> None:
        """Ends the term of a coordinator that this node no longer leads, or whose replica was removed."""
        self._behind.discard(raft_group)
        self._armed.pop(raft_group, None)
        leadership = self._led.pop(raft_group, None)
        if leadership is not None:
            leadership.coordinator.leadership = None
            leadership.end()

    # -- topics -----------------------------------------------------------------------------------------------

    def _topic_counts(self) -> tuple[int, int]:
        """Returns counts that change whenever a topic is created, grows or is deleted: the first increases with new
        partitions, the second decreases with deleted ones."""
        table = self._services.metadata.image.topic_table
        return table.next_group, len(table.partitions)

    def metadata_changed(self) -> None:
        """Starts leaders that waited for the new metadata image, and reviews consumer groups if topics changed."""
        for raft_group in sorted(self._behind):
            self.after_round(self._services.replicas[raft_group])
        before, now = self._topics_seen, self._topic_counts()
        if now == before:
            return
        self._topics_seen = now
        is_deletion = now[1] - before[1] < now[0] - before[0]
        for leadership in list(self._led.values()):
            leadership.topics_changed(is_deletion=is_deletion)
            self._do_what_is_due(leadership)

    def rights_changed(self) -> None:
        """Reviews consumer groups after a change of ACLs: members may read more than before, or less."""
        if not self._services.refusals.authorizer.enforced:
            return
        for leadership in list(self._led.values()):
            leadership.rights_changed()
            self._do_what_is_due(leadership)

    def keep_offsets_for(self, retention_ms: int) -> None:
        """Changes how long unused committed offsets are kept."""
        self._leadership_options = replace(self._leadership_options, offsets_retention_ms=retention_ms)
        for leadership in list(self._led.values()):
            leadership.keep_offsets_for(retention_ms)
            self._do_what_is_due(leadership)

    # -- time -------------------------------------------------------------------------------------------------

    def on_time(self) -> None:
        """Runs timers that are due, and decides the calls of this step. Coordinators with neither cost nothing."""
        if self.clock.stood_still:
            for leadership in self._led.values():
                leadership.is_doubtful = True
            self._asked.update(dict.fromkeys(self._led))
        while self._timers and self._timers[0][0] <= self.clock.awake_us:
            armed, raft_group = heapq.heappop(self._timers)
            if self._armed.get(raft_group) == armed:
                del self._armed[raft_group]
                self._asked[raft_group] = None
        due, self._asked = self._asked, {}
        for raft_group in due:
            if raft_group in self._led:
                self._do_what_is_due(self._led[raft_group])

    def _do_what_is_due(self, leadership: ShardLeader) -> None:
        """Lets a leader answer and decide, as soon as its leadership is confirmed."""
        coordinator = leadership.coordinator
        if not coordinator.leads:
            self.end(coordinator.group)
            return
        if leadership.is_doubtful:
            confirming_round = self._services.rounds.begin(self.clock.now, coordinator.group)
            if confirming_round is None:
                self._arm(coordinator.group, self.clock.awake_us + DOUBT_US)
                return
            leadership.confirm_by(confirming_round)
        if not leadership.is_certain:
            return  # The Raft group is stepped when a quorum has confirmed it.
        if leadership.do_what_is_due():
            self._services.host.touch(coordinator.group)
        self._arm(coordinator.group, leadership.next_deadline)

    def _arm(self, raft_group: int, deadline: int) -> None:
        # Deadlines mostly move into the future: a timer that fires too early is armed again then.
        armed = self._armed.get(raft_group)
        if armed is None or deadline < armed:
            self._armed[raft_group] = deadline
            heapq.heappush(self._timers, (deadline, raft_group))

    @property
    def next_deadline(self) -> int | None:
        """Time at which ``on_time`` is due."""
        while self._timers and self._armed.get(self._timers[0][1]) != self._timers[0][0]:
            heapq.heappop(self._timers)
        return self.clock.due(self._timers[0][0]) if self._timers else None

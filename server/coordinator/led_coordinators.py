"""The coordinators that this node leads: their terms begin, are told what happens, and end."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from google.protobuf.message import Message as ProtoMessage

from quorumlog.server.coordinator.awake_clock import AwakeClock
from quorumlog.server.coordinator.committed_offsets import expire_offsets
from quorumlog.server.coordinator.coordinator import Coordinator
from quorumlog.server.coordinator.draft import Draft
from quorumlog.server.coordinator.heartbeat_requests import HeartbeatRequests
from quorumlog.server.coordinator.leadership import CoordinatorLeadership
from quorumlog.server.coordinator.topic_catalog import ImageCatalog
from quorumlog.server.coordinator.topic_changes import topics_changed
from quorumlog.server.hosting.read_index import HeartbeatRounds
from quorumlog.server.metadata.image import MetadataImage
from quorumlog.server.options import NodeOptions

#: How often a leader looks for offsets that have expired (µs): as often as this, and within their time.
EXPIRY_US = 600_000_000
EXPIRY_LOOKS = 4
#: When topics were deleted, their offsets are looked for after this (µs): one look for many topics.
DELETED_US = 5_000_000
#: How soon a leader in doubt asks again whether it leads, when its disk was stalled (µs).
DOUBT_US = 100_000
#: A leader that was cut off goes on for at most so many election timeouts.
GRACE_ELECTIONS = 2


@dataclass(slots=True, eq=False)
class LedCoordinator:
    """A coordinator while this node leads it.

    Arguments:
        expiry_due: when to look for offsets that have expired (µs).
        is_doubtful: the node stood still, and has not asked yet whether it still leads.
    """

    coordinator: Coordinator
    leadership: CoordinatorLeadership
    heartbeats: HeartbeatRequests
    expiry_due: int
    is_doubtful: bool = False


class LedCoordinators:
    """The terms of this node's coordinators.

    Arguments:
        coordinators: those with a replica here, by group.
        rounds: of heartbeats, shared with other reads.
        image: gives this node's metadata image.
        reply: answers a request.
        touch: a group has something to do.
    """

    def __init__(
        self,
        now: int,
        options: NodeOptions,
        coordinators: Mapping[int, Coordinator],
        image: Callable[[], MetadataImage],
        rounds: HeartbeatRounds,
        reply: Callable[[int, ProtoMessage], None],
        touch: Callable[[int], None],
    ) -> None:
        self.clock = AwakeClock(now, options.heartbeat_interval_us)
        self._options = options
        self._coordinators = coordinators
        self._image = image
        self._rounds = rounds
        self._reply = reply
        self._touch = touch
        self._led: dict[int, LedCoordinator] = {}
        #: Led, but waiting until this node knows of the topics what the leader before knew.
        self._behind: set[int] = set()
        self._topics_seen = self._topics_now()
        #: Those that were given something in this step, and deadlines of all, on the clock of attended time.
        self._given: dict[int, None] = {}
        self._timers: list[tuple[int, int]] = []
        self._armed: dict[int, int] = {}
        retention_us = options.groups.offsets_retention_ms * 1000
        self._expiry_us = min(EXPIRY_US, retention_us // EXPIRY_LOOKS)

    def give(self, group: int) -> LedCoordinator | None:
        """A coordinator that this node leads, by its Raft group, to be given something to decide in this step."""
        self._given[group] = None
        return self._led.get(group)

    def __iter__(self) -> Iterator[LedCoordinator]:
        return iter(self._led.values())

    # -- roles ------------------------------------------------------------------------------------------------

    def after_round(self, coordinator: Coordinator) -> None:
        """A coordinator's group was stepped: follows its role, and decides what can be decided by now."""
        self._follow(coordinator)
        led = self._led.get(coordinator.group)
        if led is not None:
            led.leadership.after_round()
            self._go_on(led)

    def _follow(self, coordinator: Coordinator) -> None:
        group = coordinator.group
        if group in self._led and not coordinator.leads:
            self.end(group)
        if group in self._led or not coordinator.raft.is_leader:
            self._behind.discard(group)
        elif coordinator.may_lead(self._image().applied_index):
            self._behind.discard(group)
            self._begin(coordinator)
        else:
            self._behind.add(group)

    def _begin(self, coordinator: Coordinator) -> None:
        limits = self._options.limits
        grace_us = GRACE_ELECTIONS * self._options.raft.election_timeout_us
        groups = self._options.groups.limits
        heartbeats = HeartbeatRequests(self.clock, groups, limits.parked_heartbeats, self._reply)
        leadership = CoordinatorLeadership(
            coordinator, self.clock, grace_us, self._topics, groups, limits.group_calls, heartbeats.group_changed
        )
        heartbeats.leadership = coordinator.leadership = leadership
        self._led[coordinator.group] = LedCoordinator(
            coordinator, leadership, heartbeats, self.clock.attended + self._expiry_us
        )
        # The leader before may not have come to what it was told of the topics.
        leadership.look_at_all(topics_changed)

    def end(self, group: int) -> None:
        """This node does not lead a coordinator any more, or has no replica of it."""
        self._behind.discard(group)
        self._armed.pop(group, None)
        led = self._led.pop(group, None)
        if led is not None:
            led.coordinator.leadership = None
            led.leadership.end()
            led.heartbeats.end(led.coordinator.not_coordinator(definite=True))

    # -- topics -----------------------------------------------------------------------------------------------

    def _topics(self) -> ImageCatalog:
        return ImageCatalog(self._image())

    def _topics_now(self) -> tuple[int, int]:
        """Changes whenever a topic comes to be, grows or goes: the first number grows with new partitions, the second
        falls with those that are deleted."""
        table = self._image().topic_table
        return table.next_group, len(table.partitions)

    def metadata_changed(self) -> None:
        """The metadata image moved on: leaders that waited for that begin, and if it is about topics, groups are looked
        at."""
        for group in sorted(self._behind):
            self.after_round(self._coordinators[group])
        before, now = self._topics_seen, self._topics_now()
        if now == before:
            return
        self._topics_seen = now
        is_deletion = now[1] - before[1] < now[0] - before[0]
        for led in list(self._led.values()):
            led.leadership.look_at_all(topics_changed)
            if is_deletion:
                led.expiry_due = min(led.expiry_due, self.clock.attended + DELETED_US)
            self._go_on(led)

    # -- time -------------------------------------------------------------------------------------------------

    def on_time(self) -> None:
        """Does what is due, and decides what has come in this step. Coordinators of which neither is true cost
        nothing."""
        if self.clock.stood_still:
            for led in self._led.values():
                led.is_doubtful = True
            self._given.update(dict.fromkeys(self._led))
        while self._timers and self._timers[0][0] <= self.clock.attended:
            armed, group = heapq.heappop(self._timers)
            if self._armed.get(group) == armed:
                del self._armed[group]
                self._given[group] = None
        given, self._given = self._given, {}
        for group in given:
            if group in self._led:
                self._go_on(self._led[group])

    def _go_on(self, led: LedCoordinator) -> None:
        """Answers, looks and decides as far as that is due."""
        if not led.coordinator.leads:
            self.end(led.coordinator.group)
            return
        if led.is_doubtful:
            heartbeat = self._rounds.begin(self.clock.now, led.coordinator.group)
            if heartbeat is None:
                self._arm(led, self.clock.attended + DOUBT_US)
                return
            led.is_doubtful = False
            led.leadership.doubt(heartbeat)
        if not led.leadership.is_certain:
            return  # The group is stepped when a quorum has confirmed it.
        led.heartbeats.on_time()
        if self.clock.attended >= led.expiry_due:
            led.expiry_due = self.clock.attended + self._expiry_us
            led.leadership.look_at_all(self._expire_offsets)
        if led.leadership.decide():
            self._touch(led.coordinator.group)
        due = (led.leadership.next_deadline, led.heartbeats.next_deadline, led.expiry_due)
        self._arm(led, min(deadline for deadline in due if deadline is not None))

    def _expire_offsets(self, draft: Draft, group_id: str) -> None:
        expire_offsets(draft, group_id, self._options.groups.offsets_retention_ms)

    def _arm(self, led: LedCoordinator, deadline: int) -> None:
        # Deadlines mostly move away: a timer that is early is set anew when it fires.
        group = led.coordinator.group
        armed = self._armed.get(group)
        if armed is None or deadline < armed:
            self._armed[group] = deadline
            heapq.heappush(self._timers, (deadline, group))

    @property
    def next_deadline(self) -> int | None:
        """When ``on_time`` is due."""
        while self._timers and self._armed.get(self._timers[0][1]) != self._timers[0][0]:
            heapq.heappop(self._timers)
        return self.clock.due(self._timers[0][0]) if self._timers else None

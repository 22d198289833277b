"""A consumer group in virtual time: members join, leave, crash, stall and resubscribe, until all faults end."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from quorumlog.chaos.checkers.group_history import GroupHistory, Part
from quorumlog.server.metadata.records import Topic
from quorumlog.simulator.consumer_groups.group_members import MemberHabits, SimMember, part_name
from quorumlog.simulator.models.coordinator_model import ModelGroup
from quorumlog.simulator.models.pending_model import TopicIdPartition
from quorumlog.simulator.world.cluster import SimCluster
from quorumlog.simulator.world.scheduler import Scheduler

#: Duration of pauses and isolations, in parts of a session.
SILENCE = (0.1, 1.6)
RESTART_US = (5_000, 600_000)


@dataclass(slots=True)
class GroupPlan:
    """The seed's decisions for one group. Times in µs.

    Arguments:
        members: initial number; ``most_members``: maximum number.
        topics, pattern: final subscription.
        static: members have static names, under which they return.
        events_us: minimum and maximum time between two events of members.
        weights: relative frequency of each kind of event.
        clock_ppm: maximum deviation of members' clocks.
        kafka: share of the processes with a Kafka client's membership, from 0 to 1.
        kafka_session_ms: their session timeout, as configured at the nodes.
    """

    name: str
    members: int
    most_members: int
    topics: tuple[str, ...]
    pattern: str = ""
    static: bool = False
    events_us: tuple[int, int] = (50_000, 500_000)
    weights: dict[str, int] = field(default_factory=lambda: {"join": 1, "leave": 1, "crash": 1})
    habits: MemberHabits = field(default_factory=MemberHabits)
    clock_ppm: int = 0
    racks: tuple[str, ...] = ("",)
    kafka: float = 0.0
    kafka_session_ms: int = 0


class SimGroup:
    """The members of one group.

    Attributes:
        happened: number of events of each kind.
    """

    def __init__(self, plan: GroupPlan, cluster: SimCluster, scheduler: Scheduler, history: GroupHistory) -> None:
        self.plan = plan
        self.happened: dict[str, int] = {}
        self._cluster = cluster
        self._scheduler = scheduler
        self._history = history
        self._rng = scheduler.stream(f"group/{plan.name}")
        self._members: dict[str, SimMember] = {}
        self._processes = 0
        self._healed = False
        for _ in range(plan.members):
            self._join()
        self._tick()

    def heal(self) -> None:
        """Ends all events: living members continue, and read everything."""
        self._healed = True
        if not self._members:
            self._join()
        for member in self._members.values():
            member.heal()
            member.subscribe(self.plan.topics, self.plan.pattern)

    def leave(self) -> None:
        """Makes all members leave."""
        for name in list(self._members):
            self._members.pop(name).leave()

    def end(self) -> None:
        """Adds what members still own to the history at the end of the run."""
        for member in self._members.values():
            member.close_history()

    # -- events -----------------------------------------------------------------------------------------------------

    def _tick(self) -> None:
        if self._healed:
            return
        kind = self._rng.choices(list(self.plan.weights), list(self.plan.weights.values()))[0]
        if self._happen(kind):
            self.happened[kind] = self.happened.get(kind, 0) + 1
            self._scheduler.trace(f"group {self.plan.name}: {kind}")
        self._scheduler.after(self._rng.randint(*self.plan.events_us), self._tick)

    def _happen(self, kind: str) -> bool:
        if kind == "join":
            if len(self._members) >= self.plan.most_members:
                return False
            self._join()
            return True
        awake = [name for name, member in self._members.items() if not member.process.paused]
        if not awake:
            return False
        name = self._rng.choice(awake)
        member = self._members[name]
        if kind in ("leave", "crash"):
            del self._members[name]
            (member.leave if kind == "leave" else member.crash)()
            if self.plan.static or self._rng.random() < 0.5:
                self._scheduler.after(self._rng.randint(*RESTART_US), lambda: self._come_back(member.instance_id))
        elif kind == "pause":
            member.process.pause()
            self._scheduler.after(self._silence_us(), member.process.resume)
        elif kind == "cut":
            member.link.cut(self._silence_us())
        else:
            member.subscribe(*self._some_subscription())
        return True

    def _silence_us(self) -> int:
        return int(self._rng.uniform(*SILENCE) * self.plan.habits.session_timeout_ms * 1_000)

    def _some_subscription(self) -> tuple[tuple[str, ...], str]:
        topics = tuple(topic for topic in self.plan.topics if self._rng.random() < 0.6)
        pattern = self.plan.pattern if self._rng.random() < 0.6 else ""
        return (topics, pattern) if topics or pattern else (self.plan.topics, self.plan.pattern)

    def _come_back(self, instance_id: str) -> None:
        if not self._healed and len(self._members) < self.plan.most_members:
            self._join(instance_id)

    def _join(self, instance_id: str = "") -> None:
        self._processes += 1
        name = f"{self.plan.name}.{self._processes}"
        if self.plan.static and not instance_id:
            instance_id = f"static{self._processes}"
        is_kafka = self.plan.kafka > 0 and self._rng.random() < self.plan.kafka
        habits = self.plan.habits
        if is_kafka:
            # It neither reports its session timeout, nor numbers its heartbeats: it cannot detect delayed ones.
            habits = replace(habits, session_timeout_ms=self.plan.kafka_session_ms, late=0.0)
        self._members[name] = SimMember(
            name,
            self.plan.name,
            self._cluster,
            self._scheduler,
            self._cluster.invariants.coordinators.heard,
            self._history,
            habits,
            self.plan.topics,
            self.plan.pattern,
            instance_id,
            self._rng.choice(self.plan.racks),
            self._rng.randint(-self.plan.clock_ppm, self.plan.clock_ppm),
            is_kafka,
        )

    # -- required final state -----------------------------------------------------------------------------------------

    def _topics(self) -> Iterator[Topic]:
        image = self._cluster.processes[self._cluster.node_ids[0]].image
        assert image is not None
        for name, topic in sorted(image.topic_table.by_name.items()):
            matches = self.plan.pattern and re.fullmatch(self.plan.pattern, name)
            if not topic.is_internal and (name in self.plan.topics or matches):
                yield topic

    def ends(self) -> dict[Part, int]:
        """Returns the offset that the group must reach in each partition."""
        return {
            Part(self.plan.name, part_name(topic.name, partition.number, topic.topic_id)): end
            for topic in self._topics()
            for partition in topic.partitions
            if (end := self._cluster.invariants.model(partition.group).log.next_offset)
        }

    def missing(self) -> str:
        """Returns a deviation from the required final state; empty if the group is stable, balanced, and at the end."""
        for member in self._members.values():
            if member.at_rest:
                return member.at_rest
        group = self._cluster.invariants.coordinators.group(self.plan.name)
        if group is None:
            return f"no coordinator has group {self.plan.name}"
        return self._unstable(group) or self._unbalanced(group) or self._behind(group)

    def _unstable(self, group: ModelGroup) -> str:
        header = group.header
        alive = sorted(member.membership.member_id for member in self._members.values())
        if sorted(group.members) != alive:
            return f"group {self.plan.name} has members {sorted(group.members)}; {alive} live"
        for name, member in sorted(group.members.items()):
            target = group.targets.get(name, frozenset())
            if member.revoking or member.assigned.keys() != target:
                return (
                    f"{name} has {sorted(member.assigned)}, gives up {sorted(member.revoking)}, wants {sorted(target)}"
                )
            if member.row.member_epoch != header.group_epoch:
                return f"{name} is in epoch {member.row.member_epoch}, group {self.plan.name} in {header.group_epoch}"
        return ""

    def _unbalanced(self, group: ModelGroup) -> str:
        wanted = {
            TopicIdPartition(topic.topic_id, partition.number)
            for topic in self._topics()
            for partition in topic.partitions
        }
        assigned = {partition for member in group.members.values() for partition in member.assigned}
        if assigned != wanted:
            return f"group {self.plan.name} reads {sorted(assigned)}, there are {sorted(wanted)}"
        sizes = [len(member.assigned) for member in group.members.values()]
        tolerance = max(1, len(list(self._topics()))) if group.header.assignor == "range" else 1
        if max(sizes) - min(sizes) > tolerance:
            return f"group {self.plan.name} is not balanced: {sizes}"
        return ""

    def _behind(self, group: ModelGroup) -> str:
        for topic in self._topics():
            for partition in topic.partitions:
                end = self._cluster.invariants.model(partition.group).log.next_offset
                offset = group.offsets.get(TopicIdPartition(topic.topic_id, partition.number))
                committed = 0 if offset is None else offset.offset
                if committed != end:
                    return f"group {self.plan.name} has committed {committed} of {partition.name}, which ends at {end}"
        return ""

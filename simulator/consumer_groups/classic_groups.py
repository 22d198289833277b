"""A classic group in virtual time: members join, leave, crash and stall, until all faults end."""

from __future__ import annotations

from dataclasses import dataclass, field

from quorumlog.server.metadata.records import Topic
from quorumlog.simulator.consumer_groups.classic_members import ClassicHabits, ClassicHistory, SimClassicMember
from quorumlog.simulator.models.classic_model import ModelClassic
from quorumlog.simulator.world.cluster import SimCluster
from quorumlog.simulator.world.scheduler import Scheduler

#: Duration of pauses and isolations, in parts of a session.
SILENCE = (0.1, 1.6)
RESTART_US = (5_000, 900_000)
#: Delay before the topic is looked up again.
SOON_US = 50_000
KINDS = {"join": 3, "leave": 2, "crash": 2, "pause": 2, "cut": 1}


@dataclass(slots=True)
class ClassicPlan:
    """The seed's decisions for one group. Times in µs.

    Arguments:
        topic: topic whose partitions its members share.
        members: initial number; ``most_members``: maximum number.
        static: members have static names, under which they return.
        events_us: minimum and maximum time between two events of members; (0, 0): none exist.
    """

    name: str
    topic: str
    members: int
    most_members: int
    static: bool = False
    events_us: tuple[int, int] = (0, 0)
    habits: ClassicHabits = field(default_factory=ClassicHabits)


class SimClassicGroup:
    """The members of one group.

    Attributes:
        happened: number of events of each kind.
        history: assignments reported to members; None until the topic exists.
    """

    def __init__(self, plan: ClassicPlan, cluster: SimCluster, scheduler: Scheduler) -> None:
        self.plan = plan
        self.happened: dict[str, int] = {}
        self.members: dict[str, SimClassicMember] = {}
        self.history: ClassicHistory | None = None
        self._cluster = cluster
        self._scheduler = scheduler
        self._rng = scheduler.stream(f"classic/{plan.name}")
        self._processes = 0
        self._healed = False
        self._begin()

    def _begin(self) -> None:
        topic = self._topic()
        if topic is None:
            self._scheduler.after(SOON_US, self._begin)
            return
        self.history = ClassicHistory(self.plan.name, topic.topic_id, len(topic.partitions), self.model)
        for _ in range(self.plan.members):
            self.join()
        if self.plan.events_us != (0, 0):
            self._tick()

    def _topic(self) -> Topic | None:
        images = (process.image for process in self._cluster.processes.values())
        found = (image.topics.get(self.plan.topic) for image in images if image is not None)
        return next((topic for topic in found if topic is not None), None)

    def model(self) -> ModelClassic | None:
        """Returns the group's state in the log."""
        group = self._cluster.invariants.coordinators.group(self.plan.name)
        return group.classic if group is not None else None

    def heal(self) -> None:
        """Ends all events: living members continue."""
        self._healed = True
        if not self.members and self.history is not None:
            self.join()
        for member in self.members.values():
            member.heal()

    def leave(self) -> None:
        """Makes all members leave."""
        for name in list(self.members):
            self.members.pop(name).leave()

    def missing(self) -> str:
        """Returns a deviation from the required final state; empty if all living members are in one generation, and all
        partitions have an owner.
        """
        members, model, name = list(self.members.values()), self.model(), self.plan.name
        if model is None or self.history is None:
            return f"no coordinator has group {name}"
        alive = {member.member_id for member in members}
        if alive != model.members.keys():
            return f"group {name} has members {sorted(model.members)}; {sorted(alive)} live"
        generations = {member.generation for member in members if member.is_member}
        if generations != {model.generation} or not all(member.is_member for member in members):
            return f"group {name} is in generation {model.generation}; its members are in {sorted(generations)}"
        shared = sorted(number for member in members for number in member.owned)
        if shared != list(range(self.history.partitions)):
            return f"the members of group {name} have {shared} of {self.history.partitions} partitions"
        return ""

    # -- events -----------------------------------------------------------------------------------------------------

    def join(self, instance_id: str = "") -> SimClassicMember:
        """Starts a process."""
        assert self.history is not None
        self._processes += 1
        name = f"{self.plan.name}.{self._processes}"
        if self.plan.static and not instance_id:
            instance_id = f"static{self._processes}"
        member = SimClassicMember(name, self._cluster, self._scheduler, self.history, self.plan.habits, instance_id)
        self.members[name] = member
        return member

    def _tick(self) -> None:
        if self._healed:
            return
        kind = self._rng.choices(list(KINDS), list(KINDS.values()))[0]
        if self.happen(kind):
            self.happened[kind] = self.happened.get(kind, 0) + 1
            self._scheduler.trace(f"classic group {self.plan.name}: {kind}")
        self._scheduler.after(self._rng.randint(*self.plan.events_us), self._tick)

    def happen(self, kind: str) -> bool:
        """Triggers an event of a member; returns True if it was possible."""
        if kind == "join":
            if len(self.members) >= self.plan.most_members:
                return False
            self.join()
            return True
        awake = [name for name, member in self.members.items() if not member.process.paused]
        if not awake:
            return False
        name = self._rng.choice(awake)
        member = self.members[name]
        silence_us = int(self._rng.uniform(*SILENCE) * self.plan.habits.session_timeout_ms * 1_000)
        if kind in ("leave", "crash"):
            del self.members[name]
            (member.leave if kind == "leave" else member.crash)()
            if self.plan.static or len(self.members) == 0:
                self._scheduler.after(self._rng.randint(*RESTART_US), lambda: self._come_back(member.instance_id))
        elif kind == "pause":
            member.process.pause()
            self._scheduler.after(silence_us, member.process.resume)
        else:
            member.link.cut(silence_us)
        return True

    def _come_back(self, instance_id: str) -> None:
        if not self._healed and len(self.members) < self.plan.most_members:
            self.join(instance_id)

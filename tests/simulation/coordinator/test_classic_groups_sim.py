"""Classic groups on simulated clusters: members come, go, die and stand still, and so do coordinators. In a generation
each partition has one owner, nothing is answered from an older one, and in the end everything is shared out."""

from __future__ import annotations

import pytest
from quiet_cluster import TOPIC, Quiet

from quorumlog.chaos.models.classic_model import ModelClassic
from quorumlog.chaos.simulator.classic_members import ClassicHabits, ClassicHistory, SimClassicMember
from quorumlog.server.consumer_group_limits import ConsumerGroupLimits
from quorumlog.server.coordinator.coordinator import Coordinator
from quorumlog.server.options import ConsumerGroupOptions

PARTITIONS = 6
GROUP = "g"


class Classic(Quiet):
    """A cluster with a classic group, and what happens to both.

    Arguments:
        static: members have names, under which they come back.
    """

    def __init__(
        self, seed: int, *, members: int = 4, static: bool = False, habits: ClassicHabits | None = None
    ) -> None:
        limits = ConsumerGroupLimits(initial_rebalance_delay_ms=100)
        groups = ConsumerGroupOptions(coordinators=1, limits=limits, checkpoint_entries=60)
        super().__init__(seed, partitions=PARTITIONS, groups=groups)
        image = next(process.image for process in self.cluster.processes.values() if process.image is not None)
        self.history_of_group = ClassicHistory(GROUP, image.topics[TOPIC].topic_id, PARTITIONS, self.model)
        self.habits = habits or ClassicHabits()
        self.static = static
        self.chance = self.scheduler.stream("story")
        self.members: dict[str, SimClassicMember] = {}
        self.names = 0
        for _ in range(members):
            self.join()

    def model(self) -> ModelClassic | None:
        """What the log has of the group."""
        group = self.cluster.invariants.coordinators.group(GROUP)
        return group.classic if group is not None else None

    def join(self, instance_id: str = "") -> SimClassicMember:
        """A process begins."""
        self.names += 1
        name = f"m{self.names}"
        instance_id = instance_id or (f"static{self.names}" if self.static else "")
        member = SimClassicMember(name, self.cluster, self.scheduler, self.history_of_group, self.habits, instance_id)
        self.members[name] = member
        return member

    def leading(self) -> list[int]:
        """The nodes that lead the coordinator."""
        return [
            node
            for node, process in self.cluster.processes.items()
            if process.running
            for replica in process.replicas.values()
            if isinstance(replica.machine, Coordinator) and replica.machine.leads
        ]

    def happen(self) -> None:
        """Something happens to a member, or to the coordinator."""
        kind = self.chance.choices(
            ("join", "leave", "crash", "pause", "cut", "kill", "stop"), weights=(3, 2, 2, 2, 1, 3, 1)
        )[0]
        names = [name for name, member in self.members.items() if not member.process.paused]
        if kind == "join" and len(self.members) < 7:
            self.join()
        elif kind in ("leave", "crash") and len(names) > 1:
            member = self.members.pop(self.chance.choice(names))
            (member.leave if kind == "leave" else member.crash)()
            if self.static:
                self.scheduler.after(self.chance.randint(10_000, 900_000), lambda: self.join(member.instance_id))
        elif kind in ("pause", "cut") and names:
            member = self.members[self.chance.choice(names)]
            silence = self.chance.randint(100_000, 5_000_000)
            if kind == "cut":
                member.link.cut(silence)
            else:
                member.process.pause()
                self.scheduler.after(silence, member.process.resume)
        elif kind in ("kill", "stop"):
            self.strike(kind)

    def strike(self, kind: str) -> None:
        """The coordinator's node dies and comes back, or stands still; a majority stays."""
        nodes = self.leading()
        if not nodes or any(not each.running or each.paused for each in self.cluster.processes.values()):
            return
        node = nodes[0]
        after = self.chance.randint(200_000, 2_500_000)
        if kind == "kill":
            self.cluster.processes[node].die(silent=False)
            self.scheduler.after(after, lambda: self.cluster.start(node))
        else:
            self.cluster.processes[node].pause()
            self.scheduler.after(after, self.cluster.processes[node].resume)

    def is_shared_out(self) -> bool:
        """Whether all who live are members of one generation, and everything has an owner."""
        members, model = self.members.values(), self.model()
        if model is None or {member.member_id for member in members} != model.members.keys():
            return False
        shared = sorted(number for member in members for number in member.owned)
        return shared == list(range(PARTITIONS)) and {member.generation for member in members} == {model.generation}


def test_members_share_everything_out() -> None:
    story = Classic(1)
    assert story.until(story.is_shared_out, 20) < 10
    story.join()
    story.run(0.2)
    story.until(story.is_shared_out, 5)
    assert len(story.members) == 5
    story.members.pop("m2").leave()
    story.until(story.is_shared_out, 5)


def test_members_keep_what_they_have_when_the_coordinator_dies() -> None:
    story = Classic(2)
    story.until(story.is_shared_out, 20)
    model = story.model()
    assert model is not None
    before = (model.generation, {name: member.owned for name, member in story.members.items()})
    story.strike("kill")
    story.run(10)
    assert story.is_shared_out()
    assert before == (model.generation, {name: member.owned for name, member in story.members.items()})


def test_a_silent_member_s_partitions_go_to_the_others() -> None:
    story = Classic(3)
    story.until(story.is_shared_out, 20)
    story.members.pop("m1").crash()
    assert story.until(story.is_shared_out, 15) > 1


def test_a_commit_is_a_sign_of_life_on_a_node() -> None:
    never = (60_000_000, 60_000_000)
    story = Classic(4, members=2, habits=ClassicHabits(heartbeat_us=never))
    story.until(story.is_shared_out, 20)
    before = story.model()
    assert before is not None
    generation = before.generation
    story.run(10)
    assert story.is_shared_out() and before.generation == generation


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("static", [False, True])
def test_whatever_happens_each_partition_has_one_owner_in_a_generation(seed: int, static: bool) -> None:
    story = Classic(1_000 + seed, static=static, habits=ClassicHabits(lose=0.02))
    for _ in range(40):
        story.run(story.chance.uniform(0.05, 1.0))
        story.happen()
    story.static = False
    story.run(3)
    for process in story.cluster.processes.values():
        if process.paused:
            process.resume()
    for member in story.members.values():
        member.heal()
    story.until(story.is_shared_out, 60)
    answers, model = story.history_of_group.answers, story.model()
    assert model is not None and model.generation > 5, "nothing happened"
    assert min(answers[kind] for kind in ("join", "sync", "heartbeat", "commit NONE")) > 5, answers

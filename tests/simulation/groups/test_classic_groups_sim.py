"""Classic groups on simulated clusters: members join, leave, die and stall, and so do coordinators. In a generation
each partition has one owner, nothing is answered from an older one, and in the end everything is shared out."""

from __future__ import annotations

import pytest
from quiet_cluster import TOPIC, Quiet

from quorumlog.server.config.consumer_group_limits import ConsumerGroupLimits
from quorumlog.server.config.options import ConsumerGroupOptions
from quorumlog.server.groups.group_shard import GroupShard
from quorumlog.simulator.consumer_groups.classic_groups import KINDS, ClassicPlan, SimClassicGroup
from quorumlog.simulator.consumer_groups.classic_members import ClassicHabits, SimClassicMember
from quorumlog.simulator.models.classic_model import ModelClassic

PARTITIONS = 6


class Classic(Quiet):
    """A cluster with a classic group, and what happens to both.

    Arguments:
        static: members have names, under which they rejoin.
    """

    def __init__(
        self, seed: int, *, members: int = 4, static: bool = False, habits: ClassicHabits | None = None
    ) -> None:
        limits = ConsumerGroupLimits(initial_rebalance_delay_ms=100)
        groups = ConsumerGroupOptions(coordinators=1, limits=limits, checkpoint_entries=60)
        super().__init__(seed, partitions=PARTITIONS, groups=groups)
        self.chance = self.scheduler.stream("story")
        plan = ClassicPlan("g", TOPIC, members, 7, static, habits=habits or ClassicHabits())
        self.group = SimClassicGroup(plan, self.cluster, self.scheduler)

    @property
    def model(self) -> ModelClassic:
        """The group as the log has it."""
        model = self.group.model()
        assert model is not None
        return model

    @property
    def members(self) -> dict[str, SimClassicMember]:
        """By the names of their processes."""
        return self.group.members

    def is_shared_out(self) -> bool:
        """True if all living members are in one generation, and all partitions have an owner."""
        return not self.group.missing()

    def strike(self, kind: str) -> None:
        """Kills the coordinator's node and restarts it later, or pauses it, if all nodes run."""
        leading = [
            node
            for node, process in self.cluster.processes.items()
            for replica in process.replicas.values()
            if isinstance(replica.machine, GroupShard) and replica.machine.leads
        ]
        if not leading or any(not each.running or each.paused for each in self.cluster.processes.values()):
            return
        node = leading[0]
        after = self.chance.randint(200_000, 2_500_000)
        if kind == "kill":
            self.cluster.processes[node].die(silent=False)
            self.scheduler.after(after, lambda: self.cluster.start(node))
        else:
            self.cluster.processes[node].pause()
            self.scheduler.after(after, self.cluster.processes[node].resume)


def test_members_share_everything_out() -> None:
    story = Classic(1)
    assert story.until(story.is_shared_out, 20) < 10
    story.group.join()
    story.run(0.2)
    story.until(story.is_shared_out, 5)
    assert len(story.members) == 5
    story.members.pop("g.2").leave()
    story.until(story.is_shared_out, 5)


def test_members_keep_what_they_have_when_the_coordinator_dies() -> None:
    story = Classic(2)
    story.until(story.is_shared_out, 20)
    before = (story.model.generation, {name: member.owned for name, member in story.members.items()})
    story.strike("kill")
    story.run(10)
    assert story.is_shared_out()
    assert before == (story.model.generation, {name: member.owned for name, member in story.members.items()})


def test_a_silent_member_s_partitions_go_to_the_others() -> None:
    story = Classic(3)
    story.until(story.is_shared_out, 20)
    story.members.pop("g.1").crash()
    assert story.until(story.is_shared_out, 15) > 1


def test_a_commit_is_a_sign_of_life_on_a_node() -> None:
    never = (60_000_000, 60_000_000)
    story = Classic(4, members=2, habits=ClassicHabits(heartbeat_us=never))
    story.until(story.is_shared_out, 20)
    generation = story.model.generation
    story.run(10)
    assert story.is_shared_out() and story.model.generation == generation


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("static", [False, True])
def test_whatever_happens_each_partition_has_one_owner_in_a_generation(seed: int, static: bool) -> None:
    story = Classic(1_000 + seed, static=static, habits=ClassicHabits(lose=0.02))
    for _ in range(40):
        story.run(story.chance.uniform(0.05, 1.0))
        kind = story.chance.choices((*KINDS, "kill", "stop"), weights=(*KINDS.values(), 3, 1))[0]
        if kind in KINDS:
            story.group.happen(kind)
        else:
            story.strike(kind)
    story.run(3)
    for process in story.cluster.processes.values():
        if process.paused:
            process.resume()
    story.group.heal()
    story.until(story.is_shared_out, 60)
    assert story.model.generation > 5, "nothing happened"
    assert story.group.history is not None
    answers = story.group.history.answers
    assert min(answers[kind] for kind in ("join", "sync", "heartbeat", "commit NONE")) > 5, answers

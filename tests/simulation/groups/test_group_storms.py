"""Members of consumer groups join, leave, die and stall: over whole clusters that are hurt, and over one bare
coordinator, where it goes a hundred times faster."""

from __future__ import annotations

from dataclasses import replace

import pytest
from bare_coordinator import BareCoordinator, Topics

from quorumlog.chaos.checkers.group_checkers import GroupVerdict, check_groups
from quorumlog.chaos.checkers.group_history import GroupHistory
from quorumlog.simulator.consumer_groups.group_members import MemberHabits, SimMember
from quorumlog.simulator.models.coordinator_model import ModelGroup
from quorumlog.simulator.models.pending_model import TopicIdPartition
from quorumlog.simulator.seeds.plan_groups import KINDS
from quorumlog.simulator.seeds.simulation import Simulation
from quorumlog.simulator.seeds.story import Story
from quorumlog.simulator.seeds.summary import Tally, replay_line
from quorumlog.simulator.simulate import run_seeds
from quorumlog.simulator.world.scheduler import Scheduler

#: Short ones, in which something happens to groups.
SEEDS = (1, 4, 7, 8, 9, 11, 13, 14)
STORMS = range(14)
LATE_STORMS = range(136, 150)
MS = 1_000


@pytest.mark.timeout(300)
def test_groups_keep_every_promise_in_clusters_that_are_hurt(capsys: pytest.CaptureFixture[str]) -> None:
    tally = Tally(Story.GROUPS)
    for result in run_seeds(SEEDS, jobs=2, story=Story.GROUPS):
        tally.add(result)
    with capsys.disabled():
        print("\n" + "\n".join(tally.lines()))
    assert not tally.failed, "\n".join(replay_line(result, Story.GROUPS) for result in tally.failed)
    assert tally.groups >= len(SEEDS)
    assert tally.group_commands > 10 * len(SEEDS)
    assert tally.group_records > 100
    assert tally.happened.keys() == set(KINDS)


#: What happens in storms; and in those of late heartbeats, whose members are slow to give up.
ALL_KINDS = ("join", "leave", "crash", "pause", "cut", "subscribe", "grow", "failover")
LATE_KINDS = ("join", "leave", "subscribe", "failover", "failover", "failover")


class Storm:
    """One group of up to six members on two topics, of which one grows.

    Arguments:
        is_late: heartbeats come seconds late, to the next coordinator.
    """

    def __init__(self, seed: int, *, is_late: bool = False) -> None:
        self.scheduler = Scheduler(seed)
        self.rng = self.scheduler.stream("storm")
        self.topics = Topics()
        self.topics.put("t", self.rng.randint(1, 6))
        self.topics.put("u", self.rng.randint(1, 3))
        self.coordinator = BareCoordinator(self.scheduler, self.topics, self.rng.choice((20, 100)))
        self.history = GroupHistory()
        self.members: dict[int, SimMember] = {}
        self.static = self.rng.random() < 0.3
        self._started = 0
        self._habits = MemberHabits(
            session_timeout_ms=1_000,
            rebalance_timeout_ms=self.rng.choice((300, 1_000)),
            heartbeat_interval_ms=200,
            assignor=self.rng.choice(("", "uniform", "range")),
            lose=self.rng.choice((0.0, 0.02, 0.1)),
            slow=self.rng.choice((0.0, 0.3)),
            slow_us=(50 * MS, 1_000 * MS),
            commits=self.rng.choice((0.2, 1.0)),
            late=self.rng.choice((0.0, 0.05, 0.2)),
        )
        self._kinds = LATE_KINDS if is_late else ALL_KINDS
        if is_late:
            self.coordinator.old_members = self.rng.choice(((), ("m1", "m2", "m4"), ("m",)))
            # In a long session a member asks again on another stream while what it has said is held up.
            self._habits = replace(
                self._habits, session_timeout_ms=10_000, rebalance_timeout_ms=10_000, slow=0.7, late=0.2
            )
        for _ in range(3):
            self._join()

    def run(self) -> GroupVerdict:
        """Thirty things happen, then all have time to come to the end."""
        for _ in range(30):
            self.scheduler.run(self.scheduler.now + self.rng.randint(20 * MS, 500 * MS))
            self._happen()
        if not self.members:
            self._join()
        self.scheduler.run(self.scheduler.now + 2_500 * MS)
        for member in self.members.values():
            member.link.lose = member.link.late = 0.0
            member.subscribe(("t", "u"))
        end = self.scheduler.now + 60_000 * MS
        while self._missing():
            assert self.scheduler.now < end, self._missing()
            self.scheduler.run(self.scheduler.now + 100 * MS)
        for member in self.members.values():
            member.close_history()
        return check_groups(self.history, knows_when_work_ends=True)

    def _join(self, instance_id: str = "") -> None:
        self._started += 1
        if self.static and not instance_id:
            instance_id = f"static{self._started}"
        self.members[self._started] = SimMember(
            f"m{self._started}",
            "g",
            self.coordinator,
            self.scheduler,
            self.coordinator.heard,
            self.history,
            self._habits,
            ("t", "u"),
            instance_id=instance_id,
        )

    def _happen(self) -> None:
        kind = self.rng.choice(self._kinds)
        if kind == "join" and len(self.members) < 6:
            self._join()
        elif kind == "grow" and self.topics.infos["t"].partitions < 8:
            self.topics.put("t", self.topics.infos["t"].partitions + 1)
            self.coordinator.topics_are_other()
        elif kind == "failover":
            self.coordinator.fail_over()
        awake = [number for number, member in self.members.items() if not member.process.paused]
        if kind in ("join", "grow", "failover") or not awake:
            return
        number = self.rng.choice(awake)
        member = self.members[number]
        silence_us = self.rng.randint(50 * MS, 2_000 * MS)
        if kind in ("leave", "crash"):
            del self.members[number]
            (member.leave if kind == "leave" else member.crash)()
            if self.static:
                self._join(member.instance_id)
        elif kind == "pause":
            member.process.pause()
            self.scheduler.after(silence_us, member.process.resume)
        elif kind == "cut":
            member.link.cut(silence_us)
        else:
            member.subscribe(self.rng.choice((("t",), ("u",), ("t", "u"))))

    def _missing(self) -> str:
        group = self.coordinator.model.groups.get("g", ModelGroup())
        alive = sorted(member.membership.member_id for member in self.members.values())
        if sorted(group.members) != alive:
            return f"members are {sorted(group.members)}, {alive} live"
        behind = [
            (info.name, number)
            for info in self.topics.infos.values()
            for number in range(info.partitions)
            if (offset := group.offsets.get(TopicIdPartition(info.topic_id, number))) is None
            or offset.offset != self.coordinator.records
        ]
        waits = [member.at_rest for member in self.members.values() if member.at_rest]
        return f"{behind} behind, {waits}" if behind or waits else ""


def test_what_a_kafka_member_that_is_put_out_asks_to_commit_is_nobodys_work() -> None:
    """Commits of a removed Kafka member are refused: in this seed it commits long before it learns of its removal."""
    assert Simulation(2131, with_groups=True).run().violation is None


def test_a_partition_has_one_owner_over_coordinators_however_late_heartbeats_come() -> None:
    for seed in LATE_STORMS:
        verdict = Storm(seed, is_late=True).run()
        assert not verdict.anomalies, f"late storm {seed}: {verdict.anomalies[0].message}"


def test_groups_keep_every_promise_with_a_bare_coordinator() -> None:
    again = 0
    for seed in STORMS:
        verdict = Storm(seed).run()
        assert not verdict.anomalies, f"storm {seed}: {verdict.anomalies[0].message}"
        again += verdict.duplicates.total()
    assert again > 30, "what was not committed is done again"

"""The decisions of a seed for consumer groups: their number, the events of members, and their behaviour."""

from __future__ import annotations

import random
from collections.abc import Iterable
from dataclasses import replace

from quorumlog.server.config.consumer_group_limits import ConsumerGroupLimits
from quorumlog.server.config.options import ConsumerGroupOptions
from quorumlog.simulator.consumer_groups.classic_groups import ClassicPlan
from quorumlog.simulator.consumer_groups.classic_members import ClassicHabits
from quorumlog.simulator.consumer_groups.group_members import MemberHabits
from quorumlog.simulator.consumer_groups.groups import GroupPlan

#: Kinds of events of members.
KINDS = ("join", "leave", "crash", "pause", "cut", "resubscribe")


def draw_coordinators(rng: random.Random, election_timeout_ms: int) -> ConsumerGroupOptions:
    """Draws the configuration of coordinators."""
    return ConsumerGroupOptions(
        coordinators=rng.choice((1, 2, 4)),
        limits=ConsumerGroupLimits(min_session_timeout_ms=2 * election_timeout_ms),
        checkpoint_entries=rng.choice((2, 10, 5_000)),
        checkpoint_bytes=rng.choice((1_000, 4 << 20)),
    )


def draw_groups(
    rng: random.Random, topics: Iterable[str], others: str, election_timeout_ms: int, clock_ppm: int
) -> list[GroupPlan]:
    """Draws one to three groups.

    Arguments:
        topics: topics that are written to.
        others: a pattern of topics that are created and deleted during the run; empty if none exist.
        election_timeout_ms: sessions are several of these.
    """
    return [
        _draw_group(rng, f"group{number}", tuple(topics), others, election_timeout_ms, clock_ppm)
        for number in range(rng.choice((1, 1, 1, 2, 3)))
    ]


def _draw_group(
    rng: random.Random, name: str, topics: tuple[str, ...], others: str, election_timeout_ms: int, clock_ppm: int
) -> GroupPlan:
    by_pattern = rng.random() < 0.4
    chosen = tuple(topic for topic in topics if rng.random() < 0.8) or topics
    pattern = f"(topic|many).*{others}" if others and rng.random() < 0.8 else "(topic|many).*"
    kinds = [kind for kind in KINDS if rng.random() < 0.5] or ["crash"]
    members = rng.choices((1, 2, 3, 5, 8), (1, 3, 4, 2, 1))[0]
    plan = GroupPlan(
        name=name,
        members=members,
        most_members=members + rng.randint(0, 3),
        topics=() if by_pattern else chosen,
        pattern=pattern if by_pattern else "",
        static=rng.random() < 0.25,
        events_us=rng.choice(((30_000, 200_000), (100_000, 600_000), (500_000, 2_000_000))),
        weights={kind: rng.choice((1, 1, 2, 4)) for kind in kinds},
        habits=_draw_habits(rng, election_timeout_ms),
        clock_ppm=min(clock_ppm, rng.choice((0, 200))),
        racks=rng.choice((("",), ("a", "b"))),
    )
    plan.habits = replace(plan.habits, late=rng.choice((0.0, 0.03, 0.2)))
    return plan


def _draw_habits(rng: random.Random, election_timeout_ms: int) -> MemberHabits:
    session_ms = int(election_timeout_ms * rng.choice((2.5, 4, 6)))
    return MemberHabits(
        session_timeout_ms=session_ms,
        rebalance_timeout_ms=int(session_ms * rng.choice((0.3, 1, 3))),
        heartbeat_interval_ms=max(50, session_ms // 6),
        assignor=rng.choice(("", "uniform", "range")),
        work_us=rng.choice(((100, 3_000), (1_000, 30_000), (10_000, 200_000))),
        work_records=rng.choice((1, 3, 20)),
        commits=rng.choice((0.1, 0.5, 1.0)),
        slow=rng.choice((0.0, 0.0, 0.3)),
        slow_us=(50_000, int(session_ms * 1_000 * rng.choice((0.2, 2.0)))),
        lose=rng.choice((0.0, 0.01, 0.1)),
        zombies=rng.choice((0.0, 0.5, 1.0)),
    )


def draw_kafka_members(rng: random.Random, groups: list[GroupPlan], election_timeout_ms: int) -> int:
    """Draws members with Kafka's clients, in half of the seeds that must have groups: some in each group, or all.

    Returns:
        Their session timeout as configured at the nodes, in milliseconds; 0 if none exist.
    """
    if rng.random() < 0.5:
        return 0
    session_ms = int(election_timeout_ms * rng.choice((2.5, 4, 6)))
    for group in groups:
        group.kafka, group.kafka_session_ms = rng.choice((0.5, 1.0)), session_ms
    return session_ms


def draw_classic_groups(rng: random.Random, topics: Iterable[str], election_timeout_ms: int) -> list[ClassicPlan]:
    """Draws one classic group beside the others, in half of the seeds that must have groups.

    Arguments:
        topics: topics that exist from the start.
        election_timeout_ms: sessions are several of these.
    """
    if rng.random() < 0.5:
        return []
    session_ms = int(election_timeout_ms * rng.choice((2.5, 4, 6)))
    members = rng.choices((1, 2, 3, 5), (1, 3, 4, 2))[0]
    habits = ClassicHabits(
        session_timeout_ms=session_ms,
        rebalance_timeout_ms=int(session_ms * rng.choice((0.3, 1, 2))),
        heartbeat_us=(session_ms * 50, session_ms * 200),
        commit_us=rng.choice(((20_000, 100_000), (100_000, 600_000))),
        lose=rng.choice((0.0, 0.01, 0.1)),
    )
    return [
        ClassicPlan(
            "classic",
            rng.choice(sorted(topics)),
            members,
            members + rng.randint(0, 3),
            static=rng.random() < 0.3,
            events_us=rng.choice(((30_000, 200_000), (100_000, 600_000), (500_000, 2_000_000))),
            habits=habits,
        )
    ]

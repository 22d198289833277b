"""The decisions of a seed for the shipped clients: their workloads, and their faults."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any

from quorumlog.simulator.clients.admin_load import AdminHabits
from quorumlog.simulator.clients.client_faults import KINDS, ClientFaultPlan
from quorumlog.simulator.clients.consumer_load import ConsumerHabits
from quorumlog.simulator.clients.group_load import GroupHabits
from quorumlog.simulator.clients.producer_load import ProducerHabits

SECOND = 1_000_000


@dataclass(slots=True)
class ClientsPlan:
    """A seed's clients.

    Arguments:
        topics: name to number of partitions, at the start.
        groups: each with its number of members.
        duration_us: time under faults.
        clock_ppm: minimum and maximum deviation of a client's clock, in millionths.
    """

    topics: dict[str, int]
    producers: dict[str, ProducerHabits]
    consumers: dict[str, ConsumerHabits]
    groups: list[tuple[GroupHabits, int]]
    admins: dict[str, AdminHabits]
    faults: ClientFaultPlan
    duration_us: int
    clock_ppm: tuple[int, int] = (0, 0)


def draw_clients(rng: random.Random, with_groups: bool, election_timeout_ms: int) -> ClientsPlan:
    """Draws the clients of a seed.

    Arguments:
        with_groups: use consumer groups.
        election_timeout_ms: sessions are several of these.
    """
    topics = {f"topic{number}": rng.randint(1, 3) for number in range(rng.randint(1, 3))}
    recreated = [topic for topic in topics if rng.random() < 0.5]
    trimmed = [topic for topic in topics if topic not in recreated and rng.random() < 0.3 and not with_groups]
    kinds = [kind for kind in KINDS if rng.random() < (0.2 if kind == "wiped" else 0.6)] or ["late"]
    if "wiped" in kinds:
        recreated = []  # With a node less, there may be too few for new topics.
    return ClientsPlan(
        topics,
        {f"producer{number}": _draw_producer(rng, number, topics) for number in range(rng.randint(1, 3))},
        {f"reader{number}": _draw_consumer(rng, topics) for number in range(rng.randint(0 if with_groups else 1, 2))},
        [
            (_draw_group(rng, f"group{number}", topics, election_timeout_ms), rng.choice((1, 2, 2, 3, 4)))
            for number in range(rng.choice((1, 1, 2)) if with_groups else 0)
        ],
        {
            f"admin{number}": AdminHabits(
                _calls(rng),
                rng.choice(((0.02, 0.2), (0.1, 1.0))),
                {topic: topics[topic] for topic in recreated},
                trimmed,
            )
            for number in range(rng.choice((1, 1, 2)))
        },
        ClientFaultPlan(
            {kind: 1 if kind == "wiped" else rng.choice((1, 1, 2, 4)) for kind in kinds},
            rng.choice(((30_000, 200_000), (100_000, 600_000))),
            rng.choice((0.15, 0.5, 1.0)),
        ),
        rng.randint(SECOND // 2, 2 * SECOND) + (rng.randint(1, 4) * election_timeout_ms * 1_000 if with_groups else 0),
        rng.choice(((0, 0), (-200, 200), (-20_000, 20_000))),
    )


def draw_racks(rng: random.Random, plan: ClientsPlan, racks: tuple[str, ...]) -> None:
    """Puts most consumers into racks, so that they read from followers, and change with the leaders."""
    every = [habits.options for habits in plan.consumers.values()] + [habits.options for habits, _ in plan.groups]
    for options in every:
        options["client_rack"] = rng.choice((None, *racks))


def _calls(rng: random.Random) -> dict[str, Any]:
    return {
        "request_timeout_ms": rng.choice((300, 1_000, 5_000)),
        "bootstrap_timeout_ms": rng.choice((500, 3_000)),
        "client_id": "simulated",
    }


def _draw_producer(rng: random.Random, number: int, topics: dict[str, int]) -> ProducerHabits:
    request_ms = rng.choice((200, 600, 2_000))
    options: dict[str, Any] = {
        "linger_ms": rng.choice((0, 5, 50)),
        "batch_size": rng.choice((200, 2_000, 100_000)),
        "max_in_flight": rng.choice((1, 2, 5)),
        "request_timeout_ms": request_ms,
        "delivery_timeout_ms": max(request_ms, rng.choice((500, 2_000, 10_000))),
        "max_block_ms": rng.choice((200, 2_000)),
        "metadata_max_age_ms": rng.choice((200, 5_000)),
        "partitioner": rng.choice(("sticky", "round_robin")),
        "buffer_memory": rng.choice((20_000, 1 << 25)),
        "max_request_size": 10_000,
        "bootstrap_timeout_ms": rng.choice((500, 3_000)),
    }
    kind = rng.random()
    if kind < 0.1:
        options["acks"] = rng.choice((0, 1))
    named = f"name{number}" if 0.1 <= kind < 0.4 else ""
    return ProducerHabits(
        options,
        sorted(rng.sample(sorted(topics), rng.randint(1, len(topics)))),
        rng.choice(((0.002, 0.03), (0.01, 0.1))),
        rng.choice((1, 4, 20)),
        rng.choice((0, 0, 5)),
        rng.choice((0.0, 0.01, 0.05)),
        named,
    )


def _draw_consumer(rng: random.Random, topics: dict[str, int]) -> ConsumerHabits:
    return ConsumerHabits(
        {
            "request_timeout_ms": rng.choice((300, 1_000, 5_000)),
            "metadata_max_age_ms": rng.choice((200, 2_000)),
            "fetch_max_wait_ms": rng.choice((50, 200, 500)),
            "fetch_min_bytes": rng.choice((1, 1, 500)),
            "max_partition_fetch_bytes": rng.choice((1_024, 100_000)),
            "fetch_max_bytes": rng.choice((200_000, 1 << 22)),
            "bootstrap_timeout_ms": rng.choice((500, 3_000)),
        },
        sorted(topics),
        seeks=rng.choice((0.0, 0.0, 0.05, 0.3)),
        pauses=rng.choice((0.0, 0.1)),
        closes=rng.choice((0.0, 0.02)),
    )


def _draw_group(rng: random.Random, group_id: str, topics: dict[str, int], election_timeout_ms: int) -> GroupHabits:
    session_ms = int(election_timeout_ms * rng.choice((2.5, 4, 6)))
    by_pattern = rng.random() < 0.3
    chosen = sorted(rng.sample(sorted(topics), rng.randint(1, len(topics))))
    return GroupHabits(
        group_id,
        {
            "session_timeout_ms": session_ms,
            "heartbeat_interval_ms": max(50, session_ms // 6),
            "max_poll_interval_ms": int(session_ms * rng.choice((1, 3))),
            "enable_auto_commit": rng.random() < 0.4,
            "auto_commit_interval_ms": rng.choice((50, 500)),
            "group_assignor": rng.choice((None, "uniform", "range")),
            "request_timeout_ms": rng.choice((500, 2_000, 5_000)),
            "metadata_max_age_ms": rng.choice((200, 2_000)),
            "fetch_max_wait_ms": rng.choice((50, 200, 500)),
            "bootstrap_timeout_ms": rng.choice((500, 3_000)),
        },
        sorted(topics) if by_pattern else chosen,
        "topic.*" if by_pattern else "",
        rng.choice(((0.0, 0.003), (0.001, 0.03), (0.01, 0.2))),
        rng.choice((0.1, 0.5, 1.0)),
        rng.choice((0.0, 0.02, 0.1)),
        rng.random() < 0.25,
        rng.random() < 0.3,
    )

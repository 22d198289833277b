"""Seeds in which producers write batches of Kafka's, or consumers read in its sessions: every promise holds."""

from __future__ import annotations

from itertools import count, islice

import pytest

from quorumlog.simulator.seeds.plan import draw_plan
from quorumlog.simulator.seeds.simulation import Simulation


def writes_kafka(seed: int, *, compacts: bool) -> bool:
    """True if a seed has a producer of Kafka's batches, and has compacted topics exactly if ``compacts``."""
    plan = draw_plan(seed)
    return any(options.kafka for options in plan.producers.values()) and bool(plan.compacted) is compacts


@pytest.mark.parametrize(
    "seed",
    [
        seed
        for compacts in (True, False)
        for seed in islice(filter(lambda n: writes_kafka(n, compacts=compacts), count(1)), 2)
    ],
)
def test_every_promise_holds_where_kafkas_batches_are_written(seed: int) -> None:
    result = Simulation(seed).run()
    assert result.violation is None, f"seed {seed}: {result.violation}"
    assert result.acknowledged > 0


@pytest.mark.parametrize("seed", list(islice((seed for seed in count(1) if draw_plan(seed).kafka.readers), 3)))
def test_every_promise_holds_where_kafkas_clients_read_in_sessions(seed: int) -> None:
    result = Simulation(seed).run()
    assert result.violation is None, f"seed {seed}: {result.violation}"

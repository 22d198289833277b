"""The SDK's own clients on virtual time, under faults of nodes, of the network and of their own."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter

import pytest

from quorumlog.simulator.clients.client_faults import KINDS
from quorumlog.simulator.models.committed_partition import Violation
from quorumlog.simulator.seeds.client_simulation import ClientSimulation
from quorumlog.simulator.seeds.story import Story, run_story
from quorumlog.simulator.seeds.summary import Tally, replay_line
from quorumlog.simulator.simulate import run_seeds

SEEDS = range(1, 41)


@pytest.mark.timeout(600)
def test_fixed_seeds_keep_every_promise_to_the_shipped_clients(capsys: pytest.CaptureFixture[str]) -> None:
    tally = Tally(Story.CLIENTS)
    struck: Counter[str] = Counter()
    for result in run_seeds(SEEDS, jobs=2, story=Story.CLIENTS):
        tally.add(result)
        struck.update(result.faults)
    with capsys.disabled():
        print("\n" + "\n".join(tally.lines()))
    assert not tally.failed, "\n".join(replay_line(result, Story.CLIENTS) for result in tally.failed)
    assert {f"client-{kind}" for kind in KINDS} <= set(struck), "every kind of fault happens in some seed"
    assert tally.acknowledged > 50 * len(SEEDS) and tally.group_records > 20 * len(SEEDS)
    assert tally.happened["deletions"] > len(SEEDS) / 2, "topics are deleted and created again during the runs"


@pytest.mark.parametrize("seed", [3, 29, 30, 57])
def test_a_seed_does_the_same_things_again_whatever_the_hash_seed(seed: int) -> None:
    program = f"from quorumlog.simulator.seeds.story import *; print(run_story({seed}, Story.CLIENTS).trace)"
    traces = {
        subprocess.run(
            [sys.executable, "-c", program],
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            capture_output=True,
            text=True,
            check=True,
            timeout=100,
        ).stdout.strip()
        for hash_seed in ("0", "12345")
    }
    assert len(traces) == 1
    assert len(traces.pop()) == 32


def test_what_the_logs_had_when_members_were_stopped_is_demanded_of_their_groups() -> None:
    simulation = ClientSimulation(3, with_groups=True)
    assert simulation.run().violation is None and simulation._reached
    for part in simulation._reached:
        simulation._reached[part] += 1
    with pytest.raises(Violation, match=r"was never (processed|read)"):
        simulation._judge()


def test_different_seeds_do_different_things() -> None:
    assert run_story(3, Story.CLIENTS).trace != run_story(4, Story.CLIENTS).trace

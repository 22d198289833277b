"""A hundred simulated clusters are formed, loaded, hurt and healed; none breaks a promise."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter

import pytest

from quorumlog.chaos.simulate import replay_line, run_seeds
from quorumlog.chaos.simulation import LEAST_EVENTS, Simulation

SEEDS = range(1, 101)


@pytest.mark.timeout(600)
def test_a_hundred_seeds_keep_every_promise(capsys: pytest.CaptureFixture[str]) -> None:
    results = list(run_seeds(SEEDS, jobs=2))
    failed = [replay_line(result) for result in results if result.violation is not None]
    faults = Counter[str]()
    for result in results:
        faults.update(result.faults)
    with capsys.disabled():
        print(
            f"\nseeds {SEEDS.start} to {SEEDS.stop - 1}: {sum(result.events for result in results)} events,"
            f" {faults.total()} faults, {sum(result.acknowledged for result in results)} records acknowledged"
        )
    assert not failed, "\n".join(failed)
    assert len(results) == len(SEEDS)
    assert all(result.events >= LEAST_EVENTS for result in results)
    assert all(result.acknowledged > 0 for result in results)
    assert len(faults) == 15, "every kind of fault happens in some seed"


@pytest.mark.parametrize("seed", [3, 8])
def test_a_seed_does_the_same_things_again_whatever_the_hash_seed(seed: int) -> None:
    program = f"from quorumlog.chaos.simulation import Simulation; print(Simulation({seed}).run().trace)"
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


def test_different_seeds_do_different_things() -> None:
    assert Simulation(3).run().trace != Simulation(4).run().trace


def test_disks_that_lie_about_their_syncs_are_found_out() -> None:
    found = [Simulation(seed, disks_lie=True).run().violation for seed in range(5)]
    assert all(found), found

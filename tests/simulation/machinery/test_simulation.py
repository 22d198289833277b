"""Hundreds of simulated clusters are formed, loaded, hurt and healed; none breaks a promise."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from quorumlog.simulator.seeds.faults import KINDS
from quorumlog.simulator.seeds.simulation import LEAST_EVENTS, Simulation
from quorumlog.simulator.seeds.summary import Tally, replay_line
from quorumlog.simulator.simulate import main, run_seeds

SEEDS = range(1, 101)


@pytest.mark.timeout(600)
def test_fixed_seeds_keep_every_promise(capsys: pytest.CaptureFixture[str]) -> None:
    tally = Tally()
    loaded = 0
    began = time.monotonic()
    for result in run_seeds(SEEDS, jobs=2):
        tally.add(result)
        loaded += result.acknowledged > 0
    tally.wall_seconds = time.monotonic() - began
    with capsys.disabled():
        print("\n" + "\n".join(tally.lines()))
    assert not tally.failed, "\n".join(replay_line(result) for result in tally.failed)
    assert tally.seeds == tally.seeds_of_least_events == len(SEEDS)
    assert loaded > 0.9 * len(SEEDS), "clusters must be written to during faults"
    assert tally.faults.total() > 6 * len(SEEDS)
    assert set(tally.faults) == set(KINDS), "every kind of fault happens in some seed"


@pytest.mark.parametrize("seed", [3, 8])
def test_a_seed_does_the_same_things_again_whatever_the_hash_seed(seed: int) -> None:
    program = f"from quorumlog.simulator.seeds.simulation import Simulation; print(Simulation({seed}).run().trace)"
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


def test_a_run_ends_with_its_seeds_or_its_minutes_whichever_comes_first(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    record = tmp_path / "run.json"
    assert main(["--seeds", "3", "--minutes", "5", "--start", "7", "--jobs", "1", "--record", str(record)]) == 0
    written = json.loads(record.read_text())
    assert (written["seeds"], written["first_seed"], written["last_seed"]) == (3, 7, 9)
    assert written[f"seeds_of_{LEAST_EVENTS}_events"] == 3
    assert written["least_events"] >= LEAST_EVENTS
    assert written["violations"] == []
    assert f"{written['events']} events" in capsys.readouterr().out
    assert main(["--seeds", "1000000", "--minutes", "0", "--jobs", "1"]) == 0
    assert "0 seeds" in capsys.readouterr().out


def test_disks_that_lie_about_their_syncs_are_found_out() -> None:
    found = [Simulation(seed, disks_lie=True).run().violation for seed in range(5)]
    assert all(found), found

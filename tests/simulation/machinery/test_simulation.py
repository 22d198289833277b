"""Hundreds of simulated clusters are formed, loaded, hurt and healed; none breaks a promise."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from quorumlog.simulator.seeds.faults import KINDS
from quorumlog.simulator.seeds.simulation import LEAST_EVENTS, Simulation
from quorumlog.simulator.seeds.story import Story
from quorumlog.simulator.seeds.summary import Tally, replay_line
from quorumlog.simulator.simulate import main, run_seeds
from tests.support.repeated_seeds import traces_with_other_hashes

#: ``make test-compiled`` runs the next ones. The last one here has the fault that the others lack.
SEEDS = (*range(1, 41), 68)
#: Of these, those that run twice.
REPEATED = (3, 8)


@pytest.mark.timeout(600)
def test_fixed_seeds_keep_every_promise(capsys: pytest.CaptureFixture[str]) -> None:
    """Every seed takes a course of its own, and the same course again."""
    tally = Tally()
    loaded = 0
    traces: dict[int, str] = {}
    began = time.monotonic()
    for result in run_seeds(SEEDS, jobs=2):
        tally.add(result)
        traces[result.seed] = result.trace
        loaded += result.acknowledged > 0
    tally.wall_seconds = time.monotonic() - began
    with capsys.disabled():
        print("\n" + "\n".join(tally.lines()))
    assert not tally.failed, "\n".join(replay_line(result) for result in tally.failed)
    assert tally.seeds == tally.seeds_of_least_events == len(SEEDS)
    assert loaded > 0.9 * len(SEEDS), "clusters must be written to during faults"
    assert tally.faults.total() > 6 * len(SEEDS)
    assert set(tally.faults) == set(KINDS), "every kind of fault happens in some seed"
    assert len(set(traces.values())) == len(SEEDS)
    assert {len(trace) for trace in traces.values()} == {32}
    assert traces_with_other_hashes(REPEATED, Story.NODES) == {seed: traces[seed] for seed in REPEATED}


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

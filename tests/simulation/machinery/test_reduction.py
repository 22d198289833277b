"""A failing seed is cut down to the faults that matter, and its end can be read."""

from __future__ import annotations

from pathlib import Path

import pytest

from quorumlog.server.partition.producer_table import ProducerTable
from quorumlog.simulator.seeds.fault_schedule import InjectedFault
from quorumlog.simulator.seeds.reduction import invariant_of, reduce_faults
from quorumlog.simulator.seeds.simulation import SeedResult, Simulation
from quorumlog.simulator.seeds.transcript import transcript
from quorumlog.simulator.simulate import main

#: A seed that is known to notice the planted bug. When the code has changed, the search continues from there.
FIRST_SEED = 154
MOST_SEEDS = 150


def struck_of(numbers: list[int]) -> list[InjectedFault]:
    return [InjectedFault(number, 1_000 * number, "kill") for number in numbers]


@pytest.mark.parametrize("needed", [set(), {7}, {3, 11}, {1, 2, 20}, set(range(1, 21))])
def test_the_faults_that_are_needed_are_left_and_no_others(needed: set[int]) -> None:
    def run(faults: frozenset[int] | None) -> SeedResult:
        struck = [number for number in range(1, 21) if faults is None or number in faults]
        broken = needed <= set(struck)
        # Without all of them there may be another violation, which is not the one that is looked for.
        violation = "value v.7 is committed twice" if broken else "no convergence" if struck else None
        return SeedResult(seed=1, struck=struck_of(struck), violation=violation)

    reduction = reduce_faults(run)
    assert reduction is not None
    assert reduction.faults == needed
    assert reduction.faults_before == 20


def test_the_search_is_bounded_and_keeps_what_it_has_found() -> None:
    def run(faults: frozenset[int] | None) -> SeedResult:
        struck = [number for number in range(1, 101) if faults is None or number in faults]
        return SeedResult(seed=1, struck=struck_of(struck), violation="odd" if len(struck) > 3 else None)

    reduction = reduce_faults(run, most_runs=5)
    assert reduction is not None
    assert reduction.runs <= 5
    assert reduction.result.violation == "odd"
    assert 3 < len(reduction.faults) < 100


def test_a_seed_that_keeps_its_promises_has_nothing_to_cut_down(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--seed", "3", "--reduce"]) == 0
    assert "nothing to reduce" in capsys.readouterr().out


def test_violations_of_one_kind_are_told_from_others() -> None:
    one = invariant_of("value producer1.16 is committed twice in group 1000: at 28 and at 31")
    assert one == invariant_of("value producer0.7 is committed twice in group 1001: at 2 and at 3")
    assert one != invariant_of("commit index of group 1000 on node 2 went back: 5 → 4")


def test_leaving_faults_out_does_not_change_the_others() -> None:
    whole = Simulation(5).run().struck
    assert len(whole) > 3
    wanted = {whole[1].number, whole[3].number}
    some = Simulation(5, wanted).run().struck
    assert some == [fault for fault in whole if fault.number in wanted]
    assert Simulation(5, set()).run().struck == []


def seed_that_fails() -> int:
    for seed in range(FIRST_SEED, FIRST_SEED + MOST_SEEDS):
        result = Simulation(seed).run()
        if result.violation is not None and len(result.struck) > 1:
            return seed
    pytest.fail(f"{MOST_SEEDS} seeds do not notice the planted bug")


@pytest.mark.interpreted("plants its bug into methods, which callers in the same unit of compilation do not look up")
@pytest.mark.timeout(400)
def test_a_planted_bug_is_cut_down_to_a_transcript(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(ProducerTable, "drop_tail", lambda self: None)
    monkeypatch.setattr(ProducerTable, "rebuild_tail", lambda self, uncommitted: None)
    seed = seed_that_fails()
    whole = Simulation(seed).run()
    reduction = reduce_faults(lambda faults: Simulation(seed, faults).run())
    assert reduction is not None and reduction.result.violation is not None and whole.violation is not None
    assert invariant_of(reduction.result.violation) == invariant_of(whole.violation)
    assert len(reduction.faults) <= len(whole.struck)

    text, again = transcript(seed, reduction.faults)
    assert again.violation == reduction.result.violation
    assert again.trace == reduction.result.trace, "watching changes nothing"
    assert text.startswith(f"seed {seed}: {again.violation}")
    for fault in again.struck:
        assert f"--- fault {fault.number} {fault.kind}" in text
    assert "AppendRequest term" in text
    assert "is leader in term" in text
    assert len(text.splitlines()) < 250

    story = tmp_path / "story.txt"
    assert main(["--seed", str(seed), "--reduce", "--out", str(story)]) == 1
    assert story.read_text() == text
    assert f"of {len(whole.struck)} faults left" in capsys.readouterr().out

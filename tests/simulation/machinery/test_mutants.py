"""The tests are not blind: planted faults are found. All patches must fit the source; a few are tried here.

``make mutants`` tries them all.
"""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest

from quorumlog.simulator.mutate import CheckError, Workshop, main
from quorumlog.simulator.mutation.checks import Verdict, seeded, seeds_of
from quorumlog.simulator.mutation.mutant import (
    CHECKOUT,
    Mutant,
    SourceChange,
    StalePatchError,
    load_mutants,
)

MUTANTS = load_mutants()
#: One of the core's elections, of its log, of the host, of the node and of storage: each is found within seconds.
TRIED_HERE = (
    "vote_not_persisted",
    "delayed_append_truncates",
    "hard_state_in_a_later_transaction",
    "deduplication_skipped",
    "offset_rows_left_by_truncation",
)
HARMLESS = SourceChange("raft/quorum.py", "len(voters) // 2 + 1\n", "1 + len(voters) // 2\n")


@pytest.fixture(scope="module")
def workshop(tmp_path_factory: pytest.TempPathFactory) -> Workshop:
    return Workshop(tmp_path_factory.mktemp("workshop"))


def mutant(*changes: SourceChange, checks: tuple[str, ...] = ("storms 0..1",), name: str = "planted") -> Mutant:
    return Mutant(name, "a story", 0, checks, changes)


@pytest.mark.parametrize("planted", MUTANTS, ids=lambda planted: planted.name)
def test_every_patch_fits_the_source_and_its_checks_exist(planted: Mutant, tmp_path: Path) -> None:
    """Only the files that a patch changes are copied: there are a thousand of patches, and of files."""
    for file in {change.file for change in planted.changes}:
        target = tmp_path / "quorumlog" / file
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes((CHECKOUT / "src" / "quorumlog" / file).read_bytes())
    planted.apply(tmp_path)
    for change in planted.changes:
        source = (tmp_path / "quorumlog" / change.file).read_text()
        if change.file.endswith(".py"):
            compile(source, change.file, "exec")
        assert source != (CHECKOUT / "src" / "quorumlog" / change.file).read_text(), "the patch changes nothing"
    for check in planted.checks:
        parts = seeded(check)
        assert (CHECKOUT / check.partition("::")[0]).is_file() if parts is None else list(seeds_of(parts[1]))


def test_there_are_mutants_of_every_layer() -> None:
    layers = {change.file.partition("/")[0] for planted in MUTANTS for change in planted.changes}
    assert layers == {"wire", "raft", "storage", "server", "sdk", "local", "chaos", "simulator", "console", "cli"}
    assert len(MUTANTS) >= 24


@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", TRIED_HERE)
def test_a_planted_fault_is_found(name: str, workshop: Workshop) -> None:
    (planted,) = (planted for planted in MUTANTS if planted.name == name)
    outcome = workshop.try_mutant(planted)
    assert outcome.verdict is not None, f"survived {outcome.silent}"
    assert not workshop.check_pristine([outcome.verdict])


def test_many_tests_are_run_on_unchanged_packages(workshop: Workshop, monkeypatch: pytest.MonkeyPatch) -> None:
    """The names of all tests that catch a mutant are longer than the system allows for one argument."""
    checks: list[str] = []

    def run(self: Workshop, check: str, tree: Path, modules: list[str]) -> Verdict:
        checks.append(check)
        return Verdict()

    monkeypatch.setattr(Workshop, "run", run)
    tests = [f"tests/test_{number:04}.py::{'long' * 20}" for number in range(2_000)]
    assert not workshop.check_pristine([Verdict("found", by) for by in tests])
    assert "\n".join(checks).split("\n") == tests
    assert max(map(len, checks)) < 1 << 15


def test_a_harmless_change_survives(workshop: Workshop) -> None:
    outcome = workshop.try_mutant(mutant(HARMLESS))
    assert outcome.verdict is None
    assert outcome.silent == ("storms 0..1",)


def test_a_patch_that_no_longer_fits_is_called_stale(workshop: Workshop) -> None:
    with pytest.raises(StalePatchError, match=r"of gone is stale: raft/quorum\.py contains .* 0 times"):
        workshop.try_mutant(mutant(SourceChange("raft/quorum.py", "not there", ""), name="gone"))


def test_a_check_that_does_not_load_the_mutant_has_no_say(workshop: Workshop) -> None:
    change = SourceChange("server/partition/retention.py", "BYTES_SLACK = 16", "BYTES_SLACK = 17")
    with pytest.raises(CheckError, match=r"does not load quorumlog\.server\.partition\.retention"):
        workshop.try_mutant(mutant(change, name="not_loaded"))


def test_a_check_that_does_not_end_has_no_say(tmp_path: Path) -> None:
    impatient = Workshop(tmp_path / "workshop", timeout_s=0.2)
    outcome = impatient.try_mutant(mutant(HARMLESS, checks=("storms 0..100000",)))
    assert outcome.verdict is None
    assert outcome.silent == ("storms 0..100000 (no end in 0 s)",)


def test_a_verdict_is_found_above_what_the_interpreter_complains_of_at_its_end() -> None:
    said = Verdict("it broke", "tests/x.py::test_y")
    output = f"1 failed\n{json.dumps(dataclasses.asdict(said))}\nTask was destroyed but it is pending!\n"
    assert Verdict.last_in(output) == said
    with pytest.raises(ValueError, match="no verdict"):
        Verdict.last_in("1 failed\n")


def test_seeds_are_ranges_with_both_ends_or_lists() -> None:
    assert list(seeds_of("4,16,20..22")) == [4, 16, 20, 21, 22]


@pytest.mark.parametrize("text", ["story = ", 'story = "s"', 'story = "s"\nchecks = []\nchange = []\nmore = 1'])
def test_a_file_that_is_no_mutant_is_named(tmp_path: Path, text: str) -> None:
    (tmp_path / "strange.toml").write_text(text)
    with pytest.raises(ValueError, match=r"strange\.toml: "):
        load_mutants(tmp_path)


def test_an_unknown_mutant_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--only", "unknown_name"])
    assert "no such mutant: unknown_name" in capsys.readouterr().err

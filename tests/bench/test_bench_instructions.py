"""Counted instructions: sides, and what is missing."""

from pathlib import Path

import pytest

from bench.compare import Contender
from bench.instructions import LOADS, CountError, count, main


@pytest.mark.parametrize("load", [name for name in LOADS if name != "10 groups, 8 entries"])
def test_every_load_runs(load: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Without Valgrind, which would take minutes: all runs are counted alike."""
    shown = tmp_path / "valgrind"
    shown.write_text('#!/bin/sh\nshift 3\n"$@" || exit $?\necho "==1== I   refs:      1,000" >&2\n')
    shown.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    assert count(Contender("this checkout"), load) == 0


def test_another_checkout_runs_its_own_loads(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Its loads import modules of its own that may have other names here."""
    checkout = tmp_path / "checkout"
    (checkout / "src" / "quorumlog").mkdir(parents=True)
    (checkout / "bench").mkdir()
    (checkout / "bench" / "__init__.py").touch()
    (checkout / "bench" / "rounds.py").write_text("def core_costs(n): raise SystemExit(f'its own, {n}')\n")
    shown = tmp_path / "valgrind"
    shown.write_text('#!/bin/sh\nshift 3\nexec "$@"\n')
    shown.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    with pytest.raises(CountError, match="exit status 1: its own, 1"):
        count(Contender("another", checkout / "src"), "core alone")


def test_without_valgrind_one_line_says_what_to_install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(CountError, match="install the package valgrind"):
        count(Contender("this checkout"), "1 group, 1 entry")


def test_one_side_is_not_enough(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["this"])
    assert "at least two sides" in capsys.readouterr().err


def test_an_unknown_side_is_named(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert main(["this", "no-such-commit", "--work-dir", str(tmp_path)]) == 2
    assert "no commit 'no-such-commit'" in capsys.readouterr().err


def test_a_failed_load_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    failing = tmp_path / "valgrind"
    failing.write_text("#!/bin/sh\necho it is broken >&2\nexit 3\n")
    failing.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(CountError, match="exit status 3: it is broken"):
        count(Contender("this checkout"), "core alone")

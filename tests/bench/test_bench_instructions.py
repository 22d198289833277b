"""Counted instructions: sides, and what is missing."""

from pathlib import Path

import pytest

from bench.compare import Contender
from bench.instructions import LOADS, CountError, count, main, run_load


@pytest.mark.parametrize("load", [name for name, shape in LOADS.items() if shape != (10, 8)])
def test_every_load_runs(load: str) -> None:
    run_load(load, 1)


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

"""The measurement of the steady state does what it says, at a size at which its figures mean nothing."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bench.steady_state import main


def test_logs_are_filled_written_through_and_measured(tmp_path: Path) -> None:
    figures = tmp_path / "figures.json"
    assert main(["--retained-mib", "2", "--batch-kib", "4", "--work-dir", str(tmp_path), "--json", str(figures)]) == 0
    [steady] = json.loads(figures.read_text())
    assert steady["batch_bytes"] == 4096
    assert 2 << 20 <= steady["retained_bytes"] < 3 << 20, "trimmed, and not too far"
    assert 0 < steady["file_bytes"] < 2 * steady["retained_bytes"]
    assert not list(tmp_path.glob("tmp*")), "nothing is left behind"


def test_amounts_that_make_no_sense_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--retained-mib", "0"]) == 2
    assert capsys.readouterr().err.count("\n") == 1

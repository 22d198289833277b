"""``python -m bench transactions``: a short version with real nodes, and what is held against its budget."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bench import transactions
from bench.peers.readings import Reading
from bench.transactions import APACHE, KILLED, OURS, PLAIN, PLAIN_RATE, RATE, TRANSACTION, VISIBLE, lines_of


def test_our_figures_are_held_against_their_budgets() -> None:
    readings = [
        Reading(PLAIN, "ms", OURS, 2.0),
        Reading(TRANSACTION, "ms", OURS, 9.0),
        Reading(TRANSACTION, "ms", APACHE, 10.0),
        Reading(PLAIN_RATE, "records/s", OURS, 1_000.0),
        Reading(RATE, "records/s", OURS, 900.0),
        Reading(VISIBLE, "ms", OURS, 31.0),
        *(Reading(KILLED, "ms", OURS, gap) for gap in (100.0, 150.0, 1_100.0)),
        Reading(KILLED, "ms", APACHE, 9_000.0),
    ]
    assert [(line.figure, line.met) for line in lines_of(readings)] == [
        ("4.50", False),
        ("0.90", True),
        ("1.11", True),
        ("31.0 ms", False),
        ("150 ms", True),
        ("1100 ms", False),
    ]
    assert lines_of([]) == []


@pytest.mark.alone
@pytest.mark.cluster
@pytest.mark.timeout(180)
def test_everything_is_measured(tmp_path: Path) -> None:
    report = tmp_path / "transactions.json"
    arguments = ["--only-ours", "--repetitions", "1", "--scale", "0.01", "--kills", "2", "--json", str(report)]
    assert transactions.main([*arguments, "--work-dir", str(tmp_path)]) == 0
    figures = json.loads(report.read_text())
    assert len(figures["rows"]) == 8
    assert len(figures["readings"]) == 9, "two kills"
    assert all(reading["value"] >= 0 for reading in figures["readings"])

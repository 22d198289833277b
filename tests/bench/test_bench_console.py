"""The benchmark of the web console: real nodes, a page as a browser has it, and a node that is killed."""

import json
from pathlib import Path

import pytest

from bench.console import main


@pytest.mark.cluster
def test_a_small_run_reports_what_a_page_costs_and_how_soon_it_knows(tmp_path: Path) -> None:
    report = tmp_path / "console.json"
    assert main(["--partitions", "64", "--groups", "2", "--turns", "1", "--look", "0.2", "--json", str(report)]) == 0
    figures = json.loads(report.read_text())
    assert [len(turn) for turn in figures["node_percent"]] == [3]
    assert 1_000 < figures["packed_bytes"] < figures["state_bytes"]
    assert 0 < figures["leader_s"] < 30 and 0 < figures["down_s"] < 30
    assert {line["what"].partition(",")[0] for line in figures["lines"]} >= {
        "a node",
        "the console",
        "a dead node is shown",
    }

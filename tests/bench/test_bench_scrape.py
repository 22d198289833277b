"""The benchmark of scrapes: real nodes, and figures of each."""

import json
from pathlib import Path

import pytest

from bench.scrape import main


@pytest.mark.cluster
def test_a_small_run_reports_what_a_scrape_takes_and_costs(tmp_path: Path) -> None:
    report = tmp_path / "scrape.json"
    assert main(["--partitions", "6", "--groups", "2", "--scrapes", "2", "--idle", "0.2", "--json", str(report)]) == 0
    figures = json.loads(report.read_text())
    assert [len(each) for each in figures["seconds"]] == [2, 2, 2]
    assert min(figures["samples"]) > 100
    assert len(figures["cpu_s_per_scrape"]) == 3

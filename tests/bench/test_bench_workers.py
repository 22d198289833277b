"""The benchmark of workers: real nodes and clients, and figures of each."""

import json
from pathlib import Path

import pytest

from bench.workers import main


@pytest.mark.cluster
def test_a_small_run_measures_workers(tmp_path: Path) -> None:
    """One machine with one worker and with two: every load has a rate, and every node its memory."""
    report = tmp_path / "workers.json"
    arguments = ["--machines", "1", "--workers", "1", "2", "--clients", "2", "--partitions", "4", "--seconds", "0.5"]
    assert main([*arguments, "--idle", "0.5", "--json", str(report), "--work-dir", str(tmp_path)]) == 0
    figures = json.loads(report.read_text())
    assert [(run["workers"], run["nodes"], run["partitions"]) for run in figures["runs"]] == [(1, 1, 4), (2, 2, 4)]
    for run in figures["runs"]:
        assert [(load["kind"], load["size"]) for load in run["loads"]] == [
            ("produce", 1024), ("consume", 1024), ("produce", 65536), ("consume", 65536),
        ]  # fmt: skip
        assert all(load["records_per_s"] > 0 for load in run["loads"])
        assert all(load["node_cores"] > 0 and load["busy_cores"] > 0 for load in run["loads"])
        assert all(load["node_cpu_us_per_batch"] > 0 for load in run["loads"] if load["kind"] == "produce")
        assert len(run["private_kib"]) == len(run["idle_cpu_percent"]) == run["nodes"]
        assert min(run["private_kib"]) > 1_000

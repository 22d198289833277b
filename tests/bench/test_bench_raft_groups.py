"""The benchmark of many idle partitions: real nodes, a kill, a restart, and figures of all of it."""

import json
import os
from pathlib import Path

import pytest

from bench.process_cost import cpu_seconds, memory_of, watch
from bench.raft_groups import main
from bench.target_table import FigureLine


@pytest.mark.cluster
def test_a_small_run_reports_idleness_memory_and_failover(tmp_path: Path) -> None:
    report = tmp_path / "groups.json"
    assert main(["--groups", "9", "--idle", "0.3", "--json", str(report)]) == 0
    figures = json.loads(report.read_text())
    assert (figures["groups"], len(figures["idle"]["cpu_percent"]), figures["failover"]["led"]) == (9, 3, 3)
    assert len(figures["idle_one_down"]["cpu_percent"]) == 2
    assert 0 < figures["failover"]["first_write_s"] <= figures["failover"]["all_write_s"]
    assert figures["restart_in_sync_s"] >= figures["restart_ready_s"] > 0
    targets = [line["target"] for line in figures["lines"] if line["target"] is not None]
    assert {0, 2.0, 10.0, 0.5, 5.0} == set(targets)
    assert figures["moved_while_idle"] == 0


def test_a_figure_without_a_target_is_neither_met_nor_missed() -> None:
    assert FigureLine("what", "3 s", 3.0).met is None
    assert FigureLine("what", "3 s", 3.0, 3.0).met is True
    assert FigureLine("what", "3 s", 3.1, 3.0).met is False


def test_the_kernels_counts_of_a_process_are_read() -> None:
    before = cpu_seconds(os.getpid())
    memory = memory_of(os.getpid())
    assert memory.resident > memory.private > 0
    seen = watch([os.getpid()], 0.01)
    assert seen.seconds >= 0.01
    assert len(seen.cpu_percent) == len(seen.wake_ups_per_s) == 1
    while cpu_seconds(os.getpid()) == before:
        pass

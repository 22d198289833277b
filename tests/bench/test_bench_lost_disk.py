"""A short version of the benchmark of a lost disk: real nodes, real data, and figures of all of it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bench import lost_disk

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(120)]


def test_a_lost_disk_is_replaced_under_load_without_an_error(tmp_path: Path) -> None:
    report = tmp_path / "lost.json"
    shape = ["--partitions", "6", "--partition-bytes", "200000", "--rate", "50", "--watch", "2"]
    throttle = ["--throttle", "5000000", "--work-dir", str(tmp_path)]
    assert lost_disk.main([*shape, *throttle, "--json", str(report)]) == 0
    figures = json.loads(report.read_text())["figures"]
    assert figures["errors"] == 0
    assert figures["size_bytes"] > 6 * 200_000
    assert figures["in_sync_s"] > 0

"""A short version of the benchmark of a drain: real nodes, real data, and figures of all of it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bench import drained_node

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(120)]


def test_a_node_is_drained_under_load_without_an_error(tmp_path: Path) -> None:
    report = tmp_path / "drain.json"
    shape = ["--partitions", "9", "--partition-bytes", "200000", "--rate", "50", "--watch", "2"]
    throttle = ["--throttle", "5000000", "--work-dir", str(tmp_path)]
    assert drained_node.main([*shape, *throttle, "--json", str(report)]) == 0
    figures = json.loads(report.read_text())["figures"]
    assert (figures["replicas"], figures["errors"]) == (9, 0)
    assert figures["size_bytes"] > 9 * 150_000
    assert figures["drain_s"] > 0

"""The benchmark of messages between nodes: every transport answers every message."""

import json
from pathlib import Path

import pytest

from bench import messages


@pytest.mark.cluster
def test_all_transports_are_measured(tmp_path: Path) -> None:
    """Each transport and size has a cost, and the other process has ended."""
    figures = tmp_path / "figures.json"
    assert messages.main(["--messages", "50", "--repetitions", "2", "--in-flight", "3", "--json", str(figures)]) == 0
    report = json.loads(figures.read_text())
    assert set(report["costs"]) == {f"{name}, {size}" for name in messages.TRANSPORTS for size in messages.SIZES}
    assert all(len(runs) == 2 for runs in report["costs"].values())

"""Short versions of the benchmarks of consumer groups: real nodes, real members, and figures of all of it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bench import consumer_heartbeats, coordinator_failover, rebalance

pytestmark = [pytest.mark.alone, pytest.mark.cluster, pytest.mark.timeout(120)]


def test_heartbeats_are_counted_and_what_they_cost(tmp_path: Path) -> None:
    report = tmp_path / "heartbeats.json"
    shape = ["--groups", "6", "--members", "3", "--partitions", "4", "--clients", "2"]
    times = ["--session-ms", "4000", "--join-rate", "200", "--watch", "3"]
    assert consumer_heartbeats.main([*shape, *times, "--json", str(report)]) == 0
    figures = json.loads(report.read_text())
    assert (len(figures["idle"]["cpu_percent"]), len(figures["busy"]["cpu_percent"])) == (3, 3)
    # A third of so short a session is the interval.
    assert 0.3 * 18 / 1.333 < figures["answered_per_s"] < 3 * 18 / 1.333
    assert (figures["moved"], figures["lost"], figures["errors"]) == (0, 0, {})


def test_all_members_are_back_after_their_coordinator_was_killed_and_nothing_was_reassigned(tmp_path: Path) -> None:
    report = tmp_path / "failover.json"
    arguments = ["--members", "6", "--kills", "1", "--clients", "2", "--json", str(report)]
    assert coordinator_failover.main(arguments) == 0
    (failover,) = json.loads(report.read_text())["failovers"]
    assert len(failover["back_s"]) == 6
    assert (failover["changed"], failover["lost"]) == ([], 0)
    assert failover["successor"] != failover["coordinator"]


def test_gaps_around_a_join_are_measured(tmp_path: Path) -> None:
    report = tmp_path / "rebalance.json"
    arguments = ["--only", "join", "--repetitions", "1", "--partitions", "6", "--quiet", "0.5"]
    assert rebalance.main([*arguments, "--json", str(report)]) == 0
    effect = json.loads(report.read_text())["effects"]["join"]
    assert effect["moved"]
    assert len(effect["moved"]) + len(effect["unmoved"]) == 6

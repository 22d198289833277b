"""Short versions of the chaos scenarios: real processes, real faults, every acknowledgement checked."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from quorumlog.chaos.checkers.history import History
from quorumlog.chaos.processes.ballast import PARTITIONS
from quorumlog.chaos.processes.nemesis import Nemesis
from quorumlog.chaos.processes.scenarios import SCENARIOS, run_scenario

pytestmark = [pytest.mark.chaos, pytest.mark.cluster, pytest.mark.timeout(240)]


def node_processes() -> list[psutil.Process]:
    """Node processes that this process has started, or its spawners have forked, and that still run."""
    return [child for child in psutil.Process().children(recursive=True) if is_node(child)]


def is_node(child: psutil.Process) -> bool:
    if child.status() == psutil.STATUS_ZOMBIE:
        return False
    line, parent = child.cmdline(), child.parent()
    is_forked = "quorumlog.local.node_spawner" in line and parent is not None and parent.cmdline() == line
    return is_forked or "quorumlog.server" in line


#: Rounds of each scenario here; "steady" has none.
ROUNDS = {
    "kill-leader": 2,
    "kill-controller": 1,
    "kill-follower": 1,
    "pause-leader": 1,
    "stop-leader": 1,
    "rolling-restart": 3,
    "isolate-follower": 1,
    "deafen-leader": 1,
}
#: Those that run with TLS, passwords and rules. What they do to links, isolate-follower does without.
SECURED = {"deafen-leader"}
#: The fault must move no other leadership. A busy machine moves some too, and then nothing is checked.
SPARING = {"isolate-follower"}


@pytest.mark.parametrize(
    ("name", "rounds"),
    [pytest.param(*each, marks=[pytest.mark.alone] if each[0] in SPARING else []) for each in ROUNDS.items()],
)
def test_no_acknowledged_record_is_lost(name: str, rounds: int, tmp_path: Path) -> None:
    report = run_scenario(name, rounds=rounds, report_dir=tmp_path, secure=name in SECURED)
    assert report.passed, "\n".join(report.summary())
    assert len({one.number for one in report.rounds}) == rounds
    assert report.acknowledged > 0
    fault = SCENARIOS[name].fault
    assert fault is not None
    assert all((one.shrink_s is not None) == fault.shrinks for one in report.rounds)
    assert json.loads((tmp_path / "report.json").read_text())["passed"] is True
    assert "<svg" in (tmp_path / "index.html").read_text()
    assert len(History.load(tmp_path / "history.jsonl")) >= report.acknowledged
    assert node_processes() == []
    if report.not_checked:
        pytest.skip(f"not checked: {'; '.join(report.not_checked)}")


def test_a_damaged_file_heals_without_a_hand(tmp_path: Path) -> None:
    report = run_scenario("damage", rounds=2, report_dir=tmp_path)
    assert report.passed, "\n".join(report.summary())
    assert report.read > 0
    assert node_processes() == []


def test_every_scenario_has_a_short_version_here() -> None:
    others = {"steady", "exactly-once", "compaction", "retention", "groups", "damage", "transactions"}
    assert set(SCENARIOS) == {*ROUNDS, *others}


def test_every_record_is_there_once_whoever_sent_it_and_whatever_was_done_to_the_leaders(tmp_path: Path) -> None:
    report = run_scenario("exactly-once", rounds=3, records=20_000, report_dir=tmp_path)
    assert report.passed, "\n".join(report.summary())
    assert (report.acknowledged, report.unknown, report.failed, report.read) == (20_000, 0, 0, 20_000)
    assert len(report.rounds) == 3
    assert json.loads((tmp_path / "report.json").read_text())["read"] == 20_000
    assert node_processes() == []


def test_what_kafkas_own_client_sends_is_there_once_and_in_order_whatever_was_done_to_the_leaders(
    tmp_path: Path,
) -> None:
    report = run_scenario("exactly-once", rounds=3, records=12_000, report_dir=tmp_path, kafka=True)
    assert report.passed, "\n".join(report.summary())
    assert (report.acknowledged, report.unknown, report.failed, report.read) == (12_000, 0, 0, 12_000)
    assert node_processes() == []


def test_every_last_value_is_there_whatever_moment_of_its_compaction_a_node_dies_in(tmp_path: Path) -> None:
    report = run_scenario("compaction", rounds=3, report_dir=tmp_path)
    assert report.passed, "\n".join(report.summary())
    assert len(report.rounds) == 3
    assert report.read < report.acknowledged
    assert node_processes() == []


def test_a_log_that_is_trimmed_serves_all_that_is_kept_and_no_more_whenever_a_node_is_killed(tmp_path: Path) -> None:
    report = run_scenario("retention", rounds=4, report_dir=tmp_path)
    assert report.passed, "\n".join(report.summary())
    assert report.acknowledged > report.read > 0
    assert node_processes() == []


@pytest.mark.alone  # Members have short sessions.
def test_groups_skip_nothing_and_repeat_only_uncommitted_work_whoever_dies(tmp_path: Path) -> None:
    report = run_scenario("groups", rounds=1, report_dir=tmp_path)
    assert report.passed, "\n".join(report.summary())
    assert report.acknowledged == report.read > 0
    assert report.groups is not None
    assert len(report.groups.rounds) == 1
    assert [group.group for group in report.groups.groups] == ["plain", "lazy", "static"]
    assert all(sum(group.duplicates.values()) == group.worked - report.read for group in report.groups.groups)
    assert json.loads((tmp_path / "report.json").read_text())["groups"]["rounds"][0]["what"].startswith("node ")
    assert (tmp_path / "groups.jsonl").stat().st_size > 0
    assert node_processes() == []


@pytest.mark.alone  # Members have short sessions.
def test_groups_of_kafkas_own_client_skip_nothing_and_repeat_only_uncommitted_work(tmp_path: Path) -> None:
    report = run_scenario("groups", rounds=1, report_dir=tmp_path, kafka=True)
    assert report.passed, "\n".join(report.summary())
    assert report.acknowledged == report.read > 0
    assert report.groups is not None
    assert all(sum(group.duplicates.values()) == group.worked - report.read for group in report.groups.groups)
    assert node_processes() == []


def test_sums_are_constant_whatever_loses_power(tmp_path: Path) -> None:
    report = run_scenario("transactions", rounds=3, records=1_200, report_dir=tmp_path)
    assert report.passed, "\n".join(report.summary())
    assert report.read == 2_400
    figures = report.transfers
    assert figures is not None
    assert (figures.transfers, figures.audits, len(figures.rounds)) == (1_200, 4, 3)
    assert figures.committed > 0
    assert json.loads((tmp_path / "report.json").read_text())["transfers"]["client"] == "librdkafka"
    assert ":value [[:r 0 [" in (tmp_path / "history.edn").read_text()
    assert node_processes() == []


def test_clients_of_other_scenarios_are_refused() -> None:
    with pytest.raises(ValueError, match="only transactions accepts a client, groups does not: omit it"):
        run_scenario("groups", client="librdkafka")


def test_kafkas_client_where_there_is_none_is_refused() -> None:
    line = "only exactly-once, groups and transactions support Kafka's client, kill-leader does not"
    with pytest.raises(ValueError, match=line):
        run_scenario("kill-leader", kafka=True)


@pytest.mark.alone  # It measures the peak.
def test_nothing_moves_without_a_fault_and_the_load_is_what_was_asked_for(tmp_path: Path) -> None:
    report = run_scenario("steady", duration_s=2, load=0.3, report_dir=tmp_path)
    assert report.passed, "\n".join(report.summary())
    steady = report.steady
    assert steady is not None
    assert steady.leaderships == 3 + PARTITIONS + 1
    assert 0 < steady.steady.acknowledged <= 0.3 * steady.peak.rate * steady.steady.seconds + PARTITIONS
    assert 0 < steady.steady.p50_ms <= steady.steady.p99_ms <= steady.steady.most_ms
    assert json.loads((tmp_path / "report.json").read_text())["steady"]["load"] == 0.3


@pytest.mark.parametrize("load", [0.0, 1.1])
def test_a_load_that_is_no_share_of_the_peak_is_refused(load: float) -> None:
    with pytest.raises(ValueError, match="is not a share of the peak: give a number above 0 and up to 1"):
        run_scenario("steady", load=load)


@pytest.mark.parametrize(
    ("name", "records", "line"),
    [
        ("exactly-once", 100, "100 records are too few for 8 rounds"),
        ("transactions", 500, "500 transfers are too few"),
        ("steady", 10_000, "only exactly-once and transactions accept"),
    ],
)
def test_a_number_of_records_that_makes_no_sense_is_refused(name: str, records: int, line: str) -> None:
    with pytest.raises(ValueError, match=line):
        run_scenario(name, records=records)


def test_nothing_is_left_behind_when_a_run_is_interrupted(monkeypatch: pytest.MonkeyPatch) -> None:
    running: list[int] = []

    def interrupt(nemesis: Nemesis, number: int) -> int:
        running.append(len(node_processes()))
        raise KeyboardInterrupt

    scenario = SCENARIOS["kill-follower"]
    assert scenario.fault is not None
    monkeypatch.setitem(SCENARIOS, "kill-follower", replace(scenario, fault=replace(scenario.fault, victim=interrupt)))
    with pytest.raises(KeyboardInterrupt):
        run_scenario("kill-follower", rounds=1)
    assert running == [3]
    assert node_processes() == []


def test_an_unknown_scenario_is_named_with_those_that_exist() -> None:
    with pytest.raises(ValueError, match="scenario 'kill-everything' does not exist: choose from kill-leader"):
        run_scenario("kill-everything")

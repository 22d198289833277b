"""A round that fails is the first thing that its report says, and takes no promise down with it that was kept."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from quorumlog.chaos.checkers.history import Operation, OperationKind, OperationOutcome
from quorumlog.chaos.processes import scenarios
from quorumlog.chaos.processes.compaction_rounds import CompactionRun
from quorumlog.chaos.processes.nemesis import ChaosError, Nemesis
from quorumlog.chaos.processes.once_writers import Gate, SdkOnceWriter, WriterKind, await_ended
from quorumlog.chaos.processes.report import Report
from quorumlog.chaos.processes.scenario_cluster import ClientOptions, ScenarioCluster
from quorumlog.chaos.processes.workload import Recorder, sequential_writer
from quorumlog.local import ClusterError
from quorumlog.sdk import Admin, TopicPartition

WRITTEN = 2 * scenarios.STEADY_ACKS


class FakeCluster:
    """Three nodes, of which the round has killed the first and paused the second."""

    node_ids = (1, 2, 3)
    client_options = ClientOptions(bootstrap_servers="nowhere:1")

    def __init__(self, can_start: bool = True) -> None:
        self.running = {2, 3}
        self.paused = {2}
        self._can_start = can_start

    def __enter__(self) -> FakeCluster:
        return self

    def __exit__(self, *error: object) -> None:
        pass

    def is_running(self, node: int) -> bool:
        return node in self.running

    def start(self, node: int) -> None:
        if not self._can_start:
            raise ClusterError(f"node {node} ended: its disk is gone")
        self.running.add(node)

    def resume(self, node: int) -> None:
        self.paused.discard(node)

    def kill(self, node: int) -> None:
        self.running.remove(node)

    def data_dir(self, node: int) -> Path:
        return Path(f"node-{node}")


class FakeWorkload:
    """Has written to every partition before the round starts; reads back the requested number of each."""

    readable = WRITTEN

    def __init__(self, clients: ClientOptions, partitions: list[TopicPartition], recorder: Recorder) -> None:
        self.failures: list[str] = []
        self.stopped = False
        self._partitions = partitions
        self._recorder = recorder

    def start(self) -> None:
        later = self._recorder.now_us() + 60_000_000
        for partition in self._partitions:
            for number in range(WRITTEN):
                self._add(partition, OperationKind.SEND, later + number, value=f"{partition}.{number}", offset=number)

    def stop(self) -> None:
        self.stopped = True

    def read_all(self, timeout_s: float) -> None:
        assert self.stopped
        for partition in self._partitions:
            records = [(number, f"{partition}.{number}") for number in range(self.readable)]
            self._add(partition, OperationKind.POLL, self._recorder.now_us(), records=records, final=True)
        if self.readable < WRITTEN:
            raise TimeoutError(f"a fresh reader does not reach the end: {self.readable} of {WRITTEN}")

    def _add(self, partition: TopicPartition, kind: OperationKind, now_us: int, **what: Any) -> None:
        where = f"{partition.topic}-{partition.partition}"
        self._recorder.add(
            Operation(sequential_writer(partition), kind, now_us, now_us, OperationOutcome.OK, where, **what)
        )


class FakeAdmin:
    """A writer without results."""

    def __enter__(self) -> FakeAdmin:
        return self

    def __exit__(self, *error: object) -> None:
        pass

    def create_topics(self, topics: object) -> None:
        pass


Run = tuple[Report, FakeCluster]
RunFailing = Callable[..., Run]


@pytest.fixture
def run_failing(monkeypatch: pytest.MonkeyPatch) -> RunFailing:
    """Runs a scenario whose first round fails in the given way."""

    def run(error: Exception, readable: int = WRITTEN, in_sync: bool = True, cluster: FakeCluster | None = None) -> Run:
        cluster = FakeCluster() if cluster is None else cluster

        def fail(nemesis: Nemesis, number: int) -> int:
            raise error

        def wait_isr_full(nemesis: Nemesis, timeout_s: float) -> float:
            if not in_sync:
                raise ChaosError(f"all replicas are in sync again: not within {timeout_s:g} s")
            return 0.0

        scenario = scenarios.SCENARIOS["kill-follower"]
        assert scenario.fault is not None
        failing = replace(scenario, fault=replace(scenario.fault, victim=fail))
        monkeypatch.setitem(scenarios.SCENARIOS, "kill-follower", failing)
        monkeypatch.setattr(scenarios, "ScenarioCluster", lambda nodes, secure: cluster)
        monkeypatch.setattr(scenarios, "operator_of", lambda cluster: FakeAdmin())
        monkeypatch.setattr(FakeWorkload, "readable", readable)
        monkeypatch.setattr(scenarios, "Workload", FakeWorkload)
        monkeypatch.setattr(scenarios, "replicas_agree", lambda data_dirs: [])
        monkeypatch.setattr(Nemesis, "wait_isr_full", wait_isr_full)
        return scenarios.run_scenario("kill-follower", rounds=2), cluster

    return run


@pytest.mark.parametrize(
    "error", [ChaosError("there is no follower"), ClusterError("node 3 ended"), AssertionError("no links")]
)
def test_after_a_failed_round_everything_is_healed_read_and_judged(run_failing: RunFailing, error: Exception) -> None:
    report, cluster = run_failing(error)
    assert not report.passed
    assert report.summary()[0] == f"FAILED: round 1: {error}"
    assert report.failures == [f"round 1: {error}"]
    assert (report.anomalies, report.not_checked) == ([], [])
    assert report.acknowledged == report.read == scenarios.PARTITIONS * WRITTEN
    # Healed first, then read; and only the comparison of their disks ends the nodes.
    assert (cluster.paused, cluster.running) == (set(), set())


def test_what_could_not_be_read_back_is_not_called_lost(run_failing: RunFailing) -> None:
    report, _ = run_failing(ChaosError("there is no follower"), readable=7)
    assert report.anomalies == []
    assert report.not_checked == [
        f"I3 and I8 up to the ends of the logs: a fresh reader does not reach the end: 7 of {WRITTEN}"
    ]
    assert report.summary()[0] == "FAILED: round 1: there is no follower"
    assert f"not checked: {report.not_checked[0]}" in report.summary()


def test_replicas_that_did_not_come_together_are_not_compared(
    run_failing: RunFailing, monkeypatch: pytest.MonkeyPatch
) -> None:
    compared: list[object] = []
    monkeypatch.setattr(scenarios, "replicas_agree", compared.append)
    report, _ = run_failing(ChaosError("there is no follower"), in_sync=False)
    assert compared == []
    assert report.not_checked == ["I9: all replicas are in sync again: not within 40 s"]
    assert report.read == scenarios.PARTITIONS * WRITTEN


def test_a_node_that_does_not_come_back_is_told_and_the_others_are_healed(run_failing: RunFailing) -> None:
    report, cluster = run_failing(ChaosError("there is no follower"), cluster=FakeCluster(can_start=False))
    assert report.failures == ["round 1: there is no follower", "node 1 ended: its disk is gone"]
    assert cluster.paused == set()
    assert report.anomalies == []


def test_what_is_lost_is_said_after_a_failed_round_too(
    run_failing: RunFailing, monkeypatch: pytest.MonkeyPatch
) -> None:
    def read_less(workload: FakeWorkload, timeout_s: float) -> None:
        workload._add(TopicPartition(scenarios.TOPIC, 0), OperationKind.POLL, 0, records=[(0, "x")], final=True)

    monkeypatch.setattr(FakeWorkload, "read_all", read_less)
    report, _ = run_failing(ChaosError("there is no follower"))
    assert {"I1", "I3", "I8"} <= {anomaly.invariant for anomaly in report.anomalies}
    assert report.not_checked == []


def test_a_key_that_was_being_written_when_the_writer_failed_has_no_last_value_to_lose() -> None:
    run = CompactionRun(cast(ScenarioCluster, FakeCluster()), cast(Admin, FakeAdmin()), 1, print)
    run.writer.last = {b"settled": b"1", b"unresolved": b"1"}
    run.writer.unresolved = {b"unresolved"}
    (anomaly,) = run._anomalies({0: (b"unresolved", b"2")})
    assert anomaly.message == "the last value of b'settled' is lost: None"


def test_writers_that_go_on_are_waited_for_no_longer_than_said() -> None:
    gate = Gate()
    writer = SdkOnceWriter(0, WriterKind.REPLAYING, 1_000, {"bootstrap_servers": "nowhere:1"}, "t", gate, 1)
    writer.start()
    with pytest.raises(TimeoutError, match=r"replaying-0 does not end within 0.01 s"):
        await_ended([writer], 0.01)
    gate.close()
    await_ended([writer], 60)

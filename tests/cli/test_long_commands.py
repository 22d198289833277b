"""Commands that last: what they say of how far they are, and when they are interrupted or left alone by the cluster."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from child_process import ChildProcess
from command_line import PATIENCE_S, cli, until

from quorumlog.cli import boundary, progress
from quorumlog.local import LocalCluster
from quorumlog.sdk import Admin, NewTopic

Count = list[tuple[float, int, float | None]]


@pytest.mark.parametrize(
    ("counted", "lines"),
    [
        ([(0.0, 0, 0.0), (4.9, 49, 0.5)], []),
        (
            [(5.0, 100_000, 0.25), (6.0, 110_000, 0.3), (10.0, 400_000, 1.2)],
            [
                "quorumlog: producing to t: 100,000 records, 20,000/s, 25 %, 0:00:15 left",
                "quorumlog: producing to t: 400,000 records, 40,000/s, 100 %, 0:00:00 left",
            ],
        ),
        ([(60.0, 60, None)], ["quorumlog: producing to t: 60 records, 1/s"]),
    ],
)
def test_without_a_terminal_a_line_every_five_seconds_says_how_far_it_is(
    counted: Count, lines: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    now = 0.0
    monkeypatch.setattr(progress.time, "monotonic", lambda: now)
    with progress.counting("producing to t", "records") as show:
        for now, count, share in counted:  # noqa: B007 - the clock reads it
            show(count, share)
    assert capsys.readouterr().err.splitlines() == lines


def test_what_the_clients_warn_of_is_one_line_of_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    for _ in range(2):
        boundary.say_what_clients_warn_of()
    logging.getLogger("quorumlog.sdk").info("node 2 leads t-0 now")
    logging.getLogger("quorumlog.sdk").warning("fetching from %s-%d has failed", "t", 0)
    assert capsys.readouterr().err == "quorumlog: warning: fetching from t-0 has failed\n"


@contextmanager
def running(cluster: LocalCluster, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    """A command that lasts."""
    command = [sys.executable, "-m", "quorumlog.cli.main", *arguments, "-b", cluster.bootstrap_servers]
    with ChildProcess(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"COLUMNS": "200"},
    ) as process:
        try:
            yield process
        finally:
            process.kill()


@pytest.fixture(scope="module")
def topic(quorumlog_cluster: LocalCluster) -> str:
    with Admin(bootstrap_servers=quorumlog_cluster.bootstrap_servers) as admin:
        admin.create_topics([NewTopic("lasting")])
    return "lasting"


@pytest.mark.cluster
def test_ctrl_c_in_produce_says_what_has_been_acknowledged(quorumlog_cluster: LocalCluster, topic: str) -> None:
    with running(quorumlog_cluster, "produce", topic) as produce:
        assert produce.stdin is not None
        produce.stdin.write("one\ntwo\n")
        produce.stdin.flush()
        until(lambda: end_of(quorumlog_cluster, topic) == 2, "both are acknowledged")
        produce.send_signal(signal.SIGINT)
        out, errors = produce.communicate(timeout=PATIENCE_S)
    assert (produce.returncode, out) == (130, "")
    assert errors == "quorumlog: interrupted: 2 records had been acknowledged\n"


@pytest.mark.cluster
def test_consume_says_that_the_cluster_is_down_and_goes_on_when_it_is_back(
    quorumlog_cluster: LocalCluster, topic: str
) -> None:
    with running(quorumlog_cluster, "consume", topic, "--tail", "1") as consume:
        assert consume.stdout is not None
        assert consume.stderr is not None
        assert consume.stdout.readline() == "two\n"
        for node in quorumlog_cluster.node_ids:
            quorumlog_cluster.kill(node)
        warning = consume.stderr.readline()
        for node in quorumlog_cluster.node_ids:
            quorumlog_cluster.start(node)
        over = next(line for line in consume.stderr if "still trying" not in line)
        consume.send_signal(signal.SIGINT)
        consume.communicate(timeout=PATIENCE_S)
    assert warning.startswith("quorumlog: warning: fetching from lasting-0 has failed for ")
    assert "still trying: no connection to" in warning
    assert "fetching from lasting-0 works again" in over


@pytest.mark.cluster
def test_without_a_controller_what_is_shown_is_said_to_be_old() -> None:
    with LocalCluster(nodes=3) as three:
        with Admin(bootstrap_servers=three.bootstrap_servers) as admin:
            admin.create_topics([NewTopic("orders")])
        for node in (2, 3):
            three.kill(node)

        def described(*command: str) -> str:
            return cli(three, *command).stderr

        until(
            lambda: "no controller is active" in described("cluster", "describe"),
            "node 1 has detected that it is alone",
        )
        for command in (("cluster", "describe", "-o", "json"), ("topics", "describe")):
            said = described(*command)
            assert said.startswith("quorumlog: warning: no controller is active, so this is the last known state, ")
            assert len(said.splitlines()) == 1
        # A member that joins a group now waits, and is shown the reason.
        with running(three, "consume", "orders", "--group", "billing") as consume:
            assert consume.stderr is not None
            warning = consume.stderr.readline()
        assert warning.startswith(
            "quorumlog: warning: reaching the coordinator of consumer group billing has failed for "
        )


def end_of(cluster: LocalCluster, topic: str) -> int:
    from quorumlog.sdk import Consumer, TopicPartition

    where = TopicPartition(topic, 0)
    with Consumer(bootstrap_servers=cluster.bootstrap_servers) as consumer:
        return consumer.end_offsets([where])[where]

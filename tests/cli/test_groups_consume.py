"""``quorumlog consume --group``: members of a group on the command line."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from quorumlog.cli.main import main
from quorumlog.local import LocalCluster
from quorumlog.sdk import Admin, GroupState, NewTopic, Producer

pytestmark = pytest.mark.cluster

Run = Callable[..., str]
RECORDS = 12


@pytest.fixture(scope="module", autouse=True)
def topics(quorumlog_cluster: LocalCluster) -> None:
    """Twelve records in each of two topics, over three partitions."""
    servers = quorumlog_cluster.bootstrap_servers
    with Admin(bootstrap_servers=servers) as admin, Producer(bootstrap_servers=servers) as producer:
        admin.create_topics([NewTopic(name, num_partitions=3) for name in ("orders", "payments")])
        for number in range(RECORDS):
            for topic in ("orders", "payments"):
                producer.send(topic, f"{topic} {number}".encode(), partition=number % 3)


@pytest.fixture
def run(quorumlog_cluster: LocalCluster, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs a command that succeeds; returns what it printed."""
    monkeypatch.setenv("QUORUMLOG_BOOTSTRAP_SERVERS", quorumlog_cluster.bootstrap_servers)

    def command(*arguments: str) -> str:
        with pytest.raises(SystemExit) as ended:
            main(list(arguments))
        printed = capsys.readouterr()
        assert (ended.value.code, printed.err) == (0, "")
        return printed.out

    return command


@pytest.fixture
def consumer(quorumlog_cluster: LocalCluster) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Starts ``consume`` as a process; kills what is left of them."""
    started: list[subprocess.Popen[str]] = []
    servers = {"QUORUMLOG_BOOTSTRAP_SERVERS": quorumlog_cluster.bootstrap_servers}

    def start(*arguments: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "quorumlog.cli.main", "consume", *arguments]
        started.append(subprocess.Popen(command, env=os.environ | servers, text=True, stdout=subprocess.PIPE))
        return started[-1]

    yield start
    for process in started:
        process.kill()
        process.communicate()


def described(run: Run, group: str) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = json.loads(run("groups", "describe", group, "--output", "json"))
    return rows


def shares(admin: Admin, group_id: str) -> list[int]:
    """Returns the number of partitions of each member of a group."""
    if group_id not in [group.group_id for group in admin.list_groups(["Stable"])]:
        return []
    [group] = admin.describe_groups([group_id])
    return sorted(len(member.assignment) for member in group.members)


def test_a_group_goes_on_where_it_left_off(run: Run) -> None:
    first = run("consume", "orders", "--group", "shared", "--from-beginning", "--max-records", "5").splitlines()
    assert len(first) == 5
    assert sum(row["current_offset"] or 0 for row in described(run, "shared")) == 5
    rest = run("consume", "orders", "--group", "shared", "--from-beginning", "--max-records", "7").splitlines()
    assert sorted(first + rest) == sorted(f"orders {number}" for number in range(RECORDS))
    assert [(row["current_offset"], row["lag"], row["consumer_id"]) for row in described(run, "shared")] == [
        (4, 0, None)
    ] * 3
    run("groups", "reset-offsets", "shared", "--topic", "orders:1", "--shift-by", "-2", "--execute")
    again = run("consume", "orders", "--group", "shared", "--max-records", "2", "--output", "json").splitlines()
    assert [(json.loads(line)["partition"], json.loads(line)["offset"]) for line in again] == [(1, 2), (1, 3)]


def test_a_group_that_has_seen_nothing_yet_skips_nothing_when_it_comes_back(
    run: Run, quorumlog_cluster: LocalCluster
) -> None:
    servers = quorumlog_cluster.bootstrap_servers
    with Admin(bootstrap_servers=servers) as admin, Producer(bootstrap_servers=servers) as producer:
        admin.create_topics([NewTopic("quiet")])
        producer.send("quiet", b"before").result(timeout=60)
        assert run("consume", "quiet", "--group", "late", "--timeout", "8") == ""
        producer.send("quiet", b"while it was away").result(timeout=60)
    assert run("consume", "quiet", "--group", "late", "--max-records", "1") == "while it was away\n"


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_what_the_reader_has_not_taken_is_not_committed(
    consumer: Callable[..., subprocess.Popen[str]],
    quorumlog_cluster: LocalCluster,
    monkeypatch: pytest.MonkeyPatch,
    unbuffered: str,
) -> None:
    monkeypatch.setenv("PYTHONUNBUFFERED", unbuffered)
    servers, topic = quorumlog_cluster.bootstrap_servers, f"long{unbuffered}"
    with Admin(bootstrap_servers=servers) as admin, Producer(bootstrap_servers=servers) as producer:
        admin.create_topics([NewTopic(topic)])
        for _ in range(300):  # More than a pipe takes.
            producer.send(topic, b"x" * 1000)
        producer.flush()
        reading = consumer(topic, "--group", topic, "--from-beginning")
        assert reading.stdout is not None
        reading.stdout.read(10)
        reading.stdout.close()
        reading.stdout = None
        assert reading.wait(timeout=60) == 1
        assert [each.offset for each in admin.list_group_offsets(topic).values()] == [0]


def test_a_group_reads_several_topics_by_name_or_by_pattern(run: Run) -> None:
    both = sorted(f"{topic} {number}" for topic in ("orders", "payments") for number in range(RECORDS))
    count = ("--from-beginning", "--max-records", str(2 * RECORDS))
    assert sorted(run("consume", "orders", "payments", "--group", "named", *count).splitlines()) == both
    assert sorted(run("consume", "--pattern", "(order|payment)s", "--group", "matched", *count).splitlines()) == both
    assert sorted(run("consume", "orders", "payments", *count).splitlines()) == both


def test_members_share_the_partitions_and_leave_when_they_are_ended(
    run: Run, consumer: Callable[..., subprocess.Popen[str]], quorumlog_cluster: LocalCluster
) -> None:
    ended = [consumer("orders", "--group", "pair", "--from-beginning"), consumer("orders", "--group", "pair")]
    with Admin(bootstrap_servers=quorumlog_cluster.bootstrap_servers) as admin:
        deadline = time.monotonic() + 60
        while shares(admin, "pair") != [1, 2]:
            assert time.monotonic() < deadline
            time.sleep(0.05)
        for process in ended:
            process.send_signal(signal.SIGTERM)
        assert [process.wait(timeout=60) for process in ended] == [128 + signal.SIGTERM] * 2
        [left] = admin.describe_groups(["pair"])  # They have left by themselves: their sessions last for 45 s.
        assert (left.state, left.members) == (GroupState.EMPTY, ())

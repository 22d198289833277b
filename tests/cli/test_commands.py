"""The command line as a user meets it: each command in a process of its own, against real nodes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from child_process import ChildProcess

from quorumlog.local import LocalCluster
from tests.support.command_line import until

pytestmark = pytest.mark.cluster

Run = Callable[..., subprocess.CompletedProcess[str]]
TIMEOUT_S = 60


@pytest.fixture(scope="module")
def run(quorumlog_cluster: LocalCluster) -> Run:
    """Runs a command against the module's cluster."""
    environment = os.environ | {"QUORUMLOG_BOOTSTRAP_SERVERS": quorumlog_cluster.bootstrap_servers, "COLUMNS": "80"}

    def command(*arguments: str, text: str | None = None) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "quorumlog.cli.main", *arguments],
            input=text,
            stdin=subprocess.DEVNULL if text is None else None,
            env=environment,
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
        )

    return command


def printed(done: subprocess.CompletedProcess[str]) -> str:
    """Returns the output of a successful command."""
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return done.stdout


def complaint(done: subprocess.CompletedProcess[str], status: int = 1) -> str:
    """The one line of a failed command."""
    assert done.returncode == status, done.stdout + done.stderr
    assert done.stdout == ""
    [line] = done.stderr.splitlines()
    assert line.startswith("quorumlog: ")
    assert "internal error" not in line
    return line


def loaded(done: subprocess.CompletedProcess[str]) -> Any:
    return json.loads(printed(done))


@pytest.fixture(scope="module")
def orders(run: Run) -> str:
    """A topic with three partitions and some settings."""
    created = run("topics", "create", "orders", "--partitions", "3", "--config", "retention.ms=604800000")
    assert printed(created) == "Created topic orders: 3 partitions, replication factor 3.\n"
    return "orders"


def test_topics_are_listed_and_described_as_kafka_does(run: Run, orders: str) -> None:
    assert orders in printed(run("topics", "list")).splitlines()
    head, *partitions = printed(run("topics", "describe", orders)).splitlines()
    fields = [field.split(": ") for field in head.split("\t")]
    assert [name for name, _ in fields] == ["Topic", "TopicId", "PartitionCount", "ReplicationFactor", "Configs"]
    assert (fields[2][1], fields[3][1], fields[4][1]) == ("3", "3", "retention.ms=604800000")
    for number, line in enumerate(partitions):
        empty, topic, partition, leader, replicas, isr = line.split("\t")
        assert (empty, topic, partition) == ("", "Topic: orders", f"Partition: {number}")
        assert leader.removeprefix("Leader: ") in {"1", "2", "3"}
        assert sorted(replicas.removeprefix("Replicas: ").split(",")) == ["1", "2", "3"]
        assert isr.startswith("Isr: ")


def test_descriptions_can_be_asked_for_as_of_now(run: Run, orders: str) -> None:
    (topic,) = loaded(run("topics", "describe", orders, "--linearizable", "--output", "json"))
    assert topic["name"] == orders
    assert len(loaded(run("cluster", "describe", "--linearizable", "--output", "json"))["brokers"]) == 3


def test_a_described_topic_is_the_same_as_json(run: Run, orders: str) -> None:
    [topic] = loaded(run("topics", "describe", orders, "--output", "json"))
    assert topic["name"] == orders
    assert topic["replication_factor"] == 3
    assert [partition["partition"] for partition in topic["partitions"]] == [0, 1, 2]
    assert all(partition["leader"] in partition["isr"] for partition in topic["partitions"])


def test_a_healthy_cluster_has_no_partition_in_trouble(run: Run, orders: str) -> None:
    until(lambda: run("cluster", "health").returncode == 0, "the cluster is healthy")
    for trouble in ("--under-replicated", "--under-min-isr", "--unavailable"):
        assert printed(run("topics", "describe", orders, trouble)) == ""
    assert printed(run("cluster", "health")).startswith("healthy: 3 nodes, ")
    health = loaded(run("cluster", "health", "--output", "json"))
    assert health["healthy"] is True
    assert health["reasons"] == []


def test_lines_go_in_as_records_and_come_out_as_lines(run: Run) -> None:
    printed(run("topics", "create", "lines"))
    assert printed(run("produce", "lines", text="one\ntwo\nthree\n")) == (
        "Produced 3 records to lines (offsets: partition 0: 0 to 2).\n"
    )
    assert printed(run("consume", "lines", "--from-beginning", "--max-records", "3")) == "one\ntwo\nthree\n"
    assert printed(run("consume", "lines", "--from-beginning", "--until-end")) == "one\ntwo\nthree\n"
    assert printed(run("consume", "lines", "--partition", "0", "--offset", "2", "-n", "1")) == "three\n"
    templated = run("consume", "lines", "--from-beginning", "--until-end", "--format", "{partition}:{offset}={value}")
    assert printed(templated) == "0:0=one\n0:1=two\n0:2=three\n"


def test_times_and_names_of_places_are_understood_where_offsets_are(run: Run) -> None:
    printed(run("topics", "create", "timed"))
    printed(run("produce", "timed", text="one\n"))
    between = time.time()
    printed(run("produce", "timed", text="two\n"))
    for begin, lines in (
        (["--partition", "0", "--offset", "earliest"], "one\ntwo\n"),
        (["--offset", "latest"], ""),
        (["--from-time", str(int(between * 1000))], "two\n"),
        (["--from-time", datetime.fromtimestamp(between, UTC).isoformat()], "two\n"),
        (["--from-time", "2000-01-01"], "one\ntwo\n"),
        (["--from-time", str(int((between + 3600) * 1000))], ""),
    ):
        assert printed(run("consume", "timed", *begin, "--until-end")) == lines, begin
    assert printed(run("topics", "offsets", "timed", "--time", "earliest")).split()[-3:] == ["timed", "0", "0"]
    assert loaded(run("topics", "offsets", "timed", "--output", "json")) == [
        {"topic": "timed", "partition": 0, "offset": 2, "timestamp": None}
    ]
    (found,) = loaded(run("topics", "offsets", "timed", "--time", str(int(between * 1000)), "--output", "json"))
    assert found["offset"] == 1 and found["timestamp"] >= int(between * 1000)
    late = run("topics", "offsets", "timed", "--time", "2999-01-01")
    assert printed(late).split()[-4:] == ["timed", "0", "none", "none"]


def test_records_of_a_key_stay_in_one_partition_and_in_order(run: Run, orders: str, tmp_path: Path) -> None:
    lines = tmp_path / "lines.txt"
    lines.write_text("".join(f"customer-{number % 5}:{number:03d}\n" for number in range(100)))
    sent = loaded(run("produce", orders, "--key-separator", ":", "--file", str(lines), "--output", "json"))
    assert sent["records"] == 100
    assert sum(partition["records"] for partition in sent["partitions"]) == 100
    consumed = printed(run("consume", orders, "--from-beginning", "--until-end", "--output", "json"))
    records = [json.loads(line) for line in consumed.splitlines()]
    assert len(records) == 100
    for customer in {record["key"] for record in records}:
        mine = [record for record in records if record["key"] == customer]
        assert len({record["partition"] for record in mine}) == 1
        assert [record["value"] for record in mine] == sorted(record["value"] for record in mine)


def test_records_go_to_a_file(run: Run, tmp_path: Path) -> None:
    printed(run("topics", "create", "to-file"))
    printed(run("produce", "to-file", "--key-separator", r"\t", text="k\tv\n"))
    file = tmp_path / "out.txt"
    done = run("consume", "to-file", "--from-beginning", "-n", "1", "--key-separator", "=", "--file", str(file))
    assert printed(done) == ""
    assert file.read_text() == "k=v\n"


def test_too_few_records_in_time_are_a_failure(run: Run) -> None:
    printed(run("topics", "create", "quiet"))
    done = run("consume", "quiet", "--from-beginning", "--max-records", "2", "--timeout", "0.5")
    assert "0 records of 2 received before the timeout of 0.5 s" in complaint(done)
    assert printed(run("consume", "quiet", "--from-beginning", "--timeout", "0.2")) == ""


def test_the_quorum_is_described_as_kafka_does(run: Run) -> None:
    fields = dict(line.split(":", 1) for line in printed(run("quorum", "describe")).splitlines())
    assert list(fields) == [
        "LeaderId",
        "LeaderEpoch",
        "HighWatermark",
        "MaxFollowerLag",
        "CurrentVoters",
        "CurrentObservers",
    ]
    assert fields["CurrentVoters"].strip() == "[1,2,3]"
    state = loaded(run("quorum", "describe", "--output", "json"))
    assert state["LeaderId"] in (1, 2, 3)
    assert {replica["NodeId"] for replica in state["Replicas"]} == {1, 2, 3}


def test_the_cluster_is_described(run: Run, quorumlog_cluster: LocalCluster) -> None:
    cluster = loaded(run("cluster", "describe", "--output", "json"))
    assert cluster["controller_id"] in quorumlog_cluster.node_ids
    assert {f"{node['host']}:{node['port']}" for node in cluster["brokers"]} == set(
        quorumlog_cluster.bootstrap_servers.split(",")
    )
    table = printed(run("cluster", "describe"))
    assert cluster["cluster_id"] in table
    assert table.count(" up ") == 3


def test_a_reader_that_has_enough_ends_consume_without_complaint(run: Run, quorumlog_cluster: LocalCluster) -> None:
    printed(run("topics", "create", "long"))
    printed(run("produce", "long", text="".join(f"{number}\n" for number in range(20_000))))
    consume = (
        f"{sys.executable} -m quorumlog.cli.main consume long --from-beginning -b {quorumlog_cluster.bootstrap_servers}"
    )
    done = subprocess.run(
        ["sh", "-c", f"{consume} | head -n 2"], capture_output=True, text=True, timeout=TIMEOUT_S, check=True
    )
    assert (done.stdout, done.stderr) == ("0\n1\n", "")


def test_ctrl_c_ends_consume_with_130(run: Run, quorumlog_cluster: LocalCluster) -> None:
    printed(run("topics", "create", "waiting"))
    printed(run("produce", "waiting", text="first\n"))
    command = [sys.executable, "-m", "quorumlog.cli.main", "consume", "waiting", "--from-beginning"]
    with ChildProcess(
        [*command, "-b", quorumlog_cluster.bootstrap_servers], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as consume:
        try:
            assert consume.stdout is not None
            assert consume.stdout.readline() == "first\n"
            consume.send_signal(signal.SIGINT)
            rest, errors = consume.communicate(timeout=TIMEOUT_S)
        finally:
            consume.kill()
    assert (consume.returncode, rest, errors.strip()) == (130, "", "")


def test_a_node_refuses_a_port_in_use_with_one_line(run: Run, quorumlog_cluster: LocalCluster, tmp_path: Path) -> None:
    address = quorumlog_cluster.address(1)
    done = run(
        "node",
        "start",
        "--node-id",
        "1",
        "--listen",
        address,
        "--data-dir",
        str(tmp_path / "n"),
        "--controllers",
        f"1@{address}",
    )
    assert done.returncode == 1
    [line] = done.stderr.splitlines()
    assert "in use" in line


def test_a_running_nodes_data_directory_is_refused_with_one_line(run: Run, quorumlog_cluster: LocalCluster) -> None:
    data_dir = str(quorumlog_cluster.data_dir(1))
    assert "in use" in complaint(run("log", "verify", "--data-dir", data_dir))
    assert "in use" in complaint(run("log", "dump", "--data-dir", data_dir))
    assert "no data.mdb" in complaint(run("log", "dump", "--data-dir", "/nonexistent"))

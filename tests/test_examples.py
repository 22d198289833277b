"""Every example runs as a program of its own on one three-node cluster, says what happens, leaves nothing behind."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from quorumlog.local import LocalCluster
from quorumlog.sdk import Admin

pytestmark = [pytest.mark.cluster]

EXAMPLES = Path(__file__).resolve().parent.parent / "examples"
#: The demo's parts have a command of their own (make demo); the tutorial's frame is not a program;
#: tests/kafka_clients/test_schema_registry.py runs the example that needs a registry.
NOT_ALONE = {"avro_with_karapace.py", "demo.py", "demo_group.py", "demo_load.py", "demo_spark.py", "tutorial.py"}
TIMEOUT_S = 60

#: Each example and what it must print.
EXPECTED = {
    "analysis.py": ["50000 rows", "sensor-4: 10000 readings, mean 51.5"],
    "asyncio_group.py": ["before the change of shift", "'dmitri':", "200 records, each once"],
    "asyncio_ping_pong.py": ["pong has ball 0", "ping has ball 9"],
    "compacted_table.py": ["the table: {'anna': 'Basel', 'carla': 'Rome'}"],
    "copy_a_file_once.py": ["ran again from the start: 1000 lines", "again, for no reason: 1000", "is refused"],
    "enrichment_service.py": ["the service starts with order 8", "20 bills, 1485 in all"],
    "group_after_a_crash.py": ["died after 25 jobs", "none left out", "job 20, job 21, job 22, job 23, job 24"],
    "group_keeps_order.py": ["the second member takes partitions", "in order, each once"],
    "group_replay.py": ["goes back to an offset: 22:30", "to a time: offset 24, 12:00", "again from 12:00 to 23:30"],
    "group_service.py": ["one instance is stopped", "300 orders, 300 bills"],
    "group_shares_work.py": ["worker 1 has packed", "worker 2 has packed", "together 300, each once"],
    "group_with_a_spare.py": ["2 are active, one is idle", "takes over partition", "stopped: alarm 10"],
    "groups_get_everything.py": ["packer 1: 30", "packer 2: 30", "accountant: 60", "came later: 60"],
    "keyed_order.py": ["logged in, filled the cart, paid, logged out"],
    "produce_and_consume.py": ["sent to partition 0, offset 4", "offset 4: hello 4"],
    "replay.py": ["22:30", "offset 24, 12:00", "None"],
    "transfer.py": ["killed", "300 transfers, each once, the sum of all accounts is 0"],
    "retention.py": ["the log starts at 60", "continues at 60", "gets an error:", "retention.bytes=65536"],
}
#: What the client itself says there, a line each.
WARNINGS = {"retention.py": ["earliest"]}


def test_every_example_is_in_the_table() -> None:
    assert {file.name for file in EXAMPLES.glob("*.py")} - NOT_ALONE == set(EXPECTED)


@pytest.mark.parametrize("name", EXPECTED)
def test_an_example_tells_its_story(name: str, quorumlog_cluster: LocalCluster) -> None:
    servers = quorumlog_cluster.bootstrap_servers
    done = run(name, "--bootstrap-servers", servers)
    assert (done.returncode, done.stderr.count("\n")) == (0, len(WARNINGS.get(name, ()))), done.stdout + done.stderr
    for piece in WARNINGS.get(name, ()):
        assert piece in done.stderr
    for piece in EXPECTED[name]:
        assert piece in done.stdout
    with Admin(bootstrap_servers=servers) as admin:
        assert admin.list_topics() == []


def test_an_example_explains_itself_and_says_when_there_is_no_cluster() -> None:
    shown = run("replay.py", "--help")
    assert "from a point in time" in shown.stdout
    assert "--bootstrap-servers" in shown.stdout
    refused = run("replay.py", "--bootstrap-servers", "127.0.0.1:1")
    assert refused.returncode == 1
    [line] = refused.stderr.splitlines()
    assert "127.0.0.1:1" in line


def run(name: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(EXAMPLES / name), *arguments],
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )

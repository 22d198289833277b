"""rsyslog, unchanged: ``omkafka`` sends lines while a node is killed, ``imkafka`` reads them back."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from conftest import AGAINST
from connect_worker import until
from test_frameworks import kill_leader, records_in, running

from quorumlog.local import LocalCluster
from quorumlog.sdk import Admin, NewTopic

RSYSLOG = shutil.which("rsyslogd") or shutil.which("rsyslogd", path="/usr/sbin")
MODULES = [*Path("/usr/lib").glob("*/rsyslog/omkafka.so"), *Path("/usr/lib").glob("rsyslog/omkafka.so")]
pytestmark = [
    pytest.mark.cluster,
    pytest.mark.alone,
    pytest.mark.timeout(900),
    pytest.mark.skipif(AGAINST == "apache", reason="quorumlog's nodes are killed"),
    pytest.mark.skipif(
        RSYSLOG is None or not MODULES, reason="needs rsyslog: as root, apt-get install rsyslog rsyslog-kafka"
    ),
]
LINES = 3_000

CONFIGURATION = """\
global(workDirectory="{folder}")
module(load="imfile")
module(load="omkafka")
module(load="imkafka")
template(name="line" type="string" string="%msg%")
template(name="copied" type="string" string="%rawmsg%\\n")
ruleset(name="out") {{
  action(
    type="omkafka" topic="lines" broker=[{servers}] template="line" resubmitOnFailure="on" keepFailedMessages="on"
    failedMsgFile="{folder}/failed" action.resumeRetryCount="-1" confParam=["acks=all", "compression.codec=lz4"]
  )
}}
ruleset(name="in") {{ action(type="omfile" file="{folder}/out.txt" template="copied") }}
input(type="imfile" File="{folder}/in.txt" Tag="test" ruleset="out")
input(
  type="imkafka" topic="lines" broker=[{servers}] consumergroup="rsyslog" ruleset="in"
  confParam=["auto.offset.reset=earliest"]
)
"""


def test_rsyslog_sends_and_reads_lines(tmp_path: Path) -> None:
    """Every line of a file is in the topic, and in the file that is written from the topic."""
    assert RSYSLOG is not None
    source = tmp_path / "in.txt"
    source.touch()
    with LocalCluster(nodes=3, kafka=True) as cluster:
        with Admin(bootstrap_servers=cluster.bootstrap_servers) as admin:
            admin.create_topics([NewTopic("lines", 3, 3)])
        servers = ", ".join(f'"{each}"' for each in cluster.kafka_bootstrap_servers.split(","))
        file = tmp_path / "rsyslog.conf"
        file.write_text(CONFIGURATION.format(folder=tmp_path, servers=servers))
        with running("rsyslog", [RSYSLOG, "-n", "-f", file, "-i", tmp_path / "rsyslog.pid"]):
            for part in range(3):
                append(source, part * LINES // 3, (part + 1) * LINES // 3)
                if part == 1:
                    killed = kill_leader(cluster, "lines")
                done = {f"line {number}" for number in range((part + 1) * LINES // 3)}
                until(lambda done=done: sent(cluster) == done, f"{len(done)} lines are sent")  # type: ignore[misc]
                until(lambda done=done: copied(tmp_path) == done, f"{len(done)} lines are read")  # type: ignore[misc]
                if part == 1:
                    cluster.start(killed)
        repeated = len(records_in(cluster, "lines")) - LINES
    print(f"rsyslog: {LINES} lines sent and read, {repeated} sent again")


def append(file: Path, first: int, end: int) -> None:
    with file.open("a") as out:
        out.writelines(f"line {number}\n" for number in range(first, end))


def sent(cluster: LocalCluster) -> set[str]:
    return {(value or b"").decode().strip() for _, value in records_in(cluster, "lines")}


def copied(folder: Path) -> set[str]:
    file = folder / "out.txt"
    return {line.strip() for line in file.read_text().splitlines()} if file.exists() else set()

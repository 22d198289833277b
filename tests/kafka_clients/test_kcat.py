"""kcat, the command line that people have at hand: it writes and reads lines, not all that a record may be."""

from __future__ import annotations

import shutil
import subprocess

import own_clients
import pytest
from conftest import Servers
from test_matrix import PARTITIONS, new_topic

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.alone,
    pytest.mark.timeout(300),
    pytest.mark.skipif(shutil.which("kcat") is None, reason="needs kcat: as root, apt-get install kcat"),
]
LINES = 5_000


def kcat(servers: str, *arguments: str, text: str = "") -> str:
    ended = subprocess.run(
        ["kcat", "-b", servers, *arguments], input=text, capture_output=True, text=True, timeout=60, check=False
    )
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


def test_kcat_lists_the_brokers_and_a_topic(servers: Servers) -> None:
    topic = new_topic(servers.kafka)
    reported = kcat(servers.kafka, "-L", "-t", topic)
    assert "3 brokers" in reported
    assert f'topic "{topic}" with {PARTITIONS} partitions' in reported


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4"])
def test_what_kcat_writes_it_reads_and_everybody_else_does(servers: Servers, codec: str) -> None:
    topic = new_topic(servers.kafka)
    lines = [f"key {number % 50}:value {number}" for number in range(LINES)]
    how = ["-z", codec] if codec != "none" else []
    kcat(servers.kafka, "-P", "-t", topic, "-K:", "-H", "trace=42", *how, text="".join(f"{line}\n" for line in lines))
    read = kcat(servers.kafka, "-C", "-t", topic, "-o", "beginning", "-e", "-q", "-f", "%k:%s %h\n").splitlines()
    assert sorted(read) == sorted(f"{line} trace=42" for line in lines)
    in_group = kcat(
        servers.kafka, "-G", f"{topic}-kcat", "-c", str(LINES), "-K:", "-q", "-X", "auto.offset.reset=earliest", topic
    )
    assert sorted(in_group.splitlines()) == sorted(lines)
    if servers.own:
        for read_by in own_clients.READERS.values():
            records = read_by(servers.own, topic, LINES)
            assert {each.headers[0] for each in records} == {("trace", b"42")}
            assert sorted(
                f"{each.key.decode()}:{each.value.decode()}" for each in records if each.key and each.value
            ) == sorted(lines)

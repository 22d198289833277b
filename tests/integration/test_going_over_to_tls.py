"""A running cluster goes over from plaintext to TLS in three rolls (docs/operate/security.md), and no write notices."""

from __future__ import annotations

import itertools
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from quorumlog.local.certificates import LocalCertificates
from quorumlog.local.ports import ReservedPorts
from quorumlog.sdk import Admin, Consumer, NewTopic, Producer, TopicPartition
from quorumlog.sdk.errors import NoBrokersAvailableError, QuorumlogError

pytestmark = pytest.mark.cluster

NODES = (1, 2, 3)
LIMIT_S = 60.0


class Rolled:
    """Three nodes that are restarted one by one with other settings."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._reserved = ReservedPorts(9)
        places = [f"127.0.0.1:{port}" for port in self._reserved.ports]
        self.plaintext, self.clients, self.peers = (dict(zip(NODES, places[i : i + 3], strict=True)) for i in (0, 3, 6))
        self.certificates = LocalCertificates(root / "certs")
        self.certificates.make(NODES)
        self._processes: dict[int, subprocess.Popen[bytes]] = {}

    def settings(self, node: int, stage: int) -> dict[str, str]:
        """Returns a node's settings before (0) and in each of the three rolls."""
        controllers = self.plaintext if stage < 2 else self.peers
        reported = {
            "node_id": str(node),
            "data_dir": str(self._root / f"node-{node}"),
            "controllers": ",".join(f"{each}@{address}" for each, address in controllers.items()),
            "listen": self.clients[node],
        }
        if stage == 0:
            return reported | {"listen": self.plaintext[node]}
        reported |= {"peer_listen": self.peers[node], **self.certificates.of_node(node)}
        if stage < 3:
            reported["plaintext_listen"] = self.plaintext[node]
        if stage == 1:
            reported["security_inter_broker_protocol"] = "PLAINTEXT"
        return reported

    def start(self, node: int, stage: int) -> None:
        flags = [f"--{name.replace('_', '-')}={value}" for name, value in self.settings(node, stage).items()]
        with (self._root / f"node-{node}.log").open("ab") as log:
            self._processes[node] = subprocess.Popen(
                [sys.executable, "-m", "quorumlog.server", *flags], stdout=log, stderr=log, start_new_session=True
            )

    def stop(self, node: int) -> None:
        process = self._processes.pop(node)
        process.send_signal(signal.SIGTERM)
        process.wait(LIMIT_S)

    def roll(self, stage: int) -> None:
        """Restarts one node after the other, and waits each time until all is well."""
        for node in NODES:
            self.stop(node)
            self.start(node, stage)
            self.wait_healthy(stage if node == NODES[-1] else stage - 1)

    def options(self, stage: int) -> dict[str, str]:
        """Returns how clients reach every node."""
        if stage < 3:
            return {"bootstrap_servers": ",".join(self.plaintext.values())}
        return self.tls_options()

    def tls_options(self) -> dict[str, str]:
        """Returns how clients with a certificate reach every node."""
        return {"bootstrap_servers": ",".join(self.clients.values()), **self.certificates.of_client("admin")}

    def wait_healthy(self, stage: int, topics: tuple[str, ...] = ("orders",)) -> None:
        options = self.tls_options() if stage >= 2 else self.options(stage)
        deadline, lacking = time.monotonic() + LIMIT_S, "no node answers"
        with Admin(**options) as admin:  # type: ignore[arg-type]
            while lacking:
                assert time.monotonic() < deadline, f"in roll {stage}: {lacking}"
                time.sleep(0.1)
                try:
                    up = {broker.node_id for broker in admin.describe_cluster().brokers if not broker.fenced}
                    lacking = "" if up == set(NODES) else f"only nodes {up} are there"
                    for topic in admin.describe_topics(topics) if topics and not lacking else ():
                        short = [
                            each for each in topic.partitions if set(each.isr) != set(NODES) or each.leader is None
                        ]
                        lacking = f"not in sync: {short}" if short else ""
                except QuorumlogError as error:
                    lacking = str(error)

    def close(self) -> None:
        for process in self._processes.values():
            process.kill()
            process.wait()
        self._reserved.close()


class Writer:
    """A producer that continues writing numbers until it is stopped."""

    def __init__(self, first: int, options: dict[str, str]) -> None:
        self._ended = threading.Event()
        self.written = 0
        self._thread = threading.Thread(target=self._run, args=(first, options))
        self.errors: list[BaseException] = []
        self._thread.start()

    def _run(self, first: int, options: dict[str, str]) -> None:
        try:
            with Producer(**options) as producer:  # type: ignore[arg-type]
                for number in itertools.count(first):
                    if self._ended.is_set():
                        return
                    producer.send("orders", b"%d" % number, partition=0).result(60)
                    self.written += 1
                    time.sleep(0.01)
        except BaseException as error:
            self.errors.append(error)

    def end(self) -> int:
        """Ends it; how many numbers it has written."""
        self._ended.set()
        self._thread.join(LIMIT_S)
        assert not self.errors
        assert not self._thread.is_alive()
        return self.written


@pytest.fixture
def rolled(tmp_path: Path) -> Iterator[Rolled]:
    rolled = Rolled(tmp_path)
    yield rolled
    rolled.close()


@pytest.mark.timeout(400)
def test_three_rolls_take_a_running_cluster_from_plaintext_to_tls(rolled: Rolled) -> None:
    for node in NODES:
        rolled.start(node, 0)
    rolled.wait_healthy(0, topics=())
    with Admin(**rolled.options(0)) as admin:  # type: ignore[arg-type]
        admin.create_topics([NewTopic("orders", num_partitions=1, replication_factor=3)])
    rolled.wait_healthy(0)
    writer = Writer(0, rolled.options(0))
    rolled.roll(1)
    rolled.roll(2)
    # All nodes serve both kinds of clients now: they go over.
    written = writer.end()
    writer = Writer(written, rolled.tls_options())
    rolled.roll(3)
    written += writer.end()
    with Consumer("orders", auto_offset_reset="earliest", **rolled.tls_options()) as consumer:  # type: ignore[arg-type]
        end = consumer.end_offsets([TopicPartition("orders", 0)])[TopicPartition("orders", 0)]
        found = [record.value for record in itertools.islice(consumer, end)]
    assert found == [b"%d" % number for number in range(written)]
    with (
        pytest.raises(NoBrokersAvailableError),
        Admin(**rolled.options(0), bootstrap_timeout_ms=500) as late,  # type: ignore[arg-type]
    ):
        late.list_topics()
    assert os.listdir(rolled._root)

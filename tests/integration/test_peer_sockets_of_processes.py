"""Frames travel over sockets between the processes of a cluster, also after a node was killed."""

from __future__ import annotations

import time
import urllib.request

import pytest

from quorumlog.local import LocalCluster
from quorumlog.local.ports import ReservedPorts
from quorumlog.sdk import Admin, NewTopic, Producer

pytestmark = pytest.mark.cluster
LIMIT_S = 60.0


def sockets_of(metrics: dict[int, str], node: int) -> float:
    with urllib.request.urlopen(f"http://{metrics[node]}/metrics", timeout=LIMIT_S) as page:
        lines = page.read().decode().splitlines()
    (line,) = [line for line in lines if line.startswith("quorumlog_peer_sockets ")]
    return float(line.split()[1])


def until_all_have(metrics: dict[int, str], sockets: int) -> None:
    deadline = time.monotonic() + LIMIT_S
    while any(sockets_of(metrics, node) != sockets for node in metrics):
        assert time.monotonic() < deadline, {node: sockets_of(metrics, node) for node in metrics}
        time.sleep(0.1)


@pytest.mark.parametrize("tls", [False, True], ids=["plaintext", "tls"])
def test_frames_travel_over_sockets(tls: bool) -> None:
    ports = ReservedPorts(3)
    metrics = {node: f"127.0.0.1:{port}" for node, port in enumerate(ports.ports, start=1)}
    places = {node: {"metrics_listen": address} for node, address in metrics.items()}
    with LocalCluster(nodes=3, tls=tls, node_settings=places) as cluster:
        options = {"bootstrap_servers": cluster.bootstrap_servers}
        if cluster.certificates is not None:
            options |= cluster.certificates.of_client("admin")
        until_all_have(metrics, 4)
        with Admin(**options) as admin:
            admin.create_topics([NewTopic("orders", 1, 3)])
        with Producer(**options) as producer:
            for number in range(20):
                producer.send("orders", bytes(100_000 * (number % 3))).result(timeout=LIMIT_S)
            cluster.kill(2)
            for _ in range(20):
                producer.send("orders", b"x").result(timeout=LIMIT_S)
            cluster.start(2)
            until_all_have(metrics, 4)
            assert producer.send("orders", b"x").result(timeout=LIMIT_S).offset == 40
    ports.close()

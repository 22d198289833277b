"""``smallest_cluster.py compiled`` (or ``pure``): an installed wheel is what it is said to be, and runs three nodes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from quorumlog.local import LocalCluster
from quorumlog.sdk import Admin, Consumer, NewTopic, Producer


def main(kind: str) -> None:
    """Says what it has seen, or fails."""
    command = [Path(sys.executable).with_name("quorumlog"), "--version"]
    said = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    assert ("(compiled)" in said) == (kind == "compiled"), said
    with LocalCluster(nodes=3) as cluster:
        with Admin(bootstrap_servers=cluster.bootstrap_servers) as admin:
            admin.create_topics([NewTopic("orders", 1, 3)])
        with Producer(bootstrap_servers=cluster.bootstrap_servers) as producer:
            producer.send("orders", b"a record").result(timeout=30)
        with Consumer(
            "orders",
            bootstrap_servers=cluster.bootstrap_servers,
            auto_offset_reset="earliest",
            consumer_timeout_ms=30_000,
        ) as consumer:
            assert next(iter(consumer)).value == b"a record"
    print(f"{said.strip()}: three nodes have kept a record")


if __name__ == "__main__":
    main(*sys.argv[1:])

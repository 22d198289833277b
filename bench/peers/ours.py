"""The log store itself, three nodes."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path

from bench.peers.peer import Kind, Peer, RunningServers, Side
from quorumlog.local import LocalCluster

CLIENT = "ours"
#: What ``bench tuning`` found to gain most for large records, at the price of memory.
LARGE_BATCHES: Mapping[str, object] = {"batch_size": 1 << 20, "linger_ms": 5, "buffer_memory": 128 << 20}
#: The same of a consumer: as much at a time, and ahead, as Kafka's with large fetches.
LARGE_FETCHES: Mapping[str, object] = {
    "max_poll_records": 10_000,
    "max_partition_fetch_bytes": 16 << 20,
    "fetch_max_bytes": 256 << 20,
}

SIDES = (
    Side("quorumlog, send", Kind.PRODUCE, CLIENT),
    Side("quorumlog, send, batches of 1 MiB", Kind.PRODUCE, CLIENT, LARGE_BATCHES),
    Side("quorumlog, send_arrow", Kind.PRODUCE, CLIENT, call="produce_arrow"),
    Side("quorumlog, poll", Kind.CONSUME, CLIENT),
    Side("quorumlog, poll, large fetches", Kind.CONSUME, CLIENT, LARGE_FETCHES),
    Side("quorumlog, poll_arrow", Kind.CONSUME, CLIENT, call="consume_arrow"),
    Side("quorumlog, poll_arrow, large fetches", Kind.CONSUME, CLIENT, LARGE_FETCHES, call="consume_arrow"),
    Side("quorumlog, linger 0", Kind.SINGLY, CLIENT, {"linger_ms": 0}),
    Side("quorumlog, defaults", Kind.SINGLY, CLIENT),
    Side("quorumlog", Kind.STEADY, CLIENT, {"linger_ms": 0}),
)


class _Nodes:
    """The nodes of a local cluster."""

    def __init__(self, cluster: LocalCluster) -> None:
        self._cluster = cluster

    @property
    def addresses(self) -> str:
        return self._cluster.bootstrap_servers

    @property
    def pids(self) -> Mapping[str, int]:
        pids = {str(node): self._cluster.pid(node) for node in self._cluster.node_ids}
        return {node: pid for node, pid in pids.items() if pid is not None}

    def kill(self, name: str) -> None:
        self._cluster.kill(int(name))


@contextmanager
def started(work_dir: Path) -> Iterator[RunningServers]:
    """Three nodes as shipped."""
    directory = Path(tempfile.mkdtemp(prefix="peer-", dir=work_dir))
    try:
        with LocalCluster(nodes=3, data_dir=directory) as cluster:
            yield _Nodes(cluster)
    finally:
        shutil.rmtree(directory, ignore_errors=True)


OURS = Peer(
    "quorumlog",
    "quorumlog",
    "as shipped: every acknowledged record is synced to the disks of a majority",
    missing=lambda: "",
    version=lambda: version("quorumlog"),
    start=started,
    sides=SIDES,
)

"""NATS JetStream: three servers of whatever ``nats-server`` is on the PATH."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from bench.peers.client_process import missing_clients
from bench.peers.peer import Kind, Peer, RunningServers, Side
from bench.peers.server_processes import ServerProcesses
from quorumlog.local.ports import ReservedPorts

_PROGRAM = "nats-server"
SERVERS = ("nats-1", "nats-2", "nats-3")
_CONFIG = """\
server_name: {name}
listen: "127.0.0.1:{port}"
jetstream {{ store_dir: "{directory}" }}
cluster {{ name: bench, listen: "127.0.0.1:{route}", routes: [{routes}] }}
"""

_CLIENT = "nats"
SIDES = (
    Side("NATS, publish_async", Kind.PRODUCE, _CLIENT, share=0.1),
    Side("NATS, ordered consumer", Kind.CONSUME, _CLIENT, share=0.04),
    Side("NATS", Kind.SINGLY, _CLIENT),
    Side("NATS", Kind.STEADY, _CLIENT),
)


class _NatsServers:
    """NATS's processes."""

    def __init__(self, processes: ServerProcesses, ports: list[int]) -> None:
        self._processes = processes
        self.addresses = ",".join(f"127.0.0.1:{port}" for port in ports)

    @property
    def pids(self) -> Mapping[str, int]:
        return {name: self._processes.pid(name) for name in SERVERS}

    def kill(self, name: str) -> None:
        self._processes.kill(name)


def missing() -> str:
    """Returns what to install, as a line; empty if nothing is missing."""
    program = "" if shutil.which(_PROGRAM) else f"{_PROGRAM} (Debian: apt-get install {_PROGRAM})"
    return "; ".join(want for want in (program, missing_clients("nats-py")) if want)


def version() -> str:
    """As reported by the server."""
    output = subprocess.run([_PROGRAM, "--version"], capture_output=True, text=True, check=True).stdout
    return output.split()[-1].removeprefix("v")


@contextmanager
def started(work_dir: Path) -> Iterator[RunningServers]:
    """Three servers with a cluster between them."""
    reserved = ReservedPorts(2 * len(SERVERS))
    try:
        with ServerProcesses(work_dir, "NATS") as processes:
            ports, routes = reserved.ports[: len(SERVERS)], reserved.ports[len(SERVERS) :]
            between = ", ".join(f'"nats://127.0.0.1:{route}"' for route in routes)
            for name, port, route in zip(SERVERS, ports, routes, strict=True):
                file = processes.directory / f"{name}.conf"
                directory = processes.directory / name
                file.write_text(_CONFIG.format(name=name, port=port, directory=directory, route=route, routes=between))
                processes.start(name, [_PROGRAM, "-c", file])
            processes.wait_for_ports(ports)
            processes.wait_until(
                "leader of its metadata",
                lambda: any(processes.says(name, "JetStream cluster new metadata leader") for name in SERVERS),
            )
            yield _NatsServers(processes, ports)
    finally:
        reserved.close()


PEERS = (
    Peer(
        "nats",
        "NATS JetStream",
        "as shipped: file storage, three replicas, synced to disk every two minutes",
        missing,
        version,
        started,
        SIDES,
    ),
)

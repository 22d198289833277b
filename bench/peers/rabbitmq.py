"""RabbitMQ streams: three servers of whatever ``rabbitmq-server`` is installed, with its plugin for streams."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from bench.peers.client_process import missing_clients
from bench.peers.peer import Kind, Peer, RunningServers, Side
from bench.peers.server_processes import ServerProcesses
from quorumlog.local.ports import ReservedPorts

_PROGRAM = "rabbitmq-server"
_SCRIPTS = Path("/usr/lib/rabbitmq/bin")
SERVERS = ("rabbit-1", "rabbit-2", "rabbit-3")
_COOKIE = "bench"
_CONFIG = """\
listeners.tcp.1 = 127.0.0.1:{amqp}
stream.listeners.tcp.1 = 127.0.0.1:{stream}
stream.advertised_host = 127.0.0.1
stream.advertised_port = {stream}
cluster_formation.peer_discovery_backend = classic_config
"""
#: The port by which Erlang's nodes reach each other is on loopback.
_LOOPBACK = "-kernel inet_dist_use_interface {127,0,0,1}"
_CLIENT = "rstream"
SIDES = (
    Side("RabbitMQ streams, rstream's send_batch", Kind.PRODUCE, _CLIENT, share=0.2),
    Side("RabbitMQ streams, rstream", Kind.CONSUME, _CLIENT, share=0.04),
    Side("RabbitMQ streams", Kind.SINGLY, _CLIENT),
    Side("RabbitMQ streams", Kind.STEADY, _CLIENT),
)


class _RabbitServers:
    """RabbitMQ's processes."""

    def __init__(self, processes: ServerProcesses, ports: list[int]) -> None:
        self._processes = processes
        self._names = {str(port): name for port, name in zip(ports, SERVERS, strict=True)}
        self.addresses = ",".join(f"127.0.0.1:{port}" for port in ports)

    @property
    def pids(self) -> Mapping[str, int]:
        return {port: self._processes.pid(name) for port, name in self._names.items()}

    def kill(self, name: str) -> None:
        self._processes.kill(self._names[name])


def missing() -> str:
    """Returns what to install, as a line; empty if nothing is missing."""
    program = "" if shutil.which(_PROGRAM) else f"{_PROGRAM} (Debian: apt-get install {_PROGRAM})"
    return "; ".join(want for want in (program, missing_clients("rstream")) if want)


def version() -> str:
    """By the name of its folder of plugins."""
    found = [path.name for path in Path("/usr/lib/rabbitmq/lib").glob("rabbitmq_server-*")]
    return found[0].partition("-")[2] if found else "of unknown version"


def _script(name: str) -> str:
    """Debian's programs on the PATH start these as another user, which cannot write where the logs go."""
    return str(_SCRIPTS / name) if (_SCRIPTS / name).exists() else name


def _environment(directory: Path, name: str, ports: Mapping[str, int]) -> dict[str, str]:
    home = directory / name
    home.mkdir()
    nodes = "".join(
        f"cluster_formation.classic_config.nodes.{number} = {each}@localhost\n"
        for number, each in enumerate(SERVERS, start=1)
    )
    config, plugins = home / "rabbitmq.conf", home / "enabled_plugins"
    config.write_text(_CONFIG.format(**ports) + nodes)
    plugins.write_text("[rabbitmq_stream].\n")
    cookie = directory / ".erlang.cookie"
    cookie.write_text(_COOKIE)
    cookie.chmod(0o600)
    return {
        "HOME": str(directory),
        "ERL_EPMD_ADDRESS": "127.0.0.1",
        "RABBITMQ_NODENAME": f"{name}@localhost",
        "RABBITMQ_DIST_PORT": str(ports["distribution"]),
        "RABBITMQ_CONFIG_FILE": str(config),
        "RABBITMQ_CONF_ENV_FILE": "/dev/null",
        "RABBITMQ_ENABLED_PLUGINS_FILE": str(plugins),
        "RABBITMQ_MNESIA_BASE": str(home / "data"),
        "RABBITMQ_LOG_BASE": str(home),
        "RABBITMQ_LOGS": "-",
        "RABBITMQ_PID_FILE": str(home / "pid"),
        "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": _LOOPBACK,
        # The start script becomes the server, and leaves no process between.
        "RUNNING_UNDER_SYSTEMD": "true",
    }


@contextmanager
def started(work_dir: Path) -> Iterator[RunningServers]:
    """Three servers with a cluster between them, and the daemon by which Erlang's nodes find each other."""
    reserved = ReservedPorts(1 + 3 * len(SERVERS))
    epmd, *rest = reserved.ports
    # It tries a port before it takes it, and finds one taken that is only reserved.
    reserved.close()
    streams, amqp, distribution = rest[0::3], rest[1::3], rest[2::3]
    with ServerProcesses(work_dir, "RabbitMQ") as processes:
        processes.start("epmd", ["epmd", "-address", "127.0.0.1", "-port", str(epmd)])
        for place, name in enumerate(SERVERS):
            ports = {"stream": streams[place], "amqp": amqp[place], "distribution": distribution[place]}
            env = _environment(processes.directory, name, ports) | {"ERL_EPMD_PORT": str(epmd)}
            processes.start(name, [_script(_PROGRAM)], env)
        processes.wait_for_ports(streams)
        for name in SERVERS:
            processes.wait_until("completed start", partial(processes.says, name, "Server startup complete"))
        yield _RabbitServers(processes, streams)


PEERS = (
    Peer(
        "rabbitmq",
        "RabbitMQ streams",
        "as shipped: three replicas, no fsync before a confirmation",
        missing,
        version,
        started,
        SIDES,
        reserved="each new replica of a stream opens a port on all interfaces for a moment; no setting binds it",
    ),
)

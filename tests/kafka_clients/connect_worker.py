"""A worker of Kafka Connect, and waiting for what it brings about."""

from __future__ import annotations

import json
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from frameworks import CONNECT_FILE_JARS, CONNECT_JARS
from matrix_clients import BUILD

from bench.peers.artifacts import JarSet
from quorumlog.local.ports import ReservedPorts
from quorumlog.sdk.spark.java import find_java_home

_PATIENCE_S = 180.0


def until(holds: Callable[[], bool], what: str) -> None:
    """Waits until it holds.

    Raises:
        AssertionError: it does not within ``_PATIENCE_S``.
    """
    deadline = time.monotonic() + _PATIENCE_S
    while not holds():
        assert time.monotonic() < deadline, f"not within {_PATIENCE_S:g} s: {what}"
        time.sleep(0.2)


@contextmanager
def kafka_connect(
    servers: str, folder: Path, plugins: Sequence[JarSet] = (CONNECT_FILE_JARS,), *, exactly_once: bool = False
) -> Iterator[str]:
    """A worker of Kafka Connect in distributed mode; the address of its REST API.

    Arguments:
        exactly_once: its sources write in transactions (KIP-618).
    """
    for jars in (CONNECT_JARS, *plugins):
        if jars.missing():
            jars.download()
    # A plugin is a folder of jars in a folder of the path: a jar there on its own sees no other.
    path = folder / "plugins"
    path.mkdir()
    for jars in plugins:
        (path / jars.name).symlink_to(jars.folder)
    with closing(ReservedPorts(1)) as reserved:
        [port] = reserved.ports
        properties = {
            "bootstrap.servers": servers,
            "group.id": "connect-cluster",
            "key.converter": "org.apache.kafka.connect.storage.StringConverter",
            "value.converter": "org.apache.kafka.connect.storage.StringConverter",
            "config.storage.topic": "connect-configs",
            "offset.storage.topic": "connect-offsets",
            "offset.storage.partitions": "3",
            "status.storage.topic": "connect-status",
            "status.storage.partitions": "3",
            "offset.flush.interval.ms": "1000",
            "listeners": f"http://127.0.0.1:{port}",
            "rest.advertised.host.name": "127.0.0.1",
            "plugin.path": str(path),
            "exactly.once.source.support": "enabled" if exactly_once else "disabled",
            "plugin.discovery": "service_load",  # Not by a search through all classes, which takes minutes.
        }
        file = folder / "connect.properties"
        file.write_text("".join(f"{name}={value}\n" for name, value in properties.items()))
        log = BUILD / "connect.log"
        java = find_java_home() / "bin" / "java"
        command = [
            java,
            "-Xmx512m",
            "-cp",
            f"{CONNECT_JARS.folder}/*",
            "org.apache.kafka.connect.cli.ConnectDistributed",
        ]
        with log.open("wb") as out:
            worker = subprocess.Popen([*map(str, command), str(file)], stdout=out, stderr=subprocess.STDOUT)
        try:
            address = f"http://127.0.0.1:{port}"
            until(lambda: asked(address, "GET", "/connectors") == [], "Kafka Connect serves")
            yield address
        finally:
            worker.kill()
            worker.wait()


def asked(address: str, method: str, path: str, content: dict[str, Any] | None = None) -> Any:
    """Returns the answer of the REST API; None if it does not answer."""
    data = None if content is None else json.dumps(content).encode()
    request = urllib.request.Request(address + path, data, {"Content-Type": "application/json"}, method=method)
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:
            return json.load(answer)
    except (urllib.error.URLError, OSError):
        return None

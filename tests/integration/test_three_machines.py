"""docs/operate/security.md, "On three machines", as written: three addresses of this machine are the machines.

Only addresses, ports and folders are exchanged.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from quorumlog.local.ports import ReservedPorts

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(180)]

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "operate" / "security.md").read_text()
SECTION = PAGE.partition("\n## On three machines\n")[2].partition("\n## ")[0]
COMMANDS, SETTINGS, PROPERTIES = re.findall(r"^```\w*\n(.*?)^```$", SECTION, re.M | re.S)
NODES = (1, 2, 3)
DEADLINE_S = 60.0
ENVIRONMENT = {name: value for name, value in os.environ.items() if not name.startswith("QUORUMLOG_")}


class Machines:
    """Three machines and the operator's, which is none of them."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._reserved = [ReservedPorts(2, f"127.0.0.{node}") for node in NODES]
        self._nodes: list[subprocess.Popen[bytes]] = []
        # The page has the same ports on each machine.
        self._ports = {
            f"10.0.0.{node}:{port}": f"127.0.0.{node}:{own}"
            for node, held in zip(NODES, self._reserved, strict=True)
            for port, own in zip((19092, 19093), held.ports, strict=True)
        }

    def here(self, text: str, node: int = 1) -> str:
        """The same with what is another machine's exchanged."""
        text = text.replace("10.0.0.1:", f"10.0.0.{node}:", 2) if "listen =" in text else text
        for there, own in self._ports.items():
            text = text.replace(there, own)
        text = re.sub(r"10\.0\.0\.(\d)", r"127.0.0.\1", text)
        machine = self._folder / f"machine-{node}"
        return text.replace("/etc/quorumlog", str(machine)).replace("/var/lib/quorumlog", str(machine / "data"))

    def run(self, line: str, **more: str) -> subprocess.CompletedProcess[str]:
        words = shlex.split(line)
        assert words[0] == "quorumlog"
        return subprocess.run(
            [sys.executable, "-m", "quorumlog.cli.main", *words[1:]],
            cwd=self._folder,
            env=ENVIRONMENT | more,
            check=False,
            capture_output=True,
            text=True,
            timeout=60,
        )

    def start(self, node: int) -> None:
        machine = self._folder / f"machine-{node}"
        made = self._folder / "quorumlog-certs"
        for name in (f"node-{node}.crt", f"node-{node}.key", "node-ca.crt", "client-ca.crt"):
            shutil.copy(made / name, machine / name)
        settings = (
            self.here(SETTINGS, node).replace("node_id = 1", f"node_id = {node}").replace("node-1.", f"node-{node}.")
        )
        (machine / "node.toml").write_text(settings)
        command = [sys.executable, "-m", "quorumlog.cli.main", "node", "start", "--config", str(machine / "node.toml")]
        with (machine / "node.log").open("wb") as log:
            self._nodes.append(subprocess.Popen(command, env=ENVIRONMENT, stdout=log, stderr=log))

    def stop(self) -> None:
        for process in self._nodes:
            process.terminate()
        for process in self._nodes:
            process.wait(30)
        for held in self._reserved:
            held.close()

    @property
    def servers(self) -> str:
        return self._ports["10.0.0.1:19092"]

    def said(self) -> str:
        return "".join(log.read_text() for log in self._folder.glob("machine-*/node.log"))[-3_000:]


@pytest.fixture
def machines(tmp_path: Path) -> Iterator[Machines]:
    for node in NODES:
        (tmp_path / f"machine-{node}").mkdir()
    made = Machines(tmp_path)
    yield made
    made.stop()


def test_what_the_page_says_makes_a_healthy_cluster_that_asks_for_certificates(
    machines: Machines, tmp_path: Path
) -> None:
    for line in COMMANDS.splitlines():
        done = machines.run(machines.here(line))
        assert done.returncode == 0, f"{line}: {done.stderr}"
    for node in NODES:
        machines.start(node)
    for name in ("admin.crt", "admin.key"):
        shutil.copy(tmp_path / "quorumlog-certs" / name, tmp_path / "machine-1" / name)
    properties = tmp_path / "client.properties"
    properties.write_text(machines.here(PROPERTIES))
    reached = {"QUORUMLOG_BOOTSTRAP_SERVERS": machines.servers, "QUORUMLOG_COMMAND_CONFIG": str(properties)}
    deadline = time.monotonic() + DEADLINE_S
    while (health := machines.run("quorumlog cluster health", **reached)).returncode != 0:
        assert time.monotonic() < deadline, health.stdout + health.stderr + machines.said()
    assert "healthy: 3 nodes" in health.stdout
    created = machines.run("quorumlog topics create orders --replication-factor 3", **reached)
    assert created.returncode == 0, created.stderr
    strange = machines.run("quorumlog topics list", QUORUMLOG_BOOTSTRAP_SERVERS=machines.servers)
    assert strange.returncode == 1

"""The container: what it is built of, whom it runs as, and what its probes ask the node."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest

from quorumlog.local import LocalCluster
from quorumlog.local.ports import ReservedPorts
from quorumlog.server.config.settings import Settings
from tests.support.package_tools import tool
from tests.support.readme_tour import ROOT

CONTAINER = ROOT / "packaging/container"
CONTAINERFILE = (CONTAINER / "Containerfile").read_text()
ASK_NODE = str(CONTAINER / "ask-node")


def test_the_linter_of_containers_finds_nothing() -> None:
    done = subprocess.run(
        [tool("hadolint"), str(CONTAINER / "Containerfile")], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stdout) == (0, "")


def test_a_container_runs_as_nobody_in_particular_and_brings_no_tools_of_its_build() -> None:
    building, running = CONTAINERFILE.split("\nFROM ")[1:]
    assert "USER 10001:10001" in running
    assert "pip install" in building and "pip" not in running


def test_the_environment_of_a_container_are_settings() -> None:
    named = {name.lower() for name in re.findall(r"\bQUORUMLOG_(\w+)=", CONTAINERFILE)}
    assert named and named <= set(Settings.model_fields)


def test_what_is_copied_is_let_in_and_exists() -> None:
    """Whatever else is in a checkout, keys and data among it, is not sent to who builds."""
    let_in = {line[1:] for line in (ROOT / ".containerignore").read_text().splitlines() if line.startswith("!")}
    copied = {
        name
        for names in re.findall(r"^COPY (?!--from)(?:--\S+ )?(.*) \S+$", CONTAINERFILE, re.M)
        for name in names.split()
    }
    assert copied == let_in
    assert all((ROOT / name).exists() for name in copied if not name.startswith("dist/"))


@pytest.mark.cluster
def test_probes_ask_whether_the_node_lives_and_serves(tmp_path: Path) -> None:
    reserved = ReservedPorts(1)
    address = f"127.0.0.1:{reserved.ports[0]}"

    def ask(page: str) -> bool:
        environment = os.environ | {"QUORUMLOG_METRICS_LISTEN": address}
        command = [ASK_NODE, page]
        return subprocess.run(command, env=environment, capture_output=True, timeout=30, check=False).returncode == 0

    assert not ask("livez"), "no process listens there"
    with LocalCluster(nodes=1, node_settings={1: {"metrics_listen": address}}):
        assert ask("livez") and ask("readyz")
        assert not ask("nothing")
    assert not ask("readyz")
    reserved.close()

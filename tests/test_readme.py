"""Every block of the README that is marked ``<!-- run -->`` runs as written, in order, against a real cluster.

Only two things are exchanged, so that the test disturbs nobody: the port 19092 and the directory /tmp/quorumlog.
"""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
README = (ROOT / "README.md").read_text()
BLOCK = re.compile(r"^<!-- run(?:: (?P<how>\w+))? -->\n```(?P<language>\w+)\n(?P<text>.*?)^```$", re.M | re.S)
#: Generous: Spark alone takes a minute where four other test processes share two cores.
BLOCK_TIMEOUT_S = 240
NODES = 3

#: What is printed by the blocks, in order; each must appear in the output of its block.
EXPECTED = [
    ["Created topic orders", "PartitionCount: 3", "ReplicationFactor: 3"],
    ["Produced 3 records to orders", "anna bought 3 apples", "anna bought 2 plums", "clara bought 1 pear"],
    ["LOG-END-OFFSET", "NEW-OFFSET", "this was a dry run", "again: clara bought 1 pear"],
    ["healthy: 3 nodes", "ClusterId:", "LeaderId:", "CurrentVoters:", '"partition": 2'],
    [
        "Configs: retention.ms=86400000",
        "Topic scratch has 4 partitions.",
        "min.insync.replicas",
        "Deleted topic scratch",
    ],
    ["3,1,2      moved", "No partition is being moved."],
    ["RecordMetadata(topic='readings', partition=0, offset=999", "1000 rows:"],
    ["anna", "3 apples", "partition", "offset"],
    ["1 passed"],
    ["bytes copied", "sound."],
    ["sound:"],
]


@dataclass(frozen=True)
class Block:
    """A runnable block: how it is run (bash, python, pytest), its text, and the line it begins at."""

    how: str
    text: str
    line: int


def blocks() -> list[Block]:
    return [
        Block(found["how"] or found["language"], found["text"], README[: found.start()].count("\n") + 1)
        for found in BLOCK.finditer(README)
    ]


def free_base_port() -> int:
    """A port that is free together with the ports after it that the other nodes take."""
    for port in range(23_000 + os.getpid() % 5_000, 32_000, NODES):
        with socket.socket() as first, socket.socket() as second, socket.socket() as third:
            try:
                for offset, probe in enumerate((first, second, third)):
                    probe.bind(("127.0.0.1", port + offset))
            except OSError:
                continue
            return port
    raise AssertionError("no three free ports in a row")


@pytest.fixture(scope="module")
def tour(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[dict[str, str], Path, int]]:
    """Environment, directory and base port of the tour; its cluster is taken down whatever happens."""
    directory = tmp_path_factory.mktemp("tour")
    port = free_base_port()
    environment = os.environ | {
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "QUORUMLOG_BASE_PORT": str(port),
        "QUORUMLOG_BOOTSTRAP_SERVERS": f"127.0.0.1:{port}",
    }
    yield environment, directory, port
    if (directory / "quorumlog").exists():
        down = ["quorumlog", "cluster", "down", "--data-dir", str(directory / "quorumlog")]
        subprocess.run(down, env=environment, check=False, timeout=60)


def run(block: Block, environment: dict[str, str], directory: Path, port: int) -> str:
    """Runs a block; returns what it printed."""
    text = block.text.replace("/tmp/quorumlog", str(directory / "quorumlog")).replace(":19092", f":{port}")
    if block.how == "bash":
        command = ["bash", "-euo", "pipefail", "-c", text]
    else:
        script = directory / f"test_readme_line_{block.line}.py"
        script.write_text(text)
        command = [sys.executable, str(script)]
        if block.how == "pytest":
            command[1:1] = ["-m", "pytest", "-p", "no:cacheprovider", "--rootdir", str(directory), "-q"]
    done = subprocess.run(
        command, env=environment, cwd=directory, capture_output=True, text=True, timeout=BLOCK_TIMEOUT_S, check=False
    )
    assert done.returncode == 0, f"README.md:{block.line}:\n{done.stdout}{done.stderr}"
    return done.stdout


@pytest.mark.cluster
@pytest.mark.spark
@pytest.mark.timeout(480)
def test_the_tour_runs_as_written(tour: tuple[dict[str, str], Path, int]) -> None:
    environment, directory, port = tour
    found = blocks()
    assert len(found) == len(EXPECTED), "a block was added or removed: say in EXPECTED what it must print"
    for block, expected in zip(found, EXPECTED, strict=True):
        printed = run(block, environment, directory, port)
        for piece in expected:
            assert piece in printed, f"README.md:{block.line}: {piece!r} is not in\n{printed}"


def test_what_the_readme_names_exists() -> None:
    for target in re.findall(r"\]\(([^)#:]+)\)", README):
        assert (ROOT / target).exists(), f"README.md links to {target}, which does not exist"
    for folder in re.findall(r"`(\w+)/`", README):
        assert (ROOT / folder).is_dir(), f"README.md names the folder {folder}/, which does not exist"

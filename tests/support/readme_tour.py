"""The blocks of README.md and docs/use/tour.md that are marked ``<!-- run -->``, to be run as written, in order.

Only the ports and the directory /tmp/quorumlog are replaced, so that a test disturbs nothing else on the machine.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.support.free_ports import free_base_port

ROOT = Path(__file__).resolve().parent.parent.parent
#: Pages whose blocks run, each on a cluster of its own.
README, TOUR = "README.md", "docs/use/tour.md"
BLOCK = re.compile(r"^<!-- run(?:: (?P<how>\w+))? -->\n```(?P<language>\w+)\n(?P<text>.*?)^```$", re.M | re.S)
#: Generous: Spark alone takes a minute where four other test processes share two cores.
BLOCK_TIMEOUT_S = 240
NODES = 3


@dataclass(frozen=True)
class Block:
    """A runnable block: how it is run (bash, python, pytest), its text, its page and first line."""

    how: str
    text: str
    page: str
    line: int


def blocks(page: str = TOUR) -> list[Block]:
    """The runnable blocks of a page, in its order."""
    text = (ROOT / page).read_text()
    return [
        Block(found["how"] or found["language"], found["text"], page, text[: found.start()].count("\n") + 1)
        for found in BLOCK.finditer(text)
    ]


@dataclass(frozen=True)
class Tour:
    """The directory, ports and interpreter with which the blocks run.

    Arguments:
        directory: the current one, and in which the cluster's is.
        port: the first of the nodes'.
        python: the interpreter whose environment quorumlog is installed in.
        tls: the cluster is brought up with that flag, and its line is typed.
    """

    directory: Path
    port: int
    python: Path
    tls: bool = False

    @property
    def environment(self) -> dict[str, str]:
        reached = {"QUORUMLOG_COMMAND_CONFIG": str(self.properties)} if self.properties.exists() else {}
        return (
            os.environ
            | reached
            | {
                "PATH": f"{self.python.parent}{os.pathsep}{os.environ['PATH']}",
                "QUORUMLOG_BASE_PORT": str(self.port),
                "QUORUMLOG_BOOTSTRAP_SERVERS": f"127.0.0.1:{self.port}",
            }
        )

    @property
    def properties(self) -> Path:
        """The file with the connection settings of commands, which is created with a cluster that has TLS."""
        return self.directory / "quorumlog" / "certs" / "client.properties"

    def run(self, block: Block) -> str:
        """Runs a block; returns what it printed."""
        there = str(self.directory / "quorumlog")
        text = block.text.replace("/tmp/quorumlog", there).replace(":19092", f":{self.port}")
        # `cluster up --kafka` takes the ports behind those of the nodes.
        text = text.replace(":19095", f":{self.port + NODES}")
        if self.tls:
            typed = rf"quorumlog cluster up --tls\1\nexport QUORUMLOG_COMMAND_CONFIG={self.properties}"
            text = re.sub(r"quorumlog cluster up(.*)", typed, text)
        if block.how == "bash":
            command = ["bash", "-euo", "pipefail", "-c", text]
        else:
            script = self.directory / f"test_readme_line_{block.line}.py"
            script.write_text(text)
            command = [str(self.python), str(script)]
            if block.how == "pytest":
                command[1:1] = ["-m", "pytest", "-p", "no:cacheprovider", "--rootdir", str(self.directory), "-q"]
        done = subprocess.run(
            command,
            env=self.environment,
            cwd=self.directory,
            capture_output=True,
            text=True,
            timeout=BLOCK_TIMEOUT_S,
            check=False,
        )
        assert done.returncode == 0, f"{block.page}:{block.line}:\n{done.stdout}{done.stderr}"
        return done.stdout

    def run_all(self, chosen: list[tuple[Block, list[str]]]) -> None:
        """Runs blocks, each with the pieces that it must print."""
        for block, expected in chosen:
            printed = self.run(block)
            for piece in expected:
                assert piece in printed, f"{block.page}:{block.line}: {piece!r} is not in\n{printed}"


@contextmanager
def tour(directory: Path, python: Path = Path(sys.executable), *, tls: bool = False) -> Iterator[Tour]:
    """A tour whose cluster is taken down whatever happens."""
    taken = Tour(directory, free_base_port(2 * NODES), python, tls)  # With TLS nodes need two each.
    try:
        yield taken
    finally:
        if (directory / "quorumlog").exists():
            down = ["quorumlog", "cluster", "down", "--data-dir", str(directory / "quorumlog")]
            subprocess.run(down, env=taken.environment, check=False, timeout=60)

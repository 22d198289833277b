"""Kafka's clients of several languages, as programs that write and read the same records.

Each program takes ``write SERVERS TOPIC CODEC``, with records on standard input, or ``read SERVERS TOPIC GROUP COUNT``,
and prints records; ``programs/python/exchange.py`` says how a record is laid out. With ``CLIENT_RACK`` in the
environment, it reads from replicas in that rack, if the client can (KIP-392). What a program needs comes from its
language's registry, pinned by the files beside it, and is kept under ``build/kafka-clients``.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from exchange import Line, lay_out, parse

from bench.peers.artifacts import JarSet
from bench.peers.kafka import JARS as SERVER_JARS
from quorumlog.sdk.spark.java import find_java_home

PROGRAMS = Path(__file__).resolve().parent / "programs"
BUILD = PROGRAMS.parent.parent.parent / "build" / "kafka-clients"
#: Of Apache Kafka's last 3.x; that of 4.x is among the jars of its servers.
JAVA_3_JARS = JarSet("kafka-clients", "org.apache.kafka", "connect-json", "3.9.1")
#: A header without a value; a record without key and value.
NULL_HEADER, NOTHING = "null header", "nothing"
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
_INSTALLED_WITHIN_S, _DONE_WITHIN_S = 600, 120


class ClientFailedError(Exception):
    """A program did not do its work; the message is what it said last."""


@dataclass(frozen=True)
class MatrixClient:
    """A client.

    Arguments:
        name: with its version.
        command: makes what it needs ready, and returns how it is called.
        codecs: with which it compresses, and which it takes.
        cannot_write: what it has no way to say, of ``NULL_HEADER`` and ``NOTHING``.
        has_racks: it reads from the replicas of its rack.
    """

    name: str
    command: Callable[[], Sequence[str | Path]]
    codecs: tuple[str, ...] = CODECS
    cannot_write: tuple[str, ...] = ()
    has_racks: bool = False

    def write(self, servers: str, topic: str, codec: str, records: Sequence[Line]) -> None:
        """Writes records, each to its partition, and waits until all are acknowledged.

        Raises:
            ClientFailedError: it says that it did not.
        """
        self._run("".join(lay_out(each) + "\n" for each in records), "write", servers, topic, codec)

    def read(self, servers: str, topic: str, group: str, count: int, rack: str = "") -> list[Line]:
        """Reads as many records from the start as a member of a group, and commits.

        Raises:
            ClientFailedError: it did not get them.
        """
        printed = self._run("", "read", servers, topic, group, str(count), rack=rack)
        return [parse(line) for line in printed.splitlines()]

    def _run(self, text: str, *arguments: str, rack: str = "") -> str:
        command = [*map(str, self.command()), *arguments]
        environment = {**os.environ, "CLIENT_RACK": rack}
        ended = subprocess.run(
            command, input=text, capture_output=True, text=True, timeout=_DONE_WITHIN_S, check=False, env=environment
        )
        if ended.returncode:
            raise ClientFailedError(f"{self.name} {arguments[0]}: {ended.stderr.strip()[-4_000:]}")
        return ended.stdout


def _made(command: Sequence[str | Path], folder: Path) -> None:
    ended = subprocess.run(
        [str(each) for each in command],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=_INSTALLED_WITHIN_S,
        check=False,
    )
    if ended.returncode:
        raise ClientFailedError(f"{' '.join(map(str, command))}: {(ended.stdout + ended.stderr).strip()[-4_000:]}")


@cache
def _go(name: str, versions: str = "go") -> Sequence[str | Path]:
    """Builds a program with the versions that ``programs/go/VERSIONS.mod`` pins."""
    program = BUILD / versions / name
    _made(["go", "build", f"-modfile={versions}.mod", "-o", program, f"./{name}"], PROGRAMS / "go")
    return [program]


@cache
def _node() -> Sequence[str | Path]:
    folder = BUILD / "node"
    folder.mkdir(parents=True, exist_ok=True)
    for file in (PROGRAMS / "node").iterdir():
        if file.is_file():
            shutil.copy(file, folder)
    _made(["npm", "ci", "--silent", "--no-audit", "--no-fund"], folder)
    return ["node", folder / "kafkajs_client.mjs"]


@cache
def _java(jars: JarSet, name: str = "KafkaClient") -> Sequence[str | Path]:
    if jars.missing():
        jars.download()
    classes = BUILD / f"java-{jars.name}"
    classes.mkdir(parents=True, exist_ok=True)
    home, path = find_java_home(), f"{jars.folder}/*"
    _made([home / "bin" / "javac", "-cp", path, "-d", classes, PROGRAMS / "java" / f"{name}.java"], classes)
    return [home / "bin" / "java", "-Xmx512m", "-cp", f"{classes}:{path}", name]


@cache
def _python(program: str, *requirements: str) -> Sequence[str | Path]:
    """A program of this environment, or of one of its own with other versions."""
    python = Path(sys.executable)
    if requirements:
        name, _, version = requirements[0].partition("==")
        home = BUILD / f"python-{name.partition('[')[0]}-{version}"
        python, installed = home / "bin" / "python", home / ".installed"
        wanted = "".join(f"{each}\n" for each in requirements)
        if not installed.exists() or installed.read_text() != wanted:
            _made([sys.executable, "-m", "venv", "--clear", home], PROGRAMS)
            _made([python, "-m", "pip", "install", "--quiet", *requirements], PROGRAMS)
            installed.write_text(wanted)
    return [python, PROGRAMS / "python" / f"{program}.py"]


CLIENTS = (
    MatrixClient("confluent-kafka 2.16", lambda: _python("confluent_client"), has_racks=True),
    MatrixClient(
        "kafka-python 3.0",
        lambda: _python("kafka_python_client", "kafka-python[lz4,snappy,zstd,crc32c]==3.0.12"),
        cannot_write=(NULL_HEADER, NOTHING),
    ),
    MatrixClient(
        "kafka-python 2.3",
        lambda: _python("kafka_python_client", "kafka-python[lz4,snappy,zstd,crc32c]==2.3.3"),
        cannot_write=(NULL_HEADER, NOTHING),
    ),
    MatrixClient("aiokafka 0.14", lambda: _python("aiokafka_client"), cannot_write=(NOTHING,)),
    MatrixClient("franz-go 1.22", lambda: _go("franz"), has_racks=True),
    MatrixClient("sarama 1.61", lambda: _go("sarama"), has_racks=True),
    # Before 1.45.1, sarama omits the largest timestamp of a batch.
    MatrixClient("sarama 1.43", lambda: _go("sarama", "sarama-1.43")),
    MatrixClient("KafkaJS 2.2", _node, ("none", "gzip", "snappy"), (NULL_HEADER,)),
    MatrixClient("Java 3.9", lambda: _java(JAVA_3_JARS), has_racks=True),
    MatrixClient("Java 4.3", lambda: _java(SERVER_JARS), has_racks=True),
)

"""Wrong input on every command: one line on stderr that says what to do, and the right exit status, no traceback.

Two tables say what is tried. ``BASELINES`` holds every command with arguments that are complete and harmless; each of
its options and arguments is then given hostile values (``HOSTILE``), and what comes of it is judged by its shape.
``ROWS`` holds particular mistakes and words that the line must have. A command that is missing in one fails the tests.

Commands run in this process, through the same edge as the program's (``cli.boundary``), against one real cluster.
"""

from __future__ import annotations

import enum
import io
import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import typer
import typer.core

from quorumlog.cli import boundary
from quorumlog.cli.main import app
from quorumlog.local import LocalCluster
from quorumlog.sdk import Producer
from quorumlog.sdk.cluster.cluster import Cluster

pytestmark = pytest.mark.cluster

COMMAND: Any = typer.main.get_command(app)
#: No one listens here.
NOBODY = "127.0.0.1:1"
LONGEST_LINE = 520
#: A password for users that are created, in a file that no one else may read. Every process of a test run has the same.
PASSWORD_FILE = os.path.join(tempfile.gettempdir(), f"quorumlog-not-a-secret-{os.getuid()}")
#: Another one, which commands that write to a file may overwrite.
A_FILE = f"{PASSWORD_FILE}-a-file"
Path(A_FILE).write_text("not a directory\n")
with os.fdopen(os.open(PASSWORD_FILE, os.O_WRONLY | os.O_CREAT, 0o600), "w") as _kept:
    _kept.write("not-a-secret\n")


@dataclass(frozen=True)
class Outcome:
    """Returns what a command left behind."""

    arguments: tuple[str, ...]
    status: int
    stdout: bytes
    stderr: str

    @property
    def line(self) -> str:
        """The one line of a command that failed."""
        assert self.status in (boundary.FAILED, boundary.WRONG_USAGE), self
        assert self.stderr.startswith("quorumlog: "), self
        [line] = self.stderr.removesuffix("\n").split("\n")
        assert line.isprintable(), self
        assert len(line) <= LONGEST_LINE, self
        assert "internal error" not in line, self
        assert self.stdout == b"", self
        return line


def run(*arguments: str, text: bytes = b"x\n") -> Outcome:
    """Runs a command with ``text`` as its standard input."""
    out, errors = io.TextIOWrapper(io.BytesIO(), encoding="utf-8"), io.StringIO()
    before = sys.stdin, sys.stdout, sys.stderr
    sys.stdin, sys.stdout, sys.stderr = io.TextIOWrapper(io.BytesIO(text), encoding="utf-8"), out, errors
    try:
        status = boundary.run(lambda: COMMAND.main(list(arguments), prog_name="quorumlog", standalone_mode=False))
        out.flush()
    finally:
        sys.stdin, sys.stdout, sys.stderr = before
    return Outcome(arguments, status, out.buffer.getvalue(), errors.getvalue())  # type: ignore[attr-defined]


def commands(command: Any = COMMAND, path: tuple[str, ...] = ()) -> Iterator[tuple[str, Any]]:
    """Every command of the program, by its full name."""
    if isinstance(command, typer.core.TyperGroup):
        for name, below in command.commands.items():
            yield from commands(below, (*path, name))
    else:
        yield " ".join(path), command


ALL = dict(commands())

#: Complete arguments for each command, such that nothing is changed or started when one of them is overridden with
#: something that is taken. Those that would start processes fail for another reason first.
BASELINES: dict[str, tuple[str, ...]] = {
    "version": (),
    "node start": ("--node-id", "1", "--listen", "127.0.0.1:1"),
    "cluster up": ("--data-dir", "/proc/none"),
    "cluster down": ("--data-dir", "/proc/none"),
    "cluster status": ("--data-dir", "/proc/none"),
    "cluster describe": (),
    "cluster health": (),
    "topics create": ("orders", "--partitions", "3"),
    "topics list": (),
    "topics describe": ("orders",),
    "topics alter": ("orders", "--config", "retention.ms=86400000", "--dry-run"),
    "topics configs": ("orders",),
    "topics offsets": ("orders",),
    "topics add-partitions": ("orders", "--partitions", "6", "--dry-run"),
    "topics delete": ("orders", "--dry-run"),
    "topics delete-records": ("orders", "--before", "0"),
    "partitions reassign": ("--topic", "orders", "--replicas", "1,2,3", "--dry-run"),
    "partitions rebalance": ("--dry-run",),
    "partitions list-reassignments": (),
    "leaders balance": ("--topic", "orders", "--dry-run"),
    "produce": ("orders",),
    "explain": ("orders", "hello", "--partition", "2"),
    "consume": ("orders", "--until-end"),
    "mirror": ("--from", "kafka://127.0.0.1:1"),
    "producers list": (),
    "transactions list": (),
    "transactions describe": ("billing",),
    "transactions abort": ("billing", "--dry-run"),
    "producers delete": ("etl", "--dry-run"),
    "users create": ("alice", "--password-file", PASSWORD_FILE),
    "users list": (),
    "users delete": ("unknown", "--yes"),
    "quotas set": ("User:unknown", "--request-rate", "1000"),
    "quotas list": (),
    "quotas delete": ("User:unknown", "--yes"),
    "acls create": ("--allow", "User:alice", "--operation", "Read", "--topic", "orders"),
    "acls list": (),
    "acls delete": ("--topic", "orders", "--dry-run"),
    "acls check": ("--operation", "Read", "--topic", "orders"),
    "groups list": (),
    "groups describe": ("billing",),
    "groups reset-offsets": ("billing", "--topic", "orders", "--to-earliest"),
    "groups delete": ("billing", "--dry-run"),
    "groups delete-offsets": ("billing", "--topic", "orders", "--dry-run"),
    "certs create-ca": ("--dir", "/proc/none"),
    "certs create-node": ("1", "--dir", "/proc/none"),
    "certs create-client": ("alice", "--dir", "/proc/none"),
    "certs show": ("/proc/none",),
    "certs check": ("/proc/none",),
    "certs revoke": ("1f",),
    "certs restore": ("1f",),
    "certs revocations": (),
    "log dump": ("--data-dir", "/proc/none"),
    "log verify": ("--data-dir", "/proc/none"),
    "nodes list": (),
    "nodes drain": ("3", "--dry-run"),
    "nodes undrain": ("3",),
    "nodes replace": ("3", "--with", "2", "--dry-run"),
    "nodes remove": ("3", "--dry-run"),
    "nodes configure": ("1", "log_level=info", "--dry-run"),
    "nodes settings": ("1",),
    "backup create": ("/proc/none", "--topic", "nope"),
    "backup verify": ("/proc/none",),
    "backup restore": ("/proc/none",),
    "recover survey": ("--data-dir", "/proc/none"),
    "recover plan": ("/proc/none",),
    "recover apply": ("/proc/none", "--data-dir", "/proc/none"),
    "recover local": ("--data-dir", "/proc/none"),
    "features describe": (),
    "features upgrade": ("--dry-run",),
    "quorum describe": (),
    "quorum add": ("3", "--dry-run"),
    "quorum remove": ("3", "--dry-run"),
    "quorum replace": ("3", "--with", "2", "--dry-run"),
    "console": ("--listen", "192.0.2.1:0", "--insecure"),
    "chaos run": ("nope",),
    "chaos fuzz": ("--replay", "/proc/none"),
    "chaos list": (),
}

#: Words of libraries and of the operating system's calls, which say nothing of what to do.
RAW_WORDS = ("Input should", "parse string", "parse input", "Value error", "Errno", "strerror", "Traceback", "[type=")
TEXTS = ("", " ", "a\nb", "\x01\x1b[2J", "größe 🦆", "\udcff", "x" * 5000)
HOSTILE: dict[str, tuple[str, ...]] = {
    "int": ("", "x", "-1", "1.5", "1e3", "2147483648", "9223372036854775808", "9" * 5000, "٣"),
    "float": ("", "x", "-1", "nan", "inf", "-inf", "1e308", "1e400"),
    "path": (
        "",
        "/proc/none/x",
        "/proc/version/x",
        "/proc/\udcff",
        "/proc/\x1b",
        "x" * 5000,
        A_FILE,
        "/proc",
    ),
    "enum": ("", "nope", "\x01", "\udcff", "x" * 5000),
    "str": TEXTS,
}


def kind_of(parameter: Any) -> str | None:
    """Returns the hostile values that suit a parameter; None for flags, which accept no value."""
    annotation = parameter.type_descriptor.annotation
    if annotation is bool:
        return None
    if isinstance(annotation, type) and issubclass(annotation, enum.Enum):
        return "enum"
    for kind, name in ((int, "int"), (float, "float"), (Path, "path"), (str, "str")):
        if annotation in (kind, list[kind]):  # type: ignore[valid-type]
            return name
    raise AssertionError(f"say in HOSTILE what is hostile to {parameter.name}: {annotation}")


def with_hostile_values(name: str) -> Iterator[tuple[str, ...]]:
    """Command lines of one command, each with one hostile value."""
    for parameter in ALL[name].params:
        kind = kind_of(parameter)
        if kind is None or parameter.name == "help":
            continue
        for value in HOSTILE[kind]:
            if parameter.param_type_name == "option":
                yield *name.split(), *BASELINES[name], f"{max(parameter.opts, key=len)}={value}"
            elif not value.startswith("-"):
                yield *name.split(), value, *BASELINES[name][1:]


@pytest.fixture(scope="module", autouse=True)
def cluster(quorumlog_cluster: LocalCluster) -> Iterator[LocalCluster]:
    """The commands' cluster: topic ``orders`` has three partitions, producer ``etl`` has written to it, group
    ``billing`` is at its start."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("QUORUMLOG_BOOTSTRAP_SERVERS", quorumlog_cluster.bootstrap_servers)
        patch.setattr("quorumlog.sdk.mirror.source.FIRST_ANSWER_WITHIN_S", 0.05)  # No one will.
        assert run("topics", "create", "orders", "--partitions", "3").status == 0
        assert run("produce", "orders", "--partition", "0").status == 0
        with Producer(bootstrap_servers=quorumlog_cluster.bootstrap_servers, producer_name="etl") as producer:
            producer.send("orders", b"x", partition=0).result(60)
        assert run("groups", "reset-offsets", "billing", "--topic", "orders", "--to-earliest", "--execute").status == 0
        yield quorumlog_cluster


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Clients that look for a node for a moment only."""
    original = Cluster.__init__

    def patched(self: Cluster, *arguments: Any, **options: Any) -> None:
        original(self, *arguments, **(options | {"bootstrap_timeout_s": 0.15}))

    monkeypatch.setattr(Cluster, "__init__", patched)


def test_every_command_is_in_the_tables() -> None:
    assert set(BASELINES) == set(ALL), "a command was added or removed: say in BASELINES how it is called harmlessly"
    missing = set(ALL) - {row[0] for row in ROWS}
    assert not missing, f"say in ROWS what can be wrong with {missing}"


@pytest.mark.parametrize("name", ALL)
def test_a_hostile_value_is_taken_or_refused_with_one_line(
    name: str, cluster: LocalCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for arguments in with_hostile_values(name):
        outcome = run(*arguments)
        if outcome.status == 0:
            assert outcome.stderr == "", outcome
        else:
            assert not [words for words in RAW_WORDS if words in outcome.line], outcome
    assert all(cluster.is_running(node) for node in cluster.node_ids)


@pytest.mark.parametrize("name", ALL)
def test_an_unknown_option_or_argument_is_wrong_usage(name: str) -> None:
    for wrong in ("--no-such-option", "--=", "-?"):
        outcome = run(*name.split(), *BASELINES[name], wrong)
        assert outcome.status == boundary.WRONG_USAGE, outcome
        assert f"try 'quorumlog {name} --help'" in outcome.line
    assert run(*name.split(), "--help").status == 0


@pytest.mark.parametrize(
    "name",
    [name for name, command in ALL.items() if "bootstrap_servers" in {parameter.name for parameter in command.params}],
)
def test_without_a_cluster_the_line_names_the_address(name: str, impatient: None) -> None:
    outcome = run(*name.split(), *BASELINES[name], "--bootstrap-servers", NOBODY)
    assert outcome.status == boundary.FAILED
    assert NOBODY in outcome.line
    assert "is the cluster up" in outcome.line


NUMBER = "'x' is not an integer"

#: Command, further arguments, exit status, words of the line.
ROWS: list[tuple[str, tuple[str, ...], int, tuple[str, ...]]] = [
    ("version", ("orders",), 2, ("unexpected", "orders")),
    ("node start", (), 2, ("node_id is not set", "--node-id")),
    ("node start", ("--config", "/proc/none.toml"), 2, ("/proc/none.toml", "does not exist")),
    ("node start", ("--data-dir", A_FILE), 2, ("--data-dir", "is a file", "give a directory")),
    ("node start", ("--config", "/tmp"), 2, ("--config", "'/tmp' is a directory", "give a file")),
    ("node start", ("--witness-only", "yes"), 2, ("unexpected", "yes")),
    ("node start", ("--node-id", "x"), 2, ("--node-id", NUMBER)),
    ("console", ("--listen", "0.0.0.0:0"), 2, ("0.0.0.0:0", "not encrypted", "--insecure")),
    ("console", ("--listen", "127.0.0.1"), 2, ("'127.0.0.1'", "HOST:PORT")),
    ("console", ("--listen", "127.0.0.1:65536"), 2, ("'127.0.0.1:65536'", "HOST:PORT")),
    ("console", ("--listen", "127.0.0.1:0", "--name", "a b"), 2, ("'a b'", "is not a host name")),
    ("console", ("--kafka",), 2, ("--kafka applies to", "--playground")),
    ("console", ("--nodes", "5"), 2, ("--nodes applies to", "--playground")),
    ("console", ("--listen", "192.0.2.1:0", "--insecure"), 1, ("192.0.2.1:0", "cannot listen", "--listen")),
    ("cluster up", ("--nodes", "0"), 2, ("--nodes", "1")),
    ("cluster up", ("--nodes", "65"), 2, ("--nodes", "64")),
    ("cluster up", ("--base-port", "70000"), 2, ("--base-port", "65535")),
    ("cluster up", ("--nodes", "three"), 2, ("--nodes", "'three' is not an integer")),
    ("cluster up", ("--nodes", "9" * 5000), 2, ("--nodes", "is not an integer")),
    ("cluster up", ("--data-dir", "/proc/version/x"), 1, ("/proc/version/x", "part of the path is a file")),
    ("cluster up", ("--data-dir", A_FILE), 2, ("--data-dir", "is a file", "give a directory")),
    ("cluster down", ("--data-dir", "/tmp"), 1, ("/tmp", "no local cluster", "cluster up")),
    ("cluster status", ("--data-dir", "/tmp"), 1, ("/tmp", "no local cluster", "cluster up")),
    ("cluster describe", ("-b", "nonsense"), 2, ("'nonsense'", "host:port")),
    ("cluster health", ("-b", "127.0.0.1:99999"), 2, ("'127.0.0.1:99999'", "host:port")),
    ("nodes list", ("orders",), 2, ("orders",)),
    ("nodes drain", (), 2, ("no node is given", "--machine")),
    ("nodes drain", ("1", "--machine", "a"), 2, ("node 1 is given with --machine", "--machine NAME")),
    ("nodes drain", ("--machine", "a"), 1, ("no node is on machine 'a'", "give the id of a node")),
    ("nodes drain", ("9",), 1, ("node 9 is not registered",)),
    ("nodes drain", ("1",), 1, ("nowhere to go", "add a node")),
    ("nodes drain", ("1", "--throttle", "0"), 2, ("'0'", "50MB/s")),
    ("nodes undrain", ("9",), 1, ("node 9 is not registered",)),
    ("nodes replace", ("1",), 2, ("--with",)),
    ("nodes replace", ("1", "--with", "1"), 1, ("node 1 is up, with its data",)),
    ("nodes remove", ("1",), 1, ("node 1 is up", "stop it first")),
    ("nodes configure", ("1", "scrub=off"), 1, ("unknown setting 'scrub'", "did you mean 'scrub_bytes_per_second'")),
    ("nodes configure", ("1", "max_connections=5"), 1, ("at run time", "set it in the node's file and restart it")),
    ("nodes configure", ("1", "log_level=loud"), 1, ("'loud'", "expected debug, info, warning or error")),
    ("nodes configure", ("1", "log_level=server.x=debug"), 1, ("unknown logger 'server.x'", "did you mean server")),
    ("nodes configure", ("9", "log_level=debug"), 1, ("node 9 is not registered",)),
    ("nodes configure", ("one", "log_level=debug"), 2, ("'one' is not the id of a node", "--all")),
    ("nodes configure", (), 2, ("no node is given", "--all")),
    ("nodes configure", ("1",), 2, ("no setting is given", "--delete KEY")),
    ("nodes configure", ("1", "log_level"), 2, ("'log_level' is not KEY=VALUE",)),
    ("nodes configure", ("1", "log_level=info,debug"), 2, ("log_level is given twice",)),
    ("nodes configure", ("1", "--all", "log_level=info"), 2, ("'1' is given with --all",)),
    ("nodes settings", ("9",), 1, ("node 9 is not registered", "the nodes are 1")),
    ("features describe", ("-o", "yaml"), 2, ("'yaml'", "'json'")),
    ("features upgrade", ("2",), 2, ("unexpected",)),
    ("backup create", (), 2, ("missing argument",)),
    ("backup create", (A_FILE,), 2, ("is a file", "give the directory")),
    ("backup verify", (A_FILE,), 2, ("is a file", "give the directory")),
    ("backup restore", (A_FILE,), 2, ("is a file", "give the directory")),
    ("backup create", ("/proc/none",), 1, ("cannot write", "/proc/none")),
    ("backup create", ("/proc/none", "--topic", "nope"), 1, ("'nope'", "does not exist")),
    ("backup create", ("nowhere://x",), 2, ("nowhere://x",)),
    ("backup verify", ("/proc/none",), 1, ("no backup at /proc/none", "manifest.json")),
    ("backup restore", ("/proc/none",), 1, ("no backup at /proc/none",)),
    ("backup restore", ("/proc/none", "--replication-factor", "0"), 2, ("--replication-factor 0",)),
    ("backup restore", ("/proc/none", "--config", "x"), 2, ("KEY=VALUE",)),
    ("quorum add", (), 2, ("missing argument",)),
    ("quorum add", ("9",), 1, ("node 9 is not registered",)),
    ("quorum remove", ("9",), 1, ("node 9 is not a voter", "the voters are")),
    ("quorum replace", ("1",), 2, ("--with",)),
    ("quorum replace", ("1", "--with", "1"), 1, ("added and removed at once",)),
    ("quorum describe", ("-o", "yaml"), 2, ("'yaml'", "'table'", "'json'")),
    ("topics create", (), 2, ("missing argument",)),
    ("topics create", ("orders",), 1, ("orders", "exists")),
    ("topics create", ("x", "--replication-factor", "0"), 1, ("replication factor 0", "use 3")),
    ("topics create", ("x", "--replication-factor", "4"), 1, ("needs 5 nodes, 4 for", "witness", "use factor 3")),
    ("topics create", ("x", "--replication-factor", "5"), 1, ("replication factor 5", "3")),
    ("topics create", ("x", "--partitions", "0"), 1, ("0 partitions", "1 to")),
    ("topics create", ("x", "--partitions", "9" * 20), 2, ("num_partitions", "9" * 20)),
    ("topics create", ("not/allowed",), 1, ("not/allowed", "letters")),
    ("topics create", ("..",), 1, ("'..'", "not")),
    ("topics create", ("x" * 250,), 1, ("250 characters", "249")),
    ("topics create", ("x", "--config", "retention"), 2, ("--config 'retention'", "KEY=VALUE")),
    ("topics create", ("x", "--config", "retention=1"), 1, ("retention", "did you mean retention.ms")),
    ("topics create", ("x", "--config", "retention.ms=soon"), 1, ("retention.ms=soon", "integer")),
    ("topics create", ("x", "--config", "retention.ms=" + "9" * 30), 1, ("retention.ms=999", "integer")),
    ("topics create", ("x", "--config", "retention.ms=1", "--config", "retention.ms=2"), 2, ("twice",)),
    ("topics list", ("extra",), 2, ("extra",)),
    ("topics describe", ("nope",), 1, ("'nope'", "not exist", "create it")),
    ("topics describe", ("not/allowed",), 1, ("not/allowed", "letters")),
    ("topics describe", ("--unavailable", "--under-min-isr"), 2, ("one of", "--unavailable")),
    ("topics create", ("x", "--replica-assignment", "1,2,x"), 2, ("1,2,x",)),
    ("topics create", ("x", "--replica-assignment", "1,2,9"), 1, ("9",)),
    ("topics create", ("x", "--replica-assignment", "1,1,2"), 1, ("1",)),
    ("topics create", ("x", "--replica-assignment", "9" * 20), 2, ("9" * 20,)),
    ("topics alter", ("orders",), 2, ("--config KEY=VALUE", "--delete-config KEY")),
    ("topics alter", ("nope", "--config", "retention.ms=1000"), 1, ("nope", "not exist")),
    ("topics alter", ("orders", "--config", "retention.ms=-5"), 1, ("retention.ms=-5", "integer")),
    ("topics alter", ("orders", "--config", "cleanup.policy=zip"), 1, ("cleanup.policy=zip", "compact")),
    ("topics alter", ("orders", "--delete-config", "retention"), 1, ("retention", "did you mean retention.ms")),
    ("topics alter", ("orders", "--config", "a=1", "--delete-config", "a"), 2, ("a is given twice",)),
    ("topics configs", ("nope",), 1, ("nope", "not exist")),
    ("topics offsets", ("nope",), 1, ("'nope'", "not exist")),
    ("topics offsets", ("orders", "--partition", "9"), 1, ("no partition 9", "0,1,2")),
    ("topics offsets", ("orders", "--time", "soon"), 2, ("--time 'soon'", "milliseconds")),
    ("topics offsets", ("orders", "--time", "9" * 30), 2, ("--time", "not a time")),
    ("topics add-partitions", ("orders",), 2, ("missing option", "--partitions")),
    ("topics add-partitions", ("orders", "--partitions", "2"), 1, ("orders", "3")),
    ("topics add-partitions", ("orders", "--partitions", "100000"), 1, ("100000",)),
    ("topics add-partitions", ("nope", "--partitions", "2"), 1, ("nope", "not exist")),
    ("topics delete", (), 2, ("missing argument",)),
    ("topics delete", ("nope",), 1, ("'nope' does not exist", "topics list")),
    ("topics delete", ("orders", "order"), 1, ("'order' does not exist", "nothing was deleted", "mean 'orders'")),
    ("topics delete", ("orders", "orders"), 2, ("named twice",)),
    ("topics delete-records", ("orders",), 2, ("--before", "--offset-json-file")),
    ("topics delete-records", ("orders", "--before", "-2"), 2, ("--before -2", "0 or more")),
    ("topics delete-records", ("orders", "--before", "9" * 20), 2, ("9" * 20,)),
    ("topics delete-records", ("orders", "--before", "1000000"), 1, ("1000000", "orders")),
    ("topics delete-records", ("orders", "--before", "0", "--partition", "7"), 1, ("partition 7",)),
    ("topics delete-records", ("nope", "--before", "0"), 1, ("'nope'", "not exist")),
    ("topics delete-records", ("--offset-json-file", "/proc/none"), 1, ("/proc/none", "No such file")),
    ("partitions reassign", (), 2, ("--topic TOPIC", "--file FILE")),
    ("partitions reassign", ("--topic", "orders"), 2, ("--replicas", "--cancel")),
    ("partitions reassign", ("--topic", "orders", "--replicas", "1,x"), 2, ("'1,x'", "node ids")),
    ("partitions reassign", ("--topic", "orders", "--replicas", "1,2,9"), 1, ("9",)),
    ("partitions reassign", ("--topic", "orders", "--replicas", "1,1,2"), 1, ("1",)),
    ("partitions reassign", ("--topic", "orders", "--replicas", "1,2"), 1, ("2",)),
    ("partitions reassign", ("--topic", "orders", "--partition", "7", "--replicas", "1,2,3"), 1, ("7",)),
    ("partitions reassign", ("--topic", "nope", "--replicas", "1,2,3"), 1, ("'nope'", "not exist")),
    ("partitions reassign", ("--topic", "orders", "--cancel"), 1, ("orders", "nothing to cancel")),
    ("partitions reassign", ("--file", "/proc/none"), 1, ("/proc/none", "No such file")),
    ("partitions rebalance", ("orders",), 2, ("orders",)),
    ("partitions rebalance", ("--throttle", "fast"), 2, ("'fast'", "50MB/s")),
    ("partitions rebalance", ("--throttle", "1kB/s"), 1, ("too slow",)),
    ("partitions rebalance", ("--most-moves", "0"), 2, ("--most-moves", "'0' is too small", "1 or more")),
    ("partitions list-reassignments", ("orders",), 2, ("orders",)),
    ("leaders balance", ("--topic", "nope"), 1, ("'nope'", "not exist")),
    ("produce", (), 2, ("missing argument",)),
    ("produce", ("nope",), 1, ("'nope'", "not exist")),
    ("produce", ("not/allowed",), 1, ("not/allowed", "letters")),
    ("produce", ("orders", "--partition", "7"), 1, ("partition 7", "0 to 2")),
    ("produce", ("orders", "--key-separator", ":"), 1, ("line 1", "':'")),
    ("produce", ("orders", "--key-separator", ""), 2, ("--key-separator is empty",)),
    ("produce", ("orders", "--acks", "2"), 2, ("--acks", "'all'")),
    ("produce", ("orders", "--header", "trace"), 2, ("--header 'trace'", "NAME=VALUE")),
    ("produce", ("orders", "--file", "/proc/none"), 1, ("/proc/none", "No such file")),
    ("produce", ("orders", "--file", "/proc"), 2, ("/proc", "directory")),
    ("explain", (), 2, ("missing argument",)),
    ("explain", ("nope", "v"), 1, ("'nope'", "not exist")),
    ("explain", ("orders", "v", "--partition", "7"), 1, ("partition 7", "0 to 2")),
    ("explain", ("orders", "v", "--acks", "0"), 2, ("--acks", "'all'")),
    ("mirror", (), 2, ("missing option '--from'",)),
    ("mirror", ("--from", "127.0.0.1:9092"), 2, ("'127.0.0.1:9092'", "kafka://127.0.0.1:9092")),
    ("mirror", ("--from", "kafka://127.0.0.1:1", "--name", "a b"), 2, ("'a b'", "1 to 100 characters")),
    ("mirror", ("--from", "kafka://127.0.0.1:1", "--rename", "a"), 2, ("'a'", "PATTERN=PATTERN")),
    ("mirror", ("--from", "kafka://127.0.0.1:1", "--skip-to", "a-0"), 2, ("'a-0'", "orders-0:1200")),
    ("mirror", ("--from", "kafka://127.0.0.1:1", "--rename", "*=a.*", "--bidirectional"), 2, ("exclude each other",)),
    ("mirror", ("--from", "kafka://127.0.0.1:1", "--refresh-seconds", "0"), 2, ("--refresh-seconds",)),
    ("mirror", ("--from", "kafka://127.0.0.1:1", "--from-config", "/proc/none"), 1, ("/proc/none", "No such file")),
    ("consume", ("nope",), 1, ("'nope'", "not exist")),
    ("consume", ("not/allowed",), 1, ("not/allowed", "letters")),
    ("consume", ("orders", "--partition", "7"), 1, ("no partition 7", "0,1,2")),
    ("consume", ("orders", "--offset", "1"), 2, ("--offset", "--partition")),
    ("consume", ("orders", "--partition", "0", "--offset", "1", "--from-beginning"), 2, ("give only one of",)),
    ("consume", ("orders", "--partition", "0", "--offset", "999999"), 1, ("999999", "orders-0: the log ")),
    ("consume", ("orders", "--partition", "1", "--offset", "5"), 1, ("orders-1: the log is empty", "earliest")),
    ("consume", ("orders", "--tail", "5", "--offset", "-5"), 2, ("give only one of", "--tail")),
    ("consume", ("orders", "--offset", "--5"), 2, ("'--5'", "-N for the last N")),
    ("consume", ("orders", "--group", "g", "--tail", "5"), 2, ("with --group", "--tail")),
    ("consume", ("orders", "--partition", "0", "--offset", "9" * 30), 2, ("9" * 30, "offset")),
    ("consume", ("orders", "--partition", "0", "--offset", "first"), 2, ("--offset 'first'", "earliest or latest")),
    ("consume", ("orders", "--from-time", "yesterday"), 2, ("--from-time 'yesterday'", "milliseconds")),
    ("consume", ("orders", "--from-beginning", "--from-time", "1"), 2, ("give only one of", "--from-time")),
    ("consume", ("orders", "--format", "{price}"), 2, ("{price}", "{value}")),
    ("consume", ("orders", "--format", "{"), 2, ("--format", "malformed")),
    ("consume", ("orders", "--format", "x", "-k", ":"), 2, ("one of", "--format")),
    ("consume", ("orders", "--max-records", "5", "--timeout", "0"), 1, ("0 records of 5",)),
    ("consume", ("orders", "--until-end", "--file", "/proc/none"), 1, ("/proc/none",)),
    ("consume", (), 2, ("name at least one",)),
    ("consume", ("orders", "--instance-id", "i"), 2, ("--instance-id", "--group")),
    ("consume", ("--pattern", "o.*"), 2, ("--pattern", "--group")),
    ("consume", ("orders", "--pattern", "o.*", "--group", "g"), 2, ("either topics or --pattern",)),
    ("consume", ("--group", "g"), 2, ("either topics or --pattern",)),
    ("consume", ("orders", "others", "--partition", "0"), 2, ("--partition needs exactly one topic",)),
    ("consume", ("orders", "--group", "g", "--partition", "0"), 2, ("with --group", "groups reset-offsets")),
    ("consume", ("orders", "--group", "g", "--from-time", "1"), 2, ("with --group", "groups reset-offsets")),
    ("consume", ("orders", "--group", "g", "--until-end"), 2, ("--until-end", "--timeout")),
    ("consume", ("nope", "--group", "g"), 1, ("'nope'", "not exist")),
    ("users create", ("u",), 2, ("--password-file",)),
    ("users create", ("u", "--password-file", "/proc/none"), 2, ("--password-file", "/proc/none")),
    ("users create", ("u", "--password-file", "/proc/version"), 2, ("is readable by others", "chmod 600")),
    ("users create", ("u", "--password-file", "/dev/null"), 2, ("/dev/null", "in one line")),
    ("users create", ("User:u", "--password-file", PASSWORD_FILE), 1, ("without User:",)),
    ("users create", ("*", "--password-file", PASSWORD_FILE), 1, ("user name * is reserved",)),
    ("users create", ("u", "--password-file", PASSWORD_FILE, "--replace"), 1, ("user u does not exist", "--replace")),
    ("users create", ("u", "--password-file", PASSWORD_FILE, "--super-user"), 1, ("only a super user",)),
    ("users list", ("alice",), 2, ("unexpected", "alice")),
    ("users delete", (), 2, ("USER",)),
    ("users delete", ("unknown", "--yes"), 1, ("user unknown does not exist", "users list")),
    ("quotas set", (), 2, ("PRINCIPAL",)),
    ("quotas set", ("User:u",), 2, ("no quota given", "--producer-byte-rate")),
    ("quotas set", ("User:u", "--request-rate", "many"), 2, ("--request-rate", "number")),
    ("quotas set", ("User:u", "--request-rate", "0"), 1, ("request_rate is 0", "give 1 to")),
    ("quotas set", ("User:u", "--request-rate", "nan"), 2, ("--request-rate", "nan")),
    ("quotas set", ("u", "--request-rate", "5"), 1, ("principal 'u'", "User:")),
    ("quotas list", ("User:u", "--output", "yaml"), 2, ("--output", "yaml")),
    ("quotas delete", ("User:u", "--quota", "speed"), 2, ("quota 'speed' does not exist", "request_rate")),
    ("quotas delete", ("User:u", "--yes"), 1, ("User:u has no quota", "quotas list")),
    ("certs revoke", ("/proc/none",), 1, ("/proc/none",)),
    ("certs revoke", ("User:",), 1, ("1 to 249",)),
    ("certs revoke", ("User:*",), 1, ("user name * is reserved",)),
    ("certs restore", ("User:ANONYMOUS",), 1, ("user name ANONYMOUS is reserved",)),
    ("certs revocations", ("1f",), 2, ("unexpected", "1f")),
    ("acls create", (), 2, ("--allow", "--deny")),
    ("acls create", ("--allow", "User:a"), 2, ("--topic", "--cluster")),
    ("acls create", ("--allow", "User:a", "--topic", "orders"), 2, ("--operation", "--consumer")),
    ("acls create", ("--allow", "User:a", "--operation", "Fly", "--topic", "orders"), 2, ("'Fly'", "DescribeConfigs")),
    ("acls create", ("--allow", "alice", "--operation", "Read", "--topic", "orders"), 1, ("'alice'", "User:")),
    ("acls create", ("--allow", "User:a", "--operation", "Write", "--group", "g"), 1, ("Write", "Group", "Read")),
    ("acls create", ("--allow", "User:a", "--operation", "Read", "--topic", "no/name"), 1, ("no/name", "letters")),
    (
        "acls create",
        ("--deny", "User:a", "--operation", "Alter", "--cluster", "--prefixed"),
        2,
        ("--prefixed does not apply",),
    ),
    ("acls list", ("--operation", "Fly"), 2, ("'Fly'", "Read")),
    ("acls delete", (), 2, ("--principal", "--all")),
    ("acls delete", ("--all", "--topic", "orders"), 2, ("--principal", "--all")),
    ("acls check", ("--operation", "Read"), 2, ("--topic", "--cluster")),
    ("acls check", ("--operation", "All", "--topic", "orders"), 1, ("All", "one after the other")),
    (
        "acls check",
        ("--as", "User:bob", "--operation", "Read", "--topic", "orders"),
        1,
        ("User:bob may not Read on Topic orders", "no ACL", "authorization is off"),
    ),
    ("producers list", ("--claimed-before", "soon"), 2, ("--claimed-before 'soon'", "milliseconds")),
    ("transactions list", ("--state", "open"), 2, ("'open' is not a state", "Ongoing")),
    ("transactions list", ("--pattern", "("), 1, ("the pattern ( is not an RE2 expression",)),
    ("transactions describe", ("nope",), 1, ("transactional id nope does not exist", "transactions list")),
    ("transactions abort", ("nope", "--yes"), 1, ("transactional id nope does not exist",)),
    ("producers delete", (), 2, ("names to delete", "--prefix")),
    ("producers delete", ("a", "--prefix", "b"), 2, ("names to delete", "--prefix")),
    ("producers delete", ("nope", "--yes"), 1, ("producer name nope does not exist", "producers list")),
    ("producers delete", ("etl",), 2, ("--yes", "twice")),
    ("producers delete", ("etl", "--claimed-before", "1"), 1, ("etl was claimed at", "in use")),
    ("groups list", ("--state", "sleeping"), 2, ("'sleeping'", "Empty, Assigning, Reconciling, Stable")),
    ("groups describe", ("--members", "--state"), 2, ("one of", "--members")),
    ("groups describe", ("--verbose",), 2, ("--verbose", "--members")),
    ("groups describe", ("nope",), 1, ("there is no group nope",)),
    ("groups describe", ("x" * 250,), 1, ("249 characters",)),
    ("groups reset-offsets", ("billing", "--topic", "nope", "--to-latest"), 1, ("'nope'", "not exist")),
    ("groups reset-offsets", ("billing", "--topic", "orders:9", "--to-latest"), 1, ("no partition 9", "0,1,2")),
    ("groups reset-offsets", ("nope", "--all-topics", "--to-latest"), 1, ("nope has committed no offsets", "--topic")),
    ("groups reset-offsets", ("nope", "--topic", "orders", "--shift-by", "1"), 1, ("committed for orders-0",)),
    ("groups reset-offsets", ("x" * 250, "--topic", "orders", "--to-latest", "--execute"), 1, ("249 characters",)),
    ("groups reset-offsets", (), 2, ("missing argument",)),
    ("groups reset-offsets", ("g", "--topic", "orders"), 2, ("give one of", "--to-earliest", "--from-file")),
    ("groups reset-offsets", ("g", "--topic", "orders", "--to-latest", "--to-offset", "1"), 2, ("one of --to-latest",)),
    ("groups reset-offsets", ("g", "--to-latest"), 2, ("--topic", "--all-topics")),
    ("groups reset-offsets", ("g", "--topic", "orders", "--all-topics", "--to-latest"), 2, ("one of --topic",)),
    ("groups reset-offsets", ("g", "--topic", "orders:x", "--to-latest"), 2, ("'orders:x'", "orders:0,2")),
    ("groups reset-offsets", ("g", "--topic", "orders:", "--to-latest"), 2, ("'orders:'",)),
    ("groups reset-offsets", ("g", "--topic", "o", "--topic", "o:1", "--to-latest"), 2, ("o is given twice",)),
    ("groups reset-offsets", ("g", "--topic", "orders", "--to-offset", "-1"), 2, ("--to-offset", "give 0 or more")),
    ("groups reset-offsets", ("g", "--topic", "orders", "--to-datetime", "noon"), 2, ("--to-datetime 'noon'",)),
    ("groups reset-offsets", ("g", "--topic", "orders", "--by-duration", "1x"), 2, ("--by-duration '1x'", "P7D")),
    ("groups reset-offsets", ("g", "--topic", "orders", "--by-duration", "P"), 2, ("--by-duration 'P'", "1h30m")),
    ("groups reset-offsets", ("g", "--from-file", "/proc/none"), 1, ("/proc/none", "No such file")),
    ("groups reset-offsets", ("g", "--topic", "o", "--to-latest", "--execute", "--dry-run"), 2, ("--dry-run",)),
    ("groups reset-offsets", ("g", "--topic", "o", "--to-latest", "--export", "-o", "json"), 2, ("one of", "--export")),
    ("groups delete", (), 2, ("missing argument",)),
    ("groups delete", ("g", "g"), 2, ("named twice",)),
    ("groups delete", ("nope",), 1, ("there is no group nope",)),
    ("groups delete-offsets", ("billing", "--topic", "nope"), 1, ("no offsets of nope",)),
    ("groups delete-offsets", ("billing", "--topic", "orders:x"), 2, ("'orders:x'", "orders:0,2")),
    ("groups delete-offsets", ("g",), 2, ("missing option", "--topic")),
    ("recover survey", (), 2, ("missing option", "--data-dir")),
    ("recover survey", ("--data-dir", "/nonexistent"), 1, ("no data.mdb", "/nonexistent")),
    ("recover plan", (), 2, ("missing argument", "SURVEY")),
    ("recover plan", ("/nonexistent",), 1, ("cannot read /nonexistent",)),
    ("recover plan", ("/proc/version",), 2, ("/proc/version is not JSON", "output of quorumlog recover survey")),
    ("recover plan", ("/dev/null",), 2, ("/dev/null is not JSON",)),
    ("recover apply", ("/proc/version", "--data-dir", "/tmp"), 2, ("not JSON", "output of quorumlog recover plan")),
    ("recover local", ("--data-dir", "/nonexistent"), 1, ("no data.mdb", "/nonexistent")),
    ("certs create-ca", ("--dir", "/proc/none"), 1, ("/proc/none", "No such file")),
    ("certs create-ca", ("--days", "0"), 2, ("--days", "1")),
    ("certs create-node", (), 2, ("missing argument", "NODE_ID")),
    ("certs create-node", ("1", "--dir", "/proc/none"), 1, ("/proc/none/node-ca.crt", "certs create-ca")),
    ("certs create-node", ("1", "--host", "a b"), 1, ("'a b'", "neither", "host")),
    ("certs create-client", ("a/b",), 1, ("'a/b'", "letters, digits")),
    ("certs create-client", ("alice", "--dir", "/proc/none"), 1, ("/proc/none/client-ca.crt", "certs create-ca")),
    ("certs show", ("/proc/none",), 1, ("cannot read /proc/none",)),
    ("certs show", ("/proc/version",), 1, ("/proc/version", "no certificate")),
    ("certs check", ("/proc/none",), 1, ("cannot read /proc/none",)),
    ("log dump", (), 2, ("missing option", "--data-dir")),
    ("log dump", ("--data-dir", "/tmp", "--from-index", "1"), 2, ("--from-index", "--group")),
    ("log dump", ("--data-dir", "/nonexistent"), 1, ("no data.mdb", "/nonexistent")),
    ("log verify", ("--data-dir", "/nonexistent"), 1, ("no data.mdb", "/nonexistent")),
    ("log verify", ("--data-dir", "/proc/version"), 2, ("/proc/version", "give a directory")),
    ("chaos run", ("nope",), 1, ("nope", "kill-leader")),
    ("chaos fuzz", ("--replay", "/proc/none"), 1, ("/proc/none",)),
    ("chaos fuzz", ("--requests", "0"), 2, ("--requests", "1")),
    ("chaos run", ("kill-leader", "--rounds", "0"), 2, ("--rounds", "1")),
    ("chaos list", ("-o", "xml"), 2, ("'xml'", "'json'")),
]


@pytest.mark.parametrize(
    ("name", "arguments", "status", "words"), ROWS, ids=[" ".join((row[0], *row[1]))[:60] for row in ROWS]
)
def test_a_mistake_gets_a_line_that_helps(
    name: str, arguments: tuple[str, ...], status: int, words: tuple[str, ...]
) -> None:
    outcome = run(*name.split(), *arguments)
    line = outcome.line.lower()
    assert [word for word in words if word.lower() not in line] == []
    assert outcome.status == status, outcome


def test_a_group_without_a_command_shows_its_commands() -> None:
    for group in sorted({name.split()[0] for name in ALL if " " in name}):
        outcome = run(group, "nope")
        assert (outcome.status, "nope" in outcome.line) == (boundary.WRONG_USAGE, True)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("node_id = ", ("node.toml", "not TOML")),
        ("node_idd = 1", ("did you mean 'node_id'",)),
        ("node_id = 'one'", ("'one'", "node_id")),
        ("node_id = 99999999999999999999", ("node_id",)),
        ("node_id = 1\nlisten = '127.0.0.1:0'", ("127.0.0.1:0",)),
        ("node_id = 1\nlisten = [1, 2]", ("listen",)),
        ("node_id = 1\n[listen]\nhost = 'x'", ("listen",)),
        ("node_id = 1\nnode_id = 2", ("node.toml",)),
        ("\0", ("node.toml",)),
    ],
)
def test_a_wrong_file_of_settings_is_said_to_be_so(text: str, words: tuple[str, ...], tmp_path: Path) -> None:
    config = tmp_path / "node.toml"
    config.write_text(text)
    outcome = run("node", "start", "--config", str(config), "--data-dir", str(tmp_path / "data"))
    assert [word for word in words if word not in outcome.line] == []
    assert outcome.status == boundary.WRONG_USAGE


def test_a_file_of_settings_that_is_not_text_is_said_to_be_so(tmp_path: Path) -> None:
    config = tmp_path / "node.toml"
    config.write_bytes(b"rack = '\xff'")
    outcome = run("node", "start", "--config", str(config))
    assert (outcome.status, "node.toml" in outcome.line) == (boundary.WRONG_USAGE, True)


@pytest.mark.parametrize(
    "content",
    [
        b"", b"{", b"[]", b"5", b"null", b"\xff", b'{"partitions": []}', b'{"partitions": [5]}', b'{"partitions": 5}',
        b'{"partitions": [{"topic": "orders"}]}', b'{"partitions": [{"topic": 1, "partition": 0, "offset": 0}]}',
        b'{"partitions": [{"topic": "orders", "partition": "0", "offset": 0}]}',
        b'{"partitions": [{"topic": "orders", "partition": 0, "offset": 1e3}]}',
        b'{"partitions": [{"topic": "orders", "partition": 0, "offset": 99999999999999999999}]}',
        b'{"partitions": [{"topic": "orders", "partition": 99999999999999999999, "offset": 0}]}',
        b"[" * 100_000,
    ],
    ids=lambda content: repr(content[:60]),
)  # fmt: skip
def test_a_wrong_file_of_json_is_said_to_be_so(content: bytes, tmp_path: Path) -> None:
    file = tmp_path / "offsets.json"
    file.write_bytes(content)
    for command in (("topics", "delete-records", "--offset-json-file"), ("partitions", "reassign", "--file")):
        outcome = run(*command, str(file))
        assert outcome.line
        assert outcome.status == boundary.WRONG_USAGE


@pytest.mark.parametrize(
    "content",
    [
        b"", b"\n\n", b"\xff", b"orders", b"orders,0", b"orders,0,1,2", b"orders,x,1", b"orders,0,-1", b",0,1",
        b"orders,0,1e3", b'"orders,0,1', b"orders,0,99999999999999999999", b"orders,99999999999,0", b"x" * 200_000,
        b"orders,0,1\norders,0,2", b"topic,partition,offset\norders,0,1", "orders,٣,1".encode(),
    ],
    ids=lambda content: repr(content[:60]),
)  # fmt: skip
def test_a_wrong_file_of_offsets_is_said_to_be_so(content: bytes, tmp_path: Path) -> None:
    file = tmp_path / "offsets.csv"
    file.write_bytes(content)
    outcome = run("groups", "reset-offsets", "billing", "--from-file", str(file))
    assert "TOPIC,PARTITION,OFFSET" in outcome.line or "twice" in outcome.line
    assert outcome.status == boundary.WRONG_USAGE


def test_bytes_that_are_not_text_go_in_and_come_out_as_they_are() -> None:
    blob = bytes(range(1, 10)) + bytes(range(11, 256)) + b"\0"
    assert run("produce", "orders", "--partition", "2", text=blob + b"\n").status == 0
    consumed = run("consume", "orders", "--partition", "2", "--from-beginning", "--until-end")
    assert (consumed.status, consumed.stdout) == (0, blob + b"\n")


def test_a_record_that_is_too_large_is_told_with_how_many_went_before() -> None:
    outcome = run("produce", "orders", text=b"first\n" + b"x" * 2_000_000)
    assert outcome.status == boundary.FAILED
    assert "max.message.bytes=1048576 of topic orders" in outcome.line
    assert "max_request_size" not in outcome.line, "a command has no such option"
    assert "1 record had been acknowledged" in outcome.line
    assert "line 1 has 20,000,000 bytes" in run("produce", "orders", text=b"x" * 20_000_000).line


@pytest.mark.parametrize(
    ("redirection", "status", "words"),
    [
        ("> /dev/full", boundary.FAILED, "No space left"),
        (">&-", boundary.FAILED, "standard output is closed"),
        ("<&-", 0, ""),
        ("2>&-", 0, ""),
    ],
)
def test_closed_and_full_streams_are_told_in_one_line(redirection: str, status: int, words: str) -> None:
    command = f"{sys.executable} -m quorumlog.cli.main produce orders {redirection}"
    done = subprocess.run(["sh", "-c", command], input="x\n", capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == status
    assert words in done.stderr
    assert len(done.stderr.splitlines()) == (status != 0)


def test_another_kind_of_server_is_not_taken_for_a_node(impatient: None) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
        outcome = run("topics", "list", "-b", address)
    assert outcome.status == boundary.FAILED
    assert address in outcome.line


@pytest.mark.parametrize("option", ["-b", "--bootstrap-servers", "-o"])
def test_an_option_before_its_command_is_told_where_it_goes(option: str) -> None:
    for group in ((), ("topics",)):
        outcome = run(*group, option, "127.0.0.1:1", "list")
        assert outcome.status == boundary.WRONG_USAGE
        assert f"{option} comes after the command, as in '{' '.join(('quorumlog', *group))} COMMAND" in outcome.line


def test_too_few_files_are_told_before_grpc_ends_the_process() -> None:
    command = f"ulimit -n 16; {sys.executable} -m quorumlog.cli.main topics list"
    done = subprocess.run(["sh", "-c", command], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout) == (boundary.FAILED, "")
    assert done.stderr == ("quorumlog: the limit of 16 open files is too low for a client: run ulimit -n 1024\n")


@pytest.mark.parametrize(
    ("typed", "completed"),
    [
        ("topics describe or", ["orders"]),
        ("produce or", ["orders"]),
        ("consume orders or", ["orders"]),
        ("topics delete nothing-li", []),
        (f"topics describe -b {NOBODY} or", []),
    ],
)
def test_a_shell_completes_the_names_of_topics(typed: str, completed: list[str]) -> None:
    words = typed.split()
    environment = {
        "_QUORUMLOG_COMPLETE": "complete_bash",
        "COMP_WORDS": f"quorumlog {typed}",
        "COMP_CWORD": str(len(words)),
    }
    for _ in range(10):  # No one who types is kept waiting: of nodes that are busy there is nothing at first.
        done = subprocess.run(
            [sys.executable, "-m", "quorumlog.cli.main"],
            env=os.environ | environment,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        if done.stdout.split() == completed:
            break
    assert (done.stdout.split(), done.stderr) == (completed, "")

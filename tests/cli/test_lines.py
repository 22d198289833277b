"""The command line without a cluster: what it prints for records, topics, wrong input and failures."""

from __future__ import annotations

import importlib
import io
import json
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from quorumlog.cli import boundary, options, topic_text
from quorumlog.cli.boundary import CommandError
from quorumlog.cli.main import app, main
from quorumlog.cli.records import produce, record_text
from quorumlog.sdk import ConsumerRecord, PartitionDescription, TopicDescription
from quorumlog.sdk.errors import UnknownTopicOrPartitionError

RECORD = ConsumerRecord("orders", 2, 41, 1_700_000_000_000, b"k1", b"v1", [("h", b"x"), ("empty", None)])
BINARY = ConsumerRecord("orders", 0, 0, None, None, b"\xff\x00", [])


def partition(number: int, leader: int | None, isr: tuple[int, ...]) -> PartitionDescription:
    return PartitionDescription(number, leader, 5, (1, 2, 3), isr, 7, 1000 + number)


def topic(*partitions: PartitionDescription, **configs: str) -> TopicDescription:
    return TopicDescription("orders", "Zm9vYmFyYmF6cXV4MTIzNA", partitions, configs)


def test_a_topic_is_described_as_kafka_describes_it() -> None:
    described = topic(partition(0, 1, (1, 2, 3)), partition(1, None, (2,)), **{"retention.ms": "604800000"})
    assert list(topic_text.topic_lines(described)) == [
        "Topic: orders\tTopicId: Zm9vYmFyYmF6cXV4MTIzNA\tPartitionCount: 2\tReplicationFactor: 3"
        "\tConfigs: retention.ms=604800000",
        "\tTopic: orders\tPartition: 0\tLeader: 1\tReplicas: 1,2,3\tIsr: 1,2,3",
        "\tTopic: orders\tPartition: 1\tLeader: none\tReplicas: 1,2,3\tIsr: 2",
    ]


@pytest.mark.parametrize(
    ("described", "minimum", "under_replicated", "under_min_isr", "unavailable"),
    [
        (partition(0, 1, (1, 2, 3)), "1", False, False, False),
        (partition(0, 1, (1, 2)), "1", True, False, False),
        (partition(0, 1, (1, 2)), "3", True, True, False),
        (partition(0, 1, (1,)), "1", True, True, False),
        (partition(0, None, (1, 2, 3)), "1", False, False, True),
    ],
)
def test_partitions_in_trouble_are_told_apart(
    described: PartitionDescription, minimum: str, under_replicated: bool, under_min_isr: bool, unavailable: bool
) -> None:
    whole = topic(described, **{"min.insync.replicas": minimum})
    assert topic_text.is_under_replicated(whole, described) is under_replicated
    assert topic_text.is_under_min_isr(whole, described) is under_min_isr
    assert topic_text.is_unavailable(whole, described) is unavailable


def test_a_record_is_printed_by_template_with_its_bytes_untouched() -> None:
    line = record_text.template_line("{topic}-{partition}:{offset} {key}={value} [{headers}]")
    assert line(RECORD) == b"orders-2:41 k1=v1 [h=x,empty=null]"
    assert line(BINARY) == b"orders-0:0 null=\xff\x00 []"


def test_a_record_as_json_keeps_what_is_not_text_in_base64() -> None:
    assert json.loads(record_text.json_line(RECORD)) == {
        "topic": "orders",
        "partition": 2,
        "offset": 41,
        "timestamp": 1_700_000_000_000,
        "key": "k1",
        "value": "v1",
        "headers": [["h", "x"], ["empty", None]],
    }
    assert json.loads(record_text.json_line(BINARY))["value"] == {"base64": "/wA="}


@pytest.mark.parametrize("template", ["{price}", "{value", "{value:>10}", "{}"])
def test_a_wrong_template_is_refused_with_a_line(template: str) -> None:
    with pytest.raises(CommandError, match="--format") as refusal:
        record_text.template_line(template)
    assert "\n" not in refusal.value.message


def test_lines_become_keys_and_values() -> None:
    lines = io.BytesIO(b"a:1\nb:2:3\r\n:4\n")
    assert list(produce._records(lines, b":")) == [(b"a", b"1"), (b"b", b"2:3\r"), (b"", b"4")]
    assert list(produce._records(io.BytesIO(b"x\n\ny"), None)) == [(None, b"x"), (None, b""), (None, b"y")]


def test_a_line_without_its_separator_is_named_by_number() -> None:
    with pytest.raises(CommandError, match="line 2 has no ':'"):
        list(produce._records(io.BytesIO(b"a:1\nb\n"), b":"))


def test_settings_are_key_value_pairs() -> None:
    assert options.parse_settings(["retention.ms=1", "x=a=b"]) == {"retention.ms": "1", "x": "a=b"}
    for wrong in (["retention.ms"], ["=1"], ["a=1", "a=2"]):
        with pytest.raises(CommandError, match="--config"):
            options.parse_settings(wrong)


def test_separators_may_be_escaped() -> None:
    assert options.unescape(r"\t") == "\t"
    assert options.unescape(r"a\\tb") == r"a\tb"


SEE_WHERE = "(set QUORUMLOG_TRACEBACK=1 to see where, and report it)"


def failing(error: BaseException) -> None:
    raise error


@pytest.mark.parametrize(
    ("error", "status", "line"),
    [
        (CommandError("do this", 2), 2, "quorumlog: do this"),
        (UnknownTopicOrPartitionError("no topic 'x'; create it"), 1, "quorumlog: no topic 'x'; create it"),
        (ValueError("not\n  a port"), 1, "quorumlog: not a port"),
        (
            FileNotFoundError(2, "No such file or directory", "in.txt"),
            1,
            "quorumlog: in.txt: No such file or directory",
        ),
        (
            KeyError("bug"),
            1,
            "quorumlog: internal error, KeyError: 'bug' (set QUORUMLOG_TRACEBACK=1 to see where, and report it)",
        ),
        (KeyboardInterrupt(), 130, ""),
    ],
    ids=["command", "client", "value", "file", "bug", "ctrl-c"],
)
def test_every_failure_is_one_line_and_a_status(
    error: BaseException, status: int, line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert boundary.run(lambda: failing(error)) == status
    assert capsys.readouterr().err.rstrip("\n") == line


def commands(of: Any, *path: str) -> list[tuple[str, ...]]:
    """Returns the paths of all commands below this one."""
    below = getattr(of, "commands", None)
    return [path] if below is None else [each for name in below for each in commands(below[name], *path, name)]


@pytest.mark.parametrize("path", commands(typer.main.get_command(app)), ids=" ".join)
def test_every_command_has_help_with_an_example(path: tuple[str, ...]) -> None:
    shown = CliRunner().invoke(app, [*path, "--help"], env={"COLUMNS": "200", "TERM": "dumb"})
    assert shown.exit_code == 0, shown.output
    assert "Example: " in shown.output
    assert f"quorumlog {' '.join(path)}" in shown.output.split("Example: ")[1]


def quorumlog(*arguments: str) -> int:
    """Runs the command line in this process; returns its exit status."""
    with pytest.raises(SystemExit) as ended:
        main(list(arguments))
    assert isinstance(ended.value.code, int)
    return ended.value.code


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["topics", "create"], "missing argument 'name'; try 'quorumlog topics create --help'"),
        (["topics", "create", "x", "--partitions", "many"], "invalid value for '--partitions'"),
        (["topics", "create", "x", "--config", "retention"], "--config 'retention' is not KEY=VALUE"),
        (["topics", "describe", "--unavailable", "--under-min-isr"], "give one of --under-replicated"),
        (["topics", "list", "--output", "xml"], "'xml' is not one of 'table', 'json'"),
        (["consume", "x", "--offset", "3"], "--offset needs --partition"),
        (["consume", "x", "--format", "{price}"], "--format has no field '{price}'"),
        (["topics", "delete-records", "x"], "give a topic and --before OFFSET, or --offset-json-file FILE"),
        (["topics", "delete-records", "--before", "3"], "give a topic and --before OFFSET"),
        (["topics", "delete-records", "x", "--offset-json-file", "f"], "give a topic and --before OFFSET"),
        (["topics", "delete-records", "--before", "3", "--offset-json-file", "f"], "give a topic and --before"),
        (["topics", "delete-records", "--partition", "3", "--offset-json-file", "f"], "give a topic and --before"),
        (["xyzzy"], "no such command 'xyzzy'; try 'quorumlog --help'"),
    ],
)
def test_a_wrong_command_line_is_one_line_and_status_2(
    arguments: list[str], complaint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert quorumlog(*arguments) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert complaint in said.err
    assert len(said.err.splitlines()) == 1


def test_a_file_that_is_not_there_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    missing = tmp_path / "missing.txt"
    assert quorumlog("produce", "orders", "--file", str(missing)) == 1
    assert capsys.readouterr().err.splitlines() == [f"quorumlog: {missing}: No such file or directory"]


def test_no_cluster_at_the_address_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert quorumlog("topics", "list", "--bootstrap-servers", "127.0.0.1:1") == 1
    [line] = capsys.readouterr().err.splitlines()
    assert "127.0.0.1:1" in line
    assert "is the cluster up" in line


@pytest.mark.parametrize(("module", "name"), sorted({*boundary.ERRORS_FOR_USERS, *boundary.WRONG_USAGE_ERRORS}))
def test_the_families_of_errors_that_commands_know_by_name_exist(module: str, name: str) -> None:
    assert issubclass(getattr(importlib.import_module(module), name), Exception)


def test_rates_have_units(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["partitions", "rebalance", "--throttle", "50MB/s", "--bootstrap-servers", "127.0.0.1:1", "--dry-run"])
    assert "no quorumlog node answered" in capsys.readouterr().err


@pytest.mark.parametrize("number", ["1_0", "+5", "5.0", "\u0665", " 7"])
@pytest.mark.parametrize(
    "arguments",
    [
        ("topics", "create", "t", "--partitions"),
        ("consume", "t", "--max-records"),
        ("partitions", "reassign", "t", "--replicas", "1", "--partition"),
    ],
    ids=" ".join,
)
def test_odd_numbers_are_refused(arguments: tuple[str, ...], number: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main([*arguments, number])
    assert ended.value.code == boundary.WRONG_USAGE
    assert f"{number!r} is not an integer: use digits only" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("topics", "create", "x", "--partitions", "three"), "'three' is not an integer: use digits only"),
        (("topics", "create", "x", "--partitions", "1.5"), "'1.5' is not an integer: use digits only"),
        (("topics", "create", "x", "--partitions", "9" * 5_000), "is not an integer: use digits only"),
        (("cluster", "up", "--nodes", "0"), "'0' is too small; give 1 or more"),
        (("cluster", "up", "--nodes", "65"), "'65' is too large; give 64 or less"),
        (("chaos", "run", "x", "--duration", "long"), "'long' is not a number"),
        (("cluster", "up", "--data-dir", __file__), "is a file; give a directory"),
        (("produce", "x", "--file", "/tmp"), "'/tmp' is a directory; give a file"),
    ],
)
def test_wrong_values_get_plain_words(
    arguments: tuple[str, ...], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """The line names the value and what to give instead."""
    with pytest.raises(SystemExit) as ended:
        main(list(arguments))
    assert ended.value.code == boundary.WRONG_USAGE
    [line] = capsys.readouterr().err.splitlines()
    assert words in line
    assert "Input should" not in line


@pytest.mark.parametrize("encoding", ["ascii", "latin-1"])
def test_unencodable_output_is_escaped(encoding: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A name that the output's encoding lacks does not end a command."""
    raw = io.BytesIO()
    monkeypatch.setattr("sys.stdout", io.TextIOWrapper(raw, encoding=encoding, errors="strict"))
    assert boundary.run(lambda: print("topic 注文")) == 0
    assert raw.getvalue() == b"topic \\u6ce8\\u6587\n"

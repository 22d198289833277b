"""Topics on the command line, from creation to deletion: what users type, right and wrong, against real nodes."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import Any

import pytest

pytestmark = pytest.mark.cluster

Run = Callable[..., str]


@pytest.fixture
def command_group() -> tuple[str, ...]:
    """Returns the arguments with which every command of this module starts."""
    return ("topics",)


def described(run: Run, name: str) -> Any:
    [topic] = json.loads(run("describe", name, "--output", "json"))
    return topic


def test_a_topic_from_creation_to_deletion(run: Run, refuse: Run) -> None:
    assignments = ("--replica-assignment", "2,1,3", "--replica-assignment", "3,1,2")
    assert run("create", "life", *assignments, "--dry-run") == "Topic life could be created as requested.\n"
    assert "life" not in run("list").splitlines()
    assert run("create", "life", *assignments) == "Created topic life: 2 partitions, replication factor 3.\n"
    first = described(run, "life")
    assert [partition["replicas"] for partition in first["partitions"]] == [[2, 1, 3], [3, 1, 2]]
    assert run("add-partitions", "life", "--partitions", "3", "--replica-assignment", "1,2,3") == (
        "Topic life has 3 partitions.\n"
    )
    assert described(run, "life")["partitions"][2]["replicas"] == [1, 2, 3]
    altered = run("alter", "life", "--config", "retention.ms=5000", "--config", "max.message.bytes=2048")
    assert altered == "Altered topic life. Configs: max.message.bytes=2048,retention.ms=5000\n"
    assert (
        run("alter", "life", "--delete-config", "retention.ms", "--dry-run")
        == "Topic life could be altered as requested.\n"
    )
    run("alter", "life", "--delete-config", "retention.ms")
    assert described(run, "life")["configs"] == {"max.message.bytes": "2048"}
    assert "Configs: max.message.bytes=2048\n" in run("describe", "life")
    assert "min.insync.replicas=1" in run("describe", "life", "--all-configs")
    assert run("delete", "life", "--dry-run") == "Would delete topic life: 3 partitions.\n"
    assert "confirm with --yes" in refuse(2, "delete", "life")
    assert run("delete", "life", "--yes") == "Deleted topic life: 3 partitions.\n"
    assert "topic 'life' does not exist" in refuse(1, "describe", "life")
    run("create", "life")
    assert described(run, "life")["topic_id"] != first["topic_id"]
    deleted = json.loads(run("delete", "life", "--yes", "--output", "json"))
    assert [topic["name"] for topic in deleted] == ["life"]


def test_every_configuration_key_is_shown_with_its_meaning(run: Run) -> None:
    run("create", "keys", "--config", "retention.ms=1000")
    rows = {row["name"]: row for row in json.loads(run("configs", "keys", "--output", "json"))}
    assert (rows["retention.ms"]["value"], rows["retention.ms"]["is_default"]) == ("1000", False)
    assert rows["min.insync.replicas"]["is_default"]
    table = run("configs", "keys")
    assert "A number of bytes, from 1024 to 8388608." in table
    assert all(name in table for name in rows)


def test_internal_topics_are_not_shown_by_default(run: Run, refuse: Run) -> None:
    assert not [name for name in run("list").splitlines() if name.startswith("__")]
    run("list", "--include-internal")
    run("describe", "--include-internal")
    assert "reserved" in refuse(1, "create", "__groups")


def test_wrong_input_is_refused_in_one_line(run: Run, refuse: Run) -> None:
    run("create", "wrong")
    for status, arguments, line in (
        (1, ("create", "x", "--replica-assignment", "1,1,2"), "a node cannot hold two replicas"),
        (1, ("create", "x", "--replica-assignment", "1,2,9"), "node 9 is not registered; the nodes are 1, 2, 3"),
        (1, ("create", "x", "--replication-factor", "4"), "needs 5 nodes, 4 for the copies"),
        (1, ("create", "x", "-p", "2", "--replica-assignment", "1,2,3"), "2 partitions are requested, but 1"),
        (2, ("create", "x", "--replica-assignment", "one"), "is not a list of node ids, such as 1,2,3"),
        (1, ("add-partitions", "wrong", "--partitions", "1"), "has 1 partitions, 1 are requested"),
        (1, ("add-partitions", "none", "--partitions", "2"), "topic none does not exist"),
        (1, ("add-partitions", "wrong", "--partitions", "99999"), "1 to 2000 are allowed"),
        (2, ("add-partitions", "wrong"), "missing option '--partitions'"),
        (2, ("add-partitions", "wrong", "--partitions", "many"), "'many' is not an integer"),
        (2, ("alter", "wrong"), "give at least one --config KEY=VALUE or --delete-config KEY"),
        (2, ("alter", "wrong", "--config", "retention.ms"), "is not KEY=VALUE"),
        (2, ("alter", "wrong", "--config", "a=1", "--delete-config", "a"), "a is given twice"),
        (1, ("alter", "wrong", "--config", "retention.ms=week"), "expected an integer number of milliseconds"),
        (1, ("alter", "wrong", "--config", "retention.mss=1"), "did you mean retention.ms?"),
        (1, ("alter", "wrong", "--config", "min.insync.replicas=4"), "more than the replication factor 3"),
        (1, ("alter", "wrong", "--delete-config", "nope"), "unknown topic configuration key nope"),
        (1, ("alter", "none", "--config", "retention.ms=1"), "topic none does not exist"),
        (1, ("configs", "none"), "topic none does not exist"),
        (1, ("delete", "none"), "topic 'none' does not exist"),
        (2, ("delete", "wrong", "wrong"), "topic wrong is named twice"),
        (2, ("delete",), "missing argument"),
    ):
        assert line in refuse(status, *arguments), arguments


def test_whoever_sits_at_a_terminal_is_asked(
    run: Run, outcome: Callable[..., tuple[int, str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    run("create", "asked")
    answers = iter(["n\n", "y\n"])
    monkeypatch.setattr(sys.stdin, "isatty", lambda: True)
    monkeypatch.setattr("typer.confirm", lambda text, err: next(answers) == "y\n")
    status, printed, complaint = outcome("delete", "asked")
    assert (status, printed, complaint) == (1, "", "quorumlog: nothing was deleted\n")
    assert outcome("delete", "asked")[1] == "Deleted topic asked: 1 partition.\n"


@pytest.mark.parametrize("command", ["create", "delete", "add-partitions", "alter", "configs", "list", "describe"])
def test_help_has_an_example(outcome: Callable[..., tuple[int, str, str]], command: str) -> None:
    status, printed, _ = outcome(command, "--help")
    assert status == 0
    assert f"Example: quorumlog topics {command}" in printed

"""Mistyped names: every command that is given one says which existing name is close."""

from __future__ import annotations

import io
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from quorumlog.cli.suggestions import closest, did_you_mean
from quorumlog.local import LocalCluster
from quorumlog.sdk import Admin, NewTopic, Producer, UserScramCredentialUpsertion

Refuse = Callable[..., str]

#: What is typed after a command, and the intended name.
MISTYPED: list[tuple[tuple[str, ...], str]] = [
    (("topics", "describe", "order"), "orders"),
    (("topics", "describe", "orders", "paiments"), "payments"),
    (("topics", "describe", "ORDERS"), "orders"),
    (("topics", "alter", "order", "--config", "retention.ms=5000"), "orders"),
    (("topics", "configs", "order"), "orders"),
    (("topics", "offsets", "order"), "orders"),
    (("topics", "add-partitions", "order", "--partitions", "9"), "orders"),
    (("topics", "delete", "order", "--yes"), "orders"),
    (("topics", "delete-records", "order", "--before", "0"), "orders"),
    (("partitions", "reassign", "--topic", "order", "--replicas", "1"), "orders"),
    (("leaders", "balance", "--topic", "order"), "orders"),
    (("produce", "order"), "orders"),
    (("consume", "order", "--until-end"), "orders"),
    (("explain", "order", "hello"), "orders"),
    (("backup", "create", "BACKUP", "--topic", "order"), "orders"),
    (("groups", "describe", "biling"), "billing"),
    (("groups", "delete", "biling", "--yes"), "billing"),
    (("groups", "delete-offsets", "biling", "--topic", "orders"), "billing"),
    (("groups", "reset-offsets", "billing", "--topic", "order", "--to-earliest"), "orders"),
    (("groups", "reset-offsets", "billing", "--topic", "order:0", "--to-earliest"), "orders"),
    (("users", "delete", "alise", "--yes"), "alice"),
    (("producers", "delete", "etll", "--yes"), "etl"),
    (("quotas", "delete", "User:alise", "--yes"), "User:alice"),
    (("quotas", "delete", "User:alice", "--quota", "request_rat", "--yes"), "request_rate"),
]


@pytest.fixture(scope="module", autouse=True)
def names(quorumlog_cluster: LocalCluster) -> Iterator[None]:
    servers = quorumlog_cluster.bootstrap_servers
    with Admin(bootstrap_servers=servers) as admin:
        admin.create_topics([NewTopic("orders", 1, 3), NewTopic("payments", 1, 3)])
        admin.alter_user_scram_credentials([UserScramCredentialUpsertion("alice", "password")])
        admin.alter_client_quotas({"User:alice": {"request_rate": 1_000.0}})
    with Producer(bootstrap_servers=servers, producer_name="etl") as producer:
        producer.send("orders", b"x").result(60)
    return


@pytest.mark.cluster
@pytest.mark.parametrize(("typed", "meant"), MISTYPED, ids=[" ".join(typed) for typed, _ in MISTYPED])
def test_close_names_are_suggested(
    refuse: Refuse, run: Refuse, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, typed: tuple[str, ...], meant: str
) -> None:
    """The one line ends with the question."""
    run("groups", "reset-offsets", "billing", "--topic", "orders", "--to-earliest", "--execute")
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"x\n")))
    status = 2 if "--quota" in typed else 1
    line = refuse(status, *(str(tmp_path / "backup") if word == "BACKUP" else word for word in typed))
    assert line.endswith(f"did you mean '{meant}'?"), line


@pytest.mark.cluster
@pytest.mark.parametrize("typed", [("topics", "describe", "zzz"), ("groups", "describe", "zzz")])
def test_far_names_get_no_suggestion(refuse: Refuse, typed: tuple[str, ...]) -> None:
    """The line is that of the error."""
    line = refuse(1, *typed)
    assert "did you mean" not in line
    assert "zzz" in line


def test_closest_ignores_case() -> None:
    assert closest("ORDERS", ["payments", "orders"]) == "orders"
    assert closest("zzz", ["payments", "orders"]) is None
    assert did_you_mean("oders", ["orders"], "look") == "did you mean 'orders'?"
    assert did_you_mean("zzz", ["orders"], "look") == "look"

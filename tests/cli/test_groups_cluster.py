"""``quorumlog groups`` and ``quorumlog producers`` against real nodes: from the first commit, or claim, to deletion."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from quorumlog.local import LocalCluster
from quorumlog.sdk import Admin, NewTopic, Producer

pytestmark = pytest.mark.cluster

Run = Callable[..., str]

#: When the first record of topic ``orders`` was written; the others follow, a second apart.
FIRST_MS = 1_700_000_000_000
RECORDS = 10


@pytest.fixture(scope="module", autouse=True)
def orders(quorumlog_cluster: LocalCluster) -> None:
    """Topic ``orders``: ten records, a second apart, in each of partitions 0 and 1, none in partition 2."""
    servers = quorumlog_cluster.bootstrap_servers
    with Admin(bootstrap_servers=servers) as admin, Producer(bootstrap_servers=servers) as producer:
        admin.create_topics([NewTopic("orders", num_partitions=3, topic_configs={"retention.ms": -1})])
        for number in range(RECORDS):
            for partition in (0, 1):
                producer.send("orders", b"v", partition=partition, timestamp_ms=FIRST_MS + number * 1000)


@pytest.fixture
def reset(run: Run) -> Callable[..., dict[int, int]]:
    """Resets a group in topic ``orders``; the new offset of each partition."""

    def command(group: str, *arguments: str) -> dict[int, int]:
        rows = json.loads(run("groups", "reset-offsets", group, *arguments, "--output", "json"))
        return {row["partition"]: row["new_offset"] for row in rows}

    return command


def committed(run: Run, group: str) -> dict[int, int]:
    """Returns the offsets that a group has committed in topic ``orders``."""
    rows: list[dict[str, Any]] = json.loads(run("groups", "describe", group, "--output", "json"))
    return {row["partition"]: row["current_offset"] for row in rows}


def listed(run: Run) -> set[str]:
    return {row["group"] for row in json.loads(run("groups", "list", "--output", "json"))}


def test_a_group_from_its_first_offsets_to_its_deletion(run: Run, refuse: Run, tmp_path: Path) -> None:
    dry = run("groups", "reset-offsets", "life", "--topic", "orders:0,1", "--to-offset", "4")
    assert dry.splitlines()[-1] == "Nothing was changed: this was a dry run. Add --execute to apply it."
    assert "life" not in listed(run)
    assert "there is no group life" in refuse(1, "groups", "describe", "life")
    run("groups", "reset-offsets", "life", "--topic", "orders:0,1", "--to-offset", "4", "--execute")
    assert "life" in listed(run)
    [_, heading, *rows] = [line.split() for line in run("groups", "describe", "life").splitlines() if line.strip(" ─")]
    assert heading[:6] == ["GROUP", "TOPIC", "PARTITION", "CURRENT-OFFSET", "LOG-END-OFFSET", "LAG"]
    assert rows == [["life", "orders", str(number), "4", "10", "6", "-", "-", "-"] for number in (0, 1)]
    exported = run("groups", "reset-offsets", "life", "--all-topics", "--to-current", "--export")
    assert exported == "orders,0,4\norders,1,4\n"
    (tmp_path / "offsets.csv").write_text(exported.replace("orders,1,4", "orders,1,9"))
    run("groups", "reset-offsets", "life", "--from-file", str(tmp_path / "offsets.csv"), "--execute")
    assert committed(run, "life") == {0: 4, 1: 9}
    assert run("groups", "delete-offsets", "life", "--topic", "orders:0").endswith("Deleted 1 committed offset.\n")
    assert committed(run, "life") == {1: 9}
    assert "no offsets of orders:0" in refuse(1, "groups", "delete-offsets", "life", "--topic", "orders:0")
    assert run("groups", "delete", "life", "--dry-run") == "Would delete group life: 1 committed offset.\n"
    assert "confirm with --yes" in refuse(2, "groups", "delete", "life")
    assert run("groups", "delete", "life", "--yes") == "Deleted group life: 1 committed offset.\n"
    assert "there is no group life" in refuse(1, "groups", "delete", "life")
    assert "life" not in listed(run)


def test_every_target_of_a_reset(run: Run, reset: Callable[..., dict[int, int]]) -> None:
    assert reset("goals", "--topic", "orders", "--to-latest", "--execute") == {0: 10, 1: 10, 2: 0}
    assert reset("goals", "--all-topics", "--to-earliest") == {0: 0, 1: 0, 2: 0}
    assert reset("goals", "--topic", "orders:0", "--shift-by", "-3", "--execute") == {0: 7}
    assert reset("goals", "--topic", "orders:0", "--shift-by", "2") == {0: 9}
    assert reset("goals", "--all-topics", "--to-current") == {0: 7, 1: 10, 2: 0}
    assert reset("goals", "--topic", "orders", "--to-timestamp", str(FIRST_MS + 3_500)) == {0: 4, 1: 4, 2: 0}
    assert reset("goals", "--topic", "orders:1", "--to-datetime", "2023-11-14T22:13:29Z") == {1: 9}
    assert reset("goals", "--topic", "orders:1", "--to-datetime", "2023-11-15") == {1: 10}
    assert reset("goals", "--topic", "orders:1", "--by-duration", "1h") == {1: 10}
    assert reset("goals", "--topic", "orders:1", "--by-duration", "P1000W") == {1: 0}
    assert committed(run, "goals") == {0: 7, 1: 10, 2: 0}


def test_offsets_outside_the_log_are_limited_with_a_warning(outcome: Callable[..., tuple[int, str, str]]) -> None:
    arguments = ("groups", "reset-offsets", "limits", "--topic", "orders:0", "--export")
    status, printed, warning = outcome(*arguments, "--to-offset", "11")
    assert (status, printed) == (0, "orders,0,10\n")
    assert warning == "quorumlog: warning: offset 11 lies beyond the end of orders-0: using the end, 10\n"
    outcome(*arguments, "--to-offset", "3", "--execute")
    status, printed, warning = outcome(*arguments, "--shift-by", "-4")
    assert (status, printed) == (0, "orders,0,0\n")
    assert "before the start of orders-0" in warning


def test_what_is_not_there_is_named(refuse: Run) -> None:
    to_earliest = ("groups", "reset-offsets", "unused", "--to-earliest")
    assert "'nope' does not exist" in refuse(1, *to_earliest, "--topic", "nope")
    assert "no partition 9; it has 0,1,2" in refuse(1, *to_earliest, "--topic", "orders:9")
    assert "unused has committed no offsets" in refuse(1, *to_earliest, "--all-topics")
    shift = ("groups", "reset-offsets", "unused", "--topic", "orders", "--shift-by", "1")
    assert "no offset is committed for orders-0" in refuse(1, *shift)
    assert "no offsets of orders" in refuse(1, "groups", "delete-offsets", "unused", "--topic", "orders")
    assert "249 characters" in refuse(1, "groups", "describe", "x" * 250)


def test_the_coordinators_can_be_seen(run: Run) -> None:
    run("groups", "reset-offsets", "seen", "--topic", "orders", "--to-latest", "--execute")
    [topic] = json.loads(run("topics", "describe", "__groups", "--output", "json"))
    leaders = {partition["leader"] for partition in topic["partitions"]}
    [state] = json.loads(run("groups", "describe", "seen", "--state", "--output", "json"))
    assert state["coordinator"]["node_id"] in leaders
    assert (state["state"], state["members"]) == ("Empty", 0)
    assert "__groups" not in run("topics", "list").splitlines()
    assert "__groups" in run("topics", "list", "--include-internal").splitlines()


def test_producer_names_are_listed_and_deleted(run: Run, refuse: Run, quorumlog_cluster: LocalCluster) -> None:
    for name in ("etl-0", "etl-1", "other"):
        with Producer(bootstrap_servers=quorumlog_cluster.bootstrap_servers, producer_name=name) as producer:
            producer.send("orders", b"x", partition=2).result(60)
    rows = json.loads(run("producers", "list", "--output", "json"))
    assert [(row["name"], row["producer_epoch"]) for row in rows] == [("etl-0", 0), ("etl-1", 0), ("other", 0)]
    heading, *_, last = filter(str.strip, run("producers", "list", "--prefix", "o").splitlines())
    assert heading.split() == ["NAME", "ID", "EPOCH", "CLAIMED"]
    assert last.split()[0] == "other"
    assert run("producers", "list", "--claimed-before", "2020-01-01") == "No producer name matches.\n"
    dry = run("producers", "delete", "--prefix", "etl-", "--dry-run")
    assert dry == "Would delete producer name etl-0.\nWould delete producer name etl-1.\n"
    assert "writes its records twice" in refuse(2, "producers", "delete", "--prefix", "etl-")
    deleted = json.loads(run("producers", "delete", "--prefix", "etl-", "--yes", "--output", "json"))
    assert deleted == [{"name": "etl-0", "deleted": True}, {"name": "etl-1", "deleted": True}]
    assert run("producers", "delete", "other", "--yes") == "Deleted producer name other.\n"
    assert run("producers", "list") == "No producer names exist.\n"

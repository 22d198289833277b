"""Settings of real nodes, changed while they run: they take effect, survive a restart, and give way when deleted."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from command_line import cli, until

from quorumlog.local import LocalCluster
from quorumlog.sdk import (
    Admin,
    InvalidConfigError,
    NewTopic,
    NodeSettings,
    Producer,
    QuorumlogError,
)

pytestmark = pytest.mark.cluster

LOGGER = "server.partition"


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    settings = {"scrub_bytes_per_second": "3000000"}
    with LocalCluster(nodes=3, settings=settings) as running:
        with Admin(bootstrap_servers=running.bootstrap_servers) as admin:
            admin.create_topics([NewTopic("orders", 1, 3)])
        yield running


@pytest.fixture
def admin(cluster: LocalCluster) -> Iterator[Admin]:
    with Admin(bootstrap_servers=cluster.bootstrap_servers) as made:
        yield made
        records = made.describe_node_settings(1).records
        for node, values in records.items():
            made.alter_node_settings(dict.fromkeys(values), node_id=node)


def write(cluster: LocalCluster, value: bytes = b"v") -> None:
    with Producer(bootstrap_servers=cluster.bootstrap_servers) as producer:
        producer.send("orders", value, partition=0).result(60)


def debug_lines(cluster: LocalCluster, node: int) -> list[str]:
    return [line for line in cluster.log_path(node).read_text().splitlines() if f"logger={LOGGER}" in line]


def shown(settings: NodeSettings, name: str) -> tuple[tuple[str, str], ...]:
    return next(each.values for each in settings.settings if each.name == name)


def test_a_log_level_of_one_node_survives(cluster: LocalCluster, admin: Admin) -> None:
    done = cli(cluster, "nodes", "configure", "2", f"log_level={LOGGER}=debug")
    assert (done.returncode, done.stdout) == (0, f"node 2: log_level.{LOGGER} = debug\n"), done
    write(cluster)
    until(lambda: debug_lines(cluster, 2), "debug lines of node 2")
    assert not debug_lines(cluster, 1) and not debug_lines(cluster, 3)
    others = [line for line in cluster.log_path(2).read_text().splitlines() if " debug " in line and LOGGER not in line]
    assert not others, "of other packages"
    cluster.stop(2)
    before = len(debug_lines(cluster, 2))
    cluster.start(2)
    until(lambda: cluster.log_path(2).read_text().count("settings_changed") >= 2, "the settings after the restart")
    write(cluster)
    until(lambda: len(debug_lines(cluster, 2)) > before, "debug lines after the restart")
    assert cli(cluster, "nodes", "configure", "2", "--delete", f"log_level.{LOGGER}").returncode == 0
    until(lambda: "log_levels=info" in cluster.log_path(2).read_text(), "the end of debug lines")
    before = len(debug_lines(cluster, 2))
    write(cluster)
    assert len(debug_lines(cluster, 2)) == before


def test_records_override_the_file_until_deleted(cluster: LocalCluster, admin: Admin) -> None:
    name = "scrub_bytes_per_second"
    configured = (("3000000", "command line"), ("4194304", "default"))
    assert shown(admin.describe_node_settings(2), name) == configured
    assert admin.alter_node_settings({name: "1000000"}) == 1
    assert admin.alter_node_settings({name: "0"}, node_id=2) == 1
    assert admin.alter_node_settings({name: "0"}, node_id=2) == 0, "it has that value already"
    assert shown(admin.describe_node_settings(1), name) == (("1000000", "cluster"), *configured)
    assert shown(admin.describe_node_settings(2), name) == (("0", "node"), ("1000000", "cluster"), *configured)
    assert admin.describe_node_settings(3).records == {None: {name: "1000000"}, 2: {name: "0"}}
    done = cli(cluster, "nodes", "settings", "2", "--output", "json")
    listed = {each["name"]: each for each in json.loads(done.stdout)}
    assert (listed[name]["value"], listed[name]["source"]) == ("0", "node")
    assert "max_connections" not in listed and listed["log_level"]["source"] == "default"
    admin.alter_node_settings({name: None}, node_id=2)
    admin.alter_node_settings({name: None})
    assert shown(admin.describe_node_settings(2), name) == configured


def test_wrong_settings_get_one_line(cluster: LocalCluster, admin: Admin) -> None:
    for arguments, said in (
        (("2", "scrub=off"), "unknown setting 'scrub': did you mean 'scrub_bytes_per_second'?"),
        (("2", "max_connections=5"), "max_connections cannot be changed at run time: set it in the node's file and"),
        (("2", "log_level=loud"), "wrong value 'loud' for log_level: expected debug, info, warning or error"),
        (("9", "log_level=debug"), "node 9 is not registered"),
        (("log_level=debug",), "is not the id of a node"),
        (("2",), "no setting is given"),
    ):
        refused = cli(cluster, "nodes", "configure", *arguments)
        assert refused.returncode != 0 and said in refused.stderr, refused
        assert len(refused.stderr.splitlines()) == 1, refused
    with pytest.raises(InvalidConfigError, match=r"unknown logger 'server\.grups': did you mean server\.groups"):
        admin.alter_node_settings({"log_level.server.grups": "debug"}, node_id=2)
    assert admin.alter_node_settings({"log_level": "debug"}, validate_only=True) == 0
    assert admin.describe_node_settings(1).records == {}


def test_requests_are_limited_at_once(cluster: LocalCluster, admin: Admin) -> None:
    admin.alter_node_settings({"max_request_bytes": "5000"})
    with pytest.raises(QuorumlogError, match="5000"):
        write(cluster, b"x" * 6_000)
    admin.alter_node_settings({"max_request_bytes": None})
    write(cluster, b"x" * 6_000)


def test_an_audit_log_is_switched_on_and_off(cluster: LocalCluster, admin: Admin) -> None:
    """Each node records both, so that no change of the audit log remains unseen."""
    admin.alter_node_settings({"audit_log": "on"}, node_id=3)
    file = Path(cluster.data_dir(3)) / "audit.log"
    until(file.exists, "the audit log")
    until(lambda: '"auditing"' in file.read_text(), "its first line")
    admin.alter_node_settings({"audit_log": "off"}, node_id=3)
    until(lambda: file.read_text().count('"auditing"') == 2, "its last line")
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    switched = [each["audit_log"] for each in lines if each["event"] == "auditing"]
    assert switched == ["on", "off"]
    assert not any((Path(cluster.data_dir(node)) / "audit.log").exists() for node in (1, 2))
    assert file.stat().st_mode & 0o077 == 0


def test_a_node_that_is_down_learns_its_settings(cluster: LocalCluster, admin: Admin) -> None:
    cluster.kill(3)
    admin.alter_node_settings({"scrub_bytes_per_second": "0"}, node_id=3)
    cluster.start(3)
    until(lambda: shown(admin.describe_node_settings(3), "scrub_bytes_per_second")[0] == ("0", "node"), "the record")
    until(lambda: "scrub_bytes_per_second=0" in cluster.log_path(3).read_text(), "its effect")

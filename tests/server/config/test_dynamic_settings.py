"""Settings that can be changed at run time: what is accepted, and which value is effective."""

from __future__ import annotations

from pathlib import Path

import pytest

from quorumlog.server.config.dynamic_settings import (
    DYNAMIC_SETTINGS,
    LOGGERS,
    RuntimeSettings,
    configured_values,
    problem_with_key,
    problem_with_value,
    report,
)
from quorumlog.server.config.options import NodeOptions, SettingSource
from quorumlog.server.config.settings import Settings, load

ROOT = Path(__file__).resolve().parents[3]


def options(tmp_path: Path, **flags: str) -> NodeOptions:
    needed = {"node_id": "1", "listen": "127.0.0.1:1", "data_dir": str(tmp_path), "controllers": "1@127.0.0.1:1"}
    return load({**needed, **flags}).node_options()


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        ("log_level", "loud", "wrong value 'loud' for log_level: expected debug, info, warning or error"),
        ("log_level.server.partitions", "debug", "unknown logger 'server.partitions': did you mean server.partition?"),
        ("log_level.x", "debug", "unknown logger 'x': known are server, "),
        ("scrub", "off", "unknown setting 'scrub': did you mean 'scrub_bytes_per_second'?"),
        ("copy_bytes_per_second", "0", "did you mean 'replica_copy_bytes_per_second'?"),
        ("", "1", "unknown setting '': known are log_level, "),
        ("x" * 500, "1", "known are log_level"),
        ("max_connections", "5", "max_connections cannot be changed at run time: set it in the node's file"),
        ("election_timeout_ms", "5", "set it in the node's file and restart it"),
        ("replica_copy_bytes_per_second", "5", "(too slow): expected 0 for no limit, or 1048576 bytes and more"),
        ("offsets_retention_ms", "999", "expected a whole number of milliseconds, at least 1000"),
        ("max_request_bytes", "1_000", "wrong value '1_000' for max_request_bytes"),
        ("max_request_bytes", "125829121", "expected at most 125829120 at run time"),
        ("kafka_max_connections_per_ip", "0", "expected a whole number from 1 to 1000000"),
        ("audit_log", "/tmp/file", "wrong value '/tmp/file' for audit_log: expected on or off"),
        ("scrub_bytes_per_second", "9" * 5_000, "wrong value '999"),
    ],
)
def test_wrong_settings_are_explained(key: str, value: str, said: str) -> None:
    problem = problem_with_value(key, value)
    assert problem is not None and said in problem, problem
    assert "\n" not in problem and len(problem) < 500


def test_nothing_replicas_agree_on_is_dynamic() -> None:
    """A value that replicas must agree on would make them diverge."""
    assert set(DYNAMIC_SETTINGS) == {
        "audit_log", "compaction_bytes_per_second", "kafka_max_connections_per_ip",
        "leader_imbalance_check_interval_seconds", "log_level", "max_request_bytes", "offsets_retention_ms",
        "replica_copy_bytes_per_second", "scrub_bytes_per_second",
    }  # fmt: skip
    for name in Settings.model_fields:
        assert (problem_with_key(name) is None) is (name in DYNAMIC_SETTINGS), name


def test_records_override_what_is_configured(tmp_path: Path) -> None:
    """A record of one node overrides that of all nodes, and both override the command line."""
    settings = RuntimeSettings(options(tmp_path, scrub_bytes_per_second="5", offsets_retention_ms="2000"))
    assert settings.values.scrub_bytes_per_second == 5
    every = {"scrub_bytes_per_second": "7", "leader_imbalance_check_interval_seconds": "9", "audit_log": "on"}
    assert settings.follow((every, {"scrub_bytes_per_second": "8"})) == []
    values = settings.values
    assert (values.scrub_bytes_per_second, values.imbalance_check_interval_us) == (8, 9_000_000)
    assert (values.offsets_retention_ms, values.audited) == (2_000, True)
    settings.follow((every, {}))
    assert settings.values.scrub_bytes_per_second == 7
    settings.follow(({}, {}))
    assert settings.values == configured_values(
        options(tmp_path, scrub_bytes_per_second="5", offsets_retention_ms="2000")
    )


def test_values_of_other_versions_are_ignored(tmp_path: Path) -> None:
    settings = RuntimeSettings(options(tmp_path))
    before = settings.values
    every = {"of_a_later_version": "1", "offsets_retention_ms": "forever", "log_level.server.new": "debug"}
    assert settings.follow((every, {})) == ["log_level.server.new", "of_a_later_version", "offsets_retention_ms"]
    assert settings.values == before


def test_levels_are_by_logger(tmp_path: Path) -> None:
    settings = RuntimeSettings(options(tmp_path, log_level="warning"))
    settings.follow(({"log_level": "error", "log_level.server.groups": "debug"}, {"log_level.server.groups": "info"}))
    assert settings.values.log_levels == {"": "error", "server.groups": "info"}
    assert settings.configured.log_levels == {"": "warning"}


def test_each_value_has_its_source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "node.toml"
    file.write_text("scrub_bytes_per_second = 1\nmax_connections = 20\n")
    monkeypatch.setenv("QUORUMLOG_SCRUB_BYTES_PER_SECOND", "2")
    flags = {"node_id": "1", "listen": "127.0.0.1:1", "data_dir": str(tmp_path), "controllers": "1@127.0.0.1:1"}
    configured = load({**flags, "scrub_bytes_per_second": "3"}, file).node_options()
    described = report(
        configured, {"scrub_bytes_per_second": "4"}, {"scrub_bytes_per_second": "5", "log_level": "info"}
    )
    shown = {each.name: each for each in described}
    assert [each.name for each in described] == sorted(shown) and shown.keys() == set(Settings.model_fields)
    scrub = shown["scrub_bytes_per_second"]
    assert scrub.values == (
        ("5", SettingSource.NODE),
        ("4", SettingSource.CLUSTER),
        ("3", SettingSource.COMMAND_LINE),
        ("2", SettingSource.ENVIRONMENT),
        ("1", SettingSource.FILE),
        ("4194304", SettingSource.DEFAULT),
    )
    assert scrub.is_dynamic and scrub.documentation.startswith("a whole number of bytes")
    assert shown["max_connections"].values == (("20", SettingSource.FILE), ("10000", SettingSource.DEFAULT))
    assert not shown["max_connections"].is_dynamic
    assert shown["node_id"].values == (("1", SettingSource.COMMAND_LINE),)
    assert shown["log_level"].values == (("info", SettingSource.NODE), ("info", SettingSource.DEFAULT))


def test_every_package_that_logs_is_a_logger() -> None:
    """A package without a logger could not be set apart from the others."""
    packages = {f"server.{each.parent.name}" for each in (ROOT / "server").glob("*/__init__.py")}
    assert set(LOGGERS) - {"server"} <= packages

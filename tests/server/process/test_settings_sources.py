"""Sources of settings, their precedence, and the errors for invalid ones."""

from dataclasses import fields, is_dataclass, replace
from pathlib import Path

import pytest

from quorumlog.server.config.options import NodeOptions
from quorumlog.server.config.setting_values import parse_address
from quorumlog.server.config.settings import Settings, SettingsError, load

FLAGS = {"node_id": "1", "listen": "127.0.0.1:19092", "data_dir": "/tmp/x", "controllers": "1@127.0.0.1:19092"}


def complaint(flags: dict[str, object], config: Path | None = None) -> str:
    with pytest.raises(SettingsError) as caught:
        load(flags, config).node_options()
    assert "\n" not in str(caught.value)
    return str(caught.value)


def config_file(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "node.toml"
    path.write_text(text)
    return path


def test_a_flag_wins_over_the_environment_and_that_over_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = config_file(
        tmp_path,
        """
        node_id = 7
        listen = "127.0.0.1:1001"
        data_dir = "/tmp/file"
        controllers = ["7@127.0.0.1:1001", "8@127.0.0.1:1002"]
        rack = "file"
        """,
    )
    monkeypatch.setenv("QUORUMLOG_DATA_DIR", "/tmp/environment")
    monkeypatch.setenv("QUORUMLOG_RACK", "environment")
    settings = load({"rack": "flag", "advertise": None}, config)
    assert (settings.node_id, settings.data_dir, settings.rack) == (7, Path("/tmp/environment"), "flag")
    assert settings.controllers == {7: "127.0.0.1:1001", 8: "127.0.0.1:1002"}


def test_what_others_reach_is_listen_unless_advertise_says_otherwise() -> None:
    assert load(FLAGS).address == "127.0.0.1:19092"
    assert load({**FLAGS, "advertise": "node-1.example:19092"}).address == "node-1.example:19092"


def test_times_and_limits_reach_the_node_in_its_units() -> None:
    options = load({**FLAGS, "election_timeout_ms": 450, "max_batch_bytes": "65536"}).node_options()
    assert options.raft.election_timeout_us == 450_000
    assert options.limits.batch_bytes == 65_536
    assert options.groups.limits.min_session_timeout_ms == 2_000
    slow = load({**FLAGS, "election_timeout_ms": 1_500}).node_options()
    assert slow.groups.limits.min_session_timeout_ms == 4_500


def test_who_may_do_everything_is_a_list_in_the_file_and_text_elsewhere(tmp_path: Path) -> None:
    config = config_file(tmp_path, 'authorization = true\nsuper_users = ["User:admin", "User:größe, gmbh"]\n')
    reported = load(FLAGS, config).node_options().authorization
    assert (reported.enabled, reported.super_users, reported.audited) == (
        True,
        {"User:admin", "User:größe, gmbh"},
        False,
    )
    reported = load({**FLAGS, "super_users": "User:a, User:b", "audit_log": "/tmp/audit"}).node_options().authorization
    assert (reported.enabled, reported.super_users, reported.audited) == (False, {"User:a", "User:b"}, True)
    limited = {"authorization": True, "super_users": "User:a", "acl_image_max_age_ms": 2_000}
    assert load({**FLAGS, **limited}).node_options().authorization.image_max_age_ms == 2_000


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"super_users": "admin"}, "'admin' is not User: and a name"),
        ({"super_users": "User:a,User:*"}, "'User:*' is not User: and a name"),
        ({"super_users": "User:a,"}, "'' is not User:"),
        ({"acl_image_max_age_ms": 60_000}, "authorization is off"),
        ({"acl_image_max_age_ms": 1_999, "authorization": True, "super_users": "User:a"}, "at least 20 times"),
        ({"authorization": True}, "super_users with authorization: expected User:NAME"),
        ({"authorization": True, "super_users": "User:a", "insecure": True}, "unauthenticated clients"),
        ({"authorization": "perhaps"}, "wrong value 'perhaps' for authorization"),
    ],
)
def test_settings_of_permission_that_make_no_sense_are_one_line(wrong: dict[str, object], said: str) -> None:
    assert said in complaint({**FLAGS, **wrong})


@pytest.mark.parametrize(
    ("name", "value", "place", "there"),
    [
        ("election_timeout_ms", 777, "raft.election_timeout_us", 777_000),
        ("heartbeat_interval_ms", 77, "raft.heartbeat_interval_us", 77_000),
        ("heartbeat_interval_ms", 77, "heartbeat_interval_us", 77_000),
        ("max_request_bytes", 7_777, "limits.request_bytes", 7_777),
        ("kafka_max_request_bytes", 7_777, "limits.kafka_request_bytes", 7_777),
        ("max_batch_bytes", 7_777, "limits.batch_bytes", 7_777),
        ("max_fetch_bytes", 7_777, "limits.fetch_bytes", 7_777),
        ("max_pending_produces", 7, "limits.pending_produces", 7),
        ("max_parked_fetches", 7, "limits.parked_fetches", 7),
        ("storage_reserve_bytes", 7_777, "limits.storage_reserve_bytes", 7_777),
        ("compaction_bytes_per_second", 7_777, "limits.compaction_bytes_per_second", 7_777),
        ("auto_leader_rebalance_enable", False, "balance.enabled", False),
        ("feature_upgrade", "manual", "raises_features", False),
        ("leader_imbalance_check_interval_seconds", 7, "balance.check_interval_us", 7_000_000),
        ("replica_lag_time_max_ms", 7, "replica_lag_time_max_us", 7_000),
        ("broker_heartbeat_interval_ms", 7, "broker_heartbeat_interval_us", 7_000),
        ("broker_session_timeout_ms", 7_777, "broker_session_timeout_us", 7_777_000),
        ("storage_stall_ms", 7, "storage_stall_us", 7_000),
        ("stop_timeout_ms", 7, "stop_timeout_us", 7_000),
        ("metadata_checkpoint_entries", 7, "metadata_checkpoint_entries", 7),
        ("compaction_interval_ms", 7, "compaction_interval_us", 7_000),
        ("producer_id_expiration_ms", 7, "producer_id_expiration_us", 7_000),
        ("rack", "r7", "rack", "r7"),
        ("node_id", 7, "node_id", 7),
        ("advertise", "node-1.example:19092", "address", "node-1.example:19092"),
        ("group_coordinators", 7, "groups.coordinators", 7),
        ("group_coordinators_replication_factor", 7, "groups.coordinators_factor", 7),
        ("log_level", "error", "log_level", "error"),
        ("kafka_max_connections_per_ip", 7, "kafka_connections_per_ip", 7),
        ("offsets_retention_ms", 7_777, "groups.offsets_retention_ms", 7_777),
        ("group_min_session_timeout_ms", 7_777, "groups.limits.min_session_timeout_ms", 7_777),
        ("group_max_session_timeout_ms", 7_777, "groups.limits.max_session_timeout_ms", 7_777),
        ("group_session_timeout_ms", 7_777, "groups.limits.session_timeout_ms", 7_777),
        ("group_initial_rebalance_delay_ms", 777, "groups.limits.initial_rebalance_delay_ms", 777),
    ],
)
def test_each_setting_reaches_its_place_in_its_unit_and_no_other(
    name: str, value: object, place: str, there: object
) -> None:
    def reached(flags: dict[str, object]) -> dict[str, object]:
        found: dict[str, object] = {}
        pending: list[tuple[str, object]] = [("", load(flags).node_options())]
        for path, options in pending:
            for field in fields(options):  # type: ignore[arg-type]  # each is a dataclass
                child = getattr(options, field.name)
                if is_dataclass(child):
                    pending.append((f"{path}{field.name}.", child))
                else:
                    found[f"{path}{field.name}"] = child
        return found

    before, after = reached(dict(FLAGS)), reached({**FLAGS, name: value})
    assert after[place] == there
    # One time counts in two places, and another is the least of a third.
    also = {"heartbeat_interval_ms": {"raft.heartbeat_interval_us", "heartbeat_interval_us"}}
    also["election_timeout_ms"] = {"groups.limits.min_session_timeout_ms"}
    changed = {each for each in after if after[each] != before[each]}
    # Every setting is reported with its value and source.
    assert changed == {place, "configured"} | also.get(name, set())


def test_defaults_of_settings_are_those_of_the_node() -> None:
    """Options made without settings, as in tests and benchmarks, equal those that users get."""
    given, made = load(FLAGS).node_options(), NodeOptions(1, "127.0.0.1:19092", {1: "127.0.0.1:19092"})
    # These two depend on others, or are what small tests need.
    made = replace(made, configured=given.configured)
    made = replace(made, raft=given.raft, groups=replace(made.groups, limits=given.groups.limits))
    assert replace(given, version=made.version, data_dir=made.data_dir) == made


def test_sessions_may_be_as_short_as_what_they_depend_on_allows() -> None:
    shortest = {"broker_heartbeat_interval_ms": 500, "broker_session_timeout_ms": 1_000}
    shortest |= {"heartbeat_interval_ms": 100, "election_timeout_ms": 200, "group_min_session_timeout_ms": 600}
    options = load({**FLAGS, **shortest, "group_max_session_timeout_ms": 600}).node_options()
    assert options.groups.limits.max_session_timeout_ms == options.groups.limits.usual_session_ms == 600
    for name, value in (
        ("broker_session_timeout_ms", 999),
        ("election_timeout_ms", 199),
        ("group_min_session_timeout_ms", 599),
    ):
        assert f"wrong value {value} for {name}" in complaint({**FLAGS, **shortest, name: value})


def test_an_empty_variable_is_as_good_as_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("QUORUMLOG_RACK", "")
    monkeypatch.setenv("QUORUMLOG_ELECTION_TIMEOUT_MS", "")
    assert load(FLAGS).election_timeout_ms == 600


def test_an_unknown_key_in_the_file_is_named_with_the_one_that_was_meant(tmp_path: Path) -> None:
    config = config_file(tmp_path, "elction_timeout_ms = 500")
    assert complaint(FLAGS, config) == (
        f"unknown setting 'elction_timeout_ms' in {config}: did you mean 'election_timeout_ms'?"
    )


def test_a_misspelt_variable_is_named_but_a_strangers_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("QUORUMLOG_BOOTSTRAP_SERVERS", "127.0.0.1:19092")
    load(FLAGS)
    monkeypatch.setenv("QUORUMLOG_NODEID", "3")
    assert "did you mean QUORUMLOG_NODE_ID?" in complaint(FLAGS)


def test_a_missing_setting_is_named_with_the_ways_to_give_it() -> None:
    assert complaint({}).startswith("node_id is not set: give --node-id, QUORUMLOG_NODE_ID or node_id in the file")


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("node_id", "one", "wrong value 'one' for node_id from --node-id: expected a whole number"),
        ("listen", "nowhere", "wrong value 'nowhere' for listen from --listen (not host:port)"),
        ("listen", "127.0.0.1:99999", "the port is not a number from 1 to 65535"),
        ("controllers", "1@127.0.0.1:1,1@127.0.0.1:2", "node 1 is named twice"),
        ("controllers", "", "controllers"),
        ("log_level", "loud", "expected debug, info, warning or error"),
        ("election_timeout_ms", "0", "expected a whole number of milliseconds"),
        ("election_timeout_ms", "150", "at least twice heartbeat_interval_ms"),
        ("controllers", "1@127.0.0.1:4", "give the same port in controllers and in listen"),
        ("broker_session_timeout_ms", "600", "at least twice broker_heartbeat_interval_ms"),
        ("max_batch_bytes", "-1", "expected a whole number of bytes"),
        ("group_coordinators", "0", "expected a whole number from 1 to 1000"),
        ("group_coordinators_replication_factor", "2", "1, 3, 5 or 7 replicas"),
        ("group_min_session_timeout_ms", "1000", "at least three times election_timeout_ms"),
        ("group_max_session_timeout_ms", "1000", "at least group_min_session_timeout_ms"),
        ("group_session_timeout_ms", "1000", "between the two above"),
        ("group_session_timeout_ms", "1800001", "between the two above"),
        ("offsets_retention_ms", "5", "at least 1000"),
    ],
)
def test_a_wrong_value_is_named_with_what_is_expected(name: str, value: str, said: str) -> None:
    assert said in complaint({**FLAGS, name: value})


@pytest.mark.parametrize("value", ["1_000", "+1000", "1000.0", "1e3", "\u0661\u0660\u0660\u0660", "1000\u00a01"])
@pytest.mark.parametrize("name", ["node_id", "heartbeat_interval_ms", "max_batch_bytes", "group_session_timeout_ms"])
def test_odd_numbers_are_refused(name: str, value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert f"wrong value {value!r} for {name}" in complaint({**FLAGS, name: value})
    monkeypatch.setenv(f"QUORUMLOG_{name.upper()}", value)
    flags = {key: given for key, given in FLAGS.items() if key != name}
    assert f"for {name} from QUORUMLOG_{name.upper()}" in complaint(flags)


def test_spaces_around_numbers_are_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("QUORUMLOG_STOP_TIMEOUT_MS", " 007 ")
    assert load(FLAGS).stop_timeout_ms == 7


def test_a_wrong_value_says_where_it_came_from(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = config_file(tmp_path, "heartbeat_interval_ms = 'often'")
    assert f"for heartbeat_interval_ms in {config}" in complaint(FLAGS, config)
    monkeypatch.setenv("QUORUMLOG_HEARTBEAT_INTERVAL_MS", "seldom")
    assert "from QUORUMLOG_HEARTBEAT_INTERVAL_MS" in complaint(FLAGS)


def test_a_file_that_is_missing_or_not_toml_is_one_line(tmp_path: Path) -> None:
    assert "does not exist" in complaint(FLAGS, tmp_path / "missing.toml")
    assert "is not TOML" in complaint(FLAGS, config_file(tmp_path, "node_id ="))


def test_addresses_may_be_names_or_bracketed() -> None:
    assert parse_address("[::1]:80") == ("::1", 80)
    assert parse_address("node-1.example:19092") == ("node-1.example", 19092)
    for wrong in ("::1:80", ":80", "host", "host:", "host:0", "host:٣"):
        with pytest.raises(ValueError):  # noqa: PT011  # any of the reasons
            parse_address(wrong)


def test_every_setting_says_what_is_expected() -> None:
    assert [name for name, field in Settings.model_fields.items() if not field.description] == []

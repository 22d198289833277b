"""Topic configuration: defaults, values, and one clear line for each mistake."""

import pytest

from quorumlog.server.metadata.topic_config import (
    CONFIG_KEYS,
    IntegerKey,
    InvalidTopicConfigError,
    RatioKey,
    TopicConfig,
    changed_configs,
    check_consistency,
    checked_configs,
    describe_topic_config,
    needs_third_level,
    parse_topic_config,
)
from quorumlog.wire.entry import TimestampType


def test_defaults_are_kafkas() -> None:
    assert parse_topic_config({}) == TopicConfig(
        retention_ms=604_800_000,
        retention_bytes=-1,
        cleanup_policy=("delete",),
        delete_retention_ms=86_400_000,
        min_compaction_lag_ms=0,
        max_compaction_lag_ms=(1 << 63) - 1,
        min_cleanable_dirty_ratio=0.5,
        max_message_bytes=1_048_576,
        min_insync_replicas=1,
        message_timestamp_type=TimestampType.CREATE_TIME,
    )


def test_values_are_read_as_what_they_are() -> None:
    config = parse_topic_config(
        {"retention.ms": " -1 ", "min.insync.replicas": "2", "message.timestamp.type": "LogAppendTime"}
    )
    assert (config.retention_ms, config.min_insync_replicas) == (-1, 2)
    assert config.message_timestamp_type is TimestampType.LOG_APPEND_TIME


@pytest.mark.parametrize(
    ("key", "value", "line"),
    [
        ("retention.ms", "abc", "retention.ms=abc: expected an integer number of milliseconds, at least -1"),
        (
            "retention.ms",
            "-2",
            "retention.ms=-2: out of range, expected an integer number of milliseconds, at least -1",
        ),
        ("retention.bytes", "1.5", "retention.bytes=1.5: expected an integer number of bytes, at least -1"),
        (
            "max.message.bytes",
            "999999999999",
            "max.message.bytes=999999999999: out of range, expected an integer number of bytes, from 1024 to 8388608",
        ),
        (
            "min.insync.replicas",
            "0",
            "min.insync.replicas=0: out of range, expected an integer number of replicas, from 1 to 101",
        ),
        ("cleanup.policy", "shred", "cleanup.policy=shred: expected delete, compact or delete,compact"),
        ("cleanup.policy", "compact,", "cleanup.policy=compact,: expected delete, compact or delete,compact"),
        ("cleanup.policy", "", "cleanup.policy=: expected delete, compact or delete,compact"),
        (
            "min.compaction.lag.ms",
            "-1",
            "min.compaction.lag.ms=-1: out of range, expected an integer number of milliseconds, at least 0",
        ),
        (
            "max.compaction.lag.ms",
            "0",
            "max.compaction.lag.ms=0: out of range, expected an integer number of milliseconds, at least 1",
        ),
        (
            "delete.retention.ms",
            "-1",
            "delete.retention.ms=-1: out of range, expected an integer number of milliseconds, at least 0",
        ),
        (
            "min.cleanable.dirty.ratio",
            "1.5",
            "min.cleanable.dirty.ratio=1.5: expected a number from 0 to 1",
        ),
        ("min.cleanable.dirty.ratio", "nan", "min.cleanable.dirty.ratio=nan: expected a number from 0 to 1"),
        (
            "message.timestamp.type",
            "createtime",
            "message.timestamp.type=createtime: expected CreateTime or LogAppendTime",
        ),
        ("retention.m", "1", "unknown topic configuration key retention.m: did you mean retention.ms?"),
        (
            "compression.type",
            "zstd",
            "compression.type means nothing here: producers choose it (compression_type), and batches are kept as they"
            " came",
        ),
        ("segment.bytes", "1048576", "segment.bytes means nothing here, or does not exist: leave it out"),
        (
            "replica.lag.time.max.ms",
            "1",
            "replica.lag.time.max.ms: this is a setting of nodes, not of topics; set it in the nodes' configuration",
        ),
    ],
)
def test_each_mistake_is_told_in_one_line(key: str, value: str, line: str) -> None:
    with pytest.raises(InvalidTopicConfigError) as caught:
        parse_topic_config({key: value})
    assert str(caught.value) == line


def test_a_key_like_no_other_gets_the_list() -> None:
    with pytest.raises(InvalidTopicConfigError, match=r"known keys: retention\.ms, retention\.bytes, "):
        parse_topic_config({"zzz": "1"})


def test_text_from_users_cannot_break_the_line() -> None:
    with pytest.raises(InvalidTopicConfigError) as caught:
        parse_topic_config({"retention.ms": "1\n2" + "x" * 500})
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 200


def test_more_minimum_replicas_than_replicas_are_refused() -> None:
    config = parse_topic_config({"min.insync.replicas": "3"})
    check_consistency(config, 3)
    with pytest.raises(InvalidTopicConfigError, match=r"^min\.insync\.replicas=3: more than the replication factor 1"):
        check_consistency(config, 1)


@pytest.mark.parametrize(
    ("policy", "compacts", "deletes"),
    [("compact", True, False), ("delete", False, True), ("compact,delete", True, True), ("delete,compact", True, True)],
)
def test_both_policies_may_be_set(policy: str, compacts: bool, deletes: bool) -> None:
    """A topic is compacted, or records are removed by age and size, or both; the order is kept for display."""
    config = parse_topic_config({"cleanup.policy": policy})
    assert (config.compacts, config.deletes) == (compacts, deletes)
    assert next(key.value for key in describe_topic_config({"cleanup.policy": policy}) if key.is_set) == policy


def test_contradicting_lags_are_refused() -> None:
    """A record cannot have to be compacted before it may be, whichever of the two settings is changed."""
    line = r"^min\.compaction\.lag\.ms=9: more than max\.compaction\.lag\.ms=8; lower one or raise the other$"
    for before, change in (("min", "max"), ("max", "min")):
        values = {"min": {"min.compaction.lag.ms": "9"}, "max": {"max.compaction.lag.ms": "8"}}
        with pytest.raises(InvalidTopicConfigError, match=line):
            changed_configs(values[before], values[change], (), 3)
    assert changed_configs({}, {"min.compaction.lag.ms": "9", "max.compaction.lag.ms": "9"}, (), 3)


@pytest.mark.parametrize(
    ("values", "newest"),
    [
        ({"cleanup.policy": "compact", "retention.ms": "1"}, ""),
        ({"cleanup.policy": "delete,compact"}, "cleanup.policy=delete,compact"),
        ({"min.compaction.lag.ms": "0"}, "min.compaction.lag.ms=0"),
        ({"retention.ms": "1", "max.compaction.lag.ms": "5"}, "max.compaction.lag.ms=5"),
    ],
)
def test_newer_settings_are_recognized(values: dict[str, str], newest: str) -> None:
    """Settings that an older node cannot read are recognized, also if their values are the defaults."""
    assert needs_third_level(values) == newest


def test_every_key_is_documented_and_has_its_field() -> None:
    assert {key.attribute for key in CONFIG_KEYS.values()} == set(TopicConfig.__dataclass_fields__)
    assert all(key.doc for key in CONFIG_KEYS.values())


#: As only Python reads them, and not Kafka's clients. The last ones are Arabic, full-width and with a hard space.
ODD_INTEGERS = ("1_000", "+5000", "0x10", "1e4", "5000.0", "--5", "", "\u0661\u0662\u0663", "\uff15", "5000\u00a0")
ODD_RATIOS = ("0_1", "0.2_5", "+0.5", "inf", "0x1p-1", ".", "", "\u0660.\u0665", "0.5\u2003")


@pytest.mark.parametrize(
    ("name", "value"),
    [(key.name, odd) for key in CONFIG_KEYS.values() if isinstance(key, IntegerKey) for odd in ODD_INTEGERS]
    + [(key.name, odd) for key in CONFIG_KEYS.values() if isinstance(key, RatioKey) for odd in ODD_RATIOS],
)
def test_odd_numbers_are_refused(name: str, value: str) -> None:
    with pytest.raises(InvalidTopicConfigError, match=rf"^{name}=.*expected an? "):
        checked_configs({name: value})
    with pytest.raises(InvalidTopicConfigError, match=rf"^{name}="):
        changed_configs({}, {name: value}, (), 3)


@pytest.mark.parametrize(
    ("name", "given", "kept"),
    [
        ("retention.ms", " 007\t", "7"),
        ("retention.ms", "-0", "0"),
        ("retention.ms", "-1", "-1"),
        ("retention.bytes", "9223372036854775807", "9223372036854775807"),
        ("min.cleanable.dirty.ratio", ".50", "0.5"),
        ("min.cleanable.dirty.ratio", "1", "1.0"),
        ("min.cleanable.dirty.ratio", "5E-1", "0.5"),
        ("cleanup.policy", " compact ", "compact"),
        ("cleanup.policy", "compact, delete", "compact,delete"),
        ("cleanup.policy", "delete,compact", "delete,compact"),
        ("cleanup.policy", "compact,compact", "compact"),
    ],
)
def test_settings_are_kept_in_one_spelling(name: str, given: str, kept: str) -> None:
    assert checked_configs({name: given}) == changed_configs({}, {name: given}, (), 3) == {name: kept}


def test_odd_numbers_of_older_versions_load() -> None:
    stored = {"retention.ms": "1_000", "max.message.bytes": "+5000", "min.cleanable.dirty.ratio": "0.2_5"}
    config = parse_topic_config(stored)
    assert (config.retention_ms, config.max_message_bytes, config.min_cleanable_dirty_ratio) == (1_000, 5_000, 0.25)
    shown = {each.name: each.value for each in describe_topic_config(stored) if each.is_set}
    assert shown == {"retention.ms": "1000", "max.message.bytes": "5000", "min.cleanable.dirty.ratio": "0.25"}
    assert changed_configs(stored, {"retention.bytes": "5"}, (), 3) == {"retention.bytes": "5"}
    assert checked_configs(stored, is_restored=True) == shown

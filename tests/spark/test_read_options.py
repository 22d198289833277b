"""Options of a read: what is taken, and what each refusal says."""

import pytest

from quorumlog.sdk.cluster.offset_search import EARLIEST, LATEST
from quorumlog.sdk.spark.errors import OptionError
from quorumlog.sdk.spark.options import (
    BatchOptions,
    StreamOptions,
    parse_batch_options,
    parse_read_options,
    parse_stream_options,
)

#: A number that Python refuses to read.
NINES = "9" * 5_000
BASE = {"quorumlog.bootstrap.servers": "127.0.0.1:19092", "subscribe": "orders"}


def given(changes: dict[str, str | None]) -> dict[str, str]:
    return {name: value for name, value in (BASE | changes).items() if value is not None}


def parsed(**changes: str | None) -> BatchOptions:
    return parse_batch_options(given(changes))


def stream(**changes: str | None) -> StreamOptions:
    return parse_stream_options(given(changes))


def refusal(**changes: str | None) -> str:
    with pytest.raises(OptionError) as raised:
        parsed(**changes)
    assert "\n" not in str(raised.value)
    return str(raised.value)


def test_a_topic_and_an_address_are_enough() -> None:
    options = parsed()
    assert options.read.bootstrap_servers == "127.0.0.1:19092"
    assert options.read.selection.subscribe == ("orders",)
    assert (options.read.starting.everywhere, options.ending.everywhere) == (EARLIEST, LATEST)
    assert options.read.fail_on_data_loss
    assert not options.read.include_headers
    query = stream()
    assert query.read.starting.everywhere == LATEST
    assert (query.min_offsets, query.max_offsets, query.max_delay_ms, query.group_id) == (None, None, 900_000, None)


@pytest.mark.parametrize(("value", "skips"), [(None, False), ("raise", False), ("skip", True), (" SKIP ", True)])
def test_on_corrupt_raises_unless_told_to_skip(value: str | None, skips: bool) -> None:
    assert parsed(onCorrupt=value).read.skip_unreadable is skips
    assert stream(onCorrupt=value).read.skip_unreadable is skips


@pytest.mark.parametrize("value", ["", "ignore", "true"])
def test_an_unknown_on_corrupt_is_rejected(value: str) -> None:
    assert refusal(onCorrupt=value) == f"option onCorrupt is {value!r}: expected raise or skip"


@pytest.mark.parametrize(("value", "spread"), [(None, False), ("leader", False), ("Replicas", True)])
def test_read_from_names_the_replicas(value: str | None, spread: bool) -> None:
    """Tasks read from leaders unless the option says otherwise."""
    assert parsed(readFrom=value).read.from_replicas is spread
    assert stream(readFrom=value).read.from_replicas is spread
    assert refusal(readFrom="nearest") == "option readFrom is 'nearest': expected leader or replicas"


def test_names_are_case_insensitive_and_kafka_s_address_is_understood() -> None:
    options = parse_read_options(
        {
            "KAFKA.bootstrap.servers": "a:1, b:2",
            "SUBSCRIBE": "x, y,x",
            "includeheaders": "TRUE",
            "failondataloss": "false",
        }
    )
    assert options.bootstrap_servers == "a:1,b:2"
    assert options.selection.subscribe == ("x", "y")
    same = {"kafka.bootstrap.servers": "a:1,b:2", "quorumlog.bootstrap.servers": "a:1, b:2,", "subscribe": "x"}
    assert parse_read_options(same).bootstrap_servers == "a:1,b:2"
    assert options.include_headers
    assert not options.fail_on_data_loss


def test_assign_and_pattern_and_numbers_are_typed() -> None:
    assert parsed(subscribe=None, assign='{"t": [2, 0, 2]}').read.selection.assign == {"t": (0, 2)}
    assert parsed(subscribe=None, subscribePattern="ord.*").read.selection.pattern == "ord.*"
    options = parsed(minPartitions="4", maxRecordsPerPartition="1000").read
    assert (options.min_partitions, options.max_records_per_partition) == (4, 1000)


def test_offsets_in_json_keep_earliest_and_latest_apart_by_option() -> None:
    starting = parsed(startingOffsets='{"orders": {"0": 5, "1": -2}}').read.starting
    assert starting.everywhere is None
    assert starting.by_partition == {("orders", 0): 5, ("orders", 1): EARLIEST}
    assert parsed(endingOffsets='{"orders": {"0": -1}}').ending.by_partition == {("orders", 0): LATEST}


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"quorumlog.bootstrap.servers": None}, ["quorumlog.bootstrap.servers", "missing"]),
        ({"quorumlog.bootstrap.servers": "localhost"}, ["quorumlog.bootstrap.servers", "'localhost'", "host:port"]),
        ({"kafka.bootstrap.servers": "b:2"}, ["contradict"]),
        ({"subscribe": None}, ["subscribe, subscribePattern, assign", "none"]),
        ({"assign": '{"t":[0]}'}, ["exactly one", "subscribe and assign"]),
        ({"subscribe": " , "}, ["subscribe", "at least one topic"]),
        ({"subscribe": None, "subscribePattern": "("}, ["subscribePattern", "'('", "regular expression"]),
        ({"subscribe": None, "assign": '{"t": 0}'}, ["assign", "'t'", "list"]),
        ({"subscribe": None, "assign": '{"t": [-1]}'}, ["assign", "numbers from 0"]),
        ({"subscribe": None, "assign": "{}"}, ["assign", "no topic"]),
        ({"subscribe": None, "assign": "[1]"}, ["assign", "not a JSON object"]),
        ({"startingOffsets": '{"orders": {"0": 1'}, ["startingOffsets", '{"orders": {"0": 1', "expected earliest"]),
        ({"startingOffsets": "soon"}, ["startingOffsets", "'soon'"]),
        ({"startingOffsets": '{"orders": {"x": 1}}'}, ["startingOffsets", "'x'"]),
        ({"startingOffsets": '{"orders": {"0": 1.5}}'}, ["startingOffsets", "1.5"]),
        ({"startingOffsets": '{"orders": {"0": -3}}'}, ["startingOffsets", "-3"]),
        ({"startingOffsets": '{"orders": {"0": true}}'}, ["startingOffsets", "True"]),
        ({"startingOffsets": '{"orders": 3}'}, ["startingOffsets", "'orders'"]),
        ({"startingOffsets": "{}"}, ["startingOffsets", "no topic"]),
        ({"startingOffsets": "latest"}, ["startingOffsets", "latest"]),
        ({"startingOffsets": '{"orders": {"0": -1}}'}, ["startingOffsets", "-1", "orders partition 0"]),
        ({"endingOffsets": "earliest"}, ["endingOffsets", "earliest"]),
        ({"endingOffsets": '{"orders": {"0": -2}}'}, ["endingOffsets", "-2"]),
        ({"includeHeaders": "yes"}, ["includeHeaders", "'yes'", "true or false"]),
        ({"failOnDataLoss": ""}, ["failOnDataLoss", "true or false"]),
        ({"minPartitions": "0"}, ["minPartitions", "'0'"]),
        ({"maxRecordsPerPartition": "many"}, ["maxRecordsPerPartition", "'many'"]),
        ({"startingTimestamp": "-17"}, ["startingTimestamp", "'-17'", "a number from 0"]),
        ({"startingOffsetsByTimestamp": '{"orders": {"0": -2}}'}, ["startingOffsetsByTimestamp", "-2", "a timestamp"]),
        ({"endingOffsetsByTimestamp": "latest"}, ["endingOffsetsByTimestamp", "'latest'", "expected JSON"]),
        ({"startingOffsetsByTimestampStrategy": "earliest"}, ["startingOffsetsByTimestampStrategy", "error or latest"]),
        ({"maxOffsetsPerTrigger": "17"}, ["maxOffsetsPerTrigger ('17')", "for a streaming read", "a batch read"]),
        ({"groupId": "g"}, ["groupId", "a streaming read"]),
        ({"transactionId": "g"}, ["transactionId", "for a batch write", "a batch read"]),
        ({"quorumlog.bootstrap.server": "a:1"}, ["quorumlog.bootstrap.server ", "mean quorumlog.bootstrap.servers"]),
        ({"quorumlog.zzz": "1"}, ["quorumlog.zzz", "quorumlog.bootstrap.servers"]),
        ({"startingOffset": "earliest"}, ["startingOffset", "did you mean startingOffsets"]),
        ({"kafka.security.protocol": "SSL"}, ["kafka.security.protocol", "no effect"]),
        ({"path": "orders"}, ["load", "subscribe"]),
        ({"option.subscribe": "orders", "provider": "quorumlog"}, ["catalog", "use CREATE TEMPORARY VIEW"]),
        ({"quorumlog.bootstrap.servers": " , "}, ["quorumlog.bootstrap.servers", "missing"]),
        ({"quorumlog.bootstrap.servers": "http://a:1"}, ["'http://a:1' is not host:port"]),
        ({"quorumlog.bootstrap.servers": f"a:{NINES}"}, ["is not host:port"]),
        ({"subscribe": None, "subscribePattern": " "}, ["subscribePattern", "empty"]),
        ({"subscribe": None, "subscribePattern": "a{99999999999}"}, ["subscribePattern", "regular expression"]),
        ({"subscribe": None, "subscribePattern": "(" * 9_000}, ["subscribePattern", "regular expression"]),
        ({"subscribe": None, "assign": '{"t": [0], "t": [1]}'}, ["assign", "'t' is there twice"]),
        ({"subscribe": None, "assign": r'{"\ud800": [0]}'}, ["assign", "surrogates not allowed"]),
        ({"startingOffsets": '{"orders": {"0": 1, "0": 5}}'}, ["startingOffsets", "'0' is there twice"]),
        ({"startingOffsets": '{"orders": {"0": 1, "00": 5}}'}, ["startingOffsets", "'00'", "not a partition's number"]),
        ({"startingOffsets": f'{{"orders": {{"{NINES}": 1}}}}'}, ["startingOffsets", "not a partition's number"]),
        ({"startingOffsets": f'{{"orders": {{"0": {NINES}}}}}'}, ["startingOffsets", "and so on", "too many digits"]),
        ({"startingOffsets": '{"orders": {"0": 9223372036854775808}}'}, ["9223372036854775808", "not an offset"]),
        ({"startingTimestamp": NINES}, ["startingTimestamp", "and so on", "a number from 0 to 9223372036854775807"]),
        ({"minPartitions": "9223372036854775808"}, ["minPartitions", "from 1 to 100000"]),
    ],
)
def test_a_refusal_names_the_option_and_what_is_wrong(changes: dict[str, str | None], words: list[str]) -> None:
    message = refusal(**changes)
    for word in words:
        assert word in message, message
    assert len(message) < 600


def test_a_table_of_spark_s_catalog_brings_no_options_and_is_told_apart() -> None:
    with pytest.raises(OptionError, match=r"bootstrap\.servers is missing.*use a temporary view"):
        parse_batch_options({})


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"endingOffsets": "latest"}, ["endingOffsets", "for a batch read", "a streaming read"]),
        ({"endingTimestamp": "1"}, ["endingTimestamp", "for a batch read"]),
        ({"topic": "t"}, ["topic ('t')", "for a write"]),
        ({"maxOffsetsPerTrigger": "0"}, ["maxOffsetsPerTrigger", "'0'"]),
        ({"minOffsetsPerTrigger": "3", "maxOffsetsPerTrigger": "2"}, ["minOffsetsPerTrigger (3)", "higher", "(2)"]),
        ({"maxTriggerDelay": "soon"}, ["maxTriggerDelay", "'soon'", "10s"]),
        ({"maxTriggerDelay": "3w"}, ["maxTriggerDelay", "'3w'"]),
        ({"groupId": ""}, ["groupId", "1 to 249"]),
    ],
)
def test_a_stream_has_options_of_its_own(changes: dict[str, str | None], words: list[str]) -> None:
    with pytest.raises(OptionError) as raised:
        stream(**changes)
    for word in words:
        assert word in str(raised.value)


def test_rates_of_a_stream_are_typed() -> None:
    query = stream(maxOffsetsPerTrigger="10", minOffsetsPerTrigger="2", maxTriggerDelay="10s", groupId="g")
    assert (query.max_offsets, query.min_offsets, query.max_delay_ms, query.group_id) == (10, 2, 10_000, "g")
    for text, expected_ms in {"250": 250, "250ms": 250, "15m": 900_000, "2 min": 120_000, "1H": 3_600_000}.items():
        assert stream(maxTriggerDelay=text).max_delay_ms == expected_ms
    assert stream(startingOffsets='{"orders": {"0": -1}}').read.starting.by_partition == {("orders", 0): LATEST}


def test_the_most_specific_of_three_options_says_where_to_begin_and_to_end() -> None:
    every = {
        "startingTimestamp": "5",
        "startingOffsetsByTimestamp": '{"orders": {"0": 6}}',
        "startingOffsets": "earliest",
        "endingTimestamp": "7",
        "endingOffsetsByTimestamp": '{"orders": {"0": 8}}',
        "endingOffsets": "latest",
    }
    options = parsed(**every)
    assert (options.read.starting.option, options.read.starting.everywhere) == ("startingTimestamp", 5)
    assert (options.ending.option, options.ending.everywhere) == ("endingTimestamp", 7)
    options = parsed(**every | {"startingTimestamp": None, "endingTimestamp": None})
    assert options.read.starting.by_partition == {("orders", 0): 6}
    assert options.ending.by_partition == {("orders", 0): 8}
    assert options.read.starting.by_time
    assert (options.read.starting.late_is_latest, options.ending.late_is_latest) == (False, True)
    assert parsed(startingTimestamp="0", startingOffsetsByTimestampStrategy="LATEST").read.starting.late_is_latest


def test_before_it_is_known_whether_a_read_streams_both_kinds_of_options_pass() -> None:
    read = parse_read_options(given({"maxOffsetsPerTrigger": "1", "includeHeaders": "true"}))
    assert read.include_headers
    assert parse_read_options(given({"endingOffsets": "latest", "startingOffsets": "latest"})).selection.subscribe
    with pytest.raises(OptionError, match="for a write"):
        parse_read_options(given({"topic": "t"}))


def test_options_that_can_only_be_meant_for_something_else_are_left_alone() -> None:
    assert parsed(mergeSchema="true") == parsed()

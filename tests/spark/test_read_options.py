"""Options of a read: what is taken, and what each refusal says."""

import pytest

from quorumlog.sdk.spark.errors import OptionError
from quorumlog.sdk.spark.options import EARLIEST, LATEST, ReadOptions, parse_read_options

BASE = {"quorumlog.bootstrap.servers": "127.0.0.1:19092", "subscribe": "orders"}


def parsed(**changes: str | None) -> ReadOptions:
    return parse_read_options({name: value for name, value in (BASE | changes).items() if value is not None})


def refusal(**changes: str | None) -> str:
    with pytest.raises(OptionError) as raised:
        parsed(**changes)
    assert "\n" not in str(raised.value)
    return str(raised.value)


def test_a_topic_and_an_address_are_enough() -> None:
    options = parsed()
    assert options.bootstrap_servers == "127.0.0.1:19092"
    assert options.selection.subscribe == ("orders",)
    assert (options.starting.everywhere, options.ending.everywhere) == (EARLIEST, LATEST)
    assert options.fail_on_data_loss
    assert not options.include_headers


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
    assert options.include_headers
    assert not options.fail_on_data_loss


def test_assign_and_pattern_and_numbers_are_typed() -> None:
    assert parsed(subscribe=None, assign='{"t": [2, 0, 2]}').selection.assign == {"t": (0, 2)}
    assert parsed(subscribe=None, subscribePattern="ord.*").selection.pattern == "ord.*"
    options = parsed(minPartitions="4", maxRecordsPerPartition="1000")
    assert (options.min_partitions, options.max_records_per_partition) == (4, 1000)


def test_offsets_in_json_keep_earliest_and_latest_apart_by_option() -> None:
    starting = parsed(startingOffsets='{"orders": {"0": 5, "1": -2}}').starting
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
        ({"subscribe": None, "assign": "[1]"}, ["assign", "no JSON object"]),
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
        ({"startingTimestamp": "17"}, ["startingTimestamp", "not supported yet"]),
        ({"maxOffsetsPerTrigger": "17"}, ["maxOffsetsPerTrigger", "not supported yet"]),
        ({"quorumlog.bootstrap.server": "a:1"}, ["quorumlog.bootstrap.server ", "mean quorumlog.bootstrap.servers"]),
        ({"quorumlog.zzz": "1"}, ["quorumlog.zzz", "quorumlog.bootstrap.servers"]),
        ({"startingOffset": "earliest"}, ["startingOffset", "did you mean startingOffsets"]),
        ({"kafka.security.protocol": "SSL"}, ["kafka.security.protocol", "no effect"]),
        ({"path": "orders"}, ["load", "subscribe"]),
    ],
)  # fmt: skip
def test_a_refusal_names_the_option_and_what_is_wrong(changes: dict[str, str | None], words: list[str]) -> None:
    message = refusal(**changes)
    for word in words:
        assert word in message, message


def test_options_that_can_only_be_meant_for_something_else_are_left_alone() -> None:
    assert parsed(mergeSchema="true") == parsed()

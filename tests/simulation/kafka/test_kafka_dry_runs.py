"""Changes that are only to be checked change nothing; the same requests without that do."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, replace
from typing import Any, NamedTuple

import pytest

from quorumlog.server.kafka.codec import config_requests, fetch_requests, topic_requests
from quorumlog.server.kafka.codec.administration import quota_requests
from quorumlog.server.kafka.codec.administration.quota_responses import DescribeClientQuotasResponse
from quorumlog.server.kafka.codec.apis import APIS
from quorumlog.server.kafka.codec.config_responses import DescribeConfigsResponse
from quorumlog.server.kafka.codec.fetch_responses import FetchResponse
from quorumlog.server.kafka.codec.primitives import KafkaMessage
from quorumlog.server.kafka.codec.topic_responses import CreateTopicsResponse
from quorumlog.server.kafka.handlers.dispatch import SERVED, served_versions
from quorumlog.server.kafka.handlers.error_codes import KafkaError
from quorumlog.wire.kafka.batch import parse_kafka_header
from tests.simulation.kafka.test_kafka_listed_topics import codes_in
from tests.simulation.kafka.test_kafka_mapping import WALL_MS, Rig, batch_of, creation

TOPIC_RESOURCE = 2


class Change(NamedTuple):
    """A change that can be checked without being made.

    Arguments:
        make: the request about a topic.
        state: what it changes.
    """

    make: Callable[[str], Any]
    state: Callable[[Rig, str], object]


def partitions(rig: Rig, topic: str) -> int:
    (described,) = rig.metadata(topic, node=1).topics
    return len(described.partitions)


def retention(rig: Rig, topic: str) -> str | None:
    resource = config_requests.DescribeConfigsResource(TOPIC_RESOURCE, topic, ["retention.ms"])
    request = config_requests.DescribeConfigsRequest([resource])
    return rig.ask(request, 4, DescribeConfigsResponse, 1).results[0].configs[0].value


def quotas(rig: Rig, topic: str) -> object:
    request = quota_requests.DescribeClientQuotasRequest([quota_requests.QuotaComponent("user", 0, topic)])
    entries = rig.ask(request, 1, DescribeClientQuotasResponse, 1).entries
    return [(value.key, value.value) for entry in entries or () for value in entry.values]


def replacement(topic: str) -> KafkaMessage:
    config = config_requests.AlterConfigsRequestAlterableConfig("retention.ms", "5000")
    resource = config_requests.AlterConfigsRequestAlterConfigsResource(TOPIC_RESOURCE, topic, [config])
    return config_requests.AlterConfigsRequest([resource])


def increment(topic: str) -> KafkaMessage:
    config = config_requests.IncrementalAlterConfigsRequestAlterableConfig("retention.ms", 0, "5000")
    resource = config_requests.IncrementalAlterConfigsRequestAlterConfigsResource(TOPIC_RESOURCE, topic, [config])
    return config_requests.IncrementalAlterConfigsRequest([resource])


def growth(topic: str) -> KafkaMessage:
    wanted = topic_requests.CreatePartitionsTopic(topic, 3, None)
    return topic_requests.CreatePartitionsRequest([wanted], 5_000)


def quota(topic: str) -> KafkaMessage:
    entity = [quota_requests.AlterClientQuotasRequestEntityData("user", topic)]
    ops = [quota_requests.QuotaOperation("producer_byte_rate", 5_000.0)]
    return quota_requests.AlterClientQuotasRequest([quota_requests.AlterClientQuotasRequestEntryData(entity, ops)])


#: Each API of the port whose requests have the flag.
CHANGES: dict[str, Change] = {
    "CreateTopics": Change(
        lambda topic: creation(topic_requests.CreatableTopic(f"{topic}-new", 1, 3)),
        lambda rig, topic: partitions(rig, f"{topic}-new"),
    ),
    "CreatePartitions": Change(growth, partitions),
    "AlterConfigs": Change(replacement, retention),
    "IncrementalAlterConfigs": Change(increment, retention),
    "AlterClientQuotas": Change(quota, quotas),
}


@pytest.fixture(scope="module")
def rig() -> Rig:
    return Rig()


def test_every_dry_run_is_in_the_table() -> None:
    kinds = {APIS[key].name: APIS[key].request for key in SERVED}
    assert {name for name, kind in kinds.items() if "validate_only" in {each.name for each in fields(kind)}} == set(
        CHANGES
    )


@pytest.mark.parametrize("name", CHANGES)
def test_dry_runs_change_nothing(rig: Rig, name: str) -> None:
    topic, change = f"dry-{name}", CHANGES[name]
    rig.create(topic)
    rig.run(0.5)
    before = change.state(rig, topic)
    message = change.make(topic)
    table, response = served_versions(), APIS[message.API_KEY].response
    for version in range(message.LOWEST, message.HIGHEST + 1):
        if table.find(message.API_KEY, version) is not None:
            checked = rig.ask(replace(message, validate_only=True), version, response, 1)
            assert set(codes_in(checked)) == {KafkaError.NONE}, checked
            rig.run(1)
            assert change.state(rig, topic) == before, version
    made = rig.ask(message, message.HIGHEST, response, 1)
    assert set(codes_in(made)) == {KafkaError.NONE}, made
    rig.until(lambda: change.state(rig, topic) != before, 10)


@pytest.mark.parametrize(("stamped_by", "is_told"), [("LogAppendTime", True), ("CreateTime", False)])
def test_producers_are_told_append_times(rig: Rig, stamped_by: str, is_told: bool) -> None:
    topic = f"stamped-by-{stamped_by}"
    configs = [topic_requests.CreatableTopicConfig("message.timestamp.type", stamped_by)]
    wanted = creation(topic_requests.CreatableTopic(topic, 1, 3, configs=configs))
    assert rig.ask(wanted, 7, CreateTopicsResponse).topics[0].error_code == KafkaError.NONE
    rig.until(lambda: rig.topic_leader(topic) is not None, 20)
    rig.run(0.5)
    leader = rig.topic_leader(topic)
    batch = batch_of(b"key", time_ms=WALL_MS - 5_000)
    produced = rig.produce(batch, topic, node=leader)
    assert produced.error_code == KafkaError.NONE
    partition = fetch_requests.FetchPartition(0, -1, 0, partition_max_bytes=1 << 20)
    request = fetch_requests.FetchRequest(
        max_wait_ms=0, topics=[fetch_requests.FetchTopic(topic, partitions=[partition])]
    )
    (fetched,) = rig.ask(request, 12, FetchResponse, leader).responses[0].partitions
    header = parse_kafka_header(bytes(fetched.records or b""))
    assert header.max_timestamp_ms == (produced.log_append_time_ms if is_told else WALL_MS - 5_000)
    assert (produced.log_append_time_ms > WALL_MS - 5_000) is is_told
    assert is_told or produced.log_append_time_ms == -1

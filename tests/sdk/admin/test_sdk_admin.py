"""The admin client against a scripted cluster, and what all clients share: configuration, errors, forks."""

from __future__ import annotations

import asyncio
import dataclasses
import os
import pickle
import subprocess
import sys
import time
import typing
from collections.abc import Callable
from typing import Any

import pytest
from scripted_cluster import TOPIC_ID, Code, ScriptedCluster, error

import quorumlog.sdk
from quorumlog.sdk import (
    Admin,
    Consumer,
    IllegalArgumentError,
    InvalidReplicationFactorError,
    NewTopic,
    NoBrokersAvailableError,
    Producer,
    ProducerNameNotFoundError,
    RequestTimedOutError,
    TopicAlreadyExistsError,
    TopicPartition,
    UnknownTopicOrPartitionError,
    errors,
)
from quorumlog.sdk.admin.config import AdminConfig, AdminOptions
from quorumlog.sdk.aio import AsyncAdmin
from quorumlog.sdk.configuration import build_config
from quorumlog.sdk.consumer.config import ConsumerConfig, ConsumerOptions
from quorumlog.sdk.producer.config import ProducerConfig, ProducerOptions
from quorumlog.v1 import admin_pb2, errors_pb2


async def test_topics_are_created_and_described(three_nodes: ScriptedCluster) -> None:
    async with AsyncAdmin(bootstrap_servers=three_nodes.bootstrap_servers) as admin:
        await admin.create_topics(
            [NewTopic("t", num_partitions=1, replication_factor=3, topic_configs={"retention.ms": 1})]
        )
        assert await admin.list_topics() == ["t"]
        (topic,) = await admin.describe_topics(["t"])
        assert (topic.name, topic.topic_id, topic.partitions[0].leader) == ("t", TOPIC_ID.hex(), 1)
        described = await admin.describe_cluster()
        assert [broker.node_id for broker in described.brokers] == [1, 2, 3]
        with pytest.raises(UnknownTopicOrPartitionError, match="topic 'nope' does not exist: create it first"):
            await admin.describe_topics(["nope"])


async def test_a_node_that_is_behind_does_not_turn_back_what_was_described(three_nodes: ScriptedCluster) -> None:
    three_nodes.elect(0, leader=3)
    async with AsyncAdmin(bootstrap_servers=three_nodes.bootstrap_servers) as admin:
        assert (await admin.describe_topics(["t"]))[0].partitions[0].leader == 3
        three_nodes.shown_leaders = [(1, 1)]
        assert (await admin.describe_topics())[0].partitions[0].leader == 3
        three_nodes.shown_leaders = [(2, 3)]
        assert (await admin.describe_topics())[0].partitions[0].leader == 2


async def test_configs_of_new_topic(three_nodes: ScriptedCluster) -> None:
    """A node that has not applied the creation of a topic does not end the call: another node may have listed it."""
    behind = {1, 2}

    def describe(node_id: int, request: admin_pb2.DescribeConfigsRequest) -> admin_pb2.DescribeConfigsResponse:
        answer = admin_pb2.DescribeConfigsResponse()
        result = answer.results.add(name=request.names[0])
        if node_id in behind or request.names[0] == "nope":
            result.error.CopyFrom(error(Code.UNKNOWN_TOPIC_OR_PARTITION, retriable=False))
        else:
            result.entries.add(name="retention.ms", value="1")
        behind.discard(node_id)
        return answer

    three_nodes.on_describe_configs = describe
    async with AsyncAdmin(bootstrap_servers=three_nodes.bootstrap_servers) as admin:
        for _ in range(3):
            assert (await admin.describe_configs(["t"]))["t"]["retention.ms"].value == "1"
        assert not behind
        with pytest.raises(UnknownTopicOrPartitionError):
            await admin.describe_configs(["nope"])


async def test_a_refused_topic_is_an_error_and_a_passing_refusal_is_tried_again(cluster: ScriptedCluster) -> None:
    count = 0

    async def create(request: admin_pb2.CreateTopicsRequest) -> admin_pb2.CreateTopicsResponse:
        nonlocal count
        count += 1
        answer = admin_pb2.CreateTopicsResponse()
        for topic in request.topics:
            result = answer.results.add(name=topic.name)
            if topic.replication_factor == 2:
                result.error.CopyFrom(error(Code.INVALID_REPLICATION_FACTOR, retriable=False))
            elif count < 3:
                result.error.CopyFrom(error(Code.NOT_CONTROLLER))
        return answer

    cluster.on_create = create
    async with AsyncAdmin(bootstrap_servers=cluster.bootstrap_servers) as admin:
        await admin.create_topics([NewTopic("t", 1, 1)])
        assert count == 3
        with pytest.raises(InvalidReplicationFactorError):
            await admin.create_topics([NewTopic("t", 1, 2)])
        assert count == 4


@pytest.mark.parametrize("sure", [True, False])
async def test_a_topic_that_exists_is_an_error_unless_our_own_first_attempt_may_have_made_it(
    cluster: ScriptedCluster, sure: bool
) -> None:
    count = 0

    async def create(request: admin_pb2.CreateTopicsRequest) -> admin_pb2.CreateTopicsResponse:
        nonlocal count
        count += 1
        code = Code.TOPIC_ALREADY_EXISTS if sure or count > 1 else Code.REQUEST_TIMED_OUT
        answer = admin_pb2.CreateTopicsResponse()
        answer.results.add(name="t").error.CopyFrom(error(code, retriable=count == 1 and not sure, definite=sure))
        return answer

    cluster.on_create = create
    async with AsyncAdmin(bootstrap_servers=cluster.bootstrap_servers) as admin:
        if sure:
            with pytest.raises(TopicAlreadyExistsError):
                await admin.create_topics([NewTopic("t", 1, 1)])
        else:
            await admin.create_topics([NewTopic("t", 1, 1)])


@pytest.mark.parametrize("sure", [True, False])
async def test_a_producer_name_that_is_gone_is_an_error_unless_our_own_first_attempt_may_have_deleted_it(
    cluster: ScriptedCluster, sure: bool
) -> None:
    requests: list[list[str]] = []

    def delete(request: admin_pb2.DeleteProducersRequest) -> admin_pb2.DeleteProducersResponse:
        requests.append(list(request.names))
        answer = admin_pb2.DeleteProducersResponse()
        for name in request.names:
            failed = answer.results.add(name=name).error
            if name == "sent":
                code = Code.PRODUCER_NAME_NOT_FOUND if sure or len(requests) > 1 else Code.REQUEST_TIMED_OUT
                failed.CopyFrom(error(code, retriable=len(requests) == 1 and not sure, definite=sure))
            else:
                answer.results[-1].ClearField("error")
        return answer

    cluster.on_delete_producers = delete
    async with AsyncAdmin(bootstrap_servers=cluster.bootstrap_servers) as admin:
        if sure:
            with pytest.raises(ProducerNameNotFoundError):
                await admin.delete_producers(["other", "sent"])
        else:
            await admin.delete_producers(["other", "sent"])
            assert requests == [["other", "sent"], ["sent"]]


async def test_what_a_node_says_itself_is_passed_on_and_named_when_time_is_over(cluster: ScriptedCluster) -> None:
    async def no_majority(request: admin_pb2.CreateTopicsRequest) -> admin_pb2.CreateTopicsResponse:
        answer = admin_pb2.CreateTopicsResponse()
        answer.results.add(name="t").error.CopyFrom(error(Code.REQUEST_TIMED_OUT, definite=False))
        return answer

    cluster.on_create = no_majority
    async with AsyncAdmin(bootstrap_servers=cluster.bootstrap_servers, request_timeout_ms=2_000) as admin:
        with pytest.raises(RequestTimedOutError, match="request_timed_out"):
            await admin.create_topics([NewTopic("t", 1, 1)])


async def test_a_silent_node_is_not_waited_for_when_others_answer(
    three_nodes: ScriptedCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def silent_one(node_id: int) -> None:
        if node_id != 3:
            await asyncio.sleep(120)

    monkeypatch.setattr("quorumlog.sdk.cluster.cluster._ATTEMPT_TIMEOUT_S", 60.0)
    three_nodes.on_metadata = silent_one
    async with AsyncAdmin(bootstrap_servers=three_nodes.bootstrap_servers, request_timeout_ms=60_000) as admin:
        begun = time.monotonic()
        await admin.list_topics()
        assert time.monotonic() - begun < 30, "half of what a node is given for its answer"


def test_a_wrong_address_is_one_line_within_bounded_time() -> None:
    begun = time.monotonic()
    with (
        Admin(bootstrap_servers="127.0.0.1:1,127.0.0.1:2", bootstrap_timeout_ms=500) as admin,
        pytest.raises(
            NoBrokersAvailableError, match=r"no quorumlog node answered at 127\.0\.0\.1:1, 127\.0\.0\.1:2"
        ) as reported,
    ):
        admin.list_topics()
    assert "\n" not in str(reported.value)
    assert time.monotonic() - begun < 20


@pytest.mark.parametrize(
    ("options", "config"),
    [(ProducerOptions, ProducerConfig), (ConsumerOptions, ConsumerConfig), (AdminOptions, AdminConfig)],
)
def test_every_option_is_documented_typed_and_has_a_default(options: type, config: type) -> None:
    names = [field.name for field in dataclasses.fields(config)]
    assert list(options.__annotations__) == names
    assert typing.get_type_hints(options) == {name: typing.get_type_hints(config)[name] for name in names}


@pytest.mark.parametrize("config", [ProducerConfig, ConsumerConfig, AdminConfig])
def test_shared_options_are_checked(config: type) -> None:
    """Each client checks the security options, which it inherits, and suggests their names."""
    with pytest.raises(IllegalArgumentError, match="ssl_ca_location is given, but security_protocol is not SSL"):
        build_config(config, {"ssl_ca_location": "ca.crt"})
    with pytest.raises(IllegalArgumentError, match="did you mean 'ssl_ca_location'"):
        build_config(config, {"ssl_ca_locatoin": "ca.crt"})
    with pytest.raises(IllegalArgumentError, match="known: bootstrap_servers, security_protocol, ssl_ca_location"):
        build_config(config, {"zzz": 1})


@pytest.mark.parametrize(
    ("wrong", "line"),
    [
        ({"lingerms": 1}, "there is no configuration 'lingerms': did you mean 'linger_ms'"),
        ({"acks": 2}, "acks is 2: choose 0, 1 or 'all'"),
        ({"acks": 1, "enable_idempotence": True}, "enable_idempotence needs acks='all', not 1"),
        ({"compression_type": "gzip"}, "compression_type is 'gzip': choose one of none, lz4, zstd"),
        ({"batch_size": "16k"}, "batch_size is '16k': it must be a number from 0"),
        ({"max_in_flight": 6}, "max_in_flight is 6: it must be a number from 1 to 5"),
        ({"buffer_memory": 1000}, "buffer_memory is 1000"),
        ({"partitioner": "murmur"}, "partitioner is 'murmur'"),
        ({"bootstrap_servers": "localhost:port"}, "'localhost:port', which is not host:port"),
        ({"bootstrap_servers": []}, "bootstrap_servers is empty"),
    ],
)
def test_a_wrong_producer_configuration_is_one_line(wrong: dict[str, object], line: str) -> None:
    with pytest.raises(IllegalArgumentError, match=line):
        Producer(**wrong)  # type: ignore[arg-type]


def test_every_error_code_has_a_class_and_keeps_the_servers_word() -> None:
    internal = {
        "NONE",
        "STALE_BROKER_EPOCH",
        "DUPLICATE_BROKER_REGISTRATION",
        "INCONSISTENT_CLUSTER_ID",
        "INVALID_UPDATE_VERSION",
        "INELIGIBLE_REPLICA",
    }
    for name, code in errors_pb2.ErrorCode.items():
        made = errors.error_from_proto(errors_pb2.Error(code=code, message="why", retriable=True, definite=False))
        assert (made.message, made.retriable, made.definite) == ("why", True, False)
        if name not in internal:
            assert (type(made) is errors.UnknownServerError) == (name == "UNKNOWN_SERVER_ERROR"), name
    assert not made.as_indefinite().definite


def test_the_packages_names_are_all_there_and_loading_it_starts_nothing() -> None:
    for name in quorumlog.sdk.__all__:
        assert getattr(quorumlog.sdk, name) is not None
    loaded = "print('pyarrow' in sys.modules, threading.active_count())"
    source = f"import sys, threading; from quorumlog.sdk import Admin; {loaded}"
    assert subprocess.check_output([sys.executable, "-c", source], text=True).split() == ["False", "1"]


@pytest.mark.parametrize(
    ("kind", "call"),
    [
        (Producer, lambda client: client.send("t", b"v")),
        (Consumer, lambda client: client.end_offsets([TopicPartition("t", 0)])),
        (Admin, lambda client: client.list_topics()),
    ],
)
def test_after_a_fork_a_client_refuses_to_work_and_closing_it_does_not_hang(
    kind: type, call: Callable[[Any], object]
) -> None:
    client = kind(bootstrap_servers="127.0.0.1:1")
    receiving, sending = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            call(client)
            reported = ("", "")
        except Exception as raised:
            reported = (type(raised).__name__, str(raised))
        client.close()
        os.write(sending, pickle.dumps(reported))
        os._exit(0)
    os.close(sending)
    with os.fdopen(receiving, "rb") as pipe:
        name, line = pickle.loads(pipe.read())
    os.waitpid(child, 0)
    assert name == "ForkedClientError"
    assert f"this {kind.__name__} was made before the process forked" in line
    client.close()

"""A user's first hour with the clients: errors, options, help, names from Kafka, lines in the log."""

from __future__ import annotations

import asyncio
import inspect
import logging
import pydoc
import re
import traceback
from typing import Any

import pytest
from own_lines import own_lines
from scripted_cluster import ScriptedCluster

from quorumlog.sdk import Admin, Consumer, Producer, TopicPartition
from quorumlog.sdk.aio import AsyncAdmin, AsyncConsumer, AsyncProducer
from quorumlog.sdk.cluster.cluster import parse_bootstrap_servers
from quorumlog.sdk.cluster.offset_search import extent
from quorumlog.sdk.cluster.outage_log import Outage, OutageLog
from quorumlog.sdk.errors import (
    FencedLeaderEpochError,
    IllegalArgumentError,
    NetworkError,
    NotLeaderForPartitionError,
    OutOfOrderSequenceNumberError,
    QuorumlogError,
    UnknownTopicOrPartitionError,
)
from quorumlog.sdk.producer.delivery import Delivery, RecordFuture
from quorumlog.sdk.runtime.security import SECURITY_OPTIONS, SecurityOptions

ASYNCIO_CLIENTS = ((AsyncAdmin, Admin), (AsyncConsumer, Consumer), (AsyncProducer, Producer))


async def test_a_traceback_has_the_callers_code_and_that_of_the_attempt_and_no_retries(
    cluster: ScriptedCluster,
) -> None:
    async with AsyncProducer(bootstrap_servers=cluster.bootstrap_servers) as producer:
        with pytest.raises(UnknownTopicOrPartitionError) as caught:
            await producer.send("nope", b"v")
    frames = traceback.extract_tb(caught.value.__traceback__)
    assert [frame.filename for frame in frames if "/sdk/" not in frame.filename] == []
    assert frames[0].filename == __file__
    assert frames[-1].name == "attempt"
    assert len(frames) < 10
    assert caught.value.__context__ is None


@pytest.mark.parametrize(
    ("servers", "advice"),
    [
        ("http://127.0.0.1:19092", "leave http:// out"),
        ("kafka://a:1,b:2", "leave kafka:// out"),
        ("a:1 b:2", "separate several by commas"),
        ("a:1;b:2", "separate several by commas"),
        ("::1:19092", "put brackets around"),
        ("user@host:1", "not host:port"),
        ("host/path:1", "not host:port"),
        ("localhost", "not host:port"),
        (":19092", "not host:port"),
    ],
)
def test_what_cannot_be_an_address_is_refused_at_once_with_what_to_write(servers: str, advice: str) -> None:
    with pytest.raises(IllegalArgumentError, match=r"bootstrap_servers has '.*', which is not host:port") as refusal:
        Producer(bootstrap_servers=servers)
    assert advice in refusal.value.message


def test_addresses_of_every_kind_are_taken() -> None:
    for servers in ("localhost:1", "127.0.0.1:19092", "[::1]:19092", "[fe80::1%eth0]:1", "node_1.example.org:65535"):
        assert parse_bootstrap_servers(servers) == (servers,)


@pytest.mark.parametrize(
    "headers", [[("a", b"b"), ("n", None)], [("a", "b"), ("n", None)], {"a": b"b", "n": None}, {"a": "b", "n": None}]
)
async def test_headers_are_taken_as_the_clients_of_kafka_take_them(cluster: ScriptedCluster, headers: Any) -> None:
    async with AsyncProducer(bootstrap_servers=cluster.bootstrap_servers) as producer:
        await (await producer.send("t", b"v", headers=headers))
    async with AsyncConsumer("t", bootstrap_servers=cluster.bootstrap_servers) as consumer:
        record = await anext(aiter(consumer))
    assert list(record.headers) == [("a", b"b"), ("n", None)]


@pytest.mark.parametrize(
    ("option", "advice"),
    [
        ("retries", "delivery_timeout_ms"),
        ("max_in_flight_requests_per_connection", "max_in_flight"),
        ("api_version", "leave it out"),
        ("bootstrap.servers", "did you mean 'bootstrap_servers'"),
        ("linger", "did you mean 'linger_ms'"),
    ],
)
def test_an_option_that_only_kafkas_clients_have_is_answered_with_what_to_do(option: str, advice: str) -> None:
    with pytest.raises(IllegalArgumentError, match=f"no configuration '{option}'") as refusal:
        Producer(**{option: 3})  # type: ignore[arg-type]
    assert advice in refusal.value.message


@pytest.mark.parametrize("client", [Admin, Consumer, Producer])
def test_help_explains_every_option(client: type) -> None:
    """Each has a line with its default; those that all clients share have it in ``SecurityOptions``."""
    shown = pydoc.plain(pydoc.render_doc(client))
    _, _, explained = shown.partition("The options, with their defaults.")
    shared = pydoc.plain(pydoc.render_doc(SecurityOptions))
    assert "milliseconds" in explained and "SecurityOptions" in explained
    for name, option in inspect.signature(client).parameters.items():
        if option.kind is option.KEYWORD_ONLY:
            line = re.compile(rf"^ [ |]*(\w+=[^\s,]+, )*{name}={re.escape(repr(option.default))}[:,]", re.MULTILINE)
            assert line.search(shared if name in SECURITY_OPTIONS else explained), name


@pytest.mark.parametrize(
    ("client", "other"), [(AsyncAdmin, Admin), (AsyncConsumer, Consumer), (AsyncProducer, Producer)]
)
def test_asyncio_clients_have_the_same_options(client: type, other: type) -> None:
    """Their help refers to the other client."""
    assert f"quorumlog.sdk.{other.__name__}" in (client.__doc__ or "")
    shared = {name: each for name, each in inspect.signature(client).parameters.items() if name != "runtime"}
    assert shared == dict(inspect.signature(other).parameters)
    assert "linger_ms" in shared or client is not AsyncProducer


def test_every_method_of_admin_is_explained() -> None:
    """Admin explains them; AsyncAdmin may refer to it."""
    for name, method in inspect.getmembers(Admin, inspect.isfunction):
        if not name.startswith("_"):
            assert "AsyncAdmin" not in (method.__doc__ or ""), name
            assert (method.__doc__ or "").strip(), name
            assert (getattr(AsyncAdmin, name).__doc__ or "").strip(), name
    assert "Raises:" in (Admin.create_topics.__doc__ or "")
    for name in re.findall(r"quorumlog\.sdk\.Admin\.(\w+)", pydoc.plain(pydoc.render_doc(AsyncAdmin))):
        assert hasattr(Admin, name)


def test_clients_say_where_they_are_connected_to() -> None:
    with Producer(bootstrap_servers="a:1,b:2") as producer:
        assert repr(producer) == "<Producer of a:1,b:2>"
    assert repr(producer) == "<Producer of a:1,b:2, closed>"
    with Consumer(bootstrap_servers=["a:1", "b:2"], group_id="g") as consumer:
        assert repr(consumer) == "<Consumer of a:1,b:2, group 'g'>"
    with Admin(bootstrap_servers="a:1") as admin:
        assert repr(admin) == "<Admin of a:1>"


async def test_the_futures_of_kafka_python_are_known(cluster: ScriptedCluster) -> None:
    reported: list[Any] = []
    async with AsyncProducer(bootstrap_servers=cluster.bootstrap_servers) as producer:
        good = await producer.send("t", b"v")
        assert good.add_callback(reported.append).add_errback(reported.append) is good
        metadata = await good
        assert (good.succeeded(), good.failed(), good.get()) == (True, False, metadata)
        assert await producer.partitions_for("t") == {0}
        assert reported == [metadata]
    lost = Delivery("t", 0, loop_thread=0)
    RecordFuture(lost, 0).add_callback(reported.append).add_errback(reported.append)
    lost.resolve(NetworkError("gone"))
    assert [repr(error) for error in reported[1:]] == [repr(lost.error)]
    assert (RecordFuture(lost, 0).succeeded(), RecordFuture(lost, 0).failed()) == (False, True)


def test_what_a_log_has_is_said_in_offsets_that_are_there() -> None:
    assert extent(0, 8) == "the log has 0 to 7, and 8 comes next"
    assert extent(5, 5) == "the log is empty at 5"
    assert extent(40, -1) == "the log starts at 40"


async def test_a_reset_is_in_the_log(cluster: ScriptedCluster, caplog: pytest.LogCaptureFixture) -> None:
    tp = TopicPartition("t", 0)
    async with AsyncProducer(bootstrap_servers=cluster.bootstrap_servers) as producer:
        await (await producer.send("t", b"v"))
    async with AsyncConsumer(bootstrap_servers=cluster.bootstrap_servers) as consumer:
        await consumer.assign([tp])
        await consumer.seek(tp, 99)
        async with asyncio.timeout(30):
            assert (await anext(aiter(consumer))).offset == 0
    assert "offset 99 of t-0 is out of range: the log has 0 to 0, and 1 comes next" in caplog.text
    assert "reading continues at the earliest" in caplog.text


async def test_a_new_leader_is_in_the_log(three_nodes: ScriptedCluster, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "quorumlog.sdk")
    async with AsyncProducer(bootstrap_servers=three_nodes.bootstrap_servers) as producer:
        await (await producer.send("t", b"v"))
        assert "leads t-0" not in caplog.text
        three_nodes.logs[0].leader, three_nodes.logs[0].leader_epoch = 2, 9
        await (await producer.send("t", b"v"))
    assert "node 2 leads t-0 now, in epoch 9" in caplog.text


def test_an_outage_is_told_once_it_lasts_seldom_and_when_it_is_over(caplog: pytest.LogCaptureFixture) -> None:
    outages, down = OutageLog("fetching from"), NetworkError("no connection to a:1")
    a, b = TopicPartition("t", 0), TopicPartition("t", 1)
    for second in range(40):
        outages.failed(a, down, second)
        outages.failed(b, down, second)
    assert own_lines(caplog) == [
        "fetching from t-0 and 1 more has failed for 5 s; still trying: no connection to a:1",
        "fetching from t-0 and 1 more has failed for 35 s; still trying: no connection to a:1",
    ]
    caplog.clear()
    outages.served(b, 40)
    outages.served(a, 40)
    outages.served(a, 41)
    assert own_lines(caplog) == ["fetching from t-0 works again, after 40 s"]


def test_a_coordinator_that_is_not_reached_is_told_of_once_that_lasts(caplog: pytest.LogCaptureFixture) -> None:
    outage, down = Outage("reaching the coordinator of consumer group g"), NetworkError("no connection to a:1")
    for second in range(40):
        outage.failed(down, second)
    outage.succeeded(40)
    outage.succeeded(41)
    for second in range(100, 104):
        outage.failed(down, second)
    outage.succeeded(104)
    assert own_lines(caplog) == [
        "reaching the coordinator of consumer group g has failed for 5 s; still trying: no connection to a:1",
        "reaching the coordinator of consumer group g has failed for 35 s; still trying: no connection to a:1",
        "reaching the coordinator of consumer group g works again, after 40 s",
    ]


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (OutOfOrderSequenceNumberError("producer 1 sent sequence 771; 768 comes next"), "the nodes are overloaded"),
        (NotLeaderForPartitionError("ask for metadata"), "the leader of the partition keeps changing"),
        (FencedLeaderEpochError("epoch 7 is not 8"), "the leader of the partition keeps changing"),
    ],
)
def test_warnings_give_usable_reasons(caplog: pytest.LogCaptureFixture, error: QuorumlogError, words: str) -> None:
    """No numbers of the protocol, and what to look at."""
    outages, outage = OutageLog("sending to"), Outage("reaching a")
    for second in range(10):
        outages.failed(TopicPartition("t", 0), error, second)
        outage.failed(error, second)
    lines = own_lines(caplog)
    assert len(lines) == 2
    for line in lines:
        assert words in line
        assert "quorumlog cluster health" in line
        assert error.message not in line


def test_a_change_of_leader_is_no_outage(caplog: pytest.LogCaptureFixture) -> None:
    outages = OutageLog("sending to")
    for second in range(0, 1000, 40):
        outages.failed(TopicPartition("t", 0), NetworkError("gone"), second)
        outages.served(TopicPartition("t", 0), second + 1)
    assert own_lines(caplog) == []

"""A client that one thread closes at any moment of what another one does with it: that one gets an error, no other.

Moments are steps of the clients' loop, on which the nodes run here too.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import threading
import warnings
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import pytest
from scripted_cluster import ScriptedCluster
from scripted_members import ScriptedMembers
from scripted_reading import fill
from test_closing_at_any_moment import EVERY, LIMIT_S, left_over

from quorumlog.sdk import Admin, ClientClosedError, Consumer, Producer, TopicPartition
from quorumlog.sdk.consumer.assignment import ReadOffsets
from quorumlog.sdk.runtime.event_loop import BackgroundLoop

pytestmark = pytest.mark.filterwarnings("error")

MOMENTS = range(EVERY) if EVERY else [*range(4), 8, 12, 20, 40]


class Use(NamedTuple):
    """A client, and what its application does with it until it is closed."""

    make: Callable[..., Any]
    options: dict[str, Any]
    work: Callable[[Any], None]


def send(producer: Producer) -> None:
    while True:
        producer.send("t", b"value", key=b"key").result(LIMIT_S)


def send_too_much(producer: Producer) -> None:
    while True:
        producer.send("t", bytes(500_000))


def poll(consumer: Consumer) -> None:
    while True:
        consumer.poll(60_000)


def commit(consumer: Consumer) -> None:
    for _ in consumer:
        consumer.commit_async().result(LIMIT_S)


def look_up(consumer: Consumer) -> None:
    while True:
        consumer.assign([TopicPartition("t", 0)])
        consumer.position(TopicPartition("t", 0))
        consumer.end_offsets([TopicPartition("t", 1)])


def administer(admin: Admin) -> None:
    while True:
        admin.describe_topics(["t"])


def reading(**options: Any) -> Consumer:
    return Consumer("t", **options)


USES = {
    "a producer": Use(Producer, {}, send),
    "a full producer": Use(Producer, {"buffer_memory": 2_000_000}, send_too_much),
    "a consumer": Use(reading, {"max_poll_records": 1}, poll),
    "a member": Use(reading, {"group_id": "g", "auto_commit_interval_ms": 1, "max_poll_records": 1}, poll),
    "a member that commits": Use(reading, {"group_id": "g", "enable_auto_commit": False}, commit),
    "look-ups": Use(Consumer, {}, look_up),
    "an administrator": Use(Admin, {}, administer),
}


class Working(threading.Thread):
    """An application, until it fails."""

    def __init__(self, use: Use, client: Any) -> None:
        super().__init__(daemon=True)
        self._use = use
        self._client = client
        self.error: Exception | None = None

    def run(self) -> None:
        try:
            self._use.work(self._client)
        except Exception as error:
            self.error = error


@pytest.fixture(autouse=True)
def without_rests() -> None:
    """Garbage of earlier tests is collected before: its warnings are not errors of these."""
    with warnings.catch_warnings(action="ignore"):
        gc.collect()


@pytest.fixture
def loop() -> BackgroundLoop:
    return BackgroundLoop("Test")


@pytest.fixture
def cluster(loop: BackgroundLoop) -> Iterator[ScriptedCluster]:
    """Two nodes that lead one partition of ``t`` each; node 1 coordinates groups."""

    async def start() -> ScriptedCluster:
        made = ScriptedCluster(nodes=2, partitions=2)
        ScriptedMembers(made)
        await made.start()
        for partition in range(2):
            fill(made, 20, partition=partition)
        return made

    made = loop.run(start(), LIMIT_S)
    yield made
    loop.run(made.stop(), LIMIT_S)


async def steps(count: int) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


async def tasks() -> set[asyncio.Task[Any]]:
    return asyncio.all_tasks()


async def end_of_rest(before: set[asyncio.Task[Any]]) -> set[asyncio.Task[Any]]:
    """Waits for what clients have left on the loop; returns what does not end."""
    left = set(left_over(before))
    return (await asyncio.wait(left, timeout=LIMIT_S))[1] if left else left


class SlowToClose(Consumer):
    """Stops between the end of its membership and that of its connections."""

    def __init__(self, **options: Any) -> None:
        super().__init__("t", **options)
        self.has_given_up, self.go_on = threading.Event(), threading.Event()

    def _give_up(self, done: ReadOffsets, limit_s: float) -> None:
        super()._give_up(done, limit_s)
        self.has_given_up.set()
        assert self.go_on.wait(LIMIT_S)


def test_a_commit_behind_the_farewell_to_the_group_hears_that_the_consumer_is_closed(cluster: ScriptedCluster) -> None:
    """It does not report its partitions as lost to others: no member has taken them."""
    consumer = SlowToClose(bootstrap_servers=cluster.bootstrap_servers, group_id="g", enable_auto_commit=False)
    consumer.poll(int(LIMIT_S * 1000))
    closing = threading.Thread(target=consumer.close, daemon=True)
    closing.start()
    assert consumer.has_given_up.wait(LIMIT_S)
    late = consumer.commit_async({TopicPartition("t", 0): 1})
    with pytest.raises(ClientClosedError):
        late.result(LIMIT_S)
    consumer.go_on.set()
    closing.join(LIMIT_S)


@pytest.mark.parametrize("name", USES)
def test_a_close_at_any_moment_from_another_thread(
    loop: BackgroundLoop, cluster: ScriptedCluster, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    use = USES[name]
    for moment in MOMENTS:
        before = loop.run(tasks())
        options = use.options | ({"group_id": f"g{moment}"} if "group_id" in use.options else {})
        client = use.make(bootstrap_servers=cluster.bootstrap_servers, **options)
        working = Working(use, client)
        closing = threading.Thread(target=client.close, daemon=True)
        working.start()
        loop.run(steps(moment), LIMIT_S)
        closing.start()
        closing.join(LIMIT_S)
        assert not closing.is_alive(), f"after {moment} steps the close hangs"
        working.join(LIMIT_S)
        assert not working.is_alive(), f"after {moment} steps the application hangs"
        assert isinstance(working.error, ClientClosedError), f"after {moment} steps: {working.error!r}"
        assert loop.run(end_of_rest(before), 2 * LIMIT_S) == set(), f"after {moment} steps"
        said = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
        assert said == [], f"after {moment} steps"

"""Consumer groups against a real cluster of three node processes: what users rely on, end to end."""

from __future__ import annotations

import itertools
import re
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from quorumlog.local import LocalCluster
from quorumlog.sdk import (
    Admin,
    CommitFailedError,
    Consumer,
    ConsumerRebalanceListener,
    InvalidRegularExpressionError,
    NewTopic,
    OffsetAndMetadata,
    Producer,
    TopicPartition,
    UnreleasedInstanceIdError,
)
from quorumlog.sdk.aio import AsyncConsumer

pytestmark = [pytest.mark.alone, pytest.mark.cluster]
_numbers = itertools.count()
SHORT = {"session_timeout_ms": 2000, "heartbeat_interval_ms": 300}


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    with LocalCluster(nodes=3) as made:
        yield made


@pytest.fixture(scope="module")
def producer(cluster: LocalCluster) -> Iterator[Producer]:
    with Producer(bootstrap_servers=cluster.bootstrap_servers, linger_ms=0) as made:
        yield made


@pytest.fixture(scope="module")
def admin(cluster: LocalCluster) -> Iterator[Admin]:
    with Admin(bootstrap_servers=cluster.bootstrap_servers) as made:
        yield made


@pytest.fixture
def make(cluster: LocalCluster) -> Iterator[Callable[..., Consumer]]:
    """Makes consumers; closes them all."""
    with ExitStack() as stack:

        def consumer(*topics: str, **options: Any) -> Consumer:
            made = Consumer(*topics, bootstrap_servers=cluster.bootstrap_servers, **options)
            stack.callback(made.close)
            return made

        yield consumer


def new_topic(admin: Admin, partitions: int, name: str = "") -> str:
    name = name or f"shared-{next(_numbers)}"
    admin.create_topics([NewTopic(name, partitions, 3)])
    return name


def fill(producer: Producer, topic: str, partitions: int, count: int, start: int = 0) -> None:
    """Writes ``start`` to ``start + count - 1`` into each partition."""
    for number in range(start, start + count):
        for partition in range(partitions):
            producer.send(topic, value=b"%d" % number, partition=partition)
    producer.flush()


class Seen:
    """Consumers polled in turn, and what they have returned."""

    def __init__(self, *consumers: Consumer) -> None:
        self.consumers = list(consumers)
        self.records: Counter[tuple[int, int]] = Counter()

    def poll(self, timeout_ms: int = 20) -> None:
        for consumer in self.consumers:
            for tp, records in consumer.poll(timeout_ms=timeout_ms).items():
                self.records.update((tp.partition, record.offset) for record in records)

    def until(self, reached: Callable[[], bool], limit_s: float = 60) -> float:
        """Polls until it is so; how long it took."""
        began = time.monotonic()
        while not reached():
            assert time.monotonic() < began + limit_s, (
                [sorted(one.assignment()) for one in self.consumers],
                sum(self.records.values()),
            )
            self.poll()
        return time.monotonic() - began

    def until_split(self, *counts: int) -> float:
        """Polls until the consumers have so many partitions each."""
        return self.until(lambda: tuple(len(one.assignment()) for one in self.consumers) == counts)


class Notes(ConsumerRebalanceListener):
    """Records its calls."""

    def __init__(self, name: str, told: list[tuple[str, str, set[int]]]) -> None:
        self.name = name
        self.told = told

    def on_partitions_revoked(self, revoked: set[TopicPartition]) -> None:
        self.told.append((self.name, "revoked", {tp.partition for tp in revoked}))

    def on_partitions_assigned(self, assigned: set[TopicPartition]) -> None:
        self.told.append((self.name, "assigned", {tp.partition for tp in assigned}))

    def on_partitions_lost(self, lost: set[TopicPartition]) -> None:
        self.told.append((self.name, "lost", {tp.partition for tp in lost}))


def test_members_share_and_hand_over_without_a_record_twice_or_skipped(
    admin: Admin, producer: Producer, make: Callable[..., Consumer]
) -> None:
    topic = new_topic(admin, 4)
    fill(producer, topic, 4, 100)
    reported: list[tuple[str, str, set[int]]] = []
    first, second = make(group_id=topic), make(group_id=topic)
    first.subscribe([topic], listener=Notes("first", reported))
    seen = Seen(first)
    seen.until(lambda: sum(seen.records.values()) == 400)
    second.subscribe([topic], listener=Notes("second", reported))
    seen.consumers.append(second)
    seen.until_split(2, 2)
    assert not first.assignment() & second.assignment()
    moved = {tp.partition for tp in second.assignment()}
    assert reported == [("first", "assigned", {0, 1, 2, 3}), ("first", "revoked", moved), ("second", "assigned", moved)]
    fill(producer, topic, 4, 50, start=100)
    seen.until(lambda: sum(seen.records.values()) == 600)
    second.close()
    seen.consumers.remove(second)
    assert seen.until_split(4) < 20, "a closed consumer leaves at once, and is not waited for"
    assert reported[3:] == [("second", "revoked", moved), ("first", "assigned", moved)]
    fill(producer, topic, 4, 50, start=150)
    seen.until(lambda: len(seen.records) == 800)
    assert set(seen.records.values()) == {1}
    first.commit()
    assert [first.committed(TopicPartition(topic, number)) for number in range(4)] == [200] * 4


def test_a_partition_that_stays_is_read_on_while_others_come_and_go(
    admin: Admin, producer: Producer, make: Callable[..., Consumer]
) -> None:
    topic = new_topic(admin, 2)
    fill(producer, topic, 2, 500)
    stays, comes = make(topic, group_id=topic, max_poll_records=7), make(topic, group_id=topic)
    records = itertools.chain.from_iterable(iter(lambda: [next(stays)], None))
    offsets: dict[int, list[int]] = {0: [], 1: []}
    for record in itertools.islice(records, 20):
        offsets[record.partition].append(record.offset)
    taken = Seen(comes)
    while not comes.assignment():
        record = next(stays)
        offsets[record.partition].append(record.offset)
        taken.poll()
    (kept,) = stays.assignment()
    while len(offsets[kept.partition]) < 500:
        record = next(stays)
        offsets[record.partition].append(record.offset)
    assert offsets[kept.partition] == list(range(500))
    gone = offsets[1 - kept.partition]
    assert gone == list(range(len(gone)))
    taken.until(lambda: len(taken.records) == 500 - len(gone))
    assert set(taken.records) == {(1 - kept.partition, offset) for offset in range(len(gone), 500)}


_WORKER = """
import sys, time
from quorumlog.sdk import Consumer
servers, topic, options = sys.argv[1], sys.argv[2], eval(sys.argv[3])
with Consumer(topic, bootstrap_servers=servers, group_id=topic, **options) as consumer:
    for record in consumer:
        time.sleep(0.001)  # The work.
        print(record.partition, record.offset, flush=True)
"""


def worker(cluster: LocalCluster, topic: str, **options: Any) -> subprocess.Popen[str]:
    """A consumer in a process of its own, which prints what it has worked on."""
    arguments = [sys.executable, "-c", _WORKER, cluster.bootstrap_servers, topic, repr(options)]
    return subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True)


def test_after_kill_9_nothing_is_skipped_and_only_what_was_not_committed_is_repeated(
    cluster: LocalCluster, admin: Admin, producer: Producer, make: Callable[..., Consumer]
) -> None:
    topic = new_topic(admin, 2)
    fill(producer, topic, 2, 1000)
    process = worker(cluster, topic, auto_commit_interval_ms=20, max_poll_records=50, **SHORT)
    assert process.stdout is not None
    worked_on: Counter[tuple[int, int]] = Counter()
    for line in itertools.islice(process.stdout, 600):
        partition, offset = map(int, line.split())
        worked_on[partition, offset] += 1
    process.send_signal(signal.SIGKILL)
    # A line that the kill has cut off was worked on, but not noted: it may be committed no more than any other.
    for line in process.communicate()[0].splitlines():
        if re.fullmatch(r"\d+ \d+", line):
            partition, offset = map(int, line.split())
            worked_on[partition, offset] += 1
    heir = make(topic, group_id=topic, **SHORT)
    committed = {number: heir.committed(TopicPartition(topic, number)) or 0 for number in range(2)}
    for number, offset in committed.items():
        assert all(worked_on[number, done] for done in range(offset)), "committed but not worked on"
    assert sum(committed.values()) > 0
    seen = Seen(heir)
    assert seen.until(lambda: len(seen.records) == 2000 - sum(committed.values())) < 30
    assert min(offset for partition, offset in seen.records if partition == 0) == committed[0]
    assert set(seen.records.values()) == {1}
    assert {*worked_on, *seen.records} == {(number, offset) for number in range(2) for offset in range(1000)}


def test_what_a_block_fails_over_is_read_again(admin: Admin, producer: Producer, make: Callable[..., Consumer]) -> None:
    topic = new_topic(admin, 1)
    fill(producer, topic, 1, 10)

    def iterate() -> None:
        with make(topic, group_id=topic) as consumer:
            for record in consumer:
                _ = 1 // (record.offset - 4)

    def poll() -> None:
        with make(topic, group_id=topic) as consumer:
            records = next(iter(consumer.poll(timeout_ms=60_000, max_records=3).values()))
            assert [record.offset for record in records] == [4, 5, 6]
            _ = 1 // 0

    for work in (iterate, poll):
        with pytest.raises(ZeroDivisionError):
            work()
    again = make(topic, group_id=topic)
    assert next(again).offset == 4
    again.close(autocommit=False)
    assert next(make(topic, group_id=topic)).offset == 4


@pytest.mark.parametrize("longest_ms", [float("inf"), 1e15])
def test_a_poll_may_wait_without_end(
    admin: Admin, producer: Producer, make: Callable[..., Consumer], longest_ms: float
) -> None:
    topic = new_topic(admin, 1)
    consumer = make(topic, group_id=topic)
    consumer.poll(timeout_ms=100)
    writing = threading.Timer(0.5, fill, (producer, topic, 1, 1))
    writing.start()
    assert sum(map(len, consumer.poll(timeout_ms=longest_ms).values())) == 1
    writing.join()


def test_whoever_does_not_poll_for_too_long_loses_its_part_and_cannot_commit_it(
    admin: Admin, producer: Producer, make: Callable[..., Consumer]
) -> None:
    topic = new_topic(admin, 2)
    fill(producer, topic, 2, 10)
    reported: list[tuple[str, str, set[int]]] = []
    slow = make(group_id=topic, enable_auto_commit=False, max_poll_interval_ms=2_000)
    slow.subscribe([topic], listener=Notes("slow", reported))
    seen = Seen(slow)
    seen.until(lambda: len(seen.records) == 20)
    other = make(topic, group_id=topic)
    seen.consumers = [other]
    assert seen.until_split(2) < 30
    with pytest.raises(CommitFailedError, match="max_poll_interval_ms"):
        slow.commit()
    seen.consumers.append(slow)
    seen.until_split(1, 1)
    assert [what for _, what, _ in reported] == ["assigned", "lost", "assigned"]
    slow.commit()


def test_whoever_works_for_long_is_kept_by_its_heartbeats(
    admin: Admin, producer: Producer, make: Callable[..., Consumer]
) -> None:
    topic = new_topic(admin, 2)
    fill(producer, topic, 2, 10)
    works, polls = make(topic, group_id=topic, **SHORT), make(topic, group_id=topic)
    seen = Seen(works, polls)
    seen.until_split(1, 1)
    seen.consumers = [polls]
    until = time.monotonic() + 1.2 * SHORT["session_timeout_ms"] / 1000
    seen.until(lambda: time.monotonic() > until)
    assert len(polls.assignment()) == 1
    works.commit()


def test_a_static_member_finds_its_partitions_again_and_nobody_else_notices(
    admin: Admin, producer: Producer, make: Callable[..., Consumer]
) -> None:
    topic = new_topic(admin, 4)
    fill(producer, topic, 4, 10)
    reported: list[tuple[str, str, set[int]]] = []
    other = make(group_id=topic)
    other.subscribe([topic], listener=Notes("other", reported))
    static = make(topic, group_id=topic, group_instance_id="one")
    seen = Seen(static, other)
    seen.until_split(2, 2)
    its = static.assignment()
    static.close()
    reported.clear()
    again = make(topic, group_id=topic, group_instance_id="one")
    seen.consumers = [again, other]
    seen.until_split(2, 2)
    assert again.assignment() == its and reported == []
    twin = Seen(make(topic, group_id=topic, group_instance_id="one", **SHORT))
    with pytest.raises(UnreleasedInstanceIdError, match="one"):
        twin.until(lambda: False)


def test_a_pattern_takes_in_topics_to_come(admin: Admin, producer: Producer, make: Callable[..., Consumer]) -> None:
    stem = f"stem{next(_numbers)}"
    first = new_topic(admin, 1, f"{stem}-a")
    consumer = make(group_id=stem)
    consumer.subscribe(pattern=rf"{stem}-[a-c]")
    seen = Seen(consumer)
    seen.until_split(1)
    new_topic(admin, 1, f"{stem}-x")
    second = new_topic(admin, 2, f"{stem}-b")
    seen.until_split(3)
    assert consumer.subscription() == {first, second}
    consumer.unsubscribe()
    assert consumer.assignment() == set()
    consumer.subscribe(pattern="(unclosed")
    with pytest.raises(InvalidRegularExpressionError):
        seen.until(lambda: False)


def test_where_a_group_begins(
    cluster: LocalCluster, admin: Admin, producer: Producer, make: Callable[..., Consumer]
) -> None:
    topic = new_topic(admin, 1)
    fill(producer, topic, 1, 10)
    first, second = TopicPartition(topic, 0), TopicPartition(topic, 1)
    consumer = make(topic, group_id=topic, auto_offset_reset="latest")
    Seen(consumer).until_split(1)
    assert consumer.position(first) == 10, "nothing is committed: auto_offset_reset decides"
    admin.create_partitions({topic: 2})
    with Producer(bootstrap_servers=cluster.bootstrap_servers) as another:
        fill(another, topic, 2, 5, start=10)
    seen = Seen(consumer)
    seen.until(lambda: len(seen.records) == 10)
    assert min(seen.records) == (0, 10) and (1, 0) in seen.records, "a partition that was added is read from its start"
    consumer.commit({first: OffsetAndMetadata(3, "by hand"), second: 1_000_000})
    assert consumer.committed(first, metadata=True) == OffsetAndMetadata(3, "by hand", None)
    consumer.close(autocommit=False)
    late = make(topic, group_id=topic, auto_offset_reset="earliest")
    seen = Seen(late)
    seen.until(lambda: len(seen.records) == 17)
    assert min(seen.records) == (0, 3)
    assert (1, 0) in seen.records, "what is committed lies beyond the log: auto_offset_reset decides"


def test_a_topic_that_is_made_anew_begins_anew(admin: Admin, producer: Producer, make: Callable[..., Consumer]) -> None:
    topic = new_topic(admin, 1)
    fill(producer, topic, 1, 10)
    consumer = make(topic, group_id=topic, auto_offset_reset="latest", **SHORT)
    seen = Seen(consumer)
    seen.until_split(1)
    assert consumer.position(TopicPartition(topic, 0)) == 10  # Where the end is, is asked for after the assignment.
    fill(producer, topic, 1, 5)
    seen.until(lambda: len(seen.records) == 5)
    admin.delete_topics([topic])
    seen.until_split(0)
    new_topic(admin, 1, topic)
    fill(producer, topic, 1, 3)
    seen.records.clear()
    seen.until(lambda: len(seen.records) == 3)
    assert set(seen.records) == {(0, 0), (0, 1), (0, 2)}


def test_assigned_by_hand_a_group_is_only_where_offsets_are_kept(
    admin: Admin, producer: Producer, make: Callable[..., Consumer]
) -> None:
    topic = new_topic(admin, 2)
    fill(producer, topic, 2, 20)
    tp = TopicPartition(topic, 1)
    consumer = make(group_id=topic)
    consumer.assign([tp])
    seen = Seen(consumer)
    seen.until(lambda: len(seen.records) == 20)
    outcome: list[Any] = []
    consumer.commit_async({tp: 7}, callback=lambda offsets, error: outcome.append((offsets, error))).result(60)
    consumer.poll()
    assert outcome == [({tp: OffsetAndMetadata(7)}, None)]
    consumer.close(autocommit=False)
    again = make(group_id=topic)
    again.assign([tp])
    assert again.position(tp) == 7
    member = make(topic, group_id=topic)
    Seen(member).until_split(2)
    with pytest.raises(CommitFailedError, match="has members"):
        again.commit({tp: 9})
    assert admin.describe_groups([topic])[0].members[0].member_id == member.group_metadata().member_id


async def test_the_same_for_asyncio(cluster: LocalCluster, admin: Admin, producer: Producer) -> None:
    topic = new_topic(admin, 2)
    fill(producer, topic, 2, 10)
    told: list[str] = []

    class Listener(ConsumerRebalanceListener):
        async def on_partitions_assigned(self, assigned: set[TopicPartition]) -> None:
            for tp in assigned:
                await consumer.seek(tp, 5)
            told.append("assigned")

        async def on_partitions_revoked(self, revoked: set[TopicPartition]) -> None:
            await consumer.commit()
            told.append("revoked")

    consumer = AsyncConsumer(bootstrap_servers=cluster.bootstrap_servers, group_id=topic, enable_auto_commit=False)
    async with consumer:
        await consumer.subscribe([topic], listener=Listener())
        records = [await anext(consumer) for _ in range(10)]
        assert sorted((record.partition, record.offset) for record in records) == [
            (number, offset) for number in range(2) for offset in range(5, 10)
        ]
        outcome: list[Any] = []
        committing = consumer.commit_async({TopicPartition(topic, 0): 6}, lambda offsets, error: outcome.append(error))
        await committing
        await consumer.poll()
        assert outcome == [None]
        assert await consumer.committed(TopicPartition(topic, 0)) == 6
    assert told == ["assigned", "revoked"]
    async with AsyncConsumer(topic, bootstrap_servers=cluster.bootstrap_servers, group_id=topic) as heir:
        assert await heir.poll(timeout_ms=300) == {}
        assert await heir.committed(TopicPartition(topic, 1)) == 10


def test_a_killed_coordinator_costs_nobody_a_partition(
    cluster: LocalCluster, admin: Admin, producer: Producer, make: Callable[..., Consumer]
) -> None:
    topic = new_topic(admin, 3)
    fill(producer, topic, 3, 10)
    reported: list[tuple[str, str, set[int]]] = []
    consumers = [make(group_id=topic, **SHORT) for _ in range(3)]
    for number, consumer in enumerate(consumers):
        consumer.subscribe([topic], listener=Notes(str(number), reported))
    seen = Seen(*consumers)
    seen.until_split(1, 1, 1)
    epochs = [consumer.group_metadata().generation_id for consumer in consumers]
    reported.clear()
    coordinator = admin.describe_groups([topic])[0].coordinator
    cluster.kill(coordinator)
    for consumer in consumers:
        consumer.commit()
    until = time.monotonic() + 1.2 * SHORT["session_timeout_ms"] / 1000
    seen.until(lambda: time.monotonic() > until)
    assert reported == []
    assert [consumer.group_metadata().generation_id for consumer in consumers] == epochs
    assert admin.describe_groups([topic])[0].coordinator != coordinator

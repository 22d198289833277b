"""SIGINT at random moments of a program that sends, polls, iterates, commits, flushes and closes.

``INTERRUPTS=10000 python -m pytest tests/sdk/against_nodes/test_random_interrupts.py -s`` runs longer; ``SEED`` repeats
the order of the calls.
"""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from functools import partial
from types import FrameType
from typing import TypeVar

import pytest

from quorumlog.local import LocalCluster
from quorumlog.sdk import Admin, Consumer, NewTopic, Producer, RecordFuture, TopicPartition, TransactionAbortedError
from quorumlog.sdk.types import ConsumerRecord

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(3_600)]

INTERRUPTS = int(os.environ.get("INTERRUPTS", "300"))
SEED = int(os.environ.get("SEED", "0")) or random.SystemRandom().randrange(1, 1 << 31)
#: So many interrupts later, a client is closed and another one made.
RENEWED_AFTER = 250
LIMIT_S = 60.0
PARTITIONS = 3

Result = TypeVar("Result")


class Interrupted(Exception):
    """Raised by the handler of SIGINT."""


class Signals:
    """Raises in the main thread at random moments, at most once in each call that is tried."""

    def __init__(self, rng: random.Random, per_second: float = 1_000) -> None:
        self._rng = rng
        self._per_second = per_second
        self._is_armed = False
        self._ended = threading.Event()
        self.count = 0
        self._former = signal.signal(signal.SIGINT, self._strike)
        self._thread = threading.Thread(target=self._send, daemon=True)
        self._thread.start()

    def _send(self) -> None:
        target = threading.main_thread().ident
        assert target is not None
        while not self._ended.wait(self._rng.expovariate(self._per_second)):
            if self._is_armed:
                signal.pthread_kill(target, signal.SIGINT)

    def _strike(self, number: int, frame: FrameType | None) -> None:
        if self._is_armed:
            self._is_armed = False
            self.count += 1
            raise Interrupted

    def attempt(self, call: Callable[[], Result]) -> Result | None:
        """Makes a call; None when it was interrupted."""
        try:
            self._is_armed = True
            result = call()
            self._is_armed = False
            return result
        except Interrupted:
            return None
        finally:
            self._is_armed = False

    def until_done(self, call: Callable[[], object]) -> None:
        """Makes a call until it is not interrupted."""
        deadline_s = time.monotonic() + LIMIT_S
        while self.attempt(lambda: (call(), True)[1]) is None:
            assert time.monotonic() < deadline_s, "the call is never through"

    def stop(self) -> None:
        self._ended.set()
        self._thread.join(LIMIT_S)
        signal.signal(signal.SIGINT, self._former)


class Program:
    """Sends and reads, and keeps the state of its records."""

    def __init__(self, servers: str, signals: Signals, rng: random.Random) -> None:
        self._servers, self._signals, self._rng = servers, signals, rng
        self.handles: dict[int, RecordFuture] = {}
        self.sent = 0
        self.seen: dict[TopicPartition, dict[int, ConsumerRecord]] = defaultdict(dict)
        #: The next offset of each partition in the life of this consumer.
        self._next: dict[TopicPartition, int] = {}
        self.producer, self.consumer = self._make_producer(), self._make_consumer()

    def _make_producer(self) -> Producer:
        return Producer(
            bootstrap_servers=self._servers,
            linger_ms=self._rng.choice([0, 5]),
            compression_type="lz4",
            batch_size=self._rng.choice([500, 16_384]),
        )

    def _make_consumer(self) -> Consumer:
        self._next.clear()
        return Consumer(
            "t",
            bootstrap_servers=self._servers,
            group_id="g",
            auto_offset_reset="earliest",
            auto_commit_interval_ms=5,
            max_poll_records=self._rng.choice([1, 7, 500]),
            consumer_timeout_ms=20,
        )

    def step(self) -> None:
        """Does one thing, which may be interrupted."""
        what = self._rng.choice(
            [self.send] * 5 + [self.send_list] + [self.poll] * 3 + [self.iterate] * 3 + [self.commit, self.flush]
        )
        what()

    def send(self) -> None:
        for _ in range(30):
            number = self.sent
            self.sent += 1
            handle = self._signals.attempt(partial(self._send, number, b"%d" % number))
            if handle is not None:
                self.handles[number] = handle

    def send_list(self) -> None:
        numbers = range(self.sent, self.sent + self._rng.choice([1, 30, 300]))
        self.sent = numbers.stop
        texts = [b"%d" % number for number in numbers]
        headers = [[("number", text)] if number % 2 else None for number, text in zip(numbers, texts, strict=True)]
        sent = self._signals.attempt(
            lambda: self.producer.send_many("t", texts, keys=texts, headers=headers, timestamps_ms=numbers).futures()
        )
        self.handles |= dict(zip(numbers, sent or (), strict=False))

    def _send(self, number: int, text: bytes) -> RecordFuture:
        headers = [("number", text)] if number % 2 else None
        return self.producer.send("t", text, key=text, headers=headers, timestamp_ms=number)

    def poll(self) -> None:
        found = self._signals.attempt(lambda: self.consumer.poll(self._rng.choice([0, 0, 20])))
        for records in (found or {}).values():
            for record in records:
                self._take(record)

    def iterate(self) -> None:
        for _ in range(10):
            try:
                record = self._signals.attempt(self.consumer.__next__)
            except StopIteration:
                return
            if record is not None:
                self._take(record)

    def _take(self, record: ConsumerRecord) -> None:
        tp = TopicPartition(record.topic, record.partition)
        assert self._next.get(tp, record.offset) == record.offset, f"{tp} skips or repeats records"
        assert record.offset <= max(self.seen[tp], default=-1) + 1, f"{tp} skips records"
        self._next[tp] = record.offset + 1
        self.seen[tp][record.offset] = record

    def commit(self) -> None:
        self._signals.attempt(self.consumer.commit)
        self._signals.attempt(self.consumer.commit_async)

    def flush(self) -> None:
        self._signals.attempt(lambda: self.producer.flush(LIMIT_S))

    def renew(self) -> None:
        """Closes a client and makes another one."""
        if self._rng.random() < 0.5:
            self._signals.until_done(self.producer.flush)
            self._signals.until_done(self.producer.close)
            self.producer = self._make_producer()
        else:
            self._signals.until_done(self.consumer.close)
            self.consumer = self._make_consumer()

    def finish(self) -> None:
        """Reads to the end, and checks every record."""
        self.producer.flush(LIMIT_S)
        ends = self.consumer.end_offsets([TopicPartition("t", number) for number in range(PARTITIONS)])
        deadline_s = time.monotonic() + LIMIT_S
        while any(len(self.seen[tp]) < end for tp, end in ends.items()):
            assert time.monotonic() < deadline_s, "records are missing"
            for records in self.consumer.poll(100).values():
                for record in records:
                    self._take(record)
        self.producer.close()
        self.consumer.close()
        places: dict[int, tuple[int, int]] = {}
        for tp, records in self.seen.items():
            for offset, record in records.items():
                number = int(record.value)
                assert number not in places, "no record is in the log twice"
                places[number] = tp.partition, offset
                headers = [("number", record.value)] if number % 2 else []
                assert (record.key, record.timestamp, list(record.headers)) == (record.value, number, headers)
        for number, handle in self.handles.items():
            metadata = handle.result(0)
            assert places[number] == (metadata.partition, metadata.offset)


@pytest.fixture
def servers() -> Iterator[str]:
    with LocalCluster(nodes=1) as cluster:
        with Admin(bootstrap_servers=cluster.bootstrap_servers) as admin:
            # The records bear times long past: retention would be right to remove them.
            admin.create_topics([NewTopic("t", PARTITIONS, 1, {"retention.ms": -1})])
        yield cluster.bootstrap_servers


def test_random_interrupts_lose_nothing_else(servers: str) -> None:
    print(f"SEED={SEED} INTERRUPTS={INTERRUPTS}")
    rng = random.Random(SEED)
    signals = Signals(random.Random(SEED + 1))
    try:
        program = Program(servers, signals, rng)
        renewed_at = RENEWED_AFTER
        while signals.count < INTERRUPTS:
            program.step()
            if signals.count >= renewed_at:
                renewed_at = signals.count + RENEWED_AFTER
                program.renew()
    finally:
        signals.stop()
    program.finish()
    print(
        f"{signals.count} interrupts, {program.sent} sends, {len(program.handles)} of them not interrupted, all of"
        f" these acknowledged; {sum(map(len, program.seen.values()))} records in the log, each read"
    )


def test_random_interrupts_leave_transactions_whole(servers: str) -> None:
    count = INTERRUPTS
    with Admin(bootstrap_servers=servers) as admin:
        admin.create_topics([NewTopic("out", 1, 1)])
    with Producer(bootstrap_servers=servers) as filling:
        filling.send_many("t", [b"%d" % number for number in range(count)]).result(LIMIT_S)
    every = [TopicPartition("t", number) for number in range(PARTITIONS)]
    consumer = Consumer(bootstrap_servers=servers, group_id="g", auto_offset_reset="earliest", enable_auto_commit=False)
    consumer.assign(every)
    producer = Producer(bootstrap_servers=servers, transactional_id="writer")
    signals = Signals(random.Random(SEED), per_second=20)
    aborted = turns = done = 0

    def turn() -> bool:
        with producer.transaction(consumer) as tx:
            for records in consumer.poll(20, max_records=20).values():
                for record in records:
                    tx.send("out", record.value)
        return True

    deadline_s = time.monotonic() + 3 * LIMIT_S
    try:
        while done < count:
            assert time.monotonic() < deadline_s, "the transactions make no progress"
            turns += 1
            try:
                if signals.attempt(turn):
                    # Only now: while a transaction that an interrupt has left is open, its offsets are not known.
                    done = sum(consumer.committed(tp) or 0 for tp in every)
            except TransactionAbortedError:
                aborted += 1
    finally:
        signals.stop()
    producer.close()
    consumer.close()
    found: list[int] = []
    with Consumer("out", bootstrap_servers=servers, auto_offset_reset="earliest", consumer_timeout_ms=2_000) as reader:
        found += [int(record.value) for record in reader]
    print(f"SEED={SEED}: {signals.count} interrupts in {turns} transactions, {aborted} said to be aborted")
    assert sorted(found) == list(range(count))

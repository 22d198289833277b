"""Ctrl-C at any moment of a call that waits: the clients' own thread continues, and so does the next call."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import sys
import threading
import time
from collections.abc import Callable
from types import FrameType

import pytest
from interruptions import SoftTimeLimit, at_step, interrupted, steps
from scripted_cluster import ScriptedCluster
from scripted_reading import fill
from test_closing_from_another_thread import cluster, loop

from quorumlog.sdk import Admin, Consumer, Producer, RequestTimedOutError, TopicPartition
from quorumlog.sdk.cluster.cluster import Cluster
from quorumlog.sdk.consumer.commit_future import CommitFuture
from quorumlog.sdk.producer.delivery import Delivery
from quorumlog.sdk.runtime.completion import Completion
from quorumlog.sdk.runtime.event_loop import BackgroundLoop
from quorumlog.sdk.runtime.interruptible_event import InterruptibleEvent

__all__ = ["cluster", "loop"]  # The fixtures.

pytestmark = [
    pytest.mark.filterwarnings("ignore:coroutine .* was never awaited"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]

DEADLINE_S = 30.0
numbers = itertools.count()
#: More steps than any of the calls has.
STEPS = 2_000


def is_interrupted(step: int, call: Callable[[], object], error: type[BaseException] = KeyboardInterrupt) -> bool:
    """Makes a call with an exception at the n-th place where Python looks for signals: where a function written
    in Python starts, and where one written in C has returned. Says whether the call has so many."""
    left, struck = step, False

    def profile(frame: FrameType, event: str, argument: object) -> None:
        nonlocal left, struck
        left -= event in {"call", "c_return"}
        if left == 0 and not struck:
            struck = True
            raise error

    sys.setprofile(profile)
    try:
        call()
    except error:
        assert struck
    finally:
        sys.setprofile(None)
    return struck  # Python swallows what is raised in the callback of a weak reference.


def at_every_step(call: Callable[[], object], is_well: Callable[[], bool]) -> None:
    """Interrupts a call at each of its steps in turn, and looks after each time."""
    for step in range(1, STEPS):
        interrupted = is_interrupted(step, call)
        assert is_well(), f"an interrupt at step {step} leaves others waiting for good"
        if not interrupted:
            return
    raise AssertionError(f"the call has more than {STEPS} steps")


def admin_in_use(servers: str) -> tuple[Admin, Cluster]:
    admin = Admin(bootstrap_servers=servers)
    admin.list_topics()
    return admin, admin._core._cluster


def producer_in_use(servers: str) -> tuple[Producer, Cluster]:
    producer = Producer(bootstrap_servers=servers)
    producer.send("t", b"value")
    return producer, producer._core.cluster


def member_in_use(servers: str) -> tuple[Consumer, Cluster]:
    consumer = Consumer("t", bootstrap_servers=servers, group_id=f"group {next(numbers)}")
    consumer.poll(int(DEADLINE_S * 1000))
    return consumer, consumer._core.cluster


@pytest.mark.parametrize("error", [KeyboardInterrupt, SoftTimeLimit])
@pytest.mark.parametrize("in_use", [admin_in_use, producer_in_use, member_in_use])
def test_a_close_that_is_interrupted_anywhere_is_made_good_by_another(
    cluster: ScriptedCluster,
    in_use: Callable[[str], tuple[Admin | Producer | Consumer, Cluster]],
    error: type[BaseException],
) -> None:
    for step in range(1, STEPS, 3):
        client, its_cluster = in_use(cluster.bootstrap_servers)
        interrupted = is_interrupted(step, client.close, error)
        client.close()
        open_ones = [node.address for node in its_cluster._connections.values() if not node._closed]
        assert open_ones == [], f"an interrupt at step {step} leaves connections for good"
        if not interrupted:
            return
    raise AssertionError(f"the close has more than {STEPS} steps")


def in_another_thread(what: Callable[[], object]) -> bool:
    """True if another thread gets something done."""
    thread = threading.Thread(target=what, daemon=True)
    thread.start()
    thread.join(DEADLINE_S)
    return not thread.is_alive()


def test_an_interrupted_call_is_cancelled_whatever_was_raised() -> None:
    background = BackgroundLoop("Client")
    began, ended = threading.Event(), threading.Event()

    async def work() -> None:
        began.set()
        try:
            await asyncio.sleep(DEADLINE_S * 2)
        finally:
            ended.set()

    def call() -> None:
        with contextlib.suppress(RequestTimedOutError):
            background.run(work(), 0.05)

    for step in range(1, STEPS):
        began.clear()
        ended.clear()
        is_waiting = is_interrupted(step, call, SoftTimeLimit)
        assert not began.wait(0.01) or ended.wait(DEADLINE_S), f"step {step} leaves the call running"
        if not is_waiting:
            return


@pytest.mark.parametrize("call", ["poll", "next", "commit", "commit_async", "position"])
def test_a_member_interrupted_at_any_line_works(cluster: ScriptedCluster, call: str) -> None:
    """Neither skips nor repeats a record, and commits how far it is."""
    for partition in range(2):
        fill(cluster, 6_000, partition=partition, per_batch=50)
    read: dict[TopicPartition, int] = {}

    def take(consumer: Consumer) -> None:
        deadline_s = time.monotonic() + DEADLINE_S
        before = dict(read)
        while read == before:
            assert time.monotonic() < deadline_s
            for tp, records in consumer.poll(100, max_records=2).items():
                for record in records:
                    assert record.offset == read.get(tp, 0), "records are skipped or repeated"
                    read[tp] = record.offset + 1

    def interrupt(consumer: Consumer) -> None:
        if call == "poll":
            consumer.poll(0, max_records=2)
        elif call == "next":
            next(consumer)
        elif call == "position":
            consumer.position(next(iter(consumer.assignment())))
        else:
            getattr(consumer, call)()

    with Consumer(
        "t", bootstrap_servers=cluster.bootstrap_servers, group_id="g", enable_auto_commit=False, max_poll_records=2
    ) as consumer:
        for step in steps():
            take(consumer)
            was_interrupted = interrupted(step, lambda: interrupt(consumer), lines=True)
            if not was_interrupted:
                break
            take(consumer)
            consumer.commit()
            for tp, offset in read.items():
                assert consumer.position(tp) == offset
                assert consumer.committed(tp) == offset


@pytest.mark.parametrize("call", ["flush", "send"])
def test_a_producer_interrupted_at_any_line_works(cluster: ScriptedCluster, call: str) -> None:
    with Producer(bootstrap_servers=cluster.bootstrap_servers, compression_type="zstd") as producer:
        for step in steps():
            before = producer.send("t", b"before", key=b"k", headers={"h": "v"})
            arguments = ["t", b"now", b"k"] * (call == "send")
            was_interrupted = interrupted(step, lambda: getattr(producer, call)(*arguments), lines=True)  # noqa: B023
            after = producer.send("t", b"after", key=b"k")
            before.result(DEADLINE_S)
            after.result(DEADLINE_S)
            producer.flush(DEADLINE_S)
            if not was_interrupted:
                return


def test_a_call_to_the_clients_loop_may_be_interrupted_anywhere() -> None:
    background = BackgroundLoop("Client")
    at_every_step(lambda: background.run(asyncio.sleep(0)), lambda: background.run(asyncio.sleep(0, True), DEADLINE_S))


def test_waiting_for_a_wakeup_may_be_interrupted_anywhere() -> None:
    wakeup = InterruptibleEvent()

    def wait() -> None:
        wakeup.clear()
        wakeup.wait(0.001)

    at_every_step(wait, lambda: in_another_thread(wakeup.set) and wakeup.wait(DEADLINE_S))


def test_waiting_for_an_acknowledgement_may_be_interrupted_anywhere() -> None:
    deliveries: list[Delivery] = []

    def wait() -> None:
        deliveries.append(Delivery("orders", 0, loop_thread=-1))
        deliveries[-1].wait(0.001)

    def acknowledge() -> None:
        while deliveries:
            deliveries.pop().succeed(0, -1)

    at_every_step(wait, lambda: in_another_thread(acknowledge))


@pytest.mark.interpreted("compiled code has no instructions of Python to stop at")
def test_an_outcome_resolved_at_any_moment_calls_back_once() -> None:
    """Between any two instructions of the call that asks for it."""
    for step in steps():
        outcome, reported = Completion(loop_thread=-1), list[int]()
        was_resolved = at_step(step, lambda: outcome.when_done(lambda: reported.append(1)), outcome.resolve)  # noqa: B023
        if not was_resolved:
            outcome.resolve()
        assert reported == [1], f"resolved at step {step}"
        if not was_resolved:
            return


def test_waiting_for_a_commit_may_be_interrupted_anywhere() -> None:
    background = BackgroundLoop("Consumer")

    def commit() -> None:
        CommitFuture(background.start(asyncio.sleep(0))).result(DEADLINE_S)

    at_every_step(commit, lambda: background.run(asyncio.sleep(0, True), DEADLINE_S))


def test_a_wakeup_is_taken_once_however_often_it_was_set() -> None:
    wakeup = InterruptibleEvent()
    assert not wakeup.wait(0)
    wakeup.set()
    wakeup.set()
    assert wakeup.wait(-1)
    assert not wakeup.wait(0)
    wakeup.set()
    wakeup.clear()
    assert not wakeup.wait(0)

"""Ctrl-C at any moment of a call that waits: the clients' own thread goes on, and so does the next call."""

from __future__ import annotations

import asyncio
import itertools
import sys
import threading
from collections.abc import Callable
from types import FrameType

import pytest
from scripted_cluster import ScriptedCluster
from test_closing_from_another_thread import cluster, loop

from quorumlog.sdk import Admin, Consumer, Producer
from quorumlog.sdk.cluster.cluster import Cluster
from quorumlog.sdk.consumer.commit_future import CommitFuture
from quorumlog.sdk.producer.delivery import Delivery
from quorumlog.sdk.runtime.event_loop import BackgroundLoop
from quorumlog.sdk.runtime.wakeup import Wakeup

__all__ = ["cluster", "loop"]  # The fixtures.

pytestmark = [
    pytest.mark.filterwarnings("ignore:coroutine .* was never awaited"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]

DEADLINE_S = 30.0
numbers = itertools.count()
#: More steps than any of the calls has.
STEPS = 2_000


def is_interrupted(step: int, call: Callable[[], object]) -> bool:
    """Makes a call with a KeyboardInterrupt at the n-th place where Python looks for signals: where a function written
    in Python begins, and where one written in C has returned. Says whether the call has so many."""
    left, struck = step, False

    def profile(frame: FrameType, event: str, argument: object) -> None:
        nonlocal left, struck
        left -= event in {"call", "c_return"}
        if left == 0 and not struck:
            struck = True
            raise KeyboardInterrupt

    sys.setprofile(profile)
    try:
        call()
    except KeyboardInterrupt:
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


@pytest.mark.parametrize("in_use", [admin_in_use, producer_in_use, member_in_use])
def test_a_close_that_is_interrupted_anywhere_is_made_good_by_another(
    cluster: ScriptedCluster, in_use: Callable[[str], tuple[Admin | Producer | Consumer, Cluster]]
) -> None:
    for step in range(1, STEPS, 3):
        client, its_cluster = in_use(cluster.bootstrap_servers)
        interrupted = is_interrupted(step, client.close)
        client.close()
        open_ones = [node.address for node in its_cluster._connections.values() if not node._closed]
        assert open_ones == [], f"an interrupt at step {step} leaves connections for good"
        if not interrupted:
            return
    raise AssertionError(f"the close has more than {STEPS} steps")


def in_another_thread(what: Callable[[], object]) -> bool:
    """Whether another thread gets something done."""
    thread = threading.Thread(target=what, daemon=True)
    thread.start()
    thread.join(DEADLINE_S)
    return not thread.is_alive()


def test_a_call_to_the_clients_loop_may_be_interrupted_anywhere() -> None:
    background = BackgroundLoop("Client")
    at_every_step(lambda: background.run(asyncio.sleep(0)), lambda: background.run(asyncio.sleep(0, True), DEADLINE_S))


def test_waiting_for_a_wakeup_may_be_interrupted_anywhere() -> None:
    wakeup = Wakeup()

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


def test_waiting_for_a_commit_may_be_interrupted_anywhere() -> None:
    background = BackgroundLoop("Consumer")

    def commit() -> None:
        CommitFuture(background.start(asyncio.sleep(0))).result(DEADLINE_S)

    at_every_step(commit, lambda: background.run(asyncio.sleep(0, True), DEADLINE_S))


def test_a_wakeup_is_taken_once_however_often_it_was_set() -> None:
    wakeup = Wakeup()
    assert not wakeup.wait(0)
    wakeup.set()
    wakeup.set()
    assert wakeup.wait(-1)
    assert not wakeup.wait(0)
    wakeup.set()
    wakeup.clear()
    assert not wakeup.wait(0)

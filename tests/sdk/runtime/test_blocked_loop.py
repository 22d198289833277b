"""The clients' own thread waits for a lock that the caller holds, as where a logging handler sends: no call waits for
good, and the client works when the lock is free."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from scripted_cluster import ScriptedCluster
from test_closing_from_another_thread import cluster, loop

from quorumlog.sdk import Consumer, IllegalStateError, Producer, QuorumlogError, RequestTimedOutError
from quorumlog.sdk.producer import producer as producer_module
from quorumlog.sdk.runtime.event_loop import BackgroundLoop

__all__ = ["cluster", "loop"]  # The fixtures.

DEADLINE_S = 30.0


@contextmanager
def held(background: BackgroundLoop) -> Iterator[None]:
    """A lock of the caller's, for which the loop's thread waits."""
    lock, reached = threading.Lock(), threading.Event()

    def log() -> None:
        reached.set()
        with lock:
            pass

    with lock:
        background.loop.call_soon_threadsafe(log)
        assert reached.wait(DEADLINE_S)
        yield


def test_send_waits_within_max_block(loop: BackgroundLoop, cluster: ScriptedCluster) -> None:
    with Producer(bootstrap_servers=cluster.bootstrap_servers, max_block_ms=200) as producer:
        with held(loop):
            with pytest.raises(RequestTimedOutError, match="lock"):
                producer.send("t", b"value")
            with pytest.raises(RequestTimedOutError, match="has not ended"):  # And it does not wait at all.
                producer.send("t", b"value")
        deadline_s = time.monotonic() + DEADLINE_S
        while True:
            try:
                producer.send("t", b"value").result(DEADLINE_S)
                break
            except QuorumlogError:
                assert time.monotonic() < deadline_s


@pytest.mark.parametrize("call", ["flush", "close"])
def test_flush_and_close_keep_their_limits(
    loop: BackgroundLoop, cluster: ScriptedCluster, call: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(producer_module, "_CLOSE_S", 0.5)
    producer = Producer(
        bootstrap_servers=cluster.bootstrap_servers, delivery_timeout_ms=200, request_timeout_ms=100, linger_ms=0
    )
    producer.send("t", b"value").result(DEADLINE_S)
    with held(loop), pytest.raises(RequestTimedOutError):
        getattr(producer, call)()
    producer.close()


def test_first_poll_keeps_its_limits(loop: BackgroundLoop, cluster: ScriptedCluster) -> None:
    with Consumer(
        "t", bootstrap_servers=cluster.bootstrap_servers, request_timeout_ms=100, bootstrap_timeout_ms=100
    ) as consumer:
        with held(loop), pytest.raises(RequestTimedOutError, match="lock"):
            consumer.poll(0)
        with held(loop), pytest.raises(RequestTimedOutError, match="lock"):
            consumer.topics()


@pytest.mark.parametrize("call", ["flush", "close", "partitions_for"])
def test_waiting_call_within_send_is_refused(loop: BackgroundLoop, cluster: ScriptedCluster, call: str) -> None:
    """A signal handler that has interrupted a ``send`` of its own thread would wait for it, and it for the handler."""
    with Producer(bootstrap_servers=cluster.bootstrap_servers) as producer:
        producer.send("t", b"value").result(DEADLINE_S)
        with producer._core.accumulator.lock, pytest.raises(IllegalStateError, match="signal handler"):
            getattr(producer, call)(*["t"] * (call == "partitions_for"))
        with producer._core.accumulator.lock, pytest.raises(IllegalStateError, match="signal handler"):
            producer.send("unknown", b"value")
        with producer._core.accumulator.lock, pytest.raises(IllegalStateError, match="signal handler"):
            producer.send_many("t", [b"value"])
        with producer._core.accumulator.lock:
            aside = producer.send("t", b"from a handler")
        assert aside.result(DEADLINE_S).topic == "t"

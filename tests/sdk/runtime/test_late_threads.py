"""Clients in a thread that runs on after the main thread has ended, when Python starts no more executors."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading

import pytest

from quorumlog.sdk.runtime.client_runtime import SYSTEM_RUNTIME
from quorumlog.sdk.runtime.event_loop import _shared_thread

LATE = """
import asyncio, threading
from quorumlog.sdk import Admin, Consumer, NoBrokersAvailableError, Producer
from quorumlog.sdk.aio import AsyncProducer
from quorumlog.sdk.runtime.client_runtime import SYSTEM_RUNTIME
from quorumlog.sdk.runtime.event_loop import new_event_loop

NOWHERE = {"bootstrap_servers": "127.0.0.1:1", "bootstrap_timeout_ms": 10}

def refused(call):
    try:
        call()
    except NoBrokersAvailableError:
        return
    raise SystemExit("it connected to nothing")

async def send():
    async with AsyncProducer(**NOWHERE):
        pass

def late():
    threading.main_thread().join()
    USE
    print("done")

threading.Thread(target=late).start()
"""


def test_clients_can_be_imported_late() -> None:
    script = """
import threading

def late():
    threading.main_thread().join()
    from quorumlog.sdk import NoBrokersAvailableError, Producer
    try:
        Producer(bootstrap_servers="127.0.0.1:1", bootstrap_timeout_ms=10).send("t", b"1")
    except NoBrokersAvailableError:
        print("done")

threading.Thread(target=late).start()
"""
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False, timeout=120)
    assert (ended.stdout, ended.stderr) == ("done\n", "")


@pytest.mark.parametrize(
    "use",
    [
        'refused(lambda: Producer(**NOWHERE).send("t", b"1"))',
        'refused(lambda: Consumer("t", **NOWHERE).poll(1000))',
        "refused(lambda: Admin(**NOWHERE).list_topics())",
        "refused(lambda: asyncio.run(send()))",
        "assert asyncio.run(SYSTEM_RUNTIME.run_blocking(int, '5')) == 5",
        "assert 'uvloop' in type(new_event_loop()).__module__",
    ],
    ids=["producer", "consumer", "admin", "asyncio", "blocking work", "uvloop"],
)
def test_clients_work_after_main_thread(use: str) -> None:
    script = LATE.replace("USE", use)
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False, timeout=120)
    assert (ended.stdout, ended.stderr) == ("done\n", "")


async def test_blocking_work_raises_its_own_error() -> None:
    """A RuntimeError of the work does not mean that the executor is gone: the work is not done twice."""
    calls: list[bool] = []

    def work() -> None:
        calls.append(threading.current_thread() is threading.main_thread())
        raise RuntimeError("its own")

    with pytest.raises(RuntimeError, match="its own"):
        await SYSTEM_RUNTIME.run_blocking(work)
    assert calls == [False]
    assert _shared_thread().loop is not asyncio.get_running_loop()

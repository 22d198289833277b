"""End of a node's process, and the health that it reports until then."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from quorumlog.server.process import runtime
from quorumlog.server.step.events import Event, StopRequested
from tests.support.recorded_log import RecordedLog


class Ending:
    """Driver, server and the service manager in one, as far as their end is concerned."""

    def __init__(self) -> None:
        self.halted = asyncio.Event()
        self.error: str | None = None
        self.events: list[Event] = []
        self.told: list[bool] = []
        self.manager_heard: list[str] = []
        self.settled = 0
        self.ready, self.reason = False, ""
        self.identity = SimpleNamespace(directory_id="")

    def emit(self, event: Event) -> None:
        self.events.append(event)

    def halt(self, error: str | None) -> None:
        self.error = error
        self.halted.set()

    def become_settled(self) -> None:
        self.settled += 1

    async def wait_halted(self) -> None:
        await self.halted.wait()

    async def set_serving(self, serving: bool) -> None:
        self.told.append(serving)

    def tell_ready(self) -> None:
        self.manager_heard.append("ready")

    def tell_waiting(self, reason: str) -> None:
        self.manager_heard.append(reason)

    def tell_stopping(self) -> None:
        self.manager_heard.append("stopping")

    def describe(self) -> Any:
        return SimpleNamespace(ready=self.ready, reason=self.reason)


@pytest.fixture
async def ending() -> Ending:
    return Ending()


def waiting(ending: Ending, asked: asyncio.Event, stop_timeout_ms: int = 60_000) -> asyncio.Future[None]:
    settings: Any = SimpleNamespace(stop_timeout_ms=stop_timeout_ms)
    node: Any = ending
    return asyncio.ensure_future(runtime._wait_for_end(settings, node, node, asked, node))


async def turns() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def test_a_node_that_is_to_stop_is_not_healthy_any_more_and_is_waited_for(ending: Ending) -> None:
    stop_requested = asyncio.Event()
    end = waiting(ending, stop_requested)
    await turns()
    assert not end.done() and not ending.told
    stop_requested.set()
    await turns()
    assert (ending.told, ending.manager_heard) == ([False], ["stopping"])
    assert not end.done(), "it hands over its leaderships first"
    ending.halt(None)
    await asyncio.wait_for(end, 30)
    assert ending.error is None


async def test_a_node_that_does_not_stop_in_time_ends_all_the_same(
    ending: Ending, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runtime, "STOP_MARGIN_S", 0.01)
    stop_requested = asyncio.Event()
    stop_requested.set()
    await asyncio.wait_for(waiting(ending, stop_requested, 100), 30)
    assert ending.error == "it did not hand over its leaderships and stop in time"


async def test_a_node_that_fails_is_not_waited_for(ending: Ending) -> None:
    end = waiting(ending, asyncio.Event())
    ending.halt("broken")
    await asyncio.wait_for(end, 30)
    assert ending.error == "broken"


async def test_a_node_ends_with_whoever_started_it(ending: Ending) -> None:
    read_end, write_end = os.pipe()
    try:
        driver: Any = ending
        runtime._watch_for_stop(driver, read_end)
        os.write(write_end, b"x")
        await asyncio.sleep(0.01)
        assert not ending.halted.is_set(), "it only depends on the other end being open"
        os.close(write_end)
        await asyncio.wait_for(ending.wait_halted(), 30)
        assert ending.error == "the parent process has exited"
    finally:
        os.close(read_end)


async def test_a_signal_asks_once_and_is_told_to_the_node(ending: Ending) -> None:
    driver: Any = ending
    stop_requested = runtime._watch_for_stop(driver, None)
    for _ in range(2):
        os.kill(os.getpid(), runtime.signal.SIGTERM)
        await asyncio.wait_for(stop_requested.wait(), 30)
        await asyncio.sleep(0.01)
    assert [type(event) for event in ending.events] == [StopRequested]


async def test_health_follows_readiness_and_a_node_says_once_what_it_waits_for(
    ending: Ending, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name in ("STARTING_INTERVAL_S", "SETTLED_INTERVAL_S", "TOLD_AFTER_S"):
        monkeypatch.setattr(runtime, name, 0.0)
    log, any_ending = RecordedLog(), ending
    parts: Any = any_ending
    settings: Any = SimpleNamespace(data_dir=tmp_path)
    ending.identity = SimpleNamespace(directory_id="here")
    watching = asyncio.ensure_future(runtime._watch_health(settings, parts, parts, parts, log, parts))
    for ready, reason in ((False, "no controller"), (False, "no leader"), (True, ""), (False, "no leader"), (True, "")):
        ending.ready, ending.reason = ready, reason
        await asyncio.sleep(0.02)
        assert ending.told[-1] is ready
    watching.cancel()
    assert [(event, fields.get("reason")) for _, event, fields in log.lines] == [
        ("node_not_ready", "no controller"),
        ("node_not_ready", "no leader"),
        ("node_ready", None),
        ("node_not_ready", "no leader"),
        ("node_ready", None),
    ]
    assert ending.settled
    heard = [
        said for said, before in zip(ending.manager_heard, ["", *ending.manager_heard], strict=False) if said != before
    ]
    assert heard == ["no controller", "no leader", "ready", "no leader", "ready"]
    assert (tmp_path / "DIRECTORY_ID").read_text() == "here\n"

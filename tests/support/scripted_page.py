"""A console without a cluster: a test says what its page shows."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from starlette.routing import Route

from quorumlog.console.access import ConsoleGate
from quorumlog.console.application import ConsoleEndpoints
from quorumlog.console.assets import Assets
from quorumlog.console.page_stream import PageStreams
from quorumlog.console.poller import OpenPages
from quorumlog.console.process import ConsoleOptions, ConsoleServer, listen, served_hosts
from quorumlog.console.shared_state import Json, SharedState, Thing

START_S = 30.0


def node(number: int, state: str = "up", silent_s: int | None = None) -> Thing:
    """A node of the picture."""
    return {
        "id": number, "address": f"127.0.0.1:900{number}", "rack": None, "machine": None, "state": state,
        "reason": "" if state == "up" else "its reason", "silent_s": silent_s, "fenced": False, "leaving": False,
        "lost": False, "witness_only": False, "version": "0.1.0",
    }  # fmt: skip


def partition(topic: str, number: int, leader: int | None = 1, isr: Sequence[int] = (1, 2, 3)) -> Thing:
    """A partition on nodes 1, 2 and 3."""
    return {"topic": topic, "partition": number, "leader": leader, "epoch": 4, "replicas": [1, 2, 3], "isr": [*isr],
            "witness": None}  # fmt: skip


def topic(name: str, partitions: int = 1, configs: dict[str, Json] | None = None) -> Thing:
    """A topic of the picture; one whose name starts with ``__`` is internal."""
    return {
        "name": name,
        "id": f"id-of-{name}",
        "internal": name.startswith("__"),
        "partitions": partitions,
        "configs": configs or {},
    }


def whole_cluster(*topics: Thing) -> dict[str, Thing]:
    """Three nodes that are up and some topics, or "orders" with one partition."""
    things: dict[str, Thing] = {"cluster": {"id": "c", "controller": 1, "feature_level": 1}}
    things |= {f"node/{number}": node(number) for number in (1, 2, 3)}
    for each in topics or (topic("orders"),):
        name, partitions = each["name"], each["partitions"]
        assert isinstance(name, str) and isinstance(partitions, int)
        things[f"topic/{name}"] = each
        things |= {f"partition/{name}/{number}": partition(name, number) for number in range(partitions)}
    return things


@dataclass
class ScriptedPage:
    """The console. ``show`` may be called from any thread.

    Attributes:
        url: with the token.
    """

    url: str
    _picture: SharedState
    _loop: asyncio.AbstractEventLoop

    def show(self, prefix: str, things: dict[str, Thing]) -> None:
        """Replaces all things of the picture whose keys start with ``prefix``."""

        async def put() -> None:
            self._picture.put(prefix, things)

        asyncio.run_coroutine_threadsafe(put(), self._loop).result(START_S)


@contextmanager
def scripted_page(
    things: dict[str, Thing], routes: Callable[[], Sequence[Route]] = tuple, *, changes: bool = True
) -> Iterator[ScriptedPage]:
    """Serves a console on a thread.

    Arguments:
        things: what it shows first.
        routes: what it answers besides; called on the console's event loop.
        changes: whether the page offers changes.
    """
    picture, ready = SharedState(), threading.Event()
    made: list[tuple[ConsoleServer, ScriptedPage]] = []

    async def serve() -> None:
        listening = listen(ConsoleOptions("127.0.0.1:1"))
        port = listening.getsockname()[1]
        picture.put("", {**things, "options": {"changes": changes, "hide_values": False}})
        endpoints = ConsoleEndpoints(PageStreams(picture, OpenPages()), Assets(), routes())
        gate = ConsoleGate(endpoints.application(), served_hosts(ConsoleOptions("127.0.0.1:1"), port), port)
        server = ConsoleServer(gate, picture)
        url = f"http://127.0.0.1:{port}/?token={gate.token}"
        made.append((server, ScriptedPage(url, picture, asyncio.get_running_loop())))
        ready.set()
        await server.serve([listening])

    thread = threading.Thread(target=lambda: asyncio.run(serve()))
    thread.start()
    assert ready.wait(START_S), "the console has not started"
    server, page = made[0]
    try:
        yield page
    finally:
        server.should_exit = True
        thread.join(START_S)

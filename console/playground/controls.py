"""Actions of the page on the nodes of a cluster that the console has started itself."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from enum import Enum
from typing import Protocol

from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from quorumlog.console.playground.workload import MOST_PER_SECOND, Life
from quorumlog.console.shared_state import Json, SharedState, Thing
from quorumlog.sdk import QuorumlogError

#: Interval at which the counters of records are updated (s).
SHOWN_EVERY_S = 1.0


class NodeControlError(Exception):
    """Raised if an action on a node is impossible; the message says why."""


class NodeControls(Protocol):
    """The processes of a cluster. The calls block until they are done.

    Raises:
        NodeControlError: the action is impossible.
    """

    @property
    def node_ids(self) -> tuple[int, ...]: ...
    @property
    def bootstrap_servers(self) -> str: ...
    @property
    def kafka_bootstrap_servers(self) -> str: ...
    @property
    def cuts_links(self) -> bool: ...
    def kill(self, node: int) -> None: ...
    def pause(self, node: int) -> None: ...
    def resume(self, node: int) -> None: ...
    def start(self, node: int) -> None: ...
    def cut(self, node: int) -> None: ...
    def rejoin(self, node: int) -> None: ...


class NodeCondition(Enum):
    """The condition that the page has put a node into."""

    RUNNING = "running"
    PAUSED = "paused"
    KILLED = "killed"
    CUT = "cut"  # it runs, but is isolated


#: Action -> the condition in which it is possible, and the one that follows.
ACTIONS = {
    "kill": (NodeCondition.RUNNING, NodeCondition.KILLED),
    "pause": (NodeCondition.RUNNING, NodeCondition.PAUSED),
    "resume": (NodeCondition.PAUSED, NodeCondition.RUNNING),
    "start": (NodeCondition.KILLED, NodeCondition.RUNNING),
    "cut": (NodeCondition.RUNNING, NodeCondition.CUT),
    "rejoin": (NodeCondition.CUT, NodeCondition.RUNNING),
}


class Playground:
    """The nodes, the workload, and the actions on nodes.

    Arguments:
        picture: the state in which they are shown.
    """

    def __init__(self, nodes: NodeControls, life: Life, picture: SharedState) -> None:
        self._nodes = nodes
        self._life = life
        self._picture = picture
        self._conditions = dict.fromkeys(nodes.node_ids, NodeCondition.RUNNING)
        # One action at a time: the second of two clicks has the same meaning, and is refused.
        self._turn, self._reading = asyncio.Lock(), asyncio.Lock()

    async def run(self) -> None:
        """Runs the workload and shows its counters until it is cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._life.run())
            while True:
                self._show()
                await asyncio.sleep(SHOWN_EVERY_S)

    def routes(self) -> list[Route]:
        """Returns the routes of the playground."""
        return [
            Route("/playground/nodes/{node:int}/{action}", self.act, methods=["POST"]),
            Route("/playground/pace/{per_second:int}", self.set_pace, methods=["POST"]),
            Route("/playground/check", self.check, methods=["POST"]),
        ]

    async def act(self, request: Request) -> Response:
        """Executes an action on a node."""
        node, action = int(request.path_params["node"]), str(request.path_params["action"])
        if node not in self._conditions or action not in ACTIONS:
            return PlainTextResponse("node or action not found\n", 404)
        before, after = ACTIONS[action]
        async with self._turn:
            if self._conditions[node] is not before:
                return PlainTextResponse(f"node {node} is {self._conditions[node].value}\n", 409)
            call: Callable[[int], None] = getattr(self._nodes, action)
            try:
                await asyncio.to_thread(call, node)
            except NodeControlError as error:
                return PlainTextResponse(f"{error}\n", 409)
            self._conditions[node] = after
            self._show()
        return Response(status_code=204)

    async def set_pace(self, request: Request) -> Response:
        """Sets the number of records sent per second."""
        self._life.per_second = min(MOST_PER_SECOND, int(request.path_params["per_second"]))
        self._show()
        return Response(status_code=204)

    async def check(self, request: Request) -> Response:
        """Reads back every acknowledged record."""
        if self._reading.locked():
            return PlainTextResponse("the records are being read back already\n", 409)
        async with self._reading:
            try:
                found = await self._life.read_back()
            except (QuorumlogError, TimeoutError):
                return PlainTextResponse("not everything can be read now: is a majority of the nodes up?\n", 409)
        return JSONResponse({"compared": found.compared, "missing": found.missing, "removed": found.removed})

    def _show(self) -> None:
        conditions: dict[str, Json] = {str(node): condition.value for node, condition in self._conditions.items()}
        shown: Thing = {
            "nodes": conditions,
            "cuts_links": self._nodes.cuts_links,
            "kafka": self._nodes.kafka_bootstrap_servers,
            **self._life.look(),
        }
        self._picture.put("playground", {"playground": shown})

"""A browser as the console's gate meets it: requests as raw ASGI, as no client library would make them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from quorumlog.console.access import ConsoleGate
from quorumlog.console.application import ConsoleEndpoints
from quorumlog.console.assets import Assets
from quorumlog.console.page_stream import PageStreams
from quorumlog.console.poller import OpenPages
from quorumlog.console.shared_state import SharedState

HOST = "127.0.0.1:7000"
PATIENCE_S = 30


@dataclass
class Answer:
    """The response. ``chunks`` grows while a stream lasts."""

    status: int = 0
    headers: dict[str, str] = field(default_factory=dict)
    chunks: list[bytes] = field(default_factory=list)
    ended: bool = False

    @property
    def text(self) -> str:
        return b"".join(self.chunks).decode()

    def events(self) -> list[dict[str, Any]]:
        return [json.loads(line[6:]) for line in self.text.splitlines() if line.startswith("data: ")]


class RawBrowser:
    """Asks a gate."""

    def __init__(self) -> None:
        self.picture, self.pages = SharedState(), OpenPages()
        self.gate = ConsoleGate(
            ConsoleEndpoints(PageStreams(self.picture, self.pages), Assets()).application(),
            [HOST, "Localhost:7000"],
            7000,
        )
        self.cookie = ""

    def start(
        self,
        path: str,
        method: str = "GET",
        headers: Iterable[tuple[str, str]] = (),
        host: str = HOST,
        body: bytes = b"",
    ) -> tuple[Answer, asyncio.Task[None], asyncio.Event]:
        """Asks, and continues; the event closes the connection."""
        answer, gone = Answer(), asyncio.Event()
        sent = [("host", host), *headers, *([("cookie", self.cookie)] if self.cookie else [])]
        raw, _, query = path.partition("?")
        scope = {
            "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": method, "path": raw,
            "raw_path": raw.encode(), "query_string": query.encode(), "root_path": "", "scheme": "http",
            "headers": [(name.encode(), value.encode()) for name, value in sent], "client": None, "server": None,
        }  # fmt: skip
        is_requested = False

        async def receive() -> dict[str, Any]:
            nonlocal is_requested
            if not is_requested:
                is_requested = True
                return {"type": "http.request", "body": body, "more_body": False}
            await gone.wait()
            return {"type": "http.disconnect"}

        async def send(message: Any) -> None:
            if message["type"] == "http.response.start":
                answer.status = message["status"]
                answer.headers = {name.decode(): value.decode() for name, value in message["headers"]}
            else:
                answer.chunks.append(message.get("body", b""))
                answer.ended = not message.get("more_body", False)

        return answer, asyncio.create_task(self.gate(scope, receive, send)), gone

    async def ask(
        self, path: str, method: str = "GET", *headers: tuple[str, str], host: str = HOST, body: bytes = b""
    ) -> Answer:
        answer, task, gone = self.start(path, method, headers, host, body)
        await asyncio.wait_for(task, PATIENCE_S)
        gone.set()
        return answer

    async def enter(self) -> None:
        answer = await self.ask(f"/?token={self.gate.token}")
        self.cookie = answer.headers["set-cookie"].partition(";")[0]

"""Answers to clients, as the services of a node give them."""

from __future__ import annotations

from google.protobuf.message import Message as ProtoMessage

from quorumlog.server.events import Reply


class Replies:
    """Gathers the answers of a step."""

    def __init__(self) -> None:
        self._gathered: list[Reply] = []

    def reply(self, request_id: int, message: ProtoMessage) -> None:
        """Answers a client's request."""
        self._gathered.append(Reply(request_id, message))

    def take_gathered(self) -> list[Reply]:
        """Takes out what was answered since the last call, in order."""
        gathered, self._gathered = self._gathered, []
        return gathered

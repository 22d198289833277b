"""Answers to clients, as the services of a node give them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from google.protobuf.message import Message as ProtoMessage

from quorumlog.server.step.events import Reply


class ReplyListener(Protocol):
    """Who hears of every answer."""

    def replied(self, request_id: int, response: ProtoMessage, /) -> None:
        """A request has been answered."""


class Replies:
    """Gathers the answers of a step.

    Attributes:
        listener: hears of each; None: nobody does.
    """

    def __init__(self) -> None:
        self._gathered: list[Reply] = []
        self.listener: ReplyListener | None = None

    def reply(self, request_id: int, message: ProtoMessage, entries: Sequence[Sequence[bytes]] = ()) -> None:
        """Answers a client's request.

        Arguments:
            entries: of an answer to a fetch, for each of its results, which have none themselves.
        """
        if self.listener is not None:
            self.listener.replied(request_id, message)
        self._gathered.append(Reply(request_id, message, entries))

    def take_gathered(self) -> list[Reply]:
        """Takes out what was answered since the last call, in order."""
        gathered, self._gathered = self._gathered, []
        return gathered

"""Replies to clients, as a node's services produce them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from google.protobuf.message import Message as ProtoMessage

from quorumlog.server.step.events import Reply


class ReplyListener(Protocol):
    """Observer of all replies."""

    def replied(self, request_id: int, response: ProtoMessage, /) -> None:
        """Reports that a request has been answered."""


class Replies:
    """Collects the replies of a step.

    Attributes:
        listener: notified of each reply; None: no listener.
    """

    def __init__(self) -> None:
        self._gathered: list[Reply] = []
        self.listener: ReplyListener | None = None

    def reply(self, request_id: int, message: ProtoMessage, entries: Sequence[Sequence[bytes]] = ()) -> None:
        """Adds the reply to a client's request.

        Arguments:
            entries: the entries of a reply to a fetch, for each of its results; the results in ``message`` have none.
        """
        if self.listener is not None:
            self.listener.replied(request_id, message)
        self._gathered.append(Reply(request_id, message, entries))

    def take_gathered(self) -> list[Reply]:
        """Removes and returns the replies since the last call, in order."""
        gathered, self._gathered = self._gathered, []
        return gathered

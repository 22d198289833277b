"""What has come of requests that are not whole yet, of all connections together: so much at most.

A request may be large, and nobody knows whether the rest of it ever comes. Whoever sends many of them a little at a
time, on connections of their own, would fill the node's memory. So beyond a bound the one that has been on its way for
the longest has to make way: honest ones are whole in a moment, and come again if it should hit one of them.
"""

from __future__ import annotations

from typing import Generic, NamedTuple, TypeVar

ConnectionT = TypeVar("ConnectionT")

#: Of all connections together, beside requests so small that their number is bounded well enough.
MOST_UNFINISHED_BYTES = 256 << 20
SMALL_BYTES = 64 << 10


class _Unfinished(NamedTuple):
    """What a connection holds.

    Arguments:
        request: which of the connection's requests that is.
    """

    request: int
    size_bytes: int


class UnfinishedRequests(Generic[ConnectionT]):
    """Says whose request has to make way.

    Arguments:
        most_bytes: of all of them; the largest request has room several times.
    """

    def __init__(self, most_bytes: int = MOST_UNFINISHED_BYTES) -> None:
        self._most_bytes = most_bytes
        #: In the order in which the requests were begun.
        self._held: dict[ConnectionT, _Unfinished] = {}
        self.size_bytes = 0

    def note(self, connection: ConnectionT, request: int, size_bytes: int) -> ConnectionT | None:
        """Takes note of what a connection holds by now.

        Arguments:
            request: a number that changes when a request is whole.

        Returns:
            The connection that has to end; None: none has to. It may be this one.
        """
        before = self._held.get(connection)
        if before is not None and (before.request != request or size_bytes <= SMALL_BYTES):
            self.forget(connection)
            before = None
        if size_bytes <= SMALL_BYTES:
            return None
        self._held[connection] = _Unfinished(request, size_bytes)
        self.size_bytes += size_bytes - (before.size_bytes if before is not None else 0)
        return next(iter(self._held)) if self.size_bytes > self._most_bytes else None

    def forget(self, connection: ConnectionT) -> None:
        """A connection holds nothing any more."""
        held = self._held.pop(connection, None)
        if held is not None:
            self.size_bytes -= held.size_bytes

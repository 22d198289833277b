"""Bytes that connections hold in the node's memory, and that may never become of use: so many of all of them together.

Two things can be large and stay: a request of which nobody knows whether the rest ever comes, and answers that a client
does not read, or that wait for one before them. Each connection has a bound for both, and there may be thousands of
connections. So beyond a bound of all together, the one that has not moved for the longest has to make way. Honest ones
move in a moment, and come again if it should hit one of them.
"""

from __future__ import annotations

from typing import Generic, NamedTuple, TypeVar

ConnectionT = TypeVar("ConnectionT")

#: Of all connections together, beside what is so small that the number of connections bounds it well enough.
MOST_HELD_BYTES = 256 << 20
SMALL_BYTES = 64 << 10


class _Share(NamedTuple):
    """What a connection holds.

    Arguments:
        moves: how often it has moved so far.
    """

    moves: int
    size_bytes: int


class MemoryBudget(Generic[ConnectionT]):
    """Says which connection has to make way.

    Arguments:
        most_bytes: of all of them; the largest has room several times.
    """

    def __init__(self, most_bytes: int = MOST_HELD_BYTES) -> None:
        self._most_bytes = most_bytes
        #: Those that have not moved for the longest come first.
        self._shares: dict[ConnectionT, _Share] = {}
        self.size_bytes = 0

    def note(self, connection: ConnectionT, moves: int, size_bytes: int) -> ConnectionT | None:
        """Takes note of what a connection holds by now.

        Arguments:
            moves: another number than before if it has moved.

        Returns:
            The connection that has to end; None: none has to. It may be this one.
        """
        before = self._shares.get(connection)
        if before is not None and (before.moves != moves or size_bytes <= SMALL_BYTES):
            self.forget(connection)
            before = None
        if size_bytes <= SMALL_BYTES:
            return None
        self._shares[connection] = _Share(moves, size_bytes)
        self.size_bytes += size_bytes - (before.size_bytes if before is not None else 0)
        return next(iter(self._shares)) if self.size_bytes > self._most_bytes else None

    def forget(self, connection: ConnectionT) -> None:
        """A connection holds nothing any more."""
        share = self._shares.pop(connection, None)
        if share is not None:
            self.size_bytes -= share.size_bytes

"""A memory budget shared by all connections, for incomplete requests and unread responses.

Both can be large and stay: the rest of an incomplete request may never arrive, and a client may not read its
responses, or they wait for an earlier one. Each connection has a limit for both, but there may be thousands of
connections. Above a limit shared by all connections, the one that has made no progress for the longest is closed.
Legitimate clients make progress within moments, and reconnect if one of them should be hit.
"""

from __future__ import annotations

from typing import Generic, NamedTuple, TypeVar

ConnectionT = TypeVar("ConnectionT")

#: Limit shared by all connections. Shares up to SMALL_BYTES are not counted: the number of connections bounds them.
MOST_HELD_BYTES = 256 << 20
SMALL_BYTES = 64 << 10


class _Share(NamedTuple):
    """Memory held by a connection.

    Arguments:
        moves: how often it has made progress so far.
    """

    moves: int
    size_bytes: int


class MemoryBudget(Generic[ConnectionT]):
    """Selects the connection that has to be closed.

    Arguments:
        most_bytes: limit shared by all connections; several times the largest share.
    """

    def __init__(self, most_bytes: int = MOST_HELD_BYTES) -> None:
        self._most_bytes = most_bytes
        #: The connection without progress for the longest comes first.
        self._shares: dict[ConnectionT, _Share] = {}
        self.size_bytes = 0

    def note(self, connection: ConnectionT, moves: int, size_bytes: int) -> ConnectionT | None:
        """Records how much a connection holds now.

        Arguments:
            moves: differs from the previous call if the connection has made progress.

        Returns:
            The connection that has to be closed, possibly this one; None: the budget suffices.
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
        """Removes a connection's share."""
        share = self._shares.pop(connection, None)
        if share is not None:
            self.size_bytes -= share.size_bytes

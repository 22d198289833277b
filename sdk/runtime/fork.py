"""Detects that the process has forked, so that clients refuse to work in the child instead of hanging.

A child inherits a client's memory but none of its threads: a call would wait for an event loop that does not run. The
same applies to gRPC itself: once its threads ran in the parent, no client created in the child would ever receive a
response.
"""

from __future__ import annotations

import gc
import os
import weakref

from quorumlog.sdk.errors import ForkedClientError


class _Process:
    """This module's state of the process."""

    def __init__(self) -> None:
        #: Those of all clients.
        self.guards: weakref.WeakSet[ForkGuard] = weakref.WeakSet()
        self.connections: weakref.WeakSet[object] = weakref.WeakSet()
        self.connected = False
        self.parent_connected = False
        self._inherited: list[object] = []

    def forked(self) -> None:
        """Handles a fork, in the child. Keeps gRPC's objects from being freed here, where its threads are missing."""
        for guard in self.guards:
            guard.same_process = False
        if self.connected:
            self.parent_connected = True
            self._inherited.extend(self.connections)
            gc.freeze()
        self.connected = False


_process = _Process()
os.register_at_fork(after_in_child=_process.forked)


def connecting(connection: object) -> None:
    """Notes that a connection is about to be made in this process.

    Arguments:
        connection: its holder.

    Raises:
        ForkedClientError: gRPC cannot work here, because it has worked in the process that this one was forked from.
    """
    if _process.parent_connected:
        raise ForkedClientError(
            "this process was forked from one in which a quorumlog client had connected, which gRPC does not survive:"
            " start workers by multiprocessing's 'spawn' or 'forkserver', or make clients in the children only"
        )
    _process.connected = True
    _process.connections.add(connection)


class ForkGuard:
    """The process that a client was created in."""

    __slots__ = ("__weakref__", "_client", "same_process")

    def __init__(self, client: str) -> None:
        self._client = client
        #: False in a child that was forked since. A field, because a producer looks at it for each record.
        self.same_process = True
        _process.guards.add(self)

    def check(self) -> None:
        """Raises ForkedClientError in a child."""
        if not self.same_process:
            raise ForkedClientError(
                f"this {self._client} was made before the process forked (now pid {os.getpid()}): its connections are"
                " the parent's; start workers by multiprocessing's 'spawn' or 'forkserver' and make a client in each"
            )

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
        #: Number of forks between the first process and this one.
        self.generation = 0
        self.connections: weakref.WeakSet[object] = weakref.WeakSet()
        self.connected = False
        self.parent_connected = False
        self._inherited: list[object] = []

    def forked(self) -> None:
        """Handles a fork, in the child. Keeps gRPC's objects from being freed here, where its threads are missing."""
        self.generation += 1
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

    __slots__ = ("_born", "_client")

    def __init__(self, client: str) -> None:
        self._client = client
        self._born = _process.generation

    @property
    def same_process(self) -> bool:
        """False in a child that was forked since."""
        return self._born == _process.generation

    def check(self) -> None:
        """Raises ForkedClientError in a child."""
        if self._born != _process.generation:
            raise ForkedClientError(
                f"this {self._client} was made before the process forked (now pid {os.getpid()}): its connections are"
                " the parent's; start workers by multiprocessing's 'spawn' or 'forkserver' and make a client in each"
            )

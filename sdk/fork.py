"""Notices that the process has forked, so that a client object of the parent refuses to work in the child.

A child inherits a client's memory but none of its threads; a call would wait for an event loop that does not run.
"""

from __future__ import annotations

import os

from quorumlog.sdk.errors import ForkedClientError

#: Counts the forks between the first process and this one. A list, so that a check costs no global statement.
_generation = [0]


def _forked() -> None:
    _generation[0] += 1


os.register_at_fork(after_in_child=_forked)


class ForkGuard:
    """Remembers the process that a client was made in."""

    __slots__ = ("_born", "_client")

    def __init__(self, client: str) -> None:
        self._client = client
        self._born = _generation[0]

    @property
    def same_process(self) -> bool:
        """False in a child that was forked since."""
        return self._born == _generation[0]

    def check(self) -> None:
        """Raises ForkedClientError in a child."""
        if self._born != _generation[0]:
            raise ForkedClientError(
                f"this {self._client} was made before the process forked (now pid {os.getpid()}):"
                " its connections belong to the parent; make a new one in the child"
            )

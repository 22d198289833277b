"""A peer of the benchmark: servers that can be started, and sides, the ways of using them that are compared."""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol


class Kind(enum.Enum):
    """Kind of load; the value is the call of the client."""

    PRODUCE = "produce"
    CONSUME = "consume"
    SINGLY = "singly"
    STEADY = "steady"


class RunningServers(Protocol):
    """Three servers."""

    @property
    def addresses(self) -> str:
        """``host:port`` of each, separated by commas."""

    @property
    def pids(self) -> Mapping[str, int]:
        """Process ids, by the names that the client's ``leader`` gives."""

    def kill(self, name: str) -> None:
        """SIGKILL."""


@dataclass(slots=True, frozen=True)
class Side:
    """One way of using a peer, a line of the report under each load of its kind.

    Arguments:
        name: as the report says it.
        client: the module of ``bench.peers.clients``.
        options: of the client, beside its defaults.
        configs: of the topic, beside the peer's defaults.
        call: of the module, where it is not the kind's own.
        share: of a load's records that it is measured with: for clients so slow that all would take minutes.
    """

    name: str
    kind: Kind
    client: str
    options: Mapping[str, object] = field(default_factory=dict)
    configs: Mapping[str, str] = field(default_factory=dict)
    call: str = ""
    share: float = 1.0


@dataclass(slots=True, frozen=True)
class Peer:
    """Servers of one store with one set of settings.

    Arguments:
        product: what ``--only`` takes.
        name: as the report says it.
        settings: of the servers, as the report says them: what is not named is as shipped.
        missing: what to install, one line; empty where nothing is missing.
        version: of the servers; asked only where nothing is missing.
        start: starts the servers with a directory of their own in the given one.
        sides: compared. The first that produces also writes what is consumed.
        reserved: why it is measured only where ``--only`` names it; empty where it always is.
    """

    product: str
    name: str
    settings: str
    missing: Callable[[], str]
    version: Callable[[], str]
    start: Callable[[Path], AbstractContextManager[RunningServers]]
    sides: tuple[Side, ...]
    reserved: str = ""

    def sides_of(self, kind: Kind) -> tuple[Side, ...]:
        """Those of a kind."""
        return tuple(side for side in self.sides if side.kind is kind)

"""Changes of several things at once. Each succeeds or fails on its own.

Requests go to one node. Failed changes are repeated if that is safe.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Hashable, Iterable
from typing import Any, Generic, Protocol, TypeVar

from quorumlog.sdk.cluster.cluster import Cluster
from quorumlog.sdk.cluster.connection import NodeConnection
from quorumlog.sdk.cluster.request_parts import in_parts
from quorumlog.sdk.errors import QuorumlogError, UnknownServerError, error_from_proto
from quorumlog.v1 import errors_pb2

#: Identifies a thing.
Key = TypeVar("Key", bound=Hashable)

#: Limit of things that the message of a failure names.
_MOST_NAMED = 20


class ItemResult(Protocol):
    """A node's result for one thing."""

    @property
    def error(self) -> errors_pb2.Error:
        """Why it failed."""

    def HasField(self, field_name: Any, /) -> bool:  # protobuf's name
        """True if a field is set."""


#: Sends some of the changes to a node.
_Ask = Callable[[NodeConnection, list[Key]], Awaitable[Iterable[tuple[Key, ItemResult]]]]


async def one_node(cluster: Cluster) -> NodeConnection:
    """Returns one node for a change: of two nodes, the second would find it already made."""
    await cluster.ask_metadata([])
    return cluster.candidates()[0]


async def change_each(
    cluster: Cluster,
    keys: Collection[Key],
    ask: Callable[[NodeConnection, list[Key]], Awaitable[Iterable[tuple[Key, ItemResult]]]],
    done_already: Callable[[Key, QuorumlogError], bool],
    limit_s: float,
    what: str,
    *,
    most: int,
) -> None:
    """Requests changes until each has succeeded or failed permanently, in as many requests as necessary.

    Arguments:
        ask: sends some of them to a node.
        done_already: True if a refusal means success when an earlier attempt had no response: that attempt took effect.
        most: limit of changes in one request.

    Raises:
        QuorumlogError: of the first that failed. The message names the failed ones; the others succeeded.
    """
    change = _ItemisedChange(cluster, keys, ask, done_already, most)
    failure: QuorumlogError | None = None
    try:
        if keys:
            await cluster.retrying(change.attempt, limit_s, what)
    except QuorumlogError as error:
        failure = error
    failure = change.first_refusal or failure
    if failure is not None:
        raise change.told(failure)


class _ItemisedChange(Generic[Key]):
    """State of the things to be changed; see `change_each`."""

    def __init__(
        self,
        cluster: Cluster,
        keys: Collection[Key],
        ask: _Ask[Key],
        done_already: Callable[[Key, QuorumlogError], bool],
        most: int,
    ) -> None:
        self._cluster = cluster
        self._ask = ask
        self._done_already = done_already
        self._most = most
        #: In the order of the call.
        self._pending = dict.fromkeys(keys)
        self._count = len(self._pending)
        #: Things for which an attempt may have taken effect.
        self._unsure: set[Key] = set()
        #: Things that failed permanently.
        self._refused: dict[Key, QuorumlogError] = {}

    @property
    def first_refusal(self) -> QuorumlogError | None:
        """The error of the first thing that failed permanently."""
        return next(iter(self._refused.values()), None)

    def told(self, failure: QuorumlogError) -> QuorumlogError:
        """Returns the caller's error: the reason of one failure, and the names of all failed things."""
        failed = [*self._refused, *self._pending]
        if not self._unsure.isdisjoint(failed):
            failure = failure.as_indefinite()
        if self._count == 1:
            return failure
        names = ", ".join(map(_shown, failed[:_MOST_NAMED]))
        more = f" and {len(failed) - _MOST_NAMED} more" if len(failed) > _MOST_NAMED else ""
        succeeded = (
            f"the other {self._count - len(failed)} succeeded" if len(failed) < self._count else "none succeeded"
        )
        message = f"{failure.message} (failed: {names}{more}; {succeeded})"
        return type(failure)(message, retriable=failure.retriable, definite=failure.definite)

    async def attempt(self) -> None:
        """Requests all pending changes. A request that fails does not prevent the next one.

        Raises:
            QuorumlogError: of the first that can be retried.
        """
        failures: list[QuorumlogError] = []
        node = await one_node(self._cluster)
        for part in list(in_parts(self._pending, self._most)):
            if node.suspect:
                node = await one_node(self._cluster)
            failures += await self._attempt_part(node, part)
        if failures:
            raise failures[0]

    async def _attempt_part(self, node: NodeConnection, part: list[Key]) -> list[QuorumlogError]:
        """Requests changes that fit into one request; returns the errors that can be retried."""
        try:
            results = dict(await self._ask(node, part))
        except QuorumlogError as error:
            return self._failed(part, error)
        except asyncio.CancelledError:
            self._unsure.update(part)  # The time of all attempts was over.
            raise
        failures: list[QuorumlogError] = []
        for key in part:
            result = results.get(key)
            if result is None:
                nothing = UnknownServerError(f"{node.address} left {_shown(key)} out of its answer", retriable=True)
                failures += self._failed([key], nothing)
                continue
            refusal = error_from_proto(result.error) if result.HasField("error") else None
            if refusal is None or (key in self._unsure and self._done_already(key, refusal)):
                del self._pending[key]
            else:
                failures += self._failed([key], refusal)
        return failures

    def _failed(self, keys: list[Key], error: QuorumlogError) -> list[QuorumlogError]:
        """Records the result of things with a common error; returns it if it can be retried."""
        if not error.definite:
            self._unsure.update(keys)
        if error.retriable:
            return [error]
        for key in keys:
            del self._pending[key]
            self._refused[key] = error
        return []


def _shown(key: object) -> str:
    return "-".join(map(str, key)) if isinstance(key, tuple) else str(key)

"""Changes of several things at once. Each succeeds or fails on its own.

One node is asked. What failed is tried again where that is safe.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Iterable
from typing import Any, Protocol, TypeVar

from quorumlog.sdk.cluster.cluster import Cluster
from quorumlog.sdk.cluster.connection import NodeConnection
from quorumlog.sdk.cluster.request_parts import MOST_ITEMS
from quorumlog.sdk.errors import QuorumlogError, error_from_proto
from quorumlog.v1 import errors_pb2

#: Says which thing it is.
Key = TypeVar("Key")


class ItemResult(Protocol):
    """The outcome for one thing, as a node answers it."""

    @property
    def error(self) -> errors_pb2.Error:
        """Why it failed."""

    def HasField(self, field_name: Any, /) -> bool:  # protobuf's name
        """Whether a field is set."""


async def one_node(cluster: Cluster) -> NodeConnection:
    """One node to ask for a change: of two asked at once, the second would find it done."""
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
    most: int = MOST_ITEMS,
) -> None:
    """Asks for changes until each has succeeded or failed for good.

    Arguments:
        ask: asks a node for some of them.
        done_already: whether a refusal means success where an earlier attempt had no answer: that attempt has done it.
        most: of them in one request.

    Raises:
        QuorumlogError: of the first that could not be done; others may have been.
    """
    pending = dict.fromkeys(keys)
    unsure: set[Key] = set()

    async def attempt() -> None:
        failure: QuorumlogError | None = None
        node = await one_node(cluster)
        asked = list(pending)
        for first in range(0, len(asked), most):
            part = asked[first : first + most]
            try:
                results = await ask(node, part)
            except QuorumlogError as error:
                if not error.definite:
                    unsure.update(part)
                raise
            for key, result in results:
                refusal = error_from_proto(result.error) if result.HasField("error") else None
                if refusal is None or (key in unsure and done_already(key, refusal)):
                    pending.pop(key, None)
                    continue
                if key in unsure:
                    refusal = refusal.as_indefinite()
                elif not refusal.definite:
                    unsure.add(key)
                if failure is None or not refusal.retriable:
                    failure = refusal
        if failure is not None:
            raise failure

    if pending:
        await cluster.retrying(attempt, limit_s, what)

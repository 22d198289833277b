"""Lists and deletes producer names: asked of any node, tried again where that is safe."""

from __future__ import annotations

from collections.abc import Sequence

from quorumlog.sdk.cluster.cluster import Cluster
from quorumlog.sdk.cluster.connection import NodeConnection
from quorumlog.sdk.cluster.itemised_change import ItemResult, change_each
from quorumlog.sdk.errors import ProducerNameNotFoundError, QuorumlogError, error_from_proto
from quorumlog.sdk.types import ProducerListing
from quorumlog.v1 import admin_pb2

#: Names in one request, the nodes' limit.
MAX_REQUEST_NAMES = 1_000


async def list_producers(cluster: Cluster, prefix: str, limit_s: float) -> list[ProducerListing]:
    """The producer names that begin with ``prefix``, in their order. Each page is as of when it was asked for."""
    found: list[ProducerListing] = []

    async def attempt() -> None:
        more = True
        while more:
            request = admin_pb2.ListProducersRequest(
                prefix=prefix, after=found[-1].name if found else "", timeout_ms=int(limit_s * 1000)
            )
            response = await page(request)
            if response.HasField("error"):
                raise error_from_proto(response.error)
            found.extend(
                ProducerListing(each.name, each.producer_id, each.producer_epoch, each.claimed_ms)
                for each in response.producers
            )
            more = response.more

    async def page(request: admin_pb2.ListProducersRequest) -> admin_pb2.ListProducersResponse:
        return await cluster.ask_any(lambda node, limit: node.admin.ListProducers(request, timeout=limit))

    await cluster.retrying(attempt, limit_s, "list_producers")
    return found


async def delete_producers(cluster: Cluster, names: Sequence[str], claimed_before_ms: int, limit_s: float) -> None:
    """Deletes producer names until each is gone, or cannot be deleted.

    Arguments:
        claimed_before_ms: only if they were claimed last before this time; 0: whenever it was.

    Raises:
        QuorumlogError: of the first that could not be deleted; others may have been.
    """

    async def ask(node: NodeConnection, part: list[str]) -> list[tuple[str, ItemResult]]:
        request = admin_pb2.DeleteProducersRequest(
            names=part, claimed_before_ms=claimed_before_ms, timeout_ms=int(limit_s * 1000)
        )
        response = await node.call(node.admin.DeleteProducers(request, timeout=limit_s))
        return [(result.name, result) for result in response.results]

    def is_gone(name: str, refusal: QuorumlogError) -> bool:
        return isinstance(refusal, ProducerNameNotFoundError)

    await change_each(cluster, names, ask, is_gone, limit_s, "delete_producers", most=MAX_REQUEST_NAMES)

"""Lists and deletes producer names, by requests to any node, which are repeated if that is safe."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import takewhile

from quorumlog.sdk.cluster.cluster import Cluster
from quorumlog.sdk.cluster.connection import NodeConnection
from quorumlog.sdk.cluster.itemised_change import ItemResult, change_each
from quorumlog.sdk.cluster.request_parts import in_parts
from quorumlog.sdk.errors import ProducerNameNotFoundError, QuorumlogError, error_from_proto
from quorumlog.sdk.types import ProducerListing
from quorumlog.v1 import admin_pb2
from quorumlog.wire.request_limits import MAX_PRODUCER_NAMES


async def list_producers(cluster: Cluster, prefix: str, limit_s: float) -> list[ProducerListing]:
    """Returns the producer names with a prefix, sorted. Each page is as new as its request."""
    return await _list(cluster, prefix, (), limit_s)


async def delete_producers(cluster: Cluster, names: Sequence[str], claimed_before_ms: int, limit_s: float) -> None:
    """Deletes producer names until each is deleted, or cannot be.

    It deletes the present claims. A name that is claimed during the call stays, however often the request is repeated.

    Arguments:
        claimed_before_ms: only names whose last claim is older than this time; 0: all.

    Raises:
        QuorumlogError: of the first that could not be deleted; others may have been.
    """

    claims = await _claims_of(cluster, names, limit_s)

    async def ask(node: NodeConnection, part: list[str]) -> list[tuple[str, ItemResult]]:
        request = admin_pb2.DeleteProducersRequest(
            names=part,
            claimed_before_ms=claimed_before_ms,
            timeout_ms=int(limit_s * 1000),
            claims=[claims[name] for name in part],
        )
        response = await node.call(node.admin.DeleteProducers(request, timeout=limit_s))
        return [(result.name, result) for result in response.results]

    def is_gone(name: str, refusal: QuorumlogError) -> bool:
        return isinstance(refusal, ProducerNameNotFoundError)

    await change_each(cluster, names, ask, is_gone, limit_s, "delete_producers", most=MAX_PRODUCER_NAMES)


async def _list(cluster: Cluster, prefix: str, names: Sequence[str], limit_s: float) -> list[ProducerListing]:
    """Returns the names with a prefix; only some of them, if ``names`` are given."""
    found: list[ProducerListing] = []

    async def attempt() -> None:
        more = True
        while more:
            request = admin_pb2.ListProducersRequest(
                prefix=prefix, after=found[-1].name if found else "", timeout_ms=int(limit_s * 1000), names=names
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


async def _claims_of(cluster: Cluster, names: Sequence[str], limit_s: float) -> dict[str, admin_pb2.ProducerClaim]:
    """Returns the newest claim of each name now; one with id -1 if it is not claimed."""
    claims = {name: admin_pb2.ProducerClaim(producer_id=-1, producer_epoch=-1) for name in names}
    wanted = sorted(claims)
    for part in in_parts(wanted, MAX_PRODUCER_NAMES):
        # A node of a version that cannot look up single names returns all with this prefix.
        for each in await _list(cluster, _common_prefix(part[0], part[-1]), part, limit_s):
            if each.name in claims:
                claims[each.name] = admin_pb2.ProducerClaim(
                    producer_id=each.producer_id, producer_epoch=each.producer_epoch
                )
    return claims


def _common_prefix(first: str, last: str) -> str:
    """Returns the common prefix of all names that sort between these two."""
    same = takewhile(lambda pair: pair[0] == pair[1], zip(first, last, strict=False))
    return "".join(character for character, _ in same)

"""The identity of an idempotent producer: a fresh one, or a named one that is claimed."""

from __future__ import annotations

from typing import NamedTuple

from quorumlog.sdk.cluster.cluster import Cluster
from quorumlog.sdk.cluster.transaction_coordinator import TransactionCoordinator
from quorumlog.sdk.errors import ServerBusyError, error_from_proto
from quorumlog.sdk.producer.config import ProducerConfig
from quorumlog.v1 import data_plane_pb2

_NEXT_EPOCH = -1
_NONE = -1
#: Consecutive claims, each based on the previous response, before a pause.
_QUICK_CLAIMS = 3


class ProducerIdentity(NamedTuple):
    """The identity of an idempotent producer in the log.

    Arguments:
        replayable: True if the epoch may be sent again from its start, so that the log compares batches that it has.
        transactional: True if the batches are part of a transaction.
    """

    producer_id: int
    epoch: int
    replayable: bool = False
    transactional: bool = False


async def obtain_identity(config: ProducerConfig, cluster: Cluster) -> ProducerIdentity:
    """Requests an identity from any node, with retries within the delivery time.

    The next epoch of a name is claimed by naming the last one, which the first refusal reports. So a claim that is
    repeated because its response was lost, or was sent to two nodes at once, cannot fence this very producer; at most
    it skips an epoch.

    Raises:
        InvalidProducerEpochError: the name was claimed with a later epoch.
        QuorumlogError: no node returned an identity.
    """
    if config.producer_id is not None and config.producer_epoch is not None:
        return ProducerIdentity(config.producer_id, config.producer_epoch, config.replayable)
    if config.joins is not None:
        limit_s = config.delivery_timeout_ms / 1000
        writer = await TransactionCoordinator(cluster, config.joins.transactional_id, limit_s).join(config.joins)
        return ProducerIdentity(writer.producer_id, writer.producer_epoch, transactional=True)
    known_epoch = _NONE

    async def ask() -> data_plane_pb2.InitProducerIdResponse:
        request = data_plane_pb2.InitProducerIdRequest(
            timeout_ms=int(config.request_timeout_ms),
            name=config.producer_name or "",
            epoch=_NEXT_EPOCH if config.producer_epoch is None else config.producer_epoch,
            known_epoch=known_epoch,
        )
        return await cluster.ask_any(lambda node, limit: node.data_plane.InitProducerId(request, timeout=limit))

    async def attempt() -> ProducerIdentity:
        nonlocal known_epoch
        for _ in range(_QUICK_CLAIMS):
            response = await ask()
            if response.HasField("error"):
                raise error_from_proto(response.error)
            if response.producer_id >= 0:
                return ProducerIdentity(response.producer_id, response.producer_epoch, config.replayable)
            known_epoch = response.producer_epoch
        raise ServerBusyError(f"other producers are claiming the producer name {config.producer_name!r} too")

    return await cluster.retrying(attempt, config.delivery_timeout_ms / 1000, "the request for a producer id")

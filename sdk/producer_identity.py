"""Where an idempotent producer's identity comes from: a fresh one, or one with a name that is claimed."""

from __future__ import annotations

from typing import NamedTuple

from quorumlog.sdk.cluster import Cluster
from quorumlog.sdk.errors import error_from_proto
from quorumlog.sdk.producer_config import ProducerConfig
from quorumlog.v1 import data_plane_pb2

_NEXT_EPOCH = -1


class ProducerIdentity(NamedTuple):
    """What the log knows an idempotent producer by.

    Arguments:
        replayable: whether the epoch may be sent again from its start, so that the log compares what it has.
    """

    producer_id: int
    epoch: int
    replayable: bool = False


async def obtain_identity(config: ProducerConfig, cluster: Cluster) -> ProducerIdentity:
    """Asks any node for an identity, again and again within the delivery time.

    A claim whose answer was lost is repeated. That may skip an epoch, which does no harm.

    Raises:
        InvalidProducerEpochError: the name was claimed with a later epoch.
        QuorumlogError: nobody gave one.
    """
    request = data_plane_pb2.InitProducerIdRequest(
        timeout_ms=int(config.request_timeout_ms),
        name=config.producer_name or "",
        epoch=_NEXT_EPOCH if config.producer_epoch is None else config.producer_epoch,
    )

    async def attempt() -> ProducerIdentity:
        response = await cluster.ask_any(lambda node, limit: node.data_plane.InitProducerId(request, timeout=limit))
        if response.HasField("error"):
            raise error_from_proto(response.error)
        return ProducerIdentity(response.producer_id, response.producer_epoch, config.replayable)

    return await cluster.retrying(attempt, config.delivery_timeout_ms / 1000, "InitProducerId")

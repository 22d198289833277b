"""Where an idempotent producer's identity comes from: a fresh one, or one with a name that is claimed."""

from __future__ import annotations

from typing import NamedTuple

from quorumlog.sdk.cluster.cluster import Cluster
from quorumlog.sdk.errors import ServerBusyError, error_from_proto
from quorumlog.sdk.producer.config import ProducerConfig
from quorumlog.v1 import data_plane_pb2

_NEXT_EPOCH = -1
_NONE = -1
#: Claims in a row, each based on the answer to the one before, before there is a pause.
_QUICK_CLAIMS = 3


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

    The next epoch of a name is claimed by naming the last one, which the first refusal tells. So a claim that is
    repeated because its answer was lost, or was asked of two nodes at once, cannot fence this very producer; at most it
    skips an epoch.

    Raises:
        InvalidProducerEpochError: the name was claimed with a later epoch.
        QuorumlogError: nobody gave one.
    """
    if config.producer_id is not None and config.producer_epoch is not None:
        return ProducerIdentity(config.producer_id, config.producer_epoch, config.replayable)
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
        raise ServerBusyError(f"others are claiming the producer name {config.producer_name!r} as well")

    return await cluster.retrying(attempt, config.delivery_timeout_ms / 1000, "the request for a producer id")

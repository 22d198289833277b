"""Decisions on quotas: a request is checked here, and what it does is decided by the log."""

from __future__ import annotations

from quorumlog.server.controller.decision import ControllerDecision, answer_now
from quorumlog.server.controller.feature_levels import refuse_below_second
from quorumlog.server.metadata.image import MetadataImage
from quorumlog.server.metadata.quota_checks import check_quotas
from quorumlog.v1 import metadata_log_pb2, peer_pb2
from quorumlog.v1.quotas_pb2 import AlterClientQuotasRequest, AlterClientQuotasResponse


def decide_on_quotas(
    image: MetadataImage, wall_ms: int, number: int, request: AlterClientQuotasRequest
) -> ControllerDecision:
    """Somebody wants principals to be limited otherwise.

    Arguments:
        image: the controller's.
        wall_ms: milliseconds since the epoch.
        number: of the request.
    """
    refused = (
        refuse_below_second(image, "quotas are kept")
        or check_quotas(request)
        or image.client_quotas.check(request.alterations)
    )
    if refused is not None:
        response = AlterClientQuotasResponse(error=refused)
        return answer_now(number, peer_pb2.ControllerResponse(alter_client_quotas=response))
    if request.validate_only:
        return answer_now(number, peer_pb2.ControllerResponse(alter_client_quotas=AlterClientQuotasResponse()))
    body = metadata_log_pb2.ClientQuotasAltered(alterations=request.alterations)
    command = metadata_log_pb2.MetadataCommand(timestamp_ms=wall_ms, client_quotas_altered=body)
    return ControllerDecision(number, commands=(command,))

"""Principals with quotas, for tests of parts of a node."""

from __future__ import annotations

from quorumlog.server.metadata.image import MetadataImage
from quorumlog.v1 import metadata_log_pb2
from quorumlog.v1.quotas_pb2 import ClientQuotaAlteration, ClientQuotaOp


def limit(image: MetadataImage, principal: str, **values: float | None) -> None:
    """Has an image apply quotas; None removes one."""
    ops = [ClientQuotaOp(key=key, value=value) for key, value in values.items()]
    body = metadata_log_pb2.ClientQuotasAltered(alterations=[ClientQuotaAlteration(principal=principal, ops=ops)])
    image.apply(image.applied_index + 1, metadata_log_pb2.MetadataCommand(client_quotas_altered=body))

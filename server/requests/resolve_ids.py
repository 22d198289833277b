"""Ids of the topics and producer names in a change: they identify what had the name at the time of the request, and
nothing later.

A request may be delayed, or repeated because its response was lost, and by then its name may belong to something else.
Clients therefore send the id with the name. For clients that send names only, the node that receives the request looks
the names up, once, and forwards the request to the controller with the ids.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from quorumlog.server.metadata.image import MetadataImage
from quorumlog.server.metadata.records import NO_TOPIC_ID
from quorumlog.server.step.wire_errors import error
from quorumlog.v1 import admin_pb2, errors_pb2
from quorumlog.v1.errors_pb2 import ErrorCode
from quorumlog.wire.request_limits import MAX_CHANGE_TARGETS

#: Length of a topic id in bytes.
TOPIC_ID_BYTES = 16

#: Changes of existing topics and names.
TargetedChange: TypeAlias = (
    admin_pb2.DeleteTopicsRequest
    | admin_pb2.CreatePartitionsRequest
    | admin_pb2.AlterConfigsRequest
    | admin_pb2.ReassignPartitionsRequest
    | admin_pb2.DeleteProducersRequest
)


def check_targets(request: TargetedChange) -> errors_pb2.Error | None:
    """Returns the error if the ids of a request do not fit its names, independent of the metadata; None if they do."""
    names = _count(request)
    ids: Sequence[bytes] = () if isinstance(request, admin_pb2.DeleteProducersRequest) else _topic_ids(request)
    id_count = len(request.claims) if isinstance(request, admin_pb2.DeleteProducersRequest) else len(ids)
    if names > MAX_CHANGE_TARGETS:
        problem = f"{names} names in one request: at most {MAX_CHANGE_TARGETS} are allowed"
    elif id_count not in (0, names):
        problem = f"{names} names come with {id_count} ids: send one for each, or none"
    elif any(len(topic_id) not in (0, TOPIC_ID_BYTES) for topic_id in ids):
        problem = f"a topic id is not {TOPIC_ID_BYTES} bytes long"
    else:
        return None
    return error(ErrorCode.INVALID_REQUEST, problem)


def names_only(request: TargetedChange) -> bool:
    """True if a request names something without its id."""
    if isinstance(request, admin_pb2.DeleteProducersRequest):
        return len(request.claims) < len(request.names)
    ids = _topic_ids(request)
    return len(ids) < _count(request) or not all(ids)


def add_ids(image: MetadataImage, request: TargetedChange) -> None:
    """Adds the current ids of the names, where none are given, to a request that has passed `check_targets`."""
    if isinstance(request, admin_pb2.DeleteProducersRequest):
        for name in request.names[len(request.claims) :]:
            known = image.named_producers.claim_of(name)
            request.claims.add(producer_id=known.producer_id, producer_epoch=known.producer_epoch)
    elif isinstance(request, admin_pb2.DeleteTopicsRequest):
        sent_ids = request.topic_ids or [b""] * len(request.names)
        ids = [topic_id or _id_of(image, name) for name, topic_id in zip(request.names, sent_ids, strict=True)]
        del request.topic_ids[:]
        request.topic_ids.extend(ids)
    elif isinstance(request, admin_pb2.ReassignPartitionsRequest):
        for reassignment in request.reassignments:
            reassignment.topic_id = reassignment.topic_id or _id_of(image, reassignment.topic)
    else:
        for topic in request.topics:
            topic.topic_id = topic.topic_id or _id_of(image, topic.name)


def _id_of(image: MetadataImage, name: str) -> bytes:
    topic = image.topics.get(name)
    return NO_TOPIC_ID if topic is None else topic.topic_id


def _count(request: TargetedChange) -> int:
    if isinstance(request, admin_pb2.DeleteTopicsRequest | admin_pb2.DeleteProducersRequest):
        return len(request.names)
    if isinstance(request, admin_pb2.ReassignPartitionsRequest):
        return len(request.reassignments)
    return len(request.topics)


def _topic_ids(
    request: admin_pb2.DeleteTopicsRequest
    | admin_pb2.CreatePartitionsRequest
    | admin_pb2.AlterConfigsRequest
    | admin_pb2.ReassignPartitionsRequest,
) -> Sequence[bytes]:
    if isinstance(request, admin_pb2.DeleteTopicsRequest):
        return request.topic_ids
    if isinstance(request, admin_pb2.ReassignPartitionsRequest):
        return [reassignment.topic_id for reassignment in request.reassignments]
    return [topic.topic_id for topic in request.topics]

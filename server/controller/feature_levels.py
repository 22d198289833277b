"""What a cluster cannot do before all of its nodes are upgraded, because older ones would stop at it."""

from __future__ import annotations

from quorumlog.server.metadata.image import MetadataImage
from quorumlog.server.metadata.records import SECOND_FEATURE_LEVEL
from quorumlog.server.wire_errors import error
from quorumlog.v1 import errors_pb2
from quorumlog.v1.errors_pb2 import ErrorCode
from quorumlog.v1.request_limits import LEAST_THROTTLE


def refuse_below_second(image: MetadataImage, what: str) -> errors_pb2.Error | None:
    """Why something cannot be done before feature level 2, or None.

    Arguments:
        what: as the subject and verb of a sentence: "producer names are deleted".
    """
    if image.feature_level >= SECOND_FEATURE_LEVEL:
        return None
    older = ", ".join(map(str, image.older_nodes(SECOND_FEATURE_LEVEL))) or "none any more, try again"
    problem = (
        f"{what} at feature level {SECOND_FEATURE_LEVEL}, the cluster is at {image.feature_level}: it rises by itself"
        f" once all nodes are upgraded (older: {older})"
    )
    return error(ErrorCode.UNSUPPORTED_VERSION, problem)


def refuse_throttle(image: MetadataImage, bytes_per_second: int) -> errors_pb2.Error | None:
    """Why moves cannot be limited like this, or None. 0: no limit."""
    if not bytes_per_second:
        return None
    if bytes_per_second < LEAST_THROTTLE:
        problem = (
            f"a throttle of {bytes_per_second} bytes per second is too slow, moves would hardly end: give"
            f" {LEAST_THROTTLE} or more, or none"
        )
        return error(ErrorCode.INVALID_REQUEST, problem)
    return refuse_below_second(image, "moves are throttled")

"""Rules that may be too old to decide by, where an operator has set how old they may be.

A node that is cut off decides by the rules that it knows, and lets in whoever has been revoked since. With a limit it
serves no records any more once its metadata may be older. That is for those who would rather stop.
"""

from __future__ import annotations

from quorumlog.server.client_origin import ClientOrigin
from quorumlog.server.node_service import StepTime
from quorumlog.server.options import AuthorizationOptions
from quorumlog.server.requests.image_age import UNKNOWN_AGE_MS, ImageAge
from quorumlog.server.wire_errors import error
from quorumlog.v1.errors_pb2 import Error, ErrorCode


class RulesAge:
    """Says whether the rules of this node may be decided by.

    Arguments:
        options: the limit, and for whom no rule counts.
        age: of the metadata, with the rules in them.
        time: of the step under way.
    """

    def __init__(self, options: AuthorizationOptions, age: ImageAge, time: StepTime) -> None:
        self._options = options
        self._age = age
        self._time = time

    def refusal(self, client: ClientOrigin) -> Error | None:
        """Why a client is not served any records now; None if it may be."""
        limit_ms = self._options.image_max_age_ms
        if not limit_ms or client.principal in self._options.super_users:
            return None
        age_ms = self._age.bound_ms(self._time.now)
        if age_ms <= limit_ms:
            return None
        how_old = "of unknown age" if age_ms == UNKNOWN_AGE_MS else f"up to {age_ms} ms old"
        problem = (
            f"this node's rules are {how_old}, and it decides by none older than {limit_ms} ms (acl_image_max_age_ms):"
            " try again once it hears of the metadata"
        )
        return error(ErrorCode.SERVER_BUSY, problem)

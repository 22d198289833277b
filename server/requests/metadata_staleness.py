"""How old this node's image of the metadata may be, and the refusals where an operator limits that age.

The node asks the controller again and again how far the metadata log is committed. The controller answers once a quorum
has confirmed that it led after the question. When the image has applied that much, it shows all that was committed when
the question was *sent*: from then on its age counts, by this node's clock.

A heartbeat would not do: it tells neither that its sender still leads, nor how far the log of a newer leader goes. And
an image that was read from the disk may be of any age.

A node that is cut off decides by the ACLs that it has, and admits users that were revoked since. With a limit
(``acl_image_max_age_ms``) it serves no records once its metadata may be older.
"""

from __future__ import annotations

from quorumlog.server.config.options import AuthorizationOptions, NodeOptions
from quorumlog.server.controller.metadata_replica import MetadataReplica
from quorumlog.server.metadata.controller_client import ControllerClient
from quorumlog.server.step.node_service import ServiceHooks, StepTime
from quorumlog.server.step.request_context import RequestContext
from quorumlog.server.step.wire_errors import error
from quorumlog.v1 import peer_pb2
from quorumlog.v1.errors_pb2 import Error, ErrorCode

#: What is told while there is no bound. To clients that do not know of it, it is an age that nothing exceeds.
UNKNOWN_AGE_MS = (1 << 64) - 1
#: Heartbeat intervals from one question to the next.
ASK_EVERY_HEARTBEATS = 5


class ImageAge:
    """Measures the age of the image. One question at a time is under way.

    Arguments:
        metadata: this node's replica of the metadata group.
        now: the node's time (µs).
    """

    def __init__(self, options: NodeOptions, metadata: MetadataReplica, client: ControllerClient, now: int) -> None:
        self._metadata = metadata
        self._client = client
        self._interval_us = ASK_EVERY_HEARTBEATS * options.heartbeat_interval_us
        self._retry_us = options.heartbeat_interval_us
        self._timeout_us = options.controller_request_timeout_us
        self._shown_at: int | None = None
        #: When the question under way was sent, and the index to be applied once the controller has told it.
        self._asked_at: int | None = None
        self._index: int | None = None
        self._ask_at = now

    def register(self, hooks: ServiceHooks) -> None:
        hooks.on_time(self.on_time)
        hooks.deadline(self)

    def bound_ms(self, now: int) -> int:
        """The age that the image does not exceed, rounded up; UNKNOWN_AGE_MS while nobody has confirmed any."""
        return UNKNOWN_AGE_MS if self._shown_at is None else -((self._shown_at - now) // 1000)

    def on_time(self, now: int, wall_ms: int) -> None:
        """Asks the controller when it is time."""
        if self._asked_at is None and now >= self._ask_at:
            self._ask(now)

    def _ask(self, now: int) -> None:
        self._asked_at = now
        self._ask_at = now + self._interval_us

        def answered(response: peer_pb2.ControllerResponse | None) -> None:
            if response is None or not response.HasField("metadata_read_index"):
                self._asked_at = None
                self._ask_at = now + self._retry_us
                return
            self._index = response.metadata_read_index.index
            self.after_round()

        body = peer_pb2.MetadataReadIndex(timeout_ms=self._timeout_us // 1000, unhurried=True)
        self._client.ask(now + self._timeout_us, peer_pb2.ControllerRequest(metadata_read_index=body), answered)

    def after_round(self) -> None:
        """The metadata group was stepped: the image may show what was asked for."""
        if self._index is not None and self._index <= self._metadata.image.applied_index:
            self._shown_at, self._asked_at, self._index = self._asked_at, None, None

    @property
    def next_deadline(self) -> int | None:
        """When the next question is due; None while one is under way."""
        return self._ask_at if self._asked_at is None else None


class RulesAge:
    """Refuses clients while the ACLs of this node are older than the operator allows.

    Arguments:
        options: the limit, and the super users, whom it does not concern.
        age: of the metadata, which contain the ACLs.
        time: of the step under way.
    """

    def __init__(self, options: AuthorizationOptions, age: ImageAge, time: StepTime) -> None:
        self._options = options
        self._age = age
        self._time = time

    def refusal(self, client: RequestContext) -> Error | None:
        """Returns why a client is served no records now; None if it may be served."""
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

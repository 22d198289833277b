"""The age of this node's metadata image, and the refusals where an operator limits that age.

The node asks the controller repeatedly for the commit index of the metadata log. The controller answers once a quorum
has confirmed that it led after the request. When the image has applied that index, it contains everything that was
committed when the request was *sent*: its age counts from then, by this node's clock.

A heartbeat would not suffice: it proves neither that its sender still leads, nor how far the log of a newer leader
extends. And an image that was read from the disk may be of any age.

A partitioned node authorizes by the ACLs that it has, and admits users that were revoked since. With a limit
(``acl_image_max_age_ms``) it serves no records once its metadata may be older than that.
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

#: Age that is reported while no bound is known. Clients that do not handle this value take it for an age larger than
#: any limit.
UNKNOWN_AGE_MS = (1 << 64) - 1
#: Heartbeat intervals between two requests.
ASK_EVERY_HEARTBEATS = 5


class ImageAge:
    """Measures the age of the image. One request at a time is in flight.

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
        self._started_at = now
        self._shown_at: int | None = None
        #: Time at which the request in flight was sent, and the index to be applied once the controller has returned
        #: it.
        self._asked_at: int | None = None
        self._index: int | None = None
        self._ask_at = now

    def register(self, hooks: ServiceHooks) -> None:
        hooks.on_time(self.on_time)
        hooks.deadline(self)

    def bound_ms(self, now: int) -> int:
        """Returns an upper bound of the image's age, rounded up; UNKNOWN_AGE_MS if no controller has confirmed one."""
        return UNKNOWN_AGE_MS if self._shown_at is None else -((self._shown_at - now) // 1000)

    @property
    def confirmed_at(self) -> int:
        """Time at which the image was last confirmed (µs); that of the node's start if it never was."""
        return self._started_at if self._shown_at is None else self._shown_at

    def on_time(self, now: int, wall_ms: int) -> None:
        """Asks the controller when the next request is due."""
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
        """Completes the request in flight if the image has applied its index after a step of the metadata group."""
        if self._index is not None and self._index <= self._metadata.image.applied_index:
            self._shown_at, self._asked_at, self._index = self._asked_at, None, None

    @property
    def next_deadline(self) -> int | None:
        """Time at which the next request is due; None while one is in flight."""
        return self._ask_at if self._asked_at is None else None


class RulesAge:
    """Refuses clients while the ACLs of this node are older than the operator allows.

    Arguments:
        options: the limit, and the super users, who are exempt from it.
        age: age of the metadata, which contain the ACLs.
        time: time of the current step.
    """

    def __init__(self, options: AuthorizationOptions, age: ImageAge, time: StepTime) -> None:
        self._options = options
        self._age = age
        self._time = time

    def refusal(self, client: RequestContext) -> Error | None:
        """Returns the error for a client that is served no records now; None if it may be served."""
        limit_ms = self._options.image_max_age_ms
        if not limit_ms or client.principal in self._options.super_users:
            return None
        age_ms = self._age.bound_ms(self._time.now)
        if age_ms <= limit_ms:
            return None
        how_old = "of unknown age" if age_ms == UNKNOWN_AGE_MS else f"up to {age_ms} ms old"
        problem = (
            f"this node's ACLs are {how_old}, but may be at most {limit_ms} ms old (acl_image_max_age_ms):"
            " try again once it has caught up with the metadata"
        )
        return error(ErrorCode.SERVER_BUSY, problem)

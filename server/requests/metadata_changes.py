"""Code shared by the requests that change and query the metadata: those of ACLs, credentials and quotas."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from google.protobuf.message import Message as ProtoMessage

from quorumlog.server.metadata.controller_client import ControllerClient
from quorumlog.server.metadata.image import CurrentImage
from quorumlog.server.requests.linearizable_reads import MetadataReads
from quorumlog.server.requests.read_your_writes import ForwardedChange, ReadYourWrites
from quorumlog.server.step.events import ClientRequest
from quorumlog.server.step.node_service import ServiceHooks
from quorumlog.server.step.replies import Replies
from quorumlog.v1 import errors_pb2


class MetadataChangeRequests:
    """Forwards changes to the controller, and answers them once this node's image contains them.

    Arguments:
        reads: linearizable reads, for queries that must see all committed changes.
        limit: maximum number of changes that may wait for an image that contains them.
    """

    def __init__(
        self, current: CurrentImage, controller: ControllerClient, reads: MetadataReads, limit: int, replies: Replies
    ) -> None:
        self._current = current
        self._reads = reads
        self._replies = replies
        self._shown = ReadYourWrites(current, controller, limit)

    def register(self, hooks: ServiceHooks) -> None:
        hooks.on_time(self.on_time)
        hooks.calls(self._shown.pending)

    def _forward(
        self,
        asked: ClientRequest,
        deadline: int,
        request: ProtoMessage,
        failed: Callable[[errors_pb2.Error], ProtoMessage],
    ) -> None:
        """Forwards a change to the controller.

        Arguments:
            deadline: by the node's clock (µs).
            failed: builds the response to a change that failed.
        """
        change = ForwardedChange(asked.request_id, deadline, asked.principal, request)
        self._shown.ask(change, partial(self._replies.reply, asked.request_id), failed)

    def on_applied(self) -> None:
        """Answers the changes that the image contains after the latest commands."""
        self._shown.on_applied()

    def on_time(self, now: int, wall_ms: int) -> None:
        """Answers changes that are committed, but that this node's image did not contain before their deadline."""
        self._shown.on_time(now)

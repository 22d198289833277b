"""Quotas, as any node serves them: changes go to the controller, questions are answered here."""

from __future__ import annotations

from functools import partial
from typing import TypeAlias

from google.protobuf.message import Message as ProtoMessage

from quorumlog.server.events import ClientRequest
from quorumlog.server.metadata.controller_client import ControllerClient
from quorumlog.server.metadata.image import CurrentImage
from quorumlog.server.metadata.quota_checks import check_quota_question, check_quotas
from quorumlog.server.node_service import NodeService, RequestTable, StepTime
from quorumlog.server.replies import Replies
from quorumlog.server.request_timeouts import wait_us
from quorumlog.server.requests.linearizable_reads import MetadataReads
from quorumlog.server.requests.shown_changes import ForwardedChange, ShownChanges
from quorumlog.v1 import errors_pb2
from quorumlog.v1.quotas_pb2 import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
)

QuotaRequest: TypeAlias = AlterClientQuotasRequest | DescribeClientQuotasRequest


class QuotaRequests(NodeService):
    """Serves quotas.

    Arguments:
        reads: find out how new an answer has to be.
        limit: changes that may wait for an image that shows them.
    """

    def __init__(
        self, current: CurrentImage, controller: ControllerClient, reads: MetadataReads, limit: int, replies: Replies
    ) -> None:
        self._current = current
        self._reads = reads
        self._replies = replies
        self._shown = ShownChanges(current, controller, limit)

    def declare_requests(self, table: RequestTable) -> None:
        table.declare(AlterClientQuotasRequest, self.alter)
        table.declare(DescribeClientQuotasRequest, self.describe)

    def alter(self, time: StepTime, asked: ClientRequest, request: AlterClientQuotasRequest) -> None:
        """Has values set and removed."""
        refused = check_quotas(request)
        if refused is not None:
            self._replies.reply(asked.request_id, failed_quotas(request, refused))
            return
        deadline = time.now + wait_us(request.timeout_ms)
        change = ForwardedChange(asked.request_id, deadline, asked.principal, "alter_client_quotas", request)
        self._shown.ask(change, partial(self._replies.reply, asked.request_id), partial(failed_quotas, request))

    def describe(self, time: StepTime, asked: ClientRequest, request: DescribeClientQuotasRequest) -> None:
        """Lists what was set, as new as the question."""

        def answer(problem: errors_pb2.Error | None) -> None:
            response = DescribeClientQuotasResponse(error=problem)
            if problem is None:
                response.quotas.extend(self._current.image.client_quotas.shown(request.principals))
            self._replies.reply(asked.request_id, response)

        refused = check_quota_question(request)
        if refused is not None:
            answer(refused)
        else:
            self._reads.read(time.now, request.timeout_ms, answer)

    # -- time -------------------------------------------------------------------------------------------------

    def on_applied(self) -> None:
        """The image moved on: changes that it shows by now are answered."""
        self._shown.on_applied()

    def on_time(self, now: int, wall_ms: int) -> None:
        """Answers changes that are done although this node's image does not show them in time."""
        self._shown.on_time(now)

    @property
    def next_deadline(self) -> int | None:
        """When ``on_time`` is due."""
        return self._shown.next_deadline


def failed_quotas(request: QuotaRequest, problem: errors_pb2.Error) -> ProtoMessage:
    """The answer to a request that failed."""
    if isinstance(request, AlterClientQuotasRequest):
        return AlterClientQuotasResponse(error=problem)
    return DescribeClientQuotasResponse(error=problem)

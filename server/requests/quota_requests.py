"""Quota requests on any node: changes are forwarded to the controller, queries are answered from the local image."""

from __future__ import annotations

from functools import partial
from typing import TypeAlias

from google.protobuf.message import Message as ProtoMessage

from quorumlog.server.metadata.client_quotas import check_quota_question, check_quotas
from quorumlog.server.requests.metadata_changes import MetadataChangeRequests
from quorumlog.server.step.deadlines import wait_us
from quorumlog.server.step.events import ClientRequest
from quorumlog.server.step.node_service import ServiceHooks, StepTime
from quorumlog.v1 import errors_pb2
from quorumlog.v1.quotas_pb2 import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
)

QuotaRequest: TypeAlias = AlterClientQuotasRequest | DescribeClientQuotasRequest


class QuotaRequests(MetadataChangeRequests):
    """Serves requests about quotas."""

    def register(self, hooks: ServiceHooks) -> None:
        super().register(hooks)
        hooks.serve(AlterClientQuotasRequest, self.alter)
        hooks.serve(DescribeClientQuotasRequest, self.describe)

    def alter(self, time: StepTime, asked: ClientRequest, request: AlterClientQuotasRequest) -> None:
        """Validates changes of quotas and forwards them to the controller."""
        refused = check_quotas(request)
        if refused is not None:
            self._replies.reply(asked.request_id, failed_quotas(request, refused))
            return
        deadline = time.now + wait_us(request.timeout_ms)
        self._forward(asked, deadline, request, partial(failed_quotas, request))

    def describe(self, time: StepTime, asked: ClientRequest, request: DescribeClientQuotasRequest) -> None:
        """Lists the quotas that are set, by a linearizable read."""

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


def failed_quotas(request: QuotaRequest, problem: errors_pb2.Error) -> ProtoMessage:
    """Returns the response to a request that failed."""
    if isinstance(request, AlterClientQuotasRequest):
        return AlterClientQuotasResponse(error=problem)
    return DescribeClientQuotasResponse(error=problem)

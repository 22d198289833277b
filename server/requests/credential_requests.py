"""Requests about users and revocations on any node: changes are forwarded to the controller, queries are answered from
the local image."""

from __future__ import annotations

from functools import partial
from typing import TypeAlias

from google.protobuf.message import Message as ProtoMessage

from quorumlog.server.controller.access_decisions import fit_to_level
from quorumlog.server.metadata.credentials import check_question, check_revocations, check_users
from quorumlog.server.requests.metadata_changes import MetadataChangeRequests
from quorumlog.server.step.deadlines import wait_us
from quorumlog.server.step.events import ClientRequest
from quorumlog.server.step.node_service import ServiceHooks, StepTime
from quorumlog.v1 import errors_pb2
from quorumlog.v1.credentials_pb2 import (
    AlterRevocationsRequest,
    AlterRevocationsResponse,
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    DescribeRevocationsRequest,
    DescribeRevocationsResponse,
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
)

CredentialChange: TypeAlias = AlterUserScramCredentialsRequest | AlterRevocationsRequest
CredentialRequest: TypeAlias = CredentialChange | DescribeUserScramCredentialsRequest | DescribeRevocationsRequest


class CredentialRequests(MetadataChangeRequests):
    """Serves requests about users with passwords, and about revocations."""

    def register(self, hooks: ServiceHooks) -> None:
        super().register(hooks)
        hooks.serve(AlterUserScramCredentialsRequest, self.alter_users)
        hooks.serve(AlterRevocationsRequest, self.alter_revocations)
        hooks.serve(DescribeUserScramCredentialsRequest, self.describe_users)
        hooks.serve(DescribeRevocationsRequest, self.describe_revocations)

    # -- changes ----------------------------------------------------------------------------------------------

    def alter_users(self, time: StepTime, asked: ClientRequest, request: AlterUserScramCredentialsRequest) -> None:
        """Validates changes of users and forwards them to the controller."""
        # The controller may be of a former version, which would misread mechanisms.
        refused = check_users(request) or fit_to_level(self._current.image, request)
        if refused is not None or not (request.upsertions or request.deletions):
            self._replies.reply(asked.request_id, AlterUserScramCredentialsResponse(error=refused))
            return
        self._pass_on(time, asked, request)

    def alter_revocations(self, time: StepTime, asked: ClientRequest, request: AlterRevocationsRequest) -> None:
        """Validates revocations and forwards them to the controller, which alone has the super users, who cannot be
        revoked."""
        refused = check_revocations(request, super_users=())
        if refused is not None:
            self._replies.reply(asked.request_id, failed_credentials(request, refused))
            return
        self._pass_on(time, asked, request)

    def _pass_on(self, time: StepTime, asked: ClientRequest, request: CredentialChange) -> None:
        deadline = time.now + wait_us(request.timeout_ms)
        self._forward(asked, deadline, request, partial(failed_credentials, request))

    # -- queries ----------------------------------------------------------------------------------------------

    def describe_users(
        self, time: StepTime, asked: ClientRequest, request: DescribeUserScramCredentialsRequest
    ) -> None:
        """Lists users by a linearizable read, without their stored keys."""

        def answer(problem: errors_pb2.Error | None) -> None:
            response = DescribeUserScramCredentialsResponse(error=problem)
            if problem is None:
                passwords = self._current.image.credentials.passwords(request.users)
                response.users.extend(each.shown for each in passwords)
            self._replies.reply(asked.request_id, response)

        refused = check_question(request)
        if refused is not None:
            answer(refused)
        else:
            self._reads.read(time.now, request.timeout_ms, answer)

    def describe_revocations(self, time: StepTime, asked: ClientRequest, request: DescribeRevocationsRequest) -> None:
        """Lists revocations by a linearizable read."""

        def answer(problem: errors_pb2.Error | None) -> None:
            response = DescribeRevocationsResponse(error=problem)
            if problem is None:
                response.revocations.extend(self._current.image.credentials.revocations)
            self._replies.reply(asked.request_id, response)

        self._reads.read(time.now, request.timeout_ms, answer)


def failed_credentials(request: CredentialRequest, problem: errors_pb2.Error) -> ProtoMessage:
    """Returns the response to a request that failed."""
    match request:
        case AlterUserScramCredentialsRequest():
            return AlterUserScramCredentialsResponse(error=problem)
        case AlterRevocationsRequest():
            return AlterRevocationsResponse(error=problem)
        case DescribeUserScramCredentialsRequest():
            return DescribeUserScramCredentialsResponse(error=problem)
        case DescribeRevocationsRequest():
            return DescribeRevocationsResponse(error=problem)

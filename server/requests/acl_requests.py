"""ACL requests on any node: changes are forwarded to the controller, queries are answered from the local image."""

from __future__ import annotations

from functools import partial
from typing import TypeAlias

from google.protobuf.message import Message as ProtoMessage

from quorumlog.server.access.access_errors import Refusals
from quorumlog.server.controller.access_decisions import check_acl_creation, check_acl_deletion
from quorumlog.server.metadata.acl_rules import acl_of, check_filter, check_question
from quorumlog.server.metadata.controller_client import ControllerClient
from quorumlog.server.metadata.image import CurrentImage
from quorumlog.server.requests.linearizable_reads import MetadataReads
from quorumlog.server.requests.metadata_changes import MetadataChangeRequests
from quorumlog.server.step.deadlines import wait_us
from quorumlog.server.step.events import ClientRequest
from quorumlog.server.step.node_service import ServiceHooks, StepTime
from quorumlog.server.step.replies import Replies
from quorumlog.v1 import errors_pb2
from quorumlog.v1.acls_pb2 import (
    ACL_OPERATION_DESCRIBE,
    ACL_RESOURCE_CLUSTER,
    CheckAclsRequest,
    CheckAclsResponse,
    CreateAclsRequest,
    CreateAclsResponse,
    DeleteAclsRequest,
    DeleteAclsResponse,
    DescribeAclsRequest,
    DescribeAclsResponse,
)

AclChange: TypeAlias = CreateAclsRequest | DeleteAclsRequest
AclRequest: TypeAlias = AclChange | DescribeAclsRequest | CheckAclsRequest


class AclRequests(MetadataChangeRequests):
    """Serves requests about ACLs.

    Arguments:
        reads: linearizable reads, for queries that must see all committed changes.
        limit: maximum number of changes that may wait for an image that contains them.
        refusals: error responses for denied requests.
    """

    def __init__(
        self,
        current: CurrentImage,
        controller: ControllerClient,
        reads: MetadataReads,
        limit: int,
        replies: Replies,
        refusals: Refusals,
    ) -> None:
        super().__init__(current, controller, reads, limit, replies)
        self._refusals = refusals

    def register(self, hooks: ServiceHooks) -> None:
        super().register(hooks)
        hooks.serve(CreateAclsRequest, self.create)
        hooks.serve(DeleteAclsRequest, self.delete)
        hooks.serve(DescribeAclsRequest, self.describe)
        hooks.serve(CheckAclsRequest, self.check)

    # -- changes ----------------------------------------------------------------------------------------------

    def create(self, time: StepTime, asked: ClientRequest, request: CreateAclsRequest) -> None:
        """Validates a CreateAcls request and forwards it to the controller."""
        refused = check_acl_creation(request)
        if refused is not None:
            self._replies.reply(asked.request_id, failed_acls(request, refused))
            return
        self._pass_on(asked, time.now + wait_us(request.timeout_ms), request)

    def delete(self, time: StepTime, asked: ClientRequest, request: DeleteAclsRequest) -> None:
        """Deletes the ACLs that exist now. A request with ``created_up_to`` deletes only those up to that metadata
        index."""
        deadline = time.now + wait_us(request.timeout_ms)
        refused = check_acl_deletion(request)
        if refused is not None:
            self._replies.reply(asked.request_id, failed_acls(request, refused))
        elif request.created_up_to:
            self._pass_on(asked, deadline, request)
        else:

            def known(problem: errors_pb2.Error | None) -> None:
                if problem is not None:
                    self._replies.reply(asked.request_id, failed_acls(request, problem))
                    return
                resolved = DeleteAclsRequest(created_up_to=max(1, self._current.image.applied_index))
                resolved.MergeFrom(request)
                self._pass_on(asked, deadline, resolved)

            self._reads.read(time.now, request.timeout_ms, known)

    def _pass_on(self, asked: ClientRequest, deadline: int, request: AclChange) -> None:
        self._forward(asked, deadline, request, partial(failed_acls, request))

    # -- queries ----------------------------------------------------------------------------------------------

    def describe(self, time: StepTime, asked: ClientRequest, request: DescribeAclsRequest) -> None:
        """Lists ACLs by a linearizable read."""

        def answer(problem: errors_pb2.Error | None) -> None:
            response = DescribeAclsResponse(error=problem)
            if problem is None:
                image = self._current.image
                response.acls.extend(map(acl_of, image.acls.meant((request.filter,))))
                response.applied_index = image.applied_index
            self._replies.reply(asked.request_id, response)

        refused = check_filter(request.filter)
        if refused is not None:
            answer(refused)
        else:
            self._reads.read(time.now, request.timeout_ms, answer)

    def check(self, time: StepTime, asked: ClientRequest, request: CheckAclsRequest) -> None:
        """Evaluates the ACLs of a principal on this node's own image, without a read index.

        The ACLs of another principal may be evaluated only with DESCRIBE on the cluster.
        """
        authorizer = self._refusals.authorizer
        principal = request.principal or asked.principal
        refused = check_question(request)
        if refused is None and principal != asked.principal:
            refused = self._refusals.resource(asked.client, ACL_OPERATION_DESCRIBE, ACL_RESOURCE_CLUSTER)
        if refused is not None:
            self._replies.reply(asked.request_id, CheckAclsResponse(error=refused))
            return
        what = (principal, request.operation, request.resource_type, request.resource_name)
        is_super = authorizer.is_super_user(principal)
        rule = None if is_super else authorizer.deciding_rule(*what)
        response = CheckAclsResponse(
            allowed=authorizer.decide(*what),
            rule=None if rule is None else acl_of(rule),
            super_user=is_super,
            enforced=authorizer.enforced,
        )
        self._replies.reply(asked.request_id, response)


def failed_acls(request: AclRequest, problem: errors_pb2.Error) -> ProtoMessage:
    """Returns the response to a request that failed."""
    match request:
        case CreateAclsRequest():
            return CreateAclsResponse(error=problem)
        case DeleteAclsRequest():
            return DeleteAclsResponse(error=problem)
        case DescribeAclsRequest():
            return DescribeAclsResponse(error=problem)
        case CheckAclsRequest():
            return CheckAclsResponse(error=problem)

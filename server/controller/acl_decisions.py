"""Decisions on rules of who may do what: a request is checked here, and what it does is decided by the log."""

from __future__ import annotations

from quorumlog.server.controller.decision import ControllerDecision, answer_now
from quorumlog.server.controller.feature_levels import refuse_below_second
from quorumlog.server.metadata.acl_rules import check_filter, check_rule
from quorumlog.server.metadata.image import MetadataImage
from quorumlog.server.wire_errors import error
from quorumlog.v1 import metadata_log_pb2, peer_pb2
from quorumlog.v1.acls_pb2 import CreateAclsRequest, CreateAclsResponse, DeleteAclsRequest, DeleteAclsResponse
from quorumlog.v1.errors_pb2 import Error, ErrorCode
from quorumlog.v1.request_limits import MAX_ACL_FILTERS, MAX_ACLS_CHANGED


class AclDecisions:
    """Decides on creation and deletion of rules.

    Arguments:
        image: the controller's.
    """

    def __init__(self, image: MetadataImage) -> None:
        self._image = image

    def create(self, wall_ms: int, number: int, request: CreateAclsRequest) -> ControllerDecision:
        """Somebody wants rules."""
        refused = (
            refuse_below_second(self._image, "rules of who may do what are kept")
            or check_creation(request)
            or self._image.acls.check_creation(request.acls)
        )
        if refused is not None:
            return answer_now(number, peer_pb2.ControllerResponse(create_acls=CreateAclsResponse(error=refused)))
        body = metadata_log_pb2.AclsCreated(acls=request.acls)
        command = metadata_log_pb2.MetadataCommand(timestamp_ms=wall_ms, acls_created=body)
        return ControllerDecision(number, commands=(command,))

    def delete(self, wall_ms: int, number: int, request: DeleteAclsRequest) -> ControllerDecision:
        """Somebody wants rules away."""
        refused = check_deletion(request)
        if refused is None and not request.created_up_to:
            unsaid = "the request does not say up to which entry the rules were created: a node adds that"
            refused = error(ErrorCode.INVALID_REQUEST, unsaid)
        if refused is not None:
            return answer_now(number, peer_pb2.ControllerResponse(delete_acls=DeleteAclsResponse(error=refused)))
        if not self._image.acls.meant(request.filters, request.created_up_to):
            return answer_now(number, peer_pb2.ControllerResponse(delete_acls=DeleteAclsResponse()))
        body = metadata_log_pb2.AclsDeleted(filters=request.filters, created_up_to=request.created_up_to)
        command = metadata_log_pb2.MetadataCommand(timestamp_ms=wall_ms, acls_deleted=body)
        return ControllerDecision(number, commands=(command,))


def check_creation(request: CreateAclsRequest) -> Error | None:
    """Why rules cannot be meant, whatever rules there are; None if they can."""
    if not 1 <= len(request.acls) <= MAX_ACLS_CHANGED:
        problem = f"{len(request.acls)} rules are to be created: give 1 to {MAX_ACLS_CHANGED} in one request"
        return error(ErrorCode.INVALID_REQUEST, problem)
    return next((refused for acl in request.acls if (refused := check_rule(acl)) is not None), None)


def check_deletion(request: DeleteAclsRequest) -> Error | None:
    """Why filters cannot be meant, whatever rules there are; None if they can."""
    if not 1 <= len(request.filters) <= MAX_ACL_FILTERS:
        problem = f"{len(request.filters)} filters say which rules to delete: give 1 to {MAX_ACL_FILTERS}"
        return error(ErrorCode.INVALID_REQUEST, problem)
    return next((refused for each in request.filters if (refused := check_filter(each)) is not None), None)

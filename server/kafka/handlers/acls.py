"""DescribeAcls, CreateAcls and DeleteAcls. The numbers are the same as Kafka's; every ACL applies to all hosts."""

from __future__ import annotations

from collections.abc import Sequence

from quorumlog.server.kafka.codec.administration.acl_requests import (
    AclCreation,
    CreateAclsRequest,
    DeleteAclsFilter,
    DeleteAclsRequest,
    DescribeAclsRequest,
)
from quorumlog.server.kafka.codec.administration.acl_responses import (
    AclCreationResult,
    AclDescription,
    CreateAclsResponse,
    DeleteAclsFilterResult,
    DeleteAclsMatchingAcl,
    DeleteAclsResponse,
    DescribeAclsResource,
    DescribeAclsResponse,
)
from quorumlog.server.kafka.handlers.error_codes import KafkaError, kafka_code
from quorumlog.server.kafka.handlers.handler import KafkaCall, Steps, ask, ask_all
from quorumlog.server.kafka.handlers.single_changes import each_by_itself
from quorumlog.v1 import acls_pb2
from quorumlog.v1.errors_pb2 import Error
from quorumlog.wire.request_limits import MAX_ACL_FILTERS, MAX_ACLS_CHANGED

#: The only host that an ACL can have.
EVERY_HOST = "*"
_TIMEOUT_MS = 30_000


def describe_acls(call: KafkaCall[DescribeAclsRequest]) -> Steps[DescribeAclsResponse]:
    """Answers DescribeAcls."""
    wanted = _filter(call.message)
    question = acls_pb2.DescribeAclsRequest(filter=wanted, timeout_ms=_TIMEOUT_MS)
    reply = yield from ask(question, acls_pb2.DescribeAclsResponse)
    if reply.HasField("error"):
        return DescribeAclsResponse(error_code=kafka_code(reply.error), error_message=reply.error.message)
    resources: dict[tuple[int, str, int], list[AclDescription]] = {}
    for each in reply.acls if _means_every_host(call.message.host_filter) else ():
        resource = each.resource_type, each.resource_name, each.pattern_type
        description = AclDescription(each.principal, EVERY_HOST, each.operation, each.permission)
        resources.setdefault(resource, []).append(description)
    return DescribeAclsResponse(
        error_message=None,
        resources=[DescribeAclsResource(*resource, acls) for resource, acls in resources.items()],
    )


def create_acls(call: KafkaCall[CreateAclsRequest]) -> Steps[CreateAclsResponse]:
    """Answers CreateAcls. An ACL that exists is not an error."""
    creations = call.message.creations
    if len(creations) > MAX_ACLS_CHANGED:
        refused = f"{len(creations)} ACLs to create exceed the limit: send at most {MAX_ACLS_CHANGED} in one request"
        return CreateAclsResponse(results=[AclCreationResult(KafkaError.INVALID_REQUEST, refused) for _ in creations])
    results = [AclCreationResult(KafkaError.NONE, None) for _ in creations]
    waiting = []
    for creation, result in zip(creations, results, strict=True):
        if creation.host == EVERY_HOST:
            waiting.append((_rule(creation), result))
        else:
            result.error_code = KafkaError.INVALID_REQUEST
            result.error_message = f"ACLs for a single host are not supported: set host to {EVERY_HOST}"
    outcomes = yield from each_by_itself([rule for rule, _ in waiting], _create)
    for (_, result), problem in zip(waiting, outcomes, strict=True):
        if problem is not None:
            result.error_code, result.error_message = kafka_code(problem), problem.message
    return CreateAclsResponse(results=results)


def delete_acls(call: KafkaCall[DeleteAclsRequest]) -> Steps[DeleteAclsResponse]:
    """Answers DeleteAcls: each filter deletes what matches it, of many ACLs the first 1,000."""
    filters = call.message.filters
    if len(filters) > MAX_ACL_FILTERS:
        refused = f"{len(filters)} filters exceed the limit: send at most {MAX_ACL_FILTERS} in one request"
        return DeleteAclsResponse(
            filter_results=[DeleteAclsFilterResult(KafkaError.INVALID_REQUEST, refused) for _ in filters]
        )
    results = [DeleteAclsFilterResult(KafkaError.NONE, None) for _ in filters]
    # No ACL is for a single host, so filters for one match nothing.
    sent = [
        (each, result) for each, result in zip(filters, results, strict=True) if _means_every_host(each.host_filter)
    ]
    questions = [acls_pb2.DeleteAclsRequest(filters=[_filter(each)], timeout_ms=_TIMEOUT_MS) for each, _ in sent]
    replies = yield from ask_all(questions, acls_pb2.DeleteAclsResponse)
    for (_, result), reply in zip(sent, replies, strict=True):
        if reply.HasField("error"):
            result.error_code, result.error_message = kafka_code(reply.error), reply.error.message
        result.matching_acls = [
            DeleteAclsMatchingAcl(
                KafkaError.NONE, None, each.resource_type, each.resource_name, each.pattern_type, each.principal,
                EVERY_HOST, each.operation, each.permission,
            )
            for each in reply.acls
        ]  # fmt: skip
    return DeleteAclsResponse(filter_results=results)


def _create(rules: Sequence[acls_pb2.Acl]) -> Steps[Error | None]:
    question = acls_pb2.CreateAclsRequest(acls=rules, timeout_ms=_TIMEOUT_MS)
    reply = yield from ask(question, acls_pb2.CreateAclsResponse)
    return reply.error if reply.HasField("error") else None


def _rule(creation: AclCreation) -> acls_pb2.Acl:
    # Unknown numbers are passed on; the node refuses them.
    return acls_pb2.Acl(
        resource_type=creation.resource_type,  # type: ignore[arg-type]
        resource_name=creation.resource_name,
        pattern_type=creation.resource_pattern_type,  # type: ignore[arg-type]
        principal=creation.principal,
        operation=creation.operation,  # type: ignore[arg-type]
        permission=creation.permission_type,  # type: ignore[arg-type]
    )


def _filter(wanted: DescribeAclsRequest | DeleteAclsFilter) -> acls_pb2.AclFilter:
    pattern = wanted.pattern_type_filter
    if pattern == acls_pb2.ACL_PATTERN_MATCH and wanted.resource_name_filter is None:
        pattern = acls_pb2.ACL_PATTERN_ANY  # Any name's pattern matches
    return acls_pb2.AclFilter(
        resource_type=wanted.resource_type_filter,  # type: ignore[arg-type]
        resource_name=wanted.resource_name_filter,
        pattern_type=pattern,  # type: ignore[arg-type]
        principal=wanted.principal_filter,
        operation=wanted.operation,  # type: ignore[arg-type]
        permission=wanted.permission_type,  # type: ignore[arg-type]
    )


def _means_every_host(host: str | None) -> bool:
    return host is None or host == EVERY_HOST

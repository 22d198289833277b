"""Judges the answers of nodes to clients that need ACLs: nothing that the node's own metadata deny.

The decision is repeated here by a plain evaluation of all ACLs in the image, without the node's index and cache. ACLs
may change between a request and its answer, and within the step that gives it. A read must be allowed by the ACLs at
the start or at the end of the step that returns it; a write or a denial, by any ACLs since the request arrived.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import TypeAlias

from google.protobuf.message import Message as ProtoMessage

from quorumlog.server.metadata.acl_rules import AclRule
from quorumlog.server.metadata.image import MetadataImage
from quorumlog.server.step.events import ClientRequest, Effects, Event
from quorumlog.simulator.models.committed_partition import Violation
from quorumlog.v1 import acls_pb2, admin_pb2, groups_pb2, transactions_pb2
from quorumlog.v1 import data_plane_pb2 as pb
from quorumlog.v1.errors_pb2 import Error, ErrorCode

#: Operations that an ACL implies.
_IMPLIED = {
    acls_pb2.ACL_OPERATION_READ: acls_pb2.ACL_OPERATION_DESCRIBE,
    acls_pb2.ACL_OPERATION_WRITE: acls_pb2.ACL_OPERATION_DESCRIBE,
    acls_pb2.ACL_OPERATION_DELETE: acls_pb2.ACL_OPERATION_DESCRIBE,
    acls_pb2.ACL_OPERATION_ALTER: acls_pb2.ACL_OPERATION_DESCRIBE,
    acls_pb2.ACL_OPERATION_ALTER_CONFIGS: acls_pb2.ACL_OPERATION_DESCRIBE_CONFIGS,
}
_EVERYBODY = "User:*"
#: Errors that reveal nothing about a topic except that access is denied, or that precede the check.
_SAYS_NOTHING = frozenset(
    (
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.SERVER_BUSY,
        ErrorCode.STORAGE_ERROR,
        ErrorCode.INVALID_FETCH_SESSION_EPOCH,
        ErrorCode.TOO_MANY_FETCH_SESSIONS,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.CLUSTER_NOT_FORMED,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.NOT_CONTROLLER,
        ErrorCode.THROTTLING_QUOTA_EXCEEDED,
    )
)
#: Types of resources by the errors that deny access to one.
_REFUSED = {
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: acls_pb2.ACL_RESOURCE_TOPIC,
    ErrorCode.GROUP_AUTHORIZATION_FAILED: acls_pb2.ACL_RESOURCE_GROUP,
    ErrorCode.PRODUCER_NAME_AUTHORIZATION_FAILED: acls_pb2.ACL_RESOURCE_PRODUCER_NAME,
}
#: Resources that coordinators keep, by the type in FindCoordinators.
_COORDINATED = {
    groups_pb2.COORDINATOR_TYPE_GROUP: acls_pb2.ACL_RESOURCE_GROUP,
    groups_pb2.COORDINATOR_TYPE_TRANSACTION: acls_pb2.ACL_RESOURCE_PRODUCER_NAME,
}
#: Requests that need Write on a transactional id as a whole.
_Transactional: TypeAlias = (
    transactions_pb2.InitTransactionsRequest
    | transactions_pb2.JoinTransactionRequest
    | transactions_pb2.AddToTransactionRequest
    | transactions_pb2.EndTransactionRequest
)
_TransactionalAnswer: TypeAlias = (
    transactions_pb2.InitTransactionsResponse
    | transactions_pb2.JoinTransactionResponse
    | transactions_pb2.AddToTransactionResponse
    | transactions_pb2.EndTransactionResponse
)
#: All ACLs of one node at one moment.
_Rules = tuple[AclRule, ...]


def is_allowed(rules: Iterable[AclRule], who: str, operation: int, kind: int, name: str) -> bool:
    """True if ACLs allow an operation, evaluated one after the other."""
    allowed = False
    for rule in rules:
        if rule.resource_type != kind or rule.principal not in (who, _EVERYBODY) or not rule.concerns(name):
            continue
        is_meant = rule.operation in (operation, acls_pb2.ACL_OPERATION_ALL)
        if rule.denies and is_meant:
            return False
        allowed = allowed or (not rule.denies and (is_meant or _IMPLIED.get(rule.operation) == operation))
    return allowed


@dataclass(slots=True)
class _AskedRequest:
    """A request that a node has not answered yet. ``rules``: all ACL states of the node since it arrived."""

    message: ProtoMessage
    who: str
    rules: list[_Rules]


@dataclass(slots=True)
class _WatchedNode:
    """The state of one life of a node."""

    life: int
    rules: _Rules = ()
    index: int = 0
    image: MetadataImage | None = None
    asked: dict[int, _AskedRequest] = field(default_factory=dict)


class RightsJudge:
    """Observes the steps of all nodes.

    Arguments:
        super_users: principals without authorization, whose requests are not judged.
        topic_name: returns the name of a topic id that some node has known.

    Attributes:
        judged: answers by result: allowed or denied.
        handed_out: number of answers with records so far.
    """

    def __init__(self, super_users: frozenset[str], topic_name: Callable[[bytes], str | None]) -> None:
        self.judged: Counter[str] = Counter()
        self.handed_out = 0
        self._super_users = super_users
        self._topic_name = topic_name
        self._nodes: dict[int, _WatchedNode] = {}

    def stepped(self, node: int, life: int, image: MetadataImage | None, events: list[Event], effects: Effects) -> None:
        """Judges a step of a node."""
        watched = self._nodes.get(node)
        is_first = watched is None or watched.life != life
        if watched is None or is_first:
            watched = self._nodes[node] = _WatchedNode(life)
        before = watched.rules
        if image is not None and (image is not watched.image or image.acls.index != watched.index):
            watched.rules, watched.index, watched.image = tuple(image.acls), image.acls.index, image
        now = watched.rules
        for event in events:
            # The ACLs at the start of a process may change in its first step, unobserved.
            if isinstance(event, ClientRequest) and event.principal not in self._super_users and not is_first:
                watched.asked[event.request_id] = _AskedRequest(event.message, event.principal, [before])
        for request in watched.asked.values():
            if request.rules[-1] is not now:
                request.rules.append(now)
        for reply in effects.replies:
            answered = watched.asked.pop(reply.request_id, None)
            if answered is not None:
                if isinstance(reply.message, pb.FetchResponse):
                    self.handed_out += any(result.entries for result in reply.message.results)
                self._judge(node, answered, reply.message, (before, now))

    def _judge(self, node: int, asked: _AskedRequest, answer: ProtoMessage, step: tuple[_Rules, _Rules]) -> None:
        for operation, kind, name, problem, is_read in self._claims(asked.message, answer):
            code = problem.code
            if code in _SAYS_NOTHING:
                continue
            what = f"operation {operation} on {name} (type {kind})"
            by = step if is_read else asked.rules
            if code in _REFUSED:
                if _REFUSED[code] != kind:
                    continue  # Access to another resource of the request is denied.
                self.judged["refused"] += 1
                if all(is_allowed(rules, asked.who, operation, kind, name) for rules in asked.rules):
                    raise Violation(f"node {node} refuses {asked.who} {what}, which its own ACLs allow")
                continue
            self.judged["allowed"] += 1
            if not any(is_allowed(rules, asked.who, operation, kind, name) for rules in by):
                raise Violation(
                    f"node {node} serves {asked.who} {what}, which its own ACLs deny: {type(answer).__name__},"
                    f" {ErrorCode.Name(code)}"
                )

    def _claims(self, asked: ProtoMessage, answer: ProtoMessage) -> Iterator[tuple[int, int, str, Error, bool]]:
        """Yields what an answer claims about single items: the operation, the type, the name, the error, and True for
        reads.
        """
        topic = acls_pb2.ACL_RESOURCE_TOPIC
        if isinstance(answer, pb.ProduceResponse | pb.FetchResponse | admin_pb2.DeleteRecordsResponse):
            operations = {
                pb.ProduceResponse: acls_pb2.ACL_OPERATION_WRITE,
                pb.FetchResponse: acls_pb2.ACL_OPERATION_READ,
                admin_pb2.DeleteRecordsResponse: acls_pb2.ACL_OPERATION_DELETE,
            }
            is_read = isinstance(answer, pb.FetchResponse)
            for result in answer.results:
                name = self._topic_name(result.topic_id)
                if name is not None:
                    yield operations[type(answer)], topic, name, result.error, is_read
        elif isinstance(answer, pb.ListOffsetsResponse) and isinstance(asked, pb.ListOffsetsRequest):
            for wanted, found in zip(asked.partitions, answer.results, strict=False):
                name = self._topic_name(found.topic_id)
                by_time = wanted.timestamp_ms >= 0
                operation = acls_pb2.ACL_OPERATION_READ if by_time else acls_pb2.ACL_OPERATION_DESCRIBE
                if name is not None:
                    yield operation, topic, name, found.error, True
        elif isinstance(answer, pb.MetadataResponse) and isinstance(asked, pb.MetadataRequest):
            for described in answer.topics:
                # For a name that was not requested, an error reveals that the topic exists.
                problem = Error() if asked.all_topics else described.error
                if problem.code != ErrorCode.INVALID_TOPIC:
                    yield acls_pb2.ACL_OPERATION_DESCRIBE, topic, described.name, problem, True
        elif isinstance(answer, admin_pb2.DescribeConfigsResponse):
            for configs in answer.results:
                yield acls_pb2.ACL_OPERATION_DESCRIBE_CONFIGS, topic, configs.name, configs.error, True
        elif isinstance(asked, groups_pb2.FindCoordinatorsRequest):
            assert isinstance(answer, groups_pb2.FindCoordinatorsResponse)
            for coordinator in answer.coordinators:
                if coordinator.group_id:
                    kind = _COORDINATED[asked.type]
                    yield acls_pb2.ACL_OPERATION_DESCRIBE, kind, coordinator.group_id, coordinator.error, False
        for name, problem in _of_transactional_ids(asked, answer):
            yield acls_pb2.ACL_OPERATION_WRITE, acls_pb2.ACL_RESOURCE_PRODUCER_NAME, name, problem, False


def _of_transactional_ids(asked: ProtoMessage, answer: ProtoMessage) -> Iterator[tuple[str, Error]]:
    """Yields the transactional id that a request writes with, and an error for each part of the answer."""
    if isinstance(asked, _Transactional) and isinstance(answer, _TransactionalAnswer):
        yield asked.transactional_id, answer.error
    elif isinstance(asked, pb.ProduceRequest | groups_pb2.CommitOffsetsRequest) and asked.transactional_id:
        assert isinstance(answer, pb.ProduceResponse | groups_pb2.CommitOffsetsResponse)
        for result in answer.results:
            # Other errors may precede the check.
            if result.error.code in (ErrorCode.NONE, ErrorCode.PRODUCER_NAME_AUTHORIZATION_FAILED):
                yield asked.transactional_id, result.error

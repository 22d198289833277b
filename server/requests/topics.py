"""Changes of topics on any node: each is forwarded to the controller. Producer names are deleted in the same way.

The controller receives each target with its id (`resolve_ids.py`), so that a delayed request does not affect anything
that has the name by then.

A change is answered once this node's own image contains it, so that the client's next request to this node sees its
effect.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import TypeAlias, get_args

from google.protobuf.message import Message as ProtoMessage

from quorumlog.server.access.access_errors import Refusals
from quorumlog.server.access.partial_denial import (
    ItemChange,
    names_in,
    put_refused,
    refuse_items,
    without_refused,
)
from quorumlog.server.metadata.controller_client import ControllerClient
from quorumlog.server.metadata.image import CurrentImage
from quorumlog.server.requests.linearizable_reads import MetadataReads
from quorumlog.server.requests.read_your_writes import ForwardedChange, ReadYourWrites
from quorumlog.server.requests.resolve_ids import TargetedChange, add_ids, check_targets, names_only
from quorumlog.server.step.deadlines import wait_us
from quorumlog.server.step.events import ClientRequest
from quorumlog.server.step.node_service import ServiceHooks, StepTime
from quorumlog.server.step.replies import Replies
from quorumlog.v1 import admin_pb2, errors_pb2

TopicChange: TypeAlias = admin_pb2.CreateTopicsRequest | TargetedChange

_RESPONSES: dict[type[ProtoMessage], type[ProtoMessage]] = {
    admin_pb2.CreateTopicsRequest: admin_pb2.CreateTopicsResponse,
    admin_pb2.DeleteTopicsRequest: admin_pb2.DeleteTopicsResponse,
    admin_pb2.CreatePartitionsRequest: admin_pb2.CreatePartitionsResponse,
    admin_pb2.AlterConfigsRequest: admin_pb2.AlterConfigsResponse,
    admin_pb2.ReassignPartitionsRequest: admin_pb2.ReassignPartitionsResponse,
    admin_pb2.DeleteProducersRequest: admin_pb2.DeleteProducersResponse,
}


@dataclass(slots=True, frozen=True)
class _TopicCall:
    """A change that a client requests.

    Arguments:
        principal: the client's principal.
        names: the targets of the change, in the request's order; empty if none was refused.
        refused: the error for each of them, or None for those that are forwarded.
    """

    request_id: int
    deadline: int
    principal: str
    names: tuple[str, ...] = ()
    refused: tuple[errors_pb2.Error | None, ...] = ()


class TopicRequests:
    """Serves creation, deletion and change of topics.

    Arguments:
        reads: linearizable reads, for requests that have names without ids.
        limit: maximum number of changes that may wait for an image that contains them.
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
        self._refusals = refusals
        self._current = current
        self._reads = reads
        self._replies = replies
        self._shown = ReadYourWrites(current, controller, limit)

    def register(self, hooks: ServiceHooks) -> None:
        for kind in get_args(TopicChange):
            hooks.serve(kind, self.change)
        hooks.on_time(self.on_time)
        hooks.calls(self._shown.pending)

    def change(self, time: StepTime, asked: ClientRequest, request: TopicChange) -> None:
        """Authorizes and forwards the request, and answers once this node's own image contains the change."""
        deadline = time.now + wait_us(request.timeout_ms)
        call = _TopicCall(asked.request_id, deadline, asked.principal)
        refused = None if isinstance(request, admin_pb2.CreateTopicsRequest) else check_targets(request)
        if refused is not None:
            self._answer(call, failed_change(request, refused))
            return
        if isinstance(request, get_args(ItemChange)) and self._refusals.authorizer.enforced:
            refusals = refuse_items(self._refusals, asked.client, request)
            if any(refusals):
                call = replace(call, names=tuple(names_in(request)), refused=tuple(refusals))
                request = without_refused(request, refusals)
            if refusals and all(refusals):
                self._answer(call, _RESPONSES[type(request)]())
                return
        if isinstance(request, admin_pb2.CreateTopicsRequest) or not names_only(request):
            self._pass_on(call, request)
        else:
            self._look_up(time.now, call, request)

    def _answer(self, call: _TopicCall, response: ProtoMessage) -> None:
        """Sends the response, with the refused items in their places."""
        if call.refused:
            put_refused(response, call.names, call.refused)
        self._replies.reply(call.request_id, response)

    def _look_up(self, now: int, call: _TopicCall, request: TargetedChange) -> None:
        """Forwards a request with the ids that its names have now, by a linearizable read."""

        def known(problem: errors_pb2.Error | None) -> None:
            if problem is not None:
                self._answer(call, failed_change(request, problem))
                return
            resolved = type(request)()
            resolved.CopyFrom(request)  # type: ignore[arg-type]  # of the same type
            add_ids(self._current.image, resolved)
            self._pass_on(call, resolved)

        self._reads.read(now, request.timeout_ms, known)

    def _pass_on(self, call: _TopicCall, request: TopicChange) -> None:
        change = ForwardedChange(call.request_id, call.deadline, call.principal, request)
        self._shown.ask(change, partial(self._answer, call), partial(failed_change, request))

    def on_applied(self) -> None:
        """Answers the changes that the image contains after the latest commands."""
        self._shown.on_applied()

    def on_time(self, now: int, wall_ms: int) -> None:
        """Answers changes that are committed, but that this node's image did not contain before their deadline."""
        self._shown.on_time(now)


def failed_change(request: TopicChange, problem: errors_pb2.Error) -> ProtoMessage:
    """Returns the response to a change that failed as a whole: the same error for every topic or name."""
    if isinstance(request, admin_pb2.ReassignPartitionsRequest):
        wishes = [(each.topic, each.partition) for each in request.reassignments]
        return admin_pb2.ReassignPartitionsResponse(
            results=[admin_pb2.ReassignmentResult(topic=t, partition=p, error=problem) for t, p in wishes]
        )
    response = _RESPONSES[type(request)]()
    by_name = admin_pb2.DeleteTopicsRequest | admin_pb2.DeleteProducersRequest
    names = request.names if isinstance(request, by_name) else [t.name for t in request.topics]
    for name in names:
        response.results.add(name=name, error=problem)  # type: ignore[attr-defined]  # all of them have it
    return response

"""Producer identities: new ids, and claims of named ones."""

from __future__ import annotations

from quorumlog.server.access.access_errors import Refusals
from quorumlog.server.access.permissions import operation_of
from quorumlog.server.metadata.acl_rules import CLUSTER_NAME
from quorumlog.server.metadata.controller_client import ControllerClient, failure_of
from quorumlog.server.replicas.broker import Broker
from quorumlog.server.step.deadlines import wait_us
from quorumlog.server.step.events import ClientRequest
from quorumlog.server.step.node_service import ServiceHooks, StepTime
from quorumlog.server.step.replies import Replies
from quorumlog.server.step.request_context import RequestContext
from quorumlog.v1 import data_plane_pb2, errors_pb2, peer_pb2
from quorumlog.v1.acls_pb2 import (
    ACL_OPERATION_IDEMPOTENT_WRITE,
    ACL_RESOURCE_CLUSTER,
    ACL_RESOURCE_PRODUCER_NAME,
)
from quorumlog.v1.errors_pb2 import ErrorCode

#: Operation that a client needs on a name that it claims.
_OPERATION = operation_of(data_plane_pb2.InitProducerIdRequest)


class ProducerIdentities:
    """Serves InitProducerId with ids and claims from the controller."""

    def __init__(self, broker: Broker, controller: ControllerClient, replies: Replies, refusals: Refusals) -> None:
        self._refusals = refusals
        self._broker = broker
        self._controller = controller
        self._replies = replies

    def register(self, hooks: ServiceHooks) -> None:
        hooks.serve(data_plane_pb2.InitProducerIdRequest, self.init_producer_id)

    def init_producer_id(
        self, time: StepTime, asked: ClientRequest, request: data_plane_pb2.InitProducerIdRequest
    ) -> None:
        """Returns a new producer identity, or claims a named one."""
        request_id, deadline = asked.request_id, time.now + wait_us(request.timeout_ms)
        refused = self._refuse(asked.client, request.name)
        if refused is not None:
            self._replies.reply(request_id, failed_producer_id(request, refused))
            return
        if request.name:
            self._claim_producer(deadline, asked, request)
            return

        def allocated(producer_id: int | None) -> None:
            response = data_plane_pb2.InitProducerIdResponse(producer_id=-1, producer_epoch=-1)
            if producer_id is None:
                response.error.CopyFrom(failure_of(None))
            else:
                response.producer_id, response.producer_epoch = producer_id, 0
            self._replies.reply(request_id, response)

        self._broker.producer_id(time.now, deadline, allocated)

    def _refuse(self, client: RequestContext, name: str) -> errors_pb2.Error | None:
        if name:
            return self._refusals.resource(client, _OPERATION, ACL_RESOURCE_PRODUCER_NAME, name)
        if self._refusals.authorizer.may_be_given_an_identity(client.principal):
            return None
        return self._refusals.refuse(client, ACL_OPERATION_IDEMPOTENT_WRITE, ACL_RESOURCE_CLUSTER, CLUSTER_NAME)

    def _claim_producer(
        self, deadline: int, asked: ClientRequest, request: data_plane_pb2.InitProducerIdRequest
    ) -> None:
        def claimed(response: peer_pb2.ControllerResponse | None) -> None:
            answer = data_plane_pb2.InitProducerIdResponse(producer_id=-1, producer_epoch=-1)
            if response is not None and response.HasField("producer_claimed"):
                answer.producer_id = response.producer_claimed.producer_id
                answer.producer_epoch = response.producer_claimed.producer_epoch
                answer.note = response.producer_claimed.note
            # A claim that is not based on the newest epoch is answered with that epoch instead of an error: the client
            # claims again.
            if response is None or response.error.code not in (ErrorCode.NONE, ErrorCode.INVALID_UPDATE_VERSION):
                answer.error.CopyFrom(failure_of(response))
            self._replies.reply(asked.request_id, answer)

        body = peer_pb2.ClaimProducer(
            name=request.name, epoch=request.epoch, known_epoch=request.known_epoch, note=request.note
        )
        forwarded = peer_pb2.ControllerRequest(principal=asked.principal, claim_producer=body)
        self._controller.ask(deadline, forwarded, claimed)


def failed_producer_id(
    request: data_plane_pb2.InitProducerIdRequest, problem: errors_pb2.Error
) -> data_plane_pb2.InitProducerIdResponse:
    """Returns the response to a producer that gets no identity."""
    return data_plane_pb2.InitProducerIdResponse(error=problem, producer_id=-1, producer_epoch=-1)

"""The path of every client request, in this order: authenticate, throttle, authorize, audit, dispatch."""

from __future__ import annotations

from quorumlog.server.access.permissions import rpc_of
from quorumlog.server.access.request_denial import refuse_whole
from quorumlog.server.access.throttle import Throttle
from quorumlog.server.metadata.image import CurrentImage
from quorumlog.server.node.access_services import AccessServices
from quorumlog.server.node.resources import StepLog
from quorumlog.server.requests.error_responses import FAILED_RESPONSES
from quorumlog.server.step.events import ClientRequest
from quorumlog.server.step.node_service import NodeServices, StepTime
from quorumlog.server.step.replies import Replies
from quorumlog.v1.errors_pb2 import Error


class RequestPipeline:
    """Serves the requests of clients.

    Arguments:
        access: authenticates, authorizes and audits.
        current: contains quotas and ACLs.
        time: the time of the current step.
        log: gets a line for each request at the level debug.

    Attributes:
        throttle: holds the requests of principals that exceed a quota.
        services: serve the accepted requests; set once all of them are built.
    """

    services: NodeServices

    def __init__(
        self, access: AccessServices, current: CurrentImage, replies: Replies, time: StepTime, log: StepLog
    ) -> None:
        self._access = access
        self._log = log
        self._replies = replies
        self._time = time
        self.throttle = Throttle(current, time, self)

    def serve(self, request: ClientRequest, held_since: int | None = None) -> None:
        """Serves a request, refuses it, or holds it until its principal is under its quotas.

        Arguments:
            held_since: None for a new request. For one that was held: the version of users and revocations with which
                it was authenticated.
        """
        # 1. Authenticate. The request gets its principal. A stream that is refused ends; every other call is answered.
        if held_since is None:
            refusal = self._access.admission.admit(self._time.now, request)
        else:
            refusal = self._access.admission.refuse_held(request, held_since)
        if refusal is not None:
            if not request.stream:
                self._replies.reply(request.request_id, refusal)
            return
        # 2. Throttle. The throttle calls this function again once the debt of the principal is paid.
        if held_since is None and self.throttle.holds(request):
            return
        # 3. Authorize what concerns the request as a whole. Its service authorizes each topic that it names.
        denial = refuse_whole(self._access.refusals, request)
        if denial is not None:
            response = FAILED_RESPONSES[type(request.message)](request.message, denial)
            assert response is not None, "a request that is refused as a whole has an answer"
            self._replies.reply(request.request_id, response)
            return
        # 4. Audit. The line is written when the outcome is known.
        self._access.audit.change_begins(request)
        if self._log.debugs:
            self._log_request(request)
        # 5. Dispatch to the service that registered for this kind of request.
        self.services.serve(self._time, request)

    def _log_request(self, request: ClientRequest) -> None:
        client = request.client
        self._log(
            "debug",
            "request",
            rpc=rpc_of(type(request.message)),
            principal=_printable(client.principal),
            host=client.host,
            client_id=_printable(client.client_id),
            size_bytes=request.size_bytes,
        )

    # -- requests that the throttle held ----------------------------------------------------------------------

    def serve_held(self, request: ClientRequest, credentials_index: int) -> None:
        """Serves a request that was held, if its client is still authenticated."""
        self.serve(request, credentials_index)

    def refuse_throttled(self, request: ClientRequest, problem: Error) -> None:
        """Answers a request that was held for the maximum time."""
        overdue = self.services.overdue_handler(type(request.message))
        if overdue is not None:
            overdue(self._time, request, problem)
            return
        response = FAILED_RESPONSES[type(request.message)](request.message, problem)
        assert response is not None, "a kind of request that may be unanswered has a handler for overdue requests"
        self._replies.reply(request.request_id, response)


def _printable(text: str) -> str:
    """Returns text of a client for the log: control characters could change what a terminal shows."""
    return text if text.isprintable() else ascii(text)

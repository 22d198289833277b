"""Consumer-group service: a stream of heartbeats, and unary calls."""

from __future__ import annotations

import grpc

from quorumlog.server.observability.metrics import Meters
from quorumlog.server.step.wire_errors import error
from quorumlog.server.transport.caller_identity import Context, origin_of
from quorumlog.server.transport.clients.client_requests import ClientRequests
from quorumlog.server.transport.clients.request_stream import OpenStreams, RequestStream, parse
from quorumlog.server.transport.clients.unary_calls import BUSY, Handlers, unary_handler
from quorumlog.v1 import groups_pb2 as pb
from quorumlog.v1.errors_pb2 import ErrorCode

SERVICE = "quorumlog.v1.Groups"
#: Limit on unanswered heartbeats of a stream, one for each member that it serves; beyond that it is not read.
MAX_HEARTBEATS_PER_STREAM = 2_048
#: Limit shared by the open streams of all members.
MAX_STREAMS = 8_192
#: Maximum size of a heartbeat: it fits a thousand topics by name, or ten thousand partitions.
MAX_HEARTBEAT_BYTES = 1 << 20


class GroupsService:
    """Serves heartbeats of members, and the unary calls of groups."""

    def __init__(self, requests: ClientRequests, meters: Meters) -> None:
        self._requests = requests
        self._meters = meters
        self._streams = OpenStreams(MAX_STREAMS)

    def handlers(self) -> Handlers:
        """Returns the handlers for the gRPC server."""
        kinds = {
            "FindCoordinators": pb.FindCoordinatorsRequest,
            "FetchOffsets": pb.FetchOffsetsRequest,
            "ListGroups": pb.ListGroupsRequest,
            "DescribeGroups": pb.DescribeGroupsRequest,
            "DeleteGroups": pb.DeleteGroupsRequest,
            "DeleteOffsets": pb.DeleteOffsetsRequest,
            "JoinClassicGroup": pb.JoinClassicGroupRequest,
            "SyncClassicGroup": pb.SyncClassicGroupRequest,
            "LeaveClassicGroup": pb.LeaveClassicGroupRequest,
        }
        handlers = {name: unary_handler(kind, self._requests, self._meters) for name, kind in kinds.items()}
        handlers["CommitOffsets"] = unary_handler(
            pb.CommitOffsetsRequest, self._requests, self._meters, self._count_commit
        )
        handlers["ClassicHeartbeat"] = unary_handler(
            pb.ClassicHeartbeatRequest, self._requests, self._meters, self._count_heartbeat
        )
        handlers["Heartbeat"] = grpc.stream_stream_rpc_method_handler(self.heartbeat)
        return grpc.method_handlers_generic_handler(SERVICE, handlers)

    def _count_commit(self) -> None:
        self._meters.offset_commits += 1

    def _count_heartbeat(self) -> None:
        self._meters.consumer_group_heartbeats += 1

    async def heartbeat(self, _unused: object, context: Context) -> None:
        """Serves one stream of heartbeats."""
        stream = RequestStream(self._requests, context, MAX_HEARTBEATS_PER_STREAM, origin_of(context))
        await self._streams.serve(stream, self._take)

    async def _take(self, data: bytes, stream: RequestStream) -> None:
        request = await parse(pb.GroupHeartbeatRequest, data, stream.context)
        self._meters.consumer_group_heartbeats += 1
        problem = None
        if len(data) > MAX_HEARTBEAT_BYTES:
            problem = error(
                ErrorCode.INVALID_REQUEST,
                f"the heartbeat has {len(data)} bytes, the maximum is {MAX_HEARTBEAT_BYTES}: subscribe by pattern",
            )
        elif not self._requests.has_room_for(len(data)):
            problem = error(ErrorCode.SERVER_BUSY, BUSY)
        if problem is None:
            stream.submit(request, len(data))
            return
        self._meters.requests_refused += 1
        stream.answer(
            pb.GroupHeartbeatResponse(
                correlation_id=request.correlation_id,
                error=problem,
                member_id=request.member_id,
                member_epoch=request.member_epoch,
            )
        )

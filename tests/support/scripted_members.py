"""A coordinator for a scripted cluster: it keeps groups as nodes do, by the same code, and answers as the test says."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Sequence

import grpc.aio
from scripted_cluster import Code, LoseStream, ScriptedCluster, StaySilent, error

from quorumlog.server.config.consumer_group_limits import ConsumerGroupLimits
from quorumlog.server.groups.committed_offsets import commit_offsets, fetch_offsets
from quorumlog.server.groups.draft import Draft
from quorumlog.server.groups.group import ConsumerGroup
from quorumlog.server.groups.group_table import GroupTable
from quorumlog.server.groups.heartbeat_decisions import heartbeat, nothing_new
from quorumlog.server.groups.member_changes import RequestContext, expire_session
from quorumlog.server.groups.topic_catalog import TopicInfo
from quorumlog.v1 import errors_pb2, groups_pb2, groups_pb2_grpc


class _Catalog:
    """The one topic of a scripted cluster."""

    index = 0

    def __init__(self, cluster: ScriptedCluster) -> None:
        self._topic = TopicInfo(cluster.topic_id, "t", len(cluster.logs))

    def by_name(self, name: str) -> TopicInfo | None:
        return self._topic if name == "t" else None

    def by_id(self, topic_id: bytes) -> TopicInfo | None:
        return self._topic if topic_id == self._topic.topic_id else None

    def names(self) -> Iterable[str]:
        return ["t"]

    def racks(self, topic_id: bytes) -> Sequence[frozenset[str]]:
        return ()


class ScriptedMembers:
    """The coordinator of all groups of a scripted cluster.

    Attributes:
        leader: the node that coordinates, and its epoch.
        heartbeats: as they came.
        on_heartbeat: decides on a heartbeat: None lets it continue. May raise StaySilent or LoseStream.
        on_answer: sees what a heartbeat is about to be answered; may raise likewise: then the answer is lost.
        on_commit: decides on a commit: None lets it continue.
    """

    def __init__(self, cluster: ScriptedCluster) -> None:
        self.cluster = cluster
        self.leader = (1, 1)
        self.table = GroupTable()
        self.limits = ConsumerGroupLimits(min_session_timeout_ms=100)
        self.heartbeats: list[groups_pb2.GroupHeartbeatRequest] = []
        self.commits: list[groups_pb2.CommitOffsetsRequest] = []
        self.on_heartbeat: Callable[[groups_pb2.GroupHeartbeatRequest], errors_pb2.Error | None] = lambda request: None
        self.on_answer: Callable[[groups_pb2.GroupHeartbeatRequest, groups_pb2.GroupHeartbeatResponse], None] = (
            lambda request, response: None
        )
        self.on_commit: Callable[[groups_pb2.CommitOffsetsRequest], errors_pb2.Error | None] = lambda request: None
        self._changed = asyncio.Event()
        cluster.on_start = lambda node_id, server: groups_pb2_grpc.add_GroupsServicer_to_server(
            _Coordinator(self, node_id), server
        )

    @property
    def group(self) -> ConsumerGroup:
        """The group ``g``."""
        return self.table.groups["g"]

    def committed(self, partition: int) -> int | None:
        """Returns the offset that group ``g`` has committed of a partition of ``t``."""
        group = self.table.groups.get("g")
        stored = group.offsets.get((self.cluster.topic_id, partition)) if group is not None else None
        return None if stored is None else stored.offset

    def throw_out(self, member_id: str) -> None:
        """Counts a member of group ``g`` as dead."""
        draft = self.draft()
        expire_session(draft, "g", member_id)
        self.apply(draft)

    def draft(self) -> Draft:
        """Returns a draft for the next decision."""
        return Draft(self.table, _Catalog(self.cluster), self.limits, 1_000_000)

    def apply(self, draft: Draft) -> None:
        """Makes it so."""
        command = draft.command()
        if command is not None:
            self.table.apply(command)
            self._changed.set()
            self._changed = asyncio.Event()

    async def decide(self, request: groups_pb2.GroupHeartbeatRequest) -> groups_pb2.GroupHeartbeatResponse:
        """Answers a heartbeat, when there is news for the member or its time is over."""
        deadline = asyncio.get_running_loop().time() + request.max_wait_ms / 1000
        while True:
            changed = self._changed
            draft = self.draft()
            response = heartbeat(draft, request, RequestContext("test", "here"))
            self.apply(draft)
            if response is not None:
                return response
            try:
                async with asyncio.timeout_at(deadline):
                    await changed.wait()
            except TimeoutError:
                group = self.table.groups[request.group_id]
                if request.member_id in group.members:
                    return nothing_new(group, request, self.limits)

    def check_leader(self, node_id: int) -> errors_pb2.Error | None:
        """Why a node does not coordinate, if it does not."""
        return None if node_id == self.leader[0] else error(Code.NOT_COORDINATOR, leader=self.leader)


class _Coordinator(groups_pb2_grpc.GroupsServicer):
    def __init__(self, script: ScriptedMembers, node_id: int) -> None:
        self.script = script
        self.node_id = node_id

    async def FindCoordinators(
        self, request: groups_pb2.FindCoordinatorsRequest, context: grpc.aio.ServicerContext
    ) -> groups_pb2.FindCoordinatorsResponse:
        node_id, epoch = self.script.leader
        port = self.script.cluster.nodes[node_id].port
        return groups_pb2.FindCoordinatorsResponse(
            coordinators=[
                groups_pb2.GroupCoordinator(
                    group_id=group_id, partition=0, node_id=node_id, host="127.0.0.1", port=port, leader_epoch=epoch
                )
                for group_id in request.group_ids
            ]
        )

    async def Heartbeat(
        self, requests: AsyncIterator[groups_pb2.GroupHeartbeatRequest], context: grpc.aio.ServicerContext
    ) -> AsyncIterator[groups_pb2.GroupHeartbeatResponse]:
        answers: asyncio.Queue[groups_pb2.GroupHeartbeatResponse | None] = asyncio.Queue()

        async def answer(request: groups_pb2.GroupHeartbeatRequest) -> None:
            try:
                refusal = self.script.check_leader(self.node_id) or self.script.on_heartbeat(request)
                response = (
                    groups_pb2.GroupHeartbeatResponse(error=refusal)
                    if refusal is not None
                    else await self.script.decide(request)
                )
                self.script.on_answer(request, response)
            except StaySilent:
                return
            except LoseStream:
                await answers.put(None)
                return
            response.correlation_id = request.correlation_id
            await answers.put(response)

        async def take() -> None:
            waiting: dict[str, asyncio.Task[None]] = {}
            async for request in requests:
                self.script.heartbeats.append(request)
                if request.member_id in waiting:
                    waiting[request.member_id].cancel()
                waiting[request.member_id] = asyncio.create_task(answer(request))

        taking = asyncio.create_task(take())
        try:
            while (response := await answers.get()) is not None:
                yield response
            await context.abort(grpc.StatusCode.UNAVAILABLE, "lost")
        finally:
            taking.cancel()

    async def CommitOffsets(
        self, request: groups_pb2.CommitOffsetsRequest, context: grpc.aio.ServicerContext
    ) -> groups_pb2.CommitOffsetsResponse:
        refusal = self.script.check_leader(self.node_id)
        if refusal is None:
            self.script.commits.append(request)
            refusal = self.script.on_commit(request)
        if refusal is not None:
            return groups_pb2.CommitOffsetsResponse(error=refusal)
        draft = self.script.draft()
        response = commit_offsets(draft, request)
        self.script.apply(draft)
        return response

    async def FetchOffsets(
        self, request: groups_pb2.FetchOffsetsRequest, context: grpc.aio.ServicerContext
    ) -> groups_pb2.FetchOffsetsResponse:
        refusal = self.script.check_leader(self.node_id)
        if refusal is not None:
            return groups_pb2.FetchOffsetsResponse(error=refusal)
        return fetch_offsets(self.script.draft(), request)

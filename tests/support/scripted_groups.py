"""Coordinators of groups for a scripted cluster: tables in memory, and leaders and refusals as the test says."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import grpc.aio
from scripted_cluster import Code, ScriptedCluster, error

from quorumlog.v1 import errors_pb2, groups_pb2, groups_pb2_grpc


@dataclass
class ScriptedGroup:
    """One group: its members, and committed offsets by partition of topic ``t``."""

    members: list[groups_pb2.MemberDescription] = field(default_factory=list)
    offsets: dict[int, groups_pb2.CommittedOffset] = field(default_factory=dict)
    subscribed: bool = False
    classic_part: bytes = b""

    def told_offsets(self) -> list[groups_pb2.CommittedOffset]:
        """Returns the committed offsets, with the topic's name."""
        reported = []
        for offset in self.offsets.values():
            reported.append(groups_pb2.CommittedOffset.FromString(offset.SerializeToString()))
            reported[-1].topic = "t"
        return reported

    @property
    def state(self) -> groups_pb2.GroupState.ValueType:
        """Its state."""
        return groups_pb2.GROUP_STABLE if self.members else groups_pb2.GROUP_EMPTY


@dataclass(frozen=True)
class Asked:
    """One call as it arrived."""

    node_id: int
    method: str


class ScriptedCoordinators:
    """The group coordinators of a scripted cluster.

    Attributes:
        leaders: the (node, epoch) of each partition of ``__groups``; node -1: none.
        shown: what nodes report of it when asked; None: the truth.
        deleted_ids: the ids of topics by which offsets were deleted.
        hints: whether nodes that do not coordinate say who does.
        knows_offsets: whether nodes describe groups with what they have committed; older ones cannot.
        refuse: decides on a call: None lets it continue.
    """

    def __init__(self, cluster: ScriptedCluster, partitions: int = 3) -> None:
        nodes = sorted(cluster.nodes)
        self.cluster = cluster
        self.leaders = [(nodes[number % len(nodes)], 1) for number in range(partitions)]
        self.shown: list[tuple[int, int]] | None = None
        self.hints = self.knows_offsets = True
        self.groups: dict[str, ScriptedGroup] = {}
        self.asked: list[Asked] = []
        self.deleted_ids: set[bytes] = set()
        self.refuse: Callable[[Asked], errors_pb2.Error | None] = lambda asked: None
        cluster.on_start = lambda node_id, server: groups_pb2_grpc.add_GroupsServicer_to_server(
            _Coordinator(self, node_id), server
        )

    def partition(self, group_id: str) -> int:
        """Returns the partition that keeps a group."""
        return sum(group_id.encode()) % len(self.leaders)

    def elect(self, partition: int, leader: int) -> None:
        """Gives a partition another leader, one epoch on."""
        self.leaders[partition] = (leader, self.leaders[partition][1] + 1)

    def count(self, method: str) -> int:
        """Returns how often a method was called."""
        return sum(request.method == method for request in self.asked)


class _Coordinator(groups_pb2_grpc.GroupsServicer):
    def __init__(self, script: ScriptedCoordinators, node_id: int) -> None:
        self.script = script
        self.node_id = node_id

    def _note_question(self, method: str, group_id: str | None = None) -> errors_pb2.Error | None:
        requests = Asked(self.node_id, method)
        self.script.asked.append(requests)
        refusal = self.script.refuse(requests)
        if refusal is None and group_id is not None:
            leader = self.script.leaders[self.script.partition(group_id)]
            if leader[0] != self.node_id:
                return error(Code.NOT_COORDINATOR, leader=leader if self.script.hints else None)
        return refusal

    async def FindCoordinators(
        self, request: groups_pb2.FindCoordinatorsRequest, context: grpc.aio.ServicerContext
    ) -> groups_pb2.FindCoordinatorsResponse:
        refusal = self._note_question("FindCoordinators")
        if refusal is not None:
            return groups_pb2.FindCoordinatorsResponse(error=refusal)
        script = self.script
        response = groups_pb2.FindCoordinatorsResponse()
        wanted = [(group_id, script.partition(group_id)) for group_id in request.group_ids]
        for group_id, number in [("", number) for number in range(len(script.leaders))] if request.all else wanted:
            leader, epoch = (script.shown or script.leaders)[number]
            found = response.coordinators.add(group_id=group_id, partition=number, node_id=leader, leader_epoch=epoch)
            if group_id == "bad":
                found.error.CopyFrom(error(Code.INVALID_GROUP_ID, retriable=False))
            elif leader >= 0:
                found.host, found.port = "127.0.0.1", script.cluster.nodes[leader].port
        return response

    async def CommitOffsets(
        self, request: groups_pb2.CommitOffsetsRequest, context: grpc.aio.ServicerContext
    ) -> groups_pb2.CommitOffsetsResponse:
        response = groups_pb2.CommitOffsetsResponse()
        refusal = self._note_question("CommitOffsets", request.group_id)
        group = self.script.groups.setdefault(request.group_id, ScriptedGroup())
        if refusal is None and group.members:
            refusal = error(Code.UNKNOWN_MEMBER_ID, retriable=False)
        if refusal is not None:
            response.error.CopyFrom(refusal)
            return response
        assert (request.member_id, request.member_epoch) == ("", -1)
        for offset in request.offsets:
            result = response.results.add(topic_id=offset.topic_id, partition=offset.partition)
            if offset.topic_id != self.script.cluster.topic_id:
                result.error.CopyFrom(error(Code.UNKNOWN_TOPIC_OR_PARTITION))
            elif len(offset.metadata) > 4096:
                result.error.CopyFrom(error(Code.OFFSET_METADATA_TOO_LARGE, retriable=False))
            else:
                group.offsets[offset.partition] = offset
        return response

    async def FetchOffsets(
        self, request: groups_pb2.FetchOffsetsRequest, context: grpc.aio.ServicerContext
    ) -> groups_pb2.FetchOffsetsResponse:
        refusal = self._note_question("FetchOffsets", request.group_id)
        if refusal is not None:
            return groups_pb2.FetchOffsetsResponse(error=refusal)
        group = self.script.groups.get(request.group_id, ScriptedGroup())
        response = groups_pb2.FetchOffsetsResponse()
        response.offsets.extend(group.told_offsets())
        return response

    async def ListGroups(
        self, request: groups_pb2.ListGroupsRequest, context: grpc.aio.ServicerContext
    ) -> groups_pb2.ListGroupsResponse:
        refusal = self._note_question("ListGroups")
        if refusal is not None:
            return groups_pb2.ListGroupsResponse(error=refusal)
        script = self.script
        led = [number for number, (leader, _) in enumerate(script.leaders) if leader == self.node_id]
        response = groups_pb2.ListGroupsResponse(coordinators=led)
        for group_id, group in sorted(script.groups.items()):
            if script.partition(group_id) in led and (not request.states or group.state in request.states):
                response.groups.add(group_id=group_id, state=group.state, members=len(group.members))
        return response

    async def DescribeGroups(
        self, request: groups_pb2.DescribeGroupsRequest, context: grpc.aio.ServicerContext
    ) -> groups_pb2.DescribeGroupsResponse:
        response = groups_pb2.DescribeGroupsResponse()
        for group_id in request.group_ids:
            described = response.groups.add(group_id=group_id, coordinator=self.node_id)
            refusal = self._note_question("DescribeGroups", group_id)
            group = self.script.groups.get(group_id)
            if refusal is None and group is None:
                refusal = error(Code.GROUP_ID_NOT_FOUND, retriable=False)
            if refusal is not None:
                described.error.CopyFrom(refusal)
                continue
            assert group is not None
            described.state, described.group_epoch, described.assignment_epoch = group.state, 3, 2
            described.assignor = "uniform" if group.members else ""
            described.members.extend(group.members)
            if request.include_offsets and self.script.knows_offsets:
                described.has_offsets = True
                described.offsets.extend(group.told_offsets())
            if group.classic_part:
                described.state, described.kind = groups_pb2.GROUP_PREPARING_REBALANCE, groups_pb2.GROUP_KIND_CLASSIC
                described.generation, described.protocol, described.assignor = 7, "range", ""
                described.leader, described.protocol_type = "a", "consumer"
                for member in described.members:
                    member.classic_assignment = group.classic_part
        return response

    async def DeleteGroups(
        self, request: groups_pb2.DeleteGroupsRequest, context: grpc.aio.ServicerContext
    ) -> groups_pb2.DeleteGroupsResponse:
        response = groups_pb2.DeleteGroupsResponse()
        for group_id in request.group_ids:
            result = response.results.add(group_id=group_id)
            refusal = self._note_question("DeleteGroups", group_id)
            if refusal is None and group_id not in self.script.groups:
                refusal = error(Code.GROUP_ID_NOT_FOUND, retriable=False)
            elif refusal is None and self.script.groups[group_id].members:
                refusal = error(Code.NON_EMPTY_GROUP, retriable=False)
            if refusal is not None:
                result.error.CopyFrom(refusal)
            else:
                del self.script.groups[group_id]
        return response

    async def DeleteOffsets(
        self, request: groups_pb2.DeleteOffsetsRequest, context: grpc.aio.ServicerContext
    ) -> groups_pb2.DeleteOffsetsResponse:
        refusal = self._note_question("DeleteOffsets", request.group_id)
        if refusal is None and request.group_id not in self.script.groups:
            refusal = error(Code.GROUP_ID_NOT_FOUND, retriable=False)
        if refusal is not None:
            return groups_pb2.DeleteOffsetsResponse(error=refusal)
        group = self.script.groups[request.group_id]
        response = groups_pb2.DeleteOffsetsResponse()
        for topic_id, number in [(topic.topic_id, number) for topic in request.topics for number in topic.partitions]:
            self.script.deleted_ids.add(topic_id)
            result = response.results.add(topic_id=topic_id, partition=number)
            if group.subscribed:
                result.error.CopyFrom(error(Code.GROUP_SUBSCRIBED_TO_TOPIC, retriable=False))
            else:
                group.offsets.pop(number, None)
        return response

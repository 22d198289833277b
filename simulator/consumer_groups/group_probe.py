"""A client that describes a consumer group, linearizably: it must not get an older state than that of its request.

Once the coordinator has moved, it continues to query the former node, and often: that node may not have learned yet
that it was deposed.
"""

from __future__ import annotations

from collections.abc import Callable

from google.protobuf.message import Message as ProtoMessage

from quorumlog.raft.types import NO_NODE
from quorumlog.simulator.consumer_groups.member_link import MemberPort
from quorumlog.simulator.models.committed_partition import Violation
from quorumlog.simulator.models.coordinator_model import ModelGroup
from quorumlog.simulator.models.coordinator_models import CoordinatorModels
from quorumlog.simulator.models.pending_model import TopicIdPartition
from quorumlog.simulator.world.readers import DOUBTFUL_US, FORMER_ASKED_US
from quorumlog.simulator.world.scheduler import Scheduler
from quorumlog.v1 import groups_pb2 as pb
from quorumlog.v1.errors_pb2 import ErrorCode

TIMEOUT_MS = 500


class GroupProbe:
    """Describes one group, and reads its committed offsets, from time to time at any node: those that do not coordinate
    it reject that.

    Arguments:
        stopped: returns True when to end.

    Attributes:
        answered: number of answers that were judged.
    """

    def __init__(
        self,
        group_id: str,
        port: MemberPort,
        scheduler: Scheduler,
        coordinators: CoordinatorModels,
        stopped: Callable[[], bool],
        interval_us: tuple[int, int],
    ) -> None:
        self.answered = 0
        self._group_id = group_id
        self._port = port
        self._scheduler = scheduler
        self._rng = scheduler.stream(f"group-probe/{group_id}")
        self._coordinators = coordinators
        self._stopped = stopped
        self._interval_us = interval_us
        self._leader = self._former = NO_NODE
        self._former_until = 0
        self._ask()

    def _ask(self) -> None:
        if self._stopped():
            return
        leader = next((node for node in self._port.node_ids if self._port.coordinates(node, self._group_id)), NO_NODE)
        if leader not in (NO_NODE, self._leader):
            self._leader, self._former = leader, self._leader
            self._former_until = self._scheduler.now + FORMER_ASKED_US
        doubtful = self._former != NO_NODE and self._scheduler.now < self._former_until
        self._scheduler.after(self._rng.randint(*(DOUBTFUL_US if doubtful else self._interval_us)), self._ask)
        if doubtful:
            self._ask_of(self._former)
        self._ask_of(self._rng.choice(self._port.node_ids))

    def _ask_of(self, node: int) -> None:
        # Connections of their own: a request must not wait behind another's answer.
        lane = f"group-probe-{node}"
        epoch = self._group.header.group_epoch
        describe = pb.DescribeGroupsRequest(group_ids=[self._group_id], timeout_ms=TIMEOUT_MS)
        self._port.request(
            lane, node, describe, lambda answer: None, lambda answer: self._described(node, epoch, answer)
        )
        offsets = {partition: row.offset for partition, row in self._group.offsets.items()}
        read = pb.FetchOffsetsRequest(group_id=self._group_id, member_epoch=-1, timeout_ms=TIMEOUT_MS)
        self._port.request(lane, node, read, lambda answer: None, lambda answer: self._read(node, offsets, answer))

    @property
    def _group(self) -> ModelGroup:
        """The group by the log."""
        return self._coordinators.group(self._group_id) or ModelGroup()

    # -- answers -------------------------------------------------------------------------------------------

    def _described(self, node: int, least: int, answer: ProtoMessage) -> None:
        assert isinstance(answer, pb.DescribeGroupsResponse)
        if answer.HasField("error"):
            return
        (described,) = answer.groups
        if described.HasField("error") and described.error.code != ErrorCode.GROUP_ID_NOT_FOUND:
            return
        self.answered += 1
        newest = self._group.header.group_epoch
        if newest < least:
            return  # It was deleted in the meantime, as it had neither members nor offsets, and starts from scratch.
        if not least <= described.group_epoch <= newest:
            raise Violation(
                f"node {node} describes group {self._group_id} in epoch {described.group_epoch}; it was in {least} when"
                f" that was requested, and is in {newest}"
            )
        owners: dict[TopicIdPartition, str] = {}
        for member in described.members:
            for row in member.assignment:
                for number in row.partitions:
                    other = owners.setdefault(TopicIdPartition(row.topic_id, number), member.member_id)
                    if other != member.member_id:
                        raise Violation(
                            f"node {node} describes {row.topic}-{number} of group {self._group_id} as of both {other}"
                            f" and {member.member_id}"
                        )

    def _read(self, node: int, least: dict[TopicIdPartition, int], answer: ProtoMessage) -> None:
        assert isinstance(answer, pb.FetchOffsetsResponse)
        if answer.HasField("error"):
            return
        self.answered += 1
        reported = {TopicIdPartition(row.topic_id, row.partition): row.offset for row in answer.offsets}
        newest = self._group.offsets
        for partition, offset in least.items():
            # A partition that is missing now is of a topic that was deleted.
            if partition not in newest:
                continue
            # A member may have replaced a commit of its own in the meantime.
            now = newest[partition].offset
            if not min(offset, now) <= reported.get(partition, -1) <= max(offset, now):
                raise Violation(
                    f"node {node} reports that group {self._group_id} has committed {reported.get(partition)} of"
                    f" {partition}; it had {offset} when that was requested, and has {newest[partition].offset}"
                )

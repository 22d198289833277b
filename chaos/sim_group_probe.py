"""Who asks, linearizably, how a consumer group stands: it must not be told less than was decided when it asked."""

from __future__ import annotations

from collections.abc import Callable

from google.protobuf.message import Message as ProtoMessage

from quorumlog.chaos.committed_partition import Violation
from quorumlog.chaos.coordinator_models import CoordinatorModels
from quorumlog.chaos.scheduler import Scheduler
from quorumlog.chaos.sim_clients import Port, Unanswered
from quorumlog.v1 import groups_pb2 as pb
from quorumlog.v1.errors_pb2 import ErrorCode

TIMEOUT_MS = 500


class GroupProbe:
    """Describes one group now and then, at any node: those that do not coordinate it refuse.

    Arguments:
        stopped: tells when to end.

    Attributes:
        answered: descriptions that came.
    """

    def __init__(
        self,
        group_id: str,
        port: Port,
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
        self._ask()

    def _ask(self) -> None:
        if self._stopped():
            return
        self._scheduler.after(self._rng.randint(*self._interval_us), self._ask)
        least = self._epoch
        node = self._rng.choice(self._port.node_ids)
        request = pb.DescribeGroupsRequest(group_ids=[self._group_id], timeout_ms=TIMEOUT_MS)
        # A connection of its own: a question must not wait behind another's answer.
        self._port.request(
            f"group-probe-{node}", node, request, lambda answer: None, lambda answer: self._judge(node, least, answer)
        )

    @property
    def _epoch(self) -> int:
        """The epoch to which the group has come by the log."""
        group = self._coordinators.group(self._group_id)
        return 0 if group is None else group.header.group_epoch

    def _judge(self, node: int, least: int, answer: ProtoMessage | Unanswered) -> None:
        assert isinstance(answer, pb.DescribeGroupsResponse)
        if answer.HasField("error"):
            return
        (described,) = answer.groups
        unknown = described.error.code == ErrorCode.GROUP_ID_NOT_FOUND
        if described.HasField("error") and not unknown:
            return
        self.answered += 1
        if self._epoch < least:
            return  # It was deleted meanwhile, for it had neither members nor offsets, and begins anew.
        if not least <= described.group_epoch <= self._epoch:
            raise Violation(
                f"node {node} describes group {self._group_id} in epoch {described.group_epoch}; it was in {least} when"
                f" that was asked, and is in {self._epoch}"
            )
        owners: dict[tuple[bytes, int], str] = {}
        for member in described.members:
            for row in member.assignment:
                for number in row.partitions:
                    other = owners.setdefault((row.topic_id, number), member.member_id)
                    if other != member.member_id:
                        raise Violation(
                            f"node {node} describes {row.topic}-{number} of group {self._group_id} as of both {other}"
                            f" and {member.member_id}"
                        )

"""Where one simulated member finds its coordinator: asked of any node, and learned from what nodes answer."""

from __future__ import annotations

from collections.abc import Callable

from google.protobuf.message import Message as ProtoMessage

from quorumlog.chaos.simulator.clients import Unanswered
from quorumlog.chaos.simulator.member_link import MemberLink
from quorumlog.raft.types import NO_NODE
from quorumlog.v1 import groups_pb2 as pb
from quorumlog.v1.errors_pb2 import Error

PATIENCE_US = 300_000


class SimCoordinator:
    """The node that coordinates one group, as one member knows it.

    Arguments:
        found: called whenever a node is known that was not before.
    """

    def __init__(self, group_id: str, link: MemberLink, found: Callable[[], None]) -> None:
        self.node = NO_NODE
        self._group_id = group_id
        self._link = link
        self._found = found
        self._epoch = 0
        self._asking = False

    def forget(self) -> None:
        """Whoever it was does not answer."""
        self.node = NO_NODE

    def learn(self, error: Error) -> None:
        """Takes what a refusal says of the coordinator; one that is not newer than what led here is asked for."""
        hint = error.leader
        self.node = NO_NODE
        if error.HasField("leader") and hint.node_id >= 0 and hint.leader_epoch > self._epoch:
            self.node, self._epoch = hint.node_id, hint.leader_epoch

    def ask(self) -> None:
        """Asks some node, unless an answer is awaited already."""
        if self._asking:
            return
        self._asking = True
        node = self._link.rng.choice(self._link.port.node_ids)
        self._link.ask(node, pb.FindCoordinatorsRequest(group_ids=[self._group_id]), self._answered, PATIENCE_US)

    def _answered(self, answer: ProtoMessage | Unanswered) -> None:
        self._asking = False
        if isinstance(answer, pb.FindCoordinatorsResponse) and not answer.HasField("error"):
            coordinator = answer.coordinators[0]
            newer = coordinator.leader_epoch >= self._epoch
            if not coordinator.HasField("error") and coordinator.node_id >= 0 and newer:
                self.node, self._epoch = coordinator.node_id, coordinator.leader_epoch
        if self.node == NO_NODE:
            self._link.later(20_000, 120_000, self.ask)
        else:
            self._found()

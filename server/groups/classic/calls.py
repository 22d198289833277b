"""A call of a member of a classic group that is not answered yet, and what decides it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, TypeAlias

from google.protobuf.message import Message as ProtoMessage

from quorumlog.server.config.consumer_group_limits import ConsumerGroupLimits
from quorumlog.server.groups.classic.classic_group import ClassicGroup, ClassicMember
from quorumlog.server.step.request_context import RequestContext
from quorumlog.v1 import errors_pb2
from quorumlog.v1.groups_pb2 import (
    ClassicHeartbeatRequest,
    JoinClassicGroupRequest,
    LeaveClassicGroupRequest,
    SyncClassicGroupRequest,
)

#: Of members of classic groups.
ClassicRequest: TypeAlias = (
    JoinClassicGroupRequest | SyncClassicGroupRequest | ClassicHeartbeatRequest | LeaveClassicGroupRequest
)


class ClassicDraft(Protocol):
    """The groups of one coordinator as they are after the changes of a decision so far."""

    limits: ConsumerGroupLimits

    @property
    def is_full(self) -> bool:
        """Whether the coordinator has as many groups as it may."""

    def has_room_for(self, size_bytes: int) -> bool:
        """Whether the coordinator may keep so much more."""

    @property
    def has_classic_groups(self) -> bool:
        """Whether all nodes know what they are."""

    @property
    def size_bytes(self) -> int:
        """About how many bytes the changes have."""

    def exists(self, group_id: str) -> bool:
        """Whether there is such a group, of whichever kind."""

    def has_consumers(self, group_id: str) -> bool:
        """Whether it has members of the other kind."""

    def classic(self, group_id: str) -> ClassicGroup | None:
        """A classic group; None where there is none."""

    def put_classic(self, group_id: str, classic: ClassicGroup) -> None:
        """A group is a classic one from now on, and this."""


class OpenCalls(Protocol):
    """The calls that clients still wait for."""

    def give(self, request_id: int, answer: ProtoMessage) -> None:
        """Answers a call, unless its time was over before."""

    def fail(self, request_id: int, problem: errors_pb2.Error) -> None:
        """Answers a call with an error as a whole, unless its time was over before."""

    def is_expected(self, request_id: int) -> bool:
        """Whether somebody still waits for its answer."""


class DecidesClassic(Protocol):
    """What has the leader's memory of classic groups."""

    def decide(self, draft: ClassicDraft, call: ClassicCall) -> ProtoMessage | None:
        """Decides a call on a draft; None: it waits."""


@dataclass(slots=True, eq=False)
class ClassicCall:
    """A call that is not answered yet.

    Arguments:
        deadline: when it is answered at the latest, if it has to wait (µs of the awake clock).
        member: who joins, once that is settled: a join that is decided again stays the same member.
    """

    request_id: int
    request: ClassicRequest
    client: RequestContext
    deadline: int
    answers: OpenCalls
    decisions: DecidesClassic
    member: ClassicMember | None = None

    @property
    def group_id(self) -> str:
        """The group."""
        return self.request.group_id

    @property
    def is_expected(self) -> bool:
        """Whether its client still waits."""
        return self.answers.is_expected(self.request_id)

    def decide(self, draft: ClassicDraft) -> ProtoMessage | None:
        """Decides it; None: it waits."""
        return self.decisions.decide(draft, self)

    def answer(self, response: ProtoMessage) -> None:
        """Answers it."""
        self.answers.give(self.request_id, response)

    def refuse(self, problem: errors_pb2.Error) -> None:
        """Answers that it is not decided here, or not now."""
        self.answers.fail(self.request_id, problem)

"""A call of a member of a classic group that is not answered yet, and the interfaces that decide it."""

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

#: A call of a member of a classic group.
ClassicRequest: TypeAlias = (
    JoinClassicGroupRequest | SyncClassicGroupRequest | ClassicHeartbeatRequest | LeaveClassicGroupRequest
)


class ClassicDraft(Protocol):
    """The groups of one coordinator after the changes of a decision so far."""

    limits: ConsumerGroupLimits

    @property
    def is_full(self) -> bool:
        """True if the coordinator has its maximum number of groups."""

    def has_room_for(self, size_bytes: int) -> bool:
        """True if the coordinator may store that many more bytes."""

    @property
    def has_classic_groups(self) -> bool:
        """True if all nodes support classic groups."""

    @property
    def size_bytes(self) -> int:
        """Approximate size of the changes in bytes."""

    def exists(self, group_id: str) -> bool:
        """True if the group exists, of either kind."""

    def has_consumers(self, group_id: str) -> bool:
        """True if it has members of the other kind."""

    def classic(self, group_id: str) -> ClassicGroup | None:
        """Returns a classic group; None if no classic group has that id."""

    def put_classic(self, group_id: str, classic: ClassicGroup) -> None:
        """Sets the state of a classic group; the group becomes one if it was not."""


class OpenCalls(Protocol):
    """The calls that clients still wait for."""

    def give(self, request_id: int, answer: ProtoMessage) -> None:
        """Answers a call, unless its deadline passed before."""

    def fail(self, request_id: int, problem: errors_pb2.Error) -> None:
        """Answers a call with an error as a whole, unless its deadline passed before."""

    def is_expected(self, request_id: int) -> bool:
        """True if a client still waits for its answer."""


class DecidesClassic(Protocol):
    """Decides calls with the leader's state of classic groups."""

    def decide(self, draft: ClassicDraft, call: ClassicCall) -> ProtoMessage | None:
        """Decides a call on a draft; returns None if the call waits."""


@dataclass(slots=True, eq=False)
class ClassicCall:
    """A call that is not answered yet.

    Arguments:
        deadline: time by which it is answered if it has to wait (µs of the awake clock).
        member: the joining member, once that is settled: a join that is decided again stays the same member.
    """

    request_id: int
    request: ClassicRequest
    client: RequestContext
    deadline: int
    answers: OpenCalls
    decisions: DecidesClassic
    member: ClassicMember | None = None

    @property
    def key(self) -> str:
        """The group."""
        return self.request.group_id

    @property
    def is_expected(self) -> bool:
        """True if its client still waits."""
        return self.answers.is_expected(self.request_id)

    def decide(self, draft: ClassicDraft) -> ProtoMessage | None:
        """Decides the call; returns None if it waits."""
        return self.decisions.decide(draft, self)

    def answer(self, response: ProtoMessage) -> None:
        """Sends the response."""
        self.answers.give(self.request_id, response)

    def refuse(self, problem: errors_pb2.Error) -> None:
        """Responds that it is not decided here, or not now."""
        self.answers.fail(self.request_id, problem)

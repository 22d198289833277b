"""Classic groups on a coordinator's leader without Raft under it: what it decides is applied at once, unless a test
holds that back. A second replica applies the same, and another leader continues from a snapshot when a test says so."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import TypeVar

from google.protobuf.message import Message

from quorumlog.server.access.authorizer import Authorizer
from quorumlog.server.config.consumer_group_limits import ConsumerGroupLimits
from quorumlog.server.deciding.stall_aware_clock import AwakeClock
from quorumlog.server.groups.classic.calls import ClassicCall, ClassicRequest
from quorumlog.server.groups.classic.classic_group import ClassicGroup
from quorumlog.server.groups.draft import Draft
from quorumlog.server.groups.group_shard import GROUP_COORDINATORS
from quorumlog.server.groups.group_table import GroupTable
from quorumlog.server.groups.shard_leader import LeadershipOptions, ShardLeader
from quorumlog.server.metadata.image import MetadataImage
from quorumlog.server.metadata.records import SECOND_FEATURE_LEVEL
from quorumlog.server.step.request_context import RequestContext
from quorumlog.server.step.wire_errors import error
from quorumlog.v1 import errors_pb2
from quorumlog.v1 import groups_pb2 as pb
from quorumlog.v1 import metadata_log_pb2 as log
from quorumlog.v1.coordinator_log_pb2 import GroupCommand
from quorumlog.v1.errors_pb2 import ErrorCode

GROUP = "g"
GRACE_MS = 1_200
#: The first round waits so long for others (ms).
DELAY_MS = 500
SESSION_MS, REBALANCE_MS = 10_000, 60_000
TOPIC_ID = b"t" * 16
ORIGIN = RequestContext("app", "127.0.0.1")
_Answer = TypeVar("_Answer", bound=Message)
_Result = TypeVar("_Result")


@dataclass
class RaftOfNothing:
    """The attributes of a Raft group that a leadership reads."""

    term: int = 3
    confirmed_round: int = 0
    commit_index: int = 0
    applied_index: int = 0


@dataclass
class ImageOfTopics:
    """The current metadata image of a node."""

    image: MetadataImage


@dataclass
class ClassicRig:
    """A leader, its clients, and time.

    Arguments:
        takes: whether the log takes what is proposed.
        holds: whether what is proposed stays unapplied until ``apply``.
    """

    kind = GROUP_COORDINATORS
    limits: ConsumerGroupLimits = field(
        default_factory=lambda: ConsumerGroupLimits(initial_rebalance_delay_ms=DELAY_MS)
    )
    level: int = SECOND_FEATURE_LEVEL
    authorizer: Authorizer | None = None
    max_parked: int = 1_000
    takes: bool = True
    holds: bool = False
    raft: RaftOfNothing = field(default_factory=RaftOfNothing)
    table: GroupTable = field(default_factory=GroupTable)
    replica: GroupTable = field(default_factory=GroupTable)
    commands: list[GroupCommand] = field(default_factory=list)
    replies: dict[int, Message] = field(default_factory=dict)
    on_applied: Callable[[GroupCommand], None] = lambda command: None
    _open: set[int] = field(default_factory=set)
    _unapplied: list[tuple[int, GroupCommand]] = field(default_factory=list)
    _requests: int = 0

    def __post_init__(self) -> None:
        self.clock = AwakeClock(0, 100_000)
        self.clock.step(0, 1_000_000)
        self.image = MetadataImage()
        topic = log.CreateTopic(name="t", topic_id=TOPIC_ID, partitions=[log.ReplicaSet(replicas=[1])] * 4)
        self.image.apply(1, log.MetadataCommand(create_topic=topic))
        self.lead()

    # -- the leader -----------------------------------------------------------------------------------------------

    def lead(self) -> None:
        """A leadership starts."""
        self.image.feature_level = self.level
        options = LeadershipOptions(self.limits, 1_000, self.max_parked, 604_800_000, GRACE_MS * 1000)
        self.leadership = ShardLeader(self, self.clock, ImageOfTopics(self.image), options, self.authorizer)  # type: ignore[arg-type]

    def fail_over(self) -> None:
        """Another replica leads, from a snapshot: what was not applied is lost, and every waiting caller is
        notified."""
        self.leadership.end()
        self._unapplied.clear()
        data = self.replica.to_snapshot(7)
        self.table, _ = GroupTable.from_snapshot(data)
        assert self.table.to_snapshot(7) == data
        self.replica, _ = GroupTable.from_snapshot(data)
        self.raft.term += 1
        self.lead()
        self.decide()

    def propose(self, now: int, command: GroupCommand) -> int | None:
        if not self.takes:
            return None
        self.raft.applied_index += 1
        self._unapplied.append((self.raft.applied_index, command))
        return self.raft.applied_index

    def not_coordinator(self, *, definite: bool) -> errors_pb2.Error:
        return error(ErrorCode.NOT_COORDINATOR, "led elsewhere", definite=definite)

    def decide(self) -> None:
        """Has decided what waits and is due."""
        while self.leadership.do_what_is_due() and not self.holds:
            self.apply()

    def apply(self) -> None:
        """Applies the proposed commands on both replicas, and compares their snapshots."""
        while self._unapplied:
            index, command = self._unapplied.pop(0)
            self.commands.append(command)
            changed = self.table.apply(command)
            self.leadership.applied(index, self.raft.term, command, changed)
            self.replica.apply(GroupCommand.FromString(command.SerializeToString()))
            data = self.table.to_snapshot(1)
            assert self.replica.to_snapshot(1) == data
            assert GroupTable.from_snapshot(data)[0].size_bytes == self.table.size_bytes
            self.on_applied(command)

    def pass_ms(self, time_ms: int) -> None:
        """Time passes, step by step where something is due."""
        until = self.clock.awake_us + time_ms * 1000
        while True:
            self.decide()
            due = max(self.leadership.next_deadline, self.clock.awake_us + 1_000)
            step = min(due, until, self.clock.awake_us + 400_000)
            self.clock.step(self.clock.now + step - self.clock.awake_us, self.clock.wall_ms + 1)
            if self.clock.awake_us >= until:
                self.decide()
                return

    # -- clients --------------------------------------------------------------------------------------------------

    def give(self, request_id: int, answer: Message) -> None:
        if request_id in self._open:
            self._open.discard(request_id)
            self.replies[request_id] = answer

    def fail(self, request_id: int, problem: errors_pb2.Error) -> None:
        self.give(request_id, problem)

    def is_expected(self, request_id: int) -> bool:
        return request_id in self._open

    def send(self, request: ClassicRequest, *, client: RequestContext = ORIGIN, wait_ms: int = 300_000) -> int:
        """A client calls; returns the number of its call."""
        call = self.call(request, client=client, wait_ms=wait_ms)
        if not isinstance(request, pb.LeaveClassicGroupRequest):
            self.leadership.classic.heard(request.group_id, request.member_id)
        self.leadership.queue.submit(call)
        self.decide()
        return call.request_id

    def call(self, request: ClassicRequest, *, client: RequestContext = ORIGIN, wait_ms: int = 300_000) -> ClassicCall:
        """Returns the call for a client's request, for the code that decides it."""
        self._requests += 1
        self._open.add(self._requests)
        deadline = self.clock.awake_us + wait_ms * 1000
        return ClassicCall(self._requests, request, client, deadline, self, self.leadership.classic)

    def hang_up(self, number: int) -> None:
        """A client waits for an answer no more."""
        self._open.discard(number)
        self.leadership.client_gone(number)
        self.decide()

    def ask(self, request: ClassicRequest, kind: type[_Answer], **how: object) -> _Answer:
        """A call that is answered at once."""
        return self.answer(self.send(request, **how), kind)  # type: ignore[arg-type]

    def answer(self, number: int, kind: type[_Answer]) -> _Answer:
        """Returns the answer to a call."""
        answer = self.replies.get(number)
        assert isinstance(answer, kind), f"call {number} was answered {answer}"
        return answer

    def is_waiting(self, number: int) -> bool:
        """True if a call is not answered yet."""
        return number in self._open

    # -- requests of members -----------------------------------------------------------------------------------------

    def join(self, member_id: str = "", **more: object) -> int:
        """A member joins; returns the number of its call."""
        return self.send(join_request(member_id, **more))

    def joined(self, number: int) -> pb.JoinClassicGroupResponse:
        """The answer to a join."""
        return self.answer(number, pb.JoinClassicGroupResponse)

    def sync(self, member_id: str, generation: int, parts: dict[str, bytes] | None = None, **more: object) -> int:
        """A member syncs; with parts as a leader does."""
        rows = [pb.ClassicAssignment(member_id=key, assignment=part) for key, part in (parts or {}).items()]
        return self.send(
            pb.SyncClassicGroupRequest(
                group_id=GROUP,
                member_id=member_id,
                generation=generation,
                assignments=rows,
                **more,  # type: ignore[arg-type]
            )
        )

    def synced(self, number: int) -> pb.SyncClassicGroupResponse:
        """The answer to a sync."""
        return self.answer(number, pb.SyncClassicGroupResponse)

    def beat(self, member_id: str, generation: int, instance_id: str = "") -> str:
        """A heartbeat; returns the name of its error."""
        request = pb.ClassicHeartbeatRequest(
            group_id=GROUP, member_id=member_id, generation=generation, instance_id=instance_id
        )
        return code(self.ask(request, pb.ClassicHeartbeatResponse))

    def leave(self, *members: tuple[str, str]) -> list[str]:
        """Members, each an id and a static name, leave; returns the names of their errors."""
        rows = [pb.LeavingClassicMember(member_id=member_id, instance_id=name) for member_id, name in members]
        request = pb.LeaveClassicGroupRequest(group_id=GROUP, members=rows)
        response = self.ask(request, pb.LeaveClassicGroupResponse)
        return [code(row) for row in response.results]

    def form(self, *names: str, **more: object) -> tuple[list[str], int]:
        """A group of new members with their parts, each its own name; returns the members and their generation."""
        calls = [self.join(**more) for _ in names]
        for _ in range(100):
            if any(self.is_waiting(call) for call in calls):
                self.pass_ms(DELAY_MS // 5)
        answers = [self.joined(call) for call in calls]
        members, generation = [answer.member_id for answer in answers], answers[0].generation
        self.share(members, generation, answers[0].leader)
        return members, generation

    def rejoin(self, members: Iterable[str]) -> list[pb.JoinClassicGroupResponse]:
        """Members join again, and the round ends with that."""
        calls = [self.join(member) for member in members]
        return [self.joined(call) for call in calls]

    def share(self, members: list[str], generation: int, leader: str) -> None:
        """The leader gives each its own name, and all sync."""
        calls = [self.sync(member, generation) for member in members if member != leader]
        calls.append(self.sync(leader, generation, {member: member.encode() for member in members}))
        for call in calls:
            assert code(self.synced(call)) == "NONE"

    # -- state --------------------------------------------------------------------------------------------

    @property
    def classic(self) -> ClassicGroup:
        """The group as the log has it."""
        group = self.table.groups[GROUP].classic
        assert group is not None
        return group

    @property
    def state(self) -> str:
        """Its state."""
        return pb.GroupState.Name(self.table.groups[GROUP].state).removeprefix("GROUP_")

    def decide_other(self, decision: Callable[[Draft], _Result]) -> _Result:
        """Has something else decided of the groups, and applied."""
        draft = self.draft()
        result = decision(draft)
        command = draft.command()
        if command is not None:
            self.propose(self.clock.now, command)
            self.apply()
        return result

    def draft(self) -> Draft:
        """A draft for calls that are none of members."""
        return self.leadership.draft()


def join_request(
    member_id: str = "",
    *,
    instance: str = "",
    protocols: Iterable[tuple[str, bytes]] = (("range", b"m"),),
    session_ms: int = SESSION_MS,
    rebalance_ms: int = REBALANCE_MS,
    kind: str = "consumer",
    group: str = GROUP,
    named_first: bool = False,
    can_skip: bool = False,
) -> pb.JoinClassicGroupRequest:
    """A join as Kafka's clients send it."""
    return pb.JoinClassicGroupRequest(
        group_id=group,
        member_id=member_id,
        instance_id=instance,
        protocol_type=kind,
        protocols=[pb.ClassicProtocol(name=name, metadata=metadata) for name, metadata in protocols],
        session_timeout_ms=session_ms,
        rebalance_timeout_ms=rebalance_ms,
        can_be_named_first=named_first,
        can_skip_assignment=can_skip,
    )


def code(answer: Message) -> str:
    """The name of an answer's error."""
    problem = answer if isinstance(answer, errors_pb2.Error) else answer.error  # type: ignore[attr-defined]
    return ErrorCode.Name(problem.code)

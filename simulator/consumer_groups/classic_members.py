"""Members of a classic group in virtual time: Kafka's client protocol as requests to the shipped node.

The leading member assigns partitions in turn. Each member sends heartbeats, commits offsets, and joins again when asked
to. The nodes' answers are judged when they are given, against the state in the log.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from google.protobuf.message import Message as ProtoMessage

from quorumlog.raft.types import NO_NODE
from quorumlog.simulator.consumer_groups.member_link import MemberLink, MemberPort, SimCoordinator, SimMemberProcess
from quorumlog.simulator.models.classic_model import ModelClassic
from quorumlog.simulator.models.committed_partition import Violation
from quorumlog.simulator.models.coordinator_model import CommitLabel
from quorumlog.simulator.world.clients import Unanswered
from quorumlog.simulator.world.scheduler import Scheduler
from quorumlog.v1 import errors_pb2
from quorumlog.v1 import groups_pb2 as pb
from quorumlog.v1.errors_pb2 import ErrorCode

PROTOCOLS = ("range", "sticky")
PATIENCE_US = 600_000
#: Delay after a failure, and before a member joins again.
PAUSE_US = (5_000, 60_000)
_MOVED = (ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE)
#: After these errors it is no longer a member.
_GONE = (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID)


@dataclass(slots=True, frozen=True)
class ClassicHabits:
    """Behaviour of members. Times in ms, except heartbeats and commits, which are in µs.

    Arguments:
        lose: probability that an answer is lost.
    """

    session_timeout_ms: int = 3_000
    rebalance_timeout_ms: int = 2_000
    heartbeat_us: tuple[int, int] = (200_000, 600_000)
    commit_us: tuple[int, int] = (50_000, 400_000)
    lose: float = 0.0


@dataclass(slots=True)
class ClassicHistory:
    """Assignments reported to the members of one group.

    Arguments:
        group_id: the group.
        topic_id, partitions: the shared topic.
        model: returns the group's current state in the log; None while none exists.
        told: by generation: the partitions reported to each member.
        said: by generation: the assignment sent by its leader.
        answers: number of successes of each kind.
    """

    group_id: str
    topic_id: bytes
    partitions: int
    model: Callable[[], ModelClassic | None]
    told: dict[int, dict[str, frozenset[int]]] = field(default_factory=dict)
    said: dict[int, dict[str, bytes]] = field(default_factory=dict)
    answers: dict[str, int] = field(default_factory=dict)

    def holds(self, member_id: str, generation: int) -> bool:
        """True if the log has a member in a generation."""
        model = self.model()
        return model is not None and model.generation == generation and member_id in model.members

    def judge(self, what: str, member_id: str, generation: int, held: bool, part: bytes | None = None) -> None:
        """Judges a success at the time at which the leading node answers it.

        Arguments:
            held: the log had the member in that generation when the request was sent. It may have been removed since,
                by a decision made together with the request, after it.

        Raises:
            Violation: it is of an older generation, of a non-member, or of another assignment than the log's.
        """
        self.answers[what] = self.answers.get(what, 0) + 1
        model = self.model()
        if not held and not self.holds(member_id, generation):
            raise Violation(f"{what} of {member_id} in generation {generation} succeeds; the log has {model}")
        expected = self._part(model, member_id, generation)
        if part is not None and expected != part:
            raise Violation(f"{member_id} gets {part!r} in generation {generation}; the log has {expected!r}")

    def leader_says(self, generation: int, parts: dict[str, bytes]) -> None:
        """Records the leader's assignment, which may be sent repeatedly."""
        self.said[generation] = parts

    def _part(self, model: ModelClassic | None, member_id: str, generation: int) -> bytes:
        """Returns a member's assignment according to the log. A coordinator decides together what arrived together: a
        member that the same entry removes, or moves to the next generation, gets the assignment that its leader sent.
        """
        if model is None or member_id in model.passed_over.get(generation, ()):
            return self.said.get(generation, {}).get(member_id, b"")
        return model.told.get(generation, {}).get(member_id, b"")

    def hears(self, name: str, generation: int, part: bytes) -> frozenset[int]:
        """Records the assignment that a process received: in one generation each partition has one owner.

        Arguments:
            name: name of the member, or its static name, which one process after the other may have.
        """
        numbers = frozenset(int(number) for number in part.decode().split(",") if number)
        reported = self.told.setdefault(generation, {})
        if reported.setdefault(name, numbers) != numbers:
            raise Violation(
                f"{name} had {sorted(reported[name])} in generation {generation}, and now {sorted(numbers)}"
            )
        for other, theirs in reported.items():
            if other != name and theirs & numbers:
                raise Violation(f"generation {generation}: {name} and {other} both have {sorted(theirs & numbers)}")
        return numbers


class SimClassicMember:
    """One process with one member."""

    def __init__(
        self,
        name: str,
        port: MemberPort,
        scheduler: Scheduler,
        history: ClassicHistory,
        habits: ClassicHabits,
        instance_id: str = "",
    ) -> None:
        self.name = name
        self.instance_id = instance_id
        self.process = SimMemberProcess()
        self.link = MemberLink(name, port, scheduler, self.process, habits.lose)
        self.member_id = ""
        self.generation = -1
        self.owned: frozenset[int] = frozenset()
        self.is_member = False
        self._history = history
        self._habits = habits
        self._rng = scheduler.stream(name)
        self._life = self._commits = 0
        self._coordinator = SimCoordinator(history.group_id, self.link, self._found)
        #: Actions that wait for a coordinator: both heartbeats and commits may.
        self._wanted: list[Callable[[], None]] = []
        self._join()

    # -- its life -------------------------------------------------------------------------------------------------

    def heal(self) -> None:
        """Removes all obstacles."""
        self.link.lose = 0.0
        self.link.cut(0)
        self.process.resume()

    def crash(self) -> None:
        """Sends SIGKILL: the process sends nothing. Its pending requests are abandoned."""
        self.process.die()

    def leave(self) -> None:
        """Sends a leave request, if possible, and exits."""
        if self.member_id and self._coordinator.node != NO_NODE:
            row = pb.LeavingClassicMember(member_id=self.member_id, instance_id=self.instance_id)
            request = pb.LeaveClassicGroupRequest(group_id=self._history.group_id, members=[row], timeout_ms=400)
            self.link.ask(self._coordinator.node, request, lambda answer: None, PATIENCE_US)
        self.process.die()

    # -- calls ----------------------------------------------------------------------------------------------------

    def _found(self) -> None:
        wanted, self._wanted = self._wanted, []
        for each in wanted:
            each()

    def _ask(
        self,
        request: ProtoMessage,
        answered: Callable[[ProtoMessage], None],
        again: Callable[[], None],
        judge: Callable[[ProtoMessage], None] = lambda answer: None,
        patience_us: int = PATIENCE_US,
    ) -> None:
        """Sends a request to the coordinator, after finding it if it is unknown.

        Arguments:
            again: called after no answer, or one of a node that is not the coordinator.
            judge: called with a success when the leading node gives it.
        """
        node, life = self._coordinator.node, self._life
        if node == NO_NODE:
            self._wanted.append(lambda: again() if life == self._life else None)
            self._coordinator.ask()
            return

        def served(answer: ProtoMessage) -> None:
            if not _problem(answer).code and self.link.port.coordinates(node, self._history.group_id):
                judge(answer)

        def done(answer: ProtoMessage | Unanswered) -> None:
            if life != self._life:
                return
            if isinstance(answer, Unanswered):
                self._coordinator.forget()
                self.link.later(*PAUSE_US, again)
            elif _problem(answer).code in _MOVED:
                self._coordinator.learn(_problem(answer))
                self.link.later(*PAUSE_US, again)
            else:
                answered(answer)

        self.link.ask(node, request, done, patience_us, served)

    # -- joining --------------------------------------------------------------------------------------------------

    def _rejoin(self) -> None:
        """Drops its partitions, and joins again. Answers to earlier requests are ignored."""
        self._life += 1
        self.is_member, self.owned = False, frozenset()
        self.link.later(*PAUSE_US, self._join)

    def _join(self) -> None:
        request = pb.JoinClassicGroupRequest(
            group_id=self._history.group_id,
            member_id=self.member_id,
            instance_id=self.instance_id,
            protocol_type="consumer",
            protocols=[pb.ClassicProtocol(name=name, metadata=self.name.encode()) for name in PROTOCOLS],
            session_timeout_ms=self._habits.session_timeout_ms,
            rebalance_timeout_ms=self._habits.rebalance_timeout_ms,
            can_be_named_first=True,
            can_skip_assignment=True,
        )
        wait_us = (self._habits.rebalance_timeout_ms + 6_000) * 1_000
        model = self._history.model()
        held_in = model.generation if model is not None and self.member_id in model.members else -1

        def judge(answer: ProtoMessage) -> None:
            assert isinstance(answer, pb.JoinClassicGroupResponse)
            self._history.judge("join", answer.member_id, answer.generation, held=answer.generation == held_in)

        self._ask(request, self._joined, self._join, judge, wait_us)

    def _joined(self, answer: ProtoMessage) -> None:
        assert isinstance(answer, pb.JoinClassicGroupResponse)
        code = answer.error.code
        if code == ErrorCode.MEMBER_ID_REQUIRED:
            self.member_id = answer.member_id
            self._join()
        elif code in _GONE:
            self.member_id = ""
            self._rejoin()
        elif code:
            self._rejoin()
        else:
            self.member_id, self.generation = answer.member_id, answer.generation
            self._sync(answer)

    def _sync(self, joined: pb.JoinClassicGroupResponse) -> None:
        request = pb.SyncClassicGroupRequest(
            group_id=self._history.group_id,
            generation=joined.generation,
            member_id=self.member_id,
            instance_id=self.instance_id,
            protocol_type="consumer",
            protocol=joined.protocol,
            timeout_ms=self._habits.rebalance_timeout_ms,
        )
        if joined.leader == self.member_id and not joined.skip_assignment:
            members = [member.member_id for member in joined.members]
            parts = {
                member_id: ",".join(map(str, range(place, self._history.partitions, len(members)))).encode()
                for place, member_id in enumerate(members)
            }
            self._history.leader_says(joined.generation, parts)
            for member_id, part in parts.items():
                request.assignments.add(member_id=member_id, assignment=part)

        held = self._history.holds(self.member_id, self.generation)

        def judge(answer: ProtoMessage) -> None:
            assert isinstance(answer, pb.SyncClassicGroupResponse)
            self._history.judge("sync", request.member_id, request.generation, held, answer.assignment)

        wait_us = (self._habits.rebalance_timeout_ms + 1_000) * 1_000
        self._ask(request, self._synced, self._rejoin, judge, wait_us)

    def _synced(self, answer: ProtoMessage) -> None:
        assert isinstance(answer, pb.SyncClassicGroupResponse)
        if answer.error.code in _GONE:
            self.member_id = ""
        if answer.HasField("error"):
            self._rejoin()
            return
        name = self.instance_id or self.member_id
        self.owned = self._history.hears(name, self.generation, answer.assignment)
        self.is_member = True
        self._beat_later()
        self._commit_later()

    # -- staying --------------------------------------------------------------------------------------------------

    def _in_this_life(self, action: Callable[[], None]) -> Callable[[], None]:
        life = self._life
        return lambda: action() if life == self._life else None

    def _beat_later(self) -> None:
        self.link.later(*self._habits.heartbeat_us, self._in_this_life(self._beat))

    def _beat(self) -> None:
        request = pb.ClassicHeartbeatRequest(
            group_id=self._history.group_id,
            generation=self.generation,
            member_id=self.member_id,
            instance_id=self.instance_id,
            timeout_ms=400,
        )

        held = self._history.holds(self.member_id, self.generation)

        def judge(answer: ProtoMessage) -> None:
            self._history.judge("heartbeat", request.member_id, request.generation, held)

        self._ask(request, self._beaten, self._beat_later, judge)

    def _beaten(self, answer: ProtoMessage) -> None:
        code = _problem(answer).code
        if code in (ErrorCode.NONE, ErrorCode.SERVER_BUSY, ErrorCode.REQUEST_TIMED_OUT):
            self._beat_later()
            return
        if code in _GONE:
            self.member_id = ""
        elif code == ErrorCode.REBALANCE_IN_PROGRESS:
            self._commit()  # The last commit of this generation.
        self._rejoin()

    def _commit_later(self) -> None:
        self.link.later(*self._habits.commit_us, self._in_this_life(self._commit))

    def _commit(self) -> None:
        if not self.is_member:
            return
        self._commits += 1
        label = CommitLabel(self.member_id, self.generation, self._commits)
        request = pb.CommitOffsetsRequest(
            group_id=self._history.group_id,
            member_id=self.member_id,
            member_epoch=self.generation,
            instance_id=self.instance_id,
            timeout_ms=400,
        )
        for number in sorted(self.owned):
            place = {"topic_id": self._history.topic_id, "partition": number}
            request.offsets.add(**place, offset=0, leader_epoch=-1, metadata=str(label))
        self._ask(request, self._committed, self._commit_later)

    def _committed(self, answer: ProtoMessage) -> None:
        code = _problem(answer).code
        self._history.answers[f"commit {ErrorCode.Name(code)}"] = (
            self._history.answers.get(f"commit {ErrorCode.Name(code)}", 0) + 1
        )
        if code in (*_GONE, ErrorCode.ILLEGAL_GENERATION, ErrorCode.REBALANCE_IN_PROGRESS):
            if code in _GONE:
                self.member_id = ""
            self._rejoin()
        else:
            self._commit_later()


def _problem(answer: ProtoMessage) -> errors_pb2.Error:
    """Returns the error of an answer."""
    problem: errors_pb2.Error = answer.error  # type: ignore[attr-defined]  # all of these answers have it
    return problem

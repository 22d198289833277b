"""The smallest kind of coordinator: it counts. Its leader keeps nothing but the `DecisionQueue` and its agenda."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Self

from google.protobuf.message import Message
from google.protobuf.struct_pb2 import Struct
from google.protobuf.wrappers_pb2 import Int64Value

from quorumlog.raft.types import ORIGIN, EntryId
from quorumlog.server.deciding.coordinator_kind import CoordinatorKind
from quorumlog.server.deciding.decision_queue import AgendaDecisions, DecisionQueue, WaitingCall
from quorumlog.server.deciding.stall_aware_clock import AwakeClock
from quorumlog.server.step.wire_errors import error
from quorumlog.v1 import errors_pb2
from quorumlog.v1.acls_pb2 import ACL_RESOURCE_GROUP
from quorumlog.v1.errors_pb2 import ErrorCode


class CountTable:
    """Counts by key, as the log has made them."""

    def __init__(self) -> None:
        self.counts: dict[str, int] = {}
        self.metadata_index = 0

    def apply(self, command: Struct, entry: EntryId = ORIGIN) -> set[str]:
        self.counts.update((key, int(command[key])) for key in command)
        return set(command)

    def to_snapshot(self, applied_index: int) -> bytes:
        written = Struct()
        written.update({"applied": applied_index, **self.counts})
        return written.SerializeToString(deterministic=True)

    @classmethod
    def from_snapshot(cls, data: bytes) -> tuple[Self, int]:
        written, table = Struct.FromString(data), cls()
        table.counts = {key: int(written[key]) for key in written if key != "applied"}
        return table, int(written["applied"])


def check_name(key: str) -> errors_pb2.Error | None:
    """Returns the error for an empty name."""
    return None if key else error(ErrorCode.INVALID_GROUP_ID, "a count needs a name")


COUNTS = CoordinatorKind("__counts", "count", ACL_RESOURCE_GROUP, check_name, CountTable, Struct)


class CountDraft:
    """Counts with the changes of one decision."""

    def __init__(self, table: CountTable) -> None:
        self._table = table
        self._changes: dict[str, int] = {}

    def add(self, key: str, number: int) -> int:
        """Adds to a count, and returns it."""
        count = self._changes.get(key, self._table.counts.get(key, 0)) + number
        if number:
            self._changes[key] = count
        return count

    @property
    def size_bytes(self) -> int:
        return 16 * len(self._changes)

    def changed(self, key: str) -> bool:
        return key in self._changes

    def command(self) -> Struct | None:
        if not self._changes:
            return None
        command = Struct()
        command.update(self._changes)
        return command


@dataclass(eq=False)
class Addition:
    """A call that adds to a count.

    Arguments:
        holds: it leaves the queue undecided, and waits until the agenda decides it.
    """

    key: str
    number: int
    leader: CountLeader
    holds: bool = False

    def decide(self, draft: CountDraft) -> Message | None:
        if self.holds:
            self.leader.held.append(self)
            return None
        return Int64Value(value=draft.add(self.key, self.number))

    def answer(self, response: Message) -> None:
        assert isinstance(response, Int64Value)
        self.leader.log.append(f"{self.key} is {response.value}")

    def refuse(self, problem: errors_pb2.Error) -> None:
        how = "refused" if problem.definite else "unknown"
        self.leader.log.append(f"{self.key} +{self.number} {how}: {ErrorCode.Name(problem.code)}")


@dataclass
class RaftOfCounts:
    """The state of a Raft group that a coordinator reads."""

    term: int = 3
    is_leader: bool = True
    confirmed_round: int = 0
    commit_index: int = 0
    applied_index: int = 0


@dataclass
class CountReplica:
    """A replica whose commands are applied when the test requests it."""

    group: int = 7
    name: str = "__counts-0"
    kind = COUNTS
    table: CountTable = field(default_factory=CountTable)
    raft: RaftOfCounts = field(default_factory=RaftOfCounts)
    proposed: list[Struct] = field(default_factory=list)
    takes: bool = True
    has_its_term: bool = True
    leadership: CountLeader | None = None

    @property
    def leads(self) -> bool:
        return self.leadership is not None and self.raft.is_leader and self.raft.term == self.leadership.term

    def may_lead(self, metadata_index: int) -> bool:
        return self.has_its_term and metadata_index >= self.table.metadata_index

    def propose(self, now: int, command: Struct) -> int | None:
        if not self.takes:
            return None
        self.proposed.append(command)
        return len(self.proposed)

    def not_leader(self) -> errors_pb2.Error:
        return self.not_coordinator(definite=True)

    def not_coordinator(self, *, definite: bool) -> errors_pb2.Error:
        return error(ErrorCode.NOT_COORDINATOR, "led elsewhere", definite=definite)

    def apply(self) -> None:
        """Applies the newest command."""
        self.raft.commit_index = self.raft.applied_index = len(self.proposed)
        changed = self.table.apply(self.proposed[-1])
        if self.leadership is not None:
            self.leadership.applied(len(self.proposed), self.raft.term, self.proposed[-1], changed)


class CountLeader:
    """One term: an agenda that decides the held calls when ``releases`` is set, and extra waiting calls.

    Attributes:
        log: the answers and errors that clients received, and the calls that were kept, in order.
        extra: calls of the agenda's own queue; they are decided without an answer.
    """

    def __init__(self, coordinator: CountReplica, clock: AwakeClock, max_calls: int = 100) -> None:
        self.coordinator = coordinator
        self.clock = clock
        self.log: list[str] = []
        self.held: list[Addition] = []
        self.extra: list[Addition] = []
        self.releases = False
        self.queue: DecisionQueue[CountDraft] = DecisionQueue(coordinator, clock, self, max_calls)  # type: ignore[arg-type]

    @property
    def term(self) -> int:
        return self.queue.term

    def submit(self, key: str, number: int, *, holds: bool = False) -> None:
        self.queue.submit(Addition(key, number, self, holds))

    # -- the agenda -----------------------------------------------------------------------------------------------

    @property
    def decision_due(self) -> int | None:
        return self.clock.awake_us if self.extra or (self.held and self.releases) else None

    def draft(self) -> CountDraft:
        return CountDraft(self.coordinator.table)

    def decide(self, draft: CountDraft, *, calls_left: bool) -> AgendaDecisions[CountDraft]:
        extra, self.extra = self.extra, []
        for call in extra:
            draft.add(call.key, call.number)
        held: list[Addition] = []
        if self.releases:
            held, self.held = self.held, []
        calls = [(call, Int64Value(value=draft.add(call.key, call.number))) for call in held]
        return AgendaDecisions([*calls], [(call, None) for call in extra], lambda: self.extra.extend(extra))

    def keep(self, waiter: WaitingCall) -> None:
        self.log.append(f"{waiter.key} is kept")

    # -- the term -------------------------------------------------------------------------------------------------

    def do_what_is_due(self) -> bool:
        return self.queue.decide()

    @property
    def next_deadline(self) -> int:
        due = self.queue.decision_due
        return self.clock.awake_us + 1_000_000 if due is None else due

    def applied(self, index: int, term: int, command: Struct, changed: set[str]) -> None:
        self.queue.applied(index, term)

    def end(self) -> None:
        self.queue.end(self.extra, self.held)

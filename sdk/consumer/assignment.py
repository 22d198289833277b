"""The partitions that a consumer reads: the position in each, and the records fetched ahead.

Shared by the thread that polls and the loop that fetches, under one lock. A seek starts a new *generation* of a
partition's state: data that was requested before it is dropped on arrival.

A signal handler may raise in the thread that polls between any two instructions. So every change by that thread uses
:meth:`Assignment.change`, which applies it completely or not at all. Rows that were taken stay in
:attr:`Assignment.handed` until the last instruction of the poll that returns them.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from operator import attrgetter
from types import TracebackType
from typing import NamedTuple, TypeVar

from quorumlog.sdk.arguments import checked_partition
from quorumlog.sdk.cluster.offset_search import lag
from quorumlog.sdk.errors import IllegalStateError, QuorumlogError, UnreadableBatchError
from quorumlog.sdk.records.fetched import FetchedRows
from quorumlog.sdk.runtime.caller_lock import held_by_caller, let_go
from quorumlog.sdk.types import OffsetAndMetadata, TopicPartition

Result = TypeVar("Result")


class Start(NamedTuple):
    """Start of a group's partition: a committed offset, or a reset according to ``reset``."""

    reset: str
    offset: int | None = None
    leader_epoch: int = -1


class ReadOffsets(dict[TopicPartition, OffsetAndMetadata]):
    """Offsets to commit, by partition.

    Attributes:
        topic_ids: topic id for each offset, if known. By the time of the commit, the name may belong to another topic.
    """

    def __init__(self, offsets: Mapping[TopicPartition, OffsetAndMetadata] | None = None) -> None:
        super().__init__(offsets or {})
        self.topic_ids: dict[TopicPartition, bytes] = {}

    def of(self, partitions: Iterable[TopicPartition]) -> ReadOffsets:
        """Returns the offsets of some partitions."""
        some = ReadOffsets({tp: self[tp] for tp in partitions if tp in self})
        some.topic_ids = self.topic_ids
        return some


class PartitionState:
    """One assigned partition.

    Invariant: queued rows start at ``position`` and end before ``fetch_offset``, without gaps except those from
    compaction and those of markers and aborted records.

    Attributes:
        position: the next offset that a poll returns; None until it has been looked up.
        fetch_offset: the next offset to request; None until then too.
        reset: how to look up a missing position: ``earliest``, ``latest`` or ``none``.
        generation: number of seeks and other events that make data in flight useless.
        error: raised by the next poll.
        session: the fetch session that reads this partition, if any.
        topic_id: of the topic that the position refers to; None until known.
        given_topic_id: of the topic whose records were returned last; None if none since the last seek.
        resetting: a position look-up is in progress.
        retry_at_s: time before which no request is sent, after a failure.
        replica: the node that the leader has named to read from; None: the leader (KIP-392).
        replica_until_s: time at which the leader is asked again.
        at_leader_until_s: time before which it is read from the leader, after a replica has failed.
        failures: number of consecutive failed fetches.
        read_epoch: the leader epoch of the last record before the position; -1 if unknown.
        committed: the group's committed offset as far as this consumer has it; -1 if unknown.
        began: the first offset that was returned since the last committed transaction or seek; -1 if none was.
        said_done: the offset that the application has committed since the last seek; -1 otherwise.
        log_start: the log's first offset in the last fetch response.
        readable_end: offset up to which the consumer can read, by the last response: the last stable offset if it reads
            committed records, otherwise the high watermark; -1 if unknown.
        unproven: the position was committed, and the log has not yet been seen to reach it.
        pinned: read for a group, which decides what happens if the topic is recreated.
        revoked: the group has revoked it: no records are returned, until it is released.
    """

    __slots__ = ("at_leader_until_s", "began", "committed", "error", "failing_since_s", "failures",
                 "fetch_offset", "generation", "given_topic_id", "high_watermark", "leader_epoch", "log_start",
                 "paused", "pinned", "position", "queued", "queued_bytes", "read_epoch", "readable_end",
                 "replica", "replica_until_s", "reset", "resetting", "retry_at_s", "revoked", "said_done",
                 "served", "session", "topic_id", "tp", "unproven")  # fmt: skip

    def __init__(self, tp: TopicPartition, reset: str) -> None:
        self.tp = tp
        self.position: int | None = None
        self.fetch_offset: int | None = None
        self.reset = reset
        self.generation = 0
        self.paused = False
        self.queued: deque[FetchedRows] = deque()
        self.queued_bytes = 0
        self.error: QuorumlogError | None = None
        self.session: object | None = None
        self.topic_id: bytes | None = None
        self.given_topic_id: bytes | None = None
        self.resetting = False
        self.retry_at_s = 0.0
        self.replica: int | None = None
        self.replica_until_s = self.at_leader_until_s = 0.0
        self.failures = 0
        self.failing_since_s = 0.0
        self.high_watermark = self.readable_end = -1
        self.log_start = 0
        self.leader_epoch = -1
        #: Sequence number of its last response with records, over the whole consumer.
        self.served = 0
        self.read_epoch = -1
        self.committed = -1
        self.said_done = -1
        self.began = -1
        self.unproven = False
        self.pinned = False
        self.revoked = False

    @classmethod
    def at(cls, tp: TopicPartition, topic_id: bytes, start: Start) -> PartitionState:
        """Returns the state of a group's partition at its start."""
        state = cls(tp, start.reset)
        state.topic_id = topic_id
        state.position = state.fetch_offset = start.offset
        if start.offset is not None:
            state.committed = start.offset
            state.read_epoch = start.leader_epoch
            state.unproven = True
        return state

    def lag(self) -> int | None:
        """Returns the number of offsets that polls have not returned yet, by the last response; None if unknown."""
        if self.position is None or self.readable_end < 0:
            return None
        # Rows fetched ahead are returned although the log has deleted them since.
        start = self.position if self.queued else self.log_start
        return lag(self.position, start, self.readable_end)

    def revoke(self) -> None:
        """Stops returning records; rows fetched ahead are dropped."""
        self.revoked = True
        self.generation += 1
        self.fetch_offset = self.position
        self.queued.clear()
        self.queued_bytes = 0
        self.session = None
        # A look-up in progress is for the previous generation and has no effect; if the partition is returned, a new
        # one starts.
        self.resetting = False

    def commits(self, offset: int) -> None:
        """Notes that the group has committed an offset: a transaction that starts now starts there."""
        self.committed = offset
        self.began = offset if self.position is not None and self.position > offset else -1

    def move(self, offset: int | None, reset: str) -> None:
        """Restarts at an offset, or at one to be looked up."""
        self.generation += 1
        self.position = self.fetch_offset = offset
        self.reset = reset
        self.queued.clear()
        self.queued_bytes = 0
        self.error = None
        self.session = None
        self.resetting = False
        self.retry_at_s = 0.0
        self.failures = 0
        self.read_epoch = -1
        self.said_done = -1
        self.began = -1
        self.unproven = False


class _Saved:
    """The state before a change, restored if the change is interrupted."""

    def __init__(self, assignment: Assignment, states: Iterable[PartitionState]) -> None:
        self._whole = _whole_of(assignment)
        self._states: dict[PartitionState, tuple[tuple[object, ...], deque[FetchedRows]]] = {}
        for state in states:
            self.add(state)

    def add(self, state: PartitionState) -> None:
        """Saves a partition that is about to be changed, unless it is saved."""
        if state not in self._states:
            self._states[state] = (_values_of(state), state.queued.copy())

    def restore(self, assignment: Assignment) -> None:
        """Undoes the change. An interrupted call can be repeated."""
        for name, value in zip(_WHOLE, self._whole, strict=True):
            setattr(assignment, name, value)
        for state, (values, queued) in self._states.items():
            for name, value in zip(PartitionState.__slots__, values, strict=True):
                setattr(state, name, value)
            state.queued = queued


_WHOLE = ("handed", "before_last", "skipped", "taken_bytes", "unannounced")
_whole_of = attrgetter(*_WHOLE)
_values_of = attrgetter(*PartitionState.__slots__)


class _LoopLock:
    """The assignment's lock for the event loop, whose thread is never interrupted by a signal handler."""

    def __init__(self, mutex: threading.RLock, roll_back: Callable[[], None]) -> None:
        self._mutex = mutex
        self._roll_back = roll_back

    def __enter__(self) -> None:
        self._mutex.acquire()
        self._roll_back()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._mutex.release()


class Assignment:
    """All assigned partitions.

    Arguments:
        partition_limit_bytes: a partition with this many queued bytes is not fetched.
        clock: monotonic seconds.
    """

    def __init__(self, partition_limit_bytes: int, clock: Callable[[], float] = time.monotonic) -> None:
        self.clock = clock
        self._mutex = threading.RLock()
        self.lock = _LoopLock(self._mutex, self._roll_back)
        #: True if this thread is inside a change and calls again, for example from a signal handler.
        self.is_entered = held_by_caller(self._mutex)
        self._saved: _Saved | None = None
        self.states: dict[TopicPartition, PartitionState] = {}
        self._partition_limit_bytes = partition_limit_bytes
        self._listeners: list[Callable[[], None]] = []
        self._turn = 0
        self._error_was_said = False
        #: Total of returned bytes. Those of a batch count when all of it was returned.
        self.taken_bytes = 0
        #: Time by :attr:`clock` after which no records are returned, because the group may have reassigned the
        #: partitions.
        self.valid_until_s = float("inf")
        #: Positions before the rows that were returned last.
        self.before_last: dict[TopicPartition, int] = {}
        #: The unreadable batches that positions were moved past by the last ``take_fetched``.
        self.skipped: list[UnreadableBatchError] = []
        #: Rows that were taken, in order, and that the application may not have received.
        self.handed: tuple[FetchedRows, ...] = ()
        #: A change needs the attention of the fetcher, which has not been woken.
        self.unannounced = False

    def change(self, work: Callable[[_Saved], Result], states: Iterable[PartitionState] = ()) -> Result:
        """Applies a change on a caller's thread, under the lock. If it is interrupted, nothing has changed.

        Arguments:
            work: makes the change. It saves partitions that are not among ``states`` before it changes them.

        Raises:
            IllegalStateError: a signal handler has interrupted another change on this thread.
        """
        if self.is_entered():
            raise IllegalStateError(
                "a signal handler (or __del__) has interrupted another call to this consumer: set a flag here, and make"
                " this call later"
            )
        try:
            with self._mutex:
                self._roll_back()
                self._saved = saved = _Saved(self, states)
                result = work(saved)
                self._saved = None
                return result
        except BaseException:
            let_go(self._mutex)
            with self.lock:
                pass  # Rolls back.
            raise

    def _roll_back(self) -> None:
        if self._saved is not None:
            self._saved.restore(self)
            self._saved = None

    def assign(self, partitions: Iterable[TopicPartition], reset: str) -> None:
        """Replaces the assignment; partitions that stay keep their state."""
        wanted = dict.fromkeys(partitions)
        self.remove(tp for tp in list(self.states) if tp not in wanted)
        self.add(wanted, reset)

    def remove(self, partitions: Iterable[TopicPartition]) -> None:
        """Removes partitions from the assignment."""
        with self.lock:
            for tp in partitions:
                if tp in self.states:
                    state = self.states.pop(tp)
                    state.move(None, state.reset)

    def place(self, states: Mapping[TopicPartition, PartitionState]) -> None:
        """Adds partitions with their state; those already assigned keep theirs."""
        with self.lock:
            for tp, state in states.items():
                self.states.setdefault(tp, state)

    def add(self, partitions: Iterable[TopicPartition], reset: str) -> None:
        """Adds partitions that are not assigned yet."""
        with self.lock:
            for tp in partitions:
                self.states.setdefault(tp, PartitionState(tp, reset))

    def state(self, tp: TopicPartition) -> PartitionState:
        """Returns the state of an assigned partition.

        Raises:
            IllegalStateError: it is not assigned.
        """
        found = self.states.get(checked_partition(tp))
        if found is None:
            raise IllegalStateError(f"{tp.topic}-{tp.partition} is not assigned to this consumer: call assign first")
        return found

    def take_fetched(self, max_records: int) -> tuple[list[FetchedRows], bool]:
        """Takes fetched rows, partition by partition in turn, and moves positions past them.

        Returns:
            the rows, and True if a partition that was full may be fetched again.

        Raises:
            QuorumlogError: from a failed partition without further rows. Raised once; then the partition is tried
                again, and records of others are returned before the next error.
        """
        error, drained = self.change(lambda saved: self._take(saved, max_records))
        if error is not None:
            raise error
        return list(self.handed), drained

    def _take(self, saved: _Saved, max_records: int) -> tuple[QuorumlogError | None, bool]:
        self.before_last, self.handed, self.skipped = {}, (), []
        if self.clock() >= self.valid_until_s:
            return None, False
        states = [state for state in self.states.values() if not state.revoked]
        for state in states:
            # First of all: behind offsets without a record may be an error, for which the caller would wait otherwise.
            if not state.paused and state.queued and state.queued[0].is_empty:
                saved.add(state)
                self._pass_empty(state)
        # A partition that fails repeatedly must not block the records of all others permanently.
        others_first = self._error_was_said and self.has_records()
        self._error_was_said = False
        for state in states:
            if state.error is not None and not state.paused and not state.queued and not others_first:
                saved.add(state)
                error, state.error, state.failures = state.error, None, 0
                self._error_was_said = self.unannounced = True
                return error, False
        self._turn += 1
        start = self._turn % len(states) if states else 0
        taken: list[FetchedRows] = []
        left = max_records
        drained = False
        for state in states[start:] + states[:start]:
            if state.paused or not state.queued:
                continue
            saved.add(state)
            full_before = state.queued_bytes >= self._partition_limit_bytes
            while left and state.queued:
                if state.queued[0].is_empty:
                    break  # Left for the next call: rows can be given back only while the position is at their end.
                rows = self._take_next(state, left)
                left -= rows.columns.num_rows
                taken.append(self._with_cover(state, rows))
            drained |= full_before and state.queued_bytes < self._partition_limit_bytes
            if not left:
                break
        self.handed = tuple(taken)
        self.unannounced |= drained
        return None, drained

    def _take_next(self, state: PartitionState, most: int) -> FetchedRows:
        """Takes the next rows of a non-empty partition, ``most`` at most, and moves its position."""
        rows = state.queued.popleft()
        if rows.columns.num_rows > most:
            rows, rest = rows.split(most)
            state.queued.appendleft(rest)
        assert rows.offset >= (state.position or 0), "queued rows start at the position, or after a gap"
        self.before_last.setdefault(state.tp, rows.offset)
        if state.began < 0:
            state.began = rows.offset
        state.position = rows.next_offset
        state.read_epoch = rows.leader_epoch
        state.given_topic_id = state.topic_id
        state.queued_bytes -= rows.size_bytes
        self.taken_bytes += rows.size_bytes
        return rows

    def drop(self, part: FetchedRows) -> None:
        """Removes the first of the handed rows, which the application has received completely."""

        def drop(saved: _Saved) -> None:
            if self.handed and self.handed[0] is part:
                self.handed = self.handed[1:]

        self.change(drop)

    def _pass_empty(self, state: PartitionState) -> None:
        """Moves the position past unreadable batches and covers at the head of the queue. The caller holds the lock."""
        while state.queued and state.queued[0].is_empty:
            part = state.queued.popleft()
            assert part.offset >= (state.position or 0)
            state.position = part.offset
            if part.skipped is not None:
                state.read_epoch = part.leader_epoch
                self.skipped.append(part.skipped)

    def _with_cover(self, state: PartitionState, rows: FetchedRows) -> FetchedRows:
        """Adds the covers behind the rows that were taken last: the position moves past them, too."""
        while state.queued and state.queued[0].is_empty and state.queued[0].skipped is None:
            rows = rows._replace(covered_to=state.queued.popleft().offset)
            state.position = rows.next_offset
        return rows

    def give_back(self, parts: Sequence[FetchedRows]) -> None:
        """Queues the rows again that were taken last, in order, and moves positions back before them.

        All other handed rows count as received by the application.
        """
        if parts or self.handed:
            self.change(lambda saved: self._give_back(saved, parts))

    def _give_back(self, saved: _Saved, parts: Sequence[FetchedRows]) -> None:
        for tp in {part.tp for part in parts}:
            if tp in self.states:
                saved.add(self.states[tp])
        behind: dict[TopicPartition, int | None] = {part.tp: part.next_offset for part in parts}
        for part in reversed(parts):
            state = self.states.get(part.tp)
            if state is None or state.position != behind[part.tp]:
                continue  # The log was truncated below it, and its position was reset.
            state.queued.appendleft(part)
            state.queued_bytes += part.size_bytes
            state.position = behind[part.tp] = part.offset
            state.read_epoch = -1
        self.handed = ()

    def read(self, look: Callable[[], Result]) -> Result:
        """Reads several partitions on a caller's thread, at one moment."""
        return self.change(lambda saved: look())

    def queued_bytes(self) -> int:
        """Returns the bytes fetched ahead, over all partitions."""
        return sum(state.queued_bytes for state in self.states.values())

    def has_records(self) -> bool:
        """True if a poll would return records."""
        return any(state.queued and not (state.paused or state.revoked) for state in self.states.values())

    def release_paused(self) -> bool:
        """Frees memory if only paused partitions hold rows: they are fetched again once resumed.

        The caller holds the lock. Returns True if anything was freed.
        """
        if self.has_records():
            return False
        holding = [state for state in self.states.values() if state.paused and state.queued]
        for state in holding:
            state.generation += 1
            state.fetch_offset = state.position
            state.queued.clear()
            state.queued_bytes = 0
        return bool(holding)

    def listen(self, callback: Callable[[], None]) -> None:
        """Calls ``callback`` on the loop's thread whenever rows were queued, or a partition has failed or moved."""
        self._listeners.append(callback)

    def notify(self) -> None:
        """Calls the listeners. Not under the lock."""
        for listener in list(self._listeners):
            listener()

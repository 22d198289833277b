"""The partitions that a consumer reads: where it is in each, and what has been fetched ahead.

Shared by the thread that polls and the loop that fetches, under one lock. A seek makes a new *generation* of a
partition's state: what was asked for before it is dropped when it arrives.

A signal handler may raise in the thread that polls between any two instructions. So whatever that thread changes here,
it changes by :meth:`Assignment.change`: completely, or not at all. Rows that were taken out stay in
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
    """Where a partition of a group begins: at a committed offset, or where ``reset`` says."""

    reset: str
    offset: int | None = None
    leader_epoch: int = -1


class ReadOffsets(dict[TopicPartition, OffsetAndMetadata]):
    """Offsets to commit, by partition.

    Attributes:
        topic_ids: of the topic that each offset counts in, where that is known. When the offset is committed, the name
            may belong to another topic.
    """

    def __init__(self, offsets: Mapping[TopicPartition, OffsetAndMetadata] | None = None) -> None:
        super().__init__(offsets or {})
        self.topic_ids: dict[TopicPartition, bytes] = {}

    def of(self, partitions: Iterable[TopicPartition]) -> ReadOffsets:
        """Those of some partitions."""
        some = ReadOffsets({tp: self[tp] for tp in partitions if tp in self})
        some.topic_ids = self.topic_ids
        return some


class PartitionState:
    """One assigned partition.

    Invariant: what is queued begins at ``position`` and ends before ``fetch_offset``, without gaps but those that
    compaction has made.

    Attributes:
        position: the next offset that a poll hands out; None until it has been looked up.
        fetch_offset: the next offset to ask for; None until then too.
        reset: where to look a missing position up: ``earliest``, ``latest`` or ``none``.
        generation: counts seeks, and whatever else makes what is on its way useless.
        error: what the next poll raises.
        session: the fetch session that reads this partition, if any.
        topic_id: of the topic that the position counts in; None until it is known.
        given_topic_id: of the topic whose records the application was given last; None if of none since it sought.
        resetting: a position look-up is under way.
        retry_at_s: do not ask before this time, after a failure.
        failures: failed fetches in a row.
        read_epoch: the leader epoch of the last record before the position; -1 when unknown.
        committed: the offset that the group has committed, as far as this consumer knows; -1 when unknown.
        said_done: the application has asked to commit this offset, since it came here; -1 otherwise.
        log_start: the log's first offset as of the last answer to a fetch.
        unproven: the position was committed, and the log has not yet been seen to reach it.
        pinned: read on behalf of a group, which says what becomes of it if the topic is deleted and made anew.
        revoked: the group has taken it away: nothing more is handed out, until it is released.
    """

    __slots__ = ("committed", "error", "failing_since_s", "failures", "fetch_offset", "generation", "given_topic_id",
                 "high_watermark", "leader_epoch", "log_start", "paused", "pinned", "position", "queued",
                 "queued_bytes", "read_epoch", "reset", "resetting", "retry_at_s", "revoked", "said_done", "served",
                 "session", "topic_id", "tp", "unproven")  # fmt: skip

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
        self.failures = 0
        self.failing_since_s = 0.0
        self.high_watermark = -1
        self.log_start = 0
        self.leader_epoch = -1
        #: When something last came for it, counted in answers of the whole consumer.
        self.served = 0
        self.read_epoch = -1
        self.committed = -1
        self.said_done = -1
        self.unproven = False
        self.pinned = False
        self.revoked = False

    @classmethod
    def at(cls, tp: TopicPartition, topic_id: bytes, start: Start) -> PartitionState:
        """A partition of a group, at its starting point."""
        state = cls(tp, start.reset)
        state.topic_id = topic_id
        state.position = state.fetch_offset = start.offset
        if start.offset is not None:
            state.committed = start.offset
            state.read_epoch = start.leader_epoch
            state.unproven = True
        return state

    def lag(self) -> int | None:
        """Returns how many offsets polls have not returned yet, as far as the last answer says; None if unknown."""
        if self.position is None or self.high_watermark < 0:
            return None
        # What was fetched ahead is handed out although the log has lost it since.
        start = self.position if self.queued else self.log_start
        return lag(self.position, start, self.high_watermark)

    def revoke(self) -> None:
        """Hands nothing more out; what was fetched ahead is dropped."""
        self.revoked = True
        self.generation += 1
        self.fetch_offset = self.position
        self.queued.clear()
        self.queued_bytes = 0
        self.session = None
        # A look-up under way is for the generation before, and ends without a word: given back, it begins anew.
        self.resetting = False

    def move(self, offset: int | None, reset: str) -> None:
        """Starts over at an offset, or at one to be looked up."""
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
        self.unproven = False


class _Saved:
    """What a change began with, to be restored if it is interrupted."""

    def __init__(self, assignment: Assignment, states: Iterable[PartitionState]) -> None:
        self._whole = _whole_of(assignment)
        self._states: list[tuple[PartitionState, tuple[object, ...], deque[FetchedRows]]] = []
        for state in states:
            self.add(state)

    def add(self, state: PartitionState) -> None:
        """Saves a partition that is about to be changed."""
        self._states.append((state, _values_of(state), state.queued.copy()))

    def restore(self, assignment: Assignment) -> None:
        """Undoes what has been done. An interrupted call can be repeated."""
        for name, value in zip(_WHOLE, self._whole, strict=True):
            setattr(assignment, name, value)
        for state, values, queued in self._states:
            for name, value in zip(PartitionState.__slots__, values, strict=True):
                setattr(state, name, value)
            state.queued = queued


_WHOLE = ("handed", "before_last", "skipped", "taken_bytes", "unannounced")
_whole_of = attrgetter(*_WHOLE)
_values_of = attrgetter(*PartitionState.__slots__)


class _LoopLock:
    """The assignment's lock for the event loop, whose thread no signal handler interrupts."""

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
        partition_limit_bytes: a partition with this much queued is not fetched for.
        clock: monotonic seconds.
    """

    def __init__(self, partition_limit_bytes: int, clock: Callable[[], float] = time.monotonic) -> None:
        self.clock = clock
        self._mutex = threading.RLock()
        self.lock = _LoopLock(self._mutex, self._roll_back)
        #: Whether this thread is in the middle of a change, and a signal handler or the like calls again.
        self.is_entered = held_by_caller(self._mutex)
        self._saved: _Saved | None = None
        self.states: dict[TopicPartition, PartitionState] = {}
        self._partition_limit_bytes = partition_limit_bytes
        self._listeners: list[Callable[[], None]] = []
        self._turn = 0
        self._error_was_said = False
        #: Bytes that were handed out, ever. Those of a batch count when all of it was.
        self.taken_bytes = 0
        #: By :attr:`clock`: from then on nothing is handed out, because the group may have given it to others.
        self.valid_until_s = float("inf")
        #: Where the partitions were before what was handed out last.
        self.before_last: dict[TopicPartition, int] = {}
        #: The unreadable batches that positions were moved past by the last ``take_fetched``.
        self.skipped: list[UnreadableBatchError] = []
        #: Rows that were taken out, in order, and that the application may not have been given.
        self.handed: tuple[FetchedRows, ...] = ()
        #: The fetcher has to look at what was changed, and has not been woken.
        self.unannounced = False

    def change(self, work: Callable[[_Saved], Result], states: Iterable[PartitionState] = ()) -> Result:
        """Changes something on a caller's thread, under the lock. When it is interrupted, nothing has changed.

        Arguments:
            work: makes the change. Before it changes a partition that is not among ``states`` it saves it.

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
        """Takes partitions out of the assignment."""
        with self.lock:
            for tp in partitions:
                if tp in self.states:
                    state = self.states.pop(tp)
                    state.move(None, state.reset)

    def place(self, states: Mapping[TopicPartition, PartitionState]) -> None:
        """Adds partitions with all that is known of them; those that are assigned keep what they have."""
        with self.lock:
            for tp, state in states.items():
                self.states.setdefault(tp, state)

    def add(self, partitions: Iterable[TopicPartition], reset: str) -> None:
        """Adds partitions that are not assigned yet."""
        with self.lock:
            for tp in partitions:
                self.states.setdefault(tp, PartitionState(tp, reset))

    def state(self, tp: TopicPartition) -> PartitionState:
        """The state of an assigned partition.

        Raises:
            IllegalStateError: it is not assigned.
        """
        found = self.states.get(checked_partition(tp))
        if found is None:
            raise IllegalStateError(f"{tp.topic}-{tp.partition} is not assigned to this consumer: call assign first")
        return found

    def take_fetched(self, max_records: int) -> tuple[list[FetchedRows], bool]:
        """Takes out fetched rows, partition by partition in turn, and moves positions past them.

        Returns:
            the rows, and whether a partition may be fetched for that was full before.

        Raises:
            QuorumlogError: of a failed partition with nothing more to take. Said once; then it is tried again, and what
                others have is handed out before the next error.
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
        # One that fails again and again must not keep the records of all others permanently.
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
                if state.queued[0].skipped is not None:
                    if taken and taken[-1].tp == state.tp:
                        break  # For the next call: rows can be given back only while the position is their end.
                    self._pass_skipped(state)
                    continue
                rows = self._take_next(state, left)
                left -= rows.columns.num_rows
                taken.append(rows)
            drained |= full_before and state.queued_bytes < self._partition_limit_bytes
            if not left:
                break
        self.handed = tuple(taken)
        self.unannounced |= drained
        return None, drained

    def _take_next(self, state: PartitionState, most: int) -> FetchedRows:
        """Takes the next rows of a partition that has some, ``most`` at most, and moves its position."""
        rows = state.queued.popleft()
        if rows.columns.num_rows > most:
            rows, rest = rows.split(most)
            state.queued.appendleft(rest)
        assert rows.offset >= (state.position or 0), "queued rows begin at the position, or after a gap"
        self.before_last.setdefault(state.tp, rows.offset)
        state.position = rows.next_offset
        state.read_epoch = rows.leader_epoch
        state.given_topic_id = state.topic_id
        state.queued_bytes -= rows.size_bytes
        self.taken_bytes += rows.size_bytes
        return rows

    def drop(self, part: FetchedRows) -> None:
        """Lets go of handed rows that the application has been given completely, the first of them."""

        def drop(saved: _Saved) -> None:
            if self.handed and self.handed[0] is part:
                self.handed = self.handed[1:]

        self.change(drop)

    def _pass_skipped(self, state: PartitionState) -> None:
        """Moves the position past an unreadable batch at the head of the queue. Under the lock."""
        part = state.queued.popleft()
        assert part.skipped is not None and part.offset >= (state.position or 0)
        state.position, state.read_epoch = part.offset, part.leader_epoch
        self.skipped.append(part.skipped)

    def give_back(self, parts: Sequence[FetchedRows]) -> None:
        """Queues rows again that were taken out last, in their order; the positions are before them again.

        What else was handed has been given to the application.
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
                continue  # The log has been cut off under it, and its position was reset.
            state.queued.appendleft(part)
            state.queued_bytes += part.size_bytes
            state.position = behind[part.tp] = part.offset
            state.read_epoch = -1
        self.handed = ()

    def read(self, look: Callable[[], Result]) -> Result:
        """Looks at several partitions on a caller's thread, at one moment."""
        return self.change(lambda saved: look())

    def queued_bytes(self) -> int:
        """Bytes fetched ahead, over all partitions."""
        return sum(state.queued_bytes for state in self.states.values())

    def has_records(self) -> bool:
        """Whether a poll would return something."""
        return any(state.queued and not (state.paused or state.revoked) for state in self.states.values())

    def release_paused(self) -> bool:
        """Makes room where only paused partitions hold what was fetched ahead: they fetch it again once resumed.

        Under the lock. Returns whether there was any.
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
        """Calls ``callback`` on the loop's thread whenever something has been queued, has failed or has moved."""
        self._listeners.append(callback)

    def notify(self) -> None:
        """Tells the listeners. Not under the lock."""
        for listener in list(self._listeners):
            listener()

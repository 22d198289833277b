"""Judges a history. A log needs no search: offsets are the order, so these are hash joins and sweeps over time.

The numbers are those of docs/internals/chaos.md. Each checker takes a history and returns the anomalies in it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from quorumlog.chaos.checkers.history import History, Operation, OperationKind, OperationOutcome

#: Maximum number of anomalies reported per checker; a broken run may have thousands of the same kind.
MOST_REPORTED = 20


@dataclass(slots=True, frozen=True)
class Anomaly:
    """A broken invariant: its number, a description in one line, and the operations that prove it."""

    invariant: str
    message: str
    operations: tuple[Operation, ...] = ()


def _sightings(history: History) -> Iterator[tuple[str, int, str, Operation]]:
    """Yields every (partition, offset, value) that was acknowledged or read."""
    for send in history.sends(OperationOutcome.OK):
        if send.offset >= 0:
            yield send.partition, send.offset, send.value, send
    for poll in history.polls():
        for offset, value in poll.records:
            yield poll.partition, offset, value, poll


def one_value_per_offset(history: History) -> list[Anomaly]:
    """I1: each (partition, offset) has one value, over every acknowledgement (with acks=all) and every poll."""
    found: list[Anomaly] = []
    seen: dict[tuple[str, int], tuple[str, Operation]] = {}
    for partition, offset, value, operation in _sightings(history):
        if not operation.acks_all:
            continue  # a record with acks=1 may be lost with its leader, and its offset reused
        first, before = seen.setdefault((partition, offset), (value, operation))
        if first != value:
            message = f"offset {offset} of {partition} holds {first!r} and {value!r}"
            found.append(Anomaly("I1", message, (before, operation)))
    return found


def no_value_twice(history: History) -> list[Anomaly]:
    """I2: no value at two offsets."""
    found: list[Anomaly] = []
    seen: dict[str, tuple[str, int, Operation]] = {}
    for partition, offset, value, operation in _sightings(history):
        if not operation.acks_all:
            continue
        place, at, before = seen.setdefault(value, (partition, offset, operation))
        if (place, at) != (partition, offset):
            message = f"value {value!r} is at {place} offset {at} and at {partition} offset {offset}"
            found.append(Anomaly("I2", message, (before, operation)))
    return found


def acknowledged_is_read(history: History) -> list[Anomaly]:
    """I3: each record acknowledged with acks=all below the highest offset read was read; and the final reader, which
    starts from 0 after healing, reads every one of them. Below the log start or compaction point reported to readers,
    records are removed on purpose. (The result of compaction is judged where it is written and served.)
    """
    found: list[Anomaly] = []
    polls = list(history.polls())
    finals = [poll for poll in polls if poll.final]
    read = {(poll.partition, value) for poll in finals or polls for _, value in poll.records}
    highest: dict[str, int] = {}
    for poll in polls:
        for offset, _ in poll.records:
            highest[poll.partition] = max(offset, highest.get(poll.partition, -1))
    starts = _log_starts(history)
    for send in history.sends(OperationOutcome.OK):
        if not send.acks_all or (send.partition, send.value) in read or send.offset < starts.get(send.partition, 0):
            continue
        if finals or send.offset < highest.get(send.partition, -1):
            message = f"{send.value!r}, acknowledged at {send.partition} offset {send.offset}, is lost"
            found.append(Anomaly("I3", message, (send,)))
    return found


def _log_starts(history: History) -> dict[str, int]:
    """Returns for each partition the highest log start or compaction point that was reported to a reader."""
    starts: dict[str, int] = {}
    for reset in history.resets():
        starts[reset.partition] = max(reset.offset, starts.get(reset.partition, 0))
    for poll in history.polls():
        starts[poll.partition] = max(poll.compacted_offset, starts.get(poll.partition, 0))
    return starts


def nothing_read_that_failed(history: History) -> list[Anomaly]:
    """I4: no poll returns a record whose send failed definitely, nor one at or beyond the high watermark."""
    found: list[Anomaly] = []
    failed = {(send.partition, send.value): send for send in history.sends(OperationOutcome.FAIL)}
    for poll in history.polls():
        for offset, value in poll.records:
            send = failed.get((poll.partition, value))
            if send is not None:
                message = f"{value!r} was read at {poll.partition} offset {offset}, but its send failed definitely"
                found.append(Anomaly("I4", message, (send, poll)))
            if 0 <= poll.high_watermark <= offset:
                message = f"offset {offset} of {poll.partition} was read beyond high watermark {poll.high_watermark}"
                found.append(Anomaly("I4", message, (poll,)))
    return found


def polls_in_order(history: History) -> list[Anomaly]:
    """I5: within one assignment polls neither skip nor go back, except to the log start when that is ahead."""
    found: list[Anomaly] = []
    positions: dict[tuple[str, str], int] = {}
    for poll in history.reads():
        key = (poll.process, poll.partition)
        if poll.kind is OperationKind.RESET:
            if poll.offset <= positions.get(key, -1):
                message = f"{poll.process} was reset to {poll.partition} offset {poll.offset}"
                found.append(Anomaly("I5", message, (poll,)))
            positions[key] = poll.offset
        for offset, _ in poll.records:
            expected = positions.get(key)
            if expected is not None and offset != expected and not expected < offset <= poll.compacted_offset:
                message = f"{poll.process} read {poll.partition} offset {offset} instead of {expected}"
                found.append(Anomaly("I5", message, (poll,)))
            positions[key] = offset + 1
    return found


def sends_in_order(history: History) -> list[Anomaly]:
    """I6: a process's later send to a partition gets a higher offset."""
    found: list[Anomaly] = []
    last: dict[tuple[str, str], Operation] = {}
    for send in sorted(
        history.sends(OperationOutcome.OK), key=lambda o: o.invoked_us
    ):  # stable: recording order breaks ties
        if not send.acks_all or send.offset < 0:
            continue
        before = last.get((send.process, send.partition))
        if before is not None and before.invoked_us < send.invoked_us and send.offset <= before.offset:
            message = (
                f"{send.process} sent {before.value!r}, then {send.value!r}: offsets {before.offset}, {send.offset}"
            )
            found.append(Anomaly("I6", message, (before, send)))
        last[(send.process, send.partition)] = send
    return found


def sends_after_acknowledged(history: History) -> list[Anomaly]:
    """I7: a send's offset exceeds every offset acknowledged before it was invoked. I10: so does a linearizable end
    offset, which is also not below one that was returned before it was requested, even by another leader.
    """
    found: list[Anomaly] = []
    floors: dict[str, int] = {}
    at_invocation: dict[int, int] = {}
    invoked = [
        *(send for send in history.sends(OperationOutcome.OK) if send.acks_all and send.offset >= 0),
        *history.end_offsets(),
    ]
    for is_return, number in _moments(invoked):
        operation = invoked[number]
        partition, offset = operation.partition, operation.offset
        if not is_return:
            at_invocation[number] = floors.get(partition, 0)
            continue
        floor = at_invocation[number]
        is_send = operation.kind is OperationKind.SEND
        if offset < floor and is_send:
            message = f"{operation.value!r} got offset {offset} in {partition} after {floor - 1} was acknowledged"
            found.append(Anomaly("I7", message, (operation,)))
        elif offset < floor:
            message = f"the end of {partition} was reported as {offset} after it had been {floor}"
            found.append(Anomaly("I10", message, (operation,)))
        floors[partition] = max(floors.get(partition, 0), offset + 1 if is_send else offset)
    return found


def _moments(operations: list[Operation]) -> list[tuple[bool, int]]:
    """Returns (is return, index in ``operations``) of every invocation and return, in time order. At the same instant
    an invocation comes first: only operations that returned strictly earlier count as before.
    """
    moments = [(o.invoked_us, False, number) for number, o in enumerate(operations)]
    moments += [(o.returned_us, True, number) for number, o in enumerate(operations)]
    return [(is_return, number) for _, is_return, number in sorted(moments)]


def offsets_dense(history: History) -> list[Anomaly]:
    """I8: each final reader read every offset from the log start to the end, beyond all acknowledged ones."""
    found: list[Anomaly] = []
    ends_of: dict[str, dict[str, int]] = {}
    for poll in history.reads():
        if not poll.final:
            continue
        ends = ends_of.setdefault(poll.partition, {})
        if poll.kind is OperationKind.RESET:
            ends[poll.process] = max(poll.offset, ends.get(poll.process, 0))
        for offset, _ in poll.records:
            expected = ends.get(poll.process, 0)
            if offset != expected and not expected < offset <= poll.compacted_offset:
                found.append(
                    Anomaly("I8", f"offset {expected} of {poll.partition} is missing: {offset} was read", (poll,))
                )
            ends[poll.process] = offset + 1
    for send in history.sends(OperationOutcome.OK):
        if send.acks_all and send.offset >= min(ends_of.get(send.partition, {}).values(), default=0):
            message = f"the final reader of {send.partition} stopped before acknowledged offset {send.offset}"
            found.append(Anomaly("I8", message, (send,)))
    return found


CHECKERS: tuple[Callable[[History], list[Anomaly]], ...] = (
    one_value_per_offset,
    no_value_twice,
    acknowledged_is_read,
    nothing_read_that_failed,
    polls_in_order,
    sends_in_order,
    sends_after_acknowledged,
    offsets_dense,
)


def check(history: History, *, read_back: bool = True) -> list[Anomaly]:
    """Returns all anomalies of a history, at most ``MOST_REPORTED`` of each kind.

    Arguments:
        read_back: True if the final reader reached the end. If not, it is one reader among others: records that it did
            not reach are neither lost nor missing, and I8 does not apply.
    """
    checkers = CHECKERS
    if not read_back:
        history = History(replace(one, final=False) for one in history)
        checkers = tuple(checker for checker in CHECKERS if checker is not offsets_dense)
    found: list[Anomaly] = []
    for checker in checkers:
        found.extend(checker(history)[:MOST_REPORTED])
    return found

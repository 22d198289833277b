"""I13, judged from the operations of members of consumer groups.

Each checker takes the operations of one group and partition, in the order of their end, and returns the anomalies.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from quorumlog.chaos.checkers.checkers import MOST_REPORTED
from quorumlog.chaos.checkers.group_history import Act, Ending, GroupHistory, GroupOperation, Part
from quorumlog.chaos.checkers.history import OperationOutcome

INVARIANT = "I13"


@dataclass(slots=True, frozen=True)
class GroupAnomaly:
    """A broken invariant: a description in one line, and the operations that prove it."""

    message: str
    operations: tuple[GroupOperation, ...] = ()
    invariant: str = INVARIANT


@dataclass(slots=True, frozen=True)
class Duplicate:
    """Records that a group has processed more than once.

    Arguments:
        count: number of records.
        why: fate of the earlier work, which was not committed when the partition was read again.
    """

    part: Part
    offset: int
    count: int
    why: str


class Coverage:
    """A set of offsets, as ranges."""

    __slots__ = ("_ends", "_starts")

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._ends: list[int] = []

    def add(self, first: int, end: int) -> list[tuple[int, int]]:
        """Adds the offsets from ``first`` to before ``end``; returns the ranges among them that were already
        included.
        """
        low = bisect_left(self._ends, first)
        high = bisect_right(self._starts, end)
        known = [
            (max(first, start), min(end, last))
            for start, last in zip(self._starts[low:high], self._ends[low:high], strict=True)
            if max(first, start) < min(end, last)
        ]
        if low < high:
            first, end = min(first, self._starts[low]), max(end, self._ends[high - 1])
        self._starts[low:high], self._ends[low:high] = [first], [end]
        return known

    def first_missing(self, start: int = 0) -> int:
        """Returns the first offset from ``start`` on that is not included."""
        place = bisect_right(self._starts, start) - 1
        return max(start, self._ends[place]) if place >= 0 else start


# -- one at a time ----------------------------------------------------------------------------------------------------


def one_worker_at_a_time(operations: list[GroupOperation], tolerance_us: int) -> list[GroupAnomaly]:
    """(a) No two members work on a partition at the same time. A member that does not revoke in time is removed while
    it works.

    Arguments:
        tolerance_us: time for which a member that was removed may continue: the lag of its clock behind its
            coordinator's during a session.
    """
    found: list[GroupAnomaly] = []
    latest: GroupOperation | None = None
    for own in sorted((each for each in operations if each.act is Act.OWN), key=lambda each: each.invoked_us):
        if latest is not None and own.member != latest.member and latest.ending is not Ending.OVERDUE:
            allowed = tolerance_us if latest.ending is Ending.LOST else 0
            if own.invoked_us < latest.returned_us - allowed:
                message = (
                    f"{own.member} works on {own.part} from {own.invoked_us} µs on, but {latest.member}, which"
                    f" {latest.ending.value}, did so from {latest.invoked_us} to {latest.returned_us} µs"
                )
                found.append(GroupAnomaly(message, (latest, own)))
        if latest is None or own.returned_us >= latest.returned_us:
            latest = own
    return found


def work_while_owning(operations: list[GroupOperation]) -> list[GroupAnomaly]:
    """(a) No member processes a partition that it does not own, or no longer owns."""
    owns: dict[str, list[GroupOperation]] = {}
    for own in operations:
        if own.act is Act.OWN:
            owns.setdefault(own.member, []).append(own)
    found: list[GroupAnomaly] = []
    for work in operations:
        if work.act is Act.PROCESS and not any(
            own.invoked_us <= work.invoked_us and work.returned_us <= own.returned_us
            for own in owns.get(work.member, ())
        ):
            message = (
                f"{work.member} processes {work.part} from {work.offset} to {work.end} between {work.invoked_us} and"
                f" {work.returned_us} µs, but does not own it"
            )
            found.append(GroupAnomaly(message, (work, *owns.get(work.member, ()))))
    return found


def commits_fenced(operations: list[GroupOperation]) -> list[GroupAnomaly]:
    """(b) Once a member has been assigned a partition, no former owner can commit."""
    found: list[GroupAnomaly] = []
    owners = sorted((each for each in operations if each.act is Act.OWN), key=lambda each: each.invoked_us)
    starts = [own.invoked_us for own in owners]
    for commit in operations:
        if commit.act is not Act.COMMIT or commit.outcome is not OperationOutcome.OK:
            continue
        place = bisect_left(starts, commit.invoked_us) - 1
        owner = owners[place] if place >= 0 else None
        # A new owner may commit at the instant of the assignment, and the former owner may have committed just before.
        next_owners = owners[place + 1 : bisect_right(starts, commit.invoked_us)]
        if all(own is None or own.member != commit.member for own in (owner, *next_owners)):
            who = "no member" if owner is None else f"{owner.member} since {owner.invoked_us} µs"
            message = (
                f"{commit.member} commits offset {commit.offset} of {commit.part}, asked for at"
                f" {commit.invoked_us} µs; it belongs to {who}"
            )
            found.append(GroupAnomaly(message, (commit,) if owner is None else (owner, commit)))
    return found


# -- committed offsets as a register ----------------------------------------------------------------------------------


def _that_count(operations: list[GroupOperation]) -> list[GroupOperation]:
    """Returns all operations except commits that arrived after a later one of their member: those are answered, but
    store nothing.
    """
    newest: dict[str, int] = {}
    counting: list[GroupOperation] = []
    for each in operations:
        if each.act is Act.COMMIT and each.outcome is OperationOutcome.OK:
            if each.number < newest.get(each.member, 0):
                continue
            newest[each.member] = each.number
        counting.append(each)
    return counting


def _that_go_back(operations: list[GroupOperation]) -> list[GroupOperation]:
    """Returns the commits that validly lower an offset of their member: those below one that it had tried to commit
    before, because it has read the committed offset again while the earlier, abandoned commit was still in flight; and
    those without a number that were in flight together with a higher one. Kafka's clients retry commits in any order.
    """
    most: dict[str, int] = {}
    commits = [each for each in operations if each.act is Act.COMMIT and each.outcome is not OperationOutcome.FAIL]
    back = [commit for commit in commits if not commit.number and any(_overtakes(each, commit) for each in commits)]
    for commit in sorted(commits, key=lambda each: (each.number, each.invoked_us)):
        if commit.number and commit.offset < most.get(commit.member, -1):
            back.append(commit)
        most[commit.member] = max(commit.offset, most.get(commit.member, -1))
    return back


def _overtakes(later: GroupOperation, commit: GroupOperation) -> bool:
    """True if a commit of a higher offset may have been carried out before ``commit``, although requested later."""
    return (
        later.member == commit.member
        and later.offset > commit.offset
        and later.invoked_us <= commit.returned_us
        and commit.invoked_us <= later.returned_us
    )


def _taken_back(before: GroupOperation, offset: int, by_us: int, going_back: list[GroupOperation]) -> bool:
    """True if ``offset`` alone may be committed at a time, although ``before`` had been."""
    return any(
        back.offset <= offset
        and back.invoked_us <= by_us
        and (back.outcome is OperationOutcome.INFO or before.invoked_us <= back.returned_us)
        for back in going_back
    )


def committed_offsets_linearizable(operations: list[GroupOperation]) -> list[GroupAnomaly]:
    """(c) Committed offsets go back only where a member replaces its own commit; and a reader gets no lower offset than
    was acknowledged before, and no offset that was never committed.
    """
    found: list[GroupAnomaly] = []
    requested = [each for each in _that_count(operations) if each.act in (Act.COMMIT, Act.READ_COMMITTED)]
    going_back = _that_go_back(requested)
    wished = {
        each.offset for each in requested if each.act is Act.COMMIT and each.outcome is not OperationOutcome.FAIL
    } | {-1}
    # At the same instant an invocation comes first: only operations that returned strictly earlier count as before.
    moments = sorted(
        [(each.invoked_us, False, number) for number, each in enumerate(requested)]
        + [(each.returned_us, True, number) for number, each in enumerate(requested)]
    )
    floor: GroupOperation | None = None
    floors: dict[int, GroupOperation | None] = {}
    for _, is_return, number in moments:
        operation = requested[number]
        if not is_return:
            floors[number] = floor
            continue
        if operation.outcome is not OperationOutcome.OK:
            continue
        before = floors[number]
        if (
            before is not None
            and operation.offset < before.offset
            and not _taken_back(before, operation.offset, operation.returned_us, going_back)
        ):
            what = "commits" if operation.act is Act.COMMIT else "reads the committed"
            message = f"{operation.member} {what} offset {operation.offset} of {operation.part} after {before.offset}"
            found.append(GroupAnomaly(message, (before, operation)))
        if operation.act is Act.READ_COMMITTED and operation.offset not in wished:
            message = (
                f"{operation.member} reads offset {operation.offset} of {operation.part}, which was never committed"
            )
            found.append(GroupAnomaly(message, (operation,)))
        if floor is None or operation.offset > floor.offset:
            floor = operation
    return found


# -- at least once ----------------------------------------------------------------------------------------------------


def commits_after_processing(operations: list[GroupOperation]) -> list[GroupAnomaly]:
    """(d) No member tries to commit beyond the records that the group has processed."""
    found: list[GroupAnomaly] = []
    done = Coverage()
    moments = [(each.returned_us, False, n) for n, each in enumerate(operations) if each.act in (Act.PROCESS, Act.PASS)]
    moments += [(each.invoked_us, True, n) for n, each in enumerate(operations) if each.act is Act.COMMIT]
    for _, is_commit, number in sorted(moments):
        operation = operations[number]
        if not is_commit:
            done.add(operation.offset, operation.end)
        elif done.first_missing() < operation.offset:
            message = (
                f"{operation.member} commits offset {operation.offset} of {operation.part};"
                f" {done.first_missing()} is not processed"
            )
            found.append(GroupAnomaly(message, (operation,)))
    return found


def all_processed(operations: list[GroupOperation], end: int) -> list[GroupAnomaly]:
    """(d) In the end every record before ``end`` has been processed, if it was retained for long enough."""
    done = Coverage()
    for each in operations:
        if each.act in (Act.PROCESS, Act.PASS):
            done.add(each.offset, each.end)
    missing = done.first_missing()
    if missing >= end:
        return []
    part = operations[0].part if operations else ""
    return [GroupAnomaly(f"offset {missing} of {part} was never processed; the log continues to {end}")]


@dataclass(slots=True)
class _Work:
    """The members that have processed each part of a partition, so far."""

    done: list[GroupOperation] = field(default_factory=list)
    covered: Coverage = field(default_factory=Coverage)
    reads: dict[str, GroupOperation] = field(default_factory=dict)


def duplicates(operations: list[GroupOperation]) -> tuple[list[Duplicate], list[GroupAnomaly]]:
    """(d) Returns the records that were processed again, with the fate of the earlier work; and as anomalies those that
    were committed before the second owner read the committed offset.
    """
    explained: list[Duplicate] = []
    found: list[GroupAnomaly] = []
    commits = [each for each in _that_count(operations) if each.act is Act.COMMIT]
    going_back = _that_go_back(commits)
    owns = [each for each in operations if each.act is Act.OWN]
    work = _Work()
    for operation in operations:
        if operation.act is Act.READ_COMMITTED:
            work.reads[operation.member] = operation
        if operation.act is not Act.PROCESS:
            continue
        for first, end in work.covered.add(operation.offset, operation.end):
            read = work.reads.get(operation.member)
            before = next(each for each in work.done if each.offset < end and first < each.end)
            settled = None if read is None else _committed_before(commits, first, read, going_back)
            if read is None or settled is not None or read.offset > first:
                message = (
                    f"{operation.member} processes {operation.part} from {first} to {end} again: {before.member} had"
                    f" done so, and it was committed before {operation.member} read the start offset"
                )
                shown = [each for each in (before, settled, read, operation) if each is not None]
                found.append(GroupAnomaly(message, tuple(shown)))
            else:
                explained.append(Duplicate(operation.part, first, end - first, _fate(before, owns, commits)))
        work.done.append(operation)
    return explained, found


def _committed_before(
    commits: list[GroupOperation], offset: int, read: GroupOperation, going_back: list[GroupOperation]
) -> GroupOperation | None:
    for commit in commits:
        if (
            commit.outcome is OperationOutcome.OK
            and commit.offset > offset
            and commit.returned_us < read.invoked_us
            and not _taken_back(commit, read.offset, read.returned_us, going_back)
        ):
            return commit
    return None


def _fate(before: GroupOperation, owns: list[GroupOperation], commits: list[GroupOperation]) -> str:
    """Returns the fate of a member's uncommitted work."""
    tried = any(each.member == before.member and each.offset > before.offset for each in commits)
    own = next(
        (
            each
            for each in owns
            if each.member == before.member and each.invoked_us <= before.returned_us <= each.returned_us
        ),
        None,
    )
    ending = "had no right to it" if own is None else own.ending.value
    return f"{ending}, {'its commit was rejected or not answered' if tried else 'it was not committed'}"


# -- all checkers
# --------------------------------------------------------------------------------------------------------


CHECKERS: tuple[Callable[[list[GroupOperation]], list[GroupAnomaly]], ...] = (
    commits_fenced,
    committed_offsets_linearizable,
    commits_after_processing,
)


@dataclass(slots=True)
class GroupVerdict:
    """Result of checking a history.

    Arguments:
        anomalies: broken invariants.
        duplicates: number of records processed again, by the fate of the earlier work.
        processed: number of records processed, repetitions included.
    """

    anomalies: list[GroupAnomaly] = field(default_factory=list)
    duplicates: Counter[str] = field(default_factory=Counter)
    processed: int = 0


def check_groups(
    history: GroupHistory,
    ends: Mapping[Part, int] | None = None,
    tolerance_us: int = 0,
    *,
    knows_when_work_ends: bool = False,
) -> GroupVerdict:
    """Judges a history of consumer groups.

    Arguments:
        ends: the offset that each group had to reach in each partition; others are not judged.
        tolerance_us: see ``one_worker_at_a_time``.
        knows_when_work_ends: times of work are exact enough that work outside of ownership is an anomaly.
    """
    verdict = GroupVerdict()
    parts = history.by_part()
    for part in (*parts, *(part for part in ends or {} if part not in parts)):
        operations = parts.get(part, [])
        found = one_worker_at_a_time(operations, tolerance_us)
        for checker in CHECKERS:
            found += checker(operations)
        if knows_when_work_ends:
            found += work_while_owning(operations)
        if ends is not None and part in ends:
            found += all_processed(operations, ends[part]) if operations else _never_read(part, ends[part])
        again, wrong = duplicates(operations)
        for duplicate in again:
            verdict.duplicates[duplicate.why] += duplicate.count
        verdict.processed += sum(each.end - each.offset for each in operations if each.act is Act.PROCESS)
        verdict.anomalies += (found + wrong)[:MOST_REPORTED]
    return verdict


def _never_read(part: Part, end: int) -> list[GroupAnomaly]:
    return [GroupAnomaly(f"{part} was never read; the log continues to {end}")] if end else []

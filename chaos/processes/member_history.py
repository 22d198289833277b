"""Builds the history for the group checkers from the members' own files and the faults of their processes.

Also checks what only a member's file shows: that it received no record of a partition that it did not own, that it
skipped no record within one ownership, and that the records of a key came in order.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from quorumlog.chaos.checkers.checkers import MOST_REPORTED, Anomaly
from quorumlog.chaos.checkers.group_history import Act, Ending, GroupOperation
from quorumlog.chaos.checkers.history import OperationOutcome
from quorumlog.chaos.processes.member_log import Event, MemberEvent, WorkedRecord


@dataclass(slots=True, frozen=True)
class MemberLife:
    """One member process, from its start to its end.

    Arguments:
        name: unique in the run.
        stops: times when it was stopped, in nanoseconds: from before SIGSTOP until after SIGCONT.
        killed_ns: when it was certainly dead; None if it was not killed.
        hears_late: it cannot tell when its session ends, and after a stop continues until it is notified of its
            removal, like Kafka's clients.
    """

    name: str
    group: str
    events: Sequence[MemberEvent]
    stops: Sequence[tuple[int, int]] = ()
    killed_ns: int | None = None
    hears_late: bool = False

    def last_stop(self, first_ns: int, last_ns: int) -> int | None:
        """Returns the start of the last stop in a period."""
        return max((begin for begin, _ in self.stops if first_ns <= begin <= last_ns), default=None)

    def stood_still(self, first_ns: int, last_ns: int) -> bool:
        """True if it was stopped at some moment of a period."""
        return any(begin <= last_ns and end >= first_ns for begin, end in self.stops)


@dataclass(slots=True, frozen=True)
class PolledWork:
    """Records of one poll and partition: requested, received, and processed by ``at_ns``.

    Arguments:
        stopped: the process was stopped in between: when it received them is unknown.
    """

    partition: int
    asked_ns: int
    given_ns: int
    at_ns: int
    records: tuple[WorkedRecord, ...]
    stopped: bool


@dataclass(slots=True)
class _Ownership:
    began_ns: int
    work: list[PolledWork] = field(default_factory=list)

    def ended_ns(self, told_ns: int, ending: Ending, life: MemberLife) -> int:
        """Returns the end of its work on the partition. A stopped member is not notified of a lost partition: its work
        counts until the last moment at which it certainly received records, for those that are notified late before the
        stop.
        """
        if ending is not Ending.LOST:
            return told_ns
        stop_ns = life.last_stop(self.began_ns, told_ns) if life.hears_late else None
        times = (work.asked_ns if work.stopped else work.given_ns for work in self.work)
        return max((each for each in times if stop_ns is None or each <= stop_ns), default=self.began_ns)


class MemberHistory:
    """Follows one member's file from the first line to the last.

    Arguments:
        topic: the topic of the file's partitions.
        end_ns: end of the run: partitions that were still owned were owned until then.
    """

    def __init__(self, life: MemberLife, topic: str, end_ns: int) -> None:
        self.operations: list[GroupOperation] = []
        self.anomalies: list[Anomaly] = []
        self.work: list[PolledWork] = []
        self._life = life
        self._topic = topic
        self._end_ns = end_ns
        self._held: dict[int, _Ownership] = {}
        self._under_way: dict[int, MemberEvent] = {}
        for event in life.events:
            self._follow(event)
        self._finish()

    def _follow(self, event: MemberEvent) -> None:
        match event.event:
            case Event.ASSIGNED:
                for partition in event.partitions:
                    if partition in self._held:
                        self._broken(f"was given partition {partition}, which it has")
                    self._held[partition] = _Ownership(event.at_ns)
            case Event.REVOKED | Event.LOST:
                ending = Ending.REVOKED if event.event is Event.REVOKED else Ending.LOST
                for partition in event.partitions:
                    if partition in self._held:
                        self._give_up(partition, event.at_ns, ending)
                    else:
                        self._broken(f"had to give up partition {partition}, which is not its own")
            case Event.WORKED:
                self._worked(event)
            case Event.COMMITTING:
                self._under_way[event.commit] = event
            case Event.COMMITTED:
                self._committed(self._under_way.pop(event.commit), event.at_ns, OperationOutcome.OK)
            case Event.REFUSED:
                outcome = OperationOutcome.FAIL if event.definite else OperationOutcome.INFO
                self._committed(self._under_way.pop(event.commit), event.at_ns, outcome)
            case Event.FAILED:
                self._broken(f"gave up: {event.message}", "I14")
            case Event.STARTED | Event.LEFT:
                pass

    def _worked(self, event: MemberEvent) -> None:
        stopped = self._life.stood_still(event.asked_ns, event.at_ns)
        work = PolledWork(event.partition, event.asked_ns, event.given_ns, event.at_ns, event.records, stopped)
        self.work.append(work)
        first, end = event.records[0].offset, event.records[-1].offset + 1
        held = self._held.get(event.partition)
        if held is None:
            self._broken(f"was given offset {first} of partition {event.partition}, which is not its own")
        else:
            if not held.work:
                # It read the committed offset at some time between the assignment and its first record.
                self._add(event.partition, Act.READ_COMMITTED, held.began_ns, event.given_ns, offset=first or -1)
            expected = held.work[-1].records[-1].offset + 1 if held.work else first
            if [record.offset for record in event.records] != list(range(expected, end)):
                offsets = [record.offset for record in event.records]
                self._broken(f"expects offset {expected} of partition {event.partition}, and is given {offsets}", "I5")
            held.work.append(work)
        self._add(event.partition, Act.PROCESS, event.given_ns, event.at_ns, offset=first, end=end)

    def _committed(self, asked: MemberEvent, at_ns: int, outcome: OperationOutcome) -> None:
        for partition, offset in asked.offsets:
            self._add(partition, Act.COMMIT, asked.at_ns, at_ns, outcome=outcome, offset=offset)

    def _give_up(self, partition: int, at_ns: int, ending: Ending) -> None:
        held = self._held.pop(partition)
        self._add(partition, Act.OWN, held.began_ns, held.ended_ns(at_ns, ending, self._life), ending=ending)

    def _finish(self) -> None:
        """Adds operations without an end in the file: commits of unknown outcome, and partitions whose owner was
        killed.
        """
        killed_ns = self._life.killed_ns
        for request in self._under_way.values():
            self._committed(request, self._end_ns, OperationOutcome.INFO)
        for partition in list(self._held):
            if killed_ns is None:
                self._give_up(partition, self._end_ns, Ending.OPEN)
            else:
                self._give_up(partition, killed_ns, Ending.CRASHED)

    def _add(
        self,
        partition: int,
        act: Act,
        invoked_ns: int,
        returned_ns: int,
        *,
        outcome: OperationOutcome = OperationOutcome.OK,
        offset: int = -1,
        end: int = -1,
        ending: Ending = Ending.OPEN,
    ) -> None:
        life = self._life
        self.operations.append(
            GroupOperation(
                life.group,
                f"{self._topic}-{partition}",
                life.name,
                act,
                invoked_ns // 1_000,
                returned_ns // 1_000,
                outcome,
                offset,
                end,
                ending,
            )
        )

    def _broken(self, message: str, invariant: str = "I13") -> None:
        if len(self.anomalies) < MOST_REPORTED:
            self.anomalies.append(Anomaly(invariant, f"{self._life.name} of group {self._life.group} {message}"))


def keys_in_order(group: str, work: Iterable[PolledWork]) -> list[Anomaly]:
    """Checks that a group received each writer's records with one key in order, repetitions excluded.

    Work during a stop of the process is excluded too: its time is unknown.
    """
    found: list[Anomaly] = []
    newest: dict[tuple[int, int], int] = {}
    done: set[tuple[int, int]] = set()
    for one in sorted(work, key=lambda each: each.at_ns):
        for record in one.records:
            if (one.partition, record.offset) in done:
                continue
            done.add((one.partition, record.offset))
            if one.stopped:
                continue
            thread = record.writer, record.key
            if record.number <= newest.get(thread, -1) and len(found) < MOST_REPORTED:
                message = (
                    f"group {group} does record {record.number} of writer {record.writer} with key {record.key} after"
                    f" {newest[thread]}, at offset {record.offset} of partition {one.partition}"
                )
                found.append(Anomaly("I6", message))
            newest[thread] = max(newest.get(thread, -1), record.number)
    return found

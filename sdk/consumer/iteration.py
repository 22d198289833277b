"""Records one by one: what a poll brought and the application has not been given yet.

Positions move with each poll. So whatever looks at or changes positions in the midst of an iteration (a seek, a pause,
another poll) has the rest given back first: it is returned next, as if the poll had stopped there. The same happens to
the rows of a poll that was interrupted.
"""

from __future__ import annotations

from collections.abc import Callable

from quorumlog.sdk.consumer.assignment import Assignment
from quorumlog.sdk.records.fetched import FetchedRows
from quorumlog.sdk.types import ConsumerRecord, TopicPartition


class Iteration:
    """The records of the last poll that are still to come.

    Attributes:
        given: how many records of the first part the application has been given. Whoever returns what :meth:`peek`
            shows counts it, as the very last step: the step that moves the iteration on.

    Arguments:
        to_records: makes records of rows.
    """

    def __init__(self, assignment: Assignment, to_records: Callable[[FetchedRows], list[ConsumerRecord]]) -> None:
        self._assignment = assignment
        self._to_records = to_records
        #: The part of the assignment's handed rows that is being given, and its records. Of another part: out of date.
        self._open: tuple[FetchedRows, list[ConsumerRecord]] | None = None
        self.given = 0

    def peek(self) -> ConsumerRecord | None:
        """The next record; None when a poll has to bring more."""
        while handed := self._assignment.handed:
            part = handed[0]
            opened = self._open
            if opened is None or opened[0] is not part:
                opened = part, self._to_records(part)
                self.given = 0
                self._open = opened
            if self.given < len(opened[1]):
                return opened[1][self.given]
            self._assignment.drop(part)
        self._open = None
        return None

    def positions(self) -> dict[TopicPartition, int]:
        """The offset of the next record here, of the partitions that have one."""
        found: dict[TopicPartition, int] = {}
        for part in self._rest():
            found.setdefault(part.tp, part.offset)
        return found

    def current(self) -> ConsumerRecord | None:
        """The record that was handed out last, as far as it is still known."""
        return self._open[1][self.given - 1] if self._open is not None and self.given else None

    def give_back(self) -> None:
        """Puts what is still to come where it came from."""
        self._assignment.give_back(self._rest())
        self._open = None

    def _rest(self) -> list[FetchedRows]:
        parts = list(self._assignment.handed)
        if not parts or self._open is None or self._open[0] is not parts[0] or not self.given:
            return parts
        records = self._open[1]
        if self.given == len(records):
            return parts[1:]
        return [parts[0].starting_at(records[self.given].offset), *parts[1:]]

"""Single records of the last poll that were not returned to the application yet.

Positions move with each poll. So any operation that reads or changes positions during an iteration (a seek, a pause,
another poll) first gives the remaining records back: they are returned next, as if the poll had stopped there. The same
applies to the rows of an interrupted poll.
"""

from __future__ import annotations

from collections.abc import Callable

from quorumlog.sdk.consumer.assignment import Assignment
from quorumlog.sdk.records.fetched import FetchedRows
from quorumlog.sdk.types import ConsumerRecord, TopicPartition


class Iteration:
    """The remaining records of the last poll.

    Attributes:
        given: number of records of the first part that the application has received. The caller that returns a record
            from :meth:`peek` increments it, as the very last step, which moves the iteration on.

    Arguments:
        to_records: converts rows to records.
    """

    def __init__(self, assignment: Assignment, to_records: Callable[[FetchedRows], list[ConsumerRecord]]) -> None:
        self._assignment = assignment
        self._to_records = to_records
        #: The part of the assignment's handed rows that is being returned, and its records. Outdated if it is another
        #: part.
        self._open: tuple[FetchedRows, list[ConsumerRecord]] | None = None
        self.given = 0

    def peek(self) -> ConsumerRecord | None:
        """Returns the next record; None if another poll is needed."""
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
        """Returns the offset of the next record, for partitions that have one here."""
        found: dict[TopicPartition, int] = {}
        for part in self._rest():
            found.setdefault(part.tp, part.offset)
        return found

    def current(self) -> ConsumerRecord | None:
        """Returns the record that was returned last, if it is still available."""
        return self._open[1][self.given - 1] if self._open is not None and self.given else None

    def give_back(self) -> None:
        """Returns the remaining rows to the queue."""
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

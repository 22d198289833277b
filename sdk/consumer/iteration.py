"""Records one by one: what a poll brought and the application has not been given yet.

Positions move with each poll. So whatever looks at or changes positions in the midst of an iteration (a seek, a pause,
another poll) has the rest given back first: it is returned next, as if the poll had stopped there.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable

from quorumlog.sdk.consumer.assignment import Assignment
from quorumlog.sdk.records.fetched import FetchedRows
from quorumlog.sdk.types import ConsumerRecord, TopicPartition


class Iteration:
    """The records of the last poll that are still to come.

    Arguments:
        to_records: makes records of rows.
    """

    def __init__(self, assignment: Assignment, to_records: Callable[[FetchedRows], list[ConsumerRecord]]) -> None:
        self._assignment = assignment
        self._to_records = to_records
        self._parts: deque[FetchedRows] = deque()
        self._records: list[ConsumerRecord] = []
        self._next = 0

    def add(self, parts: Iterable[FetchedRows]) -> None:
        """Takes what a poll brought."""
        self._parts.extend(parts)

    def next(self) -> ConsumerRecord | None:
        """The next record; None when a poll has to bring more."""
        while self._next == len(self._records):
            if self._records:
                self._parts.popleft()
                self._records, self._next = [], 0
            if not self._parts:
                return None
            self._records, self._next = self._to_records(self._parts[0]), 0
        self._next += 1
        return self._records[self._next - 1]

    def positions(self) -> dict[TopicPartition, int]:
        """The offset of the next record here, of the partitions that have one."""
        found: dict[TopicPartition, int] = {}
        for part in self._rest():
            found.setdefault(part.tp, part.offset)
        return found

    def current(self) -> ConsumerRecord | None:
        """The record that was handed out last, as far as it is still known."""
        return self._records[self._next - 1] if self._next else None

    def give_back(self) -> None:
        """Puts what is still to come where it came from."""
        rest = self._rest()
        self._parts.clear()
        self._records, self._next = [], 0
        if rest:
            self._assignment.give_back(rest)

    def _rest(self) -> list[FetchedRows]:
        parts = list(self._parts)
        if self._next == len(self._records):
            return parts[1:] if self._records else parts
        return [parts[0].starting_at(self._records[self._next].offset), *parts[1:]] if self._records else parts

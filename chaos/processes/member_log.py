"""The log of events that a member of a group writes: one JSON object per line, in order.

A line is passed to the system whole before the member continues, so a killed member's file contains all of its actions;
at most its last line is torn. Times are the machine's monotonic clock, which all processes share and which continues
while one of them is stopped.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any, NamedTuple


class Event(Enum):
    """Kind of event. REVOKED: after the work that precedes a revocation."""

    STARTED = "started"
    ASSIGNED = "assigned"
    REVOKED = "revoked"
    LOST = "lost"
    WORKED = "worked"
    COMMITTING = "committing"
    COMMITTED = "committed"
    REFUSED = "refused"
    LEFT = "left"
    FAILED = "failed"


class WorkedRecord(NamedTuple):
    """A record as a member received it.

    Arguments:
        number: counted by its writer.
    """

    offset: int
    writer: int
    number: int
    key: int


@dataclass(slots=True, frozen=True)
class MemberEvent:
    """One line.

    Arguments:
        at_ns: when it was written.
        partitions: of ASSIGNED, REVOKED and LOST.
        partition, records: of WORKED: the processed records. ``asked_ns`` and ``given_ns`` are the start and end of the
            poll that returned the records.
        commit: number of a commit, which identifies it until its outcome.
        offsets: of COMMITTING: partition -> next offset to read.
        definite: of REFUSED: the offsets are certainly not stored.
        message: why it was REFUSED or FAILED.
    """

    at_ns: int
    event: Event
    partitions: tuple[int, ...] = ()
    partition: int = -1
    records: tuple[WorkedRecord, ...] = ()
    asked_ns: int = 0
    given_ns: int = 0
    commit: int = -1
    offsets: tuple[tuple[int, int], ...] = ()
    definite: bool = False
    message: str = ""


class MemberLog:
    """Appends to a member's file."""

    def __init__(self, path: Path) -> None:
        self._descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        self._commits = 0

    def assigned(self, event: Event, partitions: Iterable[int]) -> None:
        """Logs ASSIGNED, REVOKED or LOST."""
        self._write(event, partitions=sorted(partitions))

    def worked(self, partition: int, asked_ns: int, given_ns: int, records: Iterable[WorkedRecord]) -> None:
        """Logs WORKED, for records of one poll and partition."""
        self._write(
            Event.WORKED, partition=partition, asked_ns=asked_ns, given_ns=given_ns, records=[tuple(r) for r in records]
        )

    def committing(self, offsets: Mapping[int, int]) -> int:
        """Logs COMMITTING; returns the commit's number."""
        self._commits += 1
        self._write(Event.COMMITTING, commit=self._commits, offsets=sorted(offsets.items()))
        return self._commits

    def committed(self, commit: int) -> None:
        """Logs COMMITTED."""
        self._write(Event.COMMITTED, commit=commit)

    def refused(self, commit: int, definite: bool, message: str) -> None:
        """Logs REFUSED."""
        self._write(Event.REFUSED, commit=commit, definite=definite, message=message)

    def note(self, event: Event, message: str = "") -> None:
        """Logs STARTED, LEFT or FAILED."""
        self._write(event, message=message)

    def _write(self, event: Event, **fields: object) -> None:
        line = json.dumps({"at_ns": time.monotonic_ns(), "event": event.value, **fields}, separators=(",", ":"))
        os.write(self._descriptor, line.encode() + b"\n")

    def close(self) -> None:
        """Closes the file."""
        os.close(self._descriptor)


class MemberLogTail:
    """Reads a member's file while it is being written.

    Raises:
        ValueError: from ``events``: a line is not a member's event; the message names it.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._place = 0
        self._events: list[MemberEvent] = []

    def events(self) -> list[MemberEvent]:
        """The events of all complete lines so far."""
        if not self._path.exists():
            return self._events
        with self._path.open("rb") as lines:
            lines.seek(self._place)
            for line in lines:
                if not line.endswith(b"\n"):
                    break
                self._place += len(line)
                try:
                    self._events.append(_event_of(json.loads(line)))
                except (ValueError, KeyError, TypeError) as error:
                    number = len(self._events) + 1
                    raise ValueError(f"{self._path}, line {number} is not an event of a member: {error}") from error
        return self._events


def _event_of(row: dict[str, Any]) -> MemberEvent:
    return MemberEvent(
        at_ns=row["at_ns"],
        event=Event(row["event"]),
        partitions=tuple(row.get("partitions", ())),
        partition=row.get("partition", -1),
        records=tuple(WorkedRecord(*one) for one in row.get("records", ())),
        asked_ns=row.get("asked_ns", 0),
        given_ns=row.get("given_ns", 0),
        commit=row.get("commit", -1),
        offsets=tuple((partition, offset) for partition, offset in row.get("offsets", ())),
        definite=row.get("definite", False),
        message=row.get("message", ""),
    )

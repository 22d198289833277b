"""Operations of the members of consumer groups: one record per operation.

The simulator and the real-process scenarios write the same history, and ``group_checkers`` judge it. Times are
microseconds on the one clock of the run.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from enum import Enum
from pathlib import Path
from typing import NamedTuple

from quorumlog.chaos.checkers.history import OperationOutcome


class Act(Enum):
    """Kind of a member's operation.

    OWN: it owned a partition, and worked on it. READ_COMMITTED: it read the group's committed offset. PROCESS: it
    processed records. PASS: it skipped records that are no longer retained. COMMIT: it committed.
    """

    OWN = "own"
    READ_COMMITTED = "read-committed"
    PROCESS = "process"
    PASS = "pass"
    COMMIT = "commit"


class Ending(Enum):
    """Reason why a member's ownership of a partition ended."""

    OPEN = "still has it"
    REVOKED = "gave it up"
    LEFT = "left"
    LOST = "was cut off or put out"
    OVERDUE = "was put out for being late to give up"
    CRASHED = "crashed"


class Part(NamedTuple):
    """A partition from the view of one group."""

    group: str
    partition: str

    def __str__(self) -> str:
        return f"{self.partition} of group {self.group}"


@dataclass(slots=True)
class GroupOperation:
    """One operation of one member.

    Arguments:
        group, partition: group and partition; a partition is ``topic-number``.
        member: incarnation of a member: one that is restarted under the same name is another.
        invoked_us, returned_us: start and end. For OWN: the time in which the member worked on the partition, at most
            as long as its session lasted by its own clock.
        outcome: result of a COMMIT or READ_COMMITTED. INFO: it is unknown if the commit was stored.
        offset: for COMMIT and READ_COMMITTED: the next record to be read; -1: none is committed. For PROCESS and PASS:
            the first record.
        end: for PROCESS and PASS: the offset after the last record.
        ending: for OWN.
        number: for COMMIT: its sequence number within the member, if a later one may overtake it; 0 if none may.
    """

    group: str
    partition: str
    member: str
    act: Act
    invoked_us: int
    returned_us: int
    outcome: OperationOutcome = OperationOutcome.OK
    offset: int = -1
    end: int = -1
    ending: Ending = Ending.OPEN
    number: int = 0

    @property
    def part(self) -> Part:
        """The group and partition."""
        return Part(self.group, self.partition)


class GroupHistory:
    """Operations in the order in which they were recorded."""

    def __init__(self, operations: Iterable[GroupOperation] = ()) -> None:
        self.operations: list[GroupOperation] = list(operations)

    def __len__(self) -> int:
        return len(self.operations)

    def __iter__(self) -> Iterator[GroupOperation]:
        return iter(self.operations)

    def add(self, operation: GroupOperation) -> None:
        """Records an operation that has ended."""
        self.operations.append(operation)

    def by_part(self) -> dict[Part, list[GroupOperation]]:
        """Returns the operations of each group and partition, ordered by their end; simultaneous ones as recorded."""
        parts: dict[Part, list[GroupOperation]] = {}
        for operation in sorted(self.operations, key=lambda each: each.returned_us):
            parts.setdefault(operation.part, []).append(operation)
        return parts

    def save(self, path: Path) -> None:
        """Writes JSON Lines."""
        with path.open("w", encoding="utf-8") as lines:
            for operation in self.operations:
                row = asdict(operation)
                row |= {name: row[name].value for name in ("act", "outcome", "ending")}
                lines.write(json.dumps(row, separators=(",", ":")) + "\n")

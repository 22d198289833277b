"""Operations of the clients of a run and their results: one record per operation, one JSON object per line.

The simulator and the real-process suite write the same history, and the same checkers judge it. Times are microseconds
on the one clock of the run.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, field
from enum import Enum
from pathlib import Path


class OperationKind(Enum):
    """Kind of a client's operation."""

    SEND = "send"
    POLL = "poll"
    END_OFFSET = "end-offset"
    RESET = "reset"


class OperationOutcome(Enum):
    """Outcome of an operation. FAIL: definitely without effect. INFO: unknown."""

    OK = "ok"
    FAIL = "fail"
    INFO = "info"


@dataclass(slots=True)
class Operation:
    """One operation of one client.

    Arguments:
        process: the client; a consumer's name identifies one assignment.
        invoked_us, returned_us: start and end.
        partition: ``topic-number``.
        value: for SEND, unique in the run.
        offset: for a SEND that is OK, the offset of its record, if reported; for END_OFFSET, the answer; for RESET, the
            log start at which a reader continues because its next record is no longer retained; otherwise -1.
        leader_epoch: epoch in which it was answered; -1 if unknown.
        acks_all: a SEND that promised durability.
        records: for POLL, (offset, value) in the order received.
        high_watermark: for POLL, the reported one; -1 if unknown.
        compacted_offset: for POLL: below it, records are missing that later ones of the same key have superseded.
        final: a POLL or RESET of the reader that starts from 0 after the cluster has healed.
    """

    process: str
    kind: OperationKind
    invoked_us: int
    returned_us: int
    outcome: OperationOutcome
    partition: str
    value: str = ""
    offset: int = -1
    leader_epoch: int = -1
    acks_all: bool = True
    records: list[tuple[int, str]] = field(default_factory=list)
    high_watermark: int = -1
    compacted_offset: int = 0
    final: bool = False


class History:
    """Operations in the order of their end."""

    def __init__(self, operations: Iterable[Operation] = ()) -> None:
        self.operations: list[Operation] = list(operations)

    def __len__(self) -> int:
        return len(self.operations)

    def __iter__(self) -> Iterator[Operation]:
        return iter(self.operations)

    def add(self, operation: Operation) -> None:
        """Records an operation that has ended."""
        self.operations.append(operation)

    def sends(self, outcome: OperationOutcome | None = None) -> Iterator[Operation]:
        """Yields sends of one outcome, or all."""
        return (o for o in self.operations if o.kind is OperationKind.SEND and outcome in (None, o.outcome))

    def polls(self) -> Iterator[Operation]:
        """Yields polls that returned."""
        return (o for o in self.operations if o.kind is OperationKind.POLL and o.outcome is OperationOutcome.OK)

    def resets(self) -> Iterator[Operation]:
        """Yields resets of readers to the log start."""
        return (o for o in self.operations if o.kind is OperationKind.RESET)

    def reads(self) -> Iterator[Operation]:
        """Yields polls that returned, and resets, in the order of their end."""
        return (
            o
            for o in self.operations
            if o.kind in (OperationKind.POLL, OperationKind.RESET) and o.outcome is OperationOutcome.OK
        )

    def end_offsets(self) -> Iterator[Operation]:
        """Yields linearizable end offsets that returned."""
        return (o for o in self.operations if o.kind is OperationKind.END_OFFSET and o.outcome is OperationOutcome.OK)

    def save(self, path: Path) -> None:
        """Writes JSON Lines."""
        with path.open("w", encoding="utf-8") as lines:
            for operation in self.operations:
                row = asdict(operation)
                row["kind"], row["outcome"] = operation.kind.value, operation.outcome.value
                lines.write(json.dumps(row, separators=(",", ":")) + "\n")

    @classmethod
    def load(cls, path: Path) -> History:
        """Reads a file that ``save`` wrote.

        Raises:
            ValueError: a line is not an operation; the message names it.
        """
        history = cls()
        with path.open(encoding="utf-8") as lines:
            for number, line in enumerate(lines, 1):
                try:
                    row = json.loads(line)
                    row["kind"], row["outcome"] = OperationKind(row["kind"]), OperationOutcome(row["outcome"])
                    row["records"] = [(offset, value) for offset, value in row["records"]]
                    history.add(Operation(**row))
                except (ValueError, KeyError, TypeError) as error:
                    raise ValueError(f"{path}, line {number} is not an operation of a history: {error}") from error
        return history

"""Results of a run with consumer groups, in numbers."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field


@dataclass(slots=True, frozen=True)
class GroupRound:
    """Faults of members and nodes, and the recovery of the groups.

    Arguments:
        what: description of the victims and faults.
        caught_up_s: time from the end of the fault until every group had processed all records written by then.
    """

    number: int
    what: str
    took_s: float
    caught_up_s: float

    def line(self) -> str:
        """Returns the round in one line."""
        return f"  round {self.number}, {self.took_s:.1f} s: {self.what}; caught up {self.caught_up_s:.1f} s after that"


@dataclass(slots=True, frozen=True)
class GroupTotals:
    """One group, over the whole run.

    Arguments:
        members: processes that ever belonged to it.
        ownerships: number of partition assignments.
        worked: number of processed records, repetitions included.
        committed, refused: commits by their outcome.
        duplicates: records processed again, by the fate of the earlier work.
    """

    group: str
    members: int
    ownerships: int
    worked: int
    committed: int
    refused: int
    duplicates: dict[str, int]

    def line(self) -> str:
        """Returns the group in one line."""
        again = sum(self.duplicates.values())
        reasons = ", ".join(f"{count} {why}" for why, count in sorted(self.duplicates.items()))
        return (
            f"group {self.group}: {self.members} members, {self.ownerships} partition assignments, {self.worked}"
            f" records processed, {self.committed} commits accepted, {self.refused} not; {again} processed again"
            f"{f' ({reasons})' if reasons else ''}"
        )


@dataclass(slots=True)
class ConsumerGroupFigures:
    """All groups of a run."""

    rounds: list[GroupRound] = field(default_factory=list)
    groups: list[GroupTotals] = field(default_factory=list)

    def lines(self) -> Sequence[str]:
        """Returns the lines of a summary."""
        lines = [one.line() for one in self.groups]
        if self.rounds:
            times = [one.caught_up_s for one in self.rounds]
            lines.append(
                f"{len(self.rounds)} rounds; caught up after {statistics.median(times):.1f} s in the median,"
                f" {max(times):.1f} s at most"
            )
        return lines

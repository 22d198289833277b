"""Results of a run with transfers, in numbers."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field


@dataclass(slots=True, frozen=True)
class TransferRound:
    """One fault, and the transfers that were made during it.

    Arguments:
        what: description of the victim and the fault.
        gap_s: longest time without a newly visible transfer, from the fault until the round's transfers were visible.
        fenced: number of workers that were fenced, and restarted, because their transaction took too long.
    """

    number: int
    what: str
    took_s: float
    gap_s: float
    visible: int
    fenced: int

    def line(self) -> str:
        """Returns the round in one line."""
        fenced = f", {self.fenced} workers restarted after a timeout" if self.fenced else ""
        return (
            f"  round {self.number}, {self.took_s:.1f} s: {self.what}; longest time without a visible transfer"
            f" {self.gap_s:.1f} s, {self.visible} transfers visible{fenced}"
        )


@dataclass(slots=True)
class TransferFigures:
    """All transfers of a run.

    Arguments:
        client: the workers' client.
        committed, aborted, unknown: transactions by the outcome that their worker received.
        audits: number of complete reads of all accounts.
    """

    client: str
    transfers: int = 0
    committed: int = 0
    aborted: int = 0
    unknown: int = 0
    audits: int = 0
    rounds: list[TransferRound] = field(default_factory=list)

    def lines(self) -> Sequence[str]:
        """Returns the lines of a summary."""
        lines = [
            f"{self.transfers} transfers with {self.client}: {self.committed} transactions committed, {self.aborted}"
            f" aborted, {self.unknown} unknown; {self.audits} audits"
        ]
        if self.rounds:
            gaps = [one.gap_s for one in self.rounds]
            lines.append(
                f"longest time without a visible transfer: median {statistics.median(gaps):.1f} s,"
                f" most {max(gaps):.1f} s over {len(gaps)} rounds"
            )
        return lines

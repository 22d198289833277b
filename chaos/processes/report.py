"""Results of a run: lines for the terminal, JSON for programs, and an HTML page."""

from __future__ import annotations

import html
import json
import statistics
from dataclasses import asdict, dataclass, field
from pathlib import Path

from quorumlog.chaos.checkers.checkers import Anomaly
from quorumlog.chaos.checkers.group_history import GroupHistory
from quorumlog.chaos.checkers.history import History, OperationOutcome
from quorumlog.chaos.checkers.transfer_checkers import TransferHistory
from quorumlog.chaos.processes.group_figures import ConsumerGroupFigures
from quorumlog.chaos.processes.steady import SteadyFigures
from quorumlog.chaos.processes.transfer_figures import TransferFigures

#: Maximum number of anomalies shown: when records are lost, there may be many.
SHOWN_ANOMALIES = 20
GROUPS_KEPT = (
    "groups: no record skipped, one owner of a partition at a time, commits fenced, only uncommitted work repeated"
)
TRANSFERS_KEPT = (
    "transactions: the sum of all accounts was the same at every audit, no transfer lost, none made twice or by half"
)


@dataclass(slots=True, frozen=True)
class GapBounds:
    """Limits for the longest gap of a round (ms): for the median over the rounds, and for each of them."""

    median_ms: float
    most_ms: float

    def met(self, gaps_ms: list[float]) -> bool:
        """True if the gaps of some rounds are within the limits."""
        return statistics.median(gaps_ms) <= self.median_ms and max(gaps_ms) <= self.most_ms


@dataclass(slots=True, frozen=True)
class Round:
    """One fault and the recovery from it.

    Arguments:
        victim_led_target: True if the victim led the partition whose writer is timed.
        began_us, ended_us: on the clock of the history.
        gap_ms: longest time between two acknowledgements of the timed writer from the fault on.
        recovery_gap_ms: the same from the end of the fault on.
        shrink_s: time from the fault until the victim was seen to have left the in-sync replicas; None if that is not
            awaited. Checked after the first acknowledgements, so an upper bound.
        full_s: time from the end of the fault until all replicas were in sync.
        stalls: number of stalls of the machine itself during the longest gap.
        moved: leaderships that moved although the fault must not affect them; then the round is repeated.
    """

    number: int
    victim: int
    victim_led_target: bool
    began_us: int
    ended_us: int
    gap_ms: float
    recovery_gap_ms: float
    shrink_s: float | None
    full_s: float
    stalls: int
    moved: tuple[str, ...] = ()

    @property
    def seconds(self) -> float:
        """The duration of the round."""
        return (self.ended_us - self.began_us) / 1_000_000

    def line(self) -> str:
        """Returns the round in one line."""
        shrink = "" if self.shrink_s is None else f", out of the ISR after {self.shrink_s:.1f} s"
        stalls = f" (the machine stalled {self.stalls} times)" if self.stalls else ""
        moved = f"; MOVED: {'; '.join(self.moved)}" if self.moved else ""
        return (
            f"  round {self.number}: node {self.victim}{' (leader)' if self.victim_led_target else ''}:"
            f" longest gap between acknowledgements {self.gap_ms:.0f} ms{shrink},"
            f" ISR full {self.full_s:.1f} s after its return{stalls}{moved}"
        )


@dataclass(slots=True)
class Report:
    """Result of a run. It has passed if nothing failed and no invariant is broken.

    Arguments:
        failures: states that were not reached, in time order: the failed round, and its consequences.
        not_checked: invariants that could not be checked, each with the reason. Unless the machine itself is the cause,
            the reason is among the failures too.
        bounds: limits of the gaps. A busy machine may exceed them without any fault of the cluster.
        steady: figures of a run without faults.
        groups: figures of a run with consumer groups.
        transfers: figures of a run with transactions.
        history, group_history, transfer_history: operations of clients, of members of groups, and in transactions, if
            recorded.
    """

    scenario: str
    summary_line: str
    seed: int
    bounds: GapBounds | None = None
    steady: SteadyFigures | None = None
    rounds: list[Round] = field(default_factory=list)
    duration_s: float = 0.0
    acknowledged: int = 0
    unknown: int = 0
    failed: int = 0
    read: int = 0
    anomalies: list[Anomaly] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)
    not_checked: list[str] = field(default_factory=list)
    groups: ConsumerGroupFigures | None = None
    transfers: TransferFigures | None = None
    history: History | None = None
    group_history: GroupHistory | None = None
    transfer_history: TransferHistory | None = None

    @property
    def passed(self) -> bool:
        """True if no invariant is broken, and nothing failed."""
        return not self.anomalies and not self.failures

    @property
    def quiet_gaps_ms(self) -> list[float]:
        """The longest gap of each round that counts: the machine did not stall, and the victim was a leader if that is
        timed (it may hand over to the preferred one just before).
        """
        return [one.gap_ms for one in self.rounds if not one.stalls and (self.bounds is None or one.victim_led_target)]

    def take_history(self, history: History, anomalies: list[Anomaly]) -> None:
        """Counts the clients' operations, and stores them with their anomalies."""
        self.history = history
        self.anomalies.extend(anomalies)
        self.acknowledged = sum(1 for _ in history.sends(OperationOutcome.OK))
        self.unknown = sum(1 for _ in history.sends(OperationOutcome.INFO))
        self.failed = sum(1 for _ in history.sends(OperationOutcome.FAIL))
        self.read = sum(len(poll.records) for poll in history.polls() if poll.final)

    def summary(self) -> list[str]:
        """Returns the result in a few lines, anomalies first."""
        lines = [
            *(f"FAILED: {failure}" for failure in self.failures),
            *(f"not checked: {one}" for one in self.not_checked),
            *self._broken(),
            f"{self.acknowledged} records acknowledged, {self.unknown} unknown, {self.failed} failed;"
            f" {self.read} read at the end; {self.duration_s:.0f} s; seed {self.seed}",
        ]
        gaps = self.quiet_gaps_ms
        if gaps:
            lines.append(
                f"longest gap between acknowledgements: median {statistics.median(gaps):.0f} ms,"
                f" most {max(gaps):.0f} ms over {len(gaps)} rounds"
            )
            if self.bounds is not None:
                lines.append(
                    f"required are a median of {self.bounds.median_ms:.0f} ms and {self.bounds.most_ms:.0f} ms at most:"
                    f" {'met' if self.bounds.met(gaps) else 'NOT met'}"
                )
        if self.steady is not None:
            lines.extend(self.steady.lines())
        if self.groups is not None:
            lines.extend(self.groups.lines())
        if self.transfers is not None:
            lines.extend(self.transfers.lines())
        if len(gaps) < len(self.rounds):
            lines.append(
                f"{len(self.rounds) - len(gaps)} rounds excluded from the timing: the machine itself stalled, or the"
                " victim no longer led"
            )
        again = sum(bool(one.moved) for one in self.rounds)
        if again:
            lines.append(f"{again} rounds were repeated: leaderships moved that the fault must not affect")
        if self.passed:
            lines.append("no acknowledged record lost, none twice, no gap, order kept; the replicas' logs agree")
        if self.passed and self.groups is not None:
            lines.append(GROUPS_KEPT)
        if self.passed and self.transfers is not None:
            lines.append(TRANSFERS_KEPT)
        return lines

    def _broken(self) -> list[str]:
        lines = [f"BROKEN {one.invariant}: {one.message}" for one in self.anomalies[:SHOWN_ANOMALIES]]
        if len(lines) < len(self.anomalies):
            lines.append(f"BROKEN in {len(self.anomalies) - len(lines)} more places; report.json has them all")
        return lines

    def to_json(self) -> str:
        """Returns everything except the history."""
        gaps = self.quiet_gaps_ms
        return json.dumps(
            {
                "scenario": self.scenario,
                "seed": self.seed,
                "passed": self.passed,
                "duration_s": round(self.duration_s, 3),
                "acknowledged": self.acknowledged,
                "unknown": self.unknown,
                "failed": self.failed,
                "read": self.read,
                "gap_ms_median": statistics.median(gaps) if gaps else None,
                "gap_ms_max": max(gaps) if gaps else None,
                "bounds": None if self.bounds is None else asdict(self.bounds),
                "bounds_met": self.bounds.met(gaps) if self.bounds is not None and gaps else None,
                "quiet_rounds": len(gaps),
                "steady": None if self.steady is None else asdict(self.steady),
                "groups": None if self.groups is None else asdict(self.groups),
                "transfers": None if self.transfers is None else asdict(self.transfers),
                "rounds": [asdict(one) for one in self.rounds],
                "failures": self.failures,
                "not_checked": self.not_checked,
                "anomalies": [{"invariant": a.invariant, "message": a.message} for a in self.anomalies],
            },
            indent=2,
        )

    def write(self, directory: Path) -> None:
        """Writes report.json, index.html and, where they exist, history.jsonl, groups.jsonl and history.edn."""
        directory.mkdir(parents=True, exist_ok=True)
        (directory / "report.json").write_text(self.to_json() + "\n", encoding="utf-8")
        (directory / "index.html").write_text(self._page(), encoding="utf-8")
        if self.history is not None:
            self.history.save(directory / "history.jsonl")
        if self.group_history is not None:
            self.group_history.save(directory / "groups.jsonl")
        if self.transfer_history is not None:
            self.transfer_history.save(directory / "history.edn")

    def _page(self) -> str:
        verdict = "all invariants hold" if self.passed else "INVARIANT BROKEN" if self.anomalies else "FAILED"
        figures = self.groups or self.transfers
        rounds = self.rounds if figures is None else figures.rounds
        lines = "\n".join(html.escape(line) for line in (*self.summary(), *(one.line() for one in rounds)))
        timeline = ""
        if self.history is not None:
            timeline = f"<h2>Acknowledgements per 100 ms; faults shaded</h2>{_timeline(self.history, self.rounds)}"
        return (
            f"<!doctype html><meta charset=utf-8><title>{html.escape(self.scenario)}</title>"
            "<style>body{font:15px sans-serif;max-width:70em;margin:2em auto}pre{white-space:pre-wrap}</style>"
            f"<h1>{html.escape(self.scenario)}: {verdict}</h1><p>{html.escape(self.summary_line)}</p>"
            f"{timeline}<pre>{lines}</pre>"
        )


def _timeline(history: History, rounds: list[Round], width: int = 1_000, height: int = 160) -> str:
    """Draws acknowledgements over time as an SVG of bars, with the rounds shaded."""
    times = [send.returned_us for send in history.sends(OperationOutcome.OK)]
    if not times:
        return "<p>no acknowledgement</p>"
    end = max(times) + 1
    counts = [0] * (end // 100_000 + 1)
    for moment in times:
        counts[moment // 100_000] += 1
    step, top = width / len(counts), max(counts)
    shades = "".join(
        f'<rect x="{one.began_us / end * width:.1f}" width="{(one.ended_us - one.began_us) / end * width:.1f}"'
        f' height="{height}" fill="#fdd"><title>round {one.number}: node {one.victim}</title></rect>'
        for one in rounds
    )
    bars = "".join(
        f'<rect x="{place * step:.1f}" y="{height - count / top * height:.1f}" width="{step:.2f}"'
        f' height="{count / top * height:.1f}" fill="#258"/>'
        for place, count in enumerate(counts)
    )
    return f'<svg viewBox="0 0 {width} {height}" width="100%">{shades}{bars}</svg>'

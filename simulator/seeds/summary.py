"""Totals of many seeds: as text, and as JSON."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from quorumlog.simulator.seeds.simulation import LEAST_EVENTS, SeedResult
from quorumlog.simulator.seeds.story import Story


def _command(seed: int, story: Story) -> str:
    return f"python -m quorumlog.simulator.simulate --seed {seed}{story.value}"


def counted(counts: Counter[str]) -> str:
    """Formats numbers by name."""
    return ", ".join(f"{name} {number}" for name, number in sorted(counts.items())) or "none"


def replay_line(result: SeedResult, story: Story = Story.NODES) -> str:
    """Formats a failed seed with the command that replays it."""
    command = _command(result.seed, story)
    cut_down = (
        "" if story in (Story.CLIENTS, Story.MACHINES, Story.TRANSACTIONS) else f" (cut down: {command} --reduce)"
    )
    return (
        f"seed {result.seed}: {result.violation}\n    after {result.events} events, {result.steps} steps,"
        f" {len(result.struck)} faults; replay: {command}{cut_down}"
    )


@dataclass(slots=True)
class Tally:
    """Totals of a run's seeds.

    Arguments:
        story: subject of the seeds.
    """

    story: Story = Story.NODES
    seeds: int = 0
    first_seed: int | None = None
    last_seed: int | None = None
    events: int = 0
    steps: int = 0
    least_events: int | None = None
    seeds_of_least_events: int = 0
    acknowledged: int = 0
    elections: int = 0
    virtual_seconds: float = 0.0
    wall_seconds: float = 0.0
    faults: Counter[str] = field(default_factory=Counter)
    failed: list[SeedResult] = field(default_factory=list)
    groups: int = 0
    group_commands: int = 0
    group_records: int = 0
    duplicates: Counter[str] = field(default_factory=Counter)
    happened: Counter[str] = field(default_factory=Counter)

    def add(self, result: SeedResult) -> None:
        """Adds one seed."""
        self.seeds += 1
        self.first_seed = result.seed if self.first_seed is None else min(self.first_seed, result.seed)
        self.last_seed = result.seed if self.last_seed is None else max(self.last_seed, result.seed)
        self.events += result.events
        self.steps += result.steps
        self.least_events = result.events if self.least_events is None else min(self.least_events, result.events)
        self.seeds_of_least_events += result.events >= LEAST_EVENTS
        self.acknowledged += result.acknowledged
        self.elections += result.elections
        self.virtual_seconds += result.virtual_us / 1e6
        self.faults.update(result.faults)
        self.groups += result.groups
        self.group_commands += result.group_commands
        self.group_records += result.group_records
        self.duplicates.update(result.duplicates)
        self.happened.update(result.happened)
        if result.violation is not None:
            self.failed.append(result)

    def lines(self) -> list[str]:
        """Formats the totals."""
        return [
            f"{self.seeds} seeds ({self.first_seed} to {self.last_seed}), {self.events} events, {self.faults.total()}"
            f" faults, {self.elections} elections, {self.acknowledged} records acknowledged,"
            f" {self.virtual_seconds:.0f} s of virtual time in {self.wall_seconds:.0f} s",
            f"least events of a seed {self.least_events};"
            f" {self.seeds_of_least_events} seeds with {LEAST_EVENTS} or more",
            f"faults: {counted(self.faults)}",
            f"consumer groups: {self.groups}, changed {self.group_commands} times; members: {counted(self.happened)}",
            f"records processed by groups: {self.group_records}, of these again: {counted(self.duplicates)}",
            f"{len(self.failed)} broke a promise",
        ]

    def save(self, path: Path) -> None:
        """Writes the totals and every violation as JSON."""
        record = {
            "seeds": self.seeds,
            "first_seed": self.first_seed,
            "last_seed": self.last_seed,
            "events": self.events,
            "steps": self.steps,
            "least_events": self.least_events,
            f"seeds_of_{LEAST_EVENTS}_events": self.seeds_of_least_events,
            "fault_total": self.faults.total(),
            "faults": dict(sorted(self.faults.items())),
            "elections": self.elections,
            "acknowledged": self.acknowledged,
            "virtual_seconds": round(self.virtual_seconds, 1),
            "wall_seconds": round(self.wall_seconds, 1),
            "groups": self.groups,
            "group_commands": self.group_commands,
            "group_events": dict(sorted(self.happened.items())),
            "records_processed": self.group_records,
            "processed_again": dict(sorted(self.duplicates.items())),
            "violations": [
                {
                    "seed": result.seed,
                    "violation": result.violation,
                    "events": result.events,
                    "steps": result.steps,
                    "virtual_us": result.virtual_us,
                    "trace": result.trace,
                    "replay": _command(result.seed, self.story),
                }
                for result in self.failed
            ],
        }
        path.write_text(json.dumps(record, indent=2) + "\n")

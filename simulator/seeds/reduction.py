"""Reduces a failing seed to the fewest of its faults that still violate the same invariant (delta debugging).

Faults draw from random streams of their own, so a run without some of them has the others unchanged. The rest of the
cluster then behaves differently, and may or may not fail; so the search is a search, and it is bounded.

Source: Zeller and Hildebrandt, "Simplifying and Isolating Failure-Inducing Input" (2002), ddmin.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from quorumlog.simulator.seeds.simulation import SeedResult

#: Most runs of a search. There is no bound of time, so that a seed is reduced to the same faults on each machine.
MOST_RUNS = 200
#: Length of the prefix of a violation that identifies the invariant; the rest describes the case.
TELLING_LETTERS = 60

Run = Callable[[frozenset[int] | None], SeedResult]


@dataclass(slots=True, frozen=True)
class Reduction:
    """The result of a reduction. ``faults`` are the numbers of those that matter, of ``faults_before``."""

    seed: int
    faults: frozenset[int]
    faults_before: int
    result: SeedResult
    runs: int


def invariant_of(violation: str) -> str:
    """Returns the words that violations of one kind have in common, without names and numbers."""
    words = re.sub(r"\[.*?\]|EntryId\(.*?\)|'.*?'|\S*\d\S*", " ", violation)
    return " ".join(words.split())[:TELLING_LETTERS]


class _Search:
    """Runs of one seed with some of its faults, within the bound of runs."""

    def __init__(self, run: Run, first: SeedResult, invariant: str, most_runs: int) -> None:
        self.best = first
        self.runs = 1
        self._run = run
        self._invariant = invariant
        self._most_runs = most_runs

    @property
    def over(self) -> bool:
        """True if the bound is reached."""
        return self.runs >= self._most_runs

    def breaks(self, faults: Sequence[int]) -> bool:
        """True if these faults alone violate the same invariant."""
        if self.over:
            return False
        self.runs += 1
        result = self._run(frozenset(faults))
        if result.violation is None or invariant_of(result.violation) != self._invariant:
            return False
        self.best = result
        return True


def reduce_faults(run: Run, most_runs: int = MOST_RUNS) -> Reduction | None:
    """Finds a small set of faults that still violates the invariant of the whole seed.

    Arguments:
        run: runs the seed with the faults of these numbers; with all of them for None.
        most_runs: the bound of the search.

    Returns:
        None if the seed violates no invariant.
    """
    first = run(None)
    if first.violation is None:
        return None
    search = _Search(run, first, invariant_of(first.violation), most_runs)
    left = _minimized([fault.number for fault in first.struck], search)
    return Reduction(first.seed, frozenset(left), len(first.struck), search.best, search.runs)


def _minimized(faults: list[int], search: _Search) -> list[int]:
    if search.breaks([]):
        return []
    parts = 2
    while len(faults) >= 2 and not search.over:
        size = -(-len(faults) // parts)
        chunks = [faults[start : start + size] for start in range(0, len(faults), size)]
        complements = [[fault for fault in faults if fault not in chunk] for chunk in chunks]
        smaller = next((chosen for chosen in (*chunks, *complements) if search.breaks(chosen)), None)
        if smaller is not None:
            # Some of the selected faults may no longer happen.
            struck = {fault.number for fault in search.best.struck}
            faults = [fault for fault in smaller if fault in struck]
            parts = 2
        elif parts >= len(faults):
            break
        else:
            parts = min(2 * parts, len(faults))
    return faults

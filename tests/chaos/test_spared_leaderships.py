"""Isolating a follower must leave terms and leaderships alone, unless the machine itself moves them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import cast

import pytest

from quorumlog.chaos.processes.leaderships import Leadership
from quorumlog.chaos.processes.nemesis import ChaosError, Nemesis
from quorumlog.chaos.processes.replica_logs import durable_terms, require_no_campaign
from quorumlog.chaos.processes.report import Report, Round
from quorumlog.chaos.processes.scenarios import MOST_REPEATS, SCENARIOS, Fault, ScenarioRun
from quorumlog.chaos.processes.watchdog import Watchdog
from quorumlog.raft.types import Configuration, HardState
from quorumlog.storage.storage import Storage
from quorumlog.storage.transaction import RaftGroupWrite, StorageTransaction


def test_terms_are_read_from_the_disk(tmp_path: Path) -> None:
    members = Configuration((1, 2, 3))
    with Storage(tmp_path, reserve_bytes=0) as storage:
        writes = [
            RaftGroupWrite(group, create=members, hard_state=HardState(term, 2, 0)) for group, term in ((0, 3), (7, 12))
        ]
        storage.commit(StorageTransaction(1, writes))
    assert durable_terms(tmp_path) == {0: 3, 7: 12}


def test_who_raises_a_term_while_nobody_hears_it_has_campaigned_without_a_majority() -> None:
    require_no_campaign(3, {0: 1, 7: 2}, {0: 1, 7: 2, 8: 5})
    with pytest.raises(ChaosError, match=r"node 3, while isolated, raised its term .*: of group 7 from 2 to 5$"):
        require_no_campaign(3, {0: 1, 7: 2}, {0: 1, 7: 5})


def made(number: int, *moved: str) -> Round:
    """A round in which leaderships moved."""
    return Round(number, 3, False, 0, 1, 100.0, 1.0, shrink_s=3.0, full_s=0.5, stalls=0, moved=moved)


class Nobody:
    """Leads everything."""

    def leaderships_beside(self, node: int | None) -> dict[str, Leadership]:
        return {}


class Rounds(ScenarioRun):
    """Rounds that end as scripted."""

    def __init__(self, ends: Iterator[tuple[str, ...]], unprovoked: Iterator[list[str]]) -> None:
        self.rounds: list[Round] = []
        self.not_checked: list[str] = []
        self._unprovoked = unprovoked
        self._nemesis = cast(Nemesis, Nobody())
        self._ends = ends
        self._say = print

    def _round(self, fault: Fault, number: int, watchdog: Watchdog) -> Round:
        return made(number + 1, *next(self._ends))

    def _watch(self, before: dict[str, Leadership], seconds: float) -> list[str]:
        return next(self._unprovoked)


def strike(*ends: tuple[str, ...], unprovoked: Iterable[list[str]] = ([],) * 4) -> ScenarioRun:
    """Two rounds, and as many more as it takes."""
    fault = SCENARIOS["isolate-follower"].fault
    assert fault is not None
    run = Rounds(iter(ends), iter(unprovoked))
    for number in range(2):
        run._strike(fault, number, cast(Watchdog, None))
    return run


def test_a_round_in_which_leaderships_moved_is_struck_again() -> None:
    rounds = strike(("t-0 moved",), ("metadata moved",), (), ()).rounds
    assert [(one.number, one.moved) for one in rounds] == [
        (1, ("t-0 moved",)),
        (1, ("metadata moved",)),
        (1, ()),
        (2, ()),
    ]
    report = Report("isolate-follower", "", 1, rounds=rounds)
    assert "2 rounds were repeated: leaderships moved that the fault must not affect" in report.summary()
    assert "; MOVED: t-0 moved" in rounds[0].line()


def test_leaderships_that_move_each_time_do_so_because_a_follower_is_isolated() -> None:
    with pytest.raises(ChaosError, match=f"leaderships moved each of {1 + MOST_REPEATS} times.*: t-0 moved; t-1 moved"):
        strike(*[("t-0 moved", "t-1 moved")] * (1 + MOST_REPEATS))


def test_leaderships_that_move_without_a_fault_too_say_nothing_about_the_fault() -> None:
    moved: list[tuple[str, ...]] = [("t-0 moved",)] * (1 + MOST_REPEATS)
    run = strike(*moved, (), unprovoked=[[], ["t-1 moved"], [], []])
    assert run.not_checked == ["round 1, leaderships: without a fault too t-1 moved"]
    assert [one.number for one in run.rounds] == [1] * (1 + MOST_REPEATS) + [2]

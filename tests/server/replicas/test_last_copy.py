"""The reading of a replica that will be the only copy of its partition."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from quorumlog.raft.types import Entry, EntryKind
from quorumlog.server.process.job_thread import carry_out
from quorumlog.server.replicas.sole_copy_check import LastCopyCheck
from quorumlog.server.step.events import Job
from quorumlog.storage.interface import DamageError

GROUP = 1000


class Log:
    """Entries first to 9 on a disk, of which a read gives two, and what is known of damage."""

    def __init__(self) -> None:
        self.first = 1
        self.error: Exception | None = None
        self.read: list[int] = []
        self.known: list[DamageError] = []
        self.mending = False
        self.jobs: list[Job] = []
        self.check = LastCopyCheck(self, self, self.jobs.append, lambda *_, **__: None)  # type: ignore[arg-type]

    def entries(self, group: int, first: int, last: int, max_bytes: int) -> list[Entry]:
        if self.error is not None:
            error, self.error = self.error, None
            raise error
        if first < self.first:
            raise LookupError(f"the log starts at {self.first}")
        found = range(first, min(first + 1, last) + 1)
        self.read += found
        return [Entry(index, 1, EntryKind.COMMAND, 0, b"") for index in found]

    def take_up(self, damage: DamageError) -> None:
        self.known.append(damage)
        self.mending = True

    def may_mend(self, group: int) -> bool:
        return self.mending

    def is_whole(self, term: int = 1) -> bool:
        raft: Any = SimpleNamespace(group=GROUP, term=term, first_index=self.first, durable_index=9)
        return self.check.is_whole(raft)

    def work(self) -> None:
        while self.jobs:
            self.check.on_done(carry_out(self.jobs.pop()))


def test_a_log_is_read_to_its_end_a_slice_at_a_time() -> None:
    log = Log()
    assert not log.is_whole()
    assert len(log.jobs) == 1
    assert not log.is_whole()
    assert len(log.jobs) == 1, "one at a time"
    log.work()
    assert log.read == list(range(1, 10))
    assert log.is_whole()
    assert log.jobs == []


def test_a_log_that_begins_later_meanwhile_is_read_from_there() -> None:
    log = Log()
    log.is_whole()
    log.first = 6
    log.work()
    assert not log.is_whole()
    log.work()
    assert log.read == [6, 7, 8, 9]
    assert log.is_whole()


def test_a_damaged_entry_is_waited_for_while_somebody_may_bring_it_and_the_rest_is_read_meanwhile() -> None:
    log = Log()
    log.error = DamageError("entry 4", GROUP, 4)
    log.is_whole()
    log.work()
    assert [damage.index for damage in log.known] == [4]
    assert log.read == [5, 6, 7, 8, 9]
    assert not log.is_whole()
    log.mending = False
    assert log.is_whole()


def test_damage_that_is_no_entrys_ends_the_node() -> None:
    log = Log()
    log.error = DamageError("a page")
    log.is_whole()
    with pytest.raises(DamageError):
        log.work()


@pytest.mark.parametrize("called_off", [True, False])
def test_another_move_or_another_leadership_has_all_of_it_read_again(called_off: bool) -> None:
    log = Log()
    log.is_whole()
    log.work()
    assert log.is_whole()
    if called_off:
        log.check.forget_all_but({GROUP + 1})
    assert not log.is_whole(term=1 if called_off else 2)
    log.work()
    assert log.read == list(range(1, 10)) * 2

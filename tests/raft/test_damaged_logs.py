"""Behaviour of the core when its store has lost entries: only work that needs those entries waits."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from raft_cluster import Cluster, Disk, chained_hash

from quorumlog.raft.errors import UnreadableEntryError
from quorumlog.raft.log import RaftLog
from quorumlog.raft.types import ORIGIN, AppendRequest, AppendResponse, Entry, EntryId, EntryKind

pytestmark = pytest.mark.scenario("20a")


@dataclass
class Store:
    """A durable log, of which some entries are damaged."""

    kept: list[Entry]
    damaged: set[int] = field(default_factory=set)

    def term_at(self, index: int) -> int:
        return self.entries(index, index, 0)[0].term

    def hash_at(self, index: int) -> int:
        if index + 1 in self.damaged:
            raise UnreadableEntryError(index + 1, "damaged")
        return self.kept[index - 1].hash

    def entries(self, first: int, last: int, max_bytes: int) -> list[Entry]:
        if first in self.damaged:
            raise UnreadableEntryError(first, "damaged")
        found = []
        for entry in self.kept[first - 1 : last]:
            if entry.index in self.damaged:
                break
            found.append(entry)
        return found


def entries(count: int, terms: dict[int, int] | None = None, previous: EntryId = ORIGIN) -> list[Entry]:
    """Entries of term 1, or as ``terms`` have them by their index."""
    made = []
    for index in range(previous.index + 1, previous.index + count + 1):
        term, data = (terms or {}).get(index, 1), b"x%d" % index
        entry = Entry(index, term, EntryKind.BATCH, chained_hash(previous.hash, index, term, data), data)
        made.append(entry)
        previous = EntryId(entry.index, entry.term, entry.hash)
    return made


def log_of(store: Store, commit: int, applied: int) -> RaftLog:
    last = store.kept[-1]
    end = EntryId(last.index, last.term, last.hash)
    return RaftLog(store=store, anchor=ORIGIN, last=end, commit=commit, applied=applied)


def test_a_damaged_entry_is_not_delivered_and_nothing_behind_it_until_it_is_mended() -> None:
    store = Store(entries(6), {4})
    log = log_of(store, commit=6, applied=0)
    assert [entry.index for entry in log.deliver(1 << 20)] == [1, 2, 3]
    assert log.has_work
    assert log.deliver(1 << 20) == []
    assert not log.has_work
    store.damaged.clear()
    log.mended()
    assert [entry.index for entry in log.deliver(1 << 20)] == [4, 5, 6]


def test_a_damaged_entry_that_is_the_leaders_stays_with_all_behind_it() -> None:
    store = Store(entries(6), {4})
    log = log_of(store, commit=2, applied=2)
    assert log.merge(2, store.kept[2:5]) == 5
    assert log.last.index == 6


def test_a_damaged_entry_that_is_not_the_leaders_makes_way_for_it() -> None:
    """The entry was never committed and perhaps no other replica has it, so its repair might never come."""
    store = Store(entries(6), {4})
    log = log_of(store, commit=2, applied=2)
    third = store.kept[2]
    leaders = entries(1, {4: 3}, EntryId(third.index, third.term, third.hash))
    assert log.merge(3, leaders) == 4
    assert log.last == EntryId(4, 3, leaders[0].hash)


def test_damaged_neighbours_that_are_the_leaders_stay_with_all_behind_them() -> None:
    """The entries behind them have been acknowledged."""
    store = Store(entries(8), {4, 5})
    log = log_of(store, commit=2, applied=2)
    assert log.merge(2, store.kept[2:6]) == 6
    assert log.last.index == 8
    assert log.take_unhanded() == (None, None, [])


def test_damaged_neighbours_make_way_where_a_later_entry_is_not_the_leaders() -> None:
    store = Store(entries(8, {4: 3, 5: 3, 6: 3, 7: 3, 8: 3}), {4, 5})
    log = log_of(store, commit=2, applied=2)
    third = store.kept[2]
    leaders = entries(4, {4: 2, 5: 2, 6: 2, 7: 2}, EntryId(third.index, third.term, third.hash))
    assert log.merge(3, leaders) == 7
    assert log.last == EntryId(7, 2, leaders[-1].hash)
    assert log.take_unhanded() == (None, 4, leaders), "in one write"


def test_damaged_neighbours_make_way_for_terms_that_this_log_has_not_seen() -> None:
    store = Store(entries(8), {4, 5, 6})
    log = log_of(store, commit=2, applied=2)
    third = store.kept[2]
    leaders = entries(2, {4: 1, 5: 3}, EntryId(third.index, third.term, third.hash))
    assert log.merge(3, leaders) == 5
    assert log.last.index == 5


def test_of_damaged_neighbours_nobody_can_tell_by_themselves() -> None:
    """They may be the leader's, and what is behind them acknowledged."""
    store = Store(entries(8), {4, 5, 6})
    log = log_of(store, commit=2, applied=2)
    with pytest.raises(UnreadableEntryError):
        log.merge(2, store.kept[2:5])
    assert log.last.index == 8


def test_a_log_is_compacted_to_a_damaged_entry_and_to_no_other() -> None:
    store = Store(entries(6), {4})
    log = log_of(store, commit=6, applied=6)
    fourth = store.kept[3]
    with pytest.raises(Exception, match="of another term"):
        log.compact(EntryId(4, 1, fourth.hash ^ 1))
    log.compact(EntryId(4, fourth.term, fourth.hash))
    assert log.anchor.index == 4


def test_a_log_is_compacted_to_an_entry_of_which_nobody_can_tell_any_more() -> None:
    """It and the next one are damaged. What takes their place was read while they were whole, and is on the disk."""
    store = Store(entries(6), {4, 5})
    log = log_of(store, commit=6, applied=6)
    log.compact(EntryId(4, store.kept[3].term, store.kept[3].hash))
    assert log.anchor.index == 4


class _DamagedDisk(Disk):
    """A disk that has lost the bytes of everything that a replica would have to apply again."""

    def entries(self, first: int, last: int, max_bytes: int) -> list[Entry]:
        raise UnreadableEntryError(first, "damaged")


def test_a_replica_that_cannot_read_what_is_committed_does_not_campaign() -> None:
    """The entry it cannot read may change the members whose votes it would count."""
    cluster = Cluster((1, 2, 3))
    cluster.elect(1)
    cluster.propose(1, b"a")
    cluster.settle()
    raft = cluster.core(2)
    raft.log.trim(0)
    raft.log.applied_index -= 1
    disk = raft.log._store
    raft.log._store = _DamagedDisk.__new__(_DamagedDisk)
    raft.log._store.__dict__.update(vars(disk))
    raft.campaign(10**9)
    assert not raft.outbox.now and not raft.outbox.after_durable
    assert raft.role.value == "follower"


def test_a_follower_says_how_far_it_is_though_its_last_committed_entry_is_damaged() -> None:
    """A leader that has compacted the entry would otherwise never learn that it must send its snapshot."""
    cluster = Cluster((1, 2, 3))
    cluster.elect(1)
    cluster.settle()
    raft = cluster.core(2)
    committed, term = raft.log.last, raft.term
    (more,) = entries(1, {committed.index + 1: term}, committed)
    raft.step(0, AppendRequest(1, 2, term, committed.index, committed.term, committed.index, [more]))
    raft.log._entries.clear()
    raft.log._offset = more.index + 1
    raft.log._store = Store([more], set(range(1, more.index + 1)))
    raft.outbox.take(writes=True)
    raft.step(0, AppendRequest(1, 2, term, more.index + 5, term, committed.index, []))
    now, when_durable, _ = raft.outbox.take(writes=False)
    (answer,) = (each for each in (*now, *when_durable) if isinstance(each, AppendResponse))
    assert (answer.rejected, answer.hint_index, answer.hint_term) == (True, committed.index, term)

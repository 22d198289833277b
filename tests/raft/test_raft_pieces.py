"""The core's pieces alone: quorum arithmetic, the log, progress, the outbox, elections' timer."""

from __future__ import annotations

import itertools
import random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from raft_cluster import Disk, Sealer, check_chain

from quorumlog.raft.election import ElectionTimer, Turn, claim, is_up_to_date, turn_of
from quorumlog.raft.errors import CompactedError, InvariantViolationError
from quorumlog.raft.log import RaftLog
from quorumlog.raft.options import RaftOptions
from quorumlog.raft.outbox import Outbox
from quorumlog.raft.progress import Inflights, Progress, ProgressState
from quorumlog.raft.quorum import VoteOutcome, outcome, reached_by_quorum
from quorumlog.raft.types import (
    NO_NODE,
    ORIGIN,
    Configuration,
    DurableToken,
    Entry,
    EntryId,
    EntryKind,
    Message,
    Ready,
    Snapshot,
    SnapshotData,
)

#: A busy machine is not a failure.
at_leisure = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])

half = st.lists(st.integers(1, 7), min_size=1, max_size=5, unique=True).map(tuple)
halves_of_voters = st.one_of(st.tuples(half), st.tuples(half, half))


def majorities(voters: tuple[int, ...]) -> list[set[int]]:
    least = len(voters) // 2 + 1
    return [set(c) for size in range(least, len(voters) + 1) for c in itertools.combinations(voters, size)]


# -- quorum -------------------------------------------------------------------------------------------------------


@at_leisure
@given(halves_of_voters, st.lists(st.integers(0, 9), min_size=8, max_size=8))
def test_a_quorum_has_reached_what_some_majority_of_every_half_has_reached(
    halves: tuple[tuple[int, ...], ...], values: list[int]
) -> None:
    brute = min(max(min(values[v] for v in majority) for majority in majorities(voters)) for voters in halves)
    assert reached_by_quorum(halves, values.__getitem__) == brute


@at_leisure
@given(
    halves_of_voters,
    st.dictionaries(st.integers(1, 9), st.booleans(), max_size=9),
    st.sets(st.integers(1, 9), max_size=4),
)
def test_a_vote_is_decided_as_soon_as_no_further_answer_can_change_it(
    halves: tuple[tuple[int, ...], ...], votes: dict[int, bool], absent: set[int]
) -> None:
    def won(yes: set[int]) -> bool:
        return all(any(majority <= yes for majority in majorities(voters)) for voters in halves)

    yes = {voter for voter, granted in votes.items() if granted}
    open_voters = {v for voters in halves for v in voters if v not in votes and v not in absent}
    expected = VoteOutcome.WON if won(yes) else VoteOutcome.PENDING if won(yes | open_voters) else VoteOutcome.LOST
    assert outcome(halves, votes, absent) is expected


def test_absent_voters_who_answered_all_the_same_count() -> None:
    assert outcome(((1, 2, 3),), {1: True, 2: True}, {2, 3}) is VoteOutcome.WON


# -- log ----------------------------------------------------------------------------------------------------------

SEALER = Sealer()


def chain(terms: list[int], after: EntryId = ORIGIN) -> list[Entry]:
    """Entries of those terms, chained, after ``after``."""
    entries, previous = [], after
    for term in terms:
        index = previous.index + 1
        entry = SEALER.entry(EntryKind.COMMAND, index, term, previous.hash, b"%d.%d" % (index, term))
        entries.append(entry)
        previous = EntryId(entry.index, entry.term, entry.hash)
    return entries


def id_of(entry: Entry) -> EntryId:
    return EntryId(entry.index, entry.term, entry.hash)


def fresh_log(disk: Disk | None = None, commit: int = 0, applied: int | None = None) -> RaftLog:
    disk = disk or Disk(Configuration((1,)))
    return RaftLog(
        store=disk,
        anchor=disk.anchor,
        last=disk.last,
        commit=commit,
        applied=disk.anchor.index if applied is None else applied,
        check_chain=check_chain,
    )


def write(log: RaftLog, disk: Disk) -> DurableToken:
    """Hands everything out and syncs it; the completion is not delivered yet."""
    snapshot, truncate_from, entries = log.take_unhanded()
    hard_state = None
    if snapshot is not None:
        disk.snapshot, disk.anchor, disk.log = snapshot, snapshot.last, []
    disk.sync(Ready([], hard_state, truncate_from, entries, None, [], None, []))
    return DurableToken(log.last, log.generation, 1, NO_NODE)


sorted_terms = st.lists(st.integers(1, 4), min_size=1, max_size=12).map(sorted)


@at_leisure
@given(sorted_terms, st.integers(0, 12), st.integers(0, 12), st.data())
def test_slices_are_the_same_from_memory_and_from_disk(
    terms: list[int], synced: int, trimmed: int, data: st.DataObject
) -> None:
    entries = chain(terms)
    disk = Disk(Configuration((1,)))
    log = fresh_log(disk)
    synced = min(synced, len(entries))
    if synced:
        log.append(entries[:synced])
        log.mark_durable(write(log, disk))
        log.commit_to(min(synced, trimmed))
        log.deliver(1 << 20)
    if synced < len(entries):
        log.append(entries[synced:])
    log.trim(trimmed)
    first = data.draw(st.integers(1, len(entries)))
    last = data.draw(st.integers(first, len(entries)))
    limit = data.draw(st.integers(0, 40))
    found = log.slice(first, last, limit)
    assert found == entries[first - 1 : first - 1 + len(found)]
    assert found
    assert found[-1].index <= last
    size = sum(len(e.data) for e in found)
    assert size <= limit or len(found) == 1
    following = entries[found[-1].index : found[-1].index + 1]
    # Nothing that had room was left out, but for the seam between disk and memory.
    assert found[-1].index == last or size + len(following[0].data) > limit or found[-1].index == log.durable_index
    assert [log.term_at(i) for i in range(1, len(entries) + 1)] == terms
    assert all(log.id_at(entry.index) == id_of(entry) for entry in entries)


@at_leisure
@given(sorted_terms, st.integers(0, 14), st.integers(0, 5), st.integers(0, 13))
def test_the_last_entry_of_at_most_a_term_is_found_by_halving(terms: list[int], high: int, term: int, low: int) -> None:
    log = fresh_log()
    log.append(chain(terms))
    held = [(0, 0), *enumerate(terms, 1)]
    expected = max((i for i, t in held if low <= i <= high and t <= term), default=low - 1)
    assert log.last_at_most(high, term, low) == expected


@at_leisure
@given(sorted_terms, sorted_terms, st.integers(0, 12), st.booleans(), st.booleans())
def test_merging_a_leaders_entries_replaces_conflicts_and_nothing_else(
    ours: list[int], theirs: list[int], upto: int, sync_first: bool, sync_then: bool
) -> None:
    shared = 0
    while shared < min(len(ours), len(theirs)) and ours[shared] == theirs[shared]:
        shared += 1
    leader = chain(theirs)
    disk = Disk(Configuration((1,)))
    log = fresh_log(disk)
    log.append(chain(ours))
    early = write(log, disk) if sync_first else None
    if early is not None and sync_then:
        log.mark_durable(early)
    sent = leader[:upto]
    durable = log.durable_index
    assert log.merge(0, sent) == len(sent)
    conflict = len(sent) > shared and len(ours) > shared
    expected = sent if conflict or len(sent) > len(ours) else chain(ours)
    assert log.slice(1, log.last.index, 1 << 20) == expected
    if conflict:
        assert log.durable_index == min(durable, shared)
        # The completion of the write before the truncation does not cover the entries written since.
        assert early is None or not log.mark_durable(early)
        assert log.durable_index == min(durable, shared)
    assert log.mark_durable(write(log, disk)) or log.durable_index == log.last.index
    assert disk.log == expected
    assert log.durable_index == len(expected)


def test_of_two_truncations_before_one_write_the_lower_one_is_written() -> None:
    disk = Disk(Configuration((1,)))
    log = fresh_log(disk)
    log.append(chain([1, 1, 1]))
    log.mark_durable(write(log, disk))
    log.merge(0, chain([1, 1, 2]))
    log.merge(0, chain([1, 3]))
    write(log, disk)
    assert disk.log == chain([1, 3])


def test_a_committed_entry_is_never_replaced() -> None:
    log = fresh_log()
    log.append(chain([1, 1, 1]))
    log.commit_to(2)
    with pytest.raises(InvariantViolationError, match="is committed"):
        log.merge(0, chain([1, 2]))


def test_a_leader_that_counts_on_more_than_is_here_means_lost_data() -> None:
    log = fresh_log()
    log.append(chain([1]))
    with pytest.raises(InvariantViolationError, match="lost from this disk"):
        log.commit_to(2)


def test_a_broken_chain_is_not_appended() -> None:
    log = fresh_log()
    log.append(chain([1]))
    stranger = SEALER.entry(EntryKind.COMMAND, 2, 1, 12345, b"x")
    with pytest.raises(AssertionError):
        log.append([stranger])
    assert log.last.index == 1


def test_damaged_entries_replace_nothing() -> None:
    log = fresh_log()
    mine = chain([1, 1])
    log.append(mine)
    with pytest.raises(AssertionError):
        log.merge(1, [SEALER.entry(EntryKind.COMMAND, 2, 2, 12345, b"x")])
    assert log.slice(1, 2, 100) == mine


def test_an_installed_snapshot_replaces_the_log_and_waits_for_its_write() -> None:
    disk = Disk(Configuration((1,)))
    log = fresh_log(disk)
    log.append(chain([1, 1]))
    log.mark_durable(write(log, disk))
    snapshot = Snapshot(EntryId(9, 3, 77), Configuration((1,)), SnapshotData(1, 1, 5, 7))
    log.install(snapshot)
    assert (log.commit_index, log.applied_index, log.last, log.first_index) == (9, 9, snapshot.last, 10)
    assert log.has_pending_snapshot
    log.append(chain([3], snapshot.last))
    with pytest.raises(CompactedError):
        log.slice(9, 10, 100)
    log.mark_durable(write(log, disk))
    assert not log.has_pending_snapshot
    assert (disk.anchor, disk.last.index, log.durable_index) == (snapshot.last, 10, 10)
    with pytest.raises(InvariantViolationError, match="older than"):
        log.install(Snapshot(EntryId(9, 3, 77), Configuration((1,)), SnapshotData(1, 0, 0, 0)))


def test_compaction_waits_for_application_and_keeps_the_rest() -> None:
    disk = Disk(Configuration((1,)))
    log = fresh_log(disk)
    entries = chain([1, 1, 2, 2])
    log.append(entries)
    with pytest.raises(InvariantViolationError, match="still needed"):
        log.compact(id_of(entries[0]))
    log.mark_durable(write(log, disk))
    log.commit_to(3)
    log.deliver(1 << 20)
    log.compact(id_of(entries[2]))
    assert log.first_index == 4
    assert log.term_at(3) == 2
    assert log.slice(4, 4, 10) == entries[3:]
    with pytest.raises(CompactedError):
        log.term_at(2)
    log.compact(id_of(entries[1]))
    assert log.first_index == 4


def test_memory_keeps_what_is_not_durable_and_at_most_the_cache_besides() -> None:
    disk = Disk(Configuration((1,)))
    log = fresh_log(disk)
    log.append(chain([1] * 6))
    log.trim(0)
    assert log.memory_bytes == sum(len(e.data) for e in chain([1] * 6))
    log.mark_durable(write(log, disk))
    log.commit_to(6)
    log.deliver(1 << 20)
    log.trim(7)
    assert log.memory_bytes == 6
    assert log.slice(1, 6, 1 << 20) == chain([1] * 6)
    log.trim(0)
    assert log.memory_bytes == 0


# -- progress -----------------------------------------------------------------------------------------------------


@at_leisure
@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("send"), st.integers(1, 3)),
            st.tuples(st.just("ack"), st.integers(0, 20)),
            st.tuples(st.just("refuse"), st.integers(0, 20)),
            st.tuples(st.sampled_from(("probe", "heartbeat", "snapshot", "delivered", "failed")), st.just(0)),
        ),
        max_size=40,
    )
)
def test_progress_never_forgets_an_acknowledgement_nor_leaks_the_window(actions: list[tuple[str, int]]) -> None:
    progress = Progress(1, 0, Inflights(3, 100))
    sent = 0
    for action, number in actions:
        match = progress.match_index
        if action == "send" and progress.state is ProgressState.REPLICATE and not progress.inflights.full:
            progress.next_index += number
            progress.inflights.add(progress.next_index - 1, 10 * number)
            sent = max(sent, progress.next_index - 1)
        elif action == "ack":
            if progress.acknowledge(min(number, sent)) and progress.state is ProgressState.PROBE:
                progress.replicate()
        elif action == "refuse":
            changed = progress.refuse(number, number // 2)
            assert not changed or progress.state is ProgressState.PROBE
        elif action == "probe":
            progress.probe()
            sent = max(sent, progress.next_index)
        elif action == "heartbeat":
            progress.answered_heartbeat(number)
            assert not progress.paused
        elif action == "snapshot":
            progress.await_snapshot(progress.match_index + 2)
        elif action in ("delivered", "failed") and progress.state is ProgressState.SNAPSHOT:
            progress.probe_after_snapshot(action == "delivered")
            assert progress.paused
        assert progress.match_index >= match
        assert progress.next_index > progress.match_index
        assert progress.inflights.bytes == sum(progress.inflights._sizes) <= 100 + 30
        assert len(progress.inflights) <= 3
        if progress.state is not ProgressState.REPLICATE:
            assert progress.inflights.bytes == 0


def test_the_window_is_bounded_in_messages_and_in_bytes() -> None:
    window = Inflights(2, 100)
    window.add(1, 99)
    assert not window.full
    window.add(2, 1)
    assert window.full
    window.free_to(1)
    assert (len(window), window.bytes) == (1, 1)
    window.add(3, 99)
    window.free_to(3)
    assert (len(window), window.bytes) == (0, 0)
    window.add(4, 500)
    assert window.full


def test_a_follower_in_snapshot_ignores_delayed_refusals() -> None:
    progress = Progress(5, 0, Inflights(2, 100))
    progress.await_snapshot(9)
    assert not progress.refuse(4, 2)
    assert progress.state is ProgressState.SNAPSHOT


# -- outbox -------------------------------------------------------------------------------------------------------


def test_an_acknowledgement_waits_for_the_write_that_is_under_way() -> None:
    outbox, first, second, third = Outbox(), Message(1, 2, 1), Message(1, 2, 2), Message(1, 2, 3)
    outbox.after_durable.append(first)
    assert outbox.take(writes=True) == ([], [first], 1)
    outbox.after_durable.append(second)
    assert outbox.take(writes=False) == ([], [], 1)
    assert outbox.take(writes=True) == ([], [], 2)
    outbox.after_durable.append(third)
    assert outbox.take(writes=False) == ([], [], 2)
    outbox.durable(1)
    assert outbox.take(writes=False) == ([second], [], 2)
    outbox.durable(2)
    assert outbox.settled
    assert outbox.take(writes=False) == ([third], [], 2)


def test_what_was_handed_out_never_grows() -> None:
    outbox = Outbox()
    now, after, _ = outbox.take(writes=True)
    outbox.now.append(Message(1, 2, 1))
    outbox.after_durable.append(Message(1, 2, 1))
    assert (now, after) == ([], [])


def test_without_a_write_under_way_nothing_waits() -> None:
    outbox, message = Outbox(), Message(1, 2, 1)
    outbox.after_durable.append(message)
    assert outbox.take(writes=False) == ([message], [], 0)


# -- elections ----------------------------------------------------------------------------------------------------


def test_a_lease_lasts_for_an_election_timeout_and_no_longer_than_the_connection() -> None:
    only = Turn(0, 1)
    timer = ElectionTimer(RaftOptions(), random.Random(1), 0, only)
    assert not timer.lease_holds(0)
    timer.heard_leader(1000)
    assert timer.lease_holds(600_999)
    assert not timer.lease_holds(601_000)
    assert 601_000 <= timer.deadline < 1_201_000
    timer.leader_lost(2000, only)
    assert not timer.lease_holds(2000)
    assert 22_000 <= timer.deadline < 122_000
    timer.retry_soon(3000, only)
    assert timer.deadline < 123_000
    # The last words of the dead, overtaken by the news of its death.
    timer.heard_leader(4000)
    assert not timer.lease_holds(4000)
    assert timer.deadline < 123_000
    timer.heard_leader(22_000)
    assert timer.lease_holds(22_000)
    timer.retry_soon(23_000, only)
    assert timer.deadline >= 623_000


@pytest.mark.parametrize(
    ("node", "gone", "expected"),
    [
        (7, set(), Turn(0, 3)),
        (2, set(), Turn(2, 3)),
        (5, {7}, Turn(0, 2)),
        (2, {7, 5}, Turn(0, 1)),
        (7, {7}, Turn(0, 3)),
        (9, {5}, Turn(2, 3)),
    ],
    ids=["preferred", "last", "next of kin", "alone", "gone itself", "no voter"],
)
def test_a_voters_turn_is_its_place_among_those_that_may_lead_next(node: int, gone: set[int], expected: Turn) -> None:
    assert turn_of(node, (7, 5, 2), gone) == expected


def test_whatever_the_turn_waits_keep_their_bounds_and_short_ones_their_order() -> None:
    low, high = RaftOptions().peer_lost_delay_us
    latest = 0
    for turn in (Turn(place, 4) for place in range(4)):
        waits = []
        for seed in range(50):
            timer = ElectionTimer(RaftOptions(), random.Random(seed), 0, turn)
            assert 600_000 <= timer.deadline < 1_200_000
            timer.leader_lost(0, turn)
            waits.append(timer.deadline)
        assert max(low, latest) <= min(waits) <= max(waits) < high
        latest = max(waits)


def test_a_pre_vote_given_away_puts_the_own_campaign_off_once() -> None:
    timer = ElectionTimer(RaftOptions(), random.Random(1), 0, Turn(0, 1))
    timer.leader_lost(0, Turn(0, 1))
    timer.pre_vote_granted(10_000)
    assert timer.deadline == 130_000
    timer.pre_vote_granted(20_000)
    assert timer.deadline == 130_000


def test_of_rivals_the_longer_log_counts_before_the_order_of_preference() -> None:
    voters = (7, 5, 2)
    assert claim(2, 4, 3, voters) > claim(7, 9, 2, voters)
    assert claim(2, 5, 3, voters) > claim(7, 4, 3, voters)
    assert claim(7, 4, 3, voters) > claim(5, 4, 3, voters) > claim(9, 4, 3, voters)


@pytest.mark.parametrize(
    ("last_index", "last_term", "expected"), [(5, 2, True), (6, 2, True), (4, 2, False), (1, 3, True), (9, 1, False)]
)
def test_a_log_is_up_to_date_by_term_then_by_index(last_index: int, last_term: int, expected: bool) -> None:
    assert is_up_to_date(last_index, last_term, EntryId(5, 2, 0)) is expected


def test_options_that_cannot_work_are_refused() -> None:
    with pytest.raises(ValueError, match="two heartbeat intervals"):
        RaftOptions(election_timeout_us=100_000)
    with pytest.raises(ValueError, match="least, most"):
        RaftOptions(peer_lost_delay_us=(2, 1))
    with pytest.raises(ValueError, match="positive"):
        RaftOptions(max_append_bytes=0)

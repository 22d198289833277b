"""A transaction coordinator's log: applying puts values in place, in order, and stops at what must never be."""

from __future__ import annotations

import random

import pytest
from transaction_rig import AUDIT, GROUP, INVOICES, NAME, ORDERS, TransactionRig

from quorumlog.raft.types import EntryId
from quorumlog.server.deciding.transaction_participants import Identity
from quorumlog.server.transactions.transaction_table import TransactionTable
from quorumlog.v1.transaction_log_pb2 import TransactionChange, TransactionCommand


def busy() -> TransactionRig:
    """Returns a coordinator whose id has an open transaction with two writers, and an unanswered decision."""
    rig = TransactionRig()
    driver = rig.identity(work=3)
    writer = rig.writer(driver)
    rig.enlist(writer, ORDERS)
    rig.enlist(driver, GROUP)
    driver = rig.ended(driver, writers=[writer.producer_id])
    rig.writer(driver)
    rig.enlist(driver, INVOICES)
    rig.init(name="other")
    return rig


def test_snapshot_holds_everything() -> None:
    rig = busy()
    data = rig.table.to_snapshot(rig.index)
    restored, index = TransactionTable.from_snapshot(data)
    assert index == rig.index
    assert restored.records == rig.table.records
    assert restored.by_producer == rig.table.by_producer
    assert (restored.size_bytes, restored.metadata_index) == (rig.table.size_bytes, 5)
    assert restored.to_snapshot(index) == data


def test_replicas_are_equal() -> None:
    """The same log makes the same bytes, also from a snapshot in the middle."""
    rig = busy()
    middle = len(rig.commands) // 2
    other = TransactionTable()
    for number, command in enumerate(rig.commands):
        if number == middle:
            other = TransactionTable.from_snapshot(other.to_snapshot(number))[0]
        other.apply(command, EntryId(11 + number, 3, 0))
    assert other.to_snapshot(rig.index) == rig.table.to_snapshot(rig.index)


def _change(rig: TransactionRig) -> TransactionChange:
    version = rig.record.version
    return TransactionChange(transactional_id=NAME, base_version=version, version=version + 1)


def _apply(rig: TransactionRig, *changes: TransactionChange) -> None:
    rig.table.apply(TransactionCommand(changes=changes), EntryId(rig.index + 1, rig.term, 0))


def test_versions_follow_each_other() -> None:
    rig = busy()
    with pytest.raises(AssertionError, match="based on version"):
        rig.table.apply(rig.commands[0], EntryId(99, 3, 0))
    skipped = _change(rig)
    skipped.version += 1
    with pytest.raises(AssertionError, match="skips versions"):
        _apply(rig, skipped)
    with pytest.raises(AssertionError, match="twice"):
        _apply(rig, _change(rig), _change(rig))


def test_log_must_not_contradict_itself() -> None:
    starts = _change(busy())
    starts.start.SetInParent()
    raised = _change(busy())
    raised.decision.next.producer_id, raised.decision.next.producer_epoch = 1, 3
    stranger = _change(busy())
    stranger.decision.commit, stranger.decision.next.producer_id = True, 1
    stranger.decision.next.producer_epoch = 2
    stranger.decision.committed_writers.append(99)
    ended = _change(busy())
    ended.ended.add(term=1, index=1)
    gone = _change(busy())
    gone.version = 0
    theirs = _change(busy())
    theirs.producer.identity.producer_id = 4
    for change, problem in (
        (starts, "while another is open"), (raised, "raises the epoch from 1 to 3"), (stranger, "does not have"),
        (ended, "does not have"), (gone, "in use"), (theirs, "same producer id"),
    ):  # fmt: skip
        with pytest.raises(AssertionError, match=problem):
            _apply(busy(), change)


def test_work_is_not_committed_twice() -> None:
    rig = TransactionRig()
    driver = rig.identity(work=3)
    rig.writer(driver)
    rig.ended(driver)
    again = _change(rig)
    again.producer.identity.producer_id, again.producer.identity.producer_epoch, again.producer.work = 1, 1, 3
    again.producer.timeout_ms = 1
    _apply(rig, again)
    commit = _change(rig)
    commit.decision.commit, commit.decision.next.producer_id, commit.decision.next.producer_epoch = True, 1, 2
    with pytest.raises(AssertionError, match="committed twice"):
        _apply(rig, commit)


def test_sizes_and_indexes_are_those_of_the_records() -> None:
    """Whatever happens in which order, the sums that are kept are those of what there is."""
    for seed in range(30):
        rng, rig = random.Random(seed), TransactionRig()
        newest: dict[str, Identity] = {}
        for _ in range(60):
            who = newest.get(NAME)
            action = rng.randrange(6)
            if who is None or action == 0:
                newest[NAME] = rig.identity(had=rng.choice((None, who)))
            elif action == 1:
                rig.join(who)
            elif action == 2:
                rig.enlist(who, rng.choice((ORDERS, INVOICES, AUDIT, GROUP)))
            elif action == 3:
                answer = rig.end(who, commit=rng.random() < 0.5)
                if not answer.HasField("error"):
                    newest[NAME] = Identity(answer.identity.producer_id, answer.identity.producer_epoch)
            elif action == 4:
                rig.all_answered()
            elif rig.record.open is not None:
                rig.expire()
                newest[NAME] = rig.record.producer.identity
        restored = TransactionTable.from_snapshot(rig.table.to_snapshot(rig.index))[0]
        assert restored.size_bytes == rig.table.size_bytes
        assert restored.by_producer == rig.table.by_producer
        assert restored.records == rig.table.records

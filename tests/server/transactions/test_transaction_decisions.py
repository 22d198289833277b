"""Decisions of a transaction coordinator: identities, participants, ends, timeouts and what became of a transaction."""

from __future__ import annotations

import dataclasses

import pytest
from transaction_rig import AUDIT, GROUP, INVOICES, NAME, ORDERS, TOPIC, TransactionRig

from quorumlog.server.config.transaction_limits import TransactionLimits
from quorumlog.server.deciding.transaction_participants import Identity, Participant
from quorumlog.server.transactions.transaction_decisions import expire_id
from quorumlog.server.transactions.transaction_record import FENCING_EPOCH, MAX_EPOCH
from quorumlog.v1.errors_pb2 import ErrorCode
from quorumlog.v1.peer_pb2 import (
    TRANSACTION_STANDING_DECIDED,
    TRANSACTION_STANDING_OPEN,
    TRANSACTION_STANDING_UNKNOWN,
)
from quorumlog.v1.transaction_log_pb2 import TransactionCommand
from quorumlog.v1.transactions_pb2 import TRANSACTION_CAUSE_OPERATOR
from quorumlog.wire.kafka.control import LogPlace


@pytest.fixture
def rig() -> TransactionRig:
    return TransactionRig()


# -- identities -----------------------------------------------------------------------------------------------------


def test_new_id_has_epoch_0(rig: TransactionRig) -> None:
    assert rig.identity() == Identity(1, 0)
    assert rig.record.producer.timeout_ms == 60_000


def test_new_instance_has_the_next_epoch(rig: TransactionRig) -> None:
    rig.identity()
    assert rig.identity() == Identity(1, 1)


def test_one_identity_per_entry(rig: TransactionRig) -> None:
    """The next instance waits for the entry that assigns the identity of the one before it."""
    assert not rig.init(keep=True).HasField("error")
    assert rig.init(keep=True).error.code == ErrorCode.CONCURRENT_TRANSACTIONS
    assert rig.init().error.code == ErrorCode.CONCURRENT_TRANSACTIONS
    assert rig.identity() == Identity(1, 1)


def test_timeout_must_be_allowed(rig: TransactionRig) -> None:
    for wrong in (0, rig.limits.max_timeout_ms + 1):
        assert rig.init(timeout_ms=wrong).error.code == ErrorCode.INVALID_TRANSACTION_TIMEOUT
    assert rig.init(timeout_ms=rig.limits.max_timeout_ms).identity.producer_id == 1


def test_new_instance_aborts_with_one_epoch(rig: TransactionRig) -> None:
    """The decision and the new instance share the raise of the epoch. Kafka raises it twice."""
    a = rig.identity()
    rig.enlist(a, ORDERS)
    b = rig.identity()
    assert b == Identity(1, 1)
    decision = rig.record.newest
    assert decision is not None and not decision.commit and decision.following == b
    assert rig.record.open is None


def test_fenced_instance_gets_no_new_identity(rig: TransactionRig) -> None:
    """KIP-360: an instance repeats with the identity that it has had, and never receives that of another instance."""
    a = rig.identity()
    rig.enlist(a, ORDERS)
    b = rig.identity()
    assert rig.init(had=a).error.code == ErrorCode.INVALID_PRODUCER_EPOCH
    assert rig.end(a, commit=False).error.code == ErrorCode.INVALID_PRODUCER_EPOCH
    assert rig.enlist(a, ORDERS).error.code == ErrorCode.INVALID_PRODUCER_EPOCH
    assert rig.record.producer.identity == b


def test_lost_answer_is_repeated(rig: TransactionRig) -> None:
    a = rig.identity()
    first = rig.identity(had=a)
    commands = len(rig.commands)
    assert rig.identity(had=a) == first == Identity(1, 1)
    assert len(rig.commands) == commands


def test_other_identity_is_refused(rig: TransactionRig) -> None:
    rig.identity()
    assert rig.init(had=Identity(77, 0)).error.code == ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert rig.init(had=Identity(1, 5)).error.code == ErrorCode.INVALID_PRODUCER_EPOCH
    assert rig.add(Identity(77, 0), ORDERS).error.code == ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert rig.end(Identity(77, 0)).error.code == ErrorCode.INVALID_PRODUCER_ID_MAPPING


def test_unknown_id_has_no_producer() -> None:
    rig = TransactionRig()
    for answer in (rig.enlist(Identity(1, 0), ORDERS), rig.end(Identity(1, 0)), rig.add(Identity(1, 0), ORDERS),
                   rig.join(Identity(1, 0))):  # fmt: skip
        assert answer.error.code == ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert not rig.commands


def test_producer_id_may_be_missing(rig: TransactionRig) -> None:
    rig.ids.left = 0
    refused = rig.init().error
    assert (refused.code, refused.retriable, refused.definite) == (ErrorCode.COORDINATOR_NOT_AVAILABLE, True, True)


def _at_the_last_epoch(rig: TransactionRig) -> Identity:
    rig.identity()
    rig.record.producer = dataclasses.replace(rig.record.producer, identity=Identity(1, MAX_EPOCH))
    rig.new_draft()
    return Identity(1, MAX_EPOCH)


def test_last_epoch_is_followed_by_a_new_id(rig: TransactionRig) -> None:
    """KAFKA-18660: the end of the last epoch assigns a new producer id, and a repeated request is answered."""
    last = _at_the_last_epoch(rig)
    rig.enlist(last, ORDERS)
    following = rig.ended(last)
    assert following == Identity(2, 0)
    assert rig.ended(last) == following
    assert rig.record.newest is not None and rig.record.newest.next_epoch(1) == FENCING_EPOCH
    assert rig.enlist(last, ORDERS).error.code == ErrorCode.INVALID_PRODUCER_EPOCH
    assert not rig.enlist(following, ORDERS).HasField("error"), "the former producer id does not delay the new one"


def test_last_epoch_waits_for_a_producer_id(rig: TransactionRig) -> None:
    last = _at_the_last_epoch(rig)
    rig.enlist(last, ORDERS)
    rig.ids.left = 0
    assert not rig.expire()
    assert rig.end(last).error.code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert rig.init().error.code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    rig.ids.left = 1
    assert rig.ended(last) == Identity(2, 0)


# -- participants ---------------------------------------------------------------------------------------------------


def test_place_is_where_the_transaction_began(rig: TransactionRig) -> None:
    a = rig.identity()
    assert not rig.enlist(a, ORDERS).HasField("place"), "it is that of the entry"
    origin = rig.place
    assert rig.record.open is not None and rig.record.open.place == origin
    other = rig.enlist(a, INVOICES)
    assert LogPlace(other.place.term, other.place.index) == origin
    commands = len(rig.commands)
    assert rig.enlist(a, ORDERS).place == other.place
    assert len(rig.commands) == commands, "it was enlisted before"


def test_two_in_one_entry_share_the_transaction(rig: TransactionRig) -> None:
    a = rig.identity()
    rig.enlist(a, ORDERS, keep=True)
    rig.enlist(a, INVOICES)
    assert rig.record.open is not None
    assert rig.record.open.writers[1].participants == {ORDERS, INVOICES}


def test_nothing_begins_in_the_entry_of_a_decision(rig: TransactionRig) -> None:
    """A transaction with the place of the decision on the former one would be fenced by it."""
    a = rig.identity()
    rig.enlist(a, ORDERS)
    following = rig.end(a, keep=True).identity
    again = Identity(following.producer_id, following.producer_epoch)
    assert rig.enlist(again, INVOICES, keep=True).error.code == ErrorCode.CONCURRENT_TRANSACTIONS
    assert rig.add(again, INVOICES, keep=True).error.code == ErrorCode.CONCURRENT_TRANSACTIONS
    assert rig.join(again, keep=True).error.code == ErrorCode.CONCURRENT_TRANSACTIONS
    assert rig.init(keep=True).error.code == ErrorCode.CONCURRENT_TRANSACTIONS
    rig.apply()
    assert rig.record.open is None
    assert not rig.enlist(again, INVOICES).HasField("error")


def test_next_transaction_waits_for_the_marker(rig: TransactionRig) -> None:
    """In a participant that has not answered the decision, an old client's batch would join the former transaction."""
    a = rig.identity()
    rig.enlist(a, ORDERS)
    origin = rig.place
    rig.ended(a, raises=False)
    refused = rig.enlist(a, ORDERS)
    assert refused.error.code == ErrorCode.CONCURRENT_TRANSACTIONS
    assert (refused.due.commit, refused.due.next_epoch) == (True, 0)
    assert LogPlace(refused.due.origin.term, refused.due.origin.index) == origin
    assert LogPlace(refused.due.decided.term, refused.due.decided.index) == rig.place
    assert rig.add(a, INVOICES, ORDERS).error.code == ErrorCode.CONCURRENT_TRANSACTIONS
    assert not rig.add(a, INVOICES).HasField("error"), "another partition does not wait"
    rig.surroundings.answered.add((1, ORDERS))
    assert not rig.enlist(a, ORDERS).HasField("error")


def test_old_client_adds_before_it_writes(rig: TransactionRig) -> None:
    """A late batch of an old client, which keeps its epoch, must not start a transaction (KIP-890)."""
    a = rig.identity()
    assert rig.enlist(a, ORDERS, only_confirm=True).error.code == ErrorCode.INVALID_TXN_STATE
    rig.add(a, ORDERS, GROUP)
    assert rig.record.open is not None and rig.record.open.explicit
    assert rig.enlist(a, ORDERS, only_confirm=True).HasField("place")
    rig.ended(a, raises=False)
    assert rig.enlist(a, ORDERS, only_confirm=True).error.code == ErrorCode.INVALID_TXN_STATE
    assert rig.record.open is None


def test_unknown_partition_is_not_enlisted(rig: TransactionRig) -> None:
    """A participant that the coordinator's metadata do not contain would count as deleted, and get no marker."""
    a = rig.identity()
    refused = rig.enlist(a, Participant(TOPIC, 9)).error
    assert refused.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert rig.add(a, ORDERS, Participant(b"x" * 16, 0)).error.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert rig.record.open is None, "all are added, or none"


def test_transactions_have_limits() -> None:
    rig = TransactionRig(TransactionLimits(ids=1, participants=2, writers=2))
    a = rig.identity()
    assert rig.init(name="other").error.code == ErrorCode.PRODUCER_LIMIT_EXCEEDED
    rig.add(a, ORDERS, INVOICES)
    assert rig.enlist(a, AUDIT).error.code == ErrorCode.TRANSACTION_ABORTABLE
    rig.writer(a)
    assert rig.join(a).error.code == ErrorCode.PRODUCER_LIMIT_EXCEEDED
    a = rig.ended(a)
    assert rig.enlist(a, AUDIT).error.code == ErrorCode.TRANSACTION_ABORTABLE, "the former ones have not answered"
    rig.all_answered()
    assert not rig.enlist(a, AUDIT).HasField("error")


def test_coordinator_has_a_size() -> None:
    rig = TransactionRig(TransactionLimits(coordinator_bytes=1_500))
    a = rig.identity()
    rig.enlist(a, ORDERS)
    for number in range(20):
        if rig.init(name=f"other-{number}").error.code == ErrorCode.PRODUCER_LIMIT_EXCEEDED:
            break
    else:
        raise AssertionError("the coordinator takes as much as it gets")
    assert rig.enlist(a, INVOICES).error.code == ErrorCode.TRANSACTION_ABORTABLE
    assert not rig.end(a).HasField("error"), "what is open can be ended"


# -- the end --------------------------------------------------------------------------------------------------------


def test_commit_raises_the_epoch_once(rig: TransactionRig) -> None:
    a = rig.identity()
    rig.enlist(a, ORDERS)
    origin = rig.place
    assert rig.ended(a) == Identity(1, 1)
    decision = rig.record.newest
    assert decision is not None and decision.commit
    assert (decision.origin, decision.place) == (origin, rig.place)
    assert decision.writers[1].participants == {ORDERS}
    assert not decision.ended


def test_old_client_keeps_its_epoch(rig: TransactionRig) -> None:
    a = rig.identity()
    rig.add(a, ORDERS)
    assert rig.ended(a, raises=False) == a
    rig.all_answered()
    rig.add(a, ORDERS)
    assert rig.ended(a, raises=False, commit=False) == a
    assert rig.record.newest is not None and not rig.record.newest.commit


@pytest.mark.parametrize("raises", [True, False])
def test_repeated_end_is_answered_from_the_record(rig: TransactionRig, raises: bool) -> None:
    """KAFKA-19367, redpanda#17921: the first answer was lost, and the repeated request must have the same answer."""
    a = rig.identity()
    rig.add(a, ORDERS)
    following = rig.ended(a, raises=raises)
    commands = len(rig.commands)
    assert rig.ended(a, raises=raises) == following
    assert rig.end(a, raises=raises, commit=False).error.code == ErrorCode.INVALID_TXN_STATE
    rig.all_answered()
    assert rig.ended(a, raises=raises) == following
    assert len(rig.commands) == commands + 1


def test_repeated_end_does_not_end_the_next(rig: TransactionRig) -> None:
    a = rig.identity()
    rig.enlist(a, ORDERS)
    b = rig.ended(a)
    rig.enlist(b, INVOICES)
    assert rig.ended(a) == b
    assert rig.record.open is not None, "the transaction of the next epoch continues"


def test_end_without_a_transaction(rig: TransactionRig) -> None:
    """KAFKA-18464: a client with a new epoch per transaction may abort one that has no participant."""
    a = rig.identity()
    assert rig.end(a).error.code == ErrorCode.INVALID_TXN_STATE
    assert rig.end(a, commit=False, raises=False).error.code == ErrorCode.INVALID_TXN_STATE
    b = rig.ended(a, commit=False)
    assert b == Identity(1, 1)
    assert rig.record.newest is not None and rig.record.newest.ended, "no participant has to answer"
    assert rig.ended(a, commit=False) == b
    rig.enlist(b, ORDERS)
    c = rig.ended(b)
    assert rig.ended(c, commit=False) == Identity(1, 3), "an empty abort right after a commit"


def test_timeout_aborts_with_the_next_epoch(rig: TransactionRig) -> None:
    a = rig.identity()
    rig.enlist(a, ORDERS)
    assert rig.expire()
    decision = rig.record.newest
    assert decision is not None and not decision.commit
    assert rig.record.producer.identity == Identity(1, 1)
    assert rig.end(a).error.code == ErrorCode.TRANSACTION_ABORTABLE
    assert rig.end(a, raises=False).error.code == ErrorCode.INVALID_PRODUCER_EPOCH, (
        "an old client cannot learn its epoch"
    )
    assert rig.ended(a, commit=False) == Identity(1, 1)
    assert rig.identity(had=a) == Identity(1, 1), "KIP-588: an old client asks for it"


def test_operator_aborts_the_transaction_that_was_seen(rig: TransactionRig) -> None:
    a = rig.identity()
    rig.enlist(a, ORDERS)
    seen = rig.place
    assert not rig.abort(seen).HasField("error")
    decision = rig.record.newest
    assert decision is not None and not decision.commit and decision.cause == TRANSACTION_CAUSE_OPERATOR
    assert rig.record.producer.identity == Identity(1, 1), "the producer is fenced"
    assert rig.enlist(a, INVOICES).error.code == ErrorCode.INVALID_PRODUCER_EPOCH
    refused = rig.end(a).error
    assert refused.code == ErrorCode.TRANSACTION_ABORTABLE and "operator" in refused.message
    assert rig.end(a, raises=False).error.code == ErrorCode.INVALID_PRODUCER_EPOCH
    assert rig.ended(a, commit=False) == Identity(1, 1)
    version = rig.record.version
    assert not rig.abort(seen).HasField("error"), "the request was repeated"
    assert rig.record.version == version


def test_operator_does_not_abort_the_next_transaction(rig: TransactionRig) -> None:
    a = rig.identity()
    rig.enlist(a, ORDERS)
    seen = rig.place
    b = rig.ended(a)
    assert rig.abort(seen).error.code == ErrorCode.INVALID_TXN_STATE, "it is committed"
    rig.all_answered()
    rig.enlist(b, INVOICES)
    assert rig.abort(seen).error.code == ErrorCode.INVALID_TXN_STATE
    assert rig.record.open is not None, "the next one continues"
    assert rig.ended(b) == Identity(1, 2)


def test_operator_aborts_what_does_not_exist_or_is_decided_at_the_same_time(rig: TransactionRig) -> None:
    assert rig.abort(rig.place).error.code == ErrorCode.INVALID_PRODUCER_ID_MAPPING
    a = rig.identity()
    assert rig.abort(rig.place).error.code == ErrorCode.INVALID_TXN_STATE, "none is open"
    rig.enlist(a, ORDERS)
    seen = rig.place
    assert not rig.end(a, keep=True).HasField("error")
    assert rig.abort(seen).error.code == ErrorCode.CONCURRENT_TRANSACTIONS, "the same entry decides it"
    assert rig.record.newest is not None and rig.record.newest.commit


def test_operator_aborts_while_there_is_no_producer_id(rig: TransactionRig) -> None:
    for _ in range(MAX_EPOCH + 1):
        a = rig.identity()
    rig.enlist(a, ORDERS)
    rig.ids.left = 0
    assert rig.abort(rig.place).error.retriable
    assert rig.record.open is not None
    rig.ids.left = 1
    assert not rig.abort(rig.record.open.place).HasField("error")
    assert rig.record.producer.identity == Identity(2, 0)


def test_timeout_of_a_transaction_that_is_over(rig: TransactionRig) -> None:
    a = rig.identity()
    rig.enlist(a, ORDERS)
    origin = rig.place
    b = rig.ended(a)
    rig.enlist(b, INVOICES)
    from quorumlog.server.transactions.transaction_decisions import expire_transaction

    assert expire_transaction(rig.draft, NAME, origin)
    rig.apply()
    assert rig.record.open is not None


# -- many writers ---------------------------------------------------------------------------------------------------


def test_decision_names_the_writers_that_count(rig: TransactionRig) -> None:
    driver = rig.identity(work=7)
    first, second = rig.writer(driver), rig.writer(driver)
    rig.enlist(first, ORDERS)
    rig.enlist(second, ORDERS)
    origin = rig.place
    assert rig.record.open is not None
    origin = rig.record.open.place
    rig.ended(driver, writers=[first.producer_id])
    assert rig.resolve(first, origin).commit
    assert rig.resolve(second, origin).standing == TRANSACTION_STANDING_DECIDED
    assert not rig.resolve(second, origin).commit
    assert rig.record.committed_work == 7


def test_unknown_writer_cannot_be_committed(rig: TransactionRig) -> None:
    driver = rig.identity()
    rig.writer(driver)
    assert rig.end(driver, writers=[99]).error.code == ErrorCode.INVALID_TXN_STATE
    assert rig.record.open is not None


def test_writer_ends_with_its_transaction(rig: TransactionRig) -> None:
    driver = rig.identity()
    writer = rig.writer(driver)
    rig.enlist(writer, ORDERS)
    assert rig.enlist(Identity(writer.producer_id, 1), ORDERS).error.code == ErrorCode.INVALID_PRODUCER_EPOCH
    driver = rig.ended(driver, writers=[writer.producer_id])
    assert rig.enlist(writer, INVOICES).error.code == ErrorCode.INVALID_PRODUCER_EPOCH
    rig.writer(driver)
    assert rig.enlist(writer, INVOICES).error.code == ErrorCode.INVALID_PRODUCER_EPOCH


def test_repeated_commit_with_other_writers(rig: TransactionRig) -> None:
    driver = rig.identity()
    first, second = rig.writer(driver), rig.writer(driver)
    following = rig.ended(driver, writers=[first.producer_id])
    assert rig.ended(driver, writers=[first.producer_id]) == following
    assert rig.end(driver, writers=[second.producer_id]).error.code == ErrorCode.INVALID_TXN_STATE


def test_processes_of_an_instance_have_one_identity(rig: TransactionRig) -> None:
    first = rig.init(instance=20, work=7, keep=True)
    assert rig.init(instance=20, work=7).identity == first.identity
    driver = rig.identity(instance=20, work=7)
    assert driver == Identity(1, 0)
    writer = rig.writer(driver)
    assert rig.identity(instance=20, work=7) == driver
    assert rig.end(driver, writers=[writer.producer_id], keep=True).identity.producer_epoch == 1
    assert rig.init(instance=20, work=7).error.code == ErrorCode.CONCURRENT_TRANSACTIONS
    assert rig.init(instance=20, work=7).work_committed
    assert rig.init(instance=20, work=8).error.code == ErrorCode.INVALID_PRODUCER_EPOCH
    following = rig.init(instance=22, work=8)
    assert following.committed_work == 7 and following.identity.producer_epoch == 2


def test_an_instance_fences_those_before_it(rig: TransactionRig) -> None:
    old = rig.identity(instance=20, work=7)
    rig.writer(old)
    new = rig.identity(instance=30, work=7)
    assert new.epoch == old.epoch + 1
    assert rig.record.open is None
    assert rig.init(instance=20, work=7).error.code == ErrorCode.INVALID_PRODUCER_EPOCH
    assert rig.identity(instance=30, work=7) == new
    assert rig.identity() == Identity(new.producer_id, new.epoch + 1)
    assert rig.init(instance=30, work=7).error.code == ErrorCode.INVALID_PRODUCER_EPOCH


def test_an_instance_ends_with_its_transaction(rig: TransactionRig) -> None:
    """A process that starts after the timeout must not start another transaction, without the writers before it."""
    driver = rig.identity(instance=20, work=7)
    rig.writer(driver)
    rig.expire()
    assert rig.init(instance=20, work=7).error.code == ErrorCode.INVALID_PRODUCER_EPOCH
    assert rig.join(driver).error.code == ErrorCode.INVALID_PRODUCER_EPOCH
    assert rig.identity(instance=22, work=7).epoch == driver.epoch + 2


def test_work_is_committed_once(rig: TransactionRig) -> None:
    driver = rig.identity(work=7)
    rig.writer(driver)
    rig.ended(driver, commit=False)
    driver = rig.identity(work=7)
    rig.writer(driver)
    driver = rig.ended(driver)
    for done in (6, 7):
        answer = rig.init(work=done)
        assert answer.work_committed and answer.identity.producer_epoch == driver.epoch
    answer = rig.init(work=8)
    assert not answer.work_committed and not answer.HasField("error")


def test_committed_work_outlives_unused_ids(rig: TransactionRig) -> None:
    """A query that was stopped for weeks runs its last micro-batch again when it continues."""
    driver = rig.identity(work=7)
    rig.enlist(driver, ORDERS)
    rig.ended(driver)
    rig.all_answered()
    rig.wall_ms += rig.limits.work_retention_ms - 1
    expire_id(rig.new_draft(), NAME)
    rig.apply()
    assert rig.init(work=7).work_committed
    rig.wall_ms += 1
    expire_id(rig.new_draft(), NAME)
    rig.apply()
    assert not rig.table.records


def test_new_run_aborts_the_former_one(rig: TransactionRig) -> None:
    former = rig.identity(work=7)
    writer = rig.writer(former)
    rig.enlist(writer, ORDERS)
    rig.identity(work=7)
    assert rig.end(former, writers=[writer.producer_id]).error.code == ErrorCode.INVALID_PRODUCER_EPOCH
    assert rig.record.committed_work is None


# -- what became of a transaction -----------------------------------------------------------------------------------


def test_open_transaction_is_open(rig: TransactionRig) -> None:
    a = rig.identity()
    rig.enlist(a, ORDERS)
    origin = rig.place
    assert rig.resolve(a, origin).standing == TRANSACTION_STANDING_OPEN
    rig.ended(a)
    resolved = rig.resolve(a, origin)
    assert (resolved.standing, resolved.commit, resolved.next_epoch) == (TRANSACTION_STANDING_DECIDED, True, 1)
    assert LogPlace(resolved.decided.term, resolved.decided.index) == rig.place
    rig.all_answered()
    assert rig.resolve(a, origin).commit, "the newest decision is kept"


def test_unknown_transaction_is_aborted(rig: TransactionRig) -> None:
    a = rig.identity()
    rig.enlist(a, ORDERS)
    origin = rig.place
    assert rig.resolve(Identity(99, 0), origin).standing == TRANSACTION_STANDING_UNKNOWN
    assert rig.resolve(Identity(1, 4), origin).standing == TRANSACTION_STANDING_UNKNOWN
    assert rig.resolve(a, LogPlace(3, 1)).standing == TRANSACTION_STANDING_UNKNOWN


def test_coordinator_that_is_behind_says_nothing(rig: TransactionRig) -> None:
    a = rig.identity()
    later = rig.resolve(a, LogPlace(rig.term, rig.index + 1))
    assert later.error.code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert rig.resolve(a, LogPlace(rig.term + 1, 1)).HasField("error")
    assert rig.resolve(a, LogPlace(rig.term - 1, 900)).standing == TRANSACTION_STANDING_UNKNOWN, (
        "a recovery took them back"
    )


# -- unused ids -----------------------------------------------------------------------------------------------------


def test_unused_id_expires(rig: TransactionRig) -> None:
    a = rig.identity()
    rig.enlist(a, ORDERS)
    rig.wall_ms += rig.limits.retention_ms
    expire_id(rig.new_draft(), NAME)
    rig.apply()
    assert NAME in rig.table.records, "it has an open transaction"
    rig.ended(a)
    rig.wall_ms += rig.limits.retention_ms
    expire_id(rig.new_draft(), NAME)
    rig.apply()
    assert NAME in rig.table.records, "a participant has not answered"
    rig.all_answered()
    rig.wall_ms += rig.limits.retention_ms - 1
    expire_id(rig.new_draft(), NAME)
    rig.apply()
    assert NAME in rig.table.records
    rig.wall_ms += 1
    expire_id(rig.new_draft(), NAME)
    rig.apply()
    assert not rig.table.records and not rig.table.by_producer and not rig.table.size_bytes
    assert rig.identity() == Identity(2, 0)
    assert rig.record.version > rig.commands[0].changes[0].version, "versions of a new id follow those of the former"


def test_draft_that_is_dropped_returns_its_ids(rig: TransactionRig) -> None:
    rig.init(keep=True)
    rig.draft.drop()
    assert rig.ids.returned == [1]


def test_unchanged_draft_has_no_command(rig: TransactionRig) -> None:
    rig.identity()
    rig.draft.find(NAME)
    assert rig.draft.command() is None and not rig.draft.changed(NAME)
    assert isinstance(rig.commands[0], TransactionCommand)

"""Consumer groups as participants of transactions: enlistments, decisions, and what outlives a term."""

from __future__ import annotations

import pytest

from quorumlog.server.deciding import enlistment_queue
from quorumlog.server.deciding.transaction_participants import Identity, OpenHere, Participant
from quorumlog.server.groups import enlisted_groups
from quorumlog.server.metadata.records import SECOND_FEATURE_LEVEL
from quorumlog.server.step import newest_decisions
from quorumlog.server.step.wire_errors import error
from quorumlog.v1.errors_pb2 import ErrorCode
from quorumlog.wire.kafka.control import LogPlace
from tests.support.group_participants import GROUP, MINUTE_US, NAME, WRITER, GroupParticipants


@pytest.fixture
def rig() -> GroupParticipants:
    return GroupParticipants()


def pending(rig: GroupParticipants, at: int = 10) -> None:
    """Stores an offset in a transaction."""
    call = rig.commit()
    assert rig.enlisted(at) is None
    rig.decide()
    assert rig.outcome(call) == "NONE"


def test_a_commit_waits_for_its_enlistment(rig: GroupParticipants) -> None:
    first, second = rig.commit(5), rig.commit(6)
    rig.decide()
    assert rig.outcome(first) is None
    (asked,) = rig.requests
    assert (asked.item.transactional_id, asked.item.participant.group_id, asked.term) == (NAME, GROUP, 3)
    assert asked.item.identity.producer_id == WRITER.producer_id
    assert not asked.item.only_confirm
    assert rig.enlisted() is None
    assert rig.woken
    rig.decide()
    assert [rig.outcome(call) for call in (first, second)] == ["NONE", "NONE"]
    assert rig.committed() is None
    third = rig.commit(7)
    assert not rig.requests, "the transaction is open"
    rig.decide()
    assert rig.outcome(third) == "NONE"
    ended = rig.end()
    rig.decide(apply=False)
    assert ended == [], "the entry is not committed"
    rig.apply()
    assert ended == [None]
    assert rig.committed() == 7


def test_a_group_that_the_producer_has_added_is_confirmed(rig: GroupParticipants) -> None:
    rig.commit(adds=False)
    assert rig.requests[0].item.only_confirm


def test_a_refused_enlistment_refuses_all_that_wait(rig: GroupParticipants) -> None:
    calls = [rig.commit(), rig.commit()]
    rig.enlisted(refuse=error(ErrorCode.INVALID_PRODUCER_EPOCH, "fenced"))
    assert [rig.outcome(call) for call in calls] == ["INVALID_PRODUCER_EPOCH"] * 2
    rig.commit()
    assert len(rig.requests) == 1, "it is requested again"


def test_each_producer_is_enlisted(rig: GroupParticipants) -> None:
    """Another epoch, or another transactional id, is not what the coordinator has confirmed."""
    pending(rig)
    rig.commit(identity=Identity(WRITER.producer_id, WRITER.epoch + 1))
    rig.commit(name="other")
    rig.commit(identity=Identity(71, 0))
    assert len(rig.requests) == 3


def test_an_abort_drops_the_offsets(rig: GroupParticipants) -> None:
    pending(rig)
    ended = rig.end(commit=False)
    rig.decide()
    assert ended == [None]
    assert rig.committed() is None
    assert not rig.transactions.are_open


def test_nothing_pending_is_confirmed_by_a_quorum(rig: GroupParticipants) -> None:
    """A former leader may not have the entry with the pending offsets."""
    ended = rig.end()
    rig.decide()
    assert ended == []
    rig.confirm()
    assert ended == [None]
    assert not rig.shard.proposed


def test_a_repeated_decision_waits_for_the_first(rig: GroupParticipants) -> None:
    pending(rig)
    first, second = rig.end(), rig.end()
    rig.decide(apply=False)
    rig.confirm()
    assert first == []
    assert [problem.code for problem in second if problem is not None] == [ErrorCode.SERVER_BUSY]
    rig.apply()
    assert first == [None]
    third = rig.end()
    rig.decide()
    rig.confirm()
    assert third == [None]


def test_a_former_transaction_waits_for_its_own_decision(rig: GroupParticipants) -> None:
    pending(rig)
    ended = rig.end(30, 40)
    rig.decide()
    (problem,) = ended
    assert problem is not None
    assert problem.code == ErrorCode.CONCURRENT_TRANSACTIONS
    assert rig.transactions.are_open


def test_a_commit_behind_the_decision_is_refused(rig: GroupParticipants) -> None:
    """It was enlisted, and waits for its turn while the decision arrives."""
    call = rig.commit()
    rig.enlisted()
    ended = rig.end()
    rig.decide()
    rig.confirm()
    assert ended == [None]
    assert rig.outcome(call) == "INVALID_TXN_STATE"
    assert not rig.transactions.are_open


def committed_on(rig: GroupParticipants, connection: int, offset: int, identity: Identity = WRITER) -> str | None:
    """Commits an offset, as a client that keeps its epoch, and returns what it is answered."""
    call = rig.commit(offset, identity, adds=False, connection=connection)
    if rig.requests:
        assert rig.enlisted(offset * 10) is None
    rig.decide()
    return rig.outcome(call)


def test_a_late_commit_on_an_older_connection_is_refused(rig: GroupParticipants) -> None:
    """An old client repeats its commit on another connection, ends the transaction, and starts the next one, with the
    same epoch. Then the first commit arrives."""
    assert committed_on(rig, 8, 1) == "NONE"
    ended = rig.end(10, 11)
    rig.decide()
    assert ended == [None]
    assert committed_on(rig, 8, 2) == committed_on(rig, 9, 3) == "NONE"
    assert committed_on(rig, 8, 1) == "INVALID_TXN_STATE"
    rig.end(20, 31)
    rig.decide()
    assert rig.committed() == 3
    next_instance = Identity(WRITER.producer_id, WRITER.epoch + 1)
    assert committed_on(rig, 7, 4, next_instance) == "NONE", "it may have connected earlier"
    assert not rig.transactions.connections.ended


def test_a_connection_of_a_former_term_is_closed(rig: GroupParticipants) -> None:
    """The group may have been elsewhere in the meantime, where the producer may have used newer connections."""
    rig.clock.step(50_000, 0)
    rig.elect()
    assert committed_on(rig, 50_000, 1) == "NOT_COORDINATOR"
    (closed,) = rig.transactions.connections.take_ended()
    assert closed.stream == 50_000
    assert not rig.transactions.connections.ended
    assert committed_on(rig, 50_001, 1) == "NONE"


def test_an_enlistment_after_the_decision_is_refused(rig: GroupParticipants) -> None:
    call = rig.commit()
    rig.end()
    problem = rig.enlisted()
    assert problem is not None
    assert problem.code == ErrorCode.INVALID_TXN_STATE
    assert rig.outcome(call) == "INVALID_TXN_STATE"
    at_its_place = rig.commit()
    assert rig.enlisted(20) is not None
    assert rig.outcome(at_its_place) == "INVALID_TXN_STATE"
    later = rig.commit()
    assert rig.enlisted(21) is None
    rig.decide()
    assert rig.outcome(later) == "NONE"


def test_an_enlistment_of_another_term_is_refused(rig: GroupParticipants) -> None:
    call = rig.commit()
    rig.elect()
    problem = rig.enlisted()
    assert problem is not None
    assert problem.code == ErrorCode.NOT_COORDINATOR
    assert rig.outcome(call) == "NOT_COORDINATOR"


def test_the_next_leader_enlists_again(rig: GroupParticipants) -> None:
    pending(rig)
    rig.elect()
    call = rig.commit(6)
    assert rig.enlisted() is None
    rig.decide()
    assert rig.outcome(call) == "NONE"
    ended = rig.end()
    rig.decide()
    assert ended == [None]
    assert rig.committed() == 6


def test_what_waits_at_the_end_of_a_term_is_answered(rig: GroupParticipants) -> None:
    pending(rig)
    ended = rig.end()
    rig.leader.end()
    (problem,) = ended
    assert problem is not None
    assert problem.code == ErrorCode.NOT_COORDINATOR
    rig.shard.leads = False
    (refused,) = rig.end()
    assert refused is not None
    transaction = OpenHere(Participant(b"", 0, GROUP), WRITER, 5, LogPlace(3, 50))
    assert rig.transactions.open(transaction, 3) is not None


def test_transactions_open_for_long_are_told(rig: GroupParticipants) -> None:
    assert not rig.transactions.are_open
    pending(rig)
    assert rig.transactions.are_open
    assert list(rig.transactions.open_longer_than(MINUTE_US)) == []
    rig.clock.awake_us += MINUTE_US - 1
    assert list(rig.transactions.open_longer_than(MINUTE_US)) == []
    rig.clock.awake_us += 1
    (transaction,) = rig.transactions.open_longer_than(MINUTE_US)
    assert transaction == OpenHere(Participant(b"", 0, GROUP), WRITER, 5, LogPlace(3, 10))
    rig.end(10, 10, commit=False)
    rig.decide()
    assert list(rig.transactions.open_longer_than(MINUTE_US)) == []
    pending(rig, 30)
    assert list(rig.transactions.open_longer_than(MINUTE_US)) == [], "it is another one"


def test_older_clusters_take_no_offsets_in_transactions() -> None:
    rig = GroupParticipants(SECOND_FEATURE_LEVEL)
    assert rig.outcome(rig.commit()) == "UNSUPPORTED_VERSION"
    assert not rig.requests


def test_waiting_commits_are_bounded(rig: GroupParticipants, monkeypatch: pytest.MonkeyPatch) -> None:
    first = rig.commit()
    monkeypatch.setattr(enlistment_queue, "MAX_WAITING_BYTES", 1)
    assert rig.outcome(rig.commit()) == "SERVER_BUSY"
    monkeypatch.setattr(enlistment_queue, "MAX_WAITING_BYTES", 1_000)
    rig.enlisted()
    rig.decide()
    assert rig.outcome(first) == "NONE"
    rig.commit(identity=Identity(71, 0))
    assert len(rig.requests) == 1, "what was answered does not count"


def test_remembered_decisions_are_bounded(rig: GroupParticipants, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(newest_decisions, "MAX_REMEMBERED", 2)
    assert [rig.end(producer_id=number) for number in (1, 2)] == [[], []]
    (busy,) = rig.end(producer_id=3)
    assert busy is not None
    assert busy.code == ErrorCode.SERVER_BUSY
    rig.clock.awake_us += newest_decisions.REMEMBERED_US
    assert rig.end(producer_id=3) == []


def test_a_forgotten_enlistment_is_requested_again(rig: GroupParticipants, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(enlisted_groups, "MAX_ENLISTED", 1)
    pending(rig)
    other = rig.commit(identity=Identity(71, 0))
    rig.enlisted(15)
    rig.decide()
    assert rig.outcome(other) == "NONE"
    rig.commit()
    assert len(rig.requests) == 1

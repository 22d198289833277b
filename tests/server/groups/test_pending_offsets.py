"""Offsets in transactions: pending until the decision, in the order of the group's log."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from group_samples import GROUP, Client, Coordinator, Topics, partitions, until_stable

from quorumlog.server.config.consumer_group_limits import ConsumerGroupLimits
from quorumlog.server.deciding.transaction_participants import Identity, OpenHere, Participant
from quorumlog.server.groups.administration import delete_group
from quorumlog.server.groups.committed_offsets import (
    OffsetDecision,
    commit_offsets,
    delete_offsets,
    end_transaction,
    fetch_offsets,
)
from quorumlog.server.groups.draft import Draft
from quorumlog.server.groups.member import PartitionId
from quorumlog.server.groups.periodic_checks import expire_offsets
from quorumlog.server.groups.records import partition_lists
from quorumlog.v1 import groups_pb2 as pb
from quorumlog.v1.coordinator_log_pb2 import GroupChange, GroupCommand
from quorumlog.v1.errors_pb2 import ErrorCode
from quorumlog.wire.kafka.control import LogPlace

DAY_MS = 86_400_000
T0, T1, T2, T3 = sorted(partitions("t", 0, 1, 2, 3))
A, B = 70, 71


@pytest.fixture
def coordinator() -> Coordinator:
    return Coordinator(Topics(t=4))


def place(index: int, term: int = 3) -> LogPlace:
    return LogPlace(term, index)


def begun(producer_id: int = A, at: int = 10, epoch: int = 0) -> OpenHere:
    """A transaction that started at an index of its coordinator's log."""
    return OpenHere(Participant(b"", 0, GROUP), Identity(producer_id, epoch), 5, place(at))


def draft_commit(
    draft: Draft,
    rows: dict[PartitionId, int],
    transaction: OpenHere | None,
    *,
    member: str = "",
    epoch: int = -1,
    number: int = 0,
    instance: str = "",
) -> pb.CommitOffsetsResponse:
    request = pb.CommitOffsetsRequest(
        group_id=GROUP, member_id=member, member_epoch=epoch, number=number, instance_id=instance
    )
    if transaction is not None:
        request.transactional_id = f"id-{transaction.identity.producer_id}"
        request.producer.producer_id, request.producer.producer_epoch = transaction.identity
    for (topic, partition), offset in rows.items():
        request.offsets.add(topic_id=topic, partition=partition, offset=offset, leader_epoch=3, metadata="x")
    return commit_offsets(draft, request, None, transaction)


def outcomes(answer: pb.CommitOffsetsResponse) -> list[str]:
    if answer.HasField("error"):
        return [ErrorCode.Name(answer.error.code)]
    return [ErrorCode.Name(row.error.code) for row in answer.results]


def commit(
    coordinator: Coordinator, rows: dict[PartitionId, int], transaction: OpenHere | None = None, **fields: object
) -> list[str]:
    """Commits; returns what became of each row, or of the request."""
    answer = coordinator.decide(lambda draft: draft_commit(draft, rows, transaction, **fields))  # type: ignore[arg-type]
    return outcomes(answer)


def decision(origin: int = 10, at: int = 20, *, keep: bool = True) -> OffsetDecision:
    """The decision at an index of its coordinator's log on the transaction that started at another."""
    return OffsetDecision(place(origin), place(at), keep)


def end(coordinator: Coordinator, producer_id: int = A, **fields: int) -> bool | str:
    """Ends the transaction of a producer; returns whether it was open, or the error."""
    made = decision(**fields)  # type: ignore[arg-type]
    ended = coordinator.decide(lambda draft: end_transaction(draft, GROUP, producer_id, made))
    return ended if isinstance(ended, bool) else ErrorCode.Name(ended.code)


def fetch(coordinator: Coordinator, of: Iterable[PartitionId] = (), *, stable: bool = False) -> pb.FetchOffsetsResponse:
    request = pb.FetchOffsetsRequest(group_id=GROUP, member_epoch=-1, topics=partition_lists(of), require_stable=stable)
    return coordinator.decide(lambda draft: fetch_offsets(draft, request))


def committed(coordinator: Coordinator) -> dict[PartitionId, int]:
    return {(row.topic_id, row.partition): row.offset for row in fetch(coordinator).offsets}


# -- the decision -----------------------------------------------------------------------------------------------------


def test_pending_offsets_wait_for_the_decision(coordinator: Coordinator) -> None:
    assert commit(coordinator, {T0: 5, T1: 7}, begun()) == ["NONE", "NONE"]
    assert committed(coordinator) == {}
    assert end(coordinator)
    assert committed(coordinator) == {T0: 5, T1: 7}
    assert not coordinator.group.pending
    assert not coordinator.group.unstable


def test_pending_offsets_of_an_abort_are_dropped(coordinator: Coordinator) -> None:
    commit(coordinator, {T0: 2})
    commit(coordinator, {T0: 5, T1: 7}, begun())
    assert end(coordinator, keep=False)
    assert committed(coordinator) == {T0: 2}


def test_a_repeated_decision_has_no_effect(coordinator: Coordinator) -> None:
    commit(coordinator, {T0: 5}, begun())
    assert end(coordinator)
    commit(coordinator, {T0: 9})
    commands = len(coordinator.commands)
    assert not end(coordinator)
    assert not end(coordinator, keep=False)
    assert len(coordinator.commands) == commands
    assert committed(coordinator) == {T0: 9}


def test_a_decision_ends_no_later_transaction(coordinator: Coordinator) -> None:
    commit(coordinator, {T0: 5}, begun(at=30))
    assert end(coordinator, at=20) is False
    assert end(coordinator, B, origin=30, at=40) is False
    assert end(coordinator, origin=30, at=40) is True
    assert committed(coordinator) == {T0: 5}


def test_a_former_transaction_waits_for_its_own_decision(coordinator: Coordinator) -> None:
    commit(coordinator, {T0: 5}, begun(at=10))
    assert end(coordinator, origin=30, at=40, keep=False) == "CONCURRENT_TRANSACTIONS"
    assert end(coordinator) is True
    assert committed(coordinator) == {T0: 5}


def test_an_unknown_transaction_is_ended_at_its_own_place(coordinator: Coordinator) -> None:
    """A coordinator without a record of a transaction names no other place for the decision to abort it."""
    commit(coordinator, {T0: 5}, begun(at=30))
    assert end(coordinator, origin=30, at=30, keep=False)
    assert committed(coordinator) == {}


def test_the_next_transaction_waits_for_the_decision(coordinator: Coordinator) -> None:
    commit(coordinator, {T0: 5}, begun(at=10))
    assert commit(coordinator, {T0: 6}, begun(at=30)) == ["CONCURRENT_TRANSACTIONS"]
    assert commit(coordinator, {T0: 6}, begun(at=5)) == ["INVALID_TXN_STATE"]
    assert end(coordinator)
    assert commit(coordinator, {T0: 6}, begun(at=30)) == ["NONE"]
    assert end(coordinator, origin=30, at=40)
    assert committed(coordinator) == {T0: 6}


def test_two_transactions_follow_in_one_draft(coordinator: Coordinator) -> None:
    """The first one ends, and the second one begins, ends and is followed by a third."""
    commit(coordinator, {T0: 5, T1: 1}, begun(at=10))

    def both(draft: Draft) -> None:
        assert end_transaction(draft, GROUP, A, decision()) is True
        assert outcomes(draft_commit(draft, {T0: 6}, begun(at=30))) == ["NONE"]
        assert end_transaction(draft, GROUP, A, decision(30, 40)) is True
        assert outcomes(draft_commit(draft, {T0: 7}, begun(at=50))) == ["NONE"]

    coordinator.decide(both)
    assert committed(coordinator) == {T0: 6, T1: 1}
    assert coordinator.group.pending[A].place == place(50)
    (ended,) = coordinator.commands[-1].changes[0].ended
    assert (ended.producer_id, ended.decided.index, ended.commit) == (A, 20, True)


# -- the order of the log ---------------------------------------------------------------------------------------------


def test_a_later_commit_stays(coordinator: Coordinator) -> None:
    commit(coordinator, {T0: 5, T1: 7}, begun())
    commit(coordinator, {T0: 9})
    assert end(coordinator)
    assert committed(coordinator) == {T0: 9, T1: 7}


def test_a_later_commit_in_the_same_draft_stays(coordinator: Coordinator) -> None:
    def both(draft: Draft) -> None:
        draft_commit(draft, {T0: 5}, begun())
        draft_commit(draft, {T0: 9}, None)

    coordinator.decide(both)
    assert end(coordinator)
    assert committed(coordinator) == {T0: 9}


def test_the_later_of_two_transactions_stays(coordinator: Coordinator) -> None:
    commit(coordinator, {T0: 5}, begun(A))
    commit(coordinator, {T0: 9}, begun(B))
    assert end(coordinator, B)
    assert end(coordinator, A)
    assert committed(coordinator) == {T0: 9}


def test_the_earlier_of_two_transactions_counts_if_the_later_aborts(coordinator: Coordinator) -> None:
    commit(coordinator, {T0: 5}, begun(A))
    commit(coordinator, {T0: 9}, begun(B))
    assert end(coordinator, B, keep=False)
    assert end(coordinator, A)
    assert committed(coordinator) == {T0: 5}


def test_the_later_of_two_transactions_follows_the_earlier(coordinator: Coordinator) -> None:
    commit(coordinator, {T0: 5}, begun(A))
    commit(coordinator, {T0: 9}, begun(B))
    assert end(coordinator, A)
    assert committed(coordinator) == {T0: 5}
    assert end(coordinator, B)
    assert committed(coordinator) == {T0: 9}


def test_numbers_order_the_commits_of_a_member(coordinator: Coordinator) -> None:
    """A member has numbered its commits: one that arrives late neither replaces a later one nor overtakes it."""
    until_stable([Client(coordinator, "a")])
    member: dict[str, object] = {"member": "a", "epoch": 1}
    assert commit(coordinator, {T0: 5}, begun(), number=3, **member) == ["NONE"]
    assert commit(coordinator, {T0: 4}, begun(), number=2, **member) == ["NONE"]
    assert commit(coordinator, {T0: 3}, number=1, **member) == ["NONE"]
    assert committed(coordinator) == {T0: 3}, "the transaction may be aborted"
    assert end(coordinator)
    assert committed(coordinator) == {T0: 5}
    assert commit(coordinator, {T0: 1}, begun(at=30), number=2, **member) == ["NONE"]
    end(coordinator, origin=30, at=40)
    assert committed(coordinator) == {T0: 5}


def test_deleted_offsets_do_not_return(coordinator: Coordinator) -> None:
    commit(coordinator, {T0: 2})
    commit(coordinator, {T0: 5, T1: 7, T2: 8}, begun())
    request = pb.DeleteOffsetsRequest(group_id=GROUP, topics=partition_lists([T0, T1]))
    coordinator.decide(lambda draft: delete_offsets(draft, request))
    assert end(coordinator)
    assert committed(coordinator) == {T2: 8}


# -- who may commit ---------------------------------------------------------------------------------------------------


def test_a_transactional_commit_needs_its_member(coordinator: Coordinator) -> None:
    a, b = Client(coordinator, "a"), Client(coordinator, "b")
    until_stable([a, b])
    mine, other = min(a.owned), min(b.owned)
    assert commit(coordinator, {mine: 1}, begun(), member="c", epoch=1) == ["UNKNOWN_MEMBER_ID"]
    assert commit(coordinator, {mine: 1}, begun(), member="", epoch=a.epoch) == ["UNKNOWN_MEMBER_ID"]
    answer = commit(coordinator, {mine: 1, other: 1}, begun(), member="a", epoch=a.epoch)
    assert answer == ["NONE", "STALE_MEMBER_EPOCH"]
    assert commit(coordinator, {mine: 1}, begun(), member="a", epoch=a.epoch + 1) == ["STALE_MEMBER_EPOCH"]
    assert coordinator.group.unstable == {mine: (A,)}


def test_a_producer_without_a_consumer_may_commit(coordinator: Coordinator) -> None:
    """Kafka's older clients name no member: only the epoch of the producer fences a former instance."""
    until_stable([Client(coordinator, "a")])
    assert commit(coordinator, {T0: 1}) == ["UNKNOWN_MEMBER_ID"]
    assert commit(coordinator, {T0: 1}, begun()) == ["NONE"]
    assert end(coordinator)
    assert committed(coordinator) == {T0: 1}


# -- limits, deletion, expiry -----------------------------------------------------------------------------------------


def test_pending_offsets_count_towards_the_limits() -> None:
    coordinator = Coordinator(Topics(t=4), ConsumerGroupLimits(offsets=2))
    assert commit(coordinator, {T0: 1, T1: 1, T2: 1}, begun()) == ["NONE", "NONE", "GROUP_MAX_SIZE_REACHED"]
    assert commit(coordinator, {T0: 2, T3: 1}) == ["NONE", "GROUP_MAX_SIZE_REACHED"]
    assert end(coordinator)
    assert committed(coordinator) == {T0: 2, T1: 1}


def test_pending_offsets_count_towards_the_size() -> None:
    coordinator = Coordinator(Topics(t=4), ConsumerGroupLimits(coordinator_bytes=200))
    assert commit(coordinator, {T0: 1}, begun()) == ["NONE"]
    assert coordinator.table.size_bytes > 100
    assert commit(coordinator, {T1: 1}, begun()) == ["NONE"]
    assert commit(coordinator, {T2: 1}, begun()) == ["GROUP_MAX_SIZE_REACHED"]
    assert end(coordinator, keep=False)
    assert coordinator.table.size_bytes == 0


def test_a_group_with_pending_offsets_is_not_deleted(coordinator: Coordinator) -> None:
    commit(coordinator, {T0: 5}, begun())
    refused = coordinator.decide(lambda draft: delete_group(draft, GROUP))
    assert refused is not None
    assert (refused.code, refused.definite) == (ErrorCode.NON_EMPTY_GROUP, True)
    change = GroupChange(group_id=GROUP, base_version=coordinator.group.version)
    with pytest.raises(AssertionError, match="ends with pending offsets"):
        coordinator.replica.apply(GroupCommand(changes=[change]))
    end(coordinator)
    assert coordinator.decide(lambda draft: delete_group(draft, GROUP)) is None


def test_a_group_is_deleted_in_the_draft_of_the_decision(coordinator: Coordinator) -> None:
    commit(coordinator, {T0: 5}, begun())

    def both(draft: Draft) -> None:
        assert end_transaction(draft, GROUP, A, decision()) is True
        assert delete_group(draft, GROUP) is None

    coordinator.decide(both)
    assert not coordinator.table.groups
    assert not coordinator.table.with_pending


def test_pending_offsets_do_not_expire(coordinator: Coordinator) -> None:
    commit(coordinator, {T0: 2, T1: 2})
    commit(coordinator, {T0: 5}, begun())
    coordinator.wall_ms += 2 * DAY_MS
    coordinator.decide(lambda draft: expire_offsets(draft, GROUP, DAY_MS))
    assert committed(coordinator) == {T0: 2}
    end(coordinator, keep=False)
    coordinator.decide(lambda draft: expire_offsets(draft, GROUP, DAY_MS))
    assert not coordinator.table.groups


def test_a_group_with_pending_offsets_does_not_expire(coordinator: Coordinator) -> None:
    commit(coordinator, {T0: 5}, begun())
    coordinator.wall_ms += 2 * DAY_MS
    coordinator.decide(lambda draft: expire_offsets(draft, GROUP, DAY_MS))
    end(coordinator)
    assert committed(coordinator) == {T0: 5}


# -- snapshots, reading -----------------------------------------------------------------------------------------------


def test_a_snapshot_has_pending_offsets(coordinator: Coordinator) -> None:
    commit(coordinator, {T0: 5, T1: 5}, begun(A, epoch=4))
    commit(coordinator, {T0: 9}, begun(B))
    commit(coordinator, {T1: 6, T2: 1}, begun(A, epoch=4))
    coordinator.restart()
    assert coordinator.table.with_pending == {GROUP: None}
    assert coordinator.group.pending[A].epoch == 4
    assert coordinator.group.pending[A].coordinator == 5
    end(coordinator, B)
    coordinator.restart()
    end(coordinator, A)
    assert committed(coordinator) == {T0: 9, T1: 6, T2: 1}


def test_a_snapshot_has_transactions_whose_offsets_are_overtaken(coordinator: Coordinator) -> None:
    commit(coordinator, {T0: 5}, begun())
    commit(coordinator, {T0: 9})
    coordinator.restart()
    assert end(coordinator)
    assert committed(coordinator) == {T0: 9}


def test_unstable_offsets_are_told(coordinator: Coordinator) -> None:
    commit(coordinator, {T0: 2, T1: 3})
    commit(coordinator, {T0: 5, T2: 5}, begun())
    for of in ((), (T0, T1, T2, T3)):
        answer = fetch(coordinator, of, stable=True)
        assert [(row.topic_id, row.partition) for row in answer.offsets] == [T1]
        assert [(row.topic_id, row.partition) for row in answer.unstable] == [T0, T2]
        assert {row.topic for row in answer.unstable} == {"t"}
        assert {row.error.code for row in answer.unstable} == {ErrorCode.UNSTABLE_OFFSET_COMMIT}
        assert all(row.error.retriable for row in answer.unstable)
    assert not fetch(coordinator).unstable
    assert committed(coordinator) == {T0: 2, T1: 3}
    end(coordinator)
    assert not fetch(coordinator, stable=True).unstable

"""A message that says more than its sender's disk is found out when it leaves."""

from __future__ import annotations

import pytest

from quorumlog.raft.types import (
    ORIGIN,
    AppendRequest,
    AppendResponse,
    EntryId,
    HardState,
    Message,
    SnapshotResponse,
    VoteRequest,
    VoteResponse,
)
from quorumlog.simulator.models.committed_partition import Violation
from quorumlog.simulator.world.invariants import check_promise

STATE = HardState(term=3, vote=2)
LAST = EntryId(7, 2, 99)

KEPT = [
    VoteRequest(2, 1, 3, 7, 2),
    VoteRequest(2, 1, 9, 8, 9, pre_vote=True),
    VoteResponse(1, 2, 3, pre_vote=False, granted=True),
    VoteResponse(1, 3, 3, pre_vote=False, granted=False),
    AppendResponse(1, 2, 3, 7),
    AppendResponse(1, 2, 3, 8, rejected=True),
    AppendResponse(1, 2, 2, 9),
    SnapshotResponse(1, 2, 3, 7),
    AppendRequest(2, 1, 3, 7, 2, 0),
]
BROKEN = [
    VoteRequest(2, 1, 3, 8, 2),
    VoteRequest(1, 2, 3, 7, 2),
    VoteResponse(1, 3, 3, pre_vote=False, granted=True),
    AppendResponse(1, 2, 3, 8),
    AppendResponse(1, 2, 4, 1),
    SnapshotResponse(1, 2, 3, 8),
    AppendRequest(2, 1, 4, 7, 2, 0),
]


@pytest.mark.parametrize("message", KEPT, ids=str)
def test_a_promise_that_the_disk_backs_is_let_through(message: Message) -> None:
    check_promise(1, message, STATE, LAST)


@pytest.mark.parametrize("message", BROKEN, ids=str)
def test_a_promise_that_a_crash_could_take_back(message: Message) -> None:
    with pytest.raises(Violation, match="but its disk has"):
        check_promise(1, message, STATE, LAST)


def test_a_replica_that_is_not_on_disk_says_nothing_but_pre_votes() -> None:
    check_promise(1, VoteRequest(2, 1, 1, 0, 0, pre_vote=True), None, ORIGIN)
    with pytest.raises(Violation):
        check_promise(1, VoteResponse(1, 2, 0, pre_vote=False, granted=False), None, ORIGIN)


def test_a_candidate_s_request_may_outlive_its_tail_once_the_term_has_a_leader() -> None:
    check_promise(1, VoteRequest(2, 1, 3, 9, 2), STATE, EntryId(6, 3, 98))

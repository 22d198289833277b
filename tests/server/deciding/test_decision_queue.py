"""One decision at a time, with the smallest agenda: a leader without Raft under it."""

from __future__ import annotations

from counting_coordinator import Addition, CountLeader, CountReplica

from quorumlog.server.deciding.decision_queue import RETRY_US
from quorumlog.server.deciding.stall_aware_clock import AwakeClock


def leader_of(replica: CountReplica, max_calls: int = 100) -> CountLeader:
    """Returns the leader of a replica, for its current term."""
    replica.leadership = CountLeader(replica, AwakeClock(0, 100_000), max_calls)
    return replica.leadership


def test_waiting_calls_become_one_command() -> None:
    replica = CountReplica()
    leader = leader_of(replica)
    leader.submit("a", 1)
    assert leader.queue.decide()
    leader.submit("a", 2)
    leader.submit("b", 5)
    assert not leader.queue.decide(), "a decision is in flight"
    assert leader.queue.decision_due is None
    assert not leader.log
    replica.apply()
    assert leader.log == ["a is 1"]
    assert leader.queue.decide()
    replica.apply()
    assert leader.log[1:] == ["a is 3", "b is 5"]
    assert replica.table.counts == {"a": 3, "b": 5}


def test_unchanged_keys_are_answered_at_once() -> None:
    replica = CountReplica()
    leader = leader_of(replica)
    leader.submit("quiet", 0)
    leader.submit("a", 1)
    leader.submit("a", 0)
    assert leader.queue.decide()
    assert leader.log == ["quiet is 0"]
    replica.apply()
    assert leader.log[1:] == ["a is 1", "a is 1"]


def test_refused_proposal_is_decided_again_in_order() -> None:
    """The log accepts nothing: calls, held calls and the agenda's own return to where they were, and the next decision
    gives the same answers."""
    replica = CountReplica(takes=False)
    leader = leader_of(replica)
    leader.submit("held", 1, holds=True)
    assert not leader.queue.decide()
    leader.held[0].holds = False
    leader.releases = True
    leader.submit("a", 1)
    leader.submit("a", 1)
    leader.extra.append(Addition("own", 1, leader))
    assert not leader.queue.decide()
    assert not leader.log
    assert leader.queue.decision_due == RETRY_US
    replica.takes = True
    assert not leader.queue.decide(), "it retries after a while"
    leader.clock.step(RETRY_US, 0)
    assert leader.queue.decide()
    replica.apply()
    assert leader.log == ["a is 1", "a is 2", "held is 1", "own is kept"]
    assert replica.table.counts == {"a": 2, "held": 1, "own": 1}


def test_end_refuses_all_and_says_what_is_unknown() -> None:
    replica = CountReplica()
    leader = leader_of(replica)
    leader.submit("a", 1)
    assert leader.queue.decide()
    leader.submit("b", 1, holds=False)
    leader.extra.append(Addition("own", 1, leader))
    leader.held.append(Addition("held", 1, leader))
    leader.queue.read(Addition("read", 0, leader), confirming_round=1)
    leader.end()
    assert leader.log == [
        "b +1 refused: NOT_COORDINATOR",
        "own +1 refused: NOT_COORDINATOR",
        "read +0 refused: NOT_COORDINATOR",
        "held +1 refused: NOT_COORDINATOR",
        "a +1 unknown: NOT_COORDINATOR",
    ]
    replica.apply()
    assert len(leader.log) == 5, "an entry that is applied later answers no client"


def test_entry_of_another_term_answers_no_client() -> None:
    replica = CountReplica()
    leader = leader_of(replica)
    leader.submit("a", 1)
    assert leader.queue.decide()
    leader.queue.applied(1, replica.raft.term + 1)
    assert not leader.log


def test_too_many_calls_are_refused() -> None:
    leader = leader_of(CountReplica(), max_calls=1)
    leader.submit("a", 1)
    leader.submit("a", 2)
    assert leader.log == ["a +2 refused: SERVER_BUSY"]


def test_doubtful_leader_decides_nothing() -> None:
    replica = CountReplica()
    leader = leader_of(replica)
    leader.queue.confirm_by(4)
    leader.submit("a", 1)
    assert leader.queue.decision_due is None
    assert not leader.queue.decide()
    replica.raft.confirmed_round = 4
    assert leader.queue.decide()


def test_reads_wait_for_round_and_index() -> None:
    replica = CountReplica()
    leader = leader_of(replica)
    replica.raft.commit_index = 5
    leader.queue.read(Addition("a", 0, leader), confirming_round=2)
    for confirmed, applied, answers in ((1, 5, 0), (2, 4, 0), (2, 5, 1)):
        replica.raft.confirmed_round, replica.raft.applied_index = confirmed, applied
        leader.queue.after_round()
        assert len(leader.log) == answers

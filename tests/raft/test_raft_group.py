"""One core at its edges: what it refuses, when it wants to be called, what it asks of its driver."""

from __future__ import annotations

from dataclasses import replace

import pytest
from raft_cluster import Cluster, Disk, Sealer, check_chain

from quorumlog.raft.errors import (
    CompactedError,
    InvariantViolationError,
    MalformedMessageError,
    NotLeaderError,
    ProposalRefusedError,
    Refusal,
    UnsupportedChangeError,
)
from quorumlog.raft.group import RaftGroup
from quorumlog.raft.options import RaftOptions
from quorumlog.raft.progress import ProgressState
from quorumlog.raft.replication import NEVER
from quorumlog.raft.types import (
    NO_NODE,
    ORIGIN,
    AppendRequest,
    AppendResponse,
    Configuration,
    EntryId,
    EntryKind,
    HardState,
    Heartbeat,
    HeartbeatResponse,
    InstallSnapshot,
    Message,
    RaftLogServices,
    RestoredReplica,
    Role,
    Snapshot,
    SnapshotData,
    VoteRequest,
    VoteResponse,
)


def entry(index: int, term: int) -> tuple[int, int, EntryKind, int, bytes]:
    return Sealer().entry(EntryKind.COMMAND, index, term, 0, b"x")


# -- starting -----------------------------------------------------------------------------------------------------


def start(cluster: Cluster, **changes: object) -> RaftGroup:
    """A core over an empty disk, with some of what was found there changed."""
    empty = RestoredReplica(
        node_id=1,
        group=7,
        configuration=Configuration((1, 2, 3)),
        hard_state=HardState(),
        last=ORIGIN,
        first_index=1,
        anchor=ORIGIN,
        applied=0,
    )
    services = RaftLogServices(Disk(Configuration((1, 2, 3))), cluster.sealer, check_chain=check_chain)
    return RaftGroup(replace(empty, **changes), services, RaftOptions(), cluster.rng, 0)  # type: ignore[arg-type]


@pytest.mark.scenario("2b", "7")
@pytest.mark.parametrize(
    ("changes", "story"),
    [
        ({"hard_state": HardState(1, 1, 0), "last": EntryId(3, 2, 9)}, "the log ends in term 2"),
        ({"hard_state": HardState(2, 1, 4), "last": EntryId(3, 2, 9)}, "the disk lost entries"),
        ({"hard_state": HardState(2, 1, 0), "last": EntryId(3, 2, 9), "applied": 4}, "the disk lost entries"),
        ({"first_index": 3}, "the log starts at 3"),
    ],
)
def test_a_disk_that_lost_something_is_noticed_at_the_start(changes: dict[str, object], story: str) -> None:
    with pytest.raises(InvariantViolationError, match=story):
        start(Cluster((1, 2, 3)), **changes)


def test_deadlines_at_the_start() -> None:
    cluster = Cluster((1, 2, 3), (4,))
    assert 600_000 <= cluster.core(1).next_deadline < 1_200_000
    assert cluster.core(4).next_deadline == NEVER
    # A single voter has no other voter to wait for.
    assert Cluster((1,)).core(1).next_deadline == 0


def test_a_single_voter_never_loses_its_quorum() -> None:
    cluster = Cluster((1,))
    cluster.elect(1)
    assert cluster.core(1).next_deadline == NEVER
    cluster.core(1).on_time(10**12)
    assert cluster.core(1).is_leader


# -- bad input ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "entries",
    [[entry(3, 1)], [entry(2, 1), entry(4, 1)], [entry(2, 2), entry(3, 1)], [entry(2, 9)], [entry(2, 0)]],
    ids=["gap before", "gap within", "term falls", "term of the future", "term before its predecessor"],
)
def test_entries_that_do_not_follow_are_refused_whole(entries: list[object]) -> None:
    cluster = Cluster((1, 2, 3))
    cluster.elect(1)
    core = cluster.core(2)
    before = (core.term, core.last_id)
    with pytest.raises(MalformedMessageError, match="node 1 sent entry"):
        core.step(0, AppendRequest(1, 2, 5, 1, 1, 0, entries))  # type: ignore[arg-type]
    assert (core.term, core.last_id) == before


def test_a_message_that_is_none_is_refused() -> None:
    with pytest.raises(MalformedMessageError, match="no Raft message"):
        Cluster((1, 2, 3)).core(1).step(0, Message(2, 1, 5))


@pytest.mark.parametrize("role", ["leader", "follower"])
def test_two_leaders_in_one_term_stop_the_node(role: str) -> None:
    cluster = Cluster((1, 2, 3))
    cluster.elect(1)
    receiver = 1 if role == "leader" else 2
    with pytest.raises(InvariantViolationError, match="lead"):
        cluster.core(receiver).step(0, Heartbeat(3, receiver, 1, 0, 1))


def test_an_acknowledgement_beyond_the_log_stops_the_leader() -> None:
    cluster = Cluster((1, 2, 3))
    cluster.elect(1)
    with pytest.raises(InvariantViolationError, match="node 2 acknowledges entry 9"):
        cluster.core(1).step(0, AppendResponse(2, 1, 1, 9))


def test_answers_of_strangers_change_nothing() -> None:
    cluster = Cluster((1, 2, 3))
    cluster.elect(1)
    cluster.core(1).step(0, AppendResponse(8, 1, 1, 9))
    assert 8 not in cluster.core(1).progress


def test_a_commit_index_reaches_only_what_the_leader_has_shown() -> None:
    cluster = Cluster((1, 2, 3))
    cluster.elect(1)
    cluster.propose(1, b"a")
    cluster.drain(1)
    for message in cluster.network:
        cluster.deliver(message)
    core = cluster.core(2)
    assert core.last_id.index == 2
    # A new leader has shown that it agrees up to 1; entry 2 here may be one that it replaces.
    core.step(0, AppendRequest(3, 2, 2, 1, 1, 2, []))
    assert core.commit_index == 1


# -- proposals ----------------------------------------------------------------------------------------------------


def test_a_follower_refuses_proposals_and_names_the_leader() -> None:
    cluster = Cluster((1, 2, 3))
    with pytest.raises(NotLeaderError, match="no leader is known"):
        cluster.propose(2, b"a")
    cluster.elect(1)
    with pytest.raises(NotLeaderError, match="ask node 1") as refusal:
        cluster.propose(2, b"a")
    assert refusal.value.leader_id == 1
    with pytest.raises(NotLeaderError):
        cluster.core(2).transfer_leadership(0, 3)


def test_refused_proposals_are_not_sealed_and_say_why() -> None:
    cluster = Cluster((1, 2, 3), options=RaftOptions(max_uncommitted_bytes=1))
    cluster.elect(1)
    cluster.propose(1, b"a")

    def never(*_: object) -> None:
        raise AssertionError("sealed")

    with pytest.raises(ProposalRefusedError) as refusal:
        cluster.core(1).propose(0, never)  # type: ignore[arg-type]
    assert refusal.value.reason is Refusal.TOO_MANY_UNCOMMITTED
    cluster.settle()
    cluster.core(1).transfer_leadership(0, 2)
    with pytest.raises(ProposalRefusedError) as refusal:
        cluster.core(1).propose(0, never)  # type: ignore[arg-type]
    assert refusal.value.reason is Refusal.TRANSFERRING
    assert cluster.core(1).is_transferring


def test_new_voters_are_learners_first_and_members_change_once_at_a_time() -> None:
    cluster = Cluster((1, 2, 3), spare=(4,))
    cluster.elect(1)
    core = cluster.core(1)
    with pytest.raises(UnsupportedChangeError, match="learners first"):
        core.propose_configuration(0, Configuration((1, 2, 4)))
    with pytest.raises(UnsupportedChangeError, match="cannot become learners"):
        core.propose_configuration(0, Configuration((1, 2), (3,)))
    with pytest.raises(UnsupportedChangeError, match="only their leader"):
        core.propose_configuration(0, Configuration((1, 2), (), (1, 2, 3)))
    core.propose_configuration(0, Configuration((1, 2, 3), (4,)))
    with pytest.raises(ProposalRefusedError) as refusal:
        core.propose_configuration(0, Configuration((1, 2, 3)))
    assert refusal.value.reason is Refusal.CONFIGURATION_PENDING
    assert core.configuration.learners == ()
    cluster.settle()
    assert cluster.core(4).configuration.learners == (4,)
    assert core.progress[4].state is ProgressState.REPLICATE


def test_a_removed_replica_is_kept_until_every_voter_has_that_on_disk_and_knows_it() -> None:
    cluster = Cluster((1, 2, 3), spare=(4,))
    cluster.elect(1)
    core = cluster.core(1)
    core.propose_configuration(0, Configuration((1, 2, 3), (4,)))
    cluster.settle()
    core.propose_configuration(0, Configuration((1, 2, 4)))
    cluster.settle(cut={4})
    assert core.configuration == Configuration((1, 2, 4))
    assert not core.is_configuration_everywhere
    for _ in range(3):
        core.heartbeat(0)
        cluster.settle()
    assert core.is_configuration_everywhere
    core.propose_configuration(0, Configuration((1, 2, 4), (3,)))
    assert not core.is_configuration_everywhere, "another change is under way"
    cluster.settle()
    assert not core.is_configuration_everywhere, "no node has reported that it has that one"
    core.heartbeat(0)
    cluster.settle()
    assert core.is_configuration_everywhere


def _restarted_with_a_change_on_disk() -> RaftGroup:
    """Node 2 of 1, 2, 3 with six entries on its disk; the third and the fourth replace 3 by 4, committed up to 3."""
    sealer, log, before = Sealer(), [], 0
    change = {3: Configuration((1, 2, 4), (), (1, 2, 3)), 4: Configuration((1, 2, 4))}
    for index in range(1, 7):
        if index in change:
            entry = sealer.config(index, 1, before, change[index])
        else:
            entry = sealer.entry(EntryKind.COMMAND, index, 1, before, b"x")
        log.append(entry)
        before = entry.hash
    cluster = Cluster((1, 2, 3), spare=(4,))
    disk = cluster.replicas[2].disk
    disk.log, disk.hard_state = log, HardState(1, 1, 3)
    cluster.start(2)
    return cluster.core(2)


@pytest.mark.parametrize("by_snapshot", [False, True])
def test_what_was_learned_of_a_change_is_promised_once_it_is_durable_and_a_sign_of_life_comes_at_once(
    by_snapshot: bool,
) -> None:
    core = _restarted_with_a_change_on_disk()
    if by_snapshot:
        last = core.log.last
        core.step(0, InstallSnapshot(1, 2, 1, Snapshot(last, Configuration((1, 2, 4)), SnapshotData(6, 1, 0, 0))))
    core.step(0, Heartbeat(1, 2, 1, 6, 9))
    assert core.commit_index == 6 > core.durable_commit
    assert [each.round for each in core.outbox.now if isinstance(each, HeartbeatResponse)] == [0]


def test_a_new_leader_waits_for_its_tail_before_it_changes_members() -> None:
    cluster = Cluster((1, 2, 3), spare=(4,))
    cluster.core(1).campaign(0)
    while not cluster.core(1).is_leader:
        cluster.drain(1)
        for node_id in cluster.up:
            cluster.drain(node_id)
            while cluster.replicas[node_id].unsynced:
                cluster.persist(node_id)
        for message in cluster.network:
            cluster.deliver(message)
        cluster.network = []
    assert not cluster.core(1).leads_committed
    cluster.settle()
    assert cluster.core(1).leads_committed


@pytest.mark.parametrize("to", [1, 4, 9])
def test_leadership_goes_to_another_voter_only(to: int) -> None:
    cluster = Cluster((1, 2, 3), (4,))
    cluster.elect(1)
    with pytest.raises(UnsupportedChangeError, match="another voter"):
        cluster.core(1).transfer_leadership(0, to)


# -- replication --------------------------------------------------------------------------------------------------


def test_a_commit_index_alone_is_sent_only_to_those_who_ask_for_it() -> None:
    cluster = Cluster((1, 2, 3))
    cluster.elect(1)
    core = cluster.core(1)
    cluster.propose(1, b"a")
    for peer in (2, 3):
        request = core.next_append(0, peer, 100)
        assert isinstance(request, AppendRequest)
        assert [e.data for e in request.entries] == [b"a"]
    assert not core.wants_append(2)
    core.step(0, AppendResponse(2, 1, 1, 2))
    core.step(0, AppendResponse(3, 1, 1, 2))
    assert core.commit_index == 2
    assert core.wants_append(2)
    assert not core.wants_append(2, commit_only=False)
    request = core.next_append(0, 2, 100)
    assert isinstance(request, AppendRequest)
    assert (request.commit, request.entries) == (2, [])
    assert not core.wants_append(2)
    assert core.next_append(0, 2, 100) is None


def test_copies_are_counted_by_durable_acknowledgements() -> None:
    cluster = Cluster((1, 2, 3))
    cluster.elect(1)
    cluster.propose(1, b"a")
    core = cluster.core(1)
    assert [core.match_of(n) for n in (1, 2, 3, 4)] == [1, 1, 1, 0]
    core.step(0, AppendResponse(2, 1, 1, 2))
    assert [core.match_of(n) for n in (1, 2, 3)] == [2, 1, 1]
    cluster.drain(1)
    cluster.persist(1)
    assert [core.match_of(n) for n in (1, 2, 3)] == [2, 2, 1]


@pytest.mark.scenario("15b")
def test_a_round_of_heartbeats_confirms_leadership_once_a_quorum_has_answered() -> None:
    cluster = Cluster((1, 2, 3))
    cluster.elect(1)
    core = cluster.core(1)
    first = core.heartbeat(0)
    cluster.drain(1)
    late = [replace(message) for message in cluster.network if isinstance(message, Heartbeat)]
    assert core.confirmed_round < first
    cluster.settle()
    assert core.confirmed_round == first
    second = core.heartbeat(0)
    for message in late:
        cluster.deliver(message)
        cluster.drain(message.to)
    for message in [m for m in cluster.network if m.to == 1]:
        cluster.deliver(message)
    # Answers to the first round say nothing of the second.
    assert core.confirmed_round == first < second
    assert cluster.core(2).confirmed_round == 0


def test_without_a_snapshot_to_offer_a_leader_waits_for_a_sign_of_life() -> None:
    cluster = Cluster((1, 2, 3))
    cluster.elect(1)
    cluster.propose(1, b"a")
    cluster.settle()
    cluster.compact(1, 2)
    core = cluster.core(1)
    core._snapshot_source = None
    core.peer_unreachable(0, 3)
    core.progress[3].match_index, core.progress[3].next_index = 0, 1
    assert core.wants_append(3)
    assert core.next_append(0, 3, 100) is None
    assert not core.wants_append(3)
    core.heartbeat(0)
    cluster.settle()
    assert core.progress[3].paused


def test_a_failed_snapshot_is_offered_again() -> None:
    cluster = Cluster((1, 2, 3))
    cluster.elect(1)
    cluster.crash(3)
    cluster.core(1).peer_lost(0, 3)
    cluster.propose(1, b"a")
    cluster.settle()
    cluster.compact(1, 2)
    core = cluster.core(1)
    cluster.start(3)
    core.heartbeat(0)
    for _ in range(3):
        cluster.drain(1, pull=False)
        messages, cluster.network = cluster.network, []
        for message in messages:
            cluster.deliver(message)
        for node_id in (2, 3):
            cluster.drain(node_id)
    assert isinstance(core.next_append(0, 3, 100), InstallSnapshot)
    assert core.progress[3].state is ProgressState.SNAPSHOT
    assert not core.wants_append(3)
    core.snapshot_status(0, 3, False)
    assert core.progress[3].state is ProgressState.PROBE
    core.heartbeat(0)
    cluster.settle()
    assert cluster.core(3).commit_index == 2


def test_an_idle_leader_keeps_nothing_in_memory() -> None:
    cluster = Cluster((1, 2, 3))
    cluster.elect(1)
    cluster.propose(1, b"abc")
    cluster.settle()
    core = cluster.core(1)
    assert core.memory_bytes == 3
    assert cluster.core(2).memory_bytes == 0
    core.heartbeat(0)
    cluster.settle()
    core.heartbeat(0)
    assert core.memory_bytes == 0
    assert [e.data for e in core.entries_between(1, 2, 100)] == [b"", b"abc"]
    cluster.compact(1, 1)
    with pytest.raises(CompactedError, match="the log starts at 2"):
        core.entries_between(1, 2, 100)


# -- durability ---------------------------------------------------------------------------------------------------


def test_one_completion_may_stand_for_all_writes_before_it() -> None:
    cluster = Cluster((1, 2, 3))
    cluster.elect(1)
    cluster.propose(1, b"a")
    first = cluster.core(1).take_ready()
    cluster.propose(1, b"b")
    second = cluster.core(1).take_ready()
    for ready in (first, second):
        cluster.replicas[1].disk.sync(ready)
    assert second.durable is not None
    cluster.core(1).on_durable(0, second.durable)
    assert cluster.core(1).durable_index == 3


def test_a_completion_says_nothing_of_an_entry_that_was_appended_while_others_were_handed_out() -> None:
    """A joint configuration that is applied is left at once: that entry is of the next write."""
    cluster = Cluster((1, 2, 3))
    cluster.elect(1)
    core, disk = cluster.core(1), cluster.replicas[1].disk
    core.propose_configuration(0, Configuration((1, 2)))
    ready = core.take_ready()
    disk.sync(ready)
    assert ready.durable is not None
    core.on_durable(0, ready.durable)
    joint = core.last_id
    core.step(0, AppendResponse(2, 1, core.term, joint.index, False))
    cluster.propose(1, b"one more")
    ready = core.take_ready()
    disk.sync(ready)
    assert core.configuration.is_joint
    assert core.last_id.index == joint.index + 2 == disk.last.index + 1
    assert ready.durable is not None
    assert ready.durable.last == disk.last
    core.on_durable(0, ready.durable)
    assert core.durable_index == disk.last.index


def test_a_completion_of_more_than_was_handed_out_stops_the_node() -> None:
    cluster = Cluster((1, 2, 3))
    cluster.elect(1)
    core = cluster.core(1)
    cluster.propose(1, b"a")
    token = core.take_ready().durable
    assert token is not None
    cluster.propose(1, b"b")
    with pytest.raises(InvariantViolationError, match="was never handed to storage"):
        core.on_durable(0, token._replace(last=core.last_id))


@pytest.mark.scenario("2a")
def test_no_message_carries_a_term_that_could_be_forgotten() -> None:
    cluster = Cluster((1, 2, 3))
    core = cluster.core(1)
    core.step(0, Heartbeat(2, 1, 5, 0, 1))
    ready = core.take_ready()
    assert ready.messages == []
    assert ready.hard_state == HardState(5, NO_NODE, 0)
    assert [message.term for message in ready.messages_after_durable] == [5]
    assert ready.durable is not None
    core.on_durable(0, ready.durable)
    core.step(0, Heartbeat(2, 1, 5, 0, 2))
    assert [message.term for message in core.take_ready().messages] == [5]


# -- elections ----------------------------------------------------------------------------------------------------


def test_of_two_who_ask_at_once_one_gives_up_before_the_vote_is_split() -> None:
    cluster = Cluster((1, 2, 3))
    cluster.crash(1)
    for node_id in (2, 3):
        cluster.core(node_id).campaign(0)
        cluster.drain(node_id)
    for message in [m for m in cluster.network if m.to != 1]:
        cluster.deliver(message)
    assert (cluster.core(2).role, cluster.core(3).role) == (Role.PRE_CANDIDATE, Role.FOLLOWER)
    cluster.settle()
    assert cluster.core(2).is_leader
    assert cluster.core(2).term == 1


def test_a_preferred_rival_that_is_behind_gives_up_for_the_longer_log() -> None:
    cluster = Cluster((1, 2, 3))
    cluster.elect(1)
    cluster.propose(1, b"only node 3 has it")
    cluster.settle(cut={2})
    cluster.crash(1)
    for node_id in (2, 3):
        cluster.core(node_id).peer_lost(0, 1)
        cluster.core(node_id).campaign(0)
        cluster.drain(node_id)
    cluster.settle()
    assert cluster.core(3).is_leader
    assert cluster.core(2).leader_id == 3


def test_rivals_who_split_the_vote_of_a_dead_leader_try_again_soon() -> None:
    cluster = Cluster((1, 2, 3))
    cluster.elect(1)
    cluster.crash(1)
    for node_id, rival in ((2, 3), (3, 2)):
        core = cluster.core(node_id)
        core.peer_lost(0, 1)
        core.campaign(0)
        # Each has the other's pre-vote, and so both ask for votes in the same term.
        core.step(0, VoteResponse(rival, node_id, 2, True, True))
    assert [cluster.core(n).role for n in (2, 3)] == [Role.CANDIDATE, Role.CANDIDATE]
    for node_id in (2, 3):
        cluster.drain(node_id)
        cluster.persist(node_id)
    for message in [m for m in cluster.network if m.to != 1 and m.term == 2 and not getattr(m, "pre_vote", False)]:
        cluster.deliver(message)
        cluster.drain(message.to)
    for message in [m for m in cluster.network if isinstance(m, VoteResponse) and not m.pre_vote]:
        cluster.deliver(message)
    assert [cluster.core(n).role for n in (2, 3)] == [Role.FOLLOWER, Role.FOLLOWER]
    assert all(cluster.core(n).next_deadline <= 120_000 for n in (2, 3))


def test_a_lease_holds_up_votes_but_not_a_transfers() -> None:
    cluster = Cluster((1, 2, 3))
    cluster.elect(1)
    core = cluster.core(2)
    request = VoteRequest(3, 2, 2, 5, 1)
    core.step(0, replace(request))
    core.step(0, replace(request, pre_vote=True))
    assert core.term == 1
    assert not core.has_ready()
    core.step(0, replace(request, transfer=True))
    assert (core.term, core.vote) == (2, 3)


def test_a_granted_pre_vote_is_no_leader_contact() -> None:
    cluster = Cluster((1, 2, 3))
    core = cluster.core(2)
    deadline = core.next_deadline
    core.step(1000, VoteRequest(3, 2, 1, 0, 0, True))
    assert core.next_deadline == deadline
    assert core.term == 0


def test_a_leader_does_not_sleep_on_when_a_follower_wakes() -> None:
    cluster = Cluster((1, 2, 3))
    cluster.elect(1)
    cluster.core(1).heartbeat(cluster.now)
    cluster.settle()
    assert cluster.core(1).quiesce(cluster.now, {2, 3})
    cluster.settle()
    assert all(cluster.core(node).quiescent for node in (1, 2, 3))
    cluster.core(3).wake(cluster.now, {})
    cluster.settle()
    # It heartbeats again: else the one who woke would depose it (scenario 17).
    assert not cluster.core(1).quiescent
    assert cluster.core(1).next_deadline < NEVER


def test_nobody_campaigns_over_a_committed_configuration_that_is_not_applied() -> None:
    cluster = Cluster((1, 2, 3), spare=(4,))
    cluster.elect(1)
    core = cluster.core(2)
    last = core.last_id
    change = cluster.sealer.config(last.index + 1, 1, last.hash, Configuration((1, 2, 3), (4,)))
    core.step(0, AppendRequest(1, 2, 1, last.index, last.term, last.index + 1, [change]))
    core.campaign(0)
    assert core.role is Role.FOLLOWER
    core.take_ready()
    assert core.configuration.learners == (4,)
    core.campaign(0)
    assert core.role is Role.PRE_CANDIDATE


def test_a_learner_votes_when_asked_and_never_campaigns() -> None:
    cluster = Cluster((1, 2, 3), (4,))
    core = cluster.core(4)
    core.step(0, VoteRequest(3, 4, 1, 0, 0))
    assert (core.term, core.vote) == (1, 3)
    core.campaign(0)
    core.on_time(10**9)
    assert core.role is Role.FOLLOWER
    assert core.next_deadline == NEVER


def test_a_leader_that_lost_all_connections_steps_down_after_a_short_grace() -> None:
    cluster = Cluster((1, 2, 3))
    cluster.elect(1)
    cluster.core(1).heartbeat(0)
    cluster.settle()
    core = cluster.core(1)
    core.peer_lost(0, 2)
    assert core.next_deadline == 600_000
    core.peer_lost(0, 3)
    assert core.next_deadline == 120_000
    assert not core.progress[2].recent_active
    core.on_time(119_999)
    assert core.is_leader
    core.on_time(120_000)
    assert not core.is_leader
    assert core.leader_id == NO_NODE


def test_a_vote_is_given_once_in_a_term_and_repeated_to_the_same_candidate() -> None:
    core = Cluster((1, 2, 3)).core(1)
    for candidate, granted in ((2, True), (3, False), (2, True)):
        core.step(0, VoteRequest(candidate, 1, 1, 0, 0))
        ready = core.take_ready()
        answers = [*ready.messages, *ready.messages_after_durable]
        assert [(answer.to, answer.granted) for answer in answers] == [(candidate, granted)]  # type: ignore[attr-defined]
        if ready.durable is not None:
            core.on_durable(0, ready.durable)


def test_a_candidate_with_an_older_log_gets_no_vote_but_its_term_counts() -> None:
    cluster = Cluster((1, 2, 3))
    cluster.elect(1)
    core = cluster.core(2)
    core.step(2_000_000, VoteRequest(3, 2, 4, 0, 0))
    assert (core.term, core.vote) == (4, NO_NODE)

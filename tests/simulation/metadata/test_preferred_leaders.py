"""Leaderships return to the preferred leaders, and stay with them, on virtual time."""

from __future__ import annotations

import pytest
from google.protobuf.message import Message as ProtoMessage
from quiet_cluster import SECOND, TOPIC, Writing

from quorumlog.chaos.checkers.history import OperationOutcome
from quorumlog.server.config.options import BalanceOptions
from quorumlog.server.metadata.records import PartitionRecord
from quorumlog.simulator.world.clients import Unanswered
from quorumlog.v1 import admin_pb2
from quorumlog.v1.errors_pb2 import ErrorCode

SOON = BalanceOptions(check_interval_us=SECOND, grace_us=SECOND // 2)
NEVER = BalanceOptions(enabled=False)


def record(writing: Writing, node: int) -> PartitionRecord:
    image = writing.cluster.processes[node].image
    assert image is not None
    return next(iter(image.partitions.values()))


def lose_and_return(writing: Writing) -> int:
    """Kills the preferred leader, lets another one lead, and starts it again. Returns its node."""
    preferred = record(writing, 1).replicas[0]
    assert writing.leader().node_id == preferred
    writing.cluster.processes[preferred].die(silent=False)
    writing.run(1.5)
    assert writing.leader().node_id != preferred
    writing.cluster.start(preferred)
    return preferred


def elect(writing: Writing, node: int, *numbers: int) -> admin_pb2.ElectLeadersResponse:
    answers: list[ProtoMessage | Unanswered] = []
    request = admin_pb2.ElectLeadersRequest(timeout_ms=2_000)
    for number in numbers:
        request.partitions.add(topic=TOPIC, partition=number)
    writing.cluster.request("admin", node, request, answers.append)
    writing.scheduler.run(writing.scheduler.now + 5 * SECOND, lambda: bool(answers))
    assert isinstance(answers[0], admin_pb2.ElectLeadersResponse)
    return answers[0]


@pytest.mark.parametrize("seed", range(1, 6))
def test_a_returned_preferred_leader_leads_again_and_no_producer_notices(seed: int) -> None:
    writing = Writing(seed, SOON)
    preferred = lose_and_return(writing)
    returning = writing.scheduler.now
    writing.run(6)
    assert writing.leader().node_id == preferred
    gap = writing.longest_gap_ms(returning)
    print(f"seed {seed}: longest gap while the leadership returned {gap:.0f} ms")
    assert gap < 300
    assert not any(writing.history.sends(OperationOutcome.FAIL))


@pytest.mark.parametrize("seed", range(1, 4))
def test_a_healthy_cluster_hands_nothing_over_and_keeps_its_terms(seed: int) -> None:
    writing = Writing(seed, BalanceOptions(check_interval_us=SECOND // 10, grace_us=0))
    lose_and_return(writing)
    writing.run(8)
    elections = writing.cluster.invariants.elections
    writing.run(20)
    assert writing.cluster.invariants.elections == elections
    assert writing.leader().node_id == record(writing, 1).replicas[0]


def test_without_balancing_a_leadership_stays_until_it_is_asked_for_at_any_node() -> None:
    writing = Writing(1, NEVER)
    preferred = lose_and_return(writing)
    writing.run(15)
    others = [node for node in writing.cluster.node_ids if node != preferred]
    assert writing.leader().node_id != preferred
    (result,) = elect(writing, next(node for node in others if node != writing.leader().node_id)).results
    assert (result.topic, result.partition, result.error.code) == (TOPIC, 0, ErrorCode.NONE)
    assert writing.leader().node_id == preferred
    # All is as it should be: nothing to do, and to ask for it by name says so.
    assert not elect(writing, preferred).results
    (result,) = elect(writing, others[0], 0).results
    assert result.error.code == ErrorCode.ELECTION_NOT_NEEDED
    assert not any(writing.history.sends(OperationOutcome.FAIL))


def test_nothing_is_handed_to_a_preferred_leader_that_is_down_or_not_in_sync() -> None:
    writing = Writing(1, NEVER)
    preferred = record(writing, 1).replicas[0]
    writing.cluster.processes[preferred].die(silent=False)
    writing.run(10)
    leader = writing.leader().node_id
    for node in (node for node in writing.cluster.node_ids if node != preferred):
        (result,) = elect(writing, node, 0).results
        assert result.error.code == ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE
        assert result.error.retriable
    assert writing.leader().node_id == leader


def test_partitions_that_do_not_exist_are_named_in_the_answer() -> None:
    writing = Writing(1, NEVER)
    (result,) = elect(writing, 1, 5).results
    assert (result.partition, result.error.code) == (5, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)

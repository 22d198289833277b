"""A leader that has been replaced and has not noticed names no end of a partition that others have passed."""

from __future__ import annotations

import pytest
from quiet_cluster import SECOND, TOPIC, Writing

from quorumlog.chaos.checkers.history import OperationOutcome
from quorumlog.raft.group import RaftGroup
from quorumlog.server.metadata.records import METADATA_GROUP
from quorumlog.v1 import data_plane_pb2 as pb

SEEDS = range(1, 11)


def end_request(writing: Writing) -> pb.ListOffsetsRequest:
    """Asks for the end of the partition."""
    image = writing.leader().image
    assert image is not None
    request = pb.ListOffsetsRequest(timeout_ms=500)
    for topic in image.topics.values():
        request.partitions.add(topic_id=topic.topic_id, partition=0, timestamp_ms=-1, leader_epoch=-1)
    return request


def acknowledged_end(writing: Writing) -> int:
    """The end of what has been acknowledged so far."""
    return max(send.offset for send in writing.history.sends(OperationOutcome.OK)) + 1


def ends_in(answers: list[object]) -> list[int]:
    """The ends in those answers that are not errors."""
    results = [answer.results[0] for answer in answers if isinstance(answer, pb.ListOffsetsResponse)]
    return [result.offset for result in results if not result.HasField("error")]


def ask_a_severed_leader(seed: int) -> tuple[list[int], int] | None:
    """Cuts the leader off, lets its successor acknowledge, and asks the old one for the end of the partition.

    Returns:
        The ends that it named, and the end of what was acknowledged before; None if it had already stepped down.
    """
    writing = Writing(seed)
    old = writing.leader()
    request = end_request(writing)
    # A round that was confirmed before says nothing of a read that comes later (scenario 15).
    early: list[object] = []
    writing.cluster.request(f"reader of {TOPIC}", old.node_id, request, early.append)
    writing.run(0.05)
    assert ends_in(early)
    writing.cluster.network.sever(old.node_id)
    severed = writing.scheduler.now
    writing.scheduler.run(
        severed + SECOND,
        lambda: any(send.leader_epoch > 1 for send in writing.history.sends(OperationOutcome.OK)),
    )
    if not any(group and replica.raft.is_leader for group, replica in old.replicas.items()):
        return None
    acknowledged = acknowledged_end(writing)
    answers: list[object] = []
    writing.cluster.request(f"reader of {TOPIC}", old.node_id, request, answers.append)
    writing.run(1)
    return ends_in(answers), acknowledged


@pytest.mark.scenario("15b")
def test_a_severed_leader_names_no_end_that_its_successor_has_passed() -> None:
    requests = [outcome for outcome in map(ask_a_severed_leader, SEEDS) if outcome is not None]
    assert requests, "in no seed did the old leader still take itself for one"
    assert all(end >= acknowledged for ends, acknowledged in requests for end in ends)


@pytest.mark.scenario("15b")
def test_without_the_quorum_s_confirmation_it_would(monkeypatch: pytest.MonkeyPatch) -> None:
    # The metadata group keeps its own: the age of an image that no quorum has confirmed is another violation.
    confirmed = RaftGroup.confirmed_round.__get__
    monkeypatch.setattr(
        RaftGroup,
        "confirmed_round",
        property(lambda self: confirmed(self) if self.group == METADATA_GROUP else 1 << 60),
    )
    requests = [outcome for outcome in map(ask_a_severed_leader, SEEDS) if outcome is not None]
    assert any(end < acknowledged for ends, acknowledged in requests for end in ends)


@pytest.mark.scenario("15a")
@pytest.mark.parametrize("seed", range(1, 7))
def test_a_new_leader_names_no_end_below_what_was_acknowledged_not_even_in_its_first_step(seed: int) -> None:
    # Found by seed 20499: asked in the very step in which its first entry commits, and before that was applied.
    writing = Writing(seed)
    request = end_request(writing)
    writing.leader().die(silent=False)
    writing.run(0.01)
    acknowledged = acknowledged_end(writing)
    answers: list[object] = []
    for moment in range(2_000):
        for node, process in writing.cluster.processes.items():
            if process.running:
                client = f"reader {moment % 10}"
                writing.cluster.request(client, node, request, answers.append)
        writing.run(0.000_15)
    writing.run(1)
    ends = ends_in(answers)
    assert ends
    assert min(ends) >= acknowledged

"""Confirmation of linearizable reads by heartbeat rounds."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace

import pytest

from quorumlog.server.config.options import NodeOptions
from quorumlog.server.hosting.read_index import HeartbeatRounds
from quorumlog.server.requests.linearizable_reads import MetadataReads
from quorumlog.v1 import peer_pb2


@pytest.mark.scenario("15b")
def test_questions_of_one_step_share_a_round_and_none_gets_one_from_before_it_was_asked() -> None:
    sent: list[int] = []

    def confirm(group: int) -> int:
        sent.append(group)
        return len(sent)

    rounds = HeartbeatRounds(confirm)
    assert [rounds.begin(100, 7), rounds.begin(100, 7)] == [1, 1]
    assert rounds.begin(101, 7) == 2
    assert rounds.begin(101, 8) == 3
    assert sent == [7, 7, 8]


def test_a_round_that_could_not_begin_is_tried_again() -> None:
    answers = iter((None, 5))
    rounds = HeartbeatRounds(lambda group: next(answers))
    assert rounds.begin(100, 7) is None
    assert rounds.begin(100, 7) == 5


def test_a_read_waits_until_the_image_has_applied_what_the_controller_names() -> None:
    image = SimpleNamespace(applied_index=7)
    requests: list[Callable[[peer_pb2.ControllerResponse], None]] = []
    client = SimpleNamespace(ask=lambda deadline, request, answered: requests.append(answered))
    reads = MetadataReads(
        NodeOptions(node_id=2, address="b:1", controllers={1: "a:1"}),
        SimpleNamespace(image=image),
        client,
        HeartbeatRounds(lambda group: None),
    )
    answers: list[object] = []
    reads.read(1, 1_000, answers.append)
    reads.after_events(2, 0)
    requests[0](peer_pb2.ControllerResponse(metadata_read_index=peer_pb2.MetadataReadIndexResponse(index=9)))
    for image.applied_index in (7, 8):
        reads.after_round()
        assert answers == []
    image.applied_index = 9
    reads.after_round()
    assert answers == [None]


@pytest.mark.scenario("15b")
def test_a_question_without_hurry_is_confirmed_by_the_next_heartbeat_and_causes_none() -> None:
    raft = SimpleNamespace(
        leads_committed=True, is_leader=True, term=3, commit_index=9, newest_round=4, confirmed_round=4
    )
    sent: list[int] = []
    reads = MetadataReads(
        NodeOptions(node_id=2, address="b:1", controllers={1: "a:1"}),
        SimpleNamespace(raft=raft),
        SimpleNamespace(),
        HeartbeatRounds(sent.append),
    )
    answers: list[peer_pb2.ControllerResponse] = []
    question = peer_pb2.MetadataReadIndex(timeout_ms=1_000, unhurried=True)
    reads.serve(1, peer_pb2.ControllerRequest(request_id=5, metadata_read_index=question), answers.append)
    reads.after_round()
    assert answers == [], "the round that is under way may have been answered before the question came"
    raft.newest_round = raft.confirmed_round = 5
    reads.after_round()
    assert [(each.request_id, each.metadata_read_index.index) for each in answers] == [(5, 9)]
    assert sent == []

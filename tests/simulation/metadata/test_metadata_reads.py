"""Linearizable reads of the metadata, on virtual time: as new as the question, or an error in time."""

from __future__ import annotations

import pytest
from google.protobuf.message import Message as ProtoMessage
from quiet_cluster import SECOND, Writing

from quorumlog.server.requests.metadata_staleness import UNKNOWN_AGE_MS
from quorumlog.simulator.world.clients import Unanswered
from quorumlog.v1 import admin_pb2
from quorumlog.v1 import data_plane_pb2 as pb
from quorumlog.v1.errors_pb2 import ErrorCode

Answers = list[ProtoMessage | Unanswered]


def controller(writing: Writing) -> int:
    return next(
        node for node, process in writing.cluster.processes.items() if process.running and leads_metadata(writing, node)
    )


def leads_metadata(writing: Writing, node: int) -> bool:
    return writing.cluster.processes[node].replicas[0].raft.leads_committed


def ask(writing: Writing, node: int, *, linearizable: bool = True, timeout_ms: int = 1_000) -> Answers:
    answers: Answers = []
    request = pb.MetadataRequest(all_topics=True, linearizable=linearizable, timeout_ms=timeout_ms)
    writing.cluster.request(f"reader-{node}", node, request, answers.append)
    return answers


def wait(writing: Writing, *asked: Answers) -> list[pb.MetadataResponse]:
    assert writing.scheduler.run(writing.scheduler.now + 5 * SECOND, lambda: all(asked))
    given = [answers[0] for answers in asked]
    responses = [answer for answer in given if isinstance(answer, pb.MetadataResponse)]
    assert len(responses) == len(given), given
    return responses


def create(writing: Writing, node: int, name: str) -> None:
    answers: Answers = []
    request = admin_pb2.CreateTopicsRequest(timeout_ms=2_000)
    request.topics.add(name=name, num_partitions=1, replication_factor=3)
    writing.cluster.request("admin", node, request, answers.append)
    assert writing.scheduler.run(writing.scheduler.now + 5 * SECOND, lambda: bool(answers))
    assert isinstance(answers[0], admin_pb2.CreateTopicsResponse)
    assert answers[0].results[0].error.code == ErrorCode.NONE


@pytest.mark.parametrize("seed", range(1, 4))
def test_what_one_node_has_acknowledged_every_node_shows(seed: int) -> None:
    writing = Writing(seed)
    for number in range(4):
        create(writing, 1 + number % 3, f"new{number}")
        for response in wait(writing, *(ask(writing, node) for node in writing.cluster.node_ids)):
            assert f"new{number}" in {topic.name for topic in response.topics}


def test_questions_of_one_moment_share_heartbeat_rounds() -> None:
    writing = Writing(1)
    leader = writing.cluster.processes[controller(writing)].replicas[0].raft
    node = next(node for node in writing.cluster.node_ids if node != controller(writing))
    before = leader.confirmed_round
    began = writing.scheduler.now
    wait(writing, *(ask(writing, node) for _ in range(50)))
    rounds = leader.confirmed_round - before
    print(f"50 questions: {rounds} rounds in {(writing.scheduler.now - began) / 1000:.1f} ms")
    # They arrive over three milliseconds, and the usual heartbeats come on top.
    assert rounds <= 12


def test_a_node_that_is_cut_off_says_so_in_time_and_still_answers_other_reads() -> None:
    writing = Writing(1)
    old = controller(writing)
    for other in (node for node in writing.cluster.node_ids if node != old):
        writing.cluster.network.cut(old, other)
        writing.cluster.network.cut(other, old)
    late, plain = ask(writing, old, timeout_ms=800), ask(writing, old, linearizable=False)
    began = writing.scheduler.now
    refused, answered = wait(writing, late, plain)
    assert refused.error.code == ErrorCode.REQUEST_TIMED_OUT
    assert refused.error.retriable
    assert not refused.topics
    assert answered.topics
    assert writing.scheduler.now - began < 1.2 * SECOND


def test_while_the_controller_is_replaced_a_read_waits_for_the_new_one() -> None:
    writing = Writing(1)
    old = controller(writing)
    writing.cluster.processes[old].die(silent=False)
    node = next(node for node in writing.cluster.node_ids if node != old)
    (response,) = wait(writing, ask(writing, node, timeout_ms=3_000))
    assert not response.HasField("error")
    assert response.controller_id not in (old, -1)


def ask_a_severed_controller(seed: int) -> pb.MetadataResponse | None:
    """Cuts the controller off, lets its successor create a topic, and asks the old one what there is.

    Returns:
        Its answer; None if it had already stepped down.
    """
    writing = Writing(seed)
    old = controller(writing)
    writing.cluster.network.sever(old)
    others = [node for node in writing.cluster.node_ids if node != old]
    writing.scheduler.run(writing.scheduler.now + SECOND, lambda: any(leads_metadata(writing, node) for node in others))
    create(writing, next(node for node in others if leads_metadata(writing, node)), "newer")
    if not leads_metadata(writing, old):
        return None
    (answer,) = wait(writing, ask(writing, old, timeout_ms=500))
    return answer


@pytest.mark.scenario("15b")
def test_a_severed_controller_shows_no_metadata_that_its_successor_has_passed() -> None:
    answers = [ask_a_severed_controller(seed) for seed in range(1, 7)]
    fooled = [answer for answer in answers if answer is not None]
    assert fooled, "every controller noticed in time: nothing was tried"
    for answer in fooled:
        assert answer.HasField("error"), answer.topics


def test_an_age_counts_from_what_a_controller_has_confirmed() -> None:
    writing = Writing(1)
    node = next(node for node in writing.cluster.node_ids if node != controller(writing))
    writing.scheduler.run(writing.scheduler.now + SECOND)
    (fresh,) = wait(writing, ask(writing, node, linearizable=False))
    assert fresh.image_age_ms < 1_000
    for other in (other for other in writing.cluster.node_ids if other != node):
        # It receives the controller's heartbeats all the time, but no node receives its messages.
        writing.cluster.network.cut(node, other)
    writing.scheduler.run(writing.scheduler.now + 3 * SECOND)
    (old,) = wait(writing, ask(writing, node, linearizable=False))
    assert old.image_age_ms > 2_000


def test_a_node_that_comes_back_alone_knows_of_no_bound() -> None:
    writing = Writing(1)
    for process in writing.cluster.processes.values():
        process.die(silent=False)
    writing.cluster.start(2)
    writing.scheduler.run(writing.scheduler.now + SECOND)
    (answer,) = wait(writing, ask(writing, 2, linearizable=False))
    assert answer.topics
    assert answer.image_age_ms == UNKNOWN_AGE_MS

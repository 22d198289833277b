"""Explanation of a record's way: the rule that decided, who decided, and where each part lies on the time line."""

from __future__ import annotations

from typing import Literal

import pytest

from quorumlog.sdk.producer.explanation import NO_TRACE, BatchNotes, LeaderTimes, RecordExplanation
from quorumlog.sdk.types import RecordMetadata
from quorumlog.v1 import data_plane_pb2 as pb

PLACE = RecordMetadata("orders", 0, 12, 1_700_000_000_000)
ALL: Literal["all"] = "all"


def told(durable: dict[int, int | None], *, copies: int = 2, witness: int | None = None) -> pb.BatchTrace:
    """A trace of node 1, which leads; when each node's disk had the batch, in µs."""
    trace = pb.BatchTrace(
        node_id=1,
        appended_us=100,
        answered_us=3_000,
        voters=len(durable),
        copies_needed=copies,
        majority=len(durable) // 2 + 1,
        min_insync_replicas=1,
        committed_us=2_000,
    )
    for node, durable_us in durable.items():
        trace.replicas.add(node_id=node, durable_us=durable_us, sync_us=None, witness=node == witness)
    return trace


def explained(trace: pb.BatchTrace | None, acks: int = -1) -> RecordExplanation:
    """Explains a record that was taken at second 5, sent 1 ms later and acknowledged after 6 ms."""
    notes = BatchNotes()
    notes.taken_s, notes.batched_s = 5.0, 5.0005
    notes.sent(5.001)
    notes.answered(5.006, pb.ProduceResponse(trace=trace))
    return notes.explain(PLACE, acks)


@pytest.mark.parametrize(
    ("durable", "copies", "witness", "acks", "decided"),
    [
        ({1: 900, 2: 1_500, 3: 2_500}, 2, None, ALL, 2),
        ({1: 2_500, 2: 1_500, 3: 900}, 2, None, ALL, 2),
        ({1: 900, 2: 1_500, 3: 2_500}, 3, None, ALL, 3),
        ({1: 900, 2: 1_500, 3: None}, 2, None, ALL, 2),
        ({1: 900, 2: None, 3: None}, 2, None, ALL, None),
        ({1: 900, 2: 1_500, 3: 2_500}, 2, 2, ALL, 3),
        ({1: 2_500, 2: 1_500, 3: 900}, 2, None, 1, 1),
        ({1: None, 2: 1_500, 3: 900}, 2, None, 1, None),
        ({1: 700}, 1, None, ALL, 1),
    ],
)
def test_who_decided_is_the_last_that_the_rule_needed(
    durable: dict[int, int | None],
    copies: int,
    witness: int | None,
    acks: Literal[1, "all"],
    decided: int | None,
) -> None:
    assert LeaderTimes.of(told(durable, copies=copies, witness=witness)).decided_by(acks) == decided


def test_the_leaders_times_are_laid_into_the_middle_of_the_requests() -> None:
    way = explained(told({1: 900, 2: 1_500, 3: None}))
    assert (way.batched_us, way.sent_us, way.answered_us, way.on_the_way_us) == (500, 1_000, 6_000, 2_000)
    assert [(each.who, each.begin_us, each.end_us, each.decided) for each in way.stages] == [
        ("producer", 0, 500, False),
        ("producer", 1_000, 6_000, False),
        ("node 1, leader", 2_000, 2_100, False),
        ("node 1, leader", 2_100, 2_900, False),
        ("node 2, follower", 2_100, 3_500, True),
        ("node 3, follower", 2_100, None, False),
        ("node 1, leader", 3_500, 5_000, False),
    ]


def test_the_rule_names_what_the_answer_waited_for() -> None:
    assert explained(told({1: 900, 2: 1_500, 3: None}, copies=1)).rule == (
        "acks=all: 2 of the 3 that vote have it, and 1 disk with records (min.insync.replicas=1)"
    )
    assert explained(told({1: 900}), acks=1).rule == "acks=1: the leader's own disk"


def test_what_a_disk_did_not_tell_is_not_known_and_not_nothing() -> None:
    trace = told({1: 900, 2: 1_500})
    trace.replicas[1].sync_us = 0
    leader = LeaderTimes.of(trace)
    assert [each.sync_us for each in leader.replicas] == [None, 0]


@pytest.mark.parametrize(
    ("trace", "why"), [(None, NO_TRACE), (pb.BatchTrace(untraced="one at a time"), "one at a time")]
)
def test_without_a_trace_the_producers_own_times_are_told(trace: pb.BatchTrace | None, why: str) -> None:
    way = explained(trace)
    assert (way.untraced, way.leader, way.decided_by, way.on_the_way_us) == (why, None, None, None)
    assert [each.who for each in way.stages] == ["producer", "producer"]


def test_a_leader_that_took_longer_than_the_request_leaves_nothing_for_the_way() -> None:
    """Two clocks need not run at the same pace."""
    trace = told({1: 900, 2: 1_500})
    trace.answered_us = 9_000
    assert explained(trace).on_the_way_us == 0

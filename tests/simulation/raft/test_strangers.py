"""A node that is no member of a group has no say in it, whatever it claims."""

from __future__ import annotations

import pytest
from quiet_cluster import Writing

from quorumlog.raft.types import AppendRequest, Heartbeat, Message, VoteRequest
from quorumlog.server.events import FrameReceived, PeerFrame, Stream

STRANGER = 99
HIGHER = 1_000


@pytest.mark.parametrize("ahead", [0, HIGHER])
def test_a_stranger_deposes_nobody(ahead: int) -> None:
    writing = Writing(seed=1)
    process = writing.leader()
    group, raft = next((group, replica.raft) for group, replica in process.replicas.items() if group)
    term = raft.term
    claims: list[Message] = [
        Heartbeat(STRANGER, process.node_id, term + ahead, 0, 1),
        AppendRequest(STRANGER, process.node_id, term + ahead, 0, 0, 0),
        VoteRequest(STRANGER, process.node_id, term + ahead, 1 << 40, term + ahead, transfer=True),
    ]
    acknowledged = len(writing.history)
    for claim in claims:
        process.deliver(FrameReceived(STRANGER, PeerFrame(Stream.CONTROL, messages=[(group, claim)])))
    writing.run(0.5)
    assert process.running
    assert raft.is_leader
    assert raft.term == term
    assert len(writing.history) > acknowledged + 50, "writing went on"

"""A node that is not a member of a group has no say in it, whatever it claims."""

from __future__ import annotations

import pytest
from quiet_cluster import Writing

from quorumlog.raft.types import AppendRequest, Heartbeat, Message, VoteRequest
from quorumlog.server.metadata.records import METADATA_GROUP
from quorumlog.server.step.events import FrameReceived, Lease, PeerDisconnected, PeerFrame, Stream
from quorumlog.v1 import peer_pb2

STRANGER = 99
HIGHER = 1_000


def test_strangers_who_came_and_went_leave_nothing_behind() -> None:
    writing = Writing(seed=1)
    process = writing.leader()
    node = process.node
    for stranger in range(STRANGER, STRANGER + 20):
        request = peer_pb2.ControllerRequest(request_id=1, metadata_read_index=peer_pb2.MetadataReadIndex())
        lease = Lease(boot_id=1, epoch=1, round=1, heard_round=0)
        for frame in (
            PeerFrame(Stream.CONTROL, lease=lease, controller_requests=[request]),
            PeerFrame(Stream.DATA, sequence=1),
        ):
            process.deliver(FrameReceived(stranger, frame))
        process.deliver(PeerDisconnected(stranger))
    writing.run(1)
    known = set(process.replicas[METADATA_GROUP].raft.configuration.members)
    assert {link.peer for link in node._links} <= known
    assert node._leases._pairs.keys() <= known


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
    assert len(writing.history) > acknowledged + 50, "writing continued"

"""The parts of a peer's frame reach those that handle them, and nothing is called for a part that is missing."""

from __future__ import annotations

import pytest

from bench.node_trio import Trio
from quorumlog.raft.types import ORIGIN, Configuration
from quorumlog.server.step.events import (
    ChunkReceipt,
    EntryFound,
    EntryWanted,
    PeerFrame,
    SnapshotChunk,
    SnapshotOffer,
    Stream,
)

PARTS = {
    "slices": (
        "_snapshots",
        PeerFrame(
            Stream.SNAPSHOT,
            chunks=[SnapshotChunk(1, 1, 0, b"", SnapshotOffer(1, ORIGIN, Configuration((1,)), 1, 1, 0))],
        ),
    ),
    "receipts": ("_snapshots", PeerFrame(Stream.SNAPSHOT_ANSWER, receipts=[ChunkReceipt(1, 1)])),
    "damaged entries": ("_mender", PeerFrame(Stream.SNAPSHOT, wanted=[EntryWanted(1, 1)])),
    "found entries": ("_mender", PeerFrame(Stream.SNAPSHOT_ANSWER, entries_found=[EntryFound(1, 1, b"")])),
    "nothing": ("", PeerFrame(Stream.CONTROL)),
}


@pytest.mark.parametrize("part", PARTS)
def test_parts_reach_their_handlers(part: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each part of a frame is handed to the one handler that it is for."""
    handler, frame = PARTS[part]
    node, called = Trio(0)._machines[1].node, []
    for name in ("_snapshots", "_mender"):
        monkeypatch.setattr(getattr(node, name), "on_frame", lambda now, peer, frame, name=name: called.append(name))
    node._on_frame(2, frame)
    assert called == [handler] * bool(handler)

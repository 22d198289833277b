"""Frames that are put together by hand are what protobuf would have written."""

import pytest

from quorumlog.raft.types import AppendRequest, Entry, EntryKind, Heartbeat
from quorumlog.server.step.events import PeerFrame, Stream
from quorumlog.server.transport.peers import peer_codec
from quorumlog.server.transport.peers.peer_codec import encode_frame
from quorumlog.v1 import peer_pb2


def append(*sizes: int, index: int = 7) -> AppendRequest:
    """Returns an AppendRequest with entries of these sizes."""
    entries = [
        Entry(index + place, 3, EntryKind.BATCH, 0, bytes([place]) * size) for place, size in enumerate(sizes, 1)
    ]
    return AppendRequest(1, 2, 9, index, 3, 5, entries)


@pytest.mark.parametrize(
    "messages",
    [
        [(1000, append(peer_codec.SPLICE_BYTES))],
        [(1000, append(0, 1, 127, 128, 16_383, 16_384, 70_000))],
        [(1000, append(5_000)), (1000, append(index=8)), (70_000, append(100, index=2))],
        [(0, Heartbeat(1, 2, 9, 4, 1)), (1000, append(1 << 21))],
    ],
)
def test_a_spliced_frame_reads_as_the_one_that_protobuf_writes(
    messages: list[tuple[int, AppendRequest]], monkeypatch: pytest.MonkeyPatch
) -> None:
    frame = PeerFrame(Stream.DATA, sequence=12, acknowledged=3, messages=list(messages))
    spliced = peer_pb2.Frame.FromString(encode_frame(frame))
    monkeypatch.setattr(peer_codec, "SPLICE_BYTES", 1 << 40)
    assert spliced == peer_pb2.Frame.FromString(encode_frame(frame))
    assert len(spliced.messages) == len(messages)

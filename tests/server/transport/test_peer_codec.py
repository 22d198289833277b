"""Frames between nodes: what goes in comes out, and nothing that is damaged does."""

from __future__ import annotations

import pytest

from quorumlog.raft.types import (
    AppendRequest,
    AppendResponse,
    Configuration,
    Entry,
    EntryId,
    EntryKind,
    Heartbeat,
    HeartbeatResponse,
    Message,
    SnapshotResponse,
    TimeoutNow,
    VoteRequest,
    VoteResponse,
)
from quorumlog.server.step.events import ChunkReceipt, PeerFrame, PeerIdentity, SnapshotChunk, SnapshotOffer, Stream
from quorumlog.server.transport.peers.peer_codec import (
    FrameError,
    decode_frame,
    decode_identity,
    encode_frame,
    encode_hello,
    parse_frame,
)
from quorumlog.v1 import peer_pb2
from quorumlog.wire.entry import CorruptEntryError, EnvelopeKind, entry_hash, seal

SENDER, RECEIVER, GROUP, TERM = 2, 1, 1000, 7
IDENTITY = PeerIdentity("cluster", SENDER, "directory", 2**64 - 1, "127.0.0.1:1")


def chain(count: int, *, group: int = GROUP, first: int = 11, term: int = TERM, body: bytes = b"body") -> list[Entry]:
    """Returns consecutive sealed entries."""
    entries: list[Entry] = []
    previous = 12345
    for index in range(first, first + count):
        data = seal(group, term, index, previous, EnvelopeKind.COMMAND, body)
        previous = entry_hash(data)
        entries.append(Entry(index, term, EntryKind.COMMAND, previous, data))
    return entries


def appending(entries: list[Entry], *, prev_index: int = 10, prev_term: int = 6, term: int = TERM) -> AppendRequest:
    return AppendRequest(SENDER, RECEIVER, term, prev_index, prev_term, 9, entries)


def through_the_wire(frame: PeerFrame) -> PeerFrame:
    return decode_frame(parse_frame(encode_frame(frame)), frame.stream, SENDER, RECEIVER)


def refusal(message: AppendRequest) -> str:
    with pytest.raises(CorruptEntryError) as caught:
        through_the_wire(PeerFrame(Stream.DATA, 1, messages=[(GROUP, message)]))
    return str(caught.value)


@pytest.mark.parametrize(
    "message",
    [
        VoteRequest(SENDER, RECEIVER, TERM, 10, 6, True, True),
        VoteRequest(SENDER, RECEIVER, TERM, 0, 0),
        VoteResponse(SENDER, RECEIVER, TERM, True, True),
        VoteResponse(SENDER, RECEIVER, TERM, False, False),
        appending(chain(3)),
        appending([]),
        AppendRequest(SENDER, RECEIVER, TERM, 0, 0, 0),
        AppendResponse(SENDER, RECEIVER, TERM, 10, True, 4, 2),
        AppendResponse(SENDER, RECEIVER, TERM, 0),
        Heartbeat(SENDER, RECEIVER, TERM, 9, 3),
        Heartbeat(SENDER, RECEIVER, TERM, 0, 0),
        HeartbeatResponse(SENDER, RECEIVER, TERM, 0),
        TimeoutNow(SENDER, RECEIVER, TERM, 11),
        TimeoutNow(SENDER, RECEIVER, TERM),
        SnapshotResponse(SENDER, RECEIVER, TERM, 0, True),
    ],
    ids=lambda message: type(message).__name__,
)
def test_every_message_arrives_as_it_was_sent(message: Message) -> None:
    frame = PeerFrame(Stream.CONTROL, messages=[(GROUP, message)])
    assert through_the_wire(frame) == frame


def test_a_frame_carries_numbers_and_controller_traffic() -> None:
    frame = PeerFrame(
        Stream.DATA,
        17,
        16,
        [(GROUP, appending(chain(2)))],
        [peer_pb2.ControllerRequest(request_id=1, heartbeat=peer_pb2.BrokerHeartbeat(node_id=2))],
        [peer_pb2.ControllerResponse(request_id=2, heartbeat=peer_pb2.BrokerHeartbeatResponse(fenced=True))],
        sync_us=1_234_567,
    )
    assert through_the_wire(frame) == frame


def test_the_bytes_are_protobufs_own() -> None:
    """Whatever builds them: another implementation, or a later one, parses them and writes the same."""
    data = encode_frame(PeerFrame(Stream.DATA, 3, messages=[(GROUP, appending(chain(3)))]))
    assert peer_pb2.Frame.FromString(data).SerializeToString() == data


def test_entries_are_passed_on_byte_for_byte_with_their_hash() -> None:
    entries = chain(5, body=b"x" * 100_000)
    arrived = through_the_wire(PeerFrame(Stream.DATA, 1, messages=[(GROUP, appending(entries))]))
    message = arrived.messages[0][1]
    assert isinstance(message, AppendRequest)
    assert message.entries == entries


def test_a_flipped_bit_anywhere_in_an_entry_is_noticed() -> None:
    good = chain(2)
    for position in range(len(good[1].data)):
        data = bytearray(good[1].data)
        data[position] ^= 1 << (position % 8)
        assert refusal(appending([good[0], good[1]._replace(data=bytes(data))]))


def test_an_entry_in_the_wrong_place_is_noticed() -> None:
    entries = chain(3)
    assert "in place of entry 11 of group 1000" in refusal(appending(entries[1:]))
    assert "in place of entry 12 of group 1000" in refusal(appending([entries[0], entries[2]]))
    assert "of group 5 came in place" in refusal(appending(chain(1, group=5)))


def test_an_entry_that_does_not_follow_the_one_before_it_is_noticed() -> None:
    stranger = seal(GROUP, TERM, 12, 999, EnvelopeKind.COMMAND, b"body")
    entries = [chain(1)[0], Entry(12, TERM, EntryKind.COMMAND, entry_hash(stranger), stranger)]
    assert "does not follow the entry before it" in refusal(appending(entries))


def test_an_entry_of_an_impossible_term_is_noticed() -> None:
    assert "has term 8, outside 6 to 7" in refusal(appending(chain(1, term=8)))
    assert "has term 5, outside 6 to 7" in refusal(appending(chain(1, term=5)))


def test_what_is_no_frame_is_refused() -> None:
    with pytest.raises(FrameError, match="that are not a frame"):
        parse_frame(b"\xff\xff")
    unknown = peer_pb2.Frame(messages=[peer_pb2.GroupMessage(group=3)])
    with pytest.raises(FrameError, match="a message of group 3 of a kind unknown to this version"):
        decode_frame(unknown, Stream.CONTROL, SENDER, RECEIVER)
    with pytest.raises(FrameError, match="without a sequence number"):
        decode_frame(peer_pb2.Frame(), Stream.DATA, SENDER, RECEIVER)


def test_a_greeting_says_who_it_is_from() -> None:
    assert decode_identity(parse_frame(encode_hello(IDENTITY)).identity) == IDENTITY
    with pytest.raises(FrameError, match="has no node id"):
        decode_identity(parse_frame(b"").identity)


OFFER = SnapshotOffer(TERM, EntryId(40, 6, 2**64 - 1), Configuration((3, 1, 2), (4,), (5, 1, 2)), 2, 5, 2**32 - 1)


def test_slices_of_snapshots_and_their_receipts_arrive_as_they_were_sent() -> None:
    chunks = [SnapshotChunk(GROUP, 9, 0, b"data", OFFER), SnapshotChunk(GROUP, 9, 1, b"")]
    frame = PeerFrame(Stream.SNAPSHOT, chunks=chunks)
    assert through_the_wire(frame) == frame
    receipts = [ChunkReceipt(GROUP, 9, 1), ChunkReceipt(GROUP, 10, refused="the disk is nearly full")]
    answer = PeerFrame(Stream.SNAPSHOT_ANSWER, receipts=receipts)
    assert through_the_wire(answer) == answer


def test_a_senseless_slice_is_refused() -> None:
    for chunk in (SnapshotChunk(GROUP, 9, 0, b"data"), SnapshotChunk(GROUP, 9, 1, b"data", OFFER)):
        with pytest.raises(FrameError, match="only chunk 0 must have an offer"):
            through_the_wire(PeerFrame(Stream.SNAPSHOT, chunks=[chunk]))
    nobody = peer_pb2.Frame(snapshot_chunks=[peer_pb2.SnapshotChunk(offer=peer_pb2.SnapshotOffer(slices=1))])
    with pytest.raises(FrameError, match="at least one voter"):
        decode_frame(nobody, Stream.SNAPSHOT, SENDER, RECEIVER)

"""Encodes frames between nodes to bytes, and decodes and verifies them.

Everything that a peer sends is checked here, so that nothing damaged or contradictory reaches the Raft core: each
entry's checksum, its group and position, and the hash of the entry before it. Copies per entry: one into the frame;
when received, one out of the message and one for the checksum.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from google.protobuf.message import DecodeError

from quorumlog.raft.types import (
    AppendRequest,
    AppendResponse,
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
from quorumlog.server.hosting.sealing import configuration_from_proto, configuration_to_proto
from quorumlog.server.step.events import (
    ChunkReceipt,
    EntryFound,
    EntryWanted,
    Lease,
    PeerFrame,
    PeerIdentity,
    SnapshotChunk,
    SnapshotOffer,
    Stream,
)
from quorumlog.v1 import peer_pb2
from quorumlog.wire.entry import CorruptEntryError, entry_hash, verify
from quorumlog.wire.splicing import field_tag, varint

#: Frames with this many bytes of entries are worth assembling without protobuf.
SPLICE_BYTES = 4096
_KINDS = {int(kind): kind for kind in EntryKind}


class FrameError(Exception):
    """Raised if a peer sent something that is not a frame, or contradicts itself. The message is one line."""


# -- identities ---------------------------------------------------------------------------------------------------


def encode_identity(identity: PeerIdentity) -> peer_pb2.NodeIdentity:
    """Returns the wire form of an identity."""
    return peer_pb2.NodeIdentity(
        cluster_id=identity.cluster_id,
        node_id=identity.node_id,
        directory_id=identity.directory_id,
        boot_id=identity.boot_id,
        address=identity.address,
    )


def decode_identity(wire: peer_pb2.NodeIdentity) -> PeerIdentity:
    """Decodes an identity.

    Raises:
        FrameError: no directory id, or an impossible node id: the sender is not a quorumlog node.
    """
    if wire.node_id < 0 or not wire.directory_id:
        raise FrameError("the first frame of a stream has no node id or directory id")
    return PeerIdentity(wire.cluster_id, wire.node_id, wire.directory_id, wire.boot_id, wire.address)


# -- encoding frames -------------------------------------------------------------------------------------------


def encode_frame(frame: PeerFrame) -> bytes:
    """Encodes a frame."""
    wire = peer_pb2.Frame(
        sequence=frame.sequence,
        acknowledged=frame.acknowledged,
        controller_requests=frame.controller_requests,
        controller_responses=frame.controller_responses,
        sync_us=frame.sync_us,
    )
    if frame.lease is not None:
        boot_id, epoch, heartbeat_round, heard_round = frame.lease
        wire.lease.CopyFrom(
            peer_pb2.Lease(boot_id=boot_id, epoch=epoch, round=heartbeat_round, heard_round=heard_round)
        )
    for chunk in frame.chunks:
        _snapshot_chunk(wire.snapshot_chunks.add(), chunk)
    for receipt in frame.receipts:
        wire.snapshot_receipts.add(
            group=receipt.group, transfer=receipt.transfer, durable=receipt.durable, refused=receipt.refused
        )
    for wanted in frame.wanted:
        wire.entries_wanted.add(group=wanted.group, index=wanted.index)
    for found in frame.entries_found:
        wire.entries_found.add(
            group=found.group, index=found.index, data=found.data, refused=found.refused, gone=found.gone
        )
    splice = _size_of_entries(frame) >= SPLICE_BYTES
    pieces: list[bytes] = []
    for group, message in frame.messages:
        # All appends or none: those of one group must stay in order.
        if splice and isinstance(message, AppendRequest):
            pieces += _append_request_field(group, message)
        else:
            _ENCODERS[type(message)](wire.messages.add(group=group, term=message.term), message)
    head = wire.SerializeToString()
    return b"".join((head, *pieces)) if pieces else head


def _size_of_entries(frame: PeerFrame) -> int:
    return sum(
        len(entry.data)
        for _, message in frame.messages
        if isinstance(message, AppendRequest)
        for entry in message.entries
    )


def _append_request_field(group: int, message: AppendRequest) -> list[bytes]:
    """Encodes field ``messages`` of a frame with one AppendRequest, in pieces.

    Protobuf would copy every entry into its message and again into the frame; this leaves one copy, made when the
    frame's pieces are joined. A test verifies that protobuf reads the same as what it would have written.
    """
    head = peer_pb2.AppendRequest(
        prev_index=message.prev_index, prev_term=message.prev_term, commit=message.commit
    ).SerializeToString()
    entries: list[bytes] = []
    size = len(head)
    for entry in message.entries:
        lead = _ENTRIES_TAG + varint(len(entry.data))
        entries += (lead, entry.data)
        size += len(lead) + len(entry.data)
    item = peer_pb2.GroupMessage(group=group, term=message.term).SerializeToString()
    item += _APPEND_REQUEST_TAG + varint(size) + head
    size += len(item) - len(head)
    return [_MESSAGES_TAG + varint(size) + item, *entries]


_MESSAGES_TAG = field_tag(peer_pb2.Frame, "messages")
_APPEND_REQUEST_TAG = field_tag(peer_pb2.GroupMessage, "append_request")
_ENTRIES_TAG = field_tag(peer_pb2.AppendRequest, "entries")


def encode_hello(identity: PeerIdentity, socket_port: int = 0, socket_token: bytes = b"") -> bytes:
    """Encodes the first frame of a stream in each direction.

    Arguments:
        socket_port, socket_token: of the socket that this node announces; 0: none.
    """
    return peer_pb2.Frame(
        identity=encode_identity(identity), socket_port=socket_port, socket_token=socket_token
    ).SerializeToString()


def _vote_request(wire: peer_pb2.GroupMessage, message: VoteRequest) -> None:
    body = wire.vote_request
    body.last_index = message.last_index
    body.last_term = message.last_term
    body.pre_vote = message.pre_vote
    body.transfer = message.transfer
    body.SetInParent()


def _vote_response(wire: peer_pb2.GroupMessage, message: VoteResponse) -> None:
    wire.vote_response.pre_vote = message.pre_vote
    wire.vote_response.granted = message.granted
    wire.vote_response.SetInParent()


def _append_request(wire: peer_pb2.GroupMessage, message: AppendRequest) -> None:
    body = wire.append_request
    body.prev_index = message.prev_index
    body.prev_term = message.prev_term
    body.commit = message.commit
    body.entries.extend([entry.data for entry in message.entries])
    body.SetInParent()


def _append_response(wire: peer_pb2.GroupMessage, message: AppendResponse) -> None:
    body = wire.append_response
    body.index = message.index
    body.rejected = message.rejected
    body.hint_index = message.hint_index
    body.hint_term = message.hint_term
    body.has_readers = message.has_readers
    body.SetInParent()


def _heartbeat(wire: peer_pb2.GroupMessage, message: Heartbeat) -> None:
    wire.heartbeat.commit = message.commit
    wire.heartbeat.round = message.round
    wire.heartbeat.quiesce = message.quiesce
    wire.heartbeat.SetInParent()


def _heartbeat_response(wire: peer_pb2.GroupMessage, message: HeartbeatResponse) -> None:
    wire.heartbeat_response.round = message.round
    wire.heartbeat_response.quiescent = message.quiescent
    wire.heartbeat_response.SetInParent()


def _timeout_now(wire: peer_pb2.GroupMessage, message: TimeoutNow) -> None:
    wire.timeout_now.last_index = message.last_index
    wire.timeout_now.SetInParent()


def _snapshot_response(wire: peer_pb2.GroupMessage, message: SnapshotResponse) -> None:
    wire.snapshot_response.index = message.index
    wire.snapshot_response.rejected = message.rejected
    wire.snapshot_response.SetInParent()


_Encoder = Callable[[peer_pb2.GroupMessage, "Message"], None]
_ENCODERS: dict[type[Message], _Encoder] = {
    VoteRequest: _vote_request,  # type: ignore[dict-item]  # each is given only messages of its key
    VoteResponse: _vote_response,  # type: ignore[dict-item]
    AppendRequest: _append_request,  # type: ignore[dict-item]
    AppendResponse: _append_response,  # type: ignore[dict-item]
    Heartbeat: _heartbeat,  # type: ignore[dict-item]
    HeartbeatResponse: _heartbeat_response,  # type: ignore[dict-item]
    TimeoutNow: _timeout_now,  # type: ignore[dict-item]
    SnapshotResponse: _snapshot_response,  # type: ignore[dict-item]
}


# -- decoding frames -------------------------------------------------------------------------------------------


def parse_frame(data: bytes | bytearray) -> peer_pb2.Frame:
    """Parses received bytes.

    Raises:
        FrameError: they are not a frame.
    """
    try:
        return peer_pb2.Frame.FromString(data)  # type: ignore[arg-type]  # it takes a bytearray, too
    except DecodeError:
        raise FrameError(f"{len(data)} bytes that are not a frame") from None


def decode_frame(wire: peer_pb2.Frame, stream: Stream, sender: int, to: int) -> PeerFrame:
    """Decodes a received frame and verifies every entry.

    Arguments:
        stream: where it arrived: CONTROL and DATA on streams that ``sender`` opened, the ANSWER kinds on our own.
        sender: node id of the peer at the other end.
        to: our node id.

    Raises:
        FrameError: a message that does not belong on this stream, or that is unknown to this version.
        CorruptEntryError: an entry is damaged, misplaced, or does not follow the one before it.
    """
    if stream is Stream.DATA and wire.sequence == 0:
        raise FrameError("a data frame without a sequence number")
    messages: list[tuple[int, Message]] = []
    for item in wire.messages:
        decoder = _DECODERS.get(item.WhichOneof("body") or "")
        if decoder is None:
            raise FrameError(f"a message of group {item.group} of a kind unknown to this version")
        messages.append((item.group, decoder(item, sender, to)))
    return PeerFrame(
        stream,
        wire.sequence,
        wire.acknowledged,
        messages,
        list(wire.controller_requests),
        list(wire.controller_responses),
        _read_lease(wire.lease) if wire.HasField("lease") else None,
        [_read_snapshot_chunk(chunk) for chunk in wire.snapshot_chunks],
        [ChunkReceipt(item.group, item.transfer, item.durable, item.refused) for item in wire.snapshot_receipts],
        [EntryWanted(item.group, item.index) for item in wire.entries_wanted],
        [EntryFound(item.group, item.index, item.data, item.refused, item.gone) for item in wire.entries_found],
        wire.sync_us,
    )


def _read_lease(wire: peer_pb2.Lease) -> Lease:
    return Lease(wire.boot_id, wire.epoch, wire.round, wire.heard_round)


def _read_vote_request(item: peer_pb2.GroupMessage, sender: int, to: int) -> Message:
    body = item.vote_request
    return VoteRequest(sender, to, item.term, body.last_index, body.last_term, body.pre_vote, body.transfer)


def _read_vote_response(item: peer_pb2.GroupMessage, sender: int, to: int) -> Message:
    return VoteResponse(sender, to, item.term, item.vote_response.pre_vote, item.vote_response.granted)


def _read_append_request(item: peer_pb2.GroupMessage, sender: int, to: int) -> Message:
    body = item.append_request
    entries = _read_entries(item.group, item.term, body.prev_index, body.prev_term, body.entries)
    return AppendRequest(sender, to, item.term, body.prev_index, body.prev_term, body.commit, entries)


def _read_entries(group: int, term: int, index: int, entry_term: int, sealed: Iterable[bytes]) -> list[Entry]:
    """Verifies entries that must follow (``index``, ``entry_term``) and were sent in ``term``."""
    entries: list[Entry] = []
    previous_hash: int | None = None
    for data in sealed:
        envelope = verify(data)
        index += 1
        if envelope.group != group or envelope.index != index:
            raise CorruptEntryError(
                f"entry {envelope.index} of group {envelope.group} came in place of entry {index} of group {group}"
            )
        if not entry_term <= envelope.term <= term:
            raise CorruptEntryError(
                f"entry {index} of group {group} has term {envelope.term}, outside {entry_term} to {term}"
            )
        # The core verifies the hash before the first entry; inside the frame the chain must be intact.
        if previous_hash is not None and envelope.previous_hash != previous_hash:
            raise CorruptEntryError(f"entry {index} of group {group} does not follow the entry before it")
        entry_term = envelope.term
        previous_hash = entry_hash(data)
        entries.append(Entry(index, envelope.term, _KINDS[envelope.kind], previous_hash, data))
    return entries


def _read_append_response(item: peer_pb2.GroupMessage, sender: int, to: int) -> Message:
    body = item.append_response
    return AppendResponse(
        sender, to, item.term, body.index, body.rejected, body.hint_index, body.hint_term, body.has_readers
    )


def _read_heartbeat(item: peer_pb2.GroupMessage, sender: int, to: int) -> Message:
    return Heartbeat(sender, to, item.term, item.heartbeat.commit, item.heartbeat.round, item.heartbeat.quiesce)


def _read_heartbeat_response(item: peer_pb2.GroupMessage, sender: int, to: int) -> Message:
    return HeartbeatResponse(sender, to, item.term, item.heartbeat_response.round, item.heartbeat_response.quiescent)


def _read_timeout_now(item: peer_pb2.GroupMessage, sender: int, to: int) -> Message:
    return TimeoutNow(sender, to, item.term, item.timeout_now.last_index)


def _read_snapshot_response(item: peer_pb2.GroupMessage, sender: int, to: int) -> Message:
    return SnapshotResponse(sender, to, item.term, item.snapshot_response.index, item.snapshot_response.rejected)


_DECODERS: dict[str, Callable[[peer_pb2.GroupMessage, int, int], Message]] = {
    "vote_request": _read_vote_request,
    "vote_response": _read_vote_response,
    "append_request": _read_append_request,
    "append_response": _read_append_response,
    "heartbeat": _read_heartbeat,
    "heartbeat_response": _read_heartbeat_response,
    "timeout_now": _read_timeout_now,
    "snapshot_response": _read_snapshot_response,
}


# -- snapshots ----------------------------------------------------------------------------------------------------


def _snapshot_chunk(wire: peer_pb2.SnapshotChunk, chunk: SnapshotChunk) -> None:
    wire.group, wire.transfer, wire.number, wire.data = chunk.group, chunk.transfer, chunk.number, chunk.data
    if chunk.offer is not None:
        offer, body = chunk.offer, wire.offer
        body.term = offer.term
        body.last_index, body.last_term, body.last_hash = offer.last
        body.configuration.CopyFrom(configuration_to_proto(offer.configuration))
        body.slices, body.size_bytes, body.crc32c = offer.slices, offer.size_bytes, offer.checksum


def _read_snapshot_chunk(wire: peer_pb2.SnapshotChunk) -> SnapshotChunk:
    if wire.HasField("offer") != (wire.number == 0):
        raise FrameError(f"chunk {wire.number} of a snapshot of group {wire.group}: only chunk 0 must have an offer")
    offer = _read_offer(wire.offer) if wire.HasField("offer") else None
    return SnapshotChunk(wire.group, wire.transfer, wire.number, wire.data, offer)


def _read_offer(wire: peer_pb2.SnapshotOffer) -> SnapshotOffer:
    try:
        configuration = configuration_from_proto(wire.configuration)
    except ValueError as error:
        raise FrameError(str(error)) from None
    last = EntryId(wire.last_index, wire.last_term, wire.last_hash)
    return SnapshotOffer(wire.term, last, configuration, wire.slices, wire.size_bytes, wire.crc32c)

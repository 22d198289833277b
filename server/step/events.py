"""What goes into ``Node.step`` and what comes out of it.

Adapters gather events (gRPC, timers, the storage thread; in the simulator its queue) and carry out effects. Times
are integers in microseconds on one monotonic clock per node; ``wall_ms`` is milliseconds since the epoch.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Literal, NamedTuple, Protocol

from google.protobuf.message import Message as ProtoMessage

from quorumlog.raft.types import Configuration, EntryId, Message
from quorumlog.server.step.bearer_tokens import TokenVerifier
from quorumlog.server.step.request_context import UNKNOWN_CLIENT, RequestContext
from quorumlog.storage.interface import StorageEngineError
from quorumlog.storage.transaction import Transaction
from quorumlog.v1 import data_plane_pb2, errors_pb2, peer_pb2
from quorumlog.wire.splicing import field_tag, varint


class Stream(Enum):
    """The three streams of an ordered pair of nodes, and the two directions of each.

    CONTROL, DATA and SNAPSHOT are frames that the sender sends on streams that it opened; the ANSWER kinds go back on
    the streams that the receiver opened.
    """

    CONTROL = "control"
    CONTROL_ANSWER = "control-answer"
    DATA = "data"
    DATA_ANSWER = "data-answer"
    SNAPSHOT = "snapshot"
    SNAPSHOT_ANSWER = "snapshot-answer"


@dataclass(slots=True, frozen=True)
class SnapshotOffer:
    """What a transfer brings, said with its first slice.

    Arguments:
        term: the leader's.
        last, configuration: what the snapshot stands for.
        slices, size_bytes, checksum: of its data; CRC32C of the whole.
    """

    term: int
    last: EntryId
    configuration: Configuration
    slices: int
    size_bytes: int
    checksum: int


@dataclass(slots=True, frozen=True)
class SnapshotChunk:
    """One slice of a group's snapshot on its way. ``transfer`` is the sender's number for the attempt; ``number``
    counts the slices from 0, and with the first comes the offer."""

    group: int
    transfer: int
    number: int
    data: bytes
    offer: SnapshotOffer | None = None


@dataclass(slots=True, frozen=True)
class ChunkReceipt:
    """The first ``durable`` slices of a transfer are on disk; or why the transfer is over, if ``refused``."""

    group: int
    transfer: int
    durable: int = 0
    refused: str = ""


@dataclass(slots=True, frozen=True)
class EntryWanted:
    """An entry of a group is damaged at the sender: does the receiver have it?"""

    group: int
    index: int


@dataclass(slots=True, frozen=True)
class EntryFound:
    """The answer: the entry's sealed bytes, or why there are none, if ``refused``; ``gone``: a snapshot or compaction
    has taken its place."""

    group: int
    index: int
    data: bytes
    refused: str = ""
    gone: bool = False


class Lease(NamedTuple):
    """One node tells another that it lives (leases.py). ``epoch`` grows whenever the sender stops leading a group;
    ``heard_round`` is the newest of the receiver's rounds that the sender has heard."""

    boot_id: int
    epoch: int
    round: int
    heard_round: int


@dataclass(slots=True)
class PeerFrame:
    """What one node tells another at once: Raft messages of many groups, and controller traffic.

    Arguments:
        stream: where it travels.
        sequence: of a DATA frame, counted from 1 on each new stream; 0 otherwise.
        acknowledged: on DATA_ANSWER: every DATA frame up to this number is durable.
        messages: (group, message) pairs.
        lease: on CONTROL, once per lease interval.
        chunks: slices of snapshots, on SNAPSHOT; receipts: of such, on SNAPSHOT_ANSWER.
        wanted: entries to mend damaged ones with, on SNAPSHOT; entries_found: such, on SNAPSHOT_ANSWER.
        sync_us: on DATA_ANSWER: how long the sender's disk took for what this frame acknowledges; 0: not told.
    """

    stream: Stream
    sequence: int = 0
    acknowledged: int = 0
    messages: list[tuple[int, Message]] = field(default_factory=list)
    controller_requests: list[peer_pb2.ControllerRequest] = field(default_factory=list)
    controller_responses: list[peer_pb2.ControllerResponse] = field(default_factory=list)
    lease: Lease | None = None
    chunks: list[SnapshotChunk] = field(default_factory=list)
    receipts: list[ChunkReceipt] = field(default_factory=list)
    wanted: list[EntryWanted] = field(default_factory=list)
    entries_found: list[EntryFound] = field(default_factory=list)
    sync_us: int = 0


@dataclass(slots=True, frozen=True)
class PeerIdentity:
    """Who a peer said it is when its stream was set up."""

    cluster_id: str
    node_id: int
    directory_id: str
    boot_id: int
    address: str


# -- events -------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class FrameReceived:
    """A frame came from a peer whose identity the adapter has checked against ``Node.accepts_peer``.

    Arguments:
        directory_id: of that identity. What was welcome when the stream began may be given up by now.
    """

    peer: int
    frame: PeerFrame
    directory_id: str = ""


@dataclass(slots=True, frozen=True)
class ClusterStanding:
    """What a node says of the cluster to one that looks for it.

    Arguments:
        voters: (node id, directory id, address) of the voters of its metadata quorum as it knows them; empty if it
            belongs to no cluster.
        known_directory: the data directory under which it knows the node id of who asks; empty: under none.
        applied_index: how far it has applied the metadata log.
    """

    voters: tuple[tuple[int, str, str], ...] = ()
    known_directory: str = ""
    applied_index: int = 0


@dataclass(slots=True)
class PeerIdentified:
    """A peer answered Identify: before formation, while looking for one."""

    identity: PeerIdentity
    standing: ClusterStanding


@dataclass(slots=True)
class PeerConnected:
    """Our streams to a peer are open: frames sent from now on can arrive. A new life of the
    streams: DATA sequence numbers start again at 1."""

    peer: int
    identity: PeerIdentity


@dataclass(slots=True)
class PeerDisconnected:
    """A stream to or from the peer broke (the process died, or the network did). Frames in flight are lost."""

    peer: int


@dataclass(slots=True)
class ClientRequest:
    """A client's request: one of the request messages of data_plane.proto, admin.proto and groups.proto. Answered by
    exactly one Reply, except ProduceRequest with acks=0, which has none."""

    request_id: int
    message: ProtoMessage
    #: The stream that it came on, for what lasts as long as that does; 0 without one.
    stream: int = 0
    #: Who asks, and from where.
    client: RequestContext = UNKNOWN_CLIENT
    #: Of the message, where who brings it knows that; 0: count it.
    known_size_bytes: int = 0
    #: When it came, in microseconds on the node's clock, where that was asked for; 0: with its step.
    arrived_us: int = 0

    @property
    def size_bytes(self) -> int:
        """Of the message as it travels."""
        return self.known_size_bytes or self.message.ByteSize()

    @property
    def principal(self) -> str:
        """Who asks."""
        return self.client.principal


@dataclass(slots=True)
class ClientGone:
    """The client of a pending request went away; nobody waits for its Reply."""

    request_id: int


@dataclass(slots=True)
class StreamClosed:
    """A stream of a client has ended, and what was bound to it. Its pending requests are told by ClientGone."""

    stream: int


@dataclass(slots=True)
class StorageDone:
    """The transaction of that number is durable."""

    number: int


@dataclass(slots=True)
class StorageFailed:
    """The transaction of that number was not written. DiskFullError: nothing happened, the node gives it again.
    Anything else is fatal."""

    number: int
    error: StorageEngineError


@dataclass(slots=True)
class JobDone:
    """The job of that number has been carried out: what came of it, or what it raised."""

    number: int
    result: Any
    error: Exception | None


@dataclass(slots=True)
class LossAnswered:
    """The cluster was asked to give up a former disk of this node: why it does not, in one line; empty: it does."""

    refused: str


@dataclass(slots=True)
class TokenKeysRead:
    """The keys by which bearer tokens are verified have been read, or read again. Comes before the first token."""

    verifier: TokenVerifier


@dataclass(slots=True)
class StopRequested:
    """SIGTERM: hand over leaderships, then halt."""


Event = (
    FrameReceived
    | PeerIdentified
    | PeerConnected
    | PeerDisconnected
    | ClientRequest
    | ClientGone
    | StreamClosed
    | StorageDone
    | StorageFailed
    | JobDone
    | LossAnswered
    | TokenKeysRead
    | StopRequested
)


# -- effects ------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Reply:
    """The answer to a ClientRequest: the matching response message.

    Arguments:
        told: the message; of an answer to a fetch all but the entries.
        entries: of such an answer, for each of its results.
    """

    request_id: int
    told: ProtoMessage
    entries: Sequence[Sequence[bytes]] = ()

    @property
    def message(self) -> ProtoMessage:
        """The whole message."""
        if not self.entries:
            return self.told
        assert isinstance(self.told, data_plane_pb2.FetchResponse)
        message = data_plane_pb2.FetchResponse()
        message.CopyFrom(self.told)
        for result, batches in zip(message.results, self.entries, strict=True):
            result.entries.extend(batches)
        return message

    def to_bytes(self) -> bytes:
        """The bytes of the whole message."""
        if not self.entries:
            return self.told.SerializeToString()
        assert isinstance(self.told, data_plane_pb2.FetchResponse)
        return _serialize_fetch(self.told, self.entries)


def _serialize_fetch(told: data_plane_pb2.FetchResponse, entries: Sequence[Sequence[bytes]]) -> bytes:
    """Serializes the answer to a fetch without copying its entries into a message first.

    Protobuf copies each batch into its message and again into the bytes to send, into memory that it newly allocates:
    for two megabytes that takes three times as long as the single copy made here.

    Arguments:
        told: the answer without entries.
        entries: for each of its results, in order.
    """
    head = data_plane_pb2.FetchResponse(correlation_id=told.correlation_id)
    if told.HasField("error"):
        head.error.CopyFrom(told.error)
    pieces = [head.SerializeToString()]
    for result, batches in zip(told.results, entries, strict=True):
        lead = result.SerializeToString()
        fields = [lead]
        size = len(lead)
        for batch in batches:
            length = varint(len(batch))
            fields += (_ENTRIES_TAG, length, batch)
            size += len(_ENTRIES_TAG) + len(length) + len(batch)
        pieces += (_RESULTS_TAG, varint(size), *fields)
    return b"".join(pieces)


_RESULTS_TAG = field_tag(data_plane_pb2.FetchResponse, "results")
_ENTRIES_TAG = field_tag(data_plane_pb2.FetchResult, "entries")


@dataclass(slots=True)
class Halt:
    """The node is done: stopped as asked (``error`` None), or unable to go on safely."""

    error: str | None


#: How much a line of the node's log matters.
LogLevel = Literal["info", "warning", "error"]


class EventLog(Protocol):
    """Reports something that an operator wants to know to the node's log."""

    def __call__(self, level: LogLevel, event: str, **fields: object) -> None:
        """Adds a line.

        Arguments:
            event: a name of lower-case words, as in the table of docs/metrics.md.
            fields: numbers, names and reasons; never what records hold.
        """


@dataclass(slots=True)
class LogLine:
    """A line for the node's log. See :class:`EventLog`."""

    level: str
    event: str
    fields: dict[str, object]


@dataclass(slots=True, frozen=True)
class AuditLine:
    """Something for the audit log: who may not have done what, or who has changed what. Never what records hold.

    Arguments:
        event: refused or changed.
        wall_ms: when, in milliseconds since the epoch.
        fields: who, from where, what, the outcome.
    """

    event: str
    wall_ms: int
    fields: dict[str, object]


@dataclass(slots=True)
class Job:
    """A short piece of work that touches nothing of the node's but storage, by reading: it runs beside the steps, one
    at a time, and is answered by JobDone."""

    number: int
    work: Callable[[], object]


@dataclass(slots=True, frozen=True)
class EndedStream:
    """A client's stream is to end, for it is not let in any more."""

    stream: int
    error: errors_pb2.Error


@dataclass(slots=True, frozen=True)
class StreamPause:
    """A client's stream is to be read no further, for a request of it waits; or to be read again."""

    stream: int
    is_paused: bool


@dataclass(slots=True)
class Effects:
    """What one step wants done. Frames may go out before the transaction is synced; replies only speak of what was
    durable when the step began. At most one transaction is under way at a time.

    Arguments:
        frames: (peer, frame), in order.
        transaction: to be written and synced by the storage thread; answered by StorageDone or StorageFailed.
        replies: to clients; an Error instead of a response refuses the call as a whole.
        ended_streams: of clients that are not let in any more.
        stream_pauses: of clients that are over a quota, in order.
        identify: addresses (host:port) to ask Identify, before formation.
        report_loss: (address, directory id): the node there is asked to have a former disk of this node given up, as
            ``nodes replace`` does; answered by LossAnswered.
        connect: when not None, the peers to hold streams to from now on: node id -> address.
        logs: what to log.
        audit: what to write into the audit log.
        halt: when not None, the end.
        jobs: to be carried out off the node's thread, in order.
        groups: the Raft groups that the step looked at, for whoever watches; all others are as they were.
    """

    frames: list[tuple[int, PeerFrame]] = field(default_factory=list)
    transaction: Transaction | None = None
    replies: list[Reply] = field(default_factory=list)
    ended_streams: list[EndedStream] = field(default_factory=list)
    stream_pauses: list[StreamPause] = field(default_factory=list)
    identify: list[str] = field(default_factory=list)
    report_loss: list[tuple[str, str]] = field(default_factory=list)
    connect: dict[int, str] | None = None
    logs: list[LogLine] = field(default_factory=list)
    audit: list[AuditLine] = field(default_factory=list)
    halt: Halt | None = None
    jobs: list[Job] = field(default_factory=list)
    groups: list[int] = field(default_factory=list)

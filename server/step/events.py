"""Events that go into ``Node.step``, and effects that come out of it.

Adapters gather events (gRPC, timers, the storage thread; the event queue in the simulator) and carry out effects. Times
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
from quorumlog.server.step.dynamic_values import DynamicValues
from quorumlog.server.step.request_context import UNKNOWN_CLIENT, RequestContext
from quorumlog.storage.interface import StorageEngineError
from quorumlog.storage.transaction import StorageTransaction
from quorumlog.v1 import data_plane_pb2, errors_pb2, peer_pb2
from quorumlog.wire.splicing import field_tag, varint


class Stream(Enum):
    """The three streams of an ordered pair of nodes, each with two directions.

    CONTROL, DATA and SNAPSHOT are frames that the sender sends on streams that it opened; the ANSWER kinds travel back
    on the streams that the receiver opened.
    """

    CONTROL = "control"
    CONTROL_ANSWER = "control-answer"
    DATA = "data"
    DATA_ANSWER = "data-answer"
    SNAPSHOT = "snapshot"
    SNAPSHOT_ANSWER = "snapshot-answer"


@dataclass(slots=True, frozen=True)
class SnapshotOffer:
    """Description of a snapshot transfer, sent with its first slice.

    Arguments:
        term: the leader's term.
        last, configuration: the last entry and the group configuration that the snapshot covers.
        slices, size_bytes, checksum: of the snapshot's data; the checksum is the CRC32C of all of it.
    """

    term: int
    last: EntryId
    configuration: Configuration
    slices: int
    size_bytes: int
    checksum: int


@dataclass(slots=True, frozen=True)
class SnapshotChunk:
    """One slice of a group's snapshot in transit.

    ``transfer`` is the sender's number for the attempt; ``number`` counts the slices from 0, and the first slice
    carries the offer.
    """

    group: int
    transfer: int
    number: int
    data: bytes
    offer: SnapshotOffer | None = None


@dataclass(slots=True, frozen=True)
class ChunkReceipt:
    """Acknowledges that the first ``durable`` slices of a transfer are on disk; ``refused`` is why the transfer
    ended, if set."""

    group: int
    transfer: int
    durable: int = 0
    refused: str = ""


@dataclass(slots=True, frozen=True)
class EntryWanted:
    """Requests an entry of a group that is damaged at the sender."""

    group: int
    index: int


@dataclass(slots=True, frozen=True)
class EntryFound:
    """The reply to EntryWanted: the entry's sealed bytes, or ``refused``, the reason why it cannot be sent.

    ``gone``: a snapshot or compaction has replaced the entry.
    """

    group: int
    index: int
    data: bytes
    refused: str = ""
    gone: bool = False


class Lease(NamedTuple):
    """Notifies another node that the sender is alive (leases.py).

    ``epoch`` increases whenever the sender stops leading a group; ``heard_round`` is the newest of the receiver's
    rounds that the sender has received.
    """

    boot_id: int
    epoch: int
    round: int
    heard_round: int


@dataclass(slots=True)
class PeerFrame:
    """One message from a node to another: Raft messages of many groups, and controller traffic.

    Arguments:
        stream: the stream it travels on.
        sequence: the number of a DATA frame, counted from 1 on each new stream; 0 otherwise.
        acknowledged: on DATA_ANSWER: every DATA frame up to this number is durable.
        messages: (group, message) pairs.
        lease: on CONTROL, once per lease interval.
        chunks: slices of snapshots, on SNAPSHOT; receipts: their acknowledgements, on SNAPSHOT_ANSWER.
        wanted: requests for entries to repair damaged ones with, on SNAPSHOT; entries_found: the replies, on
            SNAPSHOT_ANSWER.
        sync_us: on DATA_ANSWER: how long the sender's disk took for what this frame acknowledges; 0: not reported.
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
    """A peer's identity, as it reported it when its stream was opened."""

    cluster_id: str
    node_id: int
    directory_id: str
    boot_id: int
    address: str


# -- events -------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class FrameReceived:
    """A frame was received from a peer whose identity the adapter has checked against ``Node.accepts_peer``.

    Arguments:
        directory_id: the peer's data directory. It may have been given up since the stream was accepted.
    """

    peer: int
    frame: PeerFrame
    directory_id: str = ""


@dataclass(slots=True, frozen=True)
class ClusterStanding:
    """A node's view of the cluster, for a node that searches for the cluster.

    Arguments:
        voters: (node id, directory id, address) of the voters of its metadata quorum as it has them; empty if it
            belongs to no cluster.
        known_directory: the data directory that it has recorded for the requesting node's id; empty: none.
        applied_index: index up to which it has applied the metadata log.
        may_be_outdated: it is not the active controller, so its metadata may be old.
    """

    voters: tuple[tuple[int, str, str], ...] = ()
    known_directory: str = ""
    applied_index: int = 0
    may_be_outdated: bool = False


@dataclass(slots=True)
class PeerIdentified:
    """A peer replied to Identify. Sent before formation, while the node searches for a cluster."""

    identity: PeerIdentity
    standing: ClusterStanding


@dataclass(slots=True)
class PeerConnected:
    """The streams to a peer are open: frames sent from now on can arrive.

    DATA sequence numbers start again at 1.
    """

    peer: int
    identity: PeerIdentity


@dataclass(slots=True)
class PeerDisconnected:
    """A stream to or from the peer broke (the process died, or the network did). Frames in flight are lost."""

    peer: int


@dataclass(slots=True)
class ClientRequest:
    """A client's request: one of the request messages of data_plane.proto, admin.proto and groups.proto.

    It gets exactly one Reply, except a ProduceRequest with acks=0, which gets none.
    """

    request_id: int
    message: ProtoMessage
    #: The stream that it came on, to which state with the stream's lifetime is bound; 0 without one.
    stream: int = 0
    #: The client: its principal and its address.
    client: RequestContext = UNKNOWN_CLIENT
    #: Size of the message, if the adapter has it; 0: computed when needed.
    known_size_bytes: int = 0
    #: When it arrived, in microseconds on the node's clock, if arrival times are measured; 0: at its step.
    arrived_us: int = 0
    #: Of Kafka's clients: when the node accepted the connection, in microseconds on its clock.
    connected_us: int = 0

    @property
    def size_bytes(self) -> int:
        """Size of the serialized message."""
        return self.known_size_bytes or self.message.ByteSize()

    @property
    def principal(self) -> str:
        """The client's principal."""
        return self.client.principal


@dataclass(slots=True)
class ClientGone:
    """The client of a pending request has disconnected; no client waits for the Reply."""

    request_id: int


@dataclass(slots=True)
class StreamClosed:
    """A stream of a client has ended, with everything bound to it. Its pending requests get a ClientGone each."""

    stream: int


@dataclass(slots=True)
class StorageDone:
    """The transaction with this number is durable."""

    number: int


@dataclass(slots=True)
class StorageFailed:
    """The transaction with this number was not written.

    After a DiskFullError nothing was written, and the node submits it again. Any other error is fatal.
    """

    number: int
    error: StorageEngineError


@dataclass(slots=True)
class JobDone:
    """The job with this number has run: its result, or the exception that it raised."""

    number: int
    result: Any
    error: Exception | None


@dataclass(slots=True)
class LossAnswered:
    """The reply to Effects.report_loss.

    ``refused``: one line on why the cluster does not give up a former disk of this node; empty: it does.
    """

    refused: str


@dataclass(slots=True)
class TokenKeysRead:
    """The keys that verify bearer tokens have been read, or read again. Precedes the first token."""

    verifier: TokenVerifier


@dataclass(slots=True)
class StopRequested:
    """SIGTERM was received: hand over leaderships, then halt."""


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
    """The reply to a ClientRequest: the matching response message.

    Arguments:
        told: the message; of a reply to a fetch, everything but the entries.
        entries: the entries of a reply to a fetch, for each of its results.
    """

    request_id: int
    told: ProtoMessage
    entries: Sequence[Sequence[bytes]] = ()

    @property
    def message(self) -> ProtoMessage:
        """The complete message."""
        if not self.entries:
            return self.told
        assert isinstance(self.told, data_plane_pb2.FetchResponse)
        message = data_plane_pb2.FetchResponse()
        message.CopyFrom(self.told)
        for result, batches in zip(message.results, self.entries, strict=True):
            result.entries.extend(batches)
        return message

    def to_bytes(self) -> bytes:
        """Returns the complete message, serialized."""
        if not self.entries:
            return self.told.SerializeToString()
        assert isinstance(self.told, data_plane_pb2.FetchResponse)
        return _serialize_fetch(self.told, self.entries)


def _serialize_fetch(told: data_plane_pb2.FetchResponse, entries: Sequence[Sequence[bytes]]) -> bytes:
    """Serializes the reply to a fetch without copying its entries into a message first.

    Protobuf copies each batch into its message and again into the bytes to send, into memory that it newly allocates:
    for two megabytes that takes three times as long as the single copy made here.

    Arguments:
        told: the reply without entries.
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
    """The node has ended: stopped on request (``error`` None), or unable to continue safely."""

    error: str | None


#: The severity of a line in the node's log.
LogLevel = Literal["debug", "info", "warning", "error"]


class EventLog(Protocol):
    """Writes events to the node's log."""

    def __call__(self, level: LogLevel, event: str, **fields: object) -> None:
        """Adds a line.

        Arguments:
            event: a name of lower-case words, as in the table of docs/operate/metrics.md.
            fields: numbers, names and reasons; never what records hold.
        """


@dataclass(slots=True)
class LogLine:
    """A line for the node's log, see :class:`EventLog`.

    Arguments:
        logger: the package that writes it.
    """

    level: str
    event: str
    fields: dict[str, object]
    logger: str = "server.node"


@dataclass(slots=True, frozen=True)
class AuditLine:
    """A line for the audit log: a denied request or a change. It never contains record data.

    Arguments:
        event: refused or changed.
        wall_ms: when, in milliseconds since the epoch.
        fields: the principal, its address, the operation and the outcome.
    """

    event: str
    wall_ms: int
    fields: dict[str, object]


@dataclass(slots=True)
class Job:
    """A short task that only reads storage and touches nothing else of the node.

    Jobs run beside the steps, one at a time; the node gets a JobDone for each.
    """

    number: int
    work: Callable[[], object]


@dataclass(slots=True, frozen=True)
class EndedStream:
    """Closes a client's stream because the client is no longer authorized, or must connect again."""

    stream: int
    error: errors_pb2.Error


@dataclass(slots=True, frozen=True)
class StreamPause:
    """Pauses reading from a client's stream while a request of it waits, or resumes reading."""

    stream: int
    is_paused: bool


@dataclass(slots=True)
class Effects:
    """Effects of one step. Frames may be sent before the transaction is synced; replies only report what was durable
    when the step started. At most one transaction is in progress at a time.

    Arguments:
        frames: (peer, frame), in order.
        transaction: to be written and synced by the storage thread, which reports StorageDone or StorageFailed.
        replies: to clients; an Error instead of a response rejects the call as a whole.
        ended_streams: streams of clients to close.
        stream_pauses: streams of clients that exceed a quota, in order.
        identify: addresses (host:port) to send Identify to, before formation.
        report_loss: (address, directory id): asks the node at the address to give up a former disk of this node, as
            ``nodes replace`` does; LossAnswered reports the outcome.
        connect: when not None, the peers to keep streams to from now on: node id -> address.
        logs: lines for the log.
        audit: lines for the audit log.
        halt: when not None, the node has ended.
        jobs: tasks to run outside the node's thread, in order.
        settings: when not None, the values of changed settings, from now on.
        groups: the Raft groups that the step examined, for observers; all other groups are unchanged.
    """

    frames: list[tuple[int, PeerFrame]] = field(default_factory=list)
    transaction: StorageTransaction | None = None
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
    settings: DynamicValues | None = None
    groups: list[int] = field(default_factory=list)

"""gRPC settings that every channel between nodes and every server share."""

from __future__ import annotations

from dataclasses import dataclass

#: A frame holds at least one entry whole, however large; requests are bounded by the node's limits, far below this.
MAX_MESSAGE_BYTES = 128 << 20

_MESSAGES: tuple[tuple[str, int], ...] = (
    ("grpc.max_send_message_length", MAX_MESSAGE_BYTES),
    ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
)
#: A process that is stopped, or a host that vanished without closing its sockets, is noticed after four seconds. Raft's
#: own heartbeats have moved leaderships long before; this frees the connection. The ping timeout counts for pings that
#: gRPC sends of its own accord: while one of those is out no keepalive ping leaves, and its own default is a minute.
_KEEPALIVE: tuple[tuple[str, int], ...] = (
    ("grpc.keepalive_time_ms", 2_000),
    ("grpc.keepalive_timeout_ms", 2_000),
    ("grpc.http2.ping_timeout_ms", 2_000),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.max_pings_without_data", 0),
)
#: Without its own pool a second channel to the same address would share the first one's connection, and a heartbeat
#: would wait behind the megabytes in its socket.
PEER_CHANNEL_OPTIONS: tuple[tuple[str, int], ...] = (
    *_MESSAGES,
    *_KEEPALIVE,
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.enable_retries", 0),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 1_000),
    ("grpc.max_reconnect_backoff_ms", 1_000),
    ("grpc.enable_http_proxy", 0),
)


@dataclass(slots=True, frozen=True)
class ConnectionLimits:
    """What strangers may hold of one server before they have said a word, and after. Times are in milliseconds.

    Arguments:
        connections: at once; what comes beyond them is closed.
        handshake_ms: from the connection to the first frame of HTTP/2, TLS included. gRPC's own default leaves silent
            sockets open for two minutes.
        idle_ms: without a call on it, from the first moment on. Clients connect again when they need to.
        streams: calls on one connection; a client's further ones wait at the client.
        message_bytes: of one message, decompressed or not.
        metadata_bytes: of the metadata of one call.
        unasked_bytes: what gRPC takes in of a call that nobody reads yet. None: as much as it finds that the connection
            carries, up to 16 MiB.
    """

    connections: int = 10_000
    handshake_ms: int = 5_000
    idle_ms: int = 60_000
    streams: int = 100
    message_bytes: int = MAX_MESSAGE_BYTES
    metadata_bytes: int = 16 << 10
    unasked_bytes: int | None = None


DEFAULT_LIMITS = ConnectionLimits()


def server_options(limits: ConnectionLimits) -> tuple[tuple[str, int], ...]:
    """gRPC's settings of a server."""
    windows: tuple[tuple[str, int], ...] = ()
    if limits.unasked_bytes is not None:
        windows = (("grpc.http2.bdp_probe", 0), ("grpc.http2.lookahead_bytes", limits.unasked_bytes))
    return (
        *windows,
        ("grpc.max_send_message_length", MAX_MESSAGE_BYTES),
        ("grpc.max_receive_message_length", limits.message_bytes),
        ("grpc.max_metadata_size", limits.metadata_bytes),
        ("grpc.absolute_max_metadata_size", limits.metadata_bytes),
        ("grpc.max_concurrent_streams", limits.streams),
        ("grpc.max_allowed_incoming_connections", limits.connections),
        ("grpc.server_handshake_timeout_ms", limits.handshake_ms),
        ("grpc.max_connection_idle_ms", limits.idle_ms),
        # No client of ours compresses messages: records are compressed in their batches.
        ("grpc.per_message_decompression", 0),
        # With so_reuseport a second process would share the port in silence and take half of the connections.
        ("grpc.so_reuseport", 0),
        ("grpc.http2.min_recv_ping_interval_without_data_ms", 500),
        ("grpc.http2.max_ping_strikes", 0),
        ("grpc.keepalive_time_ms", 5_000),
        ("grpc.keepalive_timeout_ms", 5_000),
        ("grpc.http2.ping_timeout_ms", 5_000),
        ("grpc.keepalive_permit_without_calls", 1),
    )

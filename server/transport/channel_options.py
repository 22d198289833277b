"""gRPC settings shared by every channel between nodes and every server."""

from __future__ import annotations

from dataclasses import dataclass

#: A frame holds at least one complete entry, however large; requests have the node's own limits, which are far lower.
MAX_MESSAGE_BYTES = 128 << 20

_MESSAGES: tuple[tuple[str, int], ...] = (
    ("grpc.max_send_message_length", MAX_MESSAGE_BYTES),
    ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
)
#: A stopped process, or a host that vanished without closing its sockets, is detected after six seconds. Raft's
#: heartbeats have moved leaderships long before; this frees the connection. The ping timeout applies to pings that gRPC
#: sends on its own: while one is unanswered no keepalive ping is sent, and the default is a minute.
_KEEPALIVE: tuple[tuple[str, int], ...] = (
    ("grpc.keepalive_time_ms", 2_000),
    ("grpc.keepalive_timeout_ms", 4_000),
    ("grpc.http2.ping_timeout_ms", 4_000),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.max_pings_without_data", 0),
)
#: Without its own pool, a second channel to the same address would share the connection of the first, and a heartbeat
#: would wait behind megabytes in its socket.
PEER_CHANNEL_OPTIONS: tuple[tuple[str, int], ...] = (
    *_MESSAGES,
    *_KEEPALIVE,
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.enable_retries", 0),
    ("grpc.initial_reconnect_backoff_ms", 100),
    # The time limit of one attempt to connect, which takes seconds on a busy machine.
    ("grpc.min_reconnect_backoff_ms", 3_000),
    ("grpc.max_reconnect_backoff_ms", 1_000),
    ("grpc.enable_http_proxy", 0),
)


@dataclass(slots=True, frozen=True)
class ConnectionLimits:
    """Limits on the resources that unauthenticated and idle clients hold. Times are in milliseconds.

    Arguments:
        connections: at a time; further ones are closed.
        handshake_ms: from the connection to the first frame of HTTP/2, TLS included. gRPC's own default leaves silent
            sockets open for two minutes.
        idle_ms: without a call on the connection, starting with its first moment. Clients reconnect when they need to.
        streams: calls on one connection; further ones wait at the client.
        message_bytes: of one message, decompressed or not.
        metadata_bytes: of the metadata of one call.
        unasked_bytes: data that gRPC buffers for a call that is not being read. None: it adapts to what the connection
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
    """Returns gRPC's settings of a server."""
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
        # Our clients do not compress messages: records are compressed in their batches.
        ("grpc.per_message_decompression", 0),
        # With so_reuseport, a second process would silently share the port and take half of the connections.
        ("grpc.so_reuseport", 0),
        ("grpc.http2.min_recv_ping_interval_without_data_ms", 500),
        ("grpc.http2.max_ping_strikes", 0),
        # A client that has vanished holds little; one without processor time must not lose its connection.
        ("grpc.keepalive_time_ms", 5_000),
        ("grpc.keepalive_timeout_ms", 15_000),
        ("grpc.http2.ping_timeout_ms", 15_000),
        ("grpc.keepalive_permit_without_calls", 1),
    )

"""gRPC settings that every channel between nodes and every server share."""

from __future__ import annotations

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
#: With so_reuseport a second process would share the port in silence and take half of the connections.
SERVER_OPTIONS: tuple[tuple[str, int], ...] = (
    *_MESSAGES,
    ("grpc.so_reuseport", 0),
    ("grpc.http2.min_recv_ping_interval_without_data_ms", 500),
    ("grpc.http2.max_ping_strikes", 0),
    ("grpc.keepalive_time_ms", 5_000),
    ("grpc.keepalive_timeout_ms", 5_000),
    ("grpc.http2.ping_timeout_ms", 5_000),
    ("grpc.keepalive_permit_without_calls", 1),
)

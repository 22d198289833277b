"""External dependencies of a client: time, randomness, channels to nodes, and threads for blocking work.

Everything else in a client is deterministic. So a simulator that supplies its own time, randomness, channels and
threads, and runs the client's coroutines on its own loop, reproduces the behaviour of the shipped client from the same
seed.
"""

from __future__ import annotations

import asyncio
import contextvars
import random
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import grpc.aio

from quorumlog.sdk.runtime.fork import connecting
from quorumlog.sdk.runtime.other_protocol import what_answers

#: Larger messages are refused: a fetch is limited by its max_bytes, but its first batch is always complete.
MAX_MESSAGE_BYTES = 256 * 1024 * 1024

CHANNEL_OPTIONS = (
    ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
    ("grpc.max_send_message_length", MAX_MESSAGE_BYTES),
    # A node restarts within a second; gRPC's own pause between attempts grows to two minutes.
    ("grpc.initial_reconnect_backoff_ms", 50),
    ("grpc.max_reconnect_backoff_ms", 500),
    # The time limit of one attempt to connect. On a busy machine one takes seconds, and attempts that are given up too
    # early never end: each costs processor time, which the next one lacks.
    ("grpc.min_reconnect_backoff_ms", 5_000),
    # The client retries itself: it can tell which requests may be sent twice.
    ("grpc.enable_retries", 0),
    # Two clients in a process must not share one connection's flow control.
    ("grpc.use_local_subchannel_pool", 1),
    # Brokers are reached directly, whatever web proxy the environment names.
    ("grpc.enable_http_proxy", 0),
)


def open_grpc_channel(holder: object, address: str, client_id: str) -> grpc.aio.Channel:
    """Returns a channel over TCP.

    Arguments:
        holder: keeps the channel and the objects opened on it.
        address: ``host:port`` of the node.
        client_id: part of the user agent that nodes see.

    Raises:
        ForkedClientError: gRPC cannot work in this process; see :mod:`quorumlog.sdk.runtime.fork`.
    """
    connecting(holder)
    return grpc.aio.insecure_channel(address, options=(*CHANNEL_OPTIONS, ("grpc.primary_user_agent", client_id)))


async def run_blocking(call: Callable[..., Any], *arguments: Any) -> Any:
    """Calls a function that may block in a thread of the event loop's executor, like ``asyncio.to_thread``.

    Once the main thread has ended, executors accept no more work, while other threads and their clients still run. The
    function is then called here, and the loop waits for it.
    """
    work = partial(contextvars.copy_context().run, call, *arguments)
    try:
        waiting = asyncio.get_running_loop().run_in_executor(None, work)
    except RuntimeError:
        return work()
    return await waiting


@dataclass(slots=True, frozen=True)
class ClientRuntime:
    """External dependencies of one client, or of several.

    Arguments:
        monotonic_s: monotonic seconds. The client's event loop must use the same clock.
        wall_ns: nanoseconds since the epoch, for records without a timestamp.
        rng: for jitter and for unique ids.
        open_channel: creates a channel for a holder, an address and a client id; see :func:`open_grpc_channel`.
        run_blocking: runs a function that may block, such as on files, and returns its result.
        what_answers: returns what is wrong with an address where no node answers; see
            :func:`other_protocol.what_answers`.
    """

    monotonic_s: Callable[[], float] = time.monotonic
    wall_ns: Callable[[], int] = time.time_ns
    rng: random.Random = field(default_factory=random.SystemRandom)
    open_channel: Callable[[object, str, str], grpc.aio.Channel] = open_grpc_channel
    run_blocking: Callable[..., Awaitable[Any]] = run_blocking
    what_answers: Callable[[str, bool], str | None] = lambda _address, _tls: None


#: The system's clocks, randomness, network and threads.
SYSTEM_RUNTIME = ClientRuntime(what_answers=what_answers)

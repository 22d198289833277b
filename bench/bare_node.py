"""A node of the bare path: the minimum of any replicated log. The yardstick for the real node.

A client streams batches to the leader; the leader writes them and forwards them to two followers; each of the three
syncs to disk before it counts; two of three acknowledge. No Raft, no offsets, no checksums, no terms. The transport is
gRPC with raw bytes, the disk LMDB with a storage thread and group commit, as in the real node, and the leader keeps a
bounded number of frames in flight per follower, so that later entries gather for the next.

    client -> leader   partition u8, number u64, payload          one message per batch
    leader -> client   number u64 ...                             acknowledged batches
    leader -> follower (partition u64, index u64, size u32, payload) ...
    follower -> leader (partition u64, index u64) ...             written and synced
    reader -> node     count u32, size u32                        requests blobs from memory, for the reading yardstick
"""

from __future__ import annotations

import argparse
import asyncio
import os
import struct
import sys
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import grpc
import lmdb
import uvloop

SERVICE = "bare"
FRAMES_IN_FLIGHT = 2
FRAME_BYTES = 1 << 20
OPTIONS = (("grpc.max_send_message_length", -1), ("grpc.max_receive_message_length", -1))

REQUEST = struct.Struct("<BQ")
NUMBER = struct.Struct("<Q")
_ENTRY = struct.Struct("<QQI")
_POSITION = struct.Struct("<QQ")
_KEY = struct.Struct(">QQ")
READ = struct.Struct("<II")

Key = tuple[int, int]


def unchanged(message: bytes) -> bytes:
    """Returns raw bytes unchanged, as a serializer."""
    return message


class BareStorage:
    """LMDB with one thread; all waiting entries go into the next transaction."""

    def __init__(self, directory: Path, loop: asyncio.AbstractEventLoop) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self._loop = loop
        self._environment = lmdb.open(str(directory), map_size=1 << 38, max_dbs=2)
        self._log = self._environment.open_db(b"log")
        self._index = self._environment.open_db(b"index")
        self._waiting: list[tuple[bytes, bytes, Callable[[], None]]] = []
        self._arrived = threading.Condition()
        threading.Thread(target=self._run, daemon=True, name="storage").start()

    def append(self, key: Key, payload: bytes, on_durable: Callable[[], None]) -> None:
        """Writes one entry; ``on_durable`` is called on the event loop once it is synced."""
        with self._arrived:
            self._waiting.append((_KEY.pack(*key), payload, on_durable))
            self._arrived.notify()

    def _run(self) -> None:
        while True:
            with self._arrived:
                self._arrived.wait_for(lambda: self._waiting)
                batch, self._waiting = self._waiting, []
            with self._environment.begin(write=True) as transaction:
                transaction.cursor(self._log).putmulti([(key, payload) for key, payload, _ in batch])
                transaction.cursor(self._index).putmulti([(key, b"position") for key, _, _ in batch])
            self._loop.call_soon_threadsafe(_call_all, [on_durable for _, _, on_durable in batch])


def _call_all(callbacks: list[Callable[[], None]]) -> None:
    for callback in callbacks:
        callback()


def _entries(frame: bytes) -> Iterator[tuple[Key, bytes]]:
    place = 0
    while place < len(frame):
        partition, index, size = _ENTRY.unpack_from(frame, place)
        place += _ENTRY.size
        yield (partition, index), frame[place : place + size]
        place += size


class Follower:
    """Writes the leader's entries, and acknowledges each frame once all of it is durable."""

    def __init__(self, storage: BareStorage) -> None:
        self._storage = storage

    async def append(self, frames: AsyncIterator[bytes], context: Any) -> AsyncIterator[bytes]:
        """Serves the stream from the leader."""
        durable: asyncio.Queue[list[Key]] = asyncio.Queue()
        reader = asyncio.create_task(self._take(frames, durable))
        try:
            while True:
                keys = await durable.get()
                yield b"".join(_POSITION.pack(*key) for key in keys)
        finally:
            reader.cancel()

    async def _take(self, frames: AsyncIterator[bytes], durable: asyncio.Queue[list[Key]]) -> None:
        async for frame in frames:
            entries = list(_entries(frame))
            keys = [key for key, _ in entries]
            for key, payload in entries[:-1]:
                self._storage.append(key, payload, _nothing)
            # The storage thread keeps the order: when the last one is durable, all of the frame are.
            self._storage.append(*entries[-1], partial(durable.put_nowait, keys))


def _nothing() -> None:
    pass


class Link:
    """The leader's side of one follower: a queue, and a bounded number of frames in flight."""

    def __init__(self, address: str, on_acknowledged: Callable[[Key], None]) -> None:
        self._channel = grpc.aio.insecure_channel(address, options=OPTIONS)
        self._on_acknowledged = on_acknowledged
        self._credit = asyncio.Semaphore(FRAMES_IN_FLIGHT)
        self._queue: asyncio.Queue[bytes] = asyncio.Queue()
        self._tasks: list[asyncio.Task[None]] = []

    def send(self, entry: bytes) -> None:
        """Queues one framed entry."""
        self._queue.put_nowait(entry)

    def start(self) -> None:
        """Opens the stream."""
        call = self._channel.stream_stream(f"/{SERVICE}/Append", unchanged, unchanged)(None)
        self._tasks = [asyncio.create_task(self._send(call)), asyncio.create_task(self._receive(call))]

    async def _send(self, call: Any) -> None:
        while True:
            frame = [await self._queue.get()]
            await self._credit.acquire()
            size = len(frame[0])
            while not self._queue.empty() and size < FRAME_BYTES:
                frame.append(self._queue.get_nowait())
                size += len(frame[-1])
            await call.write(b"".join(frame))

    async def _receive(self, call: Any) -> None:
        async for answer in call:
            self._credit.release()
            for partition, index in _POSITION.iter_unpack(answer):
                self._on_acknowledged((partition, index))


class Leader:
    """Numbers batches, writes them, forwards them, and answers when two of three have them durably."""

    def __init__(self, storage: BareStorage, followers: list[str]) -> None:
        self._storage = storage
        self._next: dict[int, int] = {}
        self._missing: dict[Key, tuple[int, Callable[[], None]]] = {}
        self._links = [Link(address, self._acknowledged) for address in followers]
        for link in self._links:
            link.start()

    async def produce(self, batches: AsyncIterator[bytes], context: Any) -> AsyncIterator[bytes]:
        """Serves the stream from a client."""
        committed: asyncio.Queue[int] = asyncio.Queue()
        reader = asyncio.create_task(self._take(batches, committed))
        try:
            while True:
                numbers = [await committed.get()]
                while not committed.empty():
                    numbers.append(committed.get_nowait())
                yield b"".join(NUMBER.pack(number) for number in numbers)
        finally:
            reader.cancel()

    async def _take(self, batches: AsyncIterator[bytes], committed: asyncio.Queue[int]) -> None:
        async for message in batches:
            partition, number = REQUEST.unpack_from(message)
            key = (partition, self._next.get(partition, 0) + 1)
            self._next[partition] = key[1]
            self._missing[key] = (2, partial(committed.put_nowait, number))
            payload = message[REQUEST.size :]
            entry = _ENTRY.pack(*key, len(payload)) + payload
            for link in self._links:
                link.send(entry)
            self._storage.append(key, payload, partial(self._acknowledged, key))

    def _acknowledged(self, key: Key) -> None:
        waiting = self._missing.get(key)
        if waiting is None:
            return
        missing, on_committed = waiting
        if missing > 1:
            self._missing[key] = (missing - 1, on_committed)
        else:
            del self._missing[key]
            on_committed()


async def read(requests: AsyncIterator[bytes], context: Any) -> AsyncIterator[bytes]:
    """Streams blobs from memory: the maximum speed at which gRPC could deliver a log."""
    async for request in requests:
        count, size = READ.unpack(request)
        blob = os.urandom(size)
        for _ in range(count):
            yield blob


async def serve(port: int, directory: Path, followers: list[str]) -> None:
    """Runs a node until it is killed."""
    storage = BareStorage(directory, asyncio.get_running_loop())
    stream = grpc.stream_stream_rpc_method_handler
    methods = {"Read": stream(read, unchanged, unchanged)}
    if followers:
        methods["Produce"] = stream(Leader(storage, followers).produce, unchanged, unchanged)
    else:
        methods["Append"] = stream(Follower(storage).append, unchanged, unchanged)
    server = grpc.aio.server(options=OPTIONS)
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, methods),))
    server.add_insecure_port(f"127.0.0.1:{port}")
    await server.start()
    asyncio.get_running_loop().add_reader(sys.stdin.fileno(), _end_with_starter)
    print("ready", flush=True)
    await server.wait_for_termination()


def _end_with_starter() -> None:
    if not os.read(sys.stdin.fileno(), 1):
        os._exit(0)


def main() -> None:
    """``python -m bench.bare_node``: the leader if it is given followers, otherwise a follower."""
    parser = argparse.ArgumentParser(prog="python -m bench.bare_node", description=__doc__)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--data-dir", type=Path, required=True)
    parser.add_argument("--followers", default="", help="host:port,host:port")
    parsed = parser.parse_args()
    uvloop.run(serve(parsed.port, parsed.data_dir, [address for address in parsed.followers.split(",") if address]))


if __name__ == "__main__":
    main()

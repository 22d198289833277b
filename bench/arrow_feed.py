"""A bare gRPC server of Arrow bytes: the cost of reading over the network without a log.

It holds one batch of records, encoded as nodes store them, and streams it on each request. No offsets, no checksums, no
leaders, no disk.

    reader -> server   count u32          requests a number of messages
    server -> reader   payload            of ``MESSAGE_RECORDS`` records each
"""

from __future__ import annotations

import argparse
import asyncio
import os
import struct
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import grpc
import pyarrow as pa
import uvloop

from bench.bare_node import OPTIONS, unchanged
from quorumlog.sdk.records.record_batch import to_log_schema
from quorumlog.wire.entry import Codec
from quorumlog.wire.payload import write_payload

SERVICE = "arrow_feed"
COUNT = struct.Struct("<I")
#: About 2 MiB of records of 100 B: the size of a node's answer to a fetch of the source.
MESSAGE_RECORDS = 18_000
_ROOT = Path(__file__).resolve().parent.parent


def random_values(records: int, size: int) -> pa.Array[Any]:
    """Returns values of ``size`` random bytes each."""
    offsets = pa.array(range(0, size * records + 1, size), type=pa.int32())
    data = pa.py_buffer(os.urandom(size * records))
    return pa.Array.from_buffers(pa.binary(), records, [None, offsets.buffers()[1], data])


def payload(records: int, size: int) -> bytes:
    """Returns records of ``size`` bytes as they are stored and fetched."""
    table = to_log_schema(pa.table({"value": random_values(records, size)}), now_ms=1_700_000_000_000)
    (batch,) = table.to_batches()
    return write_payload(batch, Codec.NONE)


async def serve(port: int, size: int) -> None:
    """Runs the server until its parent process has exited."""
    blob = payload(MESSAGE_RECORDS, size)

    async def read(request: bytes, context: Any) -> AsyncIterator[bytes]:
        (count,) = COUNT.unpack(request)
        for _ in range(count):
            yield blob

    methods = {"Read": grpc.unary_stream_rpc_method_handler(read, unchanged, unchanged)}
    server = grpc.aio.server(options=OPTIONS)
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, methods),))
    bound = server.add_insecure_port(f"127.0.0.1:{port}")
    await server.start()
    asyncio.get_running_loop().add_reader(sys.stdin.fileno(), _end_with_starter)
    print(bound, flush=True)
    await server.wait_for_termination()


def _end_with_starter() -> None:
    if not os.read(sys.stdin.fileno(), 1):
        os._exit(0)


class FeedError(Exception):
    """Raised if the server does not start."""


class ArrowFeed:
    """The server in a process of its own, on a free loopback port, while the context lasts.

    Arguments:
        size: bytes of a value.
    """

    def __init__(self, size: int) -> None:
        self._size = size
        self.address = ""

    def __enter__(self) -> Self:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "bench.arrow_feed", "--size", str(self._size)],
            cwd=_ROOT,
            # Its end notifies the server that the parent process has exited, for whatever reason.
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._process.stdout is not None
        said = self._process.stdout.readline().strip()
        if not said.isdecimal():
            self.__exit__(None, None, None)
            raise FeedError("the server of Arrow bytes did not start; see its own message above")
        self.address = f"127.0.0.1:{said}"
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            pipe.close()


def main() -> None:
    """``python -m bench.arrow_feed``: prints its port, and serves."""
    parser = argparse.ArgumentParser(prog="python -m bench.arrow_feed", description=__doc__)
    parser.add_argument("--port", type=int, default=0, help="a free one unless given")
    parser.add_argument("--size", type=int, required=True, help="bytes of a value")
    parsed = parser.parse_args()
    uvloop.run(serve(parsed.port, parsed.size))


if __name__ == "__main__":
    main()

"""Output of C libraries does not appear on the stderr of a program that uses the clients."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import grpc
import pytest

#: Makes a call, is idle until the server closes the connection, and makes another one.
IDLE = """
import sys, time
{imports}
channel = grpc.insecure_channel(sys.argv[1])
for _ in range(2):
    assert channel.unary_unary("/echo/Echo")(b"x", wait_for_ready=True, timeout=30) == b"x"
    closed = []
    channel.subscribe(lambda state: closed.append(state) if state is grpc.ChannelConnectivity.IDLE else None)
    deadline = time.monotonic() + 30
    while not closed and time.monotonic() < deadline:
        time.sleep(0.01)
    assert closed
"""
#: Speaks gRPC to a port where nothing is.
REFUSED = """
import sys
{imports}
try:
    grpc.insecure_channel("127.0.0.1:1").unary_unary("/echo/Echo")(b"x", timeout=5)
except grpc.RpcError:
    pass
try:
    grpc.secure_channel(sys.argv[1], grpc.ssl_channel_credentials()).unary_unary("/echo/Echo")(b"x", timeout=5)
except grpc.RpcError:
    pass
"""
IMPORTS = {
    "clients": "import quorumlog.sdk, grpc",
    "asyncio clients": "import quorumlog.sdk.aio, grpc",
    "local cluster": "from quorumlog.local import LocalCluster; import grpc",
}


class _Echo(grpc.GenericRpcHandler):
    def service(self, handler_call_details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler:
        return grpc.unary_unary_rpc_method_handler(lambda request, _context: request)


@pytest.fixture(scope="module")
def closing_server() -> Iterator[str]:
    """The address of a server that closes idle connections at once."""
    options = [("grpc.max_connection_idle_ms", 100), ("grpc.http2.max_ping_strikes", 0)]
    server = grpc.server(ThreadPoolExecutor(2), [_Echo()], options=options)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    yield f"127.0.0.1:{port}"
    server.stop(None)


def stderr_of(program: str, imports: str, address: str, **environment: str) -> str:
    kept = {name: value for name, value in os.environ.items() if name != "GRPC_VERBOSITY"}
    done = subprocess.run(
        [sys.executable, "-c", program.format(imports=imports), address],
        env=kept | environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stderr


@pytest.mark.parametrize("imports", IMPORTS.values(), ids=IMPORTS)
@pytest.mark.parametrize("program", [IDLE, REFUSED], ids=["idle", "refused"])
def test_grpc_prints_nothing(closing_server: str, program: str, imports: str) -> None:
    """Connections that end, or never come about, are reported by the clients alone."""
    assert stderr_of(program, imports, closing_server) == ""


def test_wanted_grpc_lines_stay(closing_server: str) -> None:
    """A program that asks gRPC for its lines gets them."""
    said = stderr_of(IDLE, IMPORTS["clients"], closing_server, GRPC_VERBOSITY="info")
    assert "chttp2_transport.cc" in said

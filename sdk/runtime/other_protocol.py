"""Recognises another protocol at an address where no node answers a client: Kafka's, or TLS on one side only."""

from __future__ import annotations

import contextlib
import socket
import ssl
import struct
import time

_TIMEOUT_S = 1.0
_USE = "use the gRPC address of the node, its setting listen ('quorumlog cluster status' shows that of a local cluster)"
_CORRELATION = 0x716C6F67
#: ApiVersions of version 0, which every Kafka broker answers in the same form before authentication.
_API_VERSIONS = struct.pack(">ihhih", 10, 18, 0, _CORRELATION, -1)
#: Start of the first frame of every HTTP/2 server: type SETTINGS on stream 0, after three bytes of length.
_SETTINGS = b"\x04"
_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes(3) + _SETTINGS + bytes(5)


def what_answers(address: str, tls: bool) -> str | None:
    """Returns what is wrong with an address and what to do, None if nothing is recognised.

    Takes a few seconds at most, and never raises.

    Arguments:
        tls: the client uses TLS.
    """
    try:
        _connected(address).close()
    except (OSError, ValueError):
        return None
    plain = _answer(address, _API_VERSIONS, in_tls=False)
    if _is_kafka(plain):
        return _kafka(address)
    serves_http2 = _answer(address, _PREFACE, in_tls=False)[3:4] == _SETTINGS
    if serves_http2:
        return f"{address} does not use TLS: leave security_protocol out, or set it to PLAINTEXT" if tls else None
    if _is_kafka(_answer(address, _API_VERSIONS, in_tls=True)):
        return _kafka(address)
    protocol = _protocol_in_tls(address)
    if protocol is None:
        return None
    if protocol != "h2":  # A node that requires certificates does not answer a client without one.
        return f"{address} does not speak gRPC. If it is the port for Kafka's clients, {_USE}"
    return None if tls else f"{address} uses TLS: set security_protocol to SSL or SASL_SSL, as its node asks"


def _kafka(address: str) -> str:
    return f"{address} speaks Kafka's protocol: {_USE}"


def _is_kafka(answer: bytes) -> bool:
    return len(answer) >= 8 and int.from_bytes(answer[4:8]) == _CORRELATION


def _answer(address: str, question: bytes, *, in_tls: bool) -> bytes:
    """Returns the first bytes of a response; empty without one."""
    wrapped = _in_tls if in_tls else contextlib.nullcontext
    with contextlib.suppress(OSError, ValueError), _connected(address) as plain, wrapped(plain) as connection:
        connection.sendall(question)
        return _first_bytes(connection)
    return b""


def _first_bytes(connection: socket.socket) -> bytes:
    answer, deadline = b"", time.monotonic() + _TIMEOUT_S
    while len(answer) < 9 and time.monotonic() < deadline:
        received = connection.recv(9 - len(answer))
        if not received:
            break
        answer += received
    return answer


def _protocol_in_tls(address: str) -> str | None:
    """Returns the protocol that a server chooses in TLS (ALPN); empty if it chooses none, None without TLS."""
    with contextlib.suppress(OSError, ValueError), _connected(address) as plain, _in_tls(plain) as connection:
        return connection.selected_alpn_protocol() or ""
    return None


def _connected(address: str) -> socket.socket:
    host, _, port = address.rpartition(":")
    return socket.create_connection((host.strip("[]"), int(port)), _TIMEOUT_S)


def _in_tls(plain: socket.socket) -> ssl.SSLSocket:
    """Returns a TLS connection that accepts any certificate: only a request without any information is sent in it."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    context.set_alpn_protocols(["h2"])
    return context.wrap_socket(plain)

"""A client that speaks just enough HTTP/2 to start calls, and to send of their messages what the node lets it send."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
import struct

_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
_DATA, _HEADERS, _RESET, _SETTINGS, _PING, _WINDOW = 0, 1, 3, 4, 6, 8
_ACK = END_STREAM = 0x1
_END_HEADERS = 0x4
_INITIAL_WINDOW = 65_535
_LARGEST_FRAME = 16_384


class RawHttp2:
    """One connection.

    Attributes:
        taken: bytes of messages that have left: the node has room for them, or has read them.
        ended: streams that the node has ended.
        answered: streams on which it has sent headers.
    """

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        self._window, self._initial = _INITIAL_WINDOW, _INITIAL_WINDOW
        self._windows: dict[int, int] = {}
        self._unsent: dict[int, bytearray] = {}
        self._head = b""
        self._next = 1
        self._scheme = "http" if writer.get_extra_info("ssl_object") is None else "https"
        self.taken = 0
        self.ended: set[int] = set()
        self.answered: set[int] = set()
        writer.write(_PREFACE + _frame(_SETTINGS, 0, 0, b""))

    @classmethod
    async def connect(cls, host: str, port: int, tls: ssl.SSLContext | None = None) -> RawHttp2:
        """Connects; the context of TLS offers h2."""
        return cls(*await asyncio.open_connection(host, port, ssl=tls, server_hostname=host if tls else None))

    def begin(self, path: str, declared_bytes: int, sent_bytes: int, **metadata: str) -> int:
        """Starts a call.

        Arguments:
            declared_bytes: how long its message says that it is.
            sent_bytes: how much of it is sent, once the node lets it be.
            metadata: of the call.

        Returns:
            The number of the stream.
        """
        stream, self._next = self._next, self._next + 2
        headers = {
            ":method": "POST",
            ":scheme": self._scheme,
            ":path": path,
            ":authority": "node",
            "te": "trailers",
            "content-type": "application/grpc",
            **metadata,
        }
        block = b"".join(_literal(name, value) for name, value in headers.items())
        self._writer.write(_frame(_HEADERS, _END_HEADERS, stream, block))
        self._windows[stream] = self._initial
        self._unsent[stream] = bytearray(struct.pack(">BI", 0, declared_bytes) + bytes(sent_bytes))
        return stream

    async def push(self, quiet_s: float, *, answer_to: int = 0) -> None:
        """Sends what the node accepts, until it has accepted and sent nothing for so long, has answered on the
        stream of that number, or closes."""
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            while answer_to not in self.answered:
                progress = await self._send()
                try:
                    async with asyncio.timeout(0.01 if progress else quiet_s):
                        await self._take_frame()
                except TimeoutError:
                    if not progress:
                        return

    async def _send(self) -> bool:
        progress = False
        for stream, unsent in self._unsent.items():
            count = min(len(unsent), self._windows[stream], self._window, _LARGEST_FRAME)
            if count > 0:
                self._writer.write(_frame(_DATA, 0, stream, bytes(unsent[:count])))
                del unsent[:count]
                self._windows[stream] -= count
                self._window -= count
                self.taken += count
                progress = True
        await self._writer.drain()
        return progress

    async def _take_frame(self) -> None:
        # The wait for a frame may be over behind its head, which is kept.
        head = self._head = self._head or await self._reader.readexactly(9)
        kind, flags, stream = head[3], head[4], int.from_bytes(head[5:], "big") & 0x7FFFFFFF
        body = await self._reader.readexactly(int.from_bytes(head[:3], "big"))
        self._head = b""
        if kind == _WINDOW:
            more = int.from_bytes(body, "big")
            if stream:
                self._windows[stream] = self._windows.get(stream, 0) + more
            else:
                self._window += more
        elif kind == _SETTINGS and not flags & _ACK:
            for at in range(0, len(body), 6):
                name, value = struct.unpack_from(">HI", body, at)
                if name == 4:
                    self._windows = {each: had + value - self._initial for each, had in self._windows.items()}
                    self._initial = value
            self._writer.write(_frame(_SETTINGS, _ACK, 0, b""))
        elif kind == _PING and not flags & _ACK:
            self._writer.write(_frame(_PING, _ACK, 0, body))
        if kind == _HEADERS:
            self.answered.add(stream)
        if kind == _RESET or (kind in (_HEADERS, _DATA) and flags & END_STREAM):
            self.ended.add(stream)
            self._unsent.pop(stream, None)

    def close(self) -> None:
        """Closes the connection, without a word."""
        self._writer.transport.abort()


def _frame(kind: int, flags: int, stream: int, body: bytes) -> bytes:
    return struct.pack(">I", len(body))[1:] + bytes([kind, flags]) + struct.pack(">I", stream) + body


def _literal(name: str, value: str) -> bytes:
    """A header as HPACK writes one that it does not remember."""
    return b"\0" + bytes([len(name)]) + name.encode() + bytes([len(value)]) + value.encode()

"""A connection to the port for Kafka's clients that sends any request of Kafka's protocol, also an unserved one."""

from __future__ import annotations

import socket
import ssl
import struct
from itertools import count
from types import TracebackType
from typing import Any, Self

from quorumlog.server.kafka.handlers.error_codes import KafkaError
from tests.support.kafka_oracle import their_class, their_message

DEADLINE_S = 30.0
_PLAIN_HANDSHAKE_VERSION, _AUTHENTICATE_VERSION = 1, 2


class KafkaConnection:
    """One connection over TLS, with one request in flight at a time.

    Arguments:
        address: host and port of the node.
        ca_file: certificate of the authority that signed the node's.
    """

    def __init__(self, address: str, ca_file: str) -> None:
        host, _, port = address.rpartition(":")
        context = ssl.create_default_context(cafile=ca_file)
        plain = socket.create_connection((host, int(port)), timeout=DEADLINE_S)
        self._socket = context.wrap_socket(plain, server_hostname=host)
        self._answers = self._socket.makefile("rb")
        self._numbers = count(1)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, at: TracebackType | None) -> None:
        self._answers.close()
        self._socket.close()

    def sign_in(self, user: str, password: str) -> None:
        """Authenticates with PLAIN."""
        self.ask("SaslHandshake", _PLAIN_HANDSHAKE_VERSION, mechanism="PLAIN")
        said = f"\0{user}\0{password}".encode()
        answer = self.ask("SaslAuthenticate", _AUTHENTICATE_VERSION, auth_bytes=said)
        assert answer.error_code == KafkaError.NONE, answer

    def ask(self, name: str, version: int, **content: Any) -> Any:
        """Returns the response to a request, as kafka-python reads it.

        Arguments:
            content: some of the request's fields; the others have Kafka's defaults.

        Raises:
            ConnectionError: the node closes the connection instead.
        """
        request = their_message(f"{name}Request", version, content)
        request.with_header(next(self._numbers), "test")
        self._socket.sendall(request.encode(header=True, framed=True))
        (size,) = struct.unpack(">i", self._read(4))
        return their_class(f"{name}Response").decode(self._read(size), version=version, header=True)

    def is_closed(self) -> bool:
        """True if the node closes the connection without another response; waits for that."""
        try:
            self._read(1)
        except ConnectionError:
            return True
        return False

    def _read(self, size: int) -> bytes:
        data = self._answers.read(size)
        if len(data) < size:
            raise ConnectionError("the node closed the connection")
        return data

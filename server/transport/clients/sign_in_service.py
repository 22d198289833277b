"""Authentication service, by password and by token: each call is one request to the node."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol

import grpc

from quorumlog.server.observability.metrics import Meters
from quorumlog.server.step.bearer_tokens import TokenVerifier
from quorumlog.server.step.events import TokenKeysRead
from quorumlog.server.transport.clients.client_requests import ClientRequests
from quorumlog.server.transport.clients.unary_calls import Handlers, unary_handler
from quorumlog.v1 import sign_in_pb2

SERVICE = "quorumlog.v1.SignIn"


class TokenKeyFile(Protocol):
    """The file of keys that sign tokens."""

    def current(self) -> TokenVerifier:
        """Returns a verifier with the current keys; the same object while they are unchanged. May block on the disk."""


class KeysForNode:
    """Updates the node's keys from their file before a token is verified.

    Arguments:
        file: of the keys.
        emit: receives events for the node.
    """

    def __init__(self, file: TokenKeyFile, emit: Callable[[TokenKeysRead], None]) -> None:
        self._file = file
        self._emit = emit
        self._given: TokenVerifier | None = None

    async def bring(self) -> None:
        """Reads the file, off the node's thread."""
        self.give(await asyncio.to_thread(self.read))

    def read(self) -> TokenVerifier:
        """Returns a verifier with the current keys. May block on the disk."""
        return self._file.current()

    def give(self, verifier: TokenVerifier) -> None:
        """Passes a verifier to the node, before a token is verified. Called on the event loop."""
        if verifier is not self._given:
            self._given = verifier
            self._emit(TokenKeysRead(verifier))


def sign_in_handlers(requests: ClientRequests, meters: Meters, keys: KeysForNode | None = None) -> Handlers:
    """Returns the authentication handlers for the gRPC server of the listener for passwords and tokens.

    Arguments:
        keys: for tokens; None: the node accepts none.
    """
    prepare = None if keys is None else keys.bring
    handlers = {
        "BeginScram": unary_handler(sign_in_pb2.BeginScramRequest, requests, meters),
        "FinishScram": unary_handler(sign_in_pb2.FinishScramRequest, requests, meters),
        "SignInByToken": unary_handler(sign_in_pb2.SignInByTokenRequest, requests, meters, prepare=prepare),
    }
    return grpc.method_handlers_generic_handler(SERVICE, handlers)

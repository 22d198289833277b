"""Sign-in by password and by token: each call is one request to the node."""

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
    """The file of keys for tokens."""

    def current(self) -> TokenVerifier:
        """A verifier with its keys as they are now: the same one as long as they are. May wait for the disk."""


class KeysForNode:
    """Sees to it that a node has the keys as they are before it is shown a token.

    Arguments:
        file: where they stand.
        emit: takes events for the node.
    """

    def __init__(self, file: TokenKeyFile, emit: Callable[[TokenKeysRead], None]) -> None:
        self._file = file
        self._emit = emit
        self._given: TokenVerifier | None = None

    async def bring(self) -> None:
        """Looks at the file, off the node's thread."""
        verifier = await asyncio.to_thread(self._file.current)
        if verifier is not self._given:
            self._given = verifier
            self._emit(TokenKeysRead(verifier))


def sign_in_handlers(requests: ClientRequests, meters: Meters, keys: KeysForNode | None = None) -> Handlers:
    """What the gRPC server of the listener for passwords and tokens serves beside all else.

    Arguments:
        keys: for tokens; None: the node takes none.
    """
    prepare = None if keys is None else keys.bring
    handlers = {
        "BeginScram": unary_handler(sign_in_pb2.BeginScramRequest, requests, meters),
        "FinishScram": unary_handler(sign_in_pb2.FinishScramRequest, requests, meters),
        "SignInByToken": unary_handler(sign_in_pb2.SignInByTokenRequest, requests, meters, prepare=prepare),
    }
    return grpc.method_handlers_generic_handler(SERVICE, handlers)

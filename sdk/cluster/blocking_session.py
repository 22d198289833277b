"""A session with one node for blocking calls: the counterpart of `node_session` without an event loop.

A Spark task ends long before a session would have to be renewed while a stream is open. It authenticates again in time,
and streams that end with their session are opened again, as after any loss.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import grpc

from quorumlog.sdk.cluster.node_session import RENEWED_AFTER, Metadata, not_asked_for, session_metadata
from quorumlog.sdk.runtime.bearer_identity import BearerIdentity
from quorumlog.sdk.runtime.scram_client import ScramIdentity, number_of
from quorumlog.sdk.runtime.security import Identity
from quorumlog.v1 import sign_in_pb2, sign_in_pb2_grpc

_CALL_S = 5.0
#: Shorter sessions are used to their end: a token that is not renewed gives a shorter session each time.
_LEAST_RENEWED_S = 1.0


class _DetailsInSession(NamedTuple):
    """The details of a call that gRPC expects; its own class cannot be instantiated."""

    method: str
    timeout: float | None
    metadata: Metadata
    credentials: Any
    wait_for_ready: bool | None
    compression: Any


class BlockingSession(grpc.UnaryUnaryClientInterceptor, grpc.StreamStreamClientInterceptor):  # type: ignore[type-arg]  # at run time they have none
    """Adds the session to all calls of a channel. Thread-safe.

    Arguments:
        channel: to the node.
        address: of the node, for messages.
    """

    def __init__(self, channel: grpc.Channel, identity: Identity, address: str) -> None:
        self._stub = sign_in_pb2_grpc.SignInStub(channel)
        self._identity = identity
        self._address = address
        self._rng = random.SystemRandom()
        self._lock = threading.Lock()
        self._token = ""
        self._good_until_s = 0.0

    def intercept_unary_unary(self, continuation: Callable[..., Any], details: Any, request: Any) -> Any:
        """Makes a unary call in the session."""
        return self._in_session(continuation, details, request)

    def intercept_stream_stream(self, continuation: Callable[..., Any], details: Any, requests: Any) -> Any:
        """Opens a stream in the session."""
        return self._in_session(continuation, details, requests)

    def _in_session(self, continuation: Callable[..., Any], details: Any, sent: Any) -> Any:
        token = self._current()
        made = _DetailsInSession(
            details.method, details.timeout, session_metadata(token), details.credentials, details.wait_for_ready,
            details.compression,
        )  # fmt: skip
        call = continuation(made, sent)

        def ended(_: object) -> None:
            if call.code() is grpc.StatusCode.UNAUTHENTICATED and token == self._token:
                self._token = ""  # The next attempt authenticates again.

        call.add_done_callback(ended)
        return call

    def _current(self) -> str:
        with self._lock:
            if not self._token or time.monotonic() >= self._good_until_s:
                self._sign_in()
            return self._token

    def _sign_in(self) -> None:
        granted: sign_in_pb2.FinishScramResponse | sign_in_pb2.SignInByTokenResponse
        try:
            if isinstance(self._identity, BearerIdentity):
                shown = sign_in_pb2.SignInByTokenRequest(bearer_token=self._identity.token())
                granted = self._stub.SignInByToken(shown, timeout=_CALL_S)
            else:
                granted = self._by_password(self._identity)
        except grpc.RpcError as error:
            if isinstance(error, grpc.Call) and error.code() is grpc.StatusCode.UNIMPLEMENTED:
                raise not_asked_for(self._identity, self._address) from None
            raise  # As if the call itself had failed: its caller handles the error.
        self._token = granted.session_token
        lifetime_s = granted.lifetime_ms / 1_000
        self._good_until_s = time.monotonic() + max(lifetime_s * RENEWED_AFTER, min(lifetime_s, _LEAST_RENEWED_S))

    def _by_password(self, identity: ScramIdentity) -> sign_in_pb2.FinishScramResponse:
        exchange = identity.begin(self._rng)
        first, mechanism = exchange.first.text, number_of(exchange.mechanism)
        begin = sign_in_pb2.BeginScramRequest(client_first=first, mechanism=mechanism)
        final = exchange.answer(self._stub.BeginScram(begin, timeout=_CALL_S).server_first)
        request = sign_in_pb2.FinishScramRequest(client_first=first, client_final=final, mechanism=mechanism)
        finished = self._stub.FinishScram(request, timeout=_CALL_S)
        exchange.check(finished.server_signature)
        return finished

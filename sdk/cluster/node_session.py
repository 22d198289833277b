"""A client's session with one node: authenticated on first use, renewed in time, and established again after a loss."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import grpc
import grpc.aio

from quorumlog.sdk.errors import QuorumlogError, SaslSessionExpiredError, UnsupportedVersionError
from quorumlog.sdk.failed_calls import error_from_rpc
from quorumlog.sdk.runtime.bearer_identity import BearerIdentity
from quorumlog.sdk.runtime.client_runtime import ClientRuntime
from quorumlog.sdk.runtime.scram_client import ScramIdentity, number_of
from quorumlog.sdk.runtime.security import Identity
from quorumlog.v1 import sign_in_pb2, sign_in_pb2_grpc

Reply = TypeVar("Reply")
Metadata = tuple[tuple[str, str], ...]

#: Time limit of one call of an authentication.
_CALL_S = 5.0
#: A token is renewed after this part of its lifetime; if that fails, again after this pause.
RENEWED_AFTER = 2 / 3
_RENEWAL_PAUSE_S = 5.0
#: The session of a token that is not renewed gets shorter at each renewal: this is the shortest pause.
_LEAST_PAUSE_S = 1.0
#: Attempts of a call whose session has expired.
_ATTEMPTS = 3


def session_metadata(token: str) -> Metadata:
    """Returns the metadata of a call in a session."""
    return (("authorization", f"Session {token}"),)


def not_asked_for(identity: Identity, address: str) -> UnsupportedVersionError:
    """Returns the error for a node that does not support this kind of authentication."""
    if isinstance(identity, BearerIdentity):
        return UnsupportedVersionError(
            f"{address} does not accept tokens: give addresses of password_listen of nodes that do, or another"
            " sasl_mechanism"
        )
    return UnsupportedVersionError(
        f"{address} does not accept passwords: give addresses of password_listen, or another security_protocol"
    )


class NodeSession:
    """The session with one node.

    Arguments:
        channel: to the node.
        identity: for authentication.
        address: of the node, for messages.
    """

    def __init__(self, channel: grpc.aio.Channel, identity: Identity, runtime: ClientRuntime, address: str) -> None:
        self._stub = sign_in_pb2_grpc.SignInStub(channel)
        self._identity = identity
        self._runtime = runtime
        self._address = address
        self._token = ""
        self._good_until_s = 0.0
        self._signing_in: asyncio.Task[None] | None = None
        self._renewing: asyncio.Task[None] | None = None

    async def metadata(self) -> Metadata:
        """Returns the metadata for a call in the session; authenticates if necessary.

        Raises:
            SaslAuthenticationFailedError: the user name or the password is wrong, or the token is not accepted.
            IllegalArgumentError: no token is available.
            QuorumlogError: the node cannot be reached.
        """
        if not self._token or self._runtime.monotonic_s() >= self._good_until_s:
            if self._signing_in is None or self._signing_in.done():
                self._signing_in = asyncio.get_running_loop().create_task(self._sign_in(""))
                self._signing_in.add_done_callback(_look_at_error)
            # Shared: a caller that stops waiting must not cancel it for others.
            await asyncio.shield(self._signing_in)
        return session_metadata(self._token)

    def forget(self, metadata: Metadata) -> None:
        """Forgets a session that the node no longer has, such as after a restart."""
        if metadata == session_metadata(self._token):
            self._token = ""

    async def call(self, make: Callable[[Metadata], Awaitable[Reply]]) -> Reply:
        """Makes a unary call in the session. If the session has expired, nothing was done, and the call is repeated in
        a new one."""
        for attempt in range(1, _ATTEMPTS + 1):
            metadata = await self.metadata()
            try:
                return await make(metadata)
            except grpc.RpcError as error:
                if not isinstance(error_from_rpc(error, self._address), SaslSessionExpiredError):
                    raise
                self.forget(metadata)
                if attempt == _ATTEMPTS:
                    raise
        raise AssertionError("the last attempt has returned or raised")

    async def _sign_in(self, token: str) -> None:
        """Authenticates.

        Arguments:
            token: of the session to renew; empty: a new one.
        """
        identity = self._identity
        try:
            if isinstance(identity, BearerIdentity):
                shown = await self._runtime.run_blocking(identity.token)
                request = sign_in_pb2.SignInByTokenRequest(bearer_token=shown, session_token=token)
                self._begin(await self._stub.SignInByToken(request, timeout=_CALL_S))
            else:
                self._begin(await self._by_password(identity, token))
        except grpc.RpcError as error:
            if isinstance(error, grpc.aio.AioRpcError) and error.code() is grpc.StatusCode.UNIMPLEMENTED:
                raise not_asked_for(identity, self._address) from None
            raise error_from_rpc(error, self._address) from None

    async def _by_password(self, identity: ScramIdentity, token: str) -> sign_in_pb2.FinishScramResponse:
        exchange = identity.begin(self._runtime.rng)
        begun = await self._stub.BeginScram(
            sign_in_pb2.BeginScramRequest(client_first=exchange.first.text, mechanism=number_of(exchange.mechanism)),
            timeout=_CALL_S,
        )
        final = await self._runtime.run_blocking(exchange.answer, begun.server_first)
        request = sign_in_pb2.FinishScramRequest(
            client_first=exchange.first.text,
            client_final=final,
            session_token=token,
            mechanism=number_of(exchange.mechanism),
        )
        finished = await self._stub.FinishScram(request, timeout=_CALL_S)
        exchange.check(finished.server_signature)
        return finished

    def _begin(self, given: sign_in_pb2.FinishScramResponse | sign_in_pb2.SignInByTokenResponse) -> None:
        """Starts using the session that the node has granted, and its renewal."""
        self._token = given.session_token
        self._good_until_s = self._runtime.monotonic_s() + given.lifetime_ms / 1_000
        if self._renewing is None or self._renewing.done():
            self._renewing = asyncio.get_running_loop().create_task(self._keep())
            self._renewing.add_done_callback(_look_at_error)

    async def _keep(self) -> None:
        """Renews the session as long as it is valid: streams end with it."""
        pause_s = self._until_renewal_s()
        while self._token:
            await asyncio.sleep(pause_s)
            left_s = self._good_until_s - self._runtime.monotonic_s()
            if not self._token or left_s <= 0:
                return
            try:
                await self._sign_in(self._token)
                pause_s = self._until_renewal_s()
            except QuorumlogError as error:
                # A token may still be renewed as long as the previous session is valid. Otherwise the next call
                # receives the error.
                if not error.retriable and not isinstance(self._identity, BearerIdentity):
                    return
                pause_s = min(_RENEWAL_PAUSE_S, left_s)

    def _until_renewal_s(self) -> float:
        return max(_LEAST_PAUSE_S, (self._good_until_s - self._runtime.monotonic_s()) * RENEWED_AFTER)

    def close(self) -> list[asyncio.Task[None]]:
        """Cancels background work; returns the tasks that run until it has ended."""
        running = [task for task in (self._signing_in, self._renewing) if task is not None and not task.done()]
        for task in running:
            task.cancel()
        return running


class SessionChannel:
    """A channel whose unary calls belong to a session.

    Streams are opened by their owners, with ``NodeSession.metadata``.
    """

    def __init__(self, channel: grpc.aio.Channel, session: NodeSession) -> None:
        self._channel = channel
        self._session = session

    def unary_unary(self, *arguments: Any, **options: Any) -> Callable[..., Awaitable[Any]]:
        """Returns a unary method; each call of it is awaited once."""
        method = self._channel.unary_unary(*arguments, **options)

        async def call(request: Any, *, timeout: float | None = None) -> Any:
            return await self._session.call(lambda metadata: method(request, timeout=timeout, metadata=metadata))

        return call

    def stream_stream(self, *arguments: Any, **options: Any) -> Any:
        """Returns a streaming method of the channel."""
        return self._channel.stream_stream(*arguments, **options)


def _look_at_error(task: asyncio.Task[None]) -> None:
    """Retrieves the exception, which waiting callers receive; without one asyncio would warn about it."""
    if not task.cancelled():
        task.exception()

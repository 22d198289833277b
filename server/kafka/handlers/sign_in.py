"""SaslHandshake and SaslAuthenticate (KIP-152, KIP-368). Both mechanisms use the node's two SCRAM calls.

With PLAIN, a client sends its password, over TLS only. It is hashed here as a SCRAM client would hash it, so a node has
one way to verify a password, with one backoff and one audit log.
"""

from __future__ import annotations

import base64
from functools import partial

from quorumlog.server.kafka.codec.sasl_requests import SaslAuthenticateRequest, SaslHandshakeRequest
from quorumlog.server.kafka.codec.sasl_responses import SaslAuthenticateResponse, SaslHandshakeResponse
from quorumlog.server.kafka.handlers.error_codes import KafkaError
from quorumlog.server.kafka.handlers.handler import KafkaCall, KafkaConnectionRefusedError, Steps, ask, hash_password
from quorumlog.server.kafka.sign_in_state import KafkaSignIn
from quorumlog.v1.errors_pb2 import Error, ErrorCode
from quorumlog.v1.sign_in_pb2 import BeginScramRequest, BeginScramResponse, FinishScramRequest, FinishScramResponse
from quorumlog.wire.saslprep import PasswordError, prepared
from quorumlog.wire.scram import (
    MAX_MESSAGE_LENGTH,
    MECHANISM,
    ClientFinal,
    ClientFirst,
    SaltedKeys,
    ScramMessageError,
    ServerFirst,
    auth_message,
    client_proof,
    salted_keys,
)

PLAIN = "PLAIN"
MECHANISMS = (MECHANISM, PLAIN)
#: Errors for failed authentication. All others do not depend on the client's identity: it may retry.
_WRONG = (ErrorCode.SASL_AUTHENTICATION_FAILED, ErrorCode.INVALID_REQUEST)
#: From this version on, the response has the session lifetime.
_TELLS_LIFETIME = 1


class _NotSignedInError(Exception):
    """Raised if authentication fails, which closes the connection. The message contains no secret."""

    def __init__(self, problem: str, code: KafkaError = KafkaError.SASL_AUTHENTICATION_FAILED) -> None:
        super().__init__(problem)
        self.code = code


def shake_hands(call: KafkaCall[SaslHandshakeRequest]) -> Steps[SaslHandshakeResponse]:
    """Answers SaslHandshake."""
    yield from ()
    sign_in, wanted = _of(call), call.message.mechanism
    sign_in.client_first = ""
    if wanted in MECHANISMS:
        sign_in.mechanism = wanted
        return SaslHandshakeResponse(KafkaError.NONE, list(MECHANISMS))
    sign_in.failure = f"SASL mechanism not supported: {wanted[:50]!r}"
    return SaslHandshakeResponse(KafkaError.UNSUPPORTED_SASL_MECHANISM, list(MECHANISMS))


def authenticate(call: KafkaCall[SaslAuthenticateRequest]) -> Steps[SaslAuthenticateResponse]:
    """Answers SaslAuthenticate.

    Raises:
        KafkaConnectionRefusedError: the client has to retry later, on another connection.
    """
    sign_in = _of(call)
    try:
        response = yield from _authenticated(sign_in, _text(call.message.auth_bytes))
    except _NotSignedInError as problem:
        sign_in.failure = str(problem)
        return SaslAuthenticateResponse(problem.code, str(problem))
    if call.version < _TELLS_LIFETIME:
        response.session_lifetime_ms = 0
    return response


def _of(call: KafkaCall[SaslHandshakeRequest] | KafkaCall[SaslAuthenticateRequest]) -> KafkaSignIn:
    if call.sign_in is None:
        raise KafkaConnectionRefusedError("password authentication is not enabled on this listener")
    return call.sign_in


def _authenticated(sign_in: KafkaSignIn, said: str) -> Steps[SaslAuthenticateResponse]:
    if not sign_in.mechanism:
        raise _NotSignedInError(
            "SaslAuthenticate before SaslHandshake: send SaslHandshake first", KafkaError.ILLEGAL_SASL_STATE
        )
    if sign_in.mechanism == PLAIN:
        response = yield from _by_password(sign_in, said)
        response.auth_bytes = b""
    elif not sign_in.client_first:
        server_first = yield from _begin(sign_in, said)
        sign_in.client_first = said
        return SaslAuthenticateResponse(KafkaError.NONE, None, server_first.encode())
    else:
        response = yield from _finish(sign_in, sign_in.client_first, said)
    sign_in.mechanism = sign_in.client_first = ""
    return response


def _by_password(sign_in: KafkaSignIn, said: str) -> Steps[SaslAuthenticateResponse]:
    """Authenticates with PLAIN (RFC 4616)."""
    parts = said.split("\0")
    if len(parts) != 3 or not parts[1] or parts[0] not in ("", parts[1]):
        raise _NotSignedInError("invalid PLAIN message: send a user and a password, without another authorization id")
    first = ClientFirst(parts[1], sign_in.draw_nonce())
    try:
        password = prepared(parts[2])
        server_first = ServerFirst.of((yield from _begin(sign_in, first.text)), first.nonce)
    except PasswordError as problem:
        raise _NotSignedInError(f"the password {problem}") from None
    except ScramMessageError as problem:
        raise _NotSignedInError(str(problem)) from None
    keys = yield from hash_password(partial(salted_keys, password, server_first.salt, server_first.iterations))
    return (yield from _finish(sign_in, first.text, _final(first, server_first, keys)))


def _final(first: ClientFirst, server_first: ServerFirst, keys: SaltedKeys) -> str:
    unproved = ClientFinal(server_first.nonce, b"")
    return unproved._replace(proof=client_proof(keys, auth_message(first, server_first, unproved))).text


def _begin(sign_in: KafkaSignIn, client_first: str) -> Steps[str]:
    """Returns the node's answer to SCRAM's first message."""
    try:
        user = ClientFirst.of(client_first).user
    except ScramMessageError as problem:
        raise _NotSignedInError(f"invalid {MECHANISM} message: {problem}") from None
    if sign_in.token and user != sign_in.user:
        raise _NotSignedInError("the user of a connection cannot change: reauthenticate as the same user, or reconnect")
    sign_in.user = user
    reply = yield from ask(BeginScramRequest(client_first=client_first), BeginScramResponse)
    if reply.HasField("error"):
        raise _failed(reply.error)
    return reply.server_first


def _finish(sign_in: KafkaSignIn, client_first: str, client_final: str) -> Steps[SaslAuthenticateResponse]:
    """Starts the client's session, or renews the existing one."""
    request = FinishScramRequest(client_first=client_first, client_final=client_final, session_token=sign_in.token)
    reply = yield from ask(request, FinishScramResponse)
    if reply.HasField("error"):
        raise _failed(reply.error)
    sign_in.token = reply.session_token
    server_final = b"v=" + base64.b64encode(reply.server_signature)
    return SaslAuthenticateResponse(KafkaError.NONE, None, server_final, reply.lifetime_ms)


def _failed(error: Error) -> Exception:
    if error.code in _WRONG:
        return _NotSignedInError(error.message)
    return KafkaConnectionRefusedError(error.message)


def _text(said: bytes) -> str:
    """Decodes a message; an oversized one becomes text that is invalid in every mechanism."""
    if len(said) > 2 * MAX_MESSAGE_LENGTH:
        return ""
    return bytes(said).decode(errors="replace")

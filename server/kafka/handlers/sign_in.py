"""SaslHandshake and SaslAuthenticate (KIP-152, KIP-368). Passwords use the node's two SCRAM calls, tokens its call for
tokens (OAUTHBEARER, KIP-255, RFC 7628).

With PLAIN, a client sends its password, over TLS only. It is hashed here as a client of SCRAM-SHA-256 would hash it, so
a node has one way to verify a password, with one backoff and one audit log.
"""

from __future__ import annotations

import base64
from functools import partial

from quorumlog.server.kafka.codec.primitives import Buffer
from quorumlog.server.kafka.codec.sasl_requests import SaslAuthenticateRequest, SaslHandshakeRequest
from quorumlog.server.kafka.codec.sasl_responses import SaslAuthenticateResponse, SaslHandshakeResponse
from quorumlog.server.kafka.handlers.error_codes import KafkaError
from quorumlog.server.kafka.handlers.handler import (
    KafkaCall,
    KafkaConnectionRefusedError,
    Steps,
    ask,
    work_to_sign_in,
)
from quorumlog.server.kafka.oauthbearer_message import (
    ACKNOWLEDGEMENT,
    INVALID_TOKEN,
    MAX_MESSAGE_BYTES,
    OauthbearerMessage,
    OauthbearerMessageError,
)
from quorumlog.server.kafka.oauthbearer_message import MECHANISM as OAUTHBEARER
from quorumlog.server.kafka.sign_in_state import KafkaSignIn
from quorumlog.v1.credentials_pb2 import ScramMechanism as ScramNumber
from quorumlog.v1.errors_pb2 import Error, ErrorCode
from quorumlog.v1.sign_in_pb2 import (
    BeginScramRequest,
    BeginScramResponse,
    FinishScramRequest,
    FinishScramResponse,
    SignInByTokenRequest,
    SignInByTokenResponse,
)
from quorumlog.wire.saslprep import PasswordError, prepared
from quorumlog.wire.scram import (
    MAX_MESSAGE_LENGTH,
    MECHANISMS,
    ClientFinal,
    ClientFirst,
    SaltedKeys,
    ScramMechanism,
    ScramMessageError,
    ServerFirst,
    auth_message,
    client_proof,
    salted_keys,
)

PLAIN = "PLAIN"
#: The mechanism whose passwords PLAIN checks. Every user that was created before feature level 3 has one.
_OF_PLAIN = ScramMechanism.SHA_256
_NUMBERS = {each: ScramNumber.Value(f"SCRAM_MECHANISM_{each.name}") for each in ScramMechanism}
_ANOTHER_USER = "the user of a connection cannot change: reauthenticate as the same user, or reconnect"
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
    served = [*MECHANISMS, PLAIN, *([] if sign_in.keys is None else [OAUTHBEARER])]
    if sign_in.rejection:
        # Otherwise a client could have tokens checked without a new connection for each.
        sign_in.failure = sign_in.rejection
        return SaslHandshakeResponse(KafkaError.ILLEGAL_SASL_STATE, served)
    if wanted not in served:
        sign_in.failure = f"SASL mechanism not supported: {wanted[:50]!r}"
        return SaslHandshakeResponse(KafkaError.UNSUPPORTED_SASL_MECHANISM, served)
    if sign_in.token and _proof_of(wanted) != _proof_of(sign_in.former_mechanism):
        # The session would not be renewed: it belongs to the password, or to tokens.
        sign_in.failure = f"a connection keeps its SASL mechanism: reauthenticate with {sign_in.former_mechanism}"
        return SaslHandshakeResponse(KafkaError.ILLEGAL_SASL_STATE, served)
    sign_in.mechanism = wanted
    return SaslHandshakeResponse(KafkaError.NONE, served)


def _proof_of(mechanism: str) -> str:
    """Returns what a mechanism proves: of two with the same proof, each renews the session of the other."""
    return _OF_PLAIN.sasl_name if mechanism == PLAIN else mechanism


def authenticate(call: KafkaCall[SaslAuthenticateRequest]) -> Steps[SaslAuthenticateResponse]:
    """Answers SaslAuthenticate.

    Raises:
        KafkaConnectionRefusedError: the client has to retry later, on another connection.
    """
    sign_in = _of(call)
    try:
        response = yield from _authenticated(sign_in, call.message.auth_bytes)
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


def _authenticated(sign_in: KafkaSignIn, said: Buffer) -> Steps[SaslAuthenticateResponse]:
    if not sign_in.mechanism:
        raise _NotSignedInError(
            "SaslAuthenticate before SaslHandshake: send SaslHandshake first", KafkaError.ILLEGAL_SASL_STATE
        )
    if sign_in.mechanism == PLAIN:
        response = yield from _by_password(sign_in, _text(said))
        response.auth_bytes = b""
    elif sign_in.mechanism == OAUTHBEARER:
        response = yield from _by_token(sign_in, said)
        if sign_in.rejection:
            return response
    else:
        mechanism, text = MECHANISMS[sign_in.mechanism], _text(said)
        if not sign_in.client_first:
            server_first = yield from _begin(sign_in, mechanism, text)
            sign_in.client_first = text
            return SaslAuthenticateResponse(KafkaError.NONE, None, server_first.encode())
        response = yield from _finish(sign_in, mechanism, sign_in.client_first, text)
    sign_in.former_mechanism = sign_in.mechanism
    sign_in.mechanism = sign_in.client_first = ""
    return response


# -- passwords ----------------------------------------------------------------------------------------------------


def _by_password(sign_in: KafkaSignIn, said: str) -> Steps[SaslAuthenticateResponse]:
    """Authenticates with PLAIN (RFC 4616)."""
    parts = said.split("\0")
    if len(parts) != 3 or not parts[1] or parts[0] not in ("", parts[1]):
        raise _NotSignedInError("invalid PLAIN message: send a user and a password, without another authorization id")
    first = ClientFirst(parts[1], sign_in.draw_nonce())
    try:
        password = prepared(parts[2])
        server_first = ServerFirst.of((yield from _begin(sign_in, _OF_PLAIN, first.text)), first.nonce)
    except PasswordError as problem:
        raise _NotSignedInError(f"the password {problem}") from None
    except ScramMessageError as problem:
        raise _NotSignedInError(str(problem)) from None
    keys = yield from work_to_sign_in(
        partial(salted_keys, _OF_PLAIN, password, server_first.salt, server_first.iterations)
    )
    return (yield from _finish(sign_in, _OF_PLAIN, first.text, _final(first, server_first, keys)))


def _final(first: ClientFirst, server_first: ServerFirst, keys: SaltedKeys) -> str:
    unproved = ClientFinal(server_first.nonce, b"")
    return unproved._replace(proof=client_proof(keys, auth_message(first, server_first, unproved))).text


def _begin(sign_in: KafkaSignIn, mechanism: ScramMechanism, client_first: str) -> Steps[str]:
    """Returns the node's answer to SCRAM's first message."""
    try:
        user = ClientFirst.of(client_first).user
    except ScramMessageError as problem:
        raise _NotSignedInError(f"invalid {mechanism.sasl_name} message: {problem}") from None
    if sign_in.token and user != sign_in.user:
        raise _NotSignedInError(_ANOTHER_USER)
    sign_in.user = user
    request = BeginScramRequest(client_first=client_first, mechanism=_NUMBERS[mechanism])
    reply = yield from ask(request, BeginScramResponse)
    if reply.HasField("error"):
        raise _failed(reply.error)
    return reply.server_first


def _finish(
    sign_in: KafkaSignIn, mechanism: ScramMechanism, client_first: str, client_final: str
) -> Steps[SaslAuthenticateResponse]:
    """Starts the client's session, or renews the existing one."""
    request = FinishScramRequest(
        client_first=client_first,
        client_final=client_final,
        session_token=sign_in.token,
        mechanism=_NUMBERS[mechanism],
    )
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


# -- tokens -------------------------------------------------------------------------------------------------------


def _by_token(sign_in: KafkaSignIn, said: Buffer) -> Steps[SaslAuthenticateResponse]:
    """Authenticates with a token. A rejected one is answered with a status, which the client has to acknowledge before
    it receives the error (RFC 7628, section 3.2.3)."""
    if sign_in.rejection:
        is_acknowledged = bytes(said[:2]) == ACKNOWLEDGEMENT
        raise _NotSignedInError(sign_in.rejection if is_acknowledged else "invalid OAUTHBEARER message after the error")
    keys = sign_in.keys
    if keys is None:
        raise _NotSignedInError("this node accepts no tokens", KafkaError.UNSUPPORTED_SASL_MECHANISM)
    try:
        message = OauthbearerMessage.of(bytes(said[: MAX_MESSAGE_BYTES + 1]))
    except OauthbearerMessageError as problem:
        raise _NotSignedInError(f"invalid {OAUTHBEARER} message: {problem}") from None
    if sign_in.token and message.authorization_id not in ("", sign_in.user):
        raise _NotSignedInError(_ANOTHER_USER)
    verifier = yield from work_to_sign_in(keys.read)
    keys.give(verifier)
    request = SignInByTokenRequest(
        bearer_token=message.token,
        session_token=sign_in.token,
        authorization_id=sign_in.user if sign_in.token else message.authorization_id,
    )
    reply = yield from ask(request, SignInByTokenResponse)
    if reply.HasField("error"):
        if reply.error.code != ErrorCode.SASL_AUTHENTICATION_FAILED:
            raise _failed(reply.error)
        sign_in.rejection = reply.error.message
        return SaslAuthenticateResponse(KafkaError.NONE, None, INVALID_TOKEN)
    sign_in.user, sign_in.token = reply.user, reply.session_token
    return SaslAuthenticateResponse(KafkaError.NONE, None, b"", reply.lifetime_ms)


# -- both ---------------------------------------------------------------------------------------------------------


def _text(said: Buffer) -> str:
    """Decodes a message; an oversized one becomes text that is invalid in every mechanism."""
    if len(said) > 2 * MAX_MESSAGE_LENGTH:
        return ""
    return bytes(said).decode(errors="replace")

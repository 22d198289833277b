"""Authentication by password: SCRAM-SHA-256 or SCRAM-SHA-512 in two calls, using this node's own metadata.

The node keeps no state between the calls: what it needs again is in its nonce, authenticated with a key of this
process. So clients that start and never finish use no memory. For an unknown user, or one without a password for the
mechanism, a proof is requested all the same, with a derived salt that does not change and is identical on every node.
"""

from __future__ import annotations

import base64
import binascii
import hmac
import random
from dataclasses import dataclass

from quorumlog.server.access.sign_in_rules import SignInRules, no_room
from quorumlog.server.metadata.credentials import UserPassword, mechanism_of, unknown_mechanism
from quorumlog.server.step.events import ClientRequest
from quorumlog.server.step.node_service import ServiceHooks, StepTime
from quorumlog.server.step.replies import Replies
from quorumlog.server.step.request_context import USER_PREFIX, RequestContext
from quorumlog.server.step.wire_errors import error
from quorumlog.v1.errors_pb2 import Error, ErrorCode
from quorumlog.v1.sign_in_pb2 import (
    BeginScramRequest,
    BeginScramResponse,
    FinishScramRequest,
    FinishScramResponse,
)
from quorumlog.wire.scram import (
    DEFAULT_ITERATIONS,
    MIN_SALT_BYTES,
    ClientFinal,
    ClientFirst,
    ScramMechanism,
    ScramMessageError,
    ServerFirst,
    auth_message,
    proves,
    server_signature,
)

#: Maximum duration of an authentication (µs).
UNDER_WAY_US = 60 * 1_000_000
#: Maximum number of authentications in that time; more than the maximum number of sessions.
MAX_SIGN_INS = 40_000
_RANDOM_BYTES, _TIME_BYTES, _SEAL_BYTES = 15, 8, 16


@dataclass(slots=True, frozen=True)
class _Proved:
    """A client that has proved that it has a user's password.

    Arguments:
        nonce: of the exchange; it can be used once.
        signature: proves to the client that the node has the user's keys.
    """

    user: UserPassword
    nonce: str
    signature: bytes


class ScramSignIns:
    """Authenticates clients by password.

    Arguments:
        rules: the rules of this node.
        rng: a cryptographically secure source.
    """

    def __init__(self, rules: SignInRules, replies: Replies, rng: random.Random) -> None:
        self._rules = rules
        self._super_users = rules.options.super_users
        self._current = rules.current
        self._sessions = rules.sessions
        self._replies = replies
        self._rng = rng
        #: Drawn at the first authentication, so that nodes without any draw the same random numbers as before.
        self._seal_key = b""
        #: Nonces that were used for sessions, with the time at which they expire.
        self._used: dict[str, int] = {}

    def register(self, hooks: ServiceHooks) -> None:
        hooks.serve(BeginScramRequest, self.begin)
        hooks.serve(FinishScramRequest, self.finish)
        hooks.on_time(self.on_time)
        hooks.deadline(self)

    # -- the two calls ----------------------------------------------------------------------------------------

    def begin(self, time: StepTime, asked: ClientRequest, request: BeginScramRequest) -> None:
        """Handles a client's first message: replies with the salt of its password."""
        try:
            mechanism = _mechanism(request)
            first = ClientFirst.of(request.client_first)
        except ScramMessageError as problem:
            self._replies.reply(asked.request_id, BeginScramResponse(error=_malformed(problem)))
            return
        user = self._find(first.user, mechanism)
        at = time.now.to_bytes(_TIME_BYTES, "big")
        part = self._rng.randbytes(_RANDOM_BYTES) + at
        answer = _answer(first, user, part + self._seal(first, user, part))
        self._replies.reply(asked.request_id, BeginScramResponse(server_first=answer.text))

    def finish(self, time: StepTime, asked: ClientRequest, request: FinishScramRequest) -> None:
        """Handles a client's proof."""
        self._replies.reply(asked.request_id, self._finished(time.now, asked.client, request))

    def _finished(self, now: int, client: RequestContext, request: FinishScramRequest) -> FinishScramResponse:
        try:
            mechanism = _mechanism(request)
            first, final = ClientFirst.of(request.client_first), ClientFinal.of(request.client_final)
        except ScramMessageError as problem:
            return FinishScramResponse(error=_malformed(problem))
        refused = self._rules.refuse_attempt(now, client, first.user)
        if refused is not None:
            return FinishScramResponse(error=refused)
        proved = self._prove(now, client, mechanism, first, final)
        if isinstance(proved, Error):
            return FinishScramResponse(error=proved)
        refused = self._refuse(proved.user)
        if refused is not None:
            return FinishScramResponse(error=refused)
        self._rules.succeeded(client, first.user)
        token = None
        if len(self._used) < MAX_SIGN_INS:
            token = self._session(now, client, proved.user, request.session_token)
        if token is None:
            return FinishScramResponse(error=no_room(first.user))
        self._used[proved.nonce] = now + UNDER_WAY_US
        return FinishScramResponse(
            server_signature=proved.signature, session_token=token, lifetime_ms=self._sessions.lifetime_us // 1_000
        )

    def _prove(
        self, now: int, client: RequestContext, mechanism: ScramMechanism, first: ClientFirst, final: ClientFinal
    ) -> _Proved | Error:
        user, part = self._find(first.user, mechanism), _part_of(final.nonce, first.nonce)
        if part is None or not self._is_under_way(now, first, user, part, final.nonce):
            late = "authentication took too long, or the password has just been changed: start again"
            return error(ErrorCode.SASL_SESSION_EXPIRED, late)
        said = auth_message(first, _answer(first, user, part), final)
        if not proves(mechanism, final.proof, user.stored_key, said):
            self._rules.failed(now, client, first.user, mechanism.sasl_name)
            return error(ErrorCode.SASL_AUTHENTICATION_FAILED, wrong(mechanism))
        return _Proved(user, final.nonce, server_signature(mechanism, user.server_key, said))

    def _refuse(self, user: UserPassword) -> Error | None:
        """Returns the error if a user with the right password must not be admitted, or None."""
        principal = f"{USER_PREFIX}{user.name}"
        problem = self._rules.problem_with_revoked(user.name)
        if problem is None and principal in self._super_users and not user.for_super_user:
            problem = (
                f"{principal} is a super user, and its password was not set for one: let a super user set it again"
                " (quorumlog users create --replace --super-user)"
            )
        return None if problem is None else error(ErrorCode.SASL_AUTHENTICATION_FAILED, problem)

    def _session(self, now: int, client: RequestContext, user: UserPassword, token: str) -> str | None:
        """Returns the token of a user's session, renewed or new; None if there are too many sessions."""
        known = self._sessions.find(now, token) if token else None
        if known is not None and (known.user, known.password) == (user.name, user.version):
            return self._sessions.renew(now, known)
        if not self._sessions.has_room_for(user.name):
            return None
        self._rules.session_begins(client, user.name, user.mechanism.sasl_name)
        return self._sessions.begin(now, user.name, user.version)

    # -- what is not remembered -------------------------------------------------------------------------------

    def _find(self, name: str, mechanism: ScramMechanism) -> UserPassword:
        """Returns a user's password for a mechanism; without one, a derived one that is the same each time."""
        credentials = self._current.image.credentials
        known = credentials.users.get(name, {}).get(mechanism)

        def made_up(what: bytes) -> bytes:
            return hmac.digest(credentials.salt_key, what + name.encode(), mechanism.digest)

        # This is also computed for existing users, so that the response time does not reveal them.
        salt, stored, server = made_up(b"salt "), made_up(b"stored key "), made_up(b"server key ")
        if known is not None:
            return known
        return UserPassword(name, mechanism, salt[:MIN_SALT_BYTES], stored, server, DEFAULT_ITERATIONS, False, 0, 0)

    def _seal(self, first: ClientFirst, user: UserPassword, part: bytes) -> bytes:
        """Binds a nonce to the client's first message, and to the current password."""
        self._seal_key = self._seal_key or self._rng.randbytes(32)
        version = bytes((user.mechanism,)) + user.changed_index.to_bytes(8, "big")
        sealed = part + version + first.bare.encode()
        return hmac.digest(self._seal_key, sealed, "sha256")[:_SEAL_BYTES]

    def _is_under_way(self, now: int, first: ClientFirst, user: UserPassword, part: bytes, nonce: str) -> bool:
        body, seal = part[:-_SEAL_BYTES], part[-_SEAL_BYTES:]
        began = int.from_bytes(body[_RANDOM_BYTES:], "big")
        is_ours = hmac.compare_digest(seal, self._seal(first, user, body))
        return is_ours and now < began + UNDER_WAY_US and nonce not in self._used

    # -- time -------------------------------------------------------------------------------------------------

    def on_time(self, now: int, wall_ms: int) -> None:
        """Forgets expired nonces."""
        for nonce in [nonce for nonce, until in self._used.items() if until <= now]:
            del self._used[nonce]

    @property
    def next_deadline(self) -> int | None:
        """The time at which ``on_time`` is due."""
        return next(iter(self._used.values()), None)


def wrong(mechanism: ScramMechanism) -> str:
    """Returns the message for every wrong attempt: the same for all users, so that no client learns which exist."""
    return f"the user name or the password is wrong, or the user has no password for {mechanism.sasl_name}"


def _mechanism(request: BeginScramRequest | FinishScramRequest) -> ScramMechanism:
    """Returns the requested mechanism.

    Raises:
        ScramMessageError: it is unknown.
    """
    try:
        return mechanism_of(request.mechanism)
    except ValueError:
        raise ScramMessageError(unknown_mechanism(request.mechanism)) from None


def _answer(first: ClientFirst, user: UserPassword, part: bytes) -> ServerFirst:
    return ServerFirst(first.nonce + base64.b64encode(part).decode(), user.salt, user.iterations)


def _part_of(nonce: str, client_nonce: str) -> bytes | None:
    """Returns the node's part of a nonce; None if it has none."""
    if not nonce.startswith(client_nonce):
        return None
    try:
        part = base64.b64decode(nonce.removeprefix(client_nonce), validate=True)
    except (binascii.Error, ValueError):
        return None
    return part if len(part) == _RANDOM_BYTES + _TIME_BYTES + _SEAL_BYTES else None


def _malformed(problem: ScramMessageError) -> Error:
    return error(ErrorCode.INVALID_REQUEST, f"invalid SCRAM message: {problem}")

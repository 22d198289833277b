"""Authentication by bearer token (OAUTHBEARER): one call with a token of a trusted issuer.

A token proves a name, but not that the name belongs to the same person here. So it cannot name a user that
authenticates differently, a super user or a user with a password, unless the operator declares that they are the same
person.

A token is verified in the step, which takes some 0.1 ms. The session gate reads sixteen authentications at a time,
which limits how many one step verifies.
"""

from __future__ import annotations

from quorumlog.server.access.sign_in_rules import SignInRules, no_room
from quorumlog.server.metadata.credentials import problem_with_name
from quorumlog.server.step.bearer_tokens import ProvedToken, TokenError, TokenKeys
from quorumlog.server.step.events import ClientRequest
from quorumlog.server.step.node_service import ServiceHooks, StepTime
from quorumlog.server.step.replies import Replies
from quorumlog.server.step.request_context import USER_PREFIX, RequestContext
from quorumlog.server.step.wire_errors import error
from quorumlog.v1.errors_pb2 import Error, ErrorCode
from quorumlog.v1.sign_in_pb2 import SignInByTokenRequest, SignInByTokenResponse

#: Name in SASL.
MECHANISM = "OAUTHBEARER"
#: Maximum length of the name remembered from an unverified token, in characters.
_MOST_REMEMBERED = 249


class TokenSignIns:
    """Authenticates clients by bearer token.

    Arguments:
        rules: the rules of this node.
        keys: the newest keys.
    """

    def __init__(self, rules: SignInRules, keys: TokenKeys, replies: Replies) -> None:
        self._rules = rules
        self._keys = keys
        self._replies = replies

    def register(self, hooks: ServiceHooks) -> None:
        hooks.serve(SignInByTokenRequest, self.sign_in)

    def sign_in(self, time: StepTime, asked: ClientRequest, request: SignInByTokenRequest) -> None:
        """Handles a client's token."""
        answer = self._signed_in(time, asked.client, request)
        if isinstance(answer, Error):
            answer = SignInByTokenResponse(error=answer)
        self._replies.reply(asked.request_id, answer)

    def _signed_in(
        self, time: StepTime, client: RequestContext, request: SignInByTokenRequest
    ) -> SignInByTokenResponse | Error:
        proved = self._prove(time, client, request.bearer_token)
        if isinstance(proved, Error):
            return proved
        problem = self._problem_with(proved.user, request.authorization_id)
        if problem is not None:
            self._rules.refused(client, proved.user, MECHANISM, problem)
            return error(ErrorCode.SASL_AUTHENTICATION_FAILED, f"the token is not taken: {problem}")
        self._rules.succeeded(client, proved.user)
        left_ms = proved.ends_ms - time.wall_ms
        token = self._session(time.now, client, proved.user, request.session_token, time.now + left_ms * 1_000)
        if token is None:
            return no_room(proved.user)
        lifetime_ms = min(left_ms, self._rules.sessions.lifetime_us // 1_000)
        return SignInByTokenResponse(session_token=token, lifetime_ms=lifetime_ms, user=proved.user)

    def _prove(self, time: StepTime, client: RequestContext, compact: str) -> ProvedToken | Error:
        """Verifies a token."""
        verifier = self._keys.verifier
        if verifier is None:
            return error(ErrorCode.UNSUPPORTED_VERSION, "this node accepts no tokens: set sasl_oauthbearer_jwks_file")
        user, token, problem = "", None, None
        try:
            token = verifier.read(compact)
            user = token.user[:_MOST_REMEMBERED]
        except TokenError as unread:
            problem = unread
        refused = self._rules.refuse_attempt(time.now, client, user)
        if refused is not None:
            return refused
        if token is not None:
            try:
                return verifier.prove(token, time.wall_ms)
            except TokenError as unproved:
                problem = unproved
        self._rules.failed(time.now, client, user, MECHANISM, str(problem))
        return error(ErrorCode.SASL_AUTHENTICATION_FAILED, f"the token is not taken: {problem}")

    def _problem_with(self, user: str, authorization_id: str) -> str | None:
        """Returns why a verified name cannot be used here, or for what the client asks, or None."""
        principal = f"{USER_PREFIX}{user}"
        if problem_with_name(user) is not None:
            return "it names an invalid user"
        if authorization_id not in ("", user):
            return "it is another user's than the requested one (authorization id)"
        if principal not in self._rules.options.token_users:
            if principal in self._rules.options.super_users:
                return f"{principal} is a super user (sasl_oauthbearer_shared_users)"
            if user in self._rules.current.image.credentials.users:
                return f"{principal} is a user with a password (sasl_oauthbearer_shared_users)"
        return self._rules.problem_with_revoked(user)

    def _session(self, now: int, client: RequestContext, user: str, token: str, until_us: int) -> str | None:
        """Returns the token of a user's session, renewed or new; None if there are too many sessions."""
        sessions = self._rules.sessions
        known = sessions.find(now, token) if token else None
        if known is not None and (known.user, known.password) == (user, None):
            return sessions.renew(now, known, until_us)
        if not sessions.has_room_for(user):
            return None
        self._rules.session_begins(client, user, MECHANISM)
        return sessions.begin(now, user, None, until_us)

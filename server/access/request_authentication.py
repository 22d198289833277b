"""Checks that a request's session is valid and its certificate not revoked.

A session ends with its lifetime, its user, its password, or a revocation, as soon as this node has applied it. The
streams that were opened in it end too. Streams of a revoked certificate end in the same way.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from quorumlog.server.access.sessions import Session, Sessions
from quorumlog.server.metadata.image import CurrentImage
from quorumlog.server.step.events import ClientRequest, EndedStream
from quorumlog.server.step.node_service import ServiceHooks
from quorumlog.server.step.request_context import USER_PREFIX, Listener, RequestContext
from quorumlog.server.step.wire_errors import error
from quorumlog.v1.errors_pb2 import Error, ErrorCode
from quorumlog.v1.sign_in_pb2 import BeginScramRequest, FinishScramRequest, SignInByTokenRequest

#: Requests that need no session.
_SIGN_IN = (BeginScramRequest, FinishScramRequest, SignInByTokenRequest)


@dataclass(slots=True, frozen=True)
class _OpenStream:
    """A stream of an admitted client.

    client: the client's context.
        session: the session that it was opened in; None: it was opened with a certificate.
        session: in which it was opened; None: by certificate.
    """

    client: RequestContext
    session: Session | None


class Admission:
    """Authenticates requests.

    Arguments:
        current: contains users and revocations.
        sessions: the sessions of this node.
        token_users: principals that a token may name although a user with a password has that name.

    Attributes:
        ended: the streams to close, until ``take_ended`` is called.
    """

    def __init__(self, current: CurrentImage, sessions: Sessions, token_users: frozenset[str] = frozenset()) -> None:
        self._token_users = token_users
        self._current = current
        self._sessions = sessions
        self._streams: dict[int, _OpenStream] = {}
        self.ended: list[EndedStream] = []
        self._known_index = current.image.credentials.index

    def register(self, hooks: ServiceHooks) -> None:
        hooks.on_time(self.on_time)
        hooks.deadline(self)
        hooks.stream_closed(self.stream_closed)

    def admit(self, now: int, asked: ClientRequest) -> Error | None:
        """Returns the error for a request that is not admitted, or None. Sets the principal on the request.

        If a request on a stream is not admitted, the stream ends.
        """
        if asked.client.proof not in (Listener.CLIENT, Listener.PASSWORD) or isinstance(asked.message, _SIGN_IN):
            return None
        known = self._streams.get(asked.stream)
        if known is not None:
            asked.client = known.client
            return None
        session, refused = None, None
        if asked.client.proof is Listener.PASSWORD:
            session = self._sessions.find(now, asked.client.token)
            if session is None:
                refused = _session_over() if asked.client.token else _not_signed_in()
            else:
                asked.client = replace(asked.client, principal=f"{USER_PREFIX}{session.user}", token="")
        else:
            refused = self._refuse_certificate(asked.client)
        if not asked.stream:
            return refused
        if refused is not None:
            self.ended.append(EndedStream(asked.stream, refused))
            return refused
        self._streams[asked.stream] = _OpenStream(asked.client, session)
        if session is not None:
            session.streams[asked.stream] = None
        return None

    def _refuse_certificate(self, client: RequestContext, *, definite: bool = True) -> Error | None:
        if not self._current.image.credentials.is_revoked(client.serial, client.principal):
            return None
        problem = f"certificate {client.serial} of {client.principal} was revoked: connect with another one"
        return error(ErrorCode.SASL_AUTHENTICATION_FAILED, problem, definite=definite)

    def refuse_held(self, asked: ClientRequest, credentials_index: int) -> Error | None:
        """Returns the error for a request that was admitted but must not be served after a wait, or None.

        Arguments:
            credentials_index: the version of users and revocations with which it was admitted.
        """
        if asked.client.proof not in (Listener.CLIENT, Listener.PASSWORD):
            return None
        if asked.stream:
            return None if asked.stream in self._streams else _session_over()
        if credentials_index == self._current.image.credentials.index:
            return None
        return self._refuse_certificate(asked.client) if asked.client.proof is Listener.CLIENT else _session_over()

    # -- what ends --------------------------------------------------------------------------------------------

    def metadata_changed(self) -> None:
        """Ends sessions and streams that changes of users and revocations have invalidated."""
        credentials = self._current.image.credentials
        if credentials.index == self._known_index:
            return
        self._known_index = credentials.index
        for session in self._sessions:
            if not self._goes_on(session):
                self._sessions.end(session)
                self._end_streams(session)
        for stream, opened in list(self._streams.items()):
            refused = None if opened.session is not None else self._refuse_certificate(opened.client, definite=False)
            if refused is not None:
                self._end_stream(stream, refused)

    def _goes_on(self, session: Session) -> bool:
        """True if the credential that a session was opened with is still valid."""
        credentials, principal = self._current.image.credentials, f"{USER_PREFIX}{session.user}"
        if credentials.is_revoked("", principal):
            return False
        passwords = credentials.users.get(session.user)
        if session.password is None:
            return passwords is None or principal in self._token_users
        return passwords is not None and session.password in {each.version for each in passwords.values()}

    def _end_streams(self, session: Session) -> None:
        for stream in list(session.streams):
            self._end_stream(stream, _session_over(definite=False))

    def _end_stream(self, stream: int, why: Error) -> None:
        del self._streams[stream]
        self.ended.append(EndedStream(stream, why))

    def stream_closed(self, stream: int) -> None:
        """Forgets a stream that its client has ended."""
        opened = self._streams.pop(stream, None)
        if opened is None or opened.session is None:
            return
        opened.session.streams.pop(stream, None)
        if opened.client.listener is Listener.KAFKA:
            # Its client cannot return to the session: each connection authenticates separately.
            self._sessions.end(opened.session)

    def take_ended(self) -> list[EndedStream]:
        """Removes and returns the streams to close."""
        ended, self.ended = self.ended, []
        return ended

    def on_time(self, now: int, wall_ms: int) -> None:
        """Ends expired sessions."""
        for session in self._sessions.take_ended(now):
            self._end_streams(session)

    @property
    def next_deadline(self) -> int | None:
        """The time at which ``on_time`` is due."""
        return self._sessions.next_end_us


def _not_signed_in() -> Error:
    problem = "authentication required: set security_protocol=SASL_SSL with a user and password, or a token"
    return error(ErrorCode.SASL_AUTHENTICATION_FAILED, problem)


def _session_over(*, definite: bool = True) -> Error:
    """Returns the error for an expired session.

    ``definite``: no request took effect; False: requests of the stream in progress may still take effect.
    """
    problem = "session expired: authenticate again"
    return error(ErrorCode.SASL_SESSION_EXPIRED, problem, definite=definite)

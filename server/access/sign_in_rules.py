"""Rules shared by all kinds of authentication: allowed listeners, delays, and revoked users."""

from __future__ import annotations

from quorumlog.server.access.audit import AuditTrail
from quorumlog.server.access.failed_sign_ins import FailedSignIns
from quorumlog.server.access.sessions import Sessions
from quorumlog.server.config.options import AuthorizationOptions
from quorumlog.server.metadata.image import CurrentImage
from quorumlog.server.step.request_context import USER_PREFIX, Listener, RequestContext
from quorumlog.server.step.wire_errors import error
from quorumlog.v1.errors_pb2 import Error, ErrorCode


class SignInRules:
    """The authentication rules of one node.

    Arguments:
        options: contains the super users.
        current: contains users and revocations.
        sessions: the sessions of this node.
        audit: records failures.
    """

    def __init__(
        self, options: AuthorizationOptions, current: CurrentImage, sessions: Sessions, audit: AuditTrail
    ) -> None:
        self.options = options
        self.current = current
        self.sessions = sessions
        self._audit = audit
        self._failures = FailedSignIns()

    def refuse_attempt(self, now: int, client: RequestContext, user: str) -> Error | None:
        """Returns the error if no attempt may be made for a user now, or None.

        Arguments:
            user: the given name, whether or not the user exists.
        """
        if client.proof is not Listener.PASSWORD:
            return error(ErrorCode.INVALID_REQUEST, "sign-in is for listeners that ask for passwords")
        wait_us = self._failures.wait_us(now, user, client.host)
        if not wait_us:
            return None
        busy = f"there were too many failed sign-ins: try again in {wait_us / 1_000_000:.1f} s"
        return error(ErrorCode.SERVER_BUSY, busy)

    def failed(self, now: int, client: RequestContext, user: str, mechanism: str, reason: str = "") -> None:
        """Records a failed authentication: it delays the next attempts, and is written to the audit log.

        Arguments:
            mechanism: its name in SASL.
            reason: for the audit log; without secrets.
        """
        self._failures.failed(now, user, client.host)
        self._audit.failed_sign_in(client, user, mechanism, reason)

    def refused(self, client: RequestContext, user: str, mechanism: str, reason: str) -> None:
        """Records a client that proved its identity but is not admitted."""
        self._audit.failed_sign_in(client, user, mechanism, reason)

    def session_begins(self, client: RequestContext, user: str, mechanism: str) -> None:
        """Records a new session in the audit log; not one that is renewed."""
        self._audit.signed_in(client, user, mechanism)

    def succeeded(self, client: RequestContext, user: str) -> None:
        """Records a successful authentication."""
        self._failures.succeeded(user, client.host)

    def problem_with_revoked(self, user: str) -> str | None:
        """Returns why a user is revoked; None if it is not."""
        principal = f"{USER_PREFIX}{user}"
        if not self.current.image.credentials.is_revoked("", principal):
            return None
        return f"{principal} was revoked: ask an administrator (quorumlog certs restore)"


def no_room(user: str) -> Error:
    """Returns the error if a user cannot have another session now."""
    full = f"{user}, or all users together, have too many sessions at this node: try again later"
    return error(ErrorCode.SERVER_BUSY, full)

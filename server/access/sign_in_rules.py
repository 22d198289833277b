"""What every way to sign in goes by: where it is taken, who has to wait, and who is not let in."""

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
    """The rules of one node.

    Arguments:
        options: who is a super user.
        current: where users and revocations are found.
        sessions: of this node.
        audit: is told of failures.
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
        """Why nobody tries now to sign in as a user; None if one may.

        Arguments:
            user: the name that was given, whether or not there is such a user.
        """
        if client.proof is not Listener.PASSWORD:
            return error(ErrorCode.INVALID_REQUEST, "sign-in is for listeners that ask for passwords")
        wait_us = self._failures.wait_us(now, user, client.host)
        if not wait_us:
            return None
        busy = f"there were too many failed sign-ins: try again in {wait_us / 1_000_000:.1f} s"
        return error(ErrorCode.SERVER_BUSY, busy)

    def failed(self, now: int, client: RequestContext, user: str, reason: str = "") -> None:
        """Somebody has proved nothing: the next attempts wait, and the audit log is told.

        Arguments:
            reason: for the audit log; nothing that was secret.
        """
        self._failures.failed(now, user, client.host)
        self._audit.failed_sign_in(client, user, reason)

    def refused(self, client: RequestContext, user: str, reason: str) -> None:
        """Somebody has proved who they are, and is not let in."""
        self._audit.failed_sign_in(client, user, reason)

    def succeeded(self, client: RequestContext, user: str) -> None:
        """Somebody has proved who they are."""
        self._failures.succeeded(user, client.host)

    def problem_with_revoked(self, user: str) -> str | None:
        """Why a user is not let in any more; None if it is."""
        principal = f"{USER_PREFIX}{user}"
        if not self.current.image.credentials.is_revoked("", principal):
            return None
        return f"{principal} was revoked: ask an administrator (quorumlog certs restore)"


def no_room(user: str) -> Error:
    """The error where a user may have no other session now."""
    full = f"{user}, or all users, sign in too often at this node: try again after a pause"
    return error(ErrorCode.SERVER_BUSY, full)

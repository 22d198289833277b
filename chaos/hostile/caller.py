"""As whom hostile clients call."""

from __future__ import annotations

from enum import StrEnum


class HostileCaller(StrEnum):
    """As whom hostile clients call."""

    ANYBODY = "anybody"  #: there is no TLS, and nobody is asked who they are
    STRANGER = "stranger"  #: without a certificate, where certificates are asked for
    FOREIGNER = "foreigner"  #: with a certificate of another authority
    USER = "user"  #: with a certificate and few rights
    ADMIN = "admin"  #: a super user
    UNSIGNED = "unsigned"  #: where passwords are asked for, without a session
    SIGNED_IN = "signed-in"  #: there, with a session and few rights

    @property
    def by_password(self) -> bool:
        """Whether they call where passwords are asked for."""
        return self in (HostileCaller.UNSIGNED, HostileCaller.SIGNED_IN)

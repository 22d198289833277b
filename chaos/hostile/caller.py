"""Identities of hostile clients."""

from __future__ import annotations

from enum import StrEnum


class HostileCaller(StrEnum):
    """Identity of hostile clients."""

    ANYBODY = "anybody"  # without TLS and authentication
    STRANGER = "stranger"  # without a certificate, where certificates are required
    FOREIGNER = "foreigner"  #: with a certificate of another authority
    USER = "user"  #: with a certificate and few rights
    ADMIN = "admin"  #: a super user
    UNSIGNED = "unsigned"  # without a session, where passwords are required
    SIGNED_IN = "signed-in"  # with a session and few rights, where passwords are required

    @property
    def by_password(self) -> bool:
        """True if the cluster requires passwords."""
        return self in (HostileCaller.UNSIGNED, HostileCaller.SIGNED_IN)

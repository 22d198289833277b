"""Passwords as arguments."""

from __future__ import annotations

from quorumlog.sdk.errors import IllegalArgumentError
from quorumlog.v1.saslprep import PasswordError, prepared


def prepared_password(password: str, name: str = "password") -> bytes:
    """The bytes that are hashed (SASLprep, RFC 4013).

    Arguments:
        name: of the argument, for messages. What it holds is never repeated.

    Raises:
        IllegalArgumentError: it cannot be a password.
    """
    if not isinstance(password, str):
        raise IllegalArgumentError(f"{name} is not text")
    try:
        return prepared(password)
    except PasswordError as problem:
        raise IllegalArgumentError(f"{name} {problem}") from None

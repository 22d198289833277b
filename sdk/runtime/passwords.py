"""Passwords as arguments."""

from __future__ import annotations

from collections.abc import Callable

from quorumlog.sdk.errors import IllegalArgumentError
from quorumlog.wire.saslprep import PasswordError, prepared, unambiguous


def prepared_password(password: str, name: str = "password") -> bytes:
    """Returns the bytes of a password that a client signs in with (SASLprep, RFC 4013).

    Arguments:
        name: of the argument, for messages. What it holds is never repeated.

    Raises:
        IllegalArgumentError: it cannot be a password.
    """
    return _checked(password, name, prepared)


def new_password(password: str) -> bytes:
    """Returns the bytes of a password that a user is given.

    Raises:
        IllegalArgumentError: it cannot be a password, or Kafka's clients would hash other bytes.
    """
    return _checked(password, "password", unambiguous)


def _checked(password: str, name: str, bytes_of: Callable[[str], bytes]) -> bytes:
    if not isinstance(password, str):
        raise IllegalArgumentError(f"{name} is not text")
    try:
        return bytes_of(password)
    except PasswordError as problem:
        raise IllegalArgumentError(f"{name} {problem}") from None

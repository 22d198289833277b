"""Normalisation of passwords given as arguments."""

from __future__ import annotations

from collections.abc import Callable

from quorumlog.sdk.errors import IllegalArgumentError
from quorumlog.wire.saslprep import PasswordError, prepared, unambiguous


def prepared_password(password: str, name: str = "password") -> bytes:
    """Returns the bytes of a password for authentication (SASLprep, RFC 4013).

    Arguments:
        name: of the argument, for messages, which never quote its value.

    Raises:
        IllegalArgumentError: it cannot be a password.
    """
    return _checked(password, name, prepared)


def new_password(password: str) -> bytes:
    """Returns the bytes of a new password of a user.

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

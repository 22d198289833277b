"""Passwords normalized for SCRAM, so that it does not matter how they are typed (SASLprep, RFC 4013)."""

from __future__ import annotations

import stringprep
import unicodedata

#: Maximum length of a password in characters.
MAX_PASSWORD_LENGTH = 1_024
_PROHIBITED = (
    stringprep.in_table_a1, stringprep.in_table_c12, stringprep.in_table_c21_c22, stringprep.in_table_c3,
    stringprep.in_table_c4, stringprep.in_table_c5, stringprep.in_table_c6, stringprep.in_table_c7,
    stringprep.in_table_c8, stringprep.in_table_c9,
)  # fmt: skip


class PasswordError(Exception):
    """Raised if a text cannot be a password. The message is a predicate without a subject, and repeats no secret."""


def prepared(password: str) -> bytes:
    """Returns the bytes to hash.

    Raises:
        PasswordError: the text cannot be a password.
    """
    if not 1 <= len(password) <= MAX_PASSWORD_LENGTH:
        raise PasswordError(f"has {len(password)} characters: use 1 to {MAX_PASSWORD_LENGTH}")
    mapped = "".join(
        " " if stringprep.in_table_c12(letter) else letter for letter in password if not stringprep.in_table_b1(letter)
    )
    normal = unicodedata.normalize("NFKC", mapped)
    if not normal or any(prohibited(letter) for letter in normal for prohibited in _PROHIBITED):
        raise PasswordError("has characters that are not allowed, such as a line break or an emoji")
    right_to_left = [stringprep.in_table_d1(letter) for letter in normal]
    if any(right_to_left) and (
        any(map(stringprep.in_table_d2, normal)) or not (right_to_left[0] and right_to_left[-1])
    ):
        raise PasswordError("mixes writing directions in a way that is not allowed")
    return normal.encode()


def unambiguous(password: str) -> bytes:
    """Returns the bytes that every client hashes for a password, which SASLprep must not change.

    Kafka's Java clients, librdkafka, kafka-python and aiokafka hash a password as it is typed; Go's clients and
    quorumlog's normalize it before.

    Raises:
        PasswordError: it cannot be a password, or clients would hash different bytes.
    """
    plain = prepared(password)
    if plain != password.encode():
        raise PasswordError(
            "has characters that some clients normalize before they hash it and others do not, such as a ligature, a"
            " full-width letter, a no-break space or an accent as a character of its own: choose one without them"
        )
    return plain

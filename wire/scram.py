"""SCRAM-SHA-256 (RFC 5802, RFC 7677): the arithmetic and the messages that clients and nodes have to agree on.

There is no channel binding: gRPC in Python shows neither side anything of its TLS connection that could be bound to.
What SCRAM gives without it: the node learns no password, and the client learns that the node knows the user.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
from typing import NamedTuple

MECHANISM = "SCRAM-SHA-256"
#: Bytes of each key.
KEY_BYTES = 32
MIN_SALT_BYTES, MAX_SALT_BYTES = 16, 64
#: How often passwords are hashed: at least as often as RFC 7677 says; not so often that a node could keep clients busy.
MIN_ITERATIONS, DEFAULT_ITERATIONS, MAX_ITERATIONS = 4_096, 100_000, 1_000_000
#: Characters of one message, and of a nonce.
MAX_MESSAGE_LENGTH, MAX_NONCE_LENGTH = 2_048, 256
#: No channel binding: the client does not support it.
GS2_HEADER = "n,,"
_GS2_HEADER_BASE64 = base64.b64encode(GS2_HEADER.encode()).decode()


class ScramMessageError(Exception):
    """A message is none of SCRAM, or not one that was to come. Nothing of what it holds is repeated."""


class SaltedKeys(NamedTuple):
    """What comes of a password, a salt and a number of iterations. A client can sign in with it."""

    client_key: bytes
    server_key: bytes

    @property
    def stored_key(self) -> bytes:
        """What a node keeps to know the client by."""
        return hashlib.sha256(self.client_key).digest()

    def __repr__(self) -> str:
        return "SaltedKeys(***)"


def salted_keys(password: bytes, salt: bytes, iterations: int) -> SaltedKeys:
    """The keys of a password: some 70 ms of work for 100,000 iterations.

    Arguments:
        password: prepared (RFC 4013), in UTF-8.
    """
    return keys_of_salted(hashlib.pbkdf2_hmac("sha256", password, salt, iterations))


def keys_of_salted(salted: bytes) -> SaltedKeys:
    """The keys of a password that has been salted and hashed."""
    return SaltedKeys(_hmac(salted, b"Client Key"), _hmac(salted, b"Server Key"))


def client_proof(keys: SaltedKeys, auth_message: bytes) -> bytes:
    """What shows that a client has the password."""
    return _xor(keys.client_key, _hmac(keys.stored_key, auth_message))


def proves(proof: bytes, stored_key: bytes, auth_message: bytes) -> bool:
    """Whether a proof fits a user's stored key. Takes the same time whatever is wrong with it."""
    client_key = _xor(proof.ljust(KEY_BYTES, b"\0")[:KEY_BYTES], _hmac(stored_key, auth_message))
    fits = hmac.compare_digest(hashlib.sha256(client_key).digest(), stored_key)
    return fits and len(proof) == KEY_BYTES


def server_signature(server_key: bytes, auth_message: bytes) -> bytes:
    """What shows that a node knows the user."""
    return _hmac(server_key, auth_message)


# -- messages ------------------------------------------------------------------------------------------------------


class ClientFirst(NamedTuple):
    """The message with which a client begins."""

    user: str
    nonce: str

    @property
    def bare(self) -> str:
        """Without the header about channel binding: a part of what is signed."""
        name = self.user.replace("=", "=3D").replace(",", "=2C")
        return f"n={name},r={self.nonce}"

    @property
    def text(self) -> str:
        """As it is sent."""
        return GS2_HEADER + self.bare

    @classmethod
    def of(cls, text: str) -> ClientFirst:
        """The message in some text.

        Raises:
            ScramMessageError: there is none in it.
        """
        if not text.startswith(GS2_HEADER):
            raise ScramMessageError("the first message does not begin with n,, (there is no channel binding here)")
        name, nonce = _fields(text.removeprefix(GS2_HEADER), "nr")
        user = name.replace("=2C", ",").replace("=3D", "=")
        made = cls(user, nonce)
        if not user or made.text != text:
            raise ScramMessageError("the first message names no user as SCRAM writes one")
        _check_nonce(nonce)
        return made


class ServerFirst(NamedTuple):
    """A node's answer to it."""

    nonce: str
    salt: bytes
    iterations: int

    @property
    def text(self) -> str:
        """As it is sent, and signed."""
        return f"r={self.nonce},s={base64.b64encode(self.salt).decode()},i={self.iterations}"

    @classmethod
    def of(cls, text: str, client_nonce: str) -> ServerFirst:
        """The message in some text.

        Arguments:
            client_nonce: with which its nonce has to begin.

        Raises:
            ScramMessageError: there is none in it, or one with which nobody should go on.
        """
        nonce, salt, iterations = _fields(text, "rsi")
        _check_nonce(nonce)
        if not nonce.startswith(client_nonce) or len(nonce) == len(client_nonce):
            raise ScramMessageError("the answer belongs to another sign-in")
        if not iterations.isascii() or not iterations.isdecimal() or len(iterations) > len(str(MAX_ITERATIONS)):
            raise ScramMessageError("the answer says no number of iterations")
        made = cls(nonce, _unbase64(salt), int(iterations))
        if not MIN_ITERATIONS <= made.iterations <= MAX_ITERATIONS:
            raise ScramMessageError(f"the answer asks for {made.iterations} iterations")
        if not MIN_SALT_BYTES <= len(made.salt) <= MAX_SALT_BYTES:
            raise ScramMessageError(f"the answer has a salt of {len(made.salt)} bytes")
        return made


class ClientFinal(NamedTuple):
    """The message with which a client proves who it is."""

    nonce: str
    proof: bytes

    @property
    def without_proof(self) -> str:
        """The part of it that is signed."""
        return f"c={_GS2_HEADER_BASE64},r={self.nonce}"

    @property
    def text(self) -> str:
        """As it is sent."""
        return f"{self.without_proof},p={base64.b64encode(self.proof).decode()}"

    @classmethod
    def of(cls, text: str) -> ClientFinal:
        """The message in some text.

        Raises:
            ScramMessageError: there is none in it.
        """
        binding, nonce, proof = _fields(text, "crp")
        if binding != _GS2_HEADER_BASE64:
            raise ScramMessageError("the last message is bound to a channel, and there is no channel binding here")
        _check_nonce(nonce)
        return cls(nonce, _unbase64(proof))

    def __repr__(self) -> str:
        return "ClientFinal(***)"


def auth_message(first: ClientFirst, answer: ServerFirst, final: ClientFinal) -> bytes:
    """What both sides sign: all that was said."""
    return f"{first.bare},{answer.text},{final.without_proof}".encode()


def _fields(text: str, names: str) -> list[str]:
    parts = text.split(",") if len(text) <= MAX_MESSAGE_LENGTH else []
    if len(parts) != len(names) or any(
        not part.startswith(f"{name}=") for name, part in zip(names, parts, strict=True)
    ):
        raise ScramMessageError(f"the message is not {','.join(f'{name}=...' for name in names)}")
    return [part[2:] for part in parts]


def _check_nonce(nonce: str) -> None:
    if not 16 <= len(nonce) <= MAX_NONCE_LENGTH or not nonce.isascii() or not nonce.isprintable() or " " in nonce:
        raise ScramMessageError(f"a nonce is not 16 to {MAX_NONCE_LENGTH} visible characters")


def _unbase64(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise ScramMessageError("a part of the message is not base64") from None


def _hmac(key: bytes, data: bytes) -> bytes:
    return hmac.digest(key, data, "sha256")


def _xor(left: bytes, right: bytes) -> bytes:
    return (int.from_bytes(left, "big") ^ int.from_bytes(right, "big")).to_bytes(KEY_BYTES, "big")

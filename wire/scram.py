"""SCRAM-SHA-256 and SCRAM-SHA-512 (RFC 5802, RFC 7677, KIP-84): the computations and messages shared by clients and
nodes. The two mechanisms differ only in the hash.

There is no channel binding: gRPC in Python gives neither side access to its TLS connection. Without it, SCRAM still
ensures that the node does not learn the password, and that the client learns that the node has the user's keys.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
from enum import IntEnum
from typing import NamedTuple

MIN_SALT_BYTES, MAX_SALT_BYTES = 16, 64
#: Number of iterations: at least what RFC 7677 requires; not so high that a node could keep clients busy.
MIN_ITERATIONS, DEFAULT_ITERATIONS, MAX_ITERATIONS = 4_096, 100_000, 1_000_000
#: Maximum length of a message, and of a nonce, in characters.
MAX_MESSAGE_LENGTH, MAX_NONCE_LENGTH = 2_048, 256
#: No channel binding: the client does not support it.
GS2_HEADER = "n,,"
_GS2_HEADER_BASE64 = base64.b64encode(GS2_HEADER.encode()).decode()


class ScramMechanism(IntEnum):
    """A hash to use SCRAM with. The numbers are Kafka's (KIP-554), and those of the protocol's enumeration."""

    SHA_256 = 1
    SHA_512 = 2

    @property
    def sasl_name(self) -> str:
        """Name of the mechanism, as in SASL."""
        return f"SCRAM-{self.name.replace('_', '-')}"

    @property
    def digest(self) -> str:
        """Name of the hash, as in ``hashlib``."""
        return self.name.replace("_", "").lower()

    @property
    def key_bytes(self) -> int:
        """Size of each key, and of a proof."""
        return 32 if self is ScramMechanism.SHA_256 else 64


#: By name.
MECHANISMS = {each.sasl_name: each for each in ScramMechanism}


class ScramMessageError(Exception):
    """Raised if a message is invalid or not the expected one. The text repeats nothing of its content."""


class SaltedKeys(NamedTuple):
    """Keys derived from a password, a salt and a number of iterations. A client can authenticate with them."""

    mechanism: ScramMechanism
    client_key: bytes
    server_key: bytes

    @property
    def stored_key(self) -> bytes:
        """The key that a node stores to verify the client."""
        return _hash(self.mechanism, self.client_key)

    def __repr__(self) -> str:
        return "SaltedKeys(***)"


def salted_keys(mechanism: ScramMechanism, password: bytes, salt: bytes, iterations: int) -> SaltedKeys:
    """Derives the keys of a password: some 70 ms of work for 100,000 iterations.

    Arguments:
        password: prepared (RFC 4013), in UTF-8.
    """
    return keys_of_salted(mechanism, hashlib.pbkdf2_hmac(mechanism.digest, password, salt, iterations))


def keys_of_salted(mechanism: ScramMechanism, salted: bytes) -> SaltedKeys:
    """Derives the keys of a password that has been salted and hashed."""
    return SaltedKeys(mechanism, _hmac(mechanism, salted, b"Client Key"), _hmac(mechanism, salted, b"Server Key"))


def client_proof(keys: SaltedKeys, auth_message: bytes) -> bytes:
    """Returns the proof that a client has the password."""
    return _xor(keys.client_key, _hmac(keys.mechanism, keys.stored_key, auth_message))


def proves(mechanism: ScramMechanism, proof: bytes, stored_key: bytes, auth_message: bytes) -> bool:
    """True if a proof matches a user's stored key. Takes the same time whatever is wrong with it."""
    size = mechanism.key_bytes
    client_key = _xor(proof.ljust(size, b"\0")[:size], _hmac(mechanism, stored_key, auth_message))
    fits = hmac.compare_digest(_hash(mechanism, client_key), stored_key)
    return fits and len(proof) == size


def server_signature(mechanism: ScramMechanism, server_key: bytes, auth_message: bytes) -> bytes:
    """Returns the proof that a node has the user's keys."""
    return _hmac(mechanism, server_key, auth_message)


# -- messages ------------------------------------------------------------------------------------------------------


class ClientFirst(NamedTuple):
    """The client's first message."""

    user: str
    nonce: str

    @property
    def bare(self) -> str:
        """The message without the header about channel binding: a part of what is signed."""
        name = self.user.replace("=", "=3D").replace(",", "=2C")
        return f"n={name},r={self.nonce}"

    @property
    def text(self) -> str:
        """The message as it is sent."""
        return GS2_HEADER + self.bare

    @classmethod
    def of(cls, text: str) -> ClientFirst:
        """Parses the message.

        Raises:
            ScramMessageError: the text is not such a message.
        """
        if not text.startswith(GS2_HEADER):
            raise ScramMessageError("the first message must start with n,, (channel binding is not supported)")
        name, nonce = _fields(text.removeprefix(GS2_HEADER), "nr")
        user = name.replace("=2C", ",").replace("=3D", "=")
        made = cls(user, nonce)
        if not user or made.text != text:
            raise ScramMessageError("the first message has no valid user name")
        _check_nonce(nonce)
        return made


class ServerFirst(NamedTuple):
    """The node's answer to the first message."""

    nonce: str
    salt: bytes
    iterations: int

    @property
    def text(self) -> str:
        """The message as it is sent, and signed."""
        return f"r={self.nonce},s={base64.b64encode(self.salt).decode()},i={self.iterations}"

    @classmethod
    def of(cls, text: str, client_nonce: str) -> ServerFirst:
        """Parses the message.

        Arguments:
            client_nonce: the prefix that its nonce must have.

        Raises:
            ScramMessageError: the text is not such a message, or has values that are unsafe to accept.
        """
        nonce, salt, iterations = _fields(text, "rsi")
        _check_nonce(nonce)
        if not nonce.startswith(client_nonce) or len(nonce) == len(client_nonce):
            raise ScramMessageError("the answer belongs to another authentication attempt")
        if not iterations.isascii() or not iterations.isdecimal() or len(iterations) > len(str(MAX_ITERATIONS)):
            raise ScramMessageError("the answer has no valid number of iterations")
        made = cls(nonce, _unbase64(salt), int(iterations))
        if not MIN_ITERATIONS <= made.iterations <= MAX_ITERATIONS:
            raise ScramMessageError(f"the answer requests {made.iterations} iterations, outside the allowed range")
        if not MIN_SALT_BYTES <= len(made.salt) <= MAX_SALT_BYTES:
            raise ScramMessageError(f"the answer has a salt of {len(made.salt)} bytes, outside the allowed range")
        return made


class ClientFinal(NamedTuple):
    """The client's last message, with its proof."""

    nonce: str
    proof: bytes

    @property
    def without_proof(self) -> str:
        """The part of the message that is signed."""
        return f"c={_GS2_HEADER_BASE64},r={self.nonce}"

    @property
    def text(self) -> str:
        """The message as it is sent."""
        return f"{self.without_proof},p={base64.b64encode(self.proof).decode()}"

    @classmethod
    def of(cls, text: str) -> ClientFinal:
        """Parses the message.

        Raises:
            ScramMessageError: the text is not such a message.
        """
        binding, nonce, proof = _fields(text, "crp")
        if binding != _GS2_HEADER_BASE64:
            raise ScramMessageError("the last message uses channel binding, which is not supported")
        _check_nonce(nonce)
        return cls(nonce, _unbase64(proof))

    def __repr__(self) -> str:
        return "ClientFinal(***)"


def auth_message(first: ClientFirst, answer: ServerFirst, final: ClientFinal) -> bytes:
    """Returns what both sides sign: the messages without the proof."""
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
        raise ScramMessageError(f"a nonce must have 16 to {MAX_NONCE_LENGTH} visible characters")


def _unbase64(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise ScramMessageError("a part of the message is not base64") from None


def _hash(mechanism: ScramMechanism, data: bytes) -> bytes:
    return hashlib.new(mechanism.digest, data).digest()


def _hmac(mechanism: ScramMechanism, key: bytes, data: bytes) -> bytes:
    return hmac.digest(key, data, mechanism.digest)


def _xor(left: bytes, right: bytes) -> bytes:
    return (int.from_bytes(left, "big") ^ int.from_bytes(right, "big")).to_bytes(len(right), "big")

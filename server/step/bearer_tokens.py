"""Bearer tokens as a node takes them: what must be true of one, and what one has proved.

How a token is read and verified is `server/access/`, which needs a library of its own. A node's step is handed a
verifier, and knows no more of tokens than this.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

#: How a token may be signed (RFC 7518, RFC 8037): with a private key, of which nodes have the public one. Whoever could
#: read a node's key of HMAC could make tokens with it, and "none" is no signature.
KNOWN_ALGORITHMS = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA")


@dataclass(slots=True, frozen=True)
class TokenOptions:
    """What must be true of a token.

    Arguments:
        key_file: public keys (JWKS, RFC 7517), one of which has signed it.
        issuer, audience: what it says of itself.
        name_claim: names the user.
        algorithms: some of KNOWN_ALGORITHMS.
        clock_skew_s: how far this node's clock may be behind the one by which a token begins.
    """

    key_file: Path
    issuer: str
    audience: str
    name_claim: str = "sub"
    algorithms: tuple[str, ...] = ("RS256", "ES256")
    clock_skew_s: int = 30


class TokenError(Exception):
    """A token is not taken. The message says why, in words that stand in logs: nothing of the token."""


@dataclass(slots=True, frozen=True)
class UnverifiedToken:
    """A token that has been read, and has proved nothing yet.

    Arguments:
        user: whom it names; empty where it names nobody.
        algorithm, key_id: by which it says that it is signed; no key id: "".
    """

    compact: str = field(repr=False)
    user: str
    algorithm: str
    key_id: str


@dataclass(slots=True, frozen=True)
class ProvedToken:
    """What a token has proved.

    Arguments:
        user: whom it names.
        ends_ms: when it ends, in milliseconds since the epoch.
    """

    user: str
    ends_ms: int


class TokenVerifier(Protocol):
    """Knows the keys of one moment. Reckons only: asks no clock, and nobody else."""

    def read(self, compact: str) -> UnverifiedToken:
        """Reads a token.

        Raises:
            TokenError: it is none.
        """

    def prove(self, token: UnverifiedToken, wall_ms: int) -> ProvedToken:
        """Verifies a token.

        Arguments:
            wall_ms: the time, in milliseconds since the epoch.

        Raises:
            TokenError: it is not taken.
        """


class TokenKeys:
    """The verifier with the newest keys; None as long as there is none."""

    def __init__(self) -> None:
        self.verifier: TokenVerifier | None = None

"""Bearer tokens as a node sees them: the requirements on a token, and what a valid one proves.

Tokens are parsed and verified in `server/access/`, which needs a library for it. A node's step receives a verifier and
uses nothing else of tokens.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

#: Accepted signature algorithms (RFC 7518, RFC 8037), all with a private key whose public key the nodes have. HMAC is
#: excluded because anyone who can read a node's key could issue tokens; "none" is not a signature.
KNOWN_ALGORITHMS = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA")


@dataclass(slots=True, frozen=True)
class TokenOptions:
    """The requirements on a token.

    Arguments:
        key_file: public keys (JWKS, RFC 7517), one of which must have signed the token.
        issuer, audience: the required values of the claims `iss` and `aud`.
        name_claim: the claim that names the user.
        algorithms: accepted algorithms, a subset of KNOWN_ALGORITHMS.
        clock_skew_s: by how many seconds this node's clock may be behind the clock that set the token's start.
    """

    key_file: Path
    issuer: str
    audience: str
    name_claim: str = "sub"
    algorithms: tuple[str, ...] = ("RS256", "ES256")
    clock_skew_s: int = 30


class TokenError(Exception):
    """Raised when a token is rejected. The message gives the reason and is safe to log: it contains nothing of the
    token."""


@dataclass(slots=True, frozen=True)
class UnverifiedToken:
    """A token that has been parsed but not yet verified.

    Arguments:
        user: the user that the token names; empty if it names none.
        algorithm, key_id: the algorithm and key that the token claims to be signed with; no key id: "".
    """

    compact: str = field(repr=False)
    user: str
    algorithm: str
    key_id: str


@dataclass(slots=True, frozen=True)
class ProvedToken:
    """The contents of a verified token.

    Arguments:
        user: the user that the token names.
        ends_ms: when the token expires, in milliseconds since the epoch.
    """

    user: str
    ends_ms: int


class TokenVerifier(Protocol):
    """Verifies tokens against one set of keys. A pure computation: reads no clock and makes no calls."""

    def read(self, compact: str) -> UnverifiedToken:
        """Parses a token without verifying it.

        Raises:
            TokenError: the text is not a token.
        """

    def prove(self, token: UnverifiedToken, wall_ms: int) -> ProvedToken:
        """Verifies a token.

        Arguments:
            wall_ms: the current time, in milliseconds since the epoch.

        Raises:
            TokenError: the token is rejected.
        """


class TokenKeys:
    """Holder of the verifier with the newest keys; None until keys have been read."""

    def __init__(self) -> None:
        self.verifier: TokenVerifier | None = None

"""A client whose tokens nodes accept: makes keys, the file with their public halves, and tokens."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import jwt
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from jwt.algorithms import ECAlgorithm, RSAAlgorithm

from quorumlog.server.step.bearer_tokens import TokenOptions

ISSUER, AUDIENCE = "https://issuer.test/realm", "quorumlog-test"
#: When the tests of logic take place, in seconds since the epoch.
NOW_S = 1_700_000_000


@cache
def private_key(kid: str) -> ec.EllipticCurvePrivateKey:
    """A key for ES256, by the name that tokens give it."""
    return ec.generate_private_key(ec.SECP256R1())


def rsa_key(bits: int = 2_048) -> rsa.RSAPrivateKey:
    """A key for RS256 and its like: dear to make, and always the same of its size."""
    return _rsa_key(bits)


@cache
def _rsa_key(bits: int) -> rsa.RSAPrivateKey:
    return rsa.generate_private_key(65_537, bits)


def public(kid: str, /, **more: Any) -> dict[str, Any]:
    """A key as it is in the file."""
    return {**ECAlgorithm.to_jwk(private_key(kid).public_key(), as_dict=True), "kid": kid, **more}


def public_rsa(kid: str, bits: int = 2_048, /, **more: Any) -> dict[str, Any]:
    """The same of a key for RSA."""
    return {**RSAAlgorithm.to_jwk(rsa_key(bits).public_key(), as_dict=True), "kid": kid, **more}


def file_of(*keys: dict[str, Any]) -> bytes:
    """The content of a file with such keys."""
    return json.dumps({"keys": keys}).encode()


def write_keys(file: Path, *kids: str) -> None:
    """Replaces the file by one with these keys, as an operator should."""
    new = file.with_suffix(".new")
    new.write_bytes(file_of(*map(public, kids)))
    new.chmod(0o644)
    new.rename(file)


def claims(sub: object = "alice", *, now_s: float = NOW_S, lifetime_s: float = 600, **more: Any) -> dict[str, Any]:
    """Returns the claims of a valid token, with changes; a claim that is None is left out."""
    said = {"iss": ISSUER, "aud": AUDIENCE, "sub": sub, "iat": now_s, "exp": now_s + lifetime_s, **more}
    return {name: claim for name, claim in said.items() if claim is not None}


def token(
    said: dict[str, Any] | None = None,
    kid: str | None = "first",
    *,
    key: Any = None,
    algorithm: str = "ES256",
    headers: dict[str, Any] | None = None,
) -> str:
    """A token that is signed with the key of that name, or with another one.

    Arguments:
        said: what it claims.
        headers: further fields of its header.
    """
    # Its own encode() has opinions on claims: what is signed here may be anything.
    payload = json.dumps(claims() if said is None else said).encode()
    header = {**({} if kid is None else {"kid": kid}), **(headers or {})}
    return jwt.PyJWS().encode(payload, key or private_key(kid or "first"), algorithm=algorithm, headers=header)


def options(file: Path = Path("keys.json"), **more: Any) -> TokenOptions:
    """Returns options that require this issuer and this audience of a token."""
    return TokenOptions(file, ISSUER, AUDIENCE, **more)

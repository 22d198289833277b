"""Parses and validates the public keys in a JWKS file (RFC 7517).

Keys of unknown types, and keys for encryption, are ignored: an issuer may publish keys for other uses. A secret key in
the file is a mistake, and is rejected.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePublicKey
from cryptography.hazmat.primitives.asymmetric.ed448 import Ed448PublicKey
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey
from jwt import PyJWK, PyJWTError

PublicKey: TypeAlias = RSAPublicKey | EllipticCurvePublicKey | Ed25519PublicKey | Ed448PublicKey

#: Maximum number of keys in a file, and bounds of an RSA key's size: smaller ones can be broken, larger ones cost a
#: node too much.
MAX_KEYS = 100
MIN_RSA_BITS, MAX_RSA_BITS = 2_048, 8_192
MAX_KEY_ID_LENGTH = 1_024
#: The algorithms that a key can be used with, by type and curve.
_ABLE = {
    ("RSA", ""): ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512"),
    ("EC", "P-256"): ("ES256",),
    ("EC", "P-384"): ("ES384",),
    ("EC", "P-521"): ("ES512",),
    ("OKP", "Ed25519"): ("EdDSA",),
    ("OKP", "Ed448"): ("EdDSA",),
}


class KeySetError(Exception):
    """Raised when the file cannot be used. The message is one line."""


@dataclass(slots=True, frozen=True)
class TokenKey:
    """One public key.

    Arguments:
        key_id: the id by which tokens name it; empty: none.
        algorithms: the algorithms that it is used with.
    """

    key_id: str
    algorithms: frozenset[str]
    public: PublicKey


@dataclass(slots=True, frozen=True)
class KeySet:
    """The keys of one version of the file."""

    keys: tuple[TokenKey, ...]

    def find(self, key_id: str) -> TokenKey | None:
        """Returns the key that a token names; for a token without a key id, the only key if there is just one."""
        if not key_id:
            return self.keys[0] if len(self.keys) == 1 else None
        return next((key for key in self.keys if key.key_id == key_id), None)


def parse_keys(content: bytes, algorithms: Iterable[str]) -> KeySet:
    """Returns the keys that can be used with these algorithms.

    Raises:
        KeySetError: not a JWKS, or it contains a secret, a weak key, a duplicate key id, too many keys, or no usable
            key.
    """
    try:
        parsed = json.loads(content)
    except (ValueError, RecursionError):
        raise KeySetError("it is not JSON") from None
    items = parsed.get("keys") if isinstance(parsed, dict) else None
    if not isinstance(items, list) or not all(isinstance(item, dict) for item in items):
        raise KeySetError('it is not a JWKS: expected {"keys": [...]}')
    if len(items) > MAX_KEYS:
        raise KeySetError(f"it has {len(items)} keys, at most {MAX_KEYS} are taken")
    wanted = frozenset(algorithms)
    found = [key for number, item in enumerate(items, start=1) if (key := _key(number, item, wanted)) is not None]
    if not found:
        raise KeySetError(f"it has no key for {', '.join(sorted(wanted))}")
    names = [key.key_id for key in found]
    if len(set(names)) < len(names):
        raise KeySetError("two of its keys have the same kid, or none: tokens must name the key that they mean")
    return KeySet(tuple(found))


def _key(number: int, item: Mapping[str, Any], wanted: frozenset[str]) -> TokenKey | None:
    """Returns a key, by its position in the file; None if it is not usable here."""
    kind, curve, algorithm, key_id = (item.get(name, "") for name in ("kty", "crv", "alg", "kid"))
    if not all(isinstance(text, str) for text in (kind, curve, algorithm, key_id)):
        raise KeySetError(f"key {number} is none: kty, crv, alg and kid are text")
    if kind == "oct" or "d" in item:
        raise KeySetError(f"key {number} is a secret, which no node may have: give public keys only")
    if len(key_id) > MAX_KEY_ID_LENGTH:
        raise KeySetError(f"the kid of key {number} has {len(key_id)} characters, at most {MAX_KEY_ID_LENGTH}")
    able = frozenset(_ABLE.get((kind, curve), ()))
    used = able & wanted & ({algorithm} if algorithm else able)
    operations = item.get("key_ops", ["verify"])
    if not used or item.get("use", "sig") != "sig" or not isinstance(operations, list) or "verify" not in operations:
        return None
    try:
        public = PyJWK(dict(item), algorithm=min(used)).key
    except (PyJWTError, ValueError, TypeError):
        raise KeySetError(f"key {number} is not a valid {kind} key") from None
    if isinstance(public, RSAPublicKey) and not MIN_RSA_BITS <= public.key_size <= MAX_RSA_BITS:
        raise KeySetError(f"key {number} has {public.key_size} bits: expected {MIN_RSA_BITS} to {MAX_RSA_BITS}")
    return TokenKey(key_id, used, public)

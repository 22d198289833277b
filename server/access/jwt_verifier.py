"""Parses a token (RFC 7519), and verifies its signature, issuer, audience and validity period.

The library verifies the signature. The claims are compared here, because the time is that of the node's step, and a
simulated node must come to the same result.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Mapping
from typing import Any, NoReturn

from jwt import PyJWS, PyJWTError

from quorumlog.server.access.key_set import KeySet
from quorumlog.server.step.bearer_tokens import (
    ProvedToken,
    TokenError,
    TokenOptions,
    UnverifiedToken,
)
from quorumlog.wire.request_limits import MAX_BEARER_TOKEN_LENGTH

#: Header, claims, signature; the signature of an unsigned token is empty.
_COMPACT = re.compile(r"([A-Za-z0-9_-]+)\.([A-Za-z0-9_-]+)\.[A-Za-z0-9_-]*")
#: Largest time in a token, in seconds since the epoch: the year 9999.
_LAST_S = 253_402_300_800


class JwtVerifier:
    """Verifies tokens.

    Arguments:
        keys: from one version of the file.
        options: the requirements on a token.
    """

    def __init__(self, keys: KeySet, options: TokenOptions) -> None:
        self._keys = keys
        self._options = options
        self._signatures = PyJWS(algorithms=list(options.algorithms))

    def read(self, compact: str) -> UnverifiedToken:
        """See ``TokenVerifier``."""
        if len(compact) > MAX_BEARER_TOKEN_LENGTH:
            raise TokenError(f"it has more than {MAX_BEARER_TOKEN_LENGTH} characters")
        parts = _COMPACT.fullmatch(compact)
        if parts is None:
            raise TokenError("it is not a JWT")
        header, claims = _object(_decoded(parts[1])), _object(_decoded(parts[2]))
        if "crit" in header or "b64" in header:
            raise TokenError("its header requires extensions that nodes do not support (crit)")
        algorithm, key_id, user = header.get("alg"), header.get("kid", ""), claims.get(self._options.name_claim)
        if not isinstance(algorithm, str) or not isinstance(key_id, str):
            raise TokenError("its header is none of a JWT")
        return UnverifiedToken(compact, user if isinstance(user, str) else "", algorithm, key_id)

    def prove(self, token: UnverifiedToken, wall_ms: int) -> ProvedToken:
        """See ``TokenVerifier``."""
        claims = self._signed_claims(token)
        if claims.get("iss") != self._options.issuer:
            raise TokenError("its issuer (iss) is not the expected one")
        if self._options.audience not in _audiences(claims.get("aud")):
            raise TokenError("it is for another audience (aud)")
        ends_s = _seconds(claims, "exp")
        if ends_s is None:
            raise TokenError("it says no end (exp)")
        ends_ms = int(ends_s * 1_000)
        if wall_ms >= ends_ms:
            raise TokenError("it has ended (exp)")
        for name in ("nbf", "iat"):
            begins_s = _seconds(claims, name)
            if begins_s is not None and wall_ms < (begins_s - self._options.clock_skew_s) * 1_000:
                raise TokenError(f"it is not valid yet ({name}): look at the clocks")
        user = claims.get(self._options.name_claim)
        if not isinstance(user, str):
            raise TokenError(f"its claim {self._options.name_claim} is missing, or no text")
        return ProvedToken(user, ends_ms)

    def _signed_claims(self, token: UnverifiedToken) -> Mapping[str, Any]:
        """Returns the claims after verifying the signature."""
        # The algorithm in the token must not be trusted: it is compared with what the operator and the key allow.
        # Otherwise an attacker could use a public key, which is not secret, as an HMAC key.
        if token.algorithm not in self._options.algorithms:
            raise TokenError(f"its algorithm is none of {', '.join(self._options.algorithms)}")
        key = self._keys.find(token.key_id)
        if key is None:
            raise TokenError("it is signed with a key that is not in the file" if token.key_id else "it names no key")
        if token.algorithm not in key.algorithms:
            raise TokenError("its key is for another algorithm")
        try:
            verified = self._signatures.decode_complete(token.compact, key.public, algorithms=[token.algorithm])
        except (PyJWTError, ValueError, TypeError, RecursionError):
            raise TokenError("its signature is wrong") from None
        return _object(verified["payload"])


def _decoded(part: str) -> bytes:
    try:
        return base64.urlsafe_b64decode(part + "=" * (-len(part) % 4))
    except ValueError:
        raise TokenError("it is not a JWT") from None


def _object(content: bytes) -> Mapping[str, Any]:
    try:
        parsed = json.loads(content, parse_constant=_no_number)
    except (ValueError, RecursionError):
        raise TokenError("it is not a JWT") from None
    if not isinstance(parsed, dict):
        raise TokenError("it is not a JWT")
    return parsed


def _no_number(constant: str) -> NoReturn:
    raise ValueError(constant)


def _audiences(claim: object) -> tuple[str, ...]:
    """Returns the audiences of a token: one, or a list (RFC 7519, section 4.1.3)."""
    if isinstance(claim, str):
        return (claim,)
    if isinstance(claim, list) and all(isinstance(each, str) for each in claim):
        return tuple(claim)
    return ()


def _seconds(claims: Mapping[str, Any], name: str) -> float | None:
    """Returns a time in seconds since the epoch; None if the token does not contain it."""
    claim = claims.get(name)
    if claim is None:
        return None
    if isinstance(claim, bool) or not isinstance(claim, int | float) or not 0 <= claim < _LAST_S:
        raise TokenError(f"its claim {name} is not a time")
    return claim

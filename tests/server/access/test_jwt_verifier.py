"""Verification of JSON Web Tokens: those accepted for a user, and all others, which are refused."""

from __future__ import annotations

import base64
import hmac
import json
from collections.abc import Mapping
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from hypothesis import example, given, settings
from hypothesis import strategies as st
from token_issuer import (
    AUDIENCE,
    ISSUER,
    NOW_S,
    claims,
    file_of,
    options,
    private_key,
    public,
    public_rsa,
    rsa_key,
    token,
)

from quorumlog.server.access.jwt_verifier import JwtVerifier
from quorumlog.server.access.key_set import parse_keys
from quorumlog.server.step.bearer_tokens import ProvedToken, TokenError
from quorumlog.wire.request_limits import MAX_BEARER_TOKEN_LENGTH

NOW_MS = NOW_S * 1_000


def verifier(*keys: Mapping[str, Any], **more: Any) -> JwtVerifier:
    wanted = options(**more)
    return JwtVerifier(parse_keys(file_of(*map(dict, keys or (public("first"),))), wanted.algorithms), wanted)


def shown(compact: str, by: JwtVerifier | None = None, wall_ms: int = NOW_MS) -> ProvedToken:
    """Returns what a token proves."""
    by = by or verifier()
    return by.prove(by.read(compact), wall_ms)


def refusal(compact: str, by: JwtVerifier | None = None, wall_ms: int = NOW_MS) -> str:
    """Returns the reason why a token is refused; it must not quote any part of the token."""
    with pytest.raises(TokenError) as refused:
        shown(compact, by, wall_ms)
    said = str(refused.value)
    assert said.isprintable()
    assert not any(part in said for part in compact.split(".") if len(part) > 8)
    return said


def forged(header: Mapping[str, Any], said: Mapping[str, Any], signature: bytes = b"") -> str:
    """Returns a token that its issuer has not signed."""
    parts = (json.dumps(header).encode(), json.dumps(said).encode(), signature)
    return ".".join(base64.urlsafe_b64encode(part).rstrip(b"=").decode() for part in parts)


def test_a_token_of_the_issuer_is_its_users() -> None:
    read = verifier().read(token())
    assert (read.user, read.algorithm, read.key_id) == ("alice", "ES256", "first")
    assert shown(token()) == ProvedToken("alice", NOW_MS + 600_000)
    assert shown(token(claims(exp=NOW_S + 1.25))).ends_ms == NOW_MS + 1_250


@pytest.mark.parametrize("algorithm", ["RS256", "PS256", "RS512"])
def test_a_key_for_rsa_is_good_for_what_it_says_and_what_the_node_allows(algorithm: str) -> None:
    by = verifier(public_rsa("big"), algorithms=("RS256", "RS512", "PS256"))
    assert shown(token(kid="big", key=rsa_key(), algorithm=algorithm), by).user == "alice"
    allowed = ("RS256", "RS384", "PS256", "RS512", "ES256")
    narrow = verifier(public_rsa("big", alg="RS384"), public("first"), algorithms=allowed)
    assert refusal(token(kid="big", key=rsa_key(), algorithm=algorithm), narrow) == "its key is for another algorithm"


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"iss": "https://other.test"}, "issuer"),
        ({"iss": ISSUER + "/"}, "issuer"),
        ({"iss": ISSUER[:-1]}, "issuer"),
        ({"iss": [ISSUER]}, "issuer"),
        ({"iss": None}, "issuer"),
        ({"aud": "another-cluster"}, "audience"),
        ({"aud": AUDIENCE.upper()}, "audience"),
        ({"aud": ["one", "two"]}, "audience"),
        ({"aud": []}, "audience"),
        ({"aud": [AUDIENCE, 5]}, "audience"),
        ({"aud": {AUDIENCE: 1}}, "audience"),
        ({"aud": None}, "audience"),
        ({"exp": NOW_S}, "has ended"),
        ({"exp": NOW_S - 1}, "has ended"),
        ({"exp": None}, "says no end"),
        ({"exp": "soon"}, "exp is not a time"),
        ({"exp": True}, "exp is not a time"),
        ({"exp": -1}, "exp is not a time"),
        ({"exp": 1e300}, "exp is not a time"),
        ({"exp": 10**4000}, "exp is not a time"),
        ({"exp": 10**5000}, "not a JWT"),
        ({"exp": float("inf")}, "not a JWT"),
        ({"exp": float("nan")}, "not a JWT"),
        ({"nbf": NOW_S + 31}, "not valid yet (nbf)"),
        ({"iat": NOW_S + 31}, "not valid yet (iat)"),
        ({"nbf": "now"}, "nbf is not a time"),
        ({"sub": None}, "its claim sub is missing, or no text"),
        ({"sub": 7}, "its claim sub is missing, or no text"),
        ({"sub": ["alice"]}, "its claim sub is missing, or no text"),
        ({"sub": {"name": "alice"}}, "its claim sub is missing, or no text"),
    ],
)
def test_a_token_that_claims_something_else_is_not_taken(changed: dict[str, object], words: str) -> None:
    said = {name: claim for name, claim in {**claims(), **changed}.items() if claim is not None}
    if words == "not a JWT" and isinstance(changed["exp"], int):
        # Written as text, because Python does not format such a long number.
        compact = token({**claims(), "exp": 1}).split(".")
        body = json.dumps({**claims(), "exp": 1}).replace('"exp": 1', f'"exp": 1{"0" * 5_000}')
        payload = base64.urlsafe_b64encode(body.encode()).rstrip(b"=").decode()
        assert words in refusal(f"{compact[0]}.{payload}.{compact[2]}")
        return
    assert words in refusal(token(said))


def test_one_of_several_audiences_is_enough() -> None:
    assert shown(token(claims(aud=["another-cluster", AUDIENCE]))).user == "alice"


def test_a_token_ends_at_its_end_and_may_begin_a_little_early() -> None:
    assert shown(token(claims(exp=NOW_S + 1)), wall_ms=NOW_MS + 999).user == "alice"
    assert "has ended" in refusal(token(claims(exp=NOW_S + 1)), wall_ms=NOW_MS + 1_000)
    assert shown(token(claims(nbf=NOW_S + 30, iat=NOW_S + 30))).user == "alice"
    strict = verifier(clock_skew_s=0)
    assert "not valid yet" in refusal(token(claims(iat=NOW_S + 1)), strict)


def test_another_claim_may_name_the_user() -> None:
    by = verifier(name_claim="preferred_username")
    assert shown(token(claims("4711", preferred_username="bob")), by).user == "bob"
    assert "claim preferred_username is missing" in refusal(token(), by)


def test_a_key_that_is_not_in_the_file_proves_nothing() -> None:
    assert "not in the file" in refusal(token(kid="other"))
    assert refusal(token(kid="first", key=private_key("other"))) == "its signature is wrong"
    swapped = verifier(public("first"), {**public("first"), "kid": "second"})
    assert refusal(token(kid="second"), swapped) == "its signature is wrong"


def test_a_token_that_names_no_key_is_of_the_only_one() -> None:
    assert shown(token(kid=None)).user == "alice"
    two = verifier(public("first"), public("second"))
    assert refusal(token(kid=None), two) == "it names no key"
    assert shown(token(kid="second"), two).user == "alice"


def test_the_token_does_not_choose_its_algorithm() -> None:
    """A token is refused if it is unsigned, signed with the public key as a secret (RFC 8725, section 2.1), or signed
    with a key for another algorithm."""
    unsigned = forged({"alg": "none", "kid": "first"}, claims())
    assert "its algorithm is none of" in refusal(unsigned)
    assert "its algorithm is none of" in refusal(forged({"alg": "NONE", "kid": "first"}, claims(), b"x"))
    pem = private_key("first").public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    for secret in (pem, pem.strip(), json.dumps(public("first")).encode()):
        body = forged({"alg": "HS256", "typ": "JWT", "kid": "first"}, claims()).rpartition(".")[0]
        signature = base64.urlsafe_b64encode(hmac.digest(secret, body.encode(), "sha256")).rstrip(b"=").decode()
        assert "its algorithm is none of" in refusal(f"{body}.{signature}")
    strict = verifier(public("first"), public_rsa("big"), algorithms=("ES256", "RS256"))
    assert "its algorithm is none of" in refusal(token(kid="big", key=rsa_key(), algorithm="RS512"), strict)
    assert refusal(token(kid="first", key=rsa_key(), algorithm="RS256"), strict) == "its key is for another algorithm"


@pytest.mark.parametrize("header", [{"crit": ["exp"]}, {"b64": False}, {"crit": [], "b64": True}])
def test_a_header_that_must_be_understood_and_is_not_is_refused(header: dict[str, Any]) -> None:
    compact = forged({"alg": "ES256", "kid": "first", **header}, claims(), b"x" * 64)
    assert "extensions that nodes do not support" in refusal(compact)


@pytest.mark.parametrize(
    "junk",
    [
        "", ".", "..", "a.b", "a.b.c", "a.b.c.d", "é.é.é", "a b.c.d", "\x00" * 20, " " + "a.b.c",
        *(
            ".".join(base64.urlsafe_b64encode(part).rstrip(b"=").decode() for part in (header, b"{}", b"x"))
            for header in (
                b"[]", b"5", b'"alg"', b"{}", b'{"alg":5}', b'{"alg":"ES256","kid":5}', b"\xff\xfe", b"[" * 8_000,
            )
        ),
    ],
)  # fmt: skip
def test_what_is_no_token_is_refused(junk: str) -> None:
    refusal(junk)


def test_a_token_has_a_largest_size() -> None:
    large = token(claims(groups=["x" * 11_000]))
    assert len(large) < MAX_BEARER_TOKEN_LENGTH
    assert shown(large).user == "alice"
    assert refusal(token(claims(groups=["x" * 13_000]))) == f"it has more than {MAX_BEARER_TOKEN_LENGTH} characters"


def test_who_changes_a_token_has_none() -> None:
    header, body, signature = token().split(".")
    other = base64.urlsafe_b64encode(json.dumps(claims("root")).encode()).rstrip(b"=").decode()
    assert refusal(f"{header}.{other}.{signature}") == "its signature is wrong"
    assert refusal(f"{header}.{body}.") == "its signature is wrong"
    twisted = signature[:10] + ("A" if signature[10] != "A" else "B") + signature[11:]
    assert refusal(f"{header}.{body}.{twisted}") == "its signature is wrong"


@settings(max_examples=60, deadline=None)
@given(st.binary(max_size=60), st.binary(max_size=60), st.binary(max_size=70))
@example(b'{"alg":"ES256"}', b'{"sub":"\\ud800"}', b"x" * 64)
@example(b'{"alg":"RS256","kid":"first"}', b"{}", b"")
def test_whatever_comes_is_refused_and_nothing_else_happens(header: bytes, body: bytes, signature: bytes) -> None:
    compact = ".".join(base64.urlsafe_b64encode(part).rstrip(b"=").decode() for part in (header, body, signature))
    with pytest.raises(TokenError):
        shown(compact)


def test_the_library_verifies_what_was_read() -> None:
    """The claims that are read are those that were signed, even if one occurs twice."""
    body = json.dumps(claims()).encode()[:-1] + b', "sub": "bob"}'
    compact = jwt.PyJWS().encode(body, private_key("first"), algorithm="ES256", headers={"kid": "first"})
    assert verifier().read(compact).user == shown(compact).user == "bob"


def test_times_may_be_zero_and_not_beyond_the_year_9999() -> None:
    last_s = 253_402_300_799
    assert shown(token(claims(nbf=0, iat=0, exp=last_s))).ends_ms == last_s * 1_000
    assert "is not a time" in refusal(token(claims(exp=last_s + 1)))

"""Key files for tokens: the keys that a node accepts, those that it skips, and when it reads a file again."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from jwt.algorithms import ECAlgorithm, OKPAlgorithm
from token_issuer import NOW_S, claims, file_of, options, private_key, public, public_rsa, token, write_keys

from quorumlog.server.access import watched_keys
from quorumlog.server.access.key_set import MAX_KEY_ID_LENGTH, MAX_KEYS, MIN_RSA_BITS, KeySetError, parse_keys
from quorumlog.server.access.watched_keys import MAX_FILE_BYTES, WatchedKeys, read_keys
from quorumlog.server.step.bearer_tokens import KNOWN_ALGORITHMS, TokenError, TokenVerifier


def refusal(content: bytes) -> str:
    with pytest.raises(KeySetError) as refused:
        parse_keys(content, KNOWN_ALGORITHMS)
    said = str(refused.value)
    assert said.isprintable()
    assert len(said) < 300
    return said


def test_keys_are_found_by_their_names() -> None:
    keys = parse_keys(file_of(public("a"), public_rsa("b"), public("c", use="sig", alg="ES256")), KNOWN_ALGORITHMS)
    assert [key.key_id for key in keys.keys] == ["a", "b", "c"]
    found = keys.find("c")
    assert found is not None
    assert found.algorithms == {"ES256"}
    assert keys.find("d") is None
    assert keys.find("") is None, "there are several"


def test_what_is_of_no_use_here_is_passed_over() -> None:
    other_curve = ECAlgorithm.to_jwk(ec.generate_private_key(ec.SECP384R1()).public_key(), as_dict=True)
    others: list[dict[str, Any]] = [
        public("encrypts", use="enc"),
        public("unwraps", key_ops=["unwrapKey"]),
        public("strange", key_ops=5),
        public_rsa("wraps", alg="RSA-OAEP"),
        {"kty": "AKP", "kid": "of tomorrow"},
        other_curve,
        {"kty": "OKP", "crv": "X25519", "x": "AAAA"},
        {"kty": "EC", "crv": "secp256k1"},
    ]
    keys = parse_keys(file_of(*others, public("a")), ("ES256", "RS256", "EdDSA"))
    assert [key.key_id for key in keys.keys] == ["a"]
    with pytest.raises(KeySetError, match="it has no key for ES512"):
        parse_keys(file_of(*others, public("a")), ("ES512",))


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "not JSON"),
        (b"\xff", "not JSON"),
        (b"[" * 100_000, "not JSON"),
        (b"[]", "not a JWKS"),
        (b'{"keys": 5}', "not a JWKS"),
        (b'{"keys": [5]}', "not a JWKS"),
        (b'{"keys": []}', "no key for"),
        (b'{"keys": [{}]}', "no key for"),
        (file_of(*({} for _ in range(MAX_KEYS + 1))), "at most 100"),
        (file_of(public("a"), {"kty": "oct", "k": "c2VjcmV0", "kid": "b"}), "key 2 is a secret"),
        (file_of(public("a", d="c2VjcmV0")), "key 1 is a secret"),
        (file_of(public("a", d=None)), "key 1 is a secret"),
        (file_of(public("a", x="AAAA")), "key 1 is not a valid EC key"),
        (file_of(public("a", x=5)), "key 1 is not a valid EC key"),
        (file_of(public("a", y="")), "key 1 is not a valid EC key"),
        (file_of(public_rsa("a", n="")), "key 1"),
        (file_of(public_rsa("a", 1_024)), "key 1 has 1024 bits"),
        (file_of(public("a", kid=5)), "key 1 is none"),
        (file_of(public("a", alg=["ES256"])), "key 1 is none"),
        (file_of(public("a" * 1_025)), "the kid of key 1 has 1025 characters"),
        (file_of(public("a"), public("b", kid="a")), "the same kid"),
        (file_of(public("", kid=""), public("b", kid="")), "the same kid, or none"),
    ],
)
def test_a_file_that_is_wrong_is_refused(content: bytes, words: str) -> None:
    said = refusal(content)
    assert words in said
    assert "c2VjcmV0" not in said


def test_keys_of_edwards_curves_are_taken() -> None:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    jwk = OKPAlgorithm.to_jwk(Ed25519PrivateKey.generate().public_key(), as_dict=True)
    assert parse_keys(file_of(jwk), ("EdDSA",)).keys[0].algorithms == {"EdDSA"}


# -- the file ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", [0o666, 0o664, 0o646, 0o620])
def test_a_file_that_others_may_write_is_not_taken(tmp_path: Path, mode: int) -> None:
    file = tmp_path / "keys.json"
    write_keys(file, "a")
    assert len(read_keys(options(file)).keys) == 1
    file.chmod(mode)
    with pytest.raises(KeySetError, match=f"may be written by others than its owner .mode {mode:o}.: chmod go-w"):
        read_keys(options(file))


def test_what_is_no_file_with_keys_is_refused_in_one_line(tmp_path: Path) -> None:
    large, pipe = tmp_path / "large", tmp_path / "pipe"
    large.write_bytes(b" " * (MAX_FILE_BYTES + 1))
    large.chmod(0o600)
    os.mkfifo(pipe, 0o600)
    for path, words in (
        (tmp_path / "none", "cannot read"),
        (tmp_path, "not a file"),
        (pipe, "not a file"),
        (large, "bytes"),
    ):
        with pytest.raises(KeySetError, match=words) as refused:
            read_keys(options(path))
        assert str(path) in str(refused.value)
        assert str(refused.value).isprintable()


class Watched:
    """A key file, its watcher, and the reports of the watcher. Every look checks the file."""

    def __init__(self, file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(watched_keys, "LOOKED_AT_S", -1.0)
        self.file = file
        self.refused: list[str] = []
        self.taken: list[int] = []
        write_keys(file, "first")
        self.keys = WatchedKeys(options(file), self.refused.append, self.taken.append)

    def takes(self, kid: str) -> bool:
        """True if a token with that key is accepted now."""
        by: TokenVerifier = self.keys.current()
        try:
            return by.prove(by.read(token(claims(), kid)), NOW_S * 1_000).user == "alice"
        except TokenError:
            return False


@pytest.fixture
def watched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Watched:
    return Watched(tmp_path / "keys.json", monkeypatch)


def test_keys_come_and_go_with_the_file(watched: Watched) -> None:
    before = watched.keys.current()
    assert watched.keys.current() is before, "as long as nothing changes"
    assert (watched.takes("first"), watched.takes("second")) == (True, False)
    write_keys(watched.file, "first", "second")
    assert (watched.takes("first"), watched.takes("second")) == (True, True)
    write_keys(watched.file, "second")
    assert (watched.takes("first"), watched.takes("second")) == (False, True)
    assert (watched.taken, watched.refused) == ([2, 1], [])


@pytest.mark.parametrize("how", ["broken", "gone", "writable", "secret"])
def test_a_new_file_that_is_wrong_leaves_the_keys_before_and_is_told_once(watched: Watched, how: str) -> None:
    match how:
        case "broken":
            watched.file.write_text("{")
        case "gone":
            watched.file.unlink()
        case "writable":
            watched.file.chmod(0o666)
        case "secret":
            watched.file.write_text(json.dumps({"keys": [{"kty": "oct", "k": "AAAA"}]}))
    for _ in range(3):
        assert watched.takes("first")
    assert len(watched.refused) == 1
    write_keys(watched.file, "second")
    assert (watched.takes("first"), watched.takes("second")) == (False, True)
    assert (watched.taken, len(watched.refused)) == ([1], 1)


def test_the_file_is_looked_at_now_and_then_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now_s = [100.0]
    monkeypatch.setattr(watched_keys.time, "monotonic", lambda: now_s[0])
    file = tmp_path / "keys.json"
    write_keys(file, "first")
    keys = WatchedKeys(options(file), lambda reason: None, lambda count: None)
    before = keys.current()
    write_keys(file, "second")
    now_s[0] += 0.9
    assert keys.current() is before
    now_s[0] += 0.2
    assert keys.current() is not before


def test_a_key_has_no_private_half() -> None:
    (key,) = parse_keys(file_of(public("first")), ("ES256",)).keys
    assert key.public == private_key("first").public_key()


def test_limits_of_a_file_are_inclusive(tmp_path: Path) -> None:
    many = file_of(*(public(f"k{number}") for number in range(MAX_KEYS)))
    assert len(parse_keys(many, KNOWN_ALGORITHMS).keys) == MAX_KEYS
    longest = parse_keys(file_of(public("a" * MAX_KEY_ID_LENGTH)), KNOWN_ALGORITHMS)
    assert len(longest.keys[0].key_id) == MAX_KEY_ID_LENGTH
    smallest = parse_keys(file_of(public_rsa("a", MIN_RSA_BITS)), KNOWN_ALGORITHMS)
    assert smallest.keys[0].key_id == "a"
    file = tmp_path / "keys.json"
    write_keys(file, "a")
    file.write_bytes(file.read_bytes().ljust(MAX_FILE_BYTES))
    file.chmod(0o600)
    assert len(read_keys(options(file)).keys) == 1

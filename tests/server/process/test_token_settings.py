"""Settings of token authentication: incomplete combinations are reported in one line, before anything is served."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from token_issuer import write_keys

from quorumlog.server.config.settings import Settings, SettingsError, load
from quorumlog.server.process import listeners

TLS = {
    "node_id": 1, "listen": "127.0.0.1:19092", "data_dir": "d", "controllers": "1@127.0.0.1:19093",
    "peer_listen": "127.0.0.1:19093", "password_listen": "127.0.0.1:19094", "tls_certificate": "n.crt",
    "tls_key": "n.key", "node_ca": "nodes.crt", "client_ca": "clients.crt",
}  # fmt: skip
TOKENS = {
    "sasl_oauthbearer_jwks_file": "keys.json",
    "sasl_oauthbearer_expected_issuer": "https://issuer.test",
    "sasl_oauthbearer_expected_audience": "shop",
}


def loaded(**more: object) -> Settings:
    return load({**TLS, **TOKENS, **more})


def test_a_file_an_issuer_and_an_audience_are_enough() -> None:
    options = loaded().token_options()
    assert options is not None
    assert (options.key_file, options.issuer, options.audience) == (Path("keys.json"), "https://issuer.test", "shop")
    assert (options.name_claim, options.algorithms, options.clock_skew_s) == ("sub", ("RS256", "ES256"), 30)
    assert load(TLS).token_options() is None


def test_everything_can_be_chosen() -> None:
    settings = loaded(
        sasl_oauthbearer_sub_claim_name="client_id",
        sasl_oauthbearer_algorithms="EdDSA, PS512,EdDSA",
        sasl_oauthbearer_clock_skew_seconds=0,
        sasl_oauthbearer_shared_users="User:admin",
    )
    options = settings.token_options()
    assert options is not None
    assert (options.name_claim, options.algorithms, options.clock_skew_s) == ("client_id", ("EdDSA", "PS512"), 0)
    assert settings.node_options().authorization.token_users == {"User:admin"}


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"sasl_oauthbearer_expected_issuer": None}, "sasl_oauthbearer_expected_issuer is not set beside"),
        ({"sasl_oauthbearer_expected_audience": None}, "sasl_oauthbearer_expected_audience is not set beside"),
        ({"password_listen": None}, "password_listen is not set beside sasl_oauthbearer_jwks_file"),
        ({"sasl_oauthbearer_jwks_file": None}, "is set without sasl_oauthbearer_jwks_file: expected a file"),
        ({"sasl_oauthbearer_expected_issuer": ""}, "sasl_oauthbearer_expected_issuer"),
        ({"sasl_oauthbearer_algorithms": "none"}, "'none' is not one of RS256"),
        ({"sasl_oauthbearer_algorithms": "RS256,HS256"}, "'HS256' is not one of RS256"),
        ({"sasl_oauthbearer_algorithms": ""}, "no algorithm"),
        ({"sasl_oauthbearer_algorithms": 5}, "not a list"),
        ({"sasl_oauthbearer_clock_skew_seconds": 301}, "a whole number of seconds from 0 to 300"),
        ({"sasl_oauthbearer_shared_users": "admin"}, "is not User: and a name"),
    ],
)
def test_what_does_not_go_together_is_refused(more: dict[str, object], words: str) -> None:
    with pytest.raises(SettingsError, match=words) as refused:
        loaded(**more).node_options()
    assert "\n" not in str(refused.value)


def keys_of(settings: Settings) -> object:
    """Returns the token keys that a node with these settings reads."""
    nobody: Any = SimpleNamespace(emit=None)
    return listeners._token_keys(settings, nobody, nobody)


@pytest.mark.parametrize("how", ["broken", "writable", "gone"])
def test_a_node_does_not_start_with_a_file_that_it_cannot_trust(tmp_path: Path, how: str) -> None:
    file = tmp_path / "keys.json"
    write_keys(file, "first")
    settings = loaded(sasl_oauthbearer_jwks_file=file)
    assert keys_of(settings) is not None
    match how:
        case "broken":
            file.write_text("{")
        case "writable":
            file.chmod(0o666)
        case "gone":
            file.unlink()
    with pytest.raises(SettingsError, match=f"sasl_oauthbearer_jwks_file: .*{file}") as refused:
        keys_of(settings)
    assert "\n" not in str(refused.value)


def test_without_the_extra_a_node_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("jwt_verifier", "key_set", "watched_keys"):
        monkeypatch.delitem(sys.modules, f"quorumlog.server.access.{name}", raising=False)
    monkeypatch.setitem(sys.modules, "jwt", None)
    with pytest.raises(
        SettingsError, match=r"needs the package jwt, which is not installed: pip install 'quorumlog\[oauth"
    ):
        keys_of(loaded())

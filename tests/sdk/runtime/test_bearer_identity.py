"""Source of a client's bearer token, and the error for a text that is not a token."""

from __future__ import annotations

import asyncio
import contextlib
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from quorumlog.sdk import IllegalArgumentError, SaslAuthenticationFailedError
from quorumlog.sdk.runtime.bearer_identity import BearerIdentity
from quorumlog.sdk.runtime.security import PROPERTIES, ClientSecurity
from quorumlog.wire.request_limits import MAX_BEARER_TOKEN_LENGTH

FILE = "sasl_oauthbearer_token_file"


def by_token(**options: Any) -> BearerIdentity:
    identity = ClientSecurity("SASL_SSL", sasl_mechanism="OAUTHBEARER", **options).identity()
    assert isinstance(identity, BearerIdentity)
    return identity


def test_a_token_is_read_anew_each_time(tmp_path: Path) -> None:
    file = tmp_path / "token"
    identity = by_token(sasl_oauthbearer_token_file=str(file))
    for written in ("a.b.c\n", "  d.e-f_.g==\r\n"):
        file.write_text(written)
        assert identity.token() == written.strip()
    assert "a.b.c" not in repr(identity)


def test_a_callable_or_what_kafka_python_takes_has_the_token() -> None:
    class Provider:
        def token(self) -> str:
            return "a.b.c"

    assert by_token(sasl_oauth_token_provider=lambda: "a.b.c").token() == "a.b.c"
    assert by_token(sasl_oauth_token_provider=Provider()).token() == "a.b.c"


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "0 characters"),
        (b"\n\n", "0 characters"),
        (b"canary canary", "characters that tokens cannot have"),
        (b"canary\nsecond", "characters that tokens cannot have"),
        (b"canary\x00", "characters that tokens cannot have"),
        (b"canary\xff", "characters that tokens cannot have"),
        (b"canary" * 4_000, f"tokens have 1 to {MAX_BEARER_TOKEN_LENGTH}"),
    ],
)
def test_what_is_no_token_is_refused_without_repeating_it(tmp_path: Path, content: bytes, words: str) -> None:
    file = tmp_path / "token"
    file.write_bytes(content)
    with pytest.raises(IllegalArgumentError, match=words) as refused:
        by_token(sasl_oauthbearer_token_file=str(file)).token()
    said = refused.value.message
    assert (FILE in said, str(file) in said, "canary" in said, "\n" in said) == (True, True, False, False)


@pytest.mark.parametrize("given", [None, 5, b"a.b.c", ""])
def test_what_a_callable_returns_is_looked_at_too(given: Any) -> None:
    with pytest.raises(IllegalArgumentError, match="sasl_oauth_token_provider"):
        by_token(sasl_oauth_token_provider=lambda: given).token()


def test_a_callable_that_fails_is_one_error_that_says_so() -> None:
    def fail() -> str:
        raise OSError("canary")

    with pytest.raises(SaslAuthenticationFailedError, match="sasl_oauth_token_provider failed: OSError") as refused:
        by_token(sasl_oauth_token_provider=fail).token()
    assert "canary" not in refused.value.message


@pytest.mark.parametrize("raised", [SystemExit, KeyboardInterrupt, asyncio.CancelledError])
def test_a_callable_that_would_end_its_thread_ends_no_event_loop(raised: type[BaseException]) -> None:
    def leave() -> str:
        raise raised

    # An event loop runs what is raised here: of SystemExit it ends, and with it all clients of the process.
    with pytest.raises(SaslAuthenticationFailedError, match=f"failed: {raised.__name__}"):
        by_token(sasl_oauth_token_provider=leave).token()


def test_a_pipe_is_no_file_and_nobody_waits_for_it(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with ThreadPoolExecutor(1) as pool:
        request = pool.submit(by_token(sasl_oauthbearer_token_file=str(pipe)).token)
        try:
            with pytest.raises(IllegalArgumentError, match=f"cannot read {pipe}: it is not a file"):
                request.result(timeout=30)
        finally:
            # Clients that still wait are released.
            with contextlib.suppress(OSError):
                os.close(os.open(pipe, os.O_WRONLY | os.O_NONBLOCK))


def test_a_file_that_is_not_there_is_one_clear_line(tmp_path: Path) -> None:
    for path in (tmp_path / "none", tmp_path, "a\0b"):
        with pytest.raises(IllegalArgumentError, match=f"{FILE}: cannot read"):
            by_token(sasl_oauthbearer_token_file=str(path)).token()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({}, "needs one of them"),
        ({FILE: "f", "sasl_oauth_token_provider": str}, "needs one of them"),
        ({FILE: ""}, "not a path"),
        ({FILE: 5}, "not a path"),
        ({"sasl_oauth_token_provider": "a.b.c"}, "not callable"),
        ({FILE: "f", "sasl_plain_username": "u"}, "sasl_plain_username is given, but sasl_mechanism is not SCRAM"),
        ({FILE: "f", "sasl_mechanism": None}, f"{FILE} is given, but sasl_mechanism is not OAUTHBEARER"),
        ({FILE: "f", "sasl_mechanism": "SCRAM-SHA-256"}, f"{FILE} is given, but sasl_mechanism is not OAUTHBEARER"),
        ({FILE: "f", "security_protocol": "SSL"}, "security_protocol is not SASL_SSL"),
        ({FILE: "f", "ssl_certificate_location": "c", "ssl_key_location": "k"}, "authenticates by password or token"),
    ],
)
def test_options_that_do_not_go_together_are_refused(options: dict[str, Any], words: str) -> None:
    with pytest.raises(IllegalArgumentError, match=words) as refused:
        ClientSecurity(**{"security_protocol": "SASL_SSL", "sasl_mechanism": "OAUTHBEARER", **options})
    assert "a.b.c" not in refused.value.message


def test_properties_name_a_file_and_no_callable() -> None:
    assert PROPERTIES[FILE] == "sasl.oauthbearer.token.file"
    assert "sasl_oauth_token_provider" not in PROPERTIES
    given = {"security.protocol": "SASL_SSL", "sasl.mechanism": "OAUTHBEARER", "sasl.oauthbearer.token.file": "f"}
    assert ClientSecurity.of_properties(given).sasl_oauthbearer_token_file == "f"

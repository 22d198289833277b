"""Authentication by bearer token: the user and lifetime of the session, and the tokens that are refused."""

from __future__ import annotations

import pytest
from sign_in_rig import SignInRig
from token_issuer import NOW_S, claims, file_of, options, private_key, public, token

from quorumlog.server.access import sessions
from quorumlog.server.access.jwt_verifier import JwtVerifier
from quorumlog.server.access.key_set import parse_keys
from quorumlog.server.config.options import SESSION_LIFETIME_US as LIFETIME_US
from quorumlog.server.step.request_context import Listener
from quorumlog.v1.errors_pb2 import Error, ErrorCode

PASSWORD = b"right and long"
DAY_S = 86_400


def verifier(*kids: str) -> JwtVerifier:
    return JwtVerifier(parse_keys(file_of(*map(public, kids or ("first",))), ("ES256",)), options())


@pytest.fixture
def rig() -> SignInRig:
    return SignInRig(verifier=verifier())


def code(outcome: Error | str) -> int:
    assert isinstance(outcome, Error), outcome
    assert (outcome.definite, outcome.message.isprintable()) == (True, True)
    return outcome.code


def refusal(rig: SignInRig, bearer: str, host: str = "10.0.0.7") -> str:
    """Returns the reason why a token is refused; no session may be created, and no part of the token quoted."""
    before = len(rig.sessions)
    refused = rig.show(bearer, host).error
    assert (refused.code, refused.retriable, refused.definite) == (ErrorCode.SASL_AUTHENTICATION_FAILED, False, True)
    assert len(rig.sessions) == before
    assert not any(part in refused.message for part in bearer.split(".") if len(part) > 8)
    return refused.message


def test_a_token_is_a_session_of_whom_it_names(rig: SignInRig) -> None:
    answer = rig.show(token(claims(lifetime_s=DAY_S)))
    assert not answer.HasField("error"), answer.error
    assert len(answer.session_token) == 43, "256 bits"
    assert answer.lifetime_ms == LIFETIME_US // 1_000
    assert rig.ask(answer.session_token) == "User:alice"
    assert answer.user == "alice"
    (line,) = rig.audit.take_lines()
    assert (line.event, line.fields["principal"], line.fields["mechanism"]) == (
        "signed_in",
        "User:alice",
        "OAUTHBEARER",
    )


def test_authorization_id_is_the_token_s_user(rig: SignInRig) -> None:
    """A client that asks to be another user than its token's gets no session."""
    assert not rig.show(token(), wanted="alice").HasField("error")
    refused = rig.show(token(), wanted="bob").error
    assert refused.code == ErrorCode.SASL_AUTHENTICATION_FAILED
    assert "another user's than the requested one" in refused.message and len(rig.sessions) == 1


def test_a_session_ends_with_its_token_and_its_streams_with_it(rig: SignInRig) -> None:
    answer = rig.show(token(claims(lifetime_s=60)))
    assert answer.lifetime_ms == 60_000
    rig.ask(answer.session_token, stream=5)
    rig.wait(59_999_999)
    assert (rig.ask(answer.session_token), rig.ended()) == ("User:alice", [])
    rig.wait(1)
    assert code(rig.ask(answer.session_token)) == ErrorCode.SASL_SESSION_EXPIRED
    assert [(each.stream, each.error.code) for each in rig.ended()] == [(5, ErrorCode.SASL_SESSION_EXPIRED)]
    assert "has ended" in refusal(rig, token(claims(lifetime_s=60)))


def test_a_session_goes_on_under_the_next_token_and_is_never_longer_than_that(rig: SignInRig) -> None:
    first = rig.show(token(claims(lifetime_s=60))).session_token
    rig.ask(first, stream=5)
    rig.wait(40_000_000)
    second = rig.show(token(claims(lifetime_s=100)), token=first)
    assert (second.lifetime_ms, len(rig.sessions)) == (60_000, 1)
    third = rig.show(token(claims(lifetime_s=70)), token=second.session_token)
    assert third.lifetime_ms == 30_000, "of a token that ends sooner"
    rig.wait(30_000_000)
    assert [each.stream for each in rig.ended()] == [5]
    assert {code(rig.ask(each)) for each in (first, second.session_token, third.session_token)} == {
        ErrorCode.SASL_SESSION_EXPIRED
    }


def test_nobody_goes_on_by_token_with_a_session_of_somebody_else_or_of_a_password(rig: SignInRig) -> None:
    rig.set_password("carol", PASSWORD)
    carols = rig.sign_in("carol", PASSWORD).session_token
    alices = rig.show(token()).session_token
    for other in (carols, alices):
        assert rig.show(token(claims("bob")), token=other).session_token not in (carols, alices)
    assert rig.sign_in("carol", PASSWORD, token=alices).session_token
    assert (rig.ask(alices), rig.ask(carols), len(rig.sessions)) == ("User:alice", "User:carol", 5)


def test_a_token_is_no_super_user_and_nobody_with_a_password_unless_the_operator_says_so() -> None:
    rig = SignInRig(verifier=verifier())
    rig.set_password("carol", PASSWORD)
    assert "User:root is a super user" in refusal(rig, token(claims("root")))
    assert "User:carol is a user with a password" in refusal(rig, token(claims("carol")))
    assert [(line.event, line.fields["user"]) for line in rig.audit.take_lines()] == [("sign_in_failed", "root")]
    shared = SignInRig(image=rig.image, verifier=verifier(), token_users=frozenset({"User:root", "User:carol"}))
    for name in ("root", "carol"):
        assert shared.ask(shared.show(token(claims(name))).session_token) == f"User:{name}"
    shared.set_password("carol", b"another and long")
    assert len(shared.sessions) == 2, "these two are one"
    shared.revoke(principal="User:carol")
    assert len(shared.sessions) == 1


def test_whoever_gets_a_password_later_is_not_the_one_with_the_token(rig: SignInRig) -> None:
    session = rig.show(token()).session_token
    rig.ask(session, stream=5)
    rig.set_password("bob", PASSWORD)
    assert rig.ask(session) == "User:alice"
    rig.set_password("alice", PASSWORD)
    assert code(rig.ask(session)) == ErrorCode.SASL_SESSION_EXPIRED
    assert [each.stream for each in rig.ended()] == [5]
    assert "with a password" in refusal(rig, token())
    rig.delete("alice")
    assert rig.show(token()).session_token


def test_a_revoked_user_is_not_let_in_by_token_and_is_out_at_once(rig: SignInRig) -> None:
    alices, bobs = (rig.show(token(claims(name))).session_token for name in ("alice", "bob"))
    rig.ask(alices, stream=5)
    rig.revoke(principal="User:alice")
    assert [each.stream for each in rig.ended()] == [5]
    assert code(rig.ask(alices)) == ErrorCode.SASL_SESSION_EXPIRED
    assert "User:alice was revoked" in refusal(rig, token())
    assert rig.ask(bobs) == "User:bob"


@pytest.mark.parametrize(
    "name",
    [
        "",
        "*",
        "ANONYMOUS",
        "User:root",
        "User:*",
        "a\nb",
        "a\0b",
        "\x1b[31m",
        "\u202ealice",
        "\ud800",
        "\u2028",
        "x" * 250,
    ],
)
def test_a_token_that_names_nobody_who_could_be_a_user_is_refused(rig: SignInRig, name: str) -> None:
    assert "names an invalid user" in refusal(rig, token(claims(name)))
    (line,) = rig.audit.take_lines()
    assert line.fields["reason"] == "it names an invalid user"


def test_junk_is_refused_and_told_once_without_any_of_it(rig: SignInRig) -> None:
    other = token(kid="first", key=private_key("other"))
    assert "signature is wrong" in refusal(rig, other)
    assert "not a JWT" in refusal(rig, "canary-no-token-at-all")
    rig.wait(1_100_000)
    lines = rig.audit.take_lines()
    assert [(line.event, line.fields["times"]) for line in lines] == [("sign_in_failed", 1), ("sign_in_failed", 1)]
    assert (lines[0].fields["user"], lines[0].fields["reason"]) == ("alice", "its signature is wrong")
    assert lines[1].fields["user"] == ""
    reported = str(lines)
    assert "canary" not in reported
    assert not any(part in reported for part in other.split("."))


def test_tokens_that_are_wrong_again_and_again_are_slowed_down_and_harm_nobody_else(rig: SignInRig) -> None:
    forged, tried = token(key=private_key("other")), 0
    for _ in range(1_000):
        tried += rig.show(forged, "10.6.6.6").error.code == ErrorCode.SASL_AUTHENTICATION_FAILED
        rig.wait(50_000)
    assert tried <= 12, "in fifty seconds"
    rig.wait(1_000_000)
    good = token(claims(lifetime_s=DAY_S))
    assert rig.show(good, "10.0.0.8").session_token, "alice elsewhere"
    assert rig.show(token(claims("bob", lifetime_s=DAY_S)), "10.6.6.6").session_token, "others at the same address"
    waiting = rig.show(good, "10.6.6.6").error
    assert (waiting.code, waiting.retriable) == (ErrorCode.SERVER_BUSY, True)
    rig.wait(30_000_000)
    assert rig.show(good, "10.6.6.6").session_token


def test_junk_is_slowed_down_too_and_harms_nobody(rig: SignInRig) -> None:
    tried = 0
    for _ in range(200):
        tried += rig.show("junk", "10.6.6.6").error.code == ErrorCode.SASL_AUTHENTICATION_FAILED
        rig.wait(10_000)
    assert tried <= 6, "in two seconds"
    rig.wait(1_000_000)
    assert rig.show(token(), "10.6.6.6").session_token


def test_keys_that_come_and_go_decide_about_what_is_shown_from_then_on(rig: SignInRig) -> None:
    session = rig.show(token()).session_token
    rig.keys.verifier = verifier("second")
    assert "not in the file" in refusal(rig, token())
    assert rig.show(token(kid="second")).session_token
    assert rig.ask(session) == "User:alice", "what has been proved stays so until its end"


def test_a_node_without_keys_takes_no_tokens() -> None:
    rig = SignInRig()
    refused = rig.show(token()).error
    assert (refused.code, refused.definite, refused.retriable) == (ErrorCode.UNSUPPORTED_VERSION, True, False)


def test_tokens_are_for_the_listener_that_asks_for_them(rig: SignInRig) -> None:
    assert rig.show(token(), listener=Listener.CLIENT).error.code == ErrorCode.INVALID_REQUEST


def test_a_user_has_so_many_sessions_by_token_as_well(rig: SignInRig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sessions, "MAX_SESSIONS_OF_USER", 2)
    held = [rig.show(token()).session_token for _ in range(2)]
    for stream, session in enumerate(held, start=5):
        rig.ask(session, stream=stream)
    assert rig.show(token()).error.code == ErrorCode.SERVER_BUSY
    assert rig.show(token(claims("bob"))).session_token


def test_the_time_is_that_of_the_step(rig: SignInRig) -> None:
    rig.time.wall_ms = (NOW_S - 40) * 1_000
    assert "not valid yet" in refusal(rig, token())
    rig.time.wall_ms = (NOW_S - 30) * 1_000
    assert rig.show(token(), "10.0.0.8").lifetime_ms == 630_000

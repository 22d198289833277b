"""Sessions and certificates: admission, lifetime, and what ends with them."""

from __future__ import annotations

import pytest
from sign_in_rig import SignInRig

from quorumlog.server.access import scram_sign_in, sessions
from quorumlog.server.config.options import SESSION_LIFETIME_US as LIFETIME_US
from quorumlog.server.step.events import ClientRequest
from quorumlog.server.step.request_context import Listener, RequestContext
from quorumlog.v1 import admin_pb2
from quorumlog.v1.errors_pb2 import Error, ErrorCode

PASSWORD, ANOTHER = b"right and long", b"other and long"


@pytest.fixture
def rig() -> SignInRig:
    made = SignInRig()
    made.set_password("alice", PASSWORD)
    return made


def code(outcome: Error | str) -> int:
    assert isinstance(outcome, Error), outcome
    assert (outcome.definite, outcome.message.isprintable()) == (True, True)
    return outcome.code


def test_without_a_session_nothing_is_served_where_passwords_are_asked_for(rig: SignInRig) -> None:
    assert code(rig.ask("")) == ErrorCode.SASL_AUTHENTICATION_FAILED
    assert code(rig.ask("", stream=5)) == ErrorCode.SASL_AUTHENTICATION_FAILED
    assert [each.stream for each in rig.ended()] == [5]
    for token in ("x", "A" * 43):
        assert code(rig.ask(token)) == ErrorCode.SASL_SESSION_EXPIRED


def test_elsewhere_nobody_needs_a_session(rig: SignInRig) -> None:
    for listener in (Listener.PLAINTEXT, Listener.PEER, Listener.CLIENT):
        request = ClientRequest(1, admin_pb2.DescribeQuorumRequest(), client=RequestContext(listener=listener))
        assert rig.admission.admit(rig.time.now, request) is None


def test_a_session_is_known_to_its_node_only(rig: SignInRig) -> None:
    token = rig.sign_in("alice", PASSWORD).session_token
    assert rig.ask(token) == "User:alice"
    assert code(SignInRig(seed=99, image=rig.image).ask(token)) == ErrorCode.SASL_SESSION_EXPIRED


def test_a_session_ends_with_its_time_and_its_streams_with_it(rig: SignInRig) -> None:
    token = rig.sign_in("alice", PASSWORD).session_token
    assert rig.ask(token, stream=5) == "User:alice"
    rig.wait(LIFETIME_US - 1)
    assert (rig.ask(token), rig.ended()) == ("User:alice", [])
    rig.wait(1)
    assert code(rig.ask(token)) == ErrorCode.SASL_SESSION_EXPIRED
    assert [(each.stream, each.error.code) for each in rig.ended()] == [(5, ErrorCode.SASL_SESSION_EXPIRED)]
    assert len(rig.sessions) == 0


def test_a_renewed_session_goes_on_with_its_streams_under_a_new_token(rig: SignInRig) -> None:
    old = rig.sign_in("alice", PASSWORD).session_token
    rig.ask(old, stream=5)
    rig.wait(LIFETIME_US // 2)
    new = rig.sign_in("alice", PASSWORD, token=old).session_token
    assert new != old
    assert len(rig.sessions) == 1
    assert {rig.ask(old), rig.ask(new)} == {"User:alice"}, "what is on its way with the old one is served"
    rig.wait(LIFETIME_US // 2)
    assert code(rig.ask(old)) == ErrorCode.SASL_SESSION_EXPIRED
    assert (rig.ask(new), rig.ask(new, stream=5), rig.ended()) == ("User:alice", "User:alice", [])
    rig.wait(LIFETIME_US // 2)
    assert [each.stream for each in rig.ended()] == [5]


def test_nobody_goes_on_with_the_session_of_another_user(rig: SignInRig) -> None:
    rig.set_password("bob", ANOTHER)
    alices = rig.sign_in("alice", PASSWORD).session_token
    bobs = rig.sign_in("bob", ANOTHER, token=alices).session_token
    assert (rig.ask(alices), rig.ask(bobs)) == ("User:alice", "User:bob")
    assert len(rig.sessions) == 2


@pytest.mark.parametrize("how", ["deleted", "another password", "the same password again", "revoked"])
def test_a_session_ends_with_its_user_its_password_or_a_revocation(rig: SignInRig, how: str) -> None:
    rig.set_password("bob", ANOTHER)
    alices, bobs = rig.sign_in("alice", PASSWORD).session_token, rig.sign_in("bob", ANOTHER).session_token
    rig.ask(alices, stream=5)
    rig.ask(bobs, stream=6)
    match how:
        case "deleted":
            rig.delete("alice")
        case "another password":
            rig.set_password("alice", ANOTHER)
        case "the same password again":
            rig.set_password("alice", PASSWORD)
        case "revoked":
            rig.revoke(principal="User:alice")
    assert [(each.stream, each.error.code) for each in rig.ended()] == [(5, ErrorCode.SASL_SESSION_EXPIRED)]
    assert code(rig.ask(alices)) == ErrorCode.SASL_SESSION_EXPIRED
    assert code(rig.ask(alices, stream=5)) == ErrorCode.SASL_SESSION_EXPIRED, "what was on its way on the stream"
    assert (rig.ask(bobs), rig.ask(bobs, stream=6)) == ("User:bob", "User:bob")


def test_a_revoked_certificate_ends_its_streams_and_no_others(rig: SignInRig) -> None:
    for stream, serial in ((5, "1f"), (6, "2e")):
        assert rig.ask_by_certificate(serial, "alice", stream) == "User:alice"
    rig.revoke(serial="1f")
    assert [(each.stream, each.error.code) for each in rig.ended()] == [(5, ErrorCode.SASL_AUTHENTICATION_FAILED)]
    assert code(rig.ask_by_certificate("1f", "alice")) == ErrorCode.SASL_AUTHENTICATION_FAILED
    assert code(rig.ask_by_certificate("1f", "alice", stream=5)) == ErrorCode.SASL_AUTHENTICATION_FAILED
    assert rig.ask_by_certificate("2e", "alice", stream=6) == "User:alice"
    rig.revoke(principal="User:alice")
    assert [each.stream for each in rig.ended()] == [5, 6]
    assert rig.ask_by_certificate("2e", "bob") == "User:bob"


def test_streams_that_were_closed_are_forgotten(rig: SignInRig) -> None:
    token = rig.sign_in("alice", PASSWORD).session_token
    rig.ask(token, stream=5)
    rig.ask_by_certificate("1f", "alice", stream=6)
    for stream in (5, 6, 7):
        rig.admission.stream_closed(stream)
    rig.delete("alice")
    rig.revoke(serial="1f")
    assert rig.ended() == []


def test_a_user_has_so_many_sessions_and_idle_ones_make_way(rig: SignInRig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sessions, "MAX_SESSIONS_OF_USER", 3)
    monkeypatch.setattr(sessions, "MAX_SESSIONS", 5)
    tokens = [rig.sign_in("alice", PASSWORD).session_token for _ in range(3)]
    rig.ask(tokens[0], stream=5)
    tokens.append(rig.sign_in("alice", PASSWORD).session_token)
    assert code(rig.ask(tokens[1])) == ErrorCode.SASL_SESSION_EXPIRED, "the oldest without a stream"
    assert rig.ask(tokens[0]) == "User:alice"
    for stream, token in ((6, tokens[2]), (7, tokens[3])):
        rig.ask(token, stream=stream)
    assert code(rig.sign_in("alice", PASSWORD).error) == ErrorCode.SERVER_BUSY
    rig.set_password("bob", ANOTHER)
    for _ in range(2):
        assert rig.sign_in("bob", ANOTHER).session_token
    assert code(rig.sign_in("bob", ANOTHER).error) == ErrorCode.SERVER_BUSY, "the node is full"


def test_who_signs_in_again_and_again_takes_no_more_room(rig: SignInRig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sessions, "_STALE_ENDS", 10)
    monkeypatch.setattr(sessions, "MAX_SESSIONS_OF_USER", 3)
    monkeypatch.setattr(scram_sign_in, "MAX_SIGN_INS", 100)
    token = ""
    for _ in range(100):
        token = rig.sign_in("alice", PASSWORD, token=token).session_token
        assert rig.sessions.ends_kept <= 2 * 3 + 10
    assert code(rig.sign_in("alice", PASSWORD).error) == ErrorCode.SERVER_BUSY
    rig.wait(scram_sign_in.UNDER_WAY_US)
    assert rig.ask(token) == "User:alice"
    rig.wait(LIFETIME_US)
    assert len(rig.sessions) == 0


def test_a_node_keeps_no_token_and_shows_none(rig: SignInRig) -> None:
    token = rig.sign_in("alice", PASSWORD).session_token
    rig.ask(token, stream=5)
    kept = [*map(repr, rig.sessions), repr(vars(rig.sessions)), repr(vars(rig.admission))]
    assert not any(token in each for each in kept)
    assert token not in repr(RequestContext(listener=Listener.PASSWORD, token=token))

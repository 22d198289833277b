"""Authentication by password: accepted users, information given to strangers, and waiting times after wrong guesses."""

from __future__ import annotations

import hmac

import pytest
from sign_in_rig import SignInRig

from quorumlog.server.access.scram_sign_in import UNDER_WAY_US, wrong
from quorumlog.server.step.events import ClientRequest
from quorumlog.v1.errors_pb2 import ErrorCode
from quorumlog.v1.sign_in_pb2 import BeginScramRequest
from quorumlog.wire.scram import DEFAULT_ITERATIONS, ClientFinal, ScramMechanism, ServerFirst

RIGHT, OTHER = b"right and long", b"other and long"
SHA_256, SHA_512 = ScramMechanism
WRONG = wrong(SHA_256)


@pytest.fixture
def rig() -> SignInRig:
    made = SignInRig()
    made.set_password("alice", RIGHT)
    made.set_password("bob", OTHER)
    return made


def test_the_right_password_is_a_session(rig: SignInRig) -> None:
    answer = rig.sign_in("alice", RIGHT)
    assert not answer.HasField("error"), answer.error
    assert len(answer.session_token) == 43, "256 bits"
    assert answer.lifetime_ms == 15 * 60 * 1_000
    assert len(answer.server_signature) == 32
    assert rig.ask(answer.session_token) == "User:alice"


@pytest.mark.parametrize(("user", "password"), [("alice", OTHER), ("bob", RIGHT), ("nobody", RIGHT), ("alice", b"x")])
def test_everything_else_is_wrong_in_the_same_words(rig: SignInRig, user: str, password: bytes) -> None:
    refused = rig.sign_in(user, password).error
    assert (refused.code, refused.message) == (ErrorCode.SASL_AUTHENTICATION_FAILED, WRONG)
    assert (refused.definite, refused.retriable) == (True, False)
    assert len(rig.sessions) == 0


def test_a_user_who_is_not_there_has_a_salt_that_stays_and_is_the_same_on_all_nodes(rig: SignInRig) -> None:
    def asked(at: SignInRig, user: str) -> tuple[bytes, int]:
        first, begun = at.begin(user)
        answer = ServerFirst.of(begun.server_first, first.nonce)
        return answer.salt, answer.iterations

    elsewhere = SignInRig(seed=99, image=rig.image)
    salts = {asked(node, "nobody") for node in (rig, elsewhere, rig)}
    assert len(salts) == 1
    assert next(iter(salts))[1] == DEFAULT_ITERATIONS
    assert asked(rig, "no-one") not in salts
    assert len(asked(rig, "nobody")[0]) == len(asked(rig, "alice")[0])


def test_a_sign_in_counts_once_and_at_one_node_and_not_for_long(rig: SignInRig) -> None:
    elsewhere = SignInRig(seed=99, image=rig.image)
    first, begun = rig.begin("alice")
    assert elsewhere.finish(first, begun, RIGHT).error.code == ErrorCode.SASL_SESSION_EXPIRED
    assert not rig.finish(first, begun, RIGHT).HasField("error")
    again = rig.finish(first, begun, RIGHT).error
    assert (again.code, again.retriable) == (ErrorCode.SASL_SESSION_EXPIRED, True)
    first, begun = rig.begin("alice")
    rig.wait(UNDER_WAY_US)
    assert rig.finish(first, begun, RIGHT).error.code == ErrorCode.SASL_SESSION_EXPIRED
    assert rig.sign_ins.next_deadline is None, "nothing is remembered permanently"


def test_who_began_as_somebody_else_proves_nothing(rig: SignInRig) -> None:
    _, begun = rig.begin("bob")
    first, _ = rig.begin("alice")
    answer = ServerFirst.of(begun.server_first, begun.server_first[2:20])
    final = ClientFinal(answer.nonce, bytes(32))
    assert rig.send_final(first.text, final.text).error.code == ErrorCode.SASL_SESSION_EXPIRED


@pytest.mark.parametrize("junk", ["", "x", "n,,n=alice", "y,,n=alice,r=0123456789abcdef", "\x00" * 100])
def test_messages_that_are_none_are_refused_and_not_repeated(rig: SignInRig, junk: str) -> None:
    refused = rig.send_final(junk, junk).error
    assert refused.code == ErrorCode.INVALID_REQUEST
    assert refused.message.isprintable()
    first, _ = rig.begin("alice")
    assert rig.send_final(first.text, junk).error.code == ErrorCode.INVALID_REQUEST


def test_a_password_that_was_not_set_for_a_super_user_is_none_of_his(rig: SignInRig) -> None:
    rig.set_password("root", RIGHT)
    refused = rig.sign_in("root", RIGHT).error
    assert refused.code == ErrorCode.SASL_AUTHENTICATION_FAILED
    assert "not set for one" in refused.message
    assert rig.sign_in("root", OTHER).error.message == WRONG, "said to those only who have the password"
    rig.set_password("root", RIGHT, for_super_user=True)
    assert not rig.sign_in("root", RIGHT).HasField("error")


def test_a_revoked_user_is_not_let_in(rig: SignInRig) -> None:
    rig.revoke(principal="User:alice")
    assert "was revoked" in rig.sign_in("alice", RIGHT).error.message
    assert rig.sign_in("alice", OTHER).error.message == WRONG
    assert not rig.sign_in("bob", OTHER).HasField("error")


def test_a_thousand_guesses_are_few_and_harm_nobody_else(rig: SignInRig) -> None:
    tried = 0
    for _ in range(1_000):
        tried += rig.sign_in("alice", b"guess", host="10.6.6.6").error.code == ErrorCode.SASL_AUTHENTICATION_FAILED
        rig.wait(50_000)
    assert tried <= 12, "in fifty seconds"
    rig.wait(1_000_000)
    assert not rig.sign_in("alice", RIGHT, host="10.0.0.8").HasField("error"), "alice elsewhere"
    assert not rig.sign_in("bob", OTHER, host="10.0.0.8").HasField("error"), "others elsewhere"
    assert not rig.sign_in("bob", OTHER, host="10.6.6.6").HasField("error"), "others at the same address"
    assert rig.sign_in("alice", RIGHT, host="10.6.6.6").error.code == ErrorCode.SERVER_BUSY
    rig.wait(30_000_000)
    assert not rig.sign_in("alice", RIGHT, host="10.6.6.6").HasField("error")


def test_guesses_from_many_addresses_are_slowed_down(rig: SignInRig) -> None:
    tried = 0
    for attempt in range(1_000):
        answer = rig.sign_in("alice", b"guess", host=f"10.6.{attempt // 250}.{attempt % 250}")
        tried += answer.error.code == ErrorCode.SASL_AUTHENTICATION_FAILED
        rig.wait(10_000)
    assert tried <= 25, "in ten seconds"
    assert not rig.sign_in("bob", OTHER, host="10.0.0.8").HasField("error")


def test_a_wrong_password_now_and_then_costs_nobody_a_wait(rig: SignInRig) -> None:
    for _ in range(3):
        assert rig.sign_in("alice", b"typo").error.code == ErrorCode.SASL_AUTHENTICATION_FAILED
        assert not rig.sign_in("alice", RIGHT).HasField("error")


def test_what_is_remembered_of_failures_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    from quorumlog.server.access import failed_sign_ins

    monkeypatch.setattr(failed_sign_ins, "MOST_REMEMBERED", 50)
    failures = failed_sign_ins.FailedSignIns()
    for attempt in range(1_000):
        failures.failed(attempt, f"user-{attempt}", f"host-{attempt}")
    assert len(failures) == 150
    for _ in range(100):
        failures.failed(1_000, "user-999", "host-999")
    assert failures.wait_us(1_000, "user-999", "host-999") == 30_000_000
    assert failures.wait_us(1_000 + failed_sign_ins.FORGOTTEN_AFTER_US, "user-999", "host-999") == 0


def test_failures_stand_in_the_audit_log_without_a_password(rig: SignInRig) -> None:
    for _ in range(3):
        rig.sign_in("alice", b"guess", host="10.6.6.6")
    rig.wait(1_100_000)
    lines = rig.audit.take_lines()
    assert [(line.event, line.fields["times"]) for line in lines] == [("sign_in_failed", 1), ("sign_in_failed", 2)]
    assert lines[0].fields["user"] == "alice"
    assert lines[0].fields["host"] == "10.6.6.6"
    assert "guess" not in str(lines)


def test_a_user_who_is_not_there_costs_a_node_as_much_work_as_one_who_is(
    rig: SignInRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An unknown user costs a node as much work as a known one. The test counts hashed blocks, because times vary."""
    digested: list[int] = []
    digest = hmac.digest

    def counted(key: bytes, message: bytes, name: str) -> bytes:
        block = 64 if name == "sha256" else 128
        digested.append((len(message) + block // 8 + 1 + block - 1) // block)
        return digest(key, message, name)

    def work_of(user: str) -> tuple[list[int], list[int]]:
        digested.clear()
        first, begun = rig.begin(user)
        beginning = digested.copy()
        digested.clear()
        answer = ServerFirst.of(begun.server_first, first.nonce)
        refused = rig.send_final(first.text, ClientFinal(answer.nonce, bytes(32)).text).error
        assert refused.message == WRONG
        return beginning, digested.copy()

    monkeypatch.setattr(hmac, "digest", counted)
    known, unknown = work_of("alice"), work_of("alicf")
    assert all(known), "something is counted"
    assert known == unknown


@pytest.mark.parametrize("wait_us", [1, UNDER_WAY_US // 2, UNDER_WAY_US - 2, UNDER_WAY_US, 2 * UNDER_WAY_US])
def test_a_proof_is_never_accepted_twice(rig: SignInRig, wait_us: int) -> None:
    """A recorded proof is refused whenever it is shown again, even when the node has nearly forgotten it."""
    first, begun = rig.begin("alice")
    rig.wait(1)
    assert not rig.finish(first, begun, RIGHT).HasField("error")
    rig.wait(wait_us)
    assert rig.finish(first, begun, RIGHT).error.code == ErrorCode.SASL_SESSION_EXPIRED


def test_a_slow_proof_is_accepted_until_its_last_moment(rig: SignInRig) -> None:
    first, begun = rig.begin("alice")
    rig.wait(UNDER_WAY_US - 1)
    assert not rig.finish(first, begun, RIGHT).HasField("error")


# -- SCRAM-SHA-512 ----------------------------------------------------------------------------------------------------


def test_each_mechanism_has_its_password(rig: SignInRig) -> None:
    """A password counts only for the mechanism that it was set for."""
    rig.set_password("alice", OTHER, mechanism=SHA_512)
    answer = rig.sign_in("alice", OTHER, mechanism=SHA_512)
    assert not answer.HasField("error"), answer.error
    assert len(answer.server_signature) == 64
    assert rig.ask(answer.session_token) == "User:alice"
    assert not rig.sign_in("alice", RIGHT).HasField("error")
    assert rig.sign_in("alice", RIGHT, mechanism=SHA_512).error.message == wrong(SHA_512)
    assert rig.sign_in("alice", OTHER, mechanism=SHA_256).error.message == wrong(SHA_256)


@pytest.mark.parametrize(("mechanism", "size"), [(SHA_256, 32), (SHA_512, 64)])
@pytest.mark.parametrize("user", ["nobody", "other"])
def test_missing_passwords_are_not_revealed(rig: SignInRig, user: str, mechanism: ScramMechanism, size: int) -> None:
    """An unknown user, and one with a password for the other mechanism, get a lasting salt and the same refusal."""
    rig.set_password("other", RIGHT, mechanism=SHA_256 if mechanism is SHA_512 else SHA_512)
    answers = []
    for node in (rig, SignInRig(seed=99, image=rig.image), rig):
        first, begun = node.begin(user, mechanism=mechanism)
        answer = ServerFirst.of(begun.server_first, first.nonce)
        answers.append((answer.salt, answer.iterations))
        refused = node.send_final(first.text, ClientFinal(answer.nonce, bytes(size)).text, mechanism=mechanism).error
        assert (refused.code, refused.message) == (ErrorCode.SASL_AUTHENTICATION_FAILED, wrong(mechanism))
    assert len(set(answers)) == 1 and len(answers[0][0]) == 16 and answers[0][1] == DEFAULT_ITERATIONS


def test_mechanisms_of_a_user_have_salts_of_their_own(rig: SignInRig) -> None:
    """The derived salts of two mechanisms are unrelated."""

    def salt(mechanism: ScramMechanism) -> bytes:
        first, begun = rig.begin("nobody", mechanism=mechanism)
        return ServerFirst.of(begun.server_first, first.nonce).salt

    assert salt(SHA_256) != salt(SHA_512)


def test_exchange_keeps_its_mechanism(rig: SignInRig) -> None:
    """An exchange of one mechanism is not finished with the other."""
    rig.set_password("bob", OTHER, mechanism=SHA_512)
    first, begun = rig.begin("bob", mechanism=SHA_512)
    assert rig.finish(first, begun, OTHER, mechanism=SHA_256).error.code == ErrorCode.SASL_SESSION_EXPIRED


@pytest.mark.parametrize("number", [3, 9])
def test_unknown_mechanisms_are_refused(rig: SignInRig, number: int) -> None:
    """No mechanism is used in the place of one that does not exist."""
    request = BeginScramRequest(client_first="n,,n=alice,r=0123456789abcdef", mechanism=number)  # type: ignore[arg-type]
    rig.sign_ins.begin(rig.time, ClientRequest(1, request), request)
    (reply,) = rig.replies.take_gathered()
    assert reply.message.error.code == ErrorCode.INVALID_REQUEST  # type: ignore[attr-defined]
    assert f"no SCRAM mechanism {number}: use SCRAM-SHA-256 or" in reply.message.error.message  # type: ignore[attr-defined]


def test_sessions_end_with_their_own_password(rig: SignInRig) -> None:
    """Another password for one mechanism ends the sessions of that one."""
    rig.set_password("bob", OTHER, mechanism=SHA_512)
    by_256, by_512 = (rig.sign_in("bob", OTHER, mechanism=each).session_token for each in (SHA_256, SHA_512))
    rig.set_password("bob", RIGHT, mechanism=SHA_512)
    assert rig.ask(by_256) == "User:bob" and rig.ask(by_512) != "User:bob"
    rig.delete("bob", SHA_256)
    assert rig.ask(by_256) != "User:bob"
    assert not rig.sign_in("bob", RIGHT, mechanism=SHA_512).HasField("error")


def test_replaced_password_leaves_no_other(rig: SignInRig) -> None:
    """A client without mechanisms replaces the password; none of its former ones stays valid."""
    rig.set_password("bob", OTHER, mechanism=SHA_512)
    rig.set_password("bob", RIGHT)
    assert rig.sign_in("bob", OTHER, mechanism=SHA_512).HasField("error")
    assert not rig.sign_in("bob", RIGHT).HasField("error")


@pytest.mark.parametrize("mechanism", [SHA_256, SHA_512])
def test_new_sessions_are_audited(rig: SignInRig, mechanism: ScramMechanism) -> None:
    """A new session is a line with user and mechanism; its renewal is none."""
    rig.set_password("bob", OTHER, mechanism=mechanism)
    token = rig.sign_in("bob", OTHER, mechanism=mechanism).session_token
    (line,) = rig.audit.take_lines()
    assert (line.event, line.fields["principal"], line.fields["host"]) == ("signed_in", "User:bob", "10.0.0.7")
    assert line.fields["mechanism"] == mechanism.sasl_name
    rig.wait(2_000_000)
    assert rig.sign_in("bob", OTHER, token=token, mechanism=mechanism).session_token
    assert rig.audit.take_lines() == []

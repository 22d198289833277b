"""SCRAM: the example of RFC 7677, one for SHA-512, and messages that are none."""

from __future__ import annotations

import base64

import pytest

from quorumlog.wire.scram import (
    ClientFinal,
    ClientFirst,
    SaltedKeys,
    ScramMechanism,
    ScramMessageError,
    ServerFirst,
    auth_message,
    client_proof,
    proves,
    salted_keys,
    server_signature,
)

SHA_256, SHA_512 = ScramMechanism

# RFC 7677, section 3.
FIRST = "n,,n=user,r=rOprNGfwEbeRWgbNEkqO"
ANSWER = "r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
FINAL = "c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
VERIFIER = "6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="
NONCE = "rOprNGfwEbeRWgbNEkqO"


def example() -> tuple[SaltedKeys, bytes, ClientFinal]:
    first, answer, final = ClientFirst.of(FIRST), ServerFirst.of(ANSWER, NONCE), ClientFinal.of(FINAL)
    return salted_keys(SHA_256, b"pencil", answer.salt, answer.iterations), auth_message(first, answer, final), final


def test_it_is_the_example_of_the_rfc() -> None:
    keys, said, final = example()
    assert client_proof(keys, said) == final.proof
    assert proves(SHA_256, final.proof, keys.stored_key, said)
    assert base64.b64encode(server_signature(SHA_256, keys.server_key, said)).decode() == VERIFIER


# The example that several libraries use for SHA-512: no standard has one.
ANSWER_512 = (
    "r=rOprNGfwEbeRWgbNEkqO02431b08-2f89-4bad-a4e6-80c0564ec865,s=Yin2FuHTt/M0kJWb0t9OI32n2VmOGi3m+JfjOvuDF88=,i=4096"
)
PROOF_512 = "Hc5yec3NmCD7t+kFRw4/3yD6/F3SQHc7AVYschRja+Bc3sbdjlA0eH1OjJc0DD4ghn1tnXN5/Wr6qm9xmaHt4A=="
VERIFIER_512 = "BQuhnKHqYDwQWS5jAw4sZed+C9KFUALsbrq81bB0mh+bcUUbbMPNNmBIupnS2AmyyDnG5CTBQtkjJ9kyY4kzmw=="


def test_sha_512_is_the_usual_example() -> None:
    first, answer = ClientFirst.of(FIRST), ServerFirst.of(ANSWER_512, NONCE)
    final = ClientFinal(answer.nonce, base64.b64decode(PROOF_512))
    said = auth_message(first, answer, final)
    keys = salted_keys(SHA_512, b"pencil", answer.salt, answer.iterations)
    assert client_proof(keys, said) == final.proof
    assert proves(SHA_512, final.proof, keys.stored_key, said)
    assert base64.b64encode(server_signature(SHA_512, keys.server_key, said)).decode() == VERIFIER_512
    for wrong in (b"", final.proof[:32], final.proof[:-1], final.proof + b"\0", bytes(64)):
        assert not proves(SHA_512, wrong, keys.stored_key, said)


def test_messages_are_written_as_they_are_read() -> None:
    assert ClientFirst.of(FIRST).text == FIRST
    assert ServerFirst.of(ANSWER, NONCE).text == ANSWER
    assert ClientFinal.of(FINAL).text == FINAL
    odd = ClientFirst("a=b,c", "n" * 18)
    assert odd.text == f"n,,n=a=3Db=2Cc,r={'n' * 18}"
    assert ClientFirst.of(odd.text) == odd


def test_another_password_or_another_proof_does_not_fit() -> None:
    keys, said, final = example()
    other = salted_keys(SHA_256, b"pencil2", b"s" * 16, 4_096)
    assert not proves(SHA_256, final.proof, other.stored_key, said)
    assert not proves(SHA_256, final.proof, keys.stored_key, said + b"x")
    for wrong in (b"", final.proof[:-1], final.proof + b"\0", bytes(32)):
        assert not proves(SHA_256, wrong, keys.stored_key, said)


@pytest.mark.parametrize(
    "text",
    [
        "", "n,,", "n,,n=user", "y,,n=user,r=rOprNGfwEbeRWgbNEkqO", "p=tls-unique,,n=user,r=rOprNGfwEbeRWgbNEkqO",
        "n,a=admin,n=user,r=rOprNGfwEbeRWgbNEkqO", "n,,n=,r=rOprNGfwEbeRWgbNEkqO", "n,,n=user,r=short",
        "n,,n=us=er,r=rOprNGfwEbeRWgbNEkqO", "n,,n=user,r=rOprNGfwEbe RWgbNEkqO",
        f"n,,n={'u' * 3_000},r=rOprNGfwEbeRWgbN",
        "n,,m=x,n=user,r=rOprNGfwEbeRWgbNEkqO", "n,,n=user,r=rOprNGfwEbeRWgbNEkqO,x=1",
    ],
)  # fmt: skip
def test_a_first_message_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(ScramMessageError):
        ClientFirst.of(text)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "r=other-nonce-than-was-sent,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096",
        f"r={NONCE},s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096",
        f"r={NONCE}x,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=1",
        f"r={NONCE}x,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=99999999",
        f"r={NONCE}x,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=-5000",
        f"r={NONCE}x,s=W22Z,i=4096",
        f"r={NONCE}x,s=!,i=4096",
    ],
)
def test_an_answer_with_which_no_client_should_go_on_is_refused(text: str) -> None:
    with pytest.raises(ScramMessageError):
        ServerFirst.of(text, NONCE)


@pytest.mark.parametrize("text", ["", FINAL[:-1], FINAL.replace("biws", "eSws"), FINAL.replace("p=", "q=")])
def test_a_last_message_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(ScramMessageError):
        ClientFinal.of(text)


def test_nothing_secret_is_shown() -> None:
    keys, _, final = example()
    assert repr(keys) == "SaltedKeys(***)"
    assert repr(final) == "ClientFinal(***)"

"""Waiting times after failed authentication, and the effect of a success in between."""

from __future__ import annotations

import pytest
from sign_in_rig import SignInRig

from quorumlog.server.access import failed_sign_ins
from quorumlog.server.access.failed_sign_ins import FORGOTTEN_AFTER_US, FailedSignIns
from quorumlog.v1.errors_pb2 import ErrorCode

SECOND_US = 1_000_000
NOW = 50 * SECOND_US


def failed(*attempts: tuple[str, str]) -> FailedSignIns:
    failures = FailedSignIns()
    for user, host in attempts:
        failures.failed(NOW, user, host)
    return failures


def test_an_own_success_frees_no_address() -> None:
    """An address that guesses passwords of many users waits, even if it authenticates as its own user in between."""
    failures, now, guesses = FailedSignIns(), NOW, 0
    while now < NOW + 60 * SECOND_US and guesses < 1_000:
        failures.succeeded("mallory", "evil")
        wait_us = failures.wait_us(now, f"user-{guesses}", "evil")
        now += wait_us
        failures.failed(now, f"user-{guesses}", "evil")
        guesses += 1
    assert 60 <= guesses <= 90, "twenty at once, then one in a second"


def test_an_own_success_frees_no_user() -> None:
    """A user whose password is guessed from many addresses waits, even after a success from another address."""
    failures = FailedSignIns()
    for number in range(40):
        failures.failed(NOW, "alice", f"10.0.0.{number}")
        failures.succeeded("alice", "home")
    assert failures.wait_us(NOW, "alice", "home") == SECOND_US
    assert failures.wait_us(NOW, "alice", "elsewhere") == SECOND_US
    assert failures.wait_us(NOW, "bob", "home") == 0


def test_a_success_clears_its_own_pair_only() -> None:
    failures = failed(*[("alice", "home")] * 5, *[("bob", "home")] * 5, *[("alice", "away")] * 5)
    waits = {pair: failures.wait_us(NOW, *pair) for pair in (("alice", "home"), ("bob", "home"), ("alice", "away"))}
    assert set(waits.values()) == {SECOND_US}
    failures.succeeded("alice", "home")
    assert failures.wait_us(NOW, "alice", "home") == 0
    assert failures.wait_us(NOW, "bob", "home") == failures.wait_us(NOW, "alice", "away") == SECOND_US


@pytest.mark.parametrize(("count", "wait_s"), [(3, 0), (4, 0.5), (5, 1), (6, 2), (9, 16), (10, 30), (200, 30)])
def test_waits_of_a_pair_double(count: int, wait_s: float) -> None:
    failures = FailedSignIns()
    for _ in range(count):
        failures._pairs.failed(NOW, "h u")
    assert failures._pairs.wait_us(NOW, "h u") == wait_s * SECOND_US
    assert failures._pairs.wait_us(NOW + int(wait_s * SECOND_US), "h u") == 0


@pytest.mark.parametrize(("free", "keys"), [(10, ("alice", "h{}")), (20, ("u{}", "home"))], ids=["user", "address"])
def test_users_and_addresses_wait_briefly(free: int, keys: tuple[str, str]) -> None:
    failures = FailedSignIns()
    requests = tuple(key.format("x") for key in keys)
    waits: list[int] = []
    for number in range(free + 6):
        failures.failed(NOW, *(key.format(number) for key in keys))
        waits.append(failures.wait_us(NOW, *requests))
    assert waits == [0] * free + [100_000, 200_000, 400_000, 800_000, SECOND_US, SECOND_US]


def test_failures_are_forgotten_after_their_last() -> None:
    """Failures are forgotten some time after the last of them, not after the first."""
    failures, now = FailedSignIns(), NOW
    for _ in range(5):
        failures.failed(now, "alice", "home")
        now += FORGOTTEN_AFTER_US - 1
    failures.failed(now, "alice", "home")
    assert failures.wait_us(now, "alice", "home") == 2 * SECOND_US
    now += FORGOTTEN_AFTER_US
    failures.failed(now, "alice", "home")
    assert failures.wait_us(now, "alice", "home") == 0


def test_the_oldest_failure_makes_room(monkeypatch: pytest.MonkeyPatch) -> None:
    """The entry whose last failure is the oldest makes room: a user who continues to fail stays remembered."""
    monkeypatch.setattr(failed_sign_ins, "MOST_REMEMBERED", 3)
    failures = failed(*[("alice", "home")] * 4, ("b", "2"), ("c", "3"), ("alice", "home"), ("d", "4"))
    assert failures.wait_us(NOW, "alice", "home") == SECOND_US
    assert len(failures) == 9


def test_a_node_keeps_guessers_waiting() -> None:
    rig = SignInRig()
    rig.set_password("mallory", b"right and long")
    assert rig.sign_in("mallory", b"right and long").session_token
    for number in range(21):
        first, begun = rig.begin(f"user-{number}")
        rig.finish(first, begun, b"guessed wrongly")
        rig.wait(1)
        if number < 20:
            assert rig.sign_in("mallory", b"right and long").session_token
    assert rig.sign_in("another", b"guessed wrongly").error.code == ErrorCode.SERVER_BUSY
    rig.wait(100_000)
    assert rig.sign_in("another", b"guessed wrongly").error.code == ErrorCode.SASL_AUTHENTICATION_FAILED

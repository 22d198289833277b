"""Return of leaderships to nodes able to lead for a while: a few at a time, and less often if it does not last."""

from __future__ import annotations

import itertools

import pytest

from quorumlog.server.config.options import BalanceOptions
from quorumlog.server.replicas.leader_balance import LOOK_AGAIN_US, Displaced, LeaderBalance

SECOND = 1_000_000
OPTIONS = BalanceOptions(check_interval_us=30 * SECOND, grace_us=5 * SECOND, max_transfers=2)


def displaced(
    group: int, *, connected_at: int = 0, able: bool = True, caught_up: bool = True, transferring: bool = False
) -> Displaced:
    return Displaced(group, 1, connected_at, able, caught_up, transferring)


def chosen(balance: LeaderBalance, now: int, *them: Displaced) -> list[int]:
    return [each.group for each in balance.choose(now, them)]


def test_who_has_been_able_to_lead_for_a_while_gets_its_leadership_back() -> None:
    balance = LeaderBalance(OPTIONS, 0)
    assert balance.next_deadline == 30 * SECOND
    assert chosen(balance, 30 * SECOND, displaced(7)) == []
    assert balance.next_deadline == 35 * SECOND
    assert chosen(balance, 35 * SECOND, displaced(7)) == [7]


def test_the_grace_begins_anew_when_it_could_not_lead_in_between() -> None:
    balance = LeaderBalance(OPTIONS, 0)
    assert chosen(balance, 0, displaced(7)) == []
    assert chosen(balance, 4 * SECOND, displaced(7, able=False)) == []
    assert chosen(balance, 5 * SECOND, displaced(7)) == []
    assert chosen(balance, 10 * SECOND, displaced(7)) == [7]


def test_the_grace_begins_anew_with_a_new_connection() -> None:
    balance = LeaderBalance(OPTIONS, 0)
    assert chosen(balance, 0, displaced(7)) == []
    assert chosen(balance, 5 * SECOND, displaced(7, connected_at=SECOND)) == []
    assert chosen(balance, 6 * SECOND, displaced(7, connected_at=SECOND)) == [7]


def test_no_more_are_handed_over_at_once_than_allowed() -> None:
    balance = LeaderBalance(OPTIONS, 0)
    balance.choose(0, [displaced(group) for group in range(4)])
    at = 5 * SECOND
    assert chosen(balance, at, *(displaced(group) for group in range(4))) == [0, 1]
    assert balance.next_deadline == at + LOOK_AGAIN_US
    under_way = [displaced(0, transferring=True), displaced(1, transferring=True)]
    assert chosen(balance, at + LOOK_AGAIN_US, *under_way, displaced(2), displaced(3)) == []
    assert chosen(balance, at + 2 * LOOK_AGAIN_US, displaced(2), displaced(3)) == [2, 3]


def test_who_is_behind_for_a_moment_is_looked_at_again_soon() -> None:
    balance = LeaderBalance(OPTIONS, 0)
    balance.choose(0, [displaced(7)])
    assert chosen(balance, 5 * SECOND, displaced(7, caught_up=False)) == []
    assert balance.next_deadline == 5 * SECOND + LOOK_AGAIN_US
    assert chosen(balance, balance.next_deadline, displaced(7)) == [7]


def test_a_leadership_that_keeps_coming_back_is_handed_over_less_and_less_often() -> None:
    balance = LeaderBalance(OPTIONS, 0)
    times = [
        now // SECOND
        for now in range(0, 7_200 * SECOND, SECOND)
        if now >= balance.next_deadline and chosen(balance, now, displaced(7))
    ]
    waits = [after - before for before, after in itertools.pairwise(times)]
    assert waits[:4] == pytest.approx([30, 60, 120, 240], abs=6)
    assert waits == sorted(waits)
    assert max(waits) <= 64 * 30 + 6


def test_after_a_quiet_time_it_begins_anew() -> None:
    balance = LeaderBalance(OPTIONS, 0)
    balance.choose(0, [displaced(7)])
    assert chosen(balance, 5 * SECOND, displaced(7)) == [7]
    assert chosen(balance, 100 * SECOND) == []
    balance.choose(200 * SECOND, [displaced(7)])
    assert chosen(balance, 205 * SECOND, displaced(7)) == [7]
    assert chosen(balance, 234 * SECOND, displaced(7)) == []
    assert chosen(balance, 235 * SECOND, displaced(7)) == [7]


def test_what_is_asked_for_is_done_at_once_even_where_balancing_is_off() -> None:
    balance = LeaderBalance(BalanceOptions(enabled=False, max_transfers=1), 0)
    balance.choose(0, [displaced(7), displaced(8)])
    assert chosen(balance, 60 * SECOND, displaced(7), displaced(8)) == []
    balance.ask(61 * SECOND, [8])
    assert balance.next_deadline == 61 * SECOND
    assert chosen(balance, 61 * SECOND, displaced(7), displaced(8)) == [8]
    assert not balance.is_asked(8)
    balance.ask(62 * SECOND, [8])
    assert chosen(balance, 62 * SECOND, displaced(7), displaced(8)) == [8]


def test_what_is_asked_for_goes_first_and_can_be_forgotten() -> None:
    balance = LeaderBalance(BalanceOptions(grace_us=0, max_transfers=1), 0)
    balance.ask(0, [8, 9])
    balance.forget(9)
    assert chosen(balance, 0, displaced(7), displaced(8), displaced(9)) == [8]
    assert chosen(balance, SECOND, displaced(7), displaced(9)) == [7]

"""Majorities, of one configuration or of the two halves of a joint one (Raft thesis §4.3).

A quorum is given by its ``halves``: one tuple of voters, or two while membership changes. A decision needs a
majority of every half.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from collections.abc import Set as AbstractSet
from enum import Enum

Halves = tuple[tuple[int, ...], ...]


class VoteOutcome(Enum):
    """State of a vote."""

    WON = "won"
    LOST = "lost"
    PENDING = "pending"


def reached_by_quorum(halves: Halves, value_of: Callable[[int], int]) -> int:
    """Returns the largest value that a quorum has reached.

    Arguments:
        halves: the voters, each half with at least one.
        value_of: returns the value (a match index, a time of contact) that a voter has reached.
    """
    if len(halves) == 1:
        voters = halves[0]
        return sorted(map(value_of, voters), reverse=True)[len(voters) // 2]
    return min(sorted(map(value_of, voters), reverse=True)[len(voters) // 2] for voters in halves)


def outcome(halves: Halves, votes: Mapping[int, bool], absent: AbstractSet[int] = frozenset()) -> VoteOutcome:
    """Returns the state of a vote: WON with a majority of yes in every half, LOST once some half cannot reach one.

    Arguments:
        halves: the voters.
        votes: responses so far; those of nodes that are not voters do not count.
        absent: voters of which no response is expected.
    """
    won = True
    for voters in halves:
        needed = len(voters) // 2 + 1
        yes = sum(1 for voter in voters if votes.get(voter) is True)
        no = sum(1 for voter in voters if votes.get(voter, voter not in absent) is False)
        if len(voters) - no < needed:
            return VoteOutcome.LOST
        won = won and yes >= needed
    return VoteOutcome.WON if won else VoteOutcome.PENDING

"""Damaged entries that a replica stops waiting for, because other replicas have a snapshot in their place."""

from __future__ import annotations

import pytest

from quorumlog.raft.types import Configuration
from quorumlog.server.hosting.entry_repair import are_metadata_given_up, is_given_up


@pytest.mark.parametrize(
    ("others", "gone", "voters", "given_up"),
    [
        ({2, 3}, {2, 3}, 3, True),
        ({2, 3}, {2}, 3, False),
        ({2}, {2}, 3, True),
        ({2}, set(), 3, False),
        ({2, 3, 4, 5}, {2, 3}, 5, False),
        ({2}, {2}, 2, False),
        (set(), set(), 1, False),
        (set(), {2}, 1, False),
    ],
)
def test_an_entry_that_all_others_have_given_up_is_waited_for_no_more(
    others: set[int], gone: set[int], voters: int, given_up: bool
) -> None:
    assert is_given_up(others, gone, voters) is given_up


def test_two_replicas_that_have_the_same_entry_damaged_do_not_wait_for_each_other() -> None:
    """Two of five replicas do not wait for each other for the same damaged entry if the other three have a snapshot."""
    assert is_given_up({2, 3, 4, 5}, {3, 4, 5}, 5)
    assert is_given_up({1, 3, 4, 5}, {3, 4, 5}, 5)


@pytest.mark.parametrize(
    ("configuration", "gone", "given_up"),
    [
        (Configuration((1, 2, 3)), {2, 3}, True),
        (Configuration((1, 2, 3)), {2}, False),
        (Configuration((1, 2)), {2}, False),
        # One voter does not answer: a majority has a snapshot in place of the entry all the same.
        (Configuration((1, 2, 3, 4, 5)), {2, 3, 4}, True),
        (Configuration((1, 2, 3, 4, 5)), {2, 3}, False),
        (Configuration((1, 2, 3), outgoing=(1, 3, 4, 5, 6)), {3, 4, 5}, False),
        (Configuration((2, 3), learners=(1,)), {2, 3}, True),
        (Configuration((2, 3), learners=(1,)), {3}, False),
        (Configuration((2, 3), learners=(1, 4)), {2, 3}, True),
        # Its vote is not needed, so a voter that does not answer does not delay it either.
        (Configuration((2, 3, 4), learners=(1,)), {2, 3}, True),
        (Configuration((2, 3, 4), learners=(1,)), {2}, False),
        (Configuration((2,), learners=(1,)), {2}, True),
        (Configuration((2, 3), outgoing=(1, 2)), {2, 3}, False),
        # It is leaving: five voters become two, and it is not one of them.
        (Configuration((2, 3), outgoing=(1, 2, 3, 4, 5)), {2, 3, 4, 5}, True),
        (Configuration((2, 3), outgoing=(1, 2, 3, 4, 5)), {2, 3, 4}, True),
        (Configuration((2, 3), outgoing=(1, 2, 3, 4, 5)), {2, 3}, False),
        (Configuration((1, 2), outgoing=(1, 2, 3, 4, 5)), {2, 3, 4, 5}, False),
        (Configuration((2,), outgoing=(1, 2, 3)), {2, 3}, True),
    ],
)
def test_who_waits_in_vain_for_metadata_begins_anew_unless_its_vote_is_needed(
    configuration: Configuration, gone: set[int], given_up: bool
) -> None:
    assert are_metadata_given_up(configuration, 1, gone) is given_up

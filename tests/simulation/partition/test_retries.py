"""Retries of batches that are appended and not committed: none is acknowledged before it is known to be safe."""

from __future__ import annotations

import pytest
from quiet_cluster import Quiet
from sequenced_client import SequencedClient, log_of, make_leader

SEEDS = range(1, 5)


def leader_with_an_uncommitted_batch(seed: int) -> tuple[Quiet, SequencedClient, int, int]:
    """A partition with ``a`` in it. Its leader was cut off, has not noticed yet, and has ``b`` for itself alone.

    Returns:
        The cluster, the client, the partition's group and the old leader.
    """
    quiet = Quiet(seed)
    quiet.until(lambda: bool(quiet.groups()) and quiet.led_by(quiet.groups()[0]) is not None, 5)
    (group,) = quiet.groups()
    client = SequencedClient(quiet)
    old = quiet.led_by(group)
    assert old is not None
    client.send(old, "a", 0)
    quiet.until(lambda: client.acknowledged("a") == [0], 2)
    quiet.cluster.network.sever(old)
    client.send(old, "b", 1)
    last = quiet.replicas_of(group)[old].last_id.index
    quiet.until(lambda: quiet.replicas_of(group)[old].last_id.index > last, 0.1)
    return quiet, client, group, old


@pytest.mark.scenario("22a")
def test_a_retry_of_an_old_batch_waits_until_the_newest_is_committed() -> None:
    """Its original is committed, but this leader may have been deposed: it may not have all of it."""
    quiet = Quiet(7)
    quiet.until(lambda: bool(quiet.groups()) and quiet.led_by(quiet.groups()[0]) is not None, 5)
    (group,) = quiet.groups()
    client = SequencedClient(quiet)
    for number in range(7):
        assert client.sent(f"v{number}", number).base_offset == number
    old = quiet.led_by(group)
    assert old is not None
    quiet.cluster.network.sever(old)
    client.send(old, "b", 7)
    client.send(old, "v0", 0)
    quiet.run(3)
    assert client.acknowledged("v0") == [0]
    quiet.cluster.network.heal()
    quiet.run(3)
    result = client.sent("v0", 0)
    assert (result.error.code, result.base_offset) == (0, -1)
    assert client.sent("b", 7).base_offset == 7
    assert log_of(quiet, group) == [*(f"v{number}" for number in range(7)), "b"]


@pytest.mark.scenario("22a")
@pytest.mark.parametrize("seed", SEEDS)
def test_a_retry_of_what_is_only_appended_is_not_answered_duplicate_and_fine(seed: int) -> None:
    quiet, client, group, old = leader_with_an_uncommitted_batch(seed)
    for _ in range(3):
        client.send(old, "b", 1)
        quiet.run(0.02)
    quiet.until(lambda: quiet.led_by(group) not in (None, old), 3)
    assert client.acknowledged("b") == []
    # The original is lost: a new client's record takes its place.
    other = SequencedClient(quiet)
    new = quiet.led_by(group)
    assert new is not None
    other.send(new, "x", 0)
    quiet.until(lambda: other.acknowledged("x") == [1], 2)
    quiet.cluster.network.heal()
    quiet.run(5)
    assert client.acknowledged("b") == []
    assert log_of(quiet, group) == ["a", "x"]


@pytest.mark.scenario("22b")
@pytest.mark.parametrize("seed", SEEDS)
def test_a_deposed_leader_that_leads_again_takes_the_batch_that_was_cut_off_for_new(seed: int) -> None:
    quiet, client, group, old = leader_with_an_uncommitted_batch(seed)
    quiet.until(lambda: quiet.led_by(group) not in (None, old), 3)
    quiet.cluster.network.heal()
    replicas = quiet.replicas_of(group)
    quiet.until(lambda: replicas[old].last_id == replicas[quiet.led_by(group) or old].last_id, 5)
    make_leader(quiet, group, old)
    assert log_of(quiet, group) == ["a"]
    client.send(old, "b", 1)
    quiet.until(lambda: bool(client.acknowledged("b")), 3)
    assert client.acknowledged("b") == [1]
    assert log_of(quiet, group) == ["a", "b"]

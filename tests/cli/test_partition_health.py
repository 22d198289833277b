"""Partitions that commands report as unhealthy, by copies, witness, in-sync replicas and the topic's minimum."""

from __future__ import annotations

import pytest

from quorumlog.cli.topic_text import is_unavailable, is_under_min_isr, is_under_replicated, shares_machine
from quorumlog.sdk import PartitionDescription, TopicDescription


@pytest.mark.parametrize(
    ("copies", "witness", "in_sync", "minimum", "too_few"),
    [
        (1, False, 1, None, False),
        (2, True, 2, None, False),
        (2, True, 1, None, False),
        (2, True, 1, 2, True),
        (2, True, 2, 2, False),
        (2, False, 1, None, True),
        (2, False, 2, None, False),
        (3, False, 3, None, False),
        (3, False, 2, None, False),
        (3, False, 1, None, True),
        (3, False, 1, 1, True),
        (3, False, 2, 3, True),
        (4, True, 4, None, False),
        (4, True, 2, None, False),
        (4, True, 1, None, True),
        (4, True, 2, 3, True),
        (4, True, 3, 3, False),
        (4, False, 2, None, True),
        (4, False, 3, None, False),
        (5, False, 3, None, False),
        (5, False, 2, None, True),
    ],
)
def test_health_counts_the_witness(
    copies: int, witness: bool, in_sync: int, minimum: int | None, too_few: bool
) -> None:
    """Beside a witness half of the copies can acknowledge; without one a majority; never fewer than the minimum."""
    replicas = tuple(range(1, copies + 1))
    configs = {} if minimum is None else {"min.insync.replicas": str(minimum)}
    for leader in (1, None):
        partition = PartitionDescription(0, leader, 5, replicas, replicas[:in_sync], 7, 1000, 9 if witness else None)
        topic = TopicDescription("orders", "id", (partition,), configs)
        assert is_under_min_isr(topic, partition) is too_few
        assert is_under_replicated(topic, partition) is (in_sync < copies)
        assert is_unavailable(topic, partition) is (leader is None)


@pytest.mark.parametrize(
    ("replicas", "witness", "shares"),
    [
        ((1, 2, 5), None, False),
        ((1, 3, 5), None, True),
        ((1, 2), 5, False),
        ((1, 2), 3, True),
        ((5, 6, 7), None, False),
    ],
)
def test_health_reports_shared_machines(replicas: tuple[int, ...], witness: int | None, shares: bool) -> None:
    """A witness counts too; nodes without a machine share none."""
    partition = PartitionDescription(0, 1, 5, replicas, replicas, 7, 1000, witness)
    topic = TopicDescription("orders", "id", (partition,), {})
    assert shares_machine({1: "a", 2: "b", 3: "a", 5: None, 6: None}, topic, partition) is shares

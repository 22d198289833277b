"""A leader whose disk stalls loses its leadership, and does not gather what it cannot write without end."""

from __future__ import annotations

import pytest
from quiet_cluster import SECOND, Writing

from quorumlog.server.config.options import NodeLimits


@pytest.mark.parametrize("seed", range(1, 4))
def test_a_leader_that_cannot_write_loses_its_leadership(seed: int) -> None:
    writing = Writing(seed)
    stalled = writing.leader()
    stalled.disk.stalled_until = writing.scheduler.now + 60 * SECOND
    writing.run(0.1)
    # Entries would be signs of life, too.
    writing.producer.stop()
    writing.run(6)
    led = {group for group, replica in stalled.replicas.items() if replica.raft.is_leader}
    assert not led
    assert writing.leader() is not stalled


@pytest.mark.parametrize("seed", range(1, 7))
def test_a_leader_that_is_written_to_and_cannot_write_hands_over(seed: int) -> None:
    writing = Writing(seed)
    stalled = writing.leader()
    stalled.disk.stalled_until = writing.scheduler.now + 60 * SECOND
    # The followers commit without it: to its clients nothing is wrong, but it is one copy less for every record.
    began = writing.scheduler.now
    writing.run(4)
    assert not {group for group, replica in stalled.replicas.items() if replica.raft.is_leader}
    assert writing.leader() is not stalled
    assert writing.longest_gap_ms(began) < 500


def test_what_gathers_for_a_disk_that_stands_still_is_bounded() -> None:
    limit = 20_000
    writing = Writing(1, limits=NodeLimits(gathered_bytes=limit))
    stalled = writing.leader()
    assert stalled.node is not None
    host = stalled.node._host
    stalled.disk.stalled_until = writing.scheduler.now + 60 * SECOND
    gathered = []
    for _ in range(1_500):
        writing.run(0.001)
        gathered.append(host.gathered_bytes)
    assert limit <= max(gathered) < 2 * limit

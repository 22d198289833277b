"""A leader whose disk stands still says nothing, so that it loses its leadership."""

from __future__ import annotations

import pytest
from quiet_cluster import SECOND, Writing


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

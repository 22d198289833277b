"""The power fails on all nodes at once, between any two steps: every acknowledged record is there afterwards."""

from __future__ import annotations

import pytest
from quiet_cluster import TOPIC, Writing

from quorumlog.chaos.checkers.history import OperationOutcome
from quorumlog.simulator.world.clients import PartitionName
from quorumlog.simulator.world.readers import SimConsumer


def read_all(writing: Writing) -> dict[int, str]:
    """Returns the records that a new client reads, from the partition's start to past the last acknowledged offset."""
    end = max(send.offset for send in writing.history.sends(OperationOutcome.OK)) + 1
    reader = SimConsumer(
        f"reader to {end}",
        PartitionName(TOPIC, 0),
        writing.cluster,
        writing.scheduler,
        writing.history,
        writing.cluster,
    )
    writing.until(lambda: reader.position >= end, 10)
    reader.stop()
    polls = [poll for poll in writing.history.polls() if poll.process == reader.name]
    return {offset: value for poll in polls for offset, value in poll.records}


@pytest.mark.scenario("21")
@pytest.mark.parametrize("seed", range(1, 7))
def test_after_a_power_loss_of_all_nodes_every_acknowledged_record_is_there(seed: int) -> None:
    writing = Writing(seed)
    moments = writing.scheduler.stream("power")
    for _ in range(3):
        writing.run(moments.random())
        for process in writing.cluster.processes.values():
            process.die(silent=True)
        writing.run(moments.random())
        for node in writing.cluster.node_ids:
            writing.cluster.start(node)
        before = len(writing.history)
        writing.until(lambda before=before: len(writing.history) > before + 20, 15)  # type: ignore[misc]
    # As of now: the writer continues while the reader reads.
    acknowledged = {send.offset: send.value for send in writing.history.sends(OperationOutcome.OK)}
    found = read_all(writing)
    assert len(acknowledged) > 100
    assert acknowledged.items() <= found.items()

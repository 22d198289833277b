"""Nodes that come back with empty disks under their old ids: they form no cluster over the data of the rest."""

from __future__ import annotations

import pytest
from quiet_cluster import SECOND, Writing

from quorumlog.chaos.checkers.history import OperationOutcome
from quorumlog.chaos.models.committed_partition import Violation


@pytest.mark.parametrize("wiped", [1, 2])
@pytest.mark.parametrize("seed", range(1, 4))
def test_wiped_controllers_do_not_form_a_new_cluster(seed: int, wiped: int) -> None:
    writing = Writing(seed)
    cluster = writing.cluster
    (cluster_id,) = {cluster.identity(node).cluster_id for node in cluster.node_ids}
    victims = writing.scheduler.stream("victims").sample(cluster.node_ids, wiped)
    for node in victims:
        cluster.processes[node].die(silent=False)
        cluster.processes[node].disk.wipe()
        cluster.start(node)
    refused: list[str] = []
    end = writing.scheduler.now + 10 * SECOND
    while writing.scheduler.now < end and len(refused) < wiped:
        try:
            writing.run(0.2)
        except Violation as halt:
            # A wiped founder is told by the others that the cluster was formed with its old directory, and ends.
            refused.append(str(halt))
    assert len(refused) == wiped
    assert all("was formed with another data directory" in why for why in refused)
    writing.run(2)
    for node, process in cluster.processes.items():
        if process.node is not None and node not in victims:
            assert cluster.identity(node).cluster_id == cluster_id
    acknowledged = [send.offset for send in writing.history.sends(OperationOutcome.OK)]
    assert acknowledged == list(range(len(acknowledged)))

"""Nodes that restart with empty disks under their old ids: they form no new cluster beside the data of the others."""

from __future__ import annotations

import pytest
from quiet_cluster import Writing

from quorumlog.chaos.checkers.history import OperationOutcome


@pytest.mark.scenario("19a")
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
    writing.run(10)
    for node in cluster.node_ids:
        running = cluster.processes[node].node
        assert running is not None
        if node in victims:
            assert cluster.identity(node).cluster_id == "", "it belongs to none before it is taken back"
            assert "empty data director" in running.not_ready()
        else:
            assert cluster.identity(node).cluster_id == cluster_id
    acknowledged = [send.offset for send in writing.history.sends(OperationOutcome.OK)]
    assert acknowledged == list(range(len(acknowledged)))

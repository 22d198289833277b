"""Real nodes whose metadata log is short: one that was away gets a snapshot, slice by slice, and catches up."""

from __future__ import annotations

import contextlib

import pytest

from quorumlog.local import LocalCluster
from quorumlog.sdk import Admin, NewTopic, RequestTimedOutError
from tests.support.command_line import until

pytestmark = pytest.mark.cluster
TOPICS = 12


def test_a_node_that_was_away_too_long_for_the_log_catches_up_by_a_snapshot() -> None:
    with LocalCluster(nodes=3, settings={"metadata_checkpoint_entries": 3, "log_format": "json"}) as cluster:
        controller = cluster.leader()
        away = next(node for node in cluster.node_ids if node != controller)
        cluster.kill(away)
        others = ",".join(cluster.address(node) for node in cluster.node_ids if node != away)
        with Admin(bootstrap_servers=others, request_timeout_ms=10_000) as admin:
            # They exist at once; the call waits without success for the node that is down to apply them.
            with contextlib.suppress(RequestTimedOutError):
                topics = [NewTopic(f"topic-{n}", num_partitions=2, replication_factor=1) for n in range(TOPICS)]
                admin.create_topics(topics)
            until(lambda: len(admin.list_topics()) == TOPICS)
        cluster.start(away)
        cluster.wait_ready()
        until(lambda: "snapshot_installed" in cluster.log_path(away).read_text())
        with Admin(bootstrap_servers=cluster.address(away)) as admin:
            until(lambda: len(admin.list_topics()) == TOPICS)
        # What it has now is on its disk: it returns with it.
        cluster.kill(away)
        cluster.start(away)
        cluster.wait_ready()
        with Admin(bootstrap_servers=cluster.address(away)) as admin:
            until(lambda: len(admin.list_topics()) == TOPICS)

"""Messages of an idle cluster: as many for many partitions as for one, and no campaigns."""

from __future__ import annotations

from collections import Counter

import pytest

from quorumlog.server.metadata.records import METADATA_GROUP
from quorumlog.server.step.events import PeerFrame
from quorumlog.simulator.models.committed_partition import Violation
from quorumlog.simulator.world.cluster import ClusterOptions, SimCluster
from quorumlog.simulator.world.convergence import Calm, missing_for_convergence
from quorumlog.simulator.world.scheduler import Scheduler
from quorumlog.v1 import admin_pb2

SECOND = 1_000_000
IDLE_SECONDS = 10


class Idle:
    """Three nodes with a topic that no client uses."""

    def __init__(self, partitions: int, monkeypatch: pytest.MonkeyPatch) -> None:
        self.scheduler = Scheduler(1)
        self.cluster = SimCluster(self.scheduler, ClusterOptions())
        self.frames = 0
        self.messages: Counter[bool] = Counter()
        send = self.cluster.network.send

        def counted(sender: int, receiver: int, frame: PeerFrame) -> None:
            self.frames += 1
            self.messages.update(group == METADATA_GROUP for group, _ in frame.messages)
            send(sender, receiver, frame)

        monkeypatch.setattr(self.cluster.network, "send", counted)
        for node in self.cluster.node_ids:
            self.cluster.start(node)
        request = admin_pb2.CreateTopicsRequest(timeout_ms=5_000)
        request.topics.add(name="unused", num_partitions=partitions, replication_factor=3)
        while missing := missing_for_convergence(self.cluster, ["unused"], []):
            assert self.scheduler.now < 60 * SECOND, missing
            self.cluster.request("admin", 1, request, lambda answer: None)
            self.run(1)
        self.run(3)

    def run(self, seconds: int) -> None:
        self.scheduler.run(self.scheduler.now + seconds * SECOND)


def test_idle_partitions_say_nothing_and_nobody_campaigns(monkeypatch: pytest.MonkeyPatch) -> None:
    frames = {}
    for partitions in (1, 60):
        idle = Idle(partitions, monkeypatch)
        calm = Calm(idle.cluster)
        idle.frames = 0
        idle.messages.clear()
        idle.run(IDLE_SECONDS)
        calm.check()
        assert idle.messages[False] == 0, f"{partitions} idle partitions sent {idle.messages[False]} messages"
        frames[partitions] = idle.frames
    print(f"frames in {IDLE_SECONDS} idle seconds: {frames}")
    assert frames[60] <= 1.1 * frames[1]


def test_a_topic_that_is_deleted_while_all_rest_is_no_election(monkeypatch: pytest.MonkeyPatch) -> None:
    idle = Idle(1, monkeypatch)
    calm = Calm(idle.cluster)
    request = admin_pb2.DeleteTopicsRequest(names=["unused"], timeout_ms=5_000)
    idle.cluster.request("admin", 1, request, lambda answer: None)
    idle.run(1)
    assert all(list(process.replicas) == [METADATA_GROUP] for process in idle.cluster.processes.values())
    calm.check()


def test_a_replica_that_is_gone_while_all_rest_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    idle = Idle(1, monkeypatch)
    calm = Calm(idle.cluster)
    idle.cluster.processes[2].die(silent=False)
    with pytest.raises(Violation, match="went from term"):
        calm.check()

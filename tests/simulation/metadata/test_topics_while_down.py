"""Topics that are created while a node is down: they take records at once, and the node gets its replica later."""

from __future__ import annotations

import pytest
from quiet_cluster import SECOND, Quiet

from quorumlog.chaos.checkers.history import OperationOutcome
from quorumlog.server.metadata.image import MetadataImage
from quorumlog.simulator.world.clients import PartitionName, SimProducer, SimProducerOptions
from quorumlog.v1 import admin_pb2

LATE = "late"


class OneDown(Quiet):
    """Three nodes, of which one is down and fenced."""

    def __init__(self, seed: int, absent: int) -> None:
        super().__init__(seed)
        self.run(2)
        self.absent = absent
        self.asked = next(node for node in self.cluster.node_ids if node != absent)
        self.cluster.processes[absent].die(silent=False)
        self.until(lambda: self.image.is_fenced(absent), 20)

    @property
    def image(self) -> MetadataImage:
        image = self.cluster.processes[self.asked].image
        assert image is not None
        return image

    def make(self, factor: int = 3, **configs: str) -> None:
        request = admin_pb2.CreateTopicsRequest(timeout_ms=1_000)
        named = {name.replace("_", "."): value for name, value in configs.items()}
        request.topics.add(name=LATE, num_partitions=3, replication_factor=factor, configs=named)
        answers: list[object] = []
        end = self.scheduler.now + 20 * SECOND
        while LATE not in self.image.topics:
            assert self.scheduler.now < end, answers
            self.cluster.request("admin", self.asked, request, answers.append)
            self.run(0.5)

    def write(self) -> None:
        names = [PartitionName(LATE, number) for number in range(3)]
        options = SimProducerOptions(interval_us=(2_000, 8_000), max_in_flight=1, request_timeout_us=200_000)
        SimProducer("late writer", names, self.cluster, self.scheduler, options, self.history, self.cluster)

    def acknowledged(self) -> dict[int, int]:
        """Acknowledged sends to each partition of the late topic."""
        counts = dict.fromkeys(range(3), 0)
        for send in self.history.sends(OperationOutcome.OK):
            topic, _, number = send.partition.rpartition("-")
            if topic == LATE:
                counts[int(number)] += 1
        return counts

    def are_written(self, more: int, seconds: float = 20) -> None:
        before = self.acknowledged()
        self.until(lambda: all(now >= before[number] + more for number, now in self.acknowledged().items()), seconds)

    def is_whole(self) -> bool:
        return all(len(each.isr) == len(each.replicas) for each in self.image.topics[LATE].partitions)


@pytest.mark.parametrize(("seed", "absent"), [(31, 1), (32, 2), (33, 3)])
def test_an_absent_replica_catches_up(seed: int, absent: int) -> None:
    """Two of three in sync are enough for min.insync.replicas=2; then the third one counts for the next loss."""
    rig = OneDown(seed, absent)
    rig.make(min_insync_replicas="2")
    rig.write()
    rig.are_written(20)
    partitions = rig.image.topics[LATE].partitions
    assert all(absent not in each.isr and absent in each.replicas for each in partitions)
    rig.cluster.start(absent)
    rig.until(rig.is_whole, 30)
    groups = [each.group for each in rig.image.topics[LATE].partitions]
    assert set(groups) <= rig.cluster.processes[absent].replicas.keys()
    # The node that was absent is needed for every majority now.
    lost = next(node for node in rig.cluster.node_ids if node not in (absent, rig.asked))
    rig.cluster.processes[lost].die(silent=False)
    rig.are_written(20)


def test_an_absent_witness_votes_later() -> None:
    """Two copies are written to at once; the witness makes up for one of them after its node has returned."""
    rig = OneDown(34, 3)
    rig.make(factor=2)
    assert all(each.witness == 3 for each in rig.image.topics[LATE].partitions)
    rig.write()
    rig.are_written(20)
    rig.cluster.start(3)
    rig.until(lambda: not rig.image.is_fenced(3), 20)
    groups = {each.group for each in rig.image.topics[LATE].partitions}
    rig.until(lambda: groups <= rig.cluster.processes[3].replicas.keys(), 20)
    rig.cluster.processes[2].die(silent=False)
    rig.are_written(20)


def test_partitions_are_added_to_while_a_node_is_down() -> None:
    rig = OneDown(35, 2)
    request = admin_pb2.CreatePartitionsRequest(timeout_ms=1_000)
    request.topics.add(name="t", total_count=3)
    answers: list[object] = []
    end = rig.scheduler.now + 20 * SECOND
    while len(rig.image.topics["t"].partitions) < 3:
        assert rig.scheduler.now < end, answers
        rig.cluster.request("admin", rig.asked, request, answers.append)
        rig.run(0.5)
    assert all(len(each.replicas) == 3 for each in rig.image.topics["t"].partitions)
    rig.until(lambda: all(rig.led_by(each.group) is not None for each in rig.image.topics["t"].partitions), 20)
    rig.cluster.start(2)
    rig.until(lambda: all(len(each.isr) == 3 for each in rig.image.topics["t"].partitions), 30)

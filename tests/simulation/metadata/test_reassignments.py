"""Partitions move between the nodes of a simulated cluster, under load and through crashes, and lose nothing."""

from __future__ import annotations

import pytest
from quiet_cluster import SECOND, TOPIC, Quiet
from sequenced_client import SequencedClient, log_of

from quorumlog.raft.types import Configuration
from quorumlog.simulator.world.clients import PartitionName, SimProducer, SimProducerOptions
from quorumlog.v1 import admin_pb2
from quorumlog.v1.errors_pb2 import ErrorCode


class Moving(Quiet):
    """Five nodes, one partition, and a producer."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed, nodes=5)
        self.group = self.groups()[0]
        options = SimProducerOptions(interval_us=(2_000, 6_000), request_timeout_us=300_000, records=(1, 3))
        SimProducer(
            "writer", [PartitionName(TOPIC, 0)], self.cluster, self.scheduler, options, self.history, self.cluster
        )
        self.until(lambda: len(self.history) > 20, 10)

    @property
    def up(self) -> int:
        """Some node that runs."""
        return next(node for node, process in self.cluster.processes.items() if process.running)

    def record(self, node: int | None = None):  # type: ignore[no-untyped-def]
        """Returns the partition's record in a node's metadata."""
        image = self.cluster.processes[node or self.up].image
        assert image is not None
        return image.partitions[self.group]

    def wish(self, *replicas: int) -> admin_pb2.ReassignmentResult:
        """Asks that the partition be moved; without nodes, that it stay."""
        request = admin_pb2.ReassignPartitionsRequest(timeout_ms=5_000)
        request.reassignments.add(topic=TOPIC, partition=0, replicas=replicas)
        answers: list[object] = []
        self.cluster.request("admin", self.up, request, answers.append)
        self.until(lambda: bool(answers), 10)
        (answer,) = answers
        assert isinstance(answer, admin_pb2.ReassignPartitionsResponse)
        return answer.results[0]

    def moved(self, *replicas: int) -> bool:
        """True if exactly these nodes have the partition: in the metadata, on disk and in its Raft configuration."""
        running = [process for process in self.cluster.processes.values() if process.running]
        images = [process.image for process in running if process.image is not None]
        if not all(self.group in image.partitions for image in images):
            return False  # A node that has just started has little metadata yet.
        records = [image.partitions[self.group] for image in images]
        on_disk = {node for node, process in self.cluster.processes.items() if self.group in process.disk.synced}
        return (
            all(record.replicas == replicas and not record.is_moving for record in records)
            and on_disk == set(replicas)
            and all(raft.configuration == Configuration(replicas) for raft in self.replicas_of(self.group).values())
        )

    def is_joint(self) -> bool:
        """True if a replica has a joint configuration."""
        return any(raft.configuration.is_joint for raft in self.replicas_of(self.group).values())

    def kill(self, node: int) -> None:
        self.cluster.processes[node].die(silent=False)


def test_a_partition_moves_under_load_and_comes_back() -> None:
    moving = Moving(1)
    first = moving.record().replicas
    others = tuple(node for node in (1, 2, 3, 4, 5) if node not in first)
    there = (first[0], *others)
    assert not moving.wish(*there).error.message
    moving.until(lambda: moving.moved(*there), 10)
    before = len(moving.history)
    assert not moving.wish(*first).error.message
    moving.until(lambda: moving.moved(*first), 10)
    moving.until(lambda: len(moving.history) > before + 50, 10)
    # A replica that is added again has not forgotten in which term it was removed.
    assert set(moving.record().isr) <= set(first)
    moving.until(lambda: set(moving.record().isr) == set(first), 10)


def test_a_partition_moves_to_wholly_other_nodes_and_its_leader_steps_down() -> None:
    moving = Moving(2)
    first = moving.record().replicas
    there = tuple(node for node in (1, 2, 3, 4, 5) if node not in first)[:1]
    assert not moving.wish(*there).error.message
    moving.until(lambda: moving.moved(*there), 15)
    before = len(moving.history)
    moving.until(lambda: len(moving.history) > before + 50, 10)
    assert moving.led_by(moving.group) == there[0]


@pytest.mark.parametrize("seed", range(6))
def test_a_move_goes_on_after_kills_at_any_point(seed: int) -> None:
    moving = Moving(100 + seed)
    rng = moving.scheduler.stream("kills")
    first = moving.record().replicas
    others = tuple(node for node in (1, 2, 3, 4, 5) if node not in first)
    there = (first[1], *others)
    assert not moving.wish(*there).error.message
    for _ in range(4):
        moving.run(rng.uniform(0.01, 0.4))
        victim = rng.choice([node for node, process in moving.cluster.processes.items() if process.running])
        moving.kill(victim)
        moving.run(rng.uniform(0.05, 1.5))
        moving.cluster.start(victim)
    moving.until(lambda: moving.moved(*there), 60)
    before = len(moving.history)
    moving.until(lambda: len(moving.history) > before + 30, 20)


def test_a_move_is_cancelled_and_its_copies_go() -> None:
    moving = Moving(3)
    first = moving.record().replicas
    others = tuple(node for node in (1, 2, 3, 4, 5) if node not in first)
    moving.kill(others[0])
    moving.until(lambda: others[0] not in moving.record().isr, 5)
    # One of the new nodes is dead, the move hangs.
    answer = moving.wish(first[0], *others)
    if not answer.error.message:
        moving.run(2)
        assert moving.record().is_moving
        assert not moving.wish().error.message
    moving.cluster.start(others[0])
    moving.until(lambda: moving.moved(*first), 30)
    assert moving.wish().error.code == ErrorCode.REASSIGNMENT_IN_PROGRESS


def test_a_wish_is_replaced_while_the_voters_change() -> None:
    moving = Moving(4)
    first = moving.record().replicas
    others = tuple(node for node in (1, 2, 3, 4, 5) if node not in first)
    assert not moving.wish(first[0], *others).error.message
    moving.until(moving.is_joint, 10)
    there = (others[0], first[1], first[2])
    assert not moving.wish(*there).error.message
    moving.until(lambda: moving.moved(*there), 20)


def test_a_producer_finds_its_duplicates_after_the_move() -> None:
    quiet = Quiet(5, nodes=5)
    client = SequencedClient(quiet)
    group = quiet.groups()[0]
    assert client.sent("a", 0).error.code == ErrorCode.NONE
    image = quiet.cluster.processes[1].image
    assert image is not None
    first = image.partitions[group].replicas
    there = tuple(node for node in (1, 2, 3, 4, 5) if node not in first)[:1]
    request = admin_pb2.ReassignPartitionsRequest(timeout_ms=5_000)
    request.reassignments.add(topic=TOPIC, partition=0, replicas=there)
    answers: list[object] = []
    quiet.cluster.request("admin", 1, request, answers.append)
    quiet.until(lambda: quiet.led_by(group) == there[0] and not image.partitions[group].is_moving, 15)
    again = client.sent("a", 0)
    assert again.error.code == ErrorCode.NONE
    assert again.base_offset == client.acknowledged("a")[0]
    assert client.sent("b", 1).error.code == ErrorCode.NONE
    assert log_of(quiet, group) == ["a", "b"]
    assert quiet.scheduler.now < 60 * SECOND


class Spread(Quiet):
    """Four nodes and many partitions, of which one node leads more than it may copy at once."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed, partitions=72, nodes=4)
        self.run(3)

    @property
    def image(self):  # type: ignore[no-untyped-def]
        image = self.cluster.processes[1].image
        assert image is not None
        return image

    def copying(self, leader: int) -> int:
        """Groups that a node leads and adds a replica to."""
        return sum(
            each.raft.is_leader and bool(each.raft.configuration.learners)
            for group, each in self.cluster.processes[leader].replicas.items()
            if group in self.image.partitions
        )


def test_a_leader_starts_few_copies_at_once() -> None:
    """Each copy reads a whole log: twenty at once would take the disk from the clients. Their node is down for a while,
    so that none of them ends before the next look at what may start."""
    spread, leader, target = Spread(41), 1, 4
    led = [record for record in spread.image.partitions.values() if record.leader == leader]
    led = [record for record in led if target not in record.replicas]
    assert len(led) >= 6, "too few for a conclusion"
    request = admin_pb2.ReassignPartitionsRequest(timeout_ms=5_000)
    for record in led:
        stays = next(node for node in record.replicas if node != leader)
        request.reassignments.add(topic=TOPIC, partition=record.number, replicas=[leader, stays, target])
    answers: list[object] = []
    spread.cluster.request("admin", leader, request, answers.append)
    most = 0

    def looked(reached: bool) -> bool:
        nonlocal most
        most = max(most, spread.copying(leader))
        assert most <= 4, f"{most} copies at once"
        return reached

    spread.until(lambda: looked(all(record.is_moving for record in led)), 20)
    spread.cluster.processes[target].die(silent=False)
    end = spread.scheduler.now + 2 * SECOND
    spread.until(lambda: looked(spread.scheduler.now >= end), 3)
    assert spread.copying(leader) == most == 4, "as many as may be"
    spread.cluster.start(target)
    spread.until(lambda: looked(not any(record.is_moving for record in led)), 60)

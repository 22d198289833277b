"""Changes of in-sync replicas that arrive late or too early, and changes of leaders, in whole nodes."""

from __future__ import annotations

import pytest
from quiet_cluster import Quiet, Writing

from quorumlog.raft.types import NO_NODE
from quorumlog.server.metadata.image import MetadataImage
from quorumlog.server.metadata.records import METADATA_GROUP, PartitionRecord
from quorumlog.server.step.events import FrameReceived, PeerFrame, Stream
from quorumlog.v1 import peer_pb2

SEEDS = range(1, 4)


def image_of(quiet: Quiet) -> MetadataImage:
    """The newest metadata image that some node has applied."""
    images = [process.image for process in quiet.cluster.processes.values() if process.image is not None]
    return max(images, key=lambda image: image.applied_index)


def partition_of(quiet: Quiet) -> PartitionRecord:
    """The partition as the metadata have it."""
    (partition,) = image_of(quiet).partitions.values()
    return partition


def in_sync(quiet: Quiet, *nodes: int) -> bool:
    return bool(image_of(quiet).partitions) and set(partition_of(quiet).isr) == set(nodes)


def change(quiet: Quiet, *isr: int) -> tuple[int, peer_pb2.ControllerRequest]:
    """The change to that set as the leader would ask for it now, and the leader's node."""
    image, partition = image_of(quiet), partition_of(quiet)
    body = peer_pb2.AlterIsr(node_id=partition.leader, broker_epoch=image.brokers[partition.leader].epoch)
    request = body.changes.add(
        group=partition.group, leader_epoch=partition.leader_epoch, partition_epoch=partition.partition_epoch
    )
    for node in isr:
        request.isr.add(node_id=node, broker_epoch=image.brokers[node].epoch)
    return partition.leader, peer_pb2.ControllerRequest(request_id=1 << 40, alter_isr=body)


def ask(quiet: Quiet, sender: int, request: peer_pb2.ControllerRequest) -> None:
    """The request reaches the controller."""
    controller = quiet.led_by(METADATA_GROUP)
    assert controller is not None
    frame = PeerFrame(Stream.CONTROL, controller_requests=[request])
    quiet.cluster.deliver(controller, FrameReceived(sender, frame))


def led_partition(seed: int) -> tuple[Quiet, int]:
    """A partition with all three in sync, and a node that does not lead it, nor the metadata."""
    quiet = Quiet(seed)
    quiet.until(lambda: in_sync(quiet, 1, 2, 3) and partition_of(quiet).leader != NO_NODE, 10)
    busy = {partition_of(quiet).leader, quiet.led_by(METADATA_GROUP)}
    return quiet, next(node for node in quiet.cluster.node_ids if node not in busy)


@pytest.mark.scenario("25a")
@pytest.mark.parametrize("seed", SEEDS)
def test_a_shrink_that_was_delayed_past_the_expansion_changes_nothing(seed: int) -> None:
    quiet, follower = led_partition(seed)
    rest = [node for node in quiet.cluster.node_ids if node != follower]
    leader, delayed = change(quiet, *rest)
    quiet.cluster.processes[follower].die(silent=False)
    quiet.until(lambda: in_sync(quiet, *rest), 10)
    quiet.cluster.start(follower)
    quiet.until(lambda: in_sync(quiet, 1, 2, 3), 10)
    settled = partition_of(quiet).partition_epoch
    ask(quiet, leader, delayed)
    quiet.run(2)
    assert (in_sync(quiet, 1, 2, 3), partition_of(quiet).partition_epoch) == (True, settled), "nor shrunk for a moment"


@pytest.mark.scenario("25b")
@pytest.mark.parametrize("seed", SEEDS)
def test_a_broker_that_is_fenced_meanwhile_is_not_added(seed: int) -> None:
    quiet, follower = led_partition(seed)
    rest = [node for node in quiet.cluster.node_ids if node != follower]
    quiet.cluster.processes[follower].pause()
    quiet.until(lambda: in_sync(quiet, *rest), 10)
    assert image_of(quiet).brokers[follower].fenced
    settled = partition_of(quiet).partition_epoch
    leader, request = change(quiet, 1, 2, 3)
    ask(quiet, leader, request)
    quiet.run(2)
    assert (in_sync(quiet, *rest), partition_of(quiet).partition_epoch) == (True, settled)
    quiet.cluster.processes[follower].resume()
    quiet.until(lambda: in_sync(quiet, 1, 2, 3), 10)


@pytest.mark.scenario("25c")
@pytest.mark.parametrize("seed", SEEDS)
def test_no_image_shows_a_leader_apart_from_its_in_sync_replicas(seed: int) -> None:
    writing = Writing(seed)
    leaders = set()
    for _ in range(2):
        old = writing.leader()
        old.die(silent=False)
        for moment in range(1_500):
            writing.run(0.003)
            for process in writing.cluster.processes.values():
                if process.image is not None:
                    check(process.image)
            leaders.add(partition_of(writing).leader)
            if moment == 1_000:
                writing.cluster.start(old.node_id)
    assert len(leaders) > 1
    writing.until(lambda: in_sync(writing, 1, 2, 3), 10)


def check(image: MetadataImage) -> None:
    """Asserts that a leader is in sync, and a fenced node only if it leads or all in-sync nodes are fenced."""
    for partition in image.partitions.values():
        assert partition.isr
        assert partition.leader in (NO_NODE, *partition.isr), f"{partition.leader} leads, in sync are {partition.isr}"
        fenced = {node for node in partition.isr if image.brokers[node].fenced}
        assert fenced <= {partition.leader} or partition.isr == tuple(fenced)

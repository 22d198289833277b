"""Replacement of a lost disk: given up, removed everywhere, and refilled, in an order that survives any failure."""

from __future__ import annotations

import pytest
from test_controller import new_topic, registration
from test_node_decisions import DRAIN, REMOVE, UNDRAIN, Leaving

from quorumlog.raft.types import Configuration
from quorumlog.server.controller.rebalancing import Rebalancing
from quorumlog.server.metadata.image import MetadataImage
from quorumlog.server.metadata.lost_disks import MAX_LOST
from quorumlog.server.metadata.records import PartitionRecord
from quorumlog.v1 import admin_pb2, peer_pb2
from quorumlog.v1 import metadata_log_pb2 as log
from quorumlog.v1.errors_pb2 import ErrorCode

REPLACE_DISK = admin_pb2.NODE_ACTION_REPLACE_DISK


class Losing(Leaving):
    """A cluster of which node 3 loses its disk."""

    def __init__(self, nodes: int = 3, partitions: int = 4) -> None:
        super().__init__(nodes, partitions)
        self.led()
        self.pass_time(without=(3,), seconds=4)
        assert self.image.is_fenced(3)
        self.led()

    def alter(self, node: int, action: admin_pb2.NodeAction.ValueType, **fields: object) -> admin_pb2.AlterNodeResponse:
        if action == REPLACE_DISK and node in self.image.brokers:
            fields = {"directory_id": self.image.brokers[node].registration.directory_id, **fields}
        return super().alter(node, action, **fields)

    def hear_of_loss(self, *nodes: int) -> None:
        """Nodes report that they have recorded the loss."""
        for node in nodes:
            heartbeat = peer_pb2.BrokerHeartbeat(
                node_id=node,
                broker_epoch=self.epoch(node),
                applied_index=self.image.applied_index,
                lost_index=self.image.lost_disks.lost_index,
            )
            assert not self.ask(heartbeat=heartbeat).HasField("error")

    def taken_out(self) -> None:
        """Completes the removal of node 3: its replicas are moved away, and its place is vacant."""
        self.pass_time(without=(3,))
        self.moved()
        self.members = Configuration(tuple(node for node in (1, 2) if node in self.image.brokers))
        self.pass_time(without=(3,))
        assert self.image.brokers[3].is_vacant

    def returned(self, directory: str = "another") -> peer_pb2.ControllerResponse:
        body = registration(3)
        body.directory_id, body.boot_id = directory, 99
        answer = self.ask(register_broker=body)
        self.beat(*self.image.brokers)
        return answer


def test_a_disk_is_given_up_taken_out_and_its_place_refilled() -> None:
    cluster = Losing()
    before = {group: partition.replicas for group, partition in cluster.image.partitions.items()}
    answer = cluster.alter(3, REPLACE_DISK)
    assert answer.all_moves == len(answer.moves) == 4
    assert list(answer.voters) == [1, 2, 3], "those that vote in the end"
    assert all(3 in move.wanted and 3 not in move.replicas for move in answer.moves)
    cluster.taken_out()
    assert cluster.image.quorum.voters == (1, 2)
    assert all(3 not in partition.hosts for partition in cluster.image.partitions.values())
    assert not cluster.returned().HasField("error")
    cluster.hear_of_loss(1, 2)
    cluster.pass_time()
    cluster.moved()
    assert {group: partition.replicas for group, partition in cluster.image.partitions.items()} == before
    assert cluster.image.quorum.voters == (1, 2, 3)
    assert cluster.image.lost_disks.returning() == []


def test_the_next_controller_goes_on_at_every_step() -> None:
    cluster = Losing()
    cluster.alter(3, REPLACE_DISK)

    def next_controller() -> None:
        cluster.image = MetadataImage.from_snapshot(cluster.image.to_snapshot())
        cluster.take_over()
        cluster.pass_time(without=(3,) if cluster.image.is_fenced(3) else ())

    next_controller()
    cluster.moved()
    cluster.members = Configuration((1, 2))
    next_controller()
    assert cluster.image.brokers[3].is_vacant
    cluster.returned()
    next_controller()
    cluster.hear_of_loss(1, 2)
    cluster.pass_time()
    cluster.moved()
    assert all(len(partition.replicas) == 3 for partition in cluster.image.partitions.values())


@pytest.mark.scenario("19c")
def test_the_disk_that_was_given_up_is_refused_for_ever() -> None:
    cluster = Losing()
    former = cluster.image.brokers[3].registration.directory_id
    cluster.alter(3, REPLACE_DISK)
    assert "was given up as lost" in cluster.returned(former).error.message
    assert cluster.returned("another").error.code == ErrorCode.DUPLICATE_BROKER_REGISTRATION, "not before it is vacant"
    cluster.taken_out()
    assert "was given up as lost" in cluster.returned(former).error.message
    assert not cluster.returned("another").HasField("error")
    assert "was given up as lost" in cluster.returned(former).error.message


def test_what_a_process_of_the_former_disk_says_is_of_an_epoch_that_is_over() -> None:
    cluster = Losing()
    stale = cluster.epoch(3)
    cluster.alter(3, REPLACE_DISK)
    answer = cluster.ask(heartbeat=peer_pb2.BrokerHeartbeat(node_id=3, broker_epoch=stale))
    assert answer.error.code == ErrorCode.STALE_BROKER_EPOCH


def test_the_place_is_not_vacant_while_the_node_is_a_member_of_the_metadata_group() -> None:
    """A place is not vacant while its node is a member of the metadata group, even as a learner: the leader would
    assume the progress of the former disk."""
    cluster = Losing()
    cluster.alter(3, REPLACE_DISK)
    cluster.pass_time(without=(3,))
    cluster.moved()
    for members in (Configuration((1, 2), (3,)), Configuration((1, 2), (), (1, 2, 3))):
        cluster.members = members
        cluster.pass_time(without=(3,))
        assert not cluster.image.brokers[3].is_vacant


@pytest.mark.scenario("19d")
def test_a_replica_returns_only_when_all_others_will_not_forget_the_loss() -> None:
    cluster = Losing()
    cluster.alter(3, REPLACE_DISK)
    cluster.taken_out()
    cluster.returned()
    cluster.hear_of_loss(1)
    cluster.pass_time()
    assert cluster.image.moves.groups() == []
    cluster.hear_of_loss(2)
    cluster.pass_time()
    assert len(cluster.image.moves.groups()) == 4


def test_only_the_disk_of_a_node_that_is_down_is_given_up() -> None:
    cluster = Losing()
    assert "node 1 is up, with its data" in cluster.alter(1, REPLACE_DISK).error.message
    assert "node 9 is not registered" in cluster.alter(9, REPLACE_DISK).error.message


def test_a_loss_that_leaves_no_majority_is_refused_and_names_the_topics() -> None:
    cluster = Losing(nodes=4, partitions=0)
    cluster.create(new_topic("whole", partitions=1))
    cluster.pass_time()
    cluster.create(
        admin_pb2.NewTopic(
            name="alone",
            num_partitions=-1,
            replication_factor=-1,
            replica_assignments=[admin_pb2.ReplicaAssignment(replicas=[3])],
        )
    )
    cluster.pass_time(without=(3,), seconds=4)
    refused = cluster.alter(3, REPLACE_DISK).error.message
    assert "delete their topics first (alone)" in refused


@pytest.mark.parametrize("replicas", [(1, 2), (1, 3)], ids=["its witness is lost", "a replica is lost"])
def test_a_node_with_a_partition_that_has_a_witness_needs_another_id(replicas: tuple[int, ...]) -> None:
    cluster = Losing(partitions=0)
    cluster.pass_time()
    assigned = [admin_pb2.ReplicaAssignment(replicas=replicas)]
    cluster.create(
        admin_pb2.NewTopic(name="pair", num_partitions=-1, replication_factor=-1, replica_assignments=assigned)
    )
    cluster.pass_time(without=(3,), seconds=4)
    refused = cluster.alter(3, REPLACE_DISK, validate_only=True).error.message
    assert "have a witness, and cannot continue with the rest of them alone (pair)" in refused
    assert "nodes replace 3 --with" in refused
    assert "\n" not in refused
    assert cluster.alter(3, REPLACE_DISK).error.message == refused
    assert not cluster.image.brokers[3].is_lost


def test_balance_waits_for_what_comes_back() -> None:
    cluster = Losing()
    cluster.alter(3, REPLACE_DISK)
    cluster.taken_out()
    cluster.ask(register_broker=registration(4))
    cluster.pass_time(without=(3,))
    assert not cluster.image.is_fenced(4)
    assert all(partition.returning for partition in cluster.image.partitions.values())
    assert list(Rebalancing(cluster.image, {}).moves()) == []


def test_a_loss_that_leaves_no_majority_of_the_voters_is_refused() -> None:
    cluster = Losing()
    cluster.members = Configuration((2, 3))
    assert "no majority of the metadata quorum would be left" in cluster.alter(3, REPLACE_DISK).error.message


@pytest.mark.parametrize(("wanted", "left"), [((1, 3), (1,)), ((3,), (1, 2))])
def test_a_disk_is_lost_while_the_quorum_is_being_changed(wanted: tuple[int, ...], left: tuple[int, ...]) -> None:
    """The current voters determine the new quorum: a requested quorum of fewer voters may include the lost one and
    would never be reached."""
    cluster = Losing()
    cluster.commit_one(want_quorum=log.WantQuorum(voters=wanted, wishes=cluster.image.quorum.wishes))
    assert not cluster.alter(3, REPLACE_DISK).HasField("error")
    cluster.pass_time(without=(3,))
    assert cluster.image.quorum.voters == left


def test_a_plan_changes_nothing_and_the_same_wish_twice_is_one() -> None:
    cluster = Losing()
    assert cluster.alter(3, REPLACE_DISK, validate_only=True).all_moves == 4
    assert not cluster.image.brokers[3].is_lost
    for _ in range(2):
        assert not cluster.alter(3, REPLACE_DISK).HasField("error")
    assert len(cluster.image.lost_disks.by_node[3].directories) == 1


def test_what_comes_back_is_copied_no_faster_than_was_asked_for() -> None:
    cluster = Losing()
    assert "too slow" in cluster.alter(3, REPLACE_DISK, bytes_per_second=1).error.message
    assert not cluster.alter(3, REPLACE_DISK, bytes_per_second=5_000_000).HasField("error")
    assert not cluster.alter(3, REPLACE_DISK, bytes_per_second=2_000_000).HasField("error")
    assert len(cluster.image.lost_disks.by_node[3].directories) == 1, "the same disk, with another limit"
    cluster.taken_out()
    cluster.returned()
    cluster.image = MetadataImage.from_snapshot(cluster.image.to_snapshot())
    cluster.take_over()
    cluster.hear_of_loss(1, 2)
    cluster.pass_time()
    moving = [each for each in cluster.image.partitions.values() if each.is_moving]
    assert moving
    assert {each.throttle for each in moving} == {2_000_000}


def test_a_node_that_reports_its_own_loss_again_does_not_lift_the_limit() -> None:
    """A repeated report of a loss does not lift the limit: a node with its storage set aside reports every second
    without one."""
    cluster = Losing()
    assert not cluster.alter(3, REPLACE_DISK, bytes_per_second=5_000_000).HasField("error")
    assert not cluster.alter(3, REPLACE_DISK).HasField("error")
    assert cluster.image.lost_disks.by_node[3].throttle == 5_000_000
    assert not cluster.alter(3, REPLACE_DISK, bytes_per_second=0).HasField("error")
    assert cluster.image.lost_disks.by_node[3].throttle == 0, "as fast as it goes, says the operator"


def test_two_losses_at_once_are_judged_together() -> None:
    """Two losses at once are judged together: nodes that have set their storage aside request replacement
    automatically, possibly at the same moment."""
    cluster = Losing(nodes=5, partitions=10)
    cluster.pass_time(without=(3, 4), seconds=4)
    requests = [
        admin_pb2.AlterNodeRequest(
            node_id=node, action=REPLACE_DISK, directory_id=cluster.image.brokers[node].registration.directory_id
        )
        for node in (3, 4)
    ]
    decisions = [cluster.decide(alter_node=request) for request in requests]
    assert not cluster.commit(decisions[0]).HasField("error")
    assert "without a majority of their replicas" in cluster.commit(decisions[1]).error.message
    cluster = Losing(nodes=5, partitions=10)
    cluster.pass_time(without=(3, 4), seconds=4)
    cluster.decide(alter_node=requests[0])
    assert cluster.alter(4, REPLACE_DISK).HasField("error")
    later = peer_pb2.ControllerRequest(request_id=77, alter_node=requests[1])
    decision = cluster.controller.handle(cluster.now, 1234 + 3_600_000, later)
    assert not cluster.commit(decision).HasField("error"), "the other has not come into the log"


def test_asked_for_once_more_it_does_not_give_up_the_disk_that_came_next() -> None:
    """A repeated request does not give up the next disk: the answer to the first one may be lost, and the node may have
    returned with a new disk, not yet admitted."""
    cluster = Losing()
    former = cluster.image.brokers[3].registration.directory_id
    cluster.alter(3, REPLACE_DISK)
    cluster.taken_out()
    cluster.returned()
    assert not cluster.alter(3, REPLACE_DISK, directory_id=former).HasField("error")
    assert not cluster.image.brokers[3].is_lost
    assert "has data directory" in cluster.alter(3, REPLACE_DISK, directory_id="none").error.message


def test_a_disk_that_is_found_after_all_counts_again() -> None:
    cluster = Losing()
    former = cluster.image.brokers[3].registration.directory_id
    cluster.alter(3, REPLACE_DISK)
    cluster.pass_time(without=(3,))
    cluster.moved()
    assert cluster.image.quorum.voters == (1, 2)
    assert not cluster.alter(3, UNDRAIN).HasField("error")
    assert not cluster.returned(former).HasField("error")
    cluster.hear_of_loss(1, 2)
    cluster.pass_time()
    cluster.moved()
    assert all(len(partition.replicas) == 3 for partition in cluster.image.partitions.values())
    assert cluster.image.quorum.voters == (1, 2, 3)


def test_once_its_place_is_vacant_a_disk_does_not_count_again() -> None:
    cluster = Losing()
    cluster.alter(3, REPLACE_DISK)
    cluster.taken_out()
    assert "has lost its place already" in cluster.alter(3, UNDRAIN).error.message


def test_another_node_takes_over_where_nobody_returns() -> None:
    cluster = Losing(nodes=4, partitions=4)
    cluster.alter(3, REPLACE_DISK)
    assert "is being given up" in cluster.alter(3, DRAIN, successor=4).error.message, "not in the midst of it"
    cluster.taken_out()
    answer = cluster.alter(3, DRAIN, successor=4)
    assert list(answer.voters) == [1, 2, 4], "the vote that node 3 was to get back"
    for _ in range(2):
        cluster.pass_time(without=(3,))
        cluster.moved()
    assert cluster.image.quorum.voters == (1, 2, 4)
    assert cluster.image.lost_disks.returning() == []
    assert all(len(partition.replicas) == 3 for partition in cluster.image.partitions.values())
    assert not cluster.alter(3, REMOVE).HasField("error")
    assert "was removed" in cluster.returned().error.message


def test_somebody_who_decides_who_votes_is_not_overruled() -> None:
    cluster = Losing(nodes=4)
    cluster.alter(3, REPLACE_DISK)
    cluster.taken_out()
    request = log.WantQuorum(voters=[1, 2, 4], wishes=cluster.image.quorum.wishes)
    cluster.commit_one(want_quorum=request)
    cluster.returned()
    cluster.hear_of_loss(1, 2, 4)
    cluster.pass_time()
    assert cluster.image.quorum.voters == (1, 2, 4)


def test_a_move_that_an_operator_wishes_for_replaces_what_was_to_come_back() -> None:
    cluster = Losing(nodes=4, partitions=1)
    [group] = cluster.image.partitions
    cluster.alter(3, REPLACE_DISK)
    cluster.taken_out()
    cluster.commit_one(reassign_replicas=log.ReassignReplicas(group=group, replicas=[1, 2, 4]))
    assert cluster.image.partitions[group].returning == ()


def test_a_node_that_loses_too_many_disks_needs_another_id() -> None:
    cluster = Losing()
    cluster.image.lost_disks.by_node.clear()
    cluster.alter(3, REPLACE_DISK)
    cluster.taken_out()
    lost = cluster.image.lost_disks.by_node[3]
    lost.directories = tuple(map(str, range(MAX_LOST)))
    cluster.returned()
    cluster.pass_time(without=(3,), seconds=4)
    assert f"has lost {MAX_LOST} disks" in cluster.alter(3, REPLACE_DISK).error.message


@pytest.mark.parametrize("state", [log.DISK_STATE_LOST, log.DISK_STATE_VACANT, log.DISK_STATE_UNSPECIFIED])
def test_what_was_decided_on_another_disk_changes_nothing(state: log.DiskState.ValueType) -> None:
    cluster = Losing()
    cluster.alter(3, REPLACE_DISK)
    before = cluster.image.to_snapshot()
    cluster.commit_one(replace_disk=log.ReplaceDisk(node_id=3, directory_id="none", state=state))
    after = MetadataImage.from_snapshot(cluster.image.to_snapshot())
    after.applied_index -= 1
    assert after.to_snapshot() == before


def recovered_alone(cluster: Losing, *intended: int) -> PartitionRecord:
    """Returns a partition of which a recovery from the loss of a majority has left only node 1, without a witness."""
    partition = cluster.image.partitions[min(cluster.image.partitions)]
    cluster.image.replica_index.leave(partition)
    partition.replicas = partition.isr = (1,)
    partition.leader, partition.returning = 1, intended
    cluster.image.replica_index.enter(partition)
    return partition


def test_with_its_second_copy_a_recovered_partition_gets_a_witness() -> None:
    cluster = Losing(nodes=4, partitions=1)
    cluster.alter(3, REPLACE_DISK)
    cluster.taken_out()
    partition = recovered_alone(cluster, 1, 2)
    cluster.hear_of_loss(1, 2, 4)
    cluster.pass_time(without=(3,))
    assert (partition.target, partition.target_witness, partition.returning) == ((1, 2), 4, ())


def test_without_a_node_for_its_witness_a_recovered_partition_waits_for_one() -> None:
    cluster = Losing(nodes=3, partitions=1)
    cluster.alter(3, REPLACE_DISK)
    cluster.taken_out()
    partition = recovered_alone(cluster, 1, 2)
    cluster.hear_of_loss(1, 2)
    cluster.pass_time(without=(3,))
    assert not partition.is_moving
    assert not cluster.returned().HasField("error")
    cluster.hear_of_loss(1, 2, 3)
    cluster.pass_time()
    assert (partition.target, partition.target_witness) == ((1, 2), 3)


def test_two_nodes_take_over_from_the_one_that_gets_the_witness() -> None:
    """Node 1 cannot have the witness while it has a replica: one of the others gets its copy first."""
    cluster = Losing(nodes=3, partitions=1)
    cluster.alter(3, REPLACE_DISK)
    cluster.taken_out()
    assert not cluster.returned().HasField("error")
    partition = recovered_alone(cluster, 2, 3)
    cluster.hear_of_loss(1, 2, 3)
    cluster.pass_time()
    assert (partition.target, partition.returning) == ((2,), (2, 3))
    cluster.moved()
    cluster.hear_of_loss(1, 2, 3)
    cluster.pass_time()
    assert (partition.replicas, partition.target, partition.target_witness) == ((2,), (2, 3), 1)


def test_a_node_with_another_id_takes_the_second_copy_of_a_recovered_partition() -> None:
    cluster = Losing(nodes=4, partitions=1)
    cluster.alter(3, REPLACE_DISK)
    cluster.taken_out()
    partition = recovered_alone(cluster, 1, 3)
    assert not cluster.alter(3, DRAIN, successor=4).error.message
    cluster.pass_time(without=(3,))
    assert (partition.target, partition.target_witness) == ((1, 4), 2)

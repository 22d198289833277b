"""Nodes are drained and removed only if that is possible, and a plan lists the destination of every replica."""

from __future__ import annotations

import pytest
from test_controller import SECOND, Cluster, new_topic, registration

from quorumlog.server.controller import node_drain as evacuation
from quorumlog.server.metadata.image import MetadataImage
from quorumlog.server.metadata.records import PartitionRecord
from quorumlog.v1 import admin_pb2, peer_pb2
from quorumlog.v1 import metadata_log_pb2 as log
from quorumlog.v1.errors_pb2 import ErrorCode

DRAIN, UNDRAIN, REMOVE = (
    admin_pb2.NODE_ACTION_DRAIN,
    admin_pb2.NODE_ACTION_UNDRAIN,
    admin_pb2.NODE_ACTION_REMOVE,
)


class Leaving(Cluster):
    """A cluster of which nodes leave, with one topic."""

    def __init__(self, nodes: int = 4, partitions: int = 6, racks: str = "", machines: str = "") -> None:
        super().__init__(nodes=0)
        for node in range(1, nodes + 1):
            rack, machine = racks[node - 1 : node], machines[node - 1 : node]
            self.ask(register_broker=registration(node, rack=rack, machine=machine))
        self.beat(*range(1, nodes + 1))
        self.run_until(self.now)
        self.beat(*range(1, nodes + 1))
        if partitions:
            self.create(new_topic(partitions=partitions))

    def alter(self, node: int, action: admin_pb2.NodeAction.ValueType, **fields: object) -> admin_pb2.AlterNodeResponse:
        request = admin_pb2.AlterNodeRequest(node_id=node, action=action)
        request.MergeFrom(admin_pb2.AlterNodeRequest(**fields))  # type: ignore[arg-type]
        response = self.ask(alter_node=request)
        if response.HasField("error"):
            return admin_pb2.AlterNodeResponse(error=response.error)
        return response.alter_node

    def pass_time(self, *, without: tuple[int, ...] = (), seconds: float = 1) -> None:
        self.run_until(
            self.now + int(seconds * SECOND),
            beating=tuple(node for node in self.image.brokers if node not in without),
        )

    def moved(self) -> None:
        """Reports every requested move as completed by its leader."""
        for group in self.image.moves.groups():
            partition = self.image.partitions[group]
            leader, epoch = partition.wanted[0], partition.leader_epoch + 1
            report = peer_pb2.LeaderReport(group=group, leader_epoch=epoch)
            self.ask(
                report_leaders=peer_pb2.ReportLeaders(node_id=leader, broker_epoch=self.epoch(leader), reports=[report])
            )
            reported = peer_pb2.ReplicasMoved(
                node_id=leader,
                broker_epoch=self.epoch(leader),
                group=group,
                leader_epoch=epoch,
                replicas=partition.wanted,
                log_index=7,
                wish=partition.wishes,
            )
            assert not self.ask(replicas_moved=reported).HasField("error")

    def led(self) -> None:
        """Elects a leader that is up in every partition that has a replica that is up."""
        for partition in self.image.partitions.values():
            up = [node for node in partition.replicas if not self.image.is_fenced(node)]
            if up and partition.leader not in up:
                report = peer_pb2.LeaderReport(group=partition.group, leader_epoch=partition.leader_epoch + 1)
                self.ask(
                    report_leaders=peer_pb2.ReportLeaders(
                        node_id=up[0], broker_epoch=self.epoch(up[0]), reports=[report]
                    )
                )

    def on(self, node: int) -> list[PartitionRecord]:
        return [partition for partition in self.image.partitions.values() if node in partition.hosts]


def test_a_drained_node_is_emptied_and_gets_nothing_new() -> None:
    cluster = Leaving()
    answer = cluster.alter(4, DRAIN)
    held = len(cluster.on(4))
    assert answer.all_moves == len(answer.moves) == held > 0
    assert all(4 in move.replicas and 4 not in move.wanted for move in answer.moves)
    cluster.pass_time()
    cluster.moved()
    assert cluster.on(4) == []
    cluster.create(new_topic("later"))
    assert cluster.on(4) == []


def test_the_next_controller_goes_on_with_it() -> None:
    cluster = Leaving()
    cluster.alter(4, DRAIN)
    cluster.image = MetadataImage.from_snapshot(cluster.image.to_snapshot())
    cluster.take_over()
    cluster.beat(1, 2, 3, 4)
    cluster.pass_time()
    cluster.moved()
    assert cluster.on(4) == []


def test_replicas_go_to_the_rack_that_has_none() -> None:
    cluster = Leaving(nodes=6, racks="aabbcc")
    answer = cluster.alter(6, DRAIN, validate_only=True)
    racks = {node: cluster.image.brokers[node].rack for node in cluster.image.brokers}
    for move in answer.moves:
        assert len({racks[node] for node in move.wanted}) == 3, move
    assert not cluster.image.brokers[6].leaving


def test_a_successor_takes_over_and_votes() -> None:
    cluster = Leaving(nodes=5)
    answer = cluster.alter(3, DRAIN, successor=5)
    assert list(answer.voters) == [1, 2, 5]
    for move in answer.moves:
        assert 5 in move.wanted
    cluster.pass_time()
    assert cluster.image.quorum.voters == (1, 2, 5)


def test_a_drain_that_cannot_end_is_refused() -> None:
    cluster = Leaving(nodes=3)
    answer = cluster.alter(3, DRAIN)
    assert answer.error.code == ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert "6 of 6 replicas on node 3 have nowhere to go" in answer.error.message


def test_a_successor_that_can_take_over_nothing_is_refused() -> None:
    cluster = Leaving(nodes=5)
    cluster.alter(5, DRAIN)
    assert "cannot take over from itself" in cluster.alter(1, DRAIN, successor=1).error.message
    assert "node 5 is being drained itself" in cluster.alter(1, DRAIN, successor=5).error.message
    assert "node 9 is not registered" in cluster.alter(1, DRAIN, successor=9).error.message
    cluster.pass_time(without=(4,), seconds=4)
    assert "node 4 is down" in cluster.alter(1, DRAIN, successor=4).error.message


def test_what_is_under_way_goes_back_when_a_node_is_to_stay() -> None:
    cluster = Leaving()
    cluster.alter(4, DRAIN)
    cluster.pass_time()
    assert cluster.image.moves.groups()
    assert not cluster.alter(4, UNDRAIN).HasField("error")
    assert all(partition.wanted == partition.replicas for partition in cluster.on(4))
    cluster.moved()
    cluster.pass_time()
    assert cluster.on(4)
    assert cluster.image.moves.groups() == []


def test_nobody_moves_partitions_to_a_node_that_leaves() -> None:
    cluster = Leaving()
    cluster.alter(4, DRAIN)
    elsewhere = next(each for each in cluster.image.partitions.values() if 4 not in each.hosts)
    request = admin_pb2.Reassignment(topic="orders", partition=elsewhere.number, replicas=[1, 2, 4])
    answer = cluster.ask(reassign_partitions=admin_pb2.ReassignPartitionsRequest(reassignments=[request]))
    assert "node 4 is being drained" in answer.reassign_partitions.results[0].error.message


def test_only_an_empty_node_that_is_down_and_has_no_vote_is_struck_off() -> None:
    cluster = Leaving()
    assert "node 4 is up: stop it first" in cluster.alter(4, REMOVE).error.message
    cluster.pass_time(without=(3, 4), seconds=4)
    assert "node 4 has" in cluster.alter(4, REMOVE).error.message
    cluster.pass_time(without=(4,))
    cluster.alter(4, DRAIN)
    cluster.pass_time(without=(4,))
    cluster.moved()
    assert not cluster.alter(4, REMOVE, validate_only=True).HasField("error")
    assert 4 in cluster.image.brokers
    assert not cluster.alter(4, REMOVE).HasField("error")
    assert 4 not in cluster.image.brokers
    cluster.pass_time(seconds=8)


def test_a_voter_is_not_struck_off() -> None:
    cluster = Leaving(nodes=5)
    cluster.alter(3, DRAIN)
    cluster.pass_time(without=(3,), seconds=4)
    cluster.moved()
    assert "node 3 votes in the metadata quorum: replace its vote first" in cluster.alter(3, REMOVE).error.message


def test_the_id_of_a_node_that_was_struck_off_is_never_used_again() -> None:
    cluster = Leaving(partitions=1)
    cluster.alter(4, DRAIN)
    cluster.pass_time(without=(4,), seconds=4)
    cluster.moved()
    assert not cluster.alter(4, REMOVE).HasField("error")
    cluster.image = MetadataImage.from_snapshot(cluster.image.to_snapshot())
    cluster.take_over()
    for directory in ("dir-4", "another"):
        refused = cluster.ask(register_broker=registration(4, boot=2, directory_id=directory))
        assert refused.error.code == ErrorCode.DUPLICATE_BROKER_REGISTRATION
        assert "a node id that was never used" in refused.error.message


def test_a_node_that_comes_back_while_it_is_struck_off_stays() -> None:
    cluster = Leaving(partitions=1)
    cluster.alter(4, DRAIN)
    cluster.pass_time(without=(4,), seconds=4)
    cluster.moved()
    removal = cluster.decide(alter_node=admin_pb2.AlterNodeRequest(node_id=4, action=REMOVE))
    cluster.beat(4)
    cluster.run_until(cluster.now)
    assert not cluster.image.brokers[4].fenced
    assert "node 4 is up" in cluster.commit(removal).alter_node.error.message
    assert 4 in cluster.image.brokers


def test_partitions_without_a_leader_keep_no_other_on_a_node(monkeypatch: pytest.MonkeyPatch) -> None:
    """Partitions without a leader do not keep others on a node: their moves cannot start, and do not count as under
    way."""
    monkeypatch.setattr(evacuation, "MOVES_AT_ONCE", 2)
    cluster = Leaving(partitions=0)
    alone = admin_pb2.NewTopic(name="alone", num_partitions=-1, replication_factor=-1)
    for _ in range(3):
        alone.replica_assignments.add(replicas=[4])
    together = admin_pb2.NewTopic(name="together", num_partitions=-1, replication_factor=-1)
    together.replica_assignments.add(replicas=[1, 2, 4])
    assert not any(each.HasField("error") for each in cluster.create(alone, together))
    cluster.pass_time(without=(4,), seconds=4)
    assert not cluster.alter(4, DRAIN).HasField("error")
    cluster.pass_time(without=(4,))
    assert len(cluster.image.moves.groups()) == 2, "no node leads: the plan has as many moves as may be under way"
    cluster.led()
    cluster.pass_time(without=(4,), seconds=4)
    [partition] = cluster.image.topics["together"].partitions
    assert partition.target == (1, 2, 3)


def test_a_move_to_a_node_that_leaves_too_is_sent_elsewhere() -> None:
    cluster = Leaving(nodes=5, partitions=0)
    topic = admin_pb2.NewTopic(name="one", num_partitions=-1, replication_factor=-1)
    topic.replica_assignments.add(replicas=[1, 2, 3])
    cluster.create(topic)
    cluster.led()
    cluster.alter(3, DRAIN, successor=4)
    cluster.pass_time()
    [partition] = cluster.image.topics["one"].partitions
    assert partition.target == (1, 2, 4)
    cluster.pass_time(without=(2,), seconds=4)
    cluster.alter(2, DRAIN, successor=5)
    cluster.pass_time(without=(2,))
    assert partition.target == (1, 5, 4), "otherwise it waits for the dead node permanently"


def test_two_nodes_cannot_take_over_from_each_other() -> None:
    cluster = Leaving(nodes=5)
    first = cluster.decide(alter_node=admin_pb2.AlterNodeRequest(node_id=3, action=DRAIN, successor=4))
    second = cluster.decide(alter_node=admin_pb2.AlterNodeRequest(node_id=4, action=DRAIN, successor=3))
    assert not cluster.commit(first).alter_node.HasField("error")
    assert "node 3 cannot take over: it is leaving itself" in cluster.commit(second).alter_node.error.message


def test_a_voter_that_takes_over_leaves_the_quorum_as_it_is() -> None:
    cluster = Leaving(nodes=5)
    assert list(cluster.alter(3, DRAIN, successor=1).voters) == []
    cluster.pass_time()
    assert cluster.image.quorum.voters == ()


def test_a_drain_undoes_no_wish_that_came_before_it_in_the_log() -> None:
    cluster = Leaving()
    cluster.alter(4, DRAIN)
    cluster.now += SECOND
    cluster.beat(1, 2, 3, 4)
    planned = [
        command for command in cluster.controller.on_time(cluster.now, 1) if command.HasField("reassign_replicas")
    ]
    group = planned[0].reassign_replicas.group
    cluster.commit_one(reassign_replicas=log.ReassignReplicas(group=group, replicas=[1]))
    for command in planned:
        cluster.image.apply(cluster.image.applied_index + 1, command)
    assert cluster.image.partitions[group].target == (1,)


def test_what_a_drain_has_proposed_is_not_done_once_the_node_is_to_stay() -> None:
    cluster = Leaving()
    cluster.alter(4, DRAIN)
    cluster.now += SECOND
    cluster.beat(1, 2, 3, 4)
    planned = cluster.controller.on_time(cluster.now, 1)
    assert not cluster.alter(4, UNDRAIN).HasField("error")
    for command in planned:
        cluster.image.apply(cluster.image.applied_index + 1, command)
    assert cluster.image.moves.groups() == []


def test_a_request_that_says_nothing_of_a_node_does_nothing() -> None:
    cluster = Leaving()
    assert "unknown node action 0" in cluster.alter(4, admin_pb2.NODE_ACTION_UNSPECIFIED).error.message
    assert "node -1 is not registered" in cluster.alter(4, DRAIN, successor=-1).error.message


def test_coordinators_come_to_be_while_a_node_leaves() -> None:
    cluster = Leaving(nodes=3, partitions=0)
    assert not cluster.alter(3, DRAIN).HasField("error")
    assert not cluster.ask(create_coordinators=peer_pb2.CreateCoordinators()).HasField("error")
    assert all(len(partition.replicas) == 3 for partition in cluster.image.partitions.values())
    assert cluster.image.partitions


def test_a_topic_that_would_need_a_node_that_leaves_is_refused() -> None:
    cluster = Leaving(nodes=3, partitions=0)
    cluster.alter(3, DRAIN)
    [result] = cluster.create(new_topic("later"))
    assert result.error.code == ErrorCode.INVALID_REPLICATION_FACTOR
    assert "2 of the 3 registered can be used (1 being drained)" in result.error.message


def test_no_replica_is_placed_on_a_node_that_was_struck_off_on_the_way() -> None:
    cluster = Leaving(partitions=1)
    named = admin_pb2.NewTopic(name="named", num_partitions=-1, replication_factor=-1)
    named.replica_assignments.add(replicas=[1, 2, 4])
    more = admin_pb2.NewPartitions(name="orders", total_count=2)
    more.replica_assignments.add(replicas=[1, 2, 4])
    cluster.pass_time(without=(4,), seconds=4)
    cluster.alter(4, DRAIN)
    cluster.pass_time(without=(4,))
    cluster.moved()
    created = cluster.decide(create_topics=admin_pb2.CreateTopicsRequest(topics=[named]))
    grown = cluster.decide(create_partitions=admin_pb2.CreatePartitionsRequest(topics=[more]))
    assert not cluster.alter(4, REMOVE).HasField("error")
    refused = [
        cluster.commit(created).create_topics.results[0].error,
        cluster.commit(grown).create_partitions.results[0].error,
    ]
    for problem in refused:
        assert problem.code == ErrorCode.INVALID_REPLICA_ASSIGNMENT
        assert "node 4 has just been removed from the cluster" in problem.message
    assert "named" not in cluster.image.topics
    assert len(cluster.image.topics["orders"].partitions) == 1
    cluster.commit_one(reassign_replicas=log.ReassignReplicas(group=1000, replicas=[1, 2, 4]))
    assert cluster.image.moves.groups() == []


def test_a_drain_that_would_leave_the_quorum_without_a_majority_is_refused() -> None:
    cluster = Leaving(nodes=5, partitions=0)
    cluster.voters = (1, 2, 3, 4)
    cluster.pass_time(without=(1, 2, 3), seconds=4)
    assert "which is not a majority" in cluster.alter(4, DRAIN, successor=5).error.message


def test_a_vote_on_its_way_to_a_successor_stays_when_the_drain_is_called_off() -> None:
    cluster = Leaving(nodes=5)
    cluster.alter(3, DRAIN, successor=5)
    cluster.pass_time()
    assert cluster.image.quorum.voters == (1, 2, 5)
    assert not cluster.alter(3, UNDRAIN).HasField("error")
    assert cluster.image.quorum.voters == (1, 2, 3)


def test_a_vote_that_was_taken_over_stays_there_when_the_drain_is_called_off() -> None:
    cluster = Leaving(nodes=5)
    cluster.alter(3, DRAIN, successor=5)
    cluster.pass_time()
    cluster.voters = (1, 2, 5)
    assert not cluster.alter(3, UNDRAIN).HasField("error")
    assert cluster.image.quorum.voters == (1, 2, 5)


def test_no_node_is_struck_off_while_voters_change() -> None:
    """No node is removed while the voters change: an entry of the log that is not applied yet may make it a voter."""
    cluster = Leaving(partitions=0)
    cluster.pass_time(without=(4,), seconds=4)
    cluster.quorum_changes = True
    assert "the metadata quorum is being changed" in cluster.alter(4, REMOVE).error.message
    cluster.quorum_changes = False
    assert not cluster.alter(4, REMOVE).HasField("error")

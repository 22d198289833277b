"""The coordinators of groups are created once, in the right number and place, and not before all nodes are up."""

import pytest
from test_controller import Cluster, registration

from quorumlog.server.controller.controller import ControllerOptions
from quorumlog.server.controller.coordinator_creation import CoordinatorPlan
from quorumlog.v1 import admin_pb2, errors_pb2, peer_pb2
from quorumlog.v1 import metadata_log_pb2 as log
from quorumlog.v1.errors_pb2 import ErrorCode
from quorumlog.wire.topic_names import GROUPS_TOPIC

SECOND = 1_000_000


class Planned(Cluster):
    """A controller that is to create coordinators."""

    def __init__(self, nodes: int, plan: CoordinatorPlan, voters: int = 3) -> None:
        super().__init__(nodes)
        self.voters = tuple(range(1, voters + 1))
        self.options = ControllerOptions(coordinators=plan)
        self.take_over()

    def coordinators(self) -> errors_pb2.Error:
        """Requests the creation of the coordinators, and returns the error."""
        response = self.ask(create_coordinators=peer_pb2.CreateCoordinators())
        return response.create_topics.results[0].error

    def replicas(self) -> list[tuple[int, ...]]:
        return [partition.replicas for partition in self.image.topics[GROUPS_TOPIC].partitions]


@pytest.mark.parametrize(
    ("nodes", "voters", "factor", "expected"),
    [(1, 1, 0, 1), (2, 1, 0, 1), (3, 3, 0, 3), (3, 1, 0, 3), (5, 3, 0, 3), (5, 3, 5, 5), (3, 3, 1, 1)],
)
def test_there_are_three_replicas_where_there_are_three_nodes(
    nodes: int, voters: int, factor: int, expected: int
) -> None:
    cluster = Planned(nodes, CoordinatorPlan(6, factor), voters)
    assert cluster.coordinators().code == ErrorCode.NONE
    replicas = cluster.replicas()
    assert [len(nodes) for nodes in replicas] == [expected] * 6
    led = [nodes[0] for nodes in replicas]
    assert max(map(led.count, set(led))) - min(map(led.count, set(led))) <= 1


@pytest.mark.parametrize(("nodes", "plan"), [(2, CoordinatorPlan()), (1, CoordinatorPlan(factor=3))])
def test_they_wait_until_the_nodes_that_they_are_for_have_registered(nodes: int, plan: CoordinatorPlan) -> None:
    cluster = Planned(nodes, plan)
    problem = cluster.coordinators()
    assert problem.code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert problem.retriable
    assert f"{nodes} of 3 nodes have registered" in problem.message
    assert GROUPS_TOPIC not in cluster.image.topics


def test_they_wait_for_the_voters_that_there_are_now() -> None:
    """Coordinators wait for the present voters, even if the quorum has changed since the controller was opened."""
    cluster = Planned(2, CoordinatorPlan())
    cluster.voters = (1,)
    assert cluster.coordinators().code == ErrorCode.NONE


def test_a_node_that_is_down_does_not_hold_them_up_but_two_of_three_do() -> None:
    cluster = Planned(3, CoordinatorPlan(4))
    cluster.beat(3, stopping=True)
    assert cluster.coordinators().code == ErrorCode.NONE
    assert all(set(nodes) == {1, 2, 3} for nodes in cluster.replicas())
    fewer = Planned(3, CoordinatorPlan(4))
    fewer.beat(2, 3, stopping=True)
    assert fewer.coordinators().code == ErrorCode.COORDINATOR_NOT_AVAILABLE


def test_they_are_created_once_also_by_two_who_ask_at_the_same_time() -> None:
    cluster = Planned(3, CoordinatorPlan(4))
    both = [cluster.decide(create_coordinators=peer_pb2.CreateCoordinators()) for _ in range(2)]
    first, second = (cluster.commit(decision).create_topics.results[0].error.code for decision in both)
    assert (first, second) == (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS)
    assert cluster.coordinators().code == ErrorCode.TOPIC_ALREADY_EXISTS
    assert len(cluster.replicas()) == 4


def test_clients_cannot_create_or_change_their_topic() -> None:
    cluster = Planned(3, CoordinatorPlan(4))
    by_hand = admin_pb2.NewTopic(name=GROUPS_TOPIC, num_partitions=1, replication_factor=1)
    assert cluster.create(by_hand)[0].error.code == ErrorCode.INVALID_TOPIC
    assert cluster.coordinators().code == ErrorCode.NONE
    deletion = cluster.ask(delete_topics=admin_pb2.DeleteTopicsRequest(names=[GROUPS_TOPIC]))
    assert deletion.delete_topics.results[0].error.code == ErrorCode.INVALID_TOPIC


def test_witnessed_coordinators_wait_for_a_lost_disk() -> None:
    """Coordinators with a witness are not created while a disk is lost: they are not moved off it automatically, and
    would delay the replacement."""
    cluster = Planned(2, CoordinatorPlan(4))
    cluster.ask(register_broker=registration(3, witness_only=True))
    cluster.beat(3)
    cluster.beat(2, stopping=True)
    directory = cluster.image.brokers[2].registration.directory_id
    cluster.commit_one(replace_disk=log.ReplaceDisk(node_id=2, directory_id=directory, state=log.DISK_STATE_LOST))
    assert cluster.coordinators().code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert GROUPS_TOPIC not in cluster.image.topics

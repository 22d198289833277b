"""Figures of the cluster that the active controller serves."""

from __future__ import annotations

from test_controller import Cluster, new_topic

from quorumlog.server.node.readings import controller_readings
from quorumlog.v1 import peer_pb2


def offline(cluster: Cluster) -> object:
    return controller_readings(cluster.image)["offline_partitions"]


def lead(cluster: Cluster, node: int, number: int, epoch: int) -> None:
    group = cluster.image.topics["orders"].partitions[number].group
    report = peer_pb2.LeaderReport(group=group, leader_epoch=epoch)
    reports = peer_pb2.ReportLeaders(node_id=node, broker_epoch=cluster.epoch(node), reports=[report])
    assert not cluster.ask(report_leaders=reports).HasField("error")


def test_partitions_of_a_fenced_leader_are_offline() -> None:
    """Partitions count as offline while their named leader is fenced: the alert fires until another one reports."""
    cluster = Cluster()
    cluster.create(new_topic(partitions=3))
    assert offline(cluster) == 3, "no node has led them yet"
    for number, node in enumerate((1, 2, 2)):
        lead(cluster, node, number, 1)
    assert offline(cluster) == 0
    cluster.beat(2, stopping=True)
    assert [each.leader for each in cluster.image.topics["orders"].partitions] == [1, 2, 2]
    assert offline(cluster) == 2
    lead(cluster, 3, 1, 2)
    assert offline(cluster) == 1
    readings = controller_readings(cluster.image)
    assert readings["brokers"] == {("active",): 2, ("fenced",): 1}

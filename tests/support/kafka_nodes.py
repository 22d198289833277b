"""Simulated nodes that serve Kafka's clients, with a client at each of them."""

from __future__ import annotations

from typing import TypeVar

from quorumlog.server.config.options import BalanceOptions
from quorumlog.server.kafka.codec.primitives import KafkaMessage
from quorumlog.server.metadata.image import MetadataImage
from quorumlog.server.metadata.records import PartitionRecord
from quorumlog.simulator.world.kafka_link import SimKafkaLink
from quorumlog.v1 import admin_pb2
from tests.support.quiet_cluster import Quiet

KafkaAnswer = TypeVar("KafkaAnswer", bound=KafkaMessage)


def ask_through(cluster: Quiet, link: SimKafkaLink, message: KafkaMessage, kind: type[KafkaAnswer]) -> KafkaAnswer:
    """Asks in the newest version, and waits for the answer."""
    number = link.send(message, message.HIGHEST)
    cluster.until(lambda: number in link.answers or link.end is not None, 20)
    assert link.end is None, link.end
    answer = link.answers[number]
    assert isinstance(answer, kind), answer
    return answer


class KafkaNodes(Quiet):
    """Nodes of which each has a client of Kafka's protocol. Leaderships do not return on their own."""

    def __init__(self, seed: int = 1, nodes: int = 3) -> None:
        balance = BalanceOptions(enabled=False)
        super().__init__(seed, nodes=nodes, balance=balance, kafka=tuple(range(1, nodes + 1)))
        self.until(lambda: self.image.feature_level >= 3 and self.led_by(self.record().group) is not None, 20)
        self.run(0.5)  # All nodes have applied that.
        self.links = {
            node: SimKafkaLink(f"kafka-{node}", self.cluster, node, self.scheduler) for node in self.cluster.node_ids
        }

    @property
    def image(self) -> MetadataImage:
        """The metadata image of the first node."""
        image = self.cluster.processes[1].image
        assert image is not None
        return image

    def record(self, topic: str = "t", partition: int = 0) -> PartitionRecord:
        """Returns the record of a partition in the metadata."""
        return self.image.topics[topic].partitions[partition]

    def ask(self, message: KafkaMessage, kind: type[KafkaAnswer], node: int = 1) -> KafkaAnswer:
        """Asks a node in the newest version, and waits for its answer."""
        return ask_through(self, self.links[node], message, kind)

    def create_on(self, name: str, *replicas: list[int]) -> None:
        """Creates a topic with a partition on each of these lists of nodes, and waits until all are led."""
        answers: list[object] = []
        placed = [admin_pb2.ReplicaAssignment(replicas=each) for each in replicas]
        topic = admin_pb2.NewTopic(name=name, num_partitions=-1, replication_factor=-1, replica_assignments=placed)
        request = admin_pb2.CreateTopicsRequest(topics=[topic], timeout_ms=5_000)
        self.cluster.request("admin", 1, request, answers.append)
        self.until(lambda: bool(answers), 10)
        assert not answers[0].results[0].HasField("error"), answers  # type: ignore[attr-defined]
        self.until(lambda: all(each.leader != -1 for each in self.image.topics[name].partitions), 20)
        self.run(0.5)

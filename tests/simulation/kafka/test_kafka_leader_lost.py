"""Metadata for Kafka's clients about a leader that is gone, requested by hand from simulated nodes.

A client believes that a leader in the metadata leads, and stops asking. Metadata must therefore not name a leader that
is known to be gone.
"""

from __future__ import annotations

import pytest

from quorumlog.raft.group import RaftGroup
from quorumlog.raft.types import NO_NODE
from quorumlog.server.kafka.codec.metadata_requests import MetadataRequest, MetadataRequestTopic
from quorumlog.server.kafka.codec.metadata_responses import MetadataResponse
from quorumlog.server.kafka.codec.primitives import KafkaMessage
from quorumlog.server.kafka.codec.produce_requests import PartitionProduceData, ProduceRequest, TopicProduceData
from quorumlog.server.kafka.codec.produce_responses import PartitionProduceResponse, ProduceResponse
from quorumlog.server.kafka.codec.topic_partition_requests import (
    DescribedTopicRequest,
    DescribeTopicPartitionsRequest,
)
from quorumlog.server.kafka.codec.topic_partition_responses import DescribeTopicPartitionsResponse
from quorumlog.server.kafka.handlers.error_codes import KafkaError
from quorumlog.server.requests.metadata_queries import LATELY_US
from quorumlog.simulator.world.kafka_link import SimKafkaLink
from quorumlog.simulator.world.process import EPOCH_MS
from tests.support.kafka_batches import kafka_batch
from tests.support.kafka_nodes import KafkaNodes
from tests.support.quiet_cluster import TOPIC

WANTED = MetadataRequest([MetadataRequestTopic(name=TOPIC)])


def named(nodes: KafkaNodes, node: int) -> tuple[int, int]:
    """Error code and leader of the partition, as a node reports them."""
    return leader_in(nodes.ask(WANTED, MetadataResponse, node))


def leader_in(answer: KafkaMessage) -> tuple[int, int]:
    assert isinstance(answer, MetadataResponse)
    ((partition,),) = (topic.partitions for topic in answer.topics)
    return partition.error_code, partition.leader_id


class LostLeader:
    """Nodes of which one is about to lead no more.

    Attributes:
        victim: that one.
    """

    def __init__(self, seed: int) -> None:
        self.nodes = KafkaNodes(seed)
        self.group = self.nodes.record().group
        leader = self.nodes.led_by(self.group)
        assert leader is not None
        self.victim = leader
        self.others = sorted({1, 2, 3} - {leader})

    def replica(self, node: int) -> RaftGroup:
        return self.nodes.replicas_of(self.group)[node]

    def has_noticed(self, node: int) -> bool:
        """True if the replica on a node has no leader: neither the former one nor the next."""
        return self.replica(node).leader_id == NO_NODE


def test_a_leader_that_was_killed_is_not_named_by_those_who_have_noticed() -> None:
    lost = LostLeader(seed=1)
    nodes, other = lost.nodes, lost.others[0]
    nodes.cluster.processes[lost.victim].die(silent=False)
    nodes.until(lambda: lost.has_noticed(other), 5)
    code, leader = named(nodes, other)
    assert (code, leader) == (KafkaError.LEADER_NOT_AVAILABLE, NO_NODE) or leader in lost.others
    nodes.until(lambda: nodes.led_by(lost.group) in lost.others, 5)
    nodes.run(0.1)
    assert {named(nodes, node) for node in lost.others} == {(KafkaError.NONE, nodes.led_by(lost.group))}


def test_a_leader_that_stops_is_not_named_once_it_has_handed_over() -> None:
    lost = LostLeader(seed=2)
    nodes = lost.nodes
    nodes.cluster.processes[lost.victim].stop()
    nodes.until(lambda: lost.has_noticed(lost.victim), 5)
    for node in lost.others:
        nodes.cluster.processes[node].pause()  # So that no next leader is announced.
    assert named(nodes, lost.victim) == (KafkaError.LEADER_NOT_AVAILABLE, NO_NODE)


def test_pages_of_topics_say_the_same() -> None:
    lost = LostLeader(seed=3)
    nodes, other = lost.nodes, lost.others[0]
    nodes.cluster.processes[lost.victim].die(silent=False)
    nodes.until(lambda: lost.has_noticed(other), 5)
    page = DescribeTopicPartitionsRequest([DescribedTopicRequest(TOPIC)], 10)
    answer = nodes.ask(page, DescribeTopicPartitionsResponse, other)
    assert answer.topics[0].partitions[0].leader_id != lost.victim


def test_a_node_that_has_just_come_back_names_the_leader_of_the_metadata() -> None:
    lost = LostLeader(seed=4)
    nodes, leader, returning = lost.nodes, lost.victim, lost.others[0]
    nodes.cluster.processes[returning].die(silent=False)
    nodes.run(1)
    nodes.cluster.start(returning)
    nodes.links[returning] = SimKafkaLink("again", nodes.cluster, returning, nodes.scheduler)
    nodes.until(lambda: lost.group in nodes.cluster.processes[returning].replicas, 20)
    for _ in range(5):
        assert named(nodes, returning) == (KafkaError.NONE, leader)


def test_a_node_that_is_cut_off_from_a_leader_whom_others_hear_goes_on_naming_it() -> None:
    lost = LostLeader(seed=5)
    nodes, other = lost.nodes, lost.others[0]
    nodes.cluster.network.cut(other, lost.victim)
    nodes.cluster.network.cut(lost.victim, other)
    nodes.until(lambda: lost.has_noticed(other), 20)
    nodes.run(3)
    assert nodes.led_by(lost.group) == lost.victim
    assert lost.has_noticed(other)
    assert named(nodes, other) == (KafkaError.NONE, lost.victim)


def nodes_told(nodes: KafkaNodes, node: int) -> set[int]:
    return {each.node_id for each in nodes.ask(WANTED, MetadataResponse, node).brokers}


def test_while_leadership_is_handed_over_a_producer_is_told_to_ask_who_leads() -> None:
    lost = LostLeader(seed=6)
    nodes, link = lost.nodes, lost.nodes.links[lost.victim]
    for node in lost.others:
        nodes.cluster.processes[node].pause()  # So that no node takes over for a while.
    nodes.cluster.processes[lost.victim].stop()
    nodes.until(lambda: lost.replica(lost.victim).is_transferring, 5)
    data = [PartitionProduceData(0, kafka_batch([(None, b"refused", EPOCH_MS, [])]))]
    number = link.send(ProduceRequest(None, -1, 5_000, [TopicProduceData(TOPIC, partition_data=data)]), 12)
    request = link.send(WANTED, 12)
    nodes.until(lambda: request in link.answers, 5)
    answer = link.answers[number]
    assert isinstance(answer, ProduceResponse)
    assert answer.responses[0].partition_responses[0].error_code == KafkaError.LEADER_NOT_AVAILABLE
    assert leader_in(link.answers[request]) == (KafkaError.LEADER_NOT_AVAILABLE, NO_NODE)


def test_pipelined_batches_are_refused_alike_during_a_transfer() -> None:
    """A batch waits when its leader hands over, and the next two are refused: none is called out of order, for which
    librdkafka would send all three under another epoch. With the next leader, each is in the log once."""
    lost = LostLeader(seed=8)
    nodes, link = lost.nodes, lost.nodes.links[lost.victim]

    def send(link: SimKafkaLink, sequence: int) -> int:
        batch = kafka_batch(
            [(None, b"%d" % sequence, EPOCH_MS, [])], producer_id=7, producer_epoch=0, base_sequence=sequence
        )
        data = [PartitionProduceData(0, batch)]
        return link.send(ProduceRequest(None, -1, 5_000, [TopicProduceData(TOPIC, partition_data=data)]), 12)

    for node in lost.others:
        nodes.cluster.processes[node].pause()
    send(link, 0)
    nodes.run(0.01)
    nodes.cluster.processes[lost.victim].stop()
    nodes.until(lambda: lost.replica(lost.victim).is_transferring, 5)
    refused = [send(link, 1), send(link, 2)]
    nodes.run(0.01)
    for node in lost.others:
        nodes.cluster.processes[node].resume()
    nodes.until(lambda: refused[-1] in link.answers, 5)
    assert [_produced(link, number).error_code for number in refused] == [KafkaError.LEADER_NOT_AVAILABLE] * 2
    nodes.until(lambda: nodes.led_by(lost.group) in lost.others, 5)
    following = nodes.links[nodes.led_by(lost.group) or 0]
    again = [send(following, sequence) for sequence in range(3)]
    nodes.until(lambda: again[-1] in following.answers, 5)
    answers = [_produced(following, number) for number in again]
    assert [(each.error_code, each.base_offset) for each in answers] == [(KafkaError.NONE, each) for each in range(3)]


def _produced(link: SimKafkaLink, number: int) -> PartitionProduceResponse:
    answer = link.answers[number]
    assert isinstance(answer, ProduceResponse)
    return answer.responses[0].partition_responses[0]


def test_a_node_that_has_stopped_is_told_of_until_clients_have_left_it() -> None:
    lost = LostLeader(seed=7)
    nodes, other = lost.nodes, lost.others[0]
    nodes.cluster.processes[lost.victim].stop()
    nodes.until(lambda: not nodes.cluster.processes[lost.victim].running, 10)
    image = nodes.cluster.processes[other].image
    assert image is not None and image.is_fenced(lost.victim)
    assert nodes_told(nodes, other) == {1, 2, 3}
    nodes.run(LATELY_US / 1_000_000)
    assert nodes_told(nodes, other) == set(lost.others)


@pytest.mark.parametrize("seed", range(8, 12))
def test_who_asks_before_the_news_of_a_death_is_there_is_not_told_of_the_dead(seed: int) -> None:
    lost = LostLeader(seed)
    nodes = lost.nodes
    links = [nodes.links[node] for node in lost.others]
    nodes.cluster.processes[lost.victim].die(silent=False)
    requests = [link.send(WANTED, WANTED.HIGHEST) for link in links]
    nodes.until(lambda: all(number in link.answers for link, number in zip(links, requests, strict=True)), 1)
    reported = [leader_in(link.answers[number]) for link, number in zip(links, requests, strict=True)]
    assert lost.victim not in [leader for _, leader in reported], reported

"""Every topic that is listed can be queried, also the cluster's own; what would change that is refused clearly."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import pytest

from quorumlog.server.kafka.codec import (
    config_requests,
    fetch_requests,
    metadata_requests,
    position_requests,
    produce_requests,
    topic_partition_requests,
    topic_requests,
)
from quorumlog.server.kafka.codec.administration import log_dir_requests, placement_requests
from quorumlog.server.kafka.codec.apis import APIS
from quorumlog.server.kafka.codec.fetch_responses import FetchResponse
from quorumlog.server.kafka.codec.groups import committed_requests
from quorumlog.server.kafka.codec.metadata_responses import MetadataResponse
from quorumlog.server.kafka.codec.position_responses import ListOffsetsResponse, OffsetForLeaderEpochResponse
from quorumlog.server.kafka.codec.primitives import KafkaMessage
from quorumlog.server.kafka.handlers.dispatch import served_versions
from quorumlog.server.kafka.handlers.error_codes import KafkaError
from tests.simulation.kafka.test_kafka_mapping import GROUP, Rig, batch_of, coordinator
from tests.support.quiet_cluster import TOPIC

OWN = "__groups"
_TOPIC_RESOURCE = 2


class Named(NamedTuple):
    """A topic as requests name it, and the leader of its first partition."""

    name: str
    topic_id: bytes
    leader: int


Make = Callable[[Named], KafkaMessage]


def offsets(timestamp: int) -> Make:
    partition = position_requests.ListOffsetsPartition(0, -1, timestamp)
    return lambda topic: position_requests.ListOffsetsRequest(
        -1, 0, [position_requests.ListOffsetsTopic(topic.name, [partition])]
    )


def epoch_end(topic: Named) -> KafkaMessage:
    partition = position_requests.OffsetForLeaderPartition(0, -1, 1)
    return position_requests.OffsetForLeaderEpochRequest(
        -1, [position_requests.OffsetForLeaderTopic(topic.name, [partition])]
    )


def fetch(topic: Named) -> KafkaMessage:
    partition = fetch_requests.FetchPartition(0, -1, 0, partition_max_bytes=1_000)
    return fetch_requests.FetchRequest(
        max_wait_ms=100, min_bytes=1, topics=[fetch_requests.FetchTopic(topic.name, topic.topic_id, [partition])]
    )


def committed(topic: Named) -> KafkaMessage:
    old = committed_requests.OffsetFetchRequestTopic(topic.name, [0])
    new = committed_requests.OffsetFetchRequestTopics(topic.name, topic.topic_id, [0])
    group = committed_requests.OffsetFetchRequestGroup(GROUP, topics=[new])
    return committed_requests.OffsetFetchRequest(GROUP, [old], [group])


def described_topic(topic: Named) -> KafkaMessage:
    return metadata_requests.MetadataRequest([metadata_requests.MetadataRequestTopic(name=topic.name)])


def page(topic: Named) -> KafkaMessage:
    wanted = topic_partition_requests.DescribedTopicRequest(topic.name)
    return topic_partition_requests.DescribeTopicPartitionsRequest([wanted], 100, None)


def configs(topic: Named) -> KafkaMessage:
    resource = config_requests.DescribeConfigsResource(_TOPIC_RESOURCE, topic.name, None)
    return config_requests.DescribeConfigsRequest([resource])


def moves(topic: Named) -> KafkaMessage:
    named = placement_requests.ListPartitionReassignmentsTopics(topic.name, [0])
    return placement_requests.ListPartitionReassignmentsRequest(1_000, [named])


def log_dirs(topic: Named) -> KafkaMessage:
    return log_dir_requests.DescribeLogDirsRequest([log_dir_requests.DescribableLogDirTopic(topic.name, [0])])


#: What reads and changes nothing.
QUERIES: dict[str, Make] = {
    "ListOffsets of the start": offsets(-2),
    "ListOffsets of the end": offsets(-1),
    "ListOffsets of the latest record": offsets(-3),
    "ListOffsets of the local start": offsets(-4),
    "ListOffsets of the tiered end": offsets(-5),
    "ListOffsets of a time": offsets(1_700_000_000_000),
    "OffsetForLeaderEpoch": epoch_end,
    "Fetch": fetch,
    "OffsetFetch": committed,
    "Metadata": described_topic,
    "DescribeTopicPartitions": page,
    "DescribeConfigs": configs,
    "ListPartitionReassignments": moves,
    "DescribeLogDirs": log_dirs,
}


def produce(topic: Named) -> KafkaMessage:
    data = produce_requests.PartitionProduceData(0, batch_of(b"key"))
    return produce_requests.ProduceRequest(
        None, -1, 5_000, [produce_requests.TopicProduceData(topic.name, topic.topic_id, [data])]
    )


def truncation(topic: Named) -> KafkaMessage:
    partition = topic_requests.DeleteRecordsPartition(0, -1)
    return topic_requests.DeleteRecordsRequest([topic_requests.DeleteRecordsTopic(topic.name, [partition])], 1_000)


def growth(topic: Named) -> KafkaMessage:
    return topic_requests.CreatePartitionsRequest([topic_requests.CreatePartitionsTopic(topic.name, 99, None)], 1_000)


def deletion(topic: Named) -> KafkaMessage:
    return topic_requests.DeleteTopicsRequest([topic_requests.DeleteTopicState(topic.name)], [topic.name], 1_000)


def replacement(topic: Named) -> KafkaMessage:
    setting = config_requests.AlterConfigsRequestAlterableConfig("retention.ms", "1000")
    change = config_requests.AlterConfigsRequestAlterConfigsResource(_TOPIC_RESOURCE, topic.name, [setting])
    return config_requests.AlterConfigsRequest([change])


def increment(topic: Named) -> KafkaMessage:
    setting = config_requests.IncrementalAlterConfigsRequestAlterableConfig("retention.ms", 0, "1000")
    change = config_requests.IncrementalAlterConfigsRequestAlterConfigsResource(_TOPIC_RESOURCE, topic.name, [setting])
    return config_requests.IncrementalAlterConfigsRequest([change])


REFUSED: dict[str, Make] = {
    "Produce": produce,
    "DeleteRecords": truncation,
    "CreatePartitions": growth,
    "DeleteTopics": deletion,
    "AlterConfigs": replacement,
    "IncrementalAlterConfigs": increment,
}


class ListedRig(Rig):
    """A cluster with a coordinator, and the topics that it lists to Kafka's clients."""

    def __init__(self) -> None:
        super().__init__()
        self.coordinator = coordinator(self)
        self.run(5)  # Its leaders are elected and known everywhere.
        listed = self.ask(metadata_requests.MetadataRequest(None), 12, MetadataResponse, 1).topics
        self.topics = {
            each.name: Named(each.name, each.topic_id, each.partitions[0].leader_id)
            for each in listed
            if each.name is not None
        }

    def answers(self, make: Make, topic: Named) -> dict[int, KafkaMessage]:
        """The answer to each version of a request: of the coordinator where it names a group, otherwise of the
        leader."""
        message = make(topic)
        node = self.coordinator if isinstance(message, committed_requests.OffsetFetchRequest) else topic.leader
        table, kind = served_versions(), type(message)
        versions = [each for each in range(kind.LOWEST, kind.HIGHEST + 1) if table.find(kind.API_KEY, each) is not None]
        assert versions
        return {each: self.ask(make(topic), each, APIS[kind.API_KEY].response, node) for each in versions}


def codes_in(answer: Any) -> list[int]:
    """All error codes in an answer."""
    if isinstance(answer, list | tuple):
        return [code for each in answer for code in codes_in(each)]
    if not hasattr(answer, "__dataclass_fields__"):
        return []
    own = [answer.error_code] if hasattr(answer, "error_code") else []
    return own + [code for name in answer.__dataclass_fields__ for code in codes_in(getattr(answer, name))]


@pytest.fixture(scope="module")
def rig() -> ListedRig:
    return ListedRig()


def test_own_topics_are_listed(rig: ListedRig) -> None:
    assert {TOPIC, OWN} <= rig.topics.keys()


@pytest.mark.parametrize("what", QUERIES)
@pytest.mark.parametrize("name", [TOPIC, OWN])
def test_listed_topics_can_be_queried(rig: ListedRig, what: str, name: str) -> None:
    """Exporters and consoles list all topics and then query each: an error for one is a line in every scrape."""
    for version, answer in rig.answers(QUERIES[what], rig.topics[name]).items():
        assert set(codes_in(answer)) <= {KafkaError.NONE}, (version, answer)


@pytest.mark.parametrize(
    ("timestamp", "offset"), [(-2, 0), (-1, 0), (-3, -1), (-4, 0), (-5, -1), (1_700_000_000_000, -1)]
)
def test_own_topics_read_as_empty(rig: ListedRig, timestamp: int, offset: int) -> None:
    for version, answer in rig.answers(offsets(timestamp), rig.topics[OWN]).items():
        assert isinstance(answer, ListOffsetsResponse)
        (found,) = answer.topics[0].partitions
        assert (found.offset, found.timestamp) == (offset, -1), version


def test_fetches_of_own_topics_wait(rig: ListedRig) -> None:
    """A consumer of all topics would ask without a pause otherwise."""
    topic = rig.topics[OWN]
    for offset, code, waits in ((0, KafkaError.NONE, True), (1, KafkaError.OFFSET_OUT_OF_RANGE, False)):
        partition = fetch_requests.FetchPartition(0, -1, offset, partition_max_bytes=1_000)
        wanted = fetch_requests.FetchTopic(topic.name, partitions=[partition])
        request = fetch_requests.FetchRequest(max_wait_ms=3_000, min_bytes=1, topics=[wanted])
        began = rig.scheduler.now
        (answer,) = rig.ask(request, 12, FetchResponse, topic.leader).responses[0].partitions
        assert (answer.error_code, answer.high_watermark, answer.log_start_offset) == (code, 0, 0)
        assert (rig.scheduler.now >= began + 3_000_000) is waits


def test_epochs_of_own_topics_end_at_zero(rig: ListedRig) -> None:
    for epoch, end in ((0, (0, 0)), (1_000_000, (-1, -1))):
        partition = position_requests.OffsetForLeaderPartition(0, -1, epoch)
        wanted = position_requests.OffsetForLeaderTopic(OWN, [partition])
        request = position_requests.OffsetForLeaderEpochRequest(-1, [wanted])
        answer = rig.ask(request, 4, OffsetForLeaderEpochResponse, rig.topics[OWN].leader)
        (found,) = answer.topics[0].partitions
        assert (found.error_code, (found.leader_epoch, found.end_offset)) == (KafkaError.NONE, end)


@pytest.mark.parametrize("partition", [-1, 7_000])
def test_own_topics_have_no_other_partitions(rig: ListedRig, partition: int) -> None:
    wanted = position_requests.ListOffsetsTopic(OWN, [position_requests.ListOffsetsPartition(partition, -1, -1)])
    answer = rig.ask(position_requests.ListOffsetsRequest(-1, 0, [wanted]), 7, ListOffsetsResponse, 1)
    assert answer.topics[0].partitions[0].error_code == KafkaError.UNKNOWN_TOPIC_OR_PARTITION


@pytest.mark.parametrize("what", REFUSED)
def test_own_topics_cannot_be_changed(rig: ListedRig, what: str) -> None:
    for version, answer in rig.answers(REFUSED[what], rig.topics[OWN]).items():
        codes = set(codes_in(answer)) - {KafkaError.NONE}
        assert codes == {KafkaError.INVALID_TOPIC_EXCEPTION}, (version, answer)

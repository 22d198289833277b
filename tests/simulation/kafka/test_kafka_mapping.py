"""Results of Kafka's requests, sent by hand to simulated nodes through the shipped connection and mapping."""

from __future__ import annotations

import itertools
from typing import TypeVar

import pytest

from quorumlog.server.config.options import NodeLimits
from quorumlog.server.kafka.codec import (
    config_requests,
    fetch_requests,
    metadata_requests,
    position_requests,
    produce_requests,
    topic_requests,
)
from quorumlog.server.kafka.codec.config_responses import (
    AlterConfigsResponse,
    DescribeConfigsResponse,
    IncrementalAlterConfigsResponse,
)
from quorumlog.server.kafka.codec.fetch_responses import FetchResponse, PartitionData
from quorumlog.server.kafka.codec.groups import (
    commit_requests,
    committed_requests,
    group_requests,
    membership_requests,
)
from quorumlog.server.kafka.codec.groups.commit_responses import OffsetCommitResponse, OffsetDeleteResponse
from quorumlog.server.kafka.codec.groups.committed_responses import OffsetFetchResponse
from quorumlog.server.kafka.codec.groups.group_responses import (
    DeleteGroupsResponse,
    DescribeGroupsResponse,
    ListGroupsResponse,
)
from quorumlog.server.kafka.codec.groups.membership_responses import (
    FindCoordinatorResponse,
    GroupHeartbeatResponse,
    JoinGroupResponse,
    LeaveGroupResponse,
    SyncGroupResponse,
)
from quorumlog.server.kafka.codec.metadata_responses import DescribeClusterResponse, MetadataResponse
from quorumlog.server.kafka.codec.position_responses import ListOffsetsResponse
from quorumlog.server.kafka.codec.primitives import KafkaMessage
from quorumlog.server.kafka.codec.produce_responses import (
    InitProducerIdResponse,
    PartitionProduceResponse,
    ProduceResponse,
)
from quorumlog.server.kafka.codec.topic_responses import (
    CreatePartitionsResponse,
    CreateTopicsResponse,
    DeleteRecordsResponse,
    DeleteTopicsResponse,
)
from quorumlog.server.kafka.connection import KafkaConnectionFault
from quorumlog.server.kafka.handlers.error_codes import KafkaError
from quorumlog.simulator.world.kafka_link import SimKafkaLink
from quorumlog.v1.acls_pb2 import (
    ACL_OPERATION_WRITE,
    ACL_PATTERN_LITERAL,
    ACL_PERMISSION_ALLOW,
    ACL_RESOURCE_TOPIC,
    Acl,
)
from quorumlog.wire.kafka.batch import KafkaCodec, parse_kafka_header, verify_kafka_batch
from tests.support.kafka_batches import changed, kafka_batch
from tests.support.quiet_cluster import TOPIC, Quiet
from tests.support.restricted_cluster import Restricted

Response = TypeVar("Response", bound=KafkaMessage)
_numbers = itertools.count()
#: By name; from 13 on by id.
PRODUCE, FETCH = 12, 12
GROUP = "readers"
#: About when the simulator's clocks start.
WALL_MS = 1_700_000_000_000


def batch_of(*keys: bytes | None, time_ms: int = WALL_MS, **producer: int) -> bytes:
    """A batch with a record of each key. The simulator wants each value to be there once."""
    rows = [(key, b"value %d" % next(_numbers), time_ms, []) for key in keys]
    return kafka_batch(rows, **producer)  # type: ignore[arg-type]


BATCH = batch_of(b"key", None)
TRANSACTIONAL_BATCH = kafka_batch(
    [(b"k", b"v", 1, [])], producer_id=1, producer_epoch=0, base_sequence=0, transactional=True
)


class Rig(Quiet):
    """Three quiet nodes that serve Kafka's clients, one topic with a leader, and a client at each node."""

    def __init__(
        self,
        seed: int = 1,
        *,
        creates_topics: bool = False,
        kafka: tuple[int, ...] = (1, 2, 3),
        limits: NodeLimits | None = None,
    ) -> None:
        super().__init__(seed, kafka=kafka, limits=limits)
        self.until(lambda: self.image.feature_level >= 3 and self.topic_leader() is not None, 20)
        self.run(0.5)  # All nodes have applied that.
        self.links = {
            node: SimKafkaLink(f"kafka-{node}", self.cluster, node, self.scheduler, creates_topics=creates_topics)
            for node in self.cluster.node_ids
        }

    @property
    def image(self):  # type: ignore[no-untyped-def]  # of the first node
        node = self.cluster.processes[1].node
        assert node is not None
        assert node.image is not None
        return node.image

    def topic_leader(self, topic: str = TOPIC) -> int | None:
        record = self.image.topics[topic].partitions[0]
        return self.led_by(record.group)

    def ask(self, message: KafkaMessage, version: int, kind: type[Response], node: int | None = None) -> Response:
        """Asks one node, the topic's leader unless another is named, and waits for its answer."""
        link = self.links[node or self.topic_leader() or 1]
        number = link.send(message, version)
        self.until(lambda: number in link.answers or link.end is not None, 20)
        assert link.end is None, link.end
        answer = link.answers[number]
        assert isinstance(answer, kind)
        return answer

    def produce(
        self,
        batch: bytes | None = BATCH,
        topic: str = TOPIC,
        partition: int = 0,
        *,
        acks: int = -1,
        version: int = PRODUCE,
        node: int | None = None,
    ) -> PartitionProduceResponse:
        answer = self.ask(produce_of(batch, topic, partition, acks=acks), version, ProduceResponse, node)
        return answer.responses[0].partition_responses[0]

    def fetch(
        self, offset: int = 0, topic: str = TOPIC, *, max_wait_ms: int = 0, node: int | None = None, epoch: int = -1
    ) -> PartitionData:
        partition = fetch_requests.FetchPartition(0, epoch, offset, partition_max_bytes=1 << 20)
        request = fetch_requests.FetchRequest(
            max_wait_ms=max_wait_ms, min_bytes=1, topics=[fetch_requests.FetchTopic(topic, partitions=[partition])]
        )
        return self.ask(request, FETCH, FetchResponse, node).responses[0].partitions[0]

    def metadata(self, *names: str, version: int = 12, node: int | None = None) -> MetadataResponse:
        topics = [metadata_requests.MetadataRequestTopic(name=name) for name in names]
        return self.ask(metadata_requests.MetadataRequest(topics), version, MetadataResponse, node)

    def other_node(self) -> int:
        """A node that does not lead the topic."""
        return next(node for node in self.cluster.node_ids if node != self.topic_leader())


def produce_of(
    batch: bytes | None, topic: str = TOPIC, partition: int = 0, *, acks: int = -1, transaction: str | None = None
) -> produce_requests.ProduceRequest:
    data = produce_requests.PartitionProduceData(partition, batch)
    topics = [produce_requests.TopicProduceData(topic, partition_data=[data])]
    return produce_requests.ProduceRequest(transaction, acks, 5_000, topics)


@pytest.fixture(scope="module")
def rig() -> Rig:
    """One for all tests that change nothing which another would notice."""
    return Rig()


@pytest.fixture
def topic(rig: Rig) -> str:
    """A new topic, whose leader may differ from that of the other topics."""
    name = f"topic-{next(_numbers)}"
    rig.create(name)
    rig.until(lambda: rig.topic_leader(name) is not None, 20)
    rig.run(0.5)
    return name


# -- records ------------------------------------------------------------------------------------------------------


def test_a_batch_is_appended_and_comes_back_at_its_offset_with_the_term_of_its_leader() -> None:
    rig = Rig()
    assert rig.produce(BATCH).base_offset == 0
    assert rig.produce(batch_of(b"a", b"b")).base_offset == 2
    answer = rig.fetch()
    records = bytes(answer.records or b"")
    assert (answer.high_watermark, answer.last_stable_offset, answer.log_start_offset) == (4, 4, 0)
    second = records[len(BATCH) :]
    assert parse_kafka_header(second).base_offset == 2
    assert parse_kafka_header(second).leader_epoch > 0
    assert verify_kafka_batch(second).record_count == 2


def test_a_batch_that_was_sent_before_is_appended_once() -> None:
    rig = Rig()
    made = rig.ask(produce_requests.InitProducerIdRequest(None), 4, InitProducerIdResponse)
    assert made.error_code == KafkaError.NONE
    batch = batch_of(b"k", producer_id=made.producer_id, producer_epoch=0, base_sequence=0)
    assert [rig.produce(batch).base_offset, rig.produce(batch).base_offset] == [0, 0]
    assert rig.fetch().high_watermark == 1


def test_a_producer_that_is_not_known_any_more_is_told_where_the_log_begins_and_goes_on_in_another_epoch() -> None:
    """Java's producer sends the same for two minutes if it receives no answer, and gives up."""
    rig = Rig()
    rig.produce()
    place = topic_requests.DeleteRecordsTopic(TOPIC, [topic_requests.DeleteRecordsPartition(0, 2)])
    rig.ask(topic_requests.DeleteRecordsRequest([place], 5_000), 2, DeleteRecordsResponse)
    producer = rig.ask(produce_requests.InitProducerIdRequest(None), 4, InitProducerIdResponse).producer_id
    answer = rig.produce(batch_of(b"k", producer_id=producer, producer_epoch=0, base_sequence=7))
    assert (answer.error_code, answer.log_start_offset) == (KafkaError.UNKNOWN_PRODUCER_ID, 2)
    answer = rig.produce(batch_of(b"k", producer_id=producer, producer_epoch=1, base_sequence=0))
    assert (answer.error_code, answer.base_offset) == (KafkaError.NONE, 2)


def test_a_node_that_does_not_lead_names_the_leader_and_where_it_is(rig: Rig) -> None:
    leader = rig.topic_leader()
    answer = rig.ask(produce_of(BATCH), 12, ProduceResponse, rig.other_node())
    (partition,) = answer.responses[0].partition_responses
    assert partition.error_code == KafkaError.NOT_LEADER_OR_FOLLOWER
    assert partition.current_leader is not None
    assert partition.current_leader.leader_id == leader
    assert [(each.node_id, each.host, each.port) for each in answer.node_endpoints] == [
        (leader, f"node-{leader}", 9092)
    ]
    fetched = rig.fetch(node=rig.other_node())
    assert fetched.error_code == KafkaError.NOT_LEADER_OR_FOLLOWER
    assert fetched.current_leader is not None
    assert fetched.current_leader.leader_id == leader


@pytest.mark.parametrize(
    ("batch", "code"),
    [
        (None, KafkaError.INVALID_RECORD),
        (b"", KafkaError.INVALID_RECORD),
        (BATCH[:40], KafkaError.CORRUPT_MESSAGE),
        (BATCH[:-1] + b"\x99", KafkaError.CORRUPT_MESSAGE),
        (BATCH + BATCH, KafkaError.INVALID_RECORD),
        (BATCH[:16] + b"\x01" + BATCH[17:], KafkaError.UNSUPPORTED_FOR_MESSAGE_FORMAT),
        (TRANSACTIONAL_BATCH, KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED),
    ],
)
def test_a_batch_that_is_not_taken_is_refused_in_kafkas_words(rig: Rig, batch: bytes | None, code: KafkaError) -> None:
    before = rig.fetch().high_watermark
    assert rig.produce(batch).error_code == code
    assert rig.fetch().high_watermark == before


@pytest.mark.parametrize(
    ("request_of", "code"),
    [
        (produce_of(BATCH, "nowhere"), KafkaError.UNKNOWN_TOPIC_OR_PARTITION),
        (produce_of(BATCH, partition=7), KafkaError.UNKNOWN_TOPIC_OR_PARTITION),
        (produce_of(BATCH, partition=-1), KafkaError.UNKNOWN_TOPIC_OR_PARTITION),
        (produce_of(BATCH, acks=2), KafkaError.INVALID_REQUIRED_ACKS),
        (produce_of(BATCH, transaction="t"), KafkaError.INVALID_RECORD),
        (produce_of(BATCH, transaction=""), KafkaError.INVALID_REQUEST),
    ],
    ids=[
        "unknown topic",
        "unknown partition",
        "impossible partition",
        "acks",
        "outside of the transaction",
        "nameless transaction",
    ],
)
def test_a_request_that_makes_no_sense_is_refused_in_kafkas_words(
    rig: Rig, request_of: produce_requests.ProduceRequest, code: KafkaError
) -> None:
    answer = rig.ask(request_of, PRODUCE, ProduceResponse)
    assert answer.responses[0].partition_responses[0].error_code == code


def test_a_partition_that_is_named_twice_is_written_once() -> None:
    rig = Rig()
    request = produce_of(BATCH)
    request.topic_data = [*request.topic_data, *request.topic_data]
    answer = rig.ask(request, PRODUCE, ProduceResponse)
    codes = [each.partition_responses[0].error_code for each in answer.responses]
    assert codes == [KafkaError.NONE, KafkaError.INVALID_REQUEST]
    assert rig.fetch().high_watermark == 2


def test_batches_of_one_request_are_judged_each_for_itself() -> None:
    """Some are checked at once and some beside all else: each answer is about its own batch."""
    names = [f"many-{number}" for number in range(12)]
    rig = Rig()
    for name in names:
        rig.create(name)
    rig.until(lambda: all(rig.topic_leader(name) for name in names), 20)
    leader = rig.topic_leader(names[0])
    mine = [name for name in names if rig.topic_leader(name) == leader]
    kinds = (KafkaCodec.GZIP, KafkaCodec.ZSTD, KafkaCodec.NONE)
    assert len(mine) > 1
    batches = [kafka_batch([(b"k", b"%d" % place, WALL_MS, [])], kinds[place % 3]) for place in range(len(mine))]
    spoiled = [place for place in range(len(mine)) if place % 2]
    for place in spoiled:
        batches[place] = changed(batches[place], 61, ">b", 77)
    topics = [
        produce_requests.TopicProduceData(name, partition_data=[produce_requests.PartitionProduceData(0, batch)])
        for name, batch in zip(mine, batches, strict=True)
    ]
    answer = rig.ask(produce_requests.ProduceRequest(None, -1, 5_000, topics), PRODUCE, ProduceResponse, leader)
    codes = [each.partition_responses[0].error_code for each in answer.responses]
    assert codes == [KafkaError.INVALID_RECORD if place in spoiled else KafkaError.NONE for place in range(len(mine))]
    for name, batch, code in zip(mine, batches, codes, strict=True):
        if code == KafkaError.NONE:
            assert bytes(rig.fetch(topic=name, node=leader).records or b"")[61:] == batch[61:]


def test_topics_are_named_by_their_ids_from_version_13_on() -> None:
    rig = Rig()
    (described,) = rig.metadata(TOPIC).topics
    data = produce_requests.PartitionProduceData(0, BATCH)
    topics = [
        produce_requests.TopicProduceData(topic_id=each, partition_data=[data])
        for each in (described.topic_id, b"\x07" * 16, bytes(16))
    ]
    answer = rig.ask(produce_requests.ProduceRequest(None, -1, 5_000, topics), 13, ProduceResponse)
    assert [(each.topic_id, each.partition_responses[0].error_code) for each in answer.responses] == [
        (described.topic_id, KafkaError.NONE),
        (b"\x07" * 16, KafkaError.UNKNOWN_TOPIC_ID),
        (bytes(16), KafkaError.UNKNOWN_TOPIC_ID),
    ]
    partition = fetch_requests.FetchPartition(0, -1, 0, partition_max_bytes=1 << 20)
    wanted = [
        fetch_requests.FetchTopic(topic_id=each, partitions=[partition]) for each in (described.topic_id, b"\x07" * 16)
    ]
    fetched = rig.ask(fetch_requests.FetchRequest(max_wait_ms=0, topics=wanted), 18, FetchResponse)
    assert [each.partitions[0].error_code for each in fetched.responses] == [0, KafkaError.UNKNOWN_TOPIC_ID]
    assert fetched.responses[0].partitions[0].high_watermark == 2


def test_what_is_sent_without_acknowledgement_has_no_answer_and_ends_the_connection_when_it_is_refused() -> None:
    rig = Rig()
    link = rig.links[rig.topic_leader() or 1]
    unanswered = link.send(produce_of(BATCH, acks=0), PRODUCE)
    rig.until(lambda: rig.fetch().high_watermark == 2, 5)
    assert unanswered not in link.answers
    refused = rig.links[rig.other_node()]
    refused.send(produce_of(BATCH, acks=0), PRODUCE)
    rig.until(lambda: refused.end is not None, 5)
    assert refused.end is not None
    assert refused.end.fault is KafkaConnectionFault.REFUSED


def test_a_fetch_waits_for_records_and_holds_up_what_was_sent_behind_it() -> None:
    rig = Rig()
    leader = rig.topic_leader()
    assert leader is not None
    link = rig.links[leader]
    partition = fetch_requests.FetchPartition(0, -1, 0, partition_max_bytes=1 << 20)
    waits = fetch_requests.FetchRequest(
        max_wait_ms=5_000, min_bytes=1, topics=[fetch_requests.FetchTopic(TOPIC, partitions=[partition])]
    )
    fetch = link.send(waits, FETCH)
    behind = link.send(metadata_requests.MetadataRequest([]), 12)
    rig.run(1)
    assert not link.answers
    assert len(link.begun) == 1
    beside = SimKafkaLink("beside", rig.cluster, leader, rig.scheduler)
    beside.send(produce_of(BATCH), PRODUCE)
    rig.until(lambda: behind in link.answers, 3)
    assert list(link.answers) == [fetch, behind]


def test_a_fetch_with_something_to_refuse_does_not_wait(rig: Rig) -> None:
    began = rig.scheduler.now
    assert rig.fetch(topic="nowhere", max_wait_ms=5_000).error_code == KafkaError.UNKNOWN_TOPIC_OR_PARTITION
    end = rig.fetch().high_watermark
    assert rig.fetch(end + 1, max_wait_ms=5_000).error_code == KafkaError.OFFSET_OUT_OF_RANGE
    assert rig.fetch(-3, max_wait_ms=5_000).error_code == KafkaError.OFFSET_OUT_OF_RANGE
    assert rig.fetch(epoch=1_000, max_wait_ms=5_000).error_code == KafkaError.UNKNOWN_LEADER_EPOCH
    topics = [
        fetch_requests.FetchTopic(name, partitions=[fetch_requests.FetchPartition(0, -1, end, partition_max_bytes=1)])
        for name in (TOPIC, "nowhere")
    ]
    both = rig.ask(fetch_requests.FetchRequest(max_wait_ms=5_000, min_bytes=1, topics=topics), FETCH, FetchResponse)
    assert [each.partitions[0].error_code for each in both.responses] == [0, KafkaError.UNKNOWN_TOPIC_OR_PARTITION]
    assert rig.scheduler.now < began + 2_000_000


def test_a_fetch_that_wants_no_bytes_at_least_does_not_wait(rig: Rig) -> None:
    began, end = rig.scheduler.now, rig.fetch().high_watermark
    partition = fetch_requests.FetchPartition(0, -1, end, partition_max_bytes=1)
    topics = [fetch_requests.FetchTopic(TOPIC, partitions=[partition])]
    rig.ask(fetch_requests.FetchRequest(max_wait_ms=5_000, min_bytes=0, topics=topics), FETCH, FetchResponse)
    assert rig.scheduler.now < began + 1_000_000


@pytest.mark.parametrize("max_bytes", [1, 500])
def test_a_full_fetch_does_not_wait(max_bytes: int) -> None:
    """A client may want more at least than at most."""
    rig = Rig()
    for _ in range(5):
        rig.produce(batch_of(b"key"))
    began = rig.scheduler.now
    partition = fetch_requests.FetchPartition(0, -1, 0, partition_max_bytes=1 << 20)
    topics = [fetch_requests.FetchTopic(TOPIC, partitions=[partition])]
    request = fetch_requests.FetchRequest(max_wait_ms=5_000, min_bytes=1 << 20, max_bytes=max_bytes, topics=topics)
    (answer,) = rig.ask(request, FETCH, FetchResponse).responses[0].partitions
    assert answer.records
    assert rig.scheduler.now < began + 1_000_000


def test_fetches_that_are_turned_away_pause() -> None:
    rig = Rig(limits=NodeLimits(parked_fetches=1))
    leader = rig.topic_leader()
    assert leader is not None
    patient = SimKafkaLink("patient", rig.cluster, leader, rig.scheduler)
    partition = fetch_requests.FetchPartition(0, -1, 0, partition_max_bytes=1 << 20)
    topics = [fetch_requests.FetchTopic(TOPIC, partitions=[partition])]
    waits = fetch_requests.FetchRequest(max_wait_ms=20_000, min_bytes=1, topics=topics)
    patient.send(waits, FETCH)
    rig.run(1)
    began = rig.scheduler.now
    turned_away = rig.ask(waits, FETCH, FetchResponse)
    assert rig.scheduler.now < began + 1_000_000
    assert turned_away.throttle_time_ms >= 100
    assert (turned_away.error_code, turned_away.responses[0].partitions[0].error_code) == (0, 0)
    assert not patient.answers


def test_replicas_and_sessions_are_refused(rig: Rig) -> None:
    request = fetch_requests.FetchRequest(replica_id=1)
    assert rig.ask(request, FETCH, FetchResponse).error_code == KafkaError.INVALID_REQUEST
    request = fetch_requests.FetchRequest(session_id=5, session_epoch=1)
    assert rig.ask(request, FETCH, FetchResponse).error_code == KafkaError.FETCH_SESSION_ID_NOT_FOUND


def test_requests_wait_while_the_node_has_no_room(rig: Rig) -> None:
    link = SimKafkaLink("patient", rig.cluster, 1, rig.scheduler)
    link.is_node_full = True
    number = link.send(metadata_requests.MetadataRequest([]), 12)
    rig.run(1)
    assert not link.begun
    link.is_node_full = False
    link.go_on()
    rig.until(lambda: number in link.answers, 5)


def test_a_client_that_went_away_is_forgotten(rig: Rig) -> None:
    link = SimKafkaLink("hasty", rig.cluster, 1, rig.scheduler)
    link.send(metadata_requests.MetadataRequest([]), 12)
    link.close()
    rig.run(1)
    assert not link.answers


def test_places_are_found_by_time_beginning_end_and_latest_record() -> None:
    rig = Rig()
    base = WALL_MS
    for rows in ([(b"a", b"1", base, []), (b"b", b"2", base + 5_000, [])], [(b"c", b"3", base + 3_000, [])]):
        assert rig.produce(kafka_batch(rows)).error_code == KafkaError.NONE

    def offset(timestamp: int, code: KafkaError = KafkaError.NONE) -> tuple[int, int]:
        partition = position_requests.ListOffsetsPartition(0, -1, timestamp)
        topics = [position_requests.ListOffsetsTopic(TOPIC, [partition])]
        answer = rig.ask(position_requests.ListOffsetsRequest(-1, 0, topics), 11, ListOffsetsResponse)
        (found,) = answer.topics[0].partitions
        assert found.error_code == code
        return found.offset, found.timestamp

    assert offset(-2) == (0, -1)
    assert offset(-4) == (0, -1)
    assert offset(-1) == (3, -1)
    assert offset(base + 1) == (1, base + 5_000)
    assert offset(base + 6_000) == (-1, -1)
    assert offset(-3) == (1, base + 5_000)
    assert offset(-5) == (-1, -1)
    assert offset(-7, KafkaError.INVALID_REQUEST) == (-1, -1)


# -- the cluster --------------------------------------------------------------------------------------------------


def test_nodes_are_told_with_the_addresses_of_kafkas_listener(rig: Rig) -> None:
    answer = rig.metadata(node=2)
    assert sorted((each.node_id, each.host, each.port) for each in answer.brokers) == [
        (1, "node-1", 9092),
        (2, "node-2", 9092),
        (3, "node-3", 9092),
    ]
    assert answer.controller_id == 2
    described = rig.ask(metadata_requests.DescribeClusterRequest(True), 2, DescribeClusterResponse, node=3)
    assert (described.controller_id, len(described.brokers), described.cluster_id) == (3, 3, answer.cluster_id)
    assert described.cluster_authorized_operations > 0


def test_a_leader_without_a_listener_for_kafka_is_not_available() -> None:
    rig = Rig(kafka=())
    (topic,) = rig.metadata(TOPIC).topics
    assert topic.partitions[0].error_code == KafkaError.LEADER_NOT_AVAILABLE
    assert topic.partitions[0].leader_id == -1
    assert rig.metadata().brokers == []


def test_topics_are_described_all_by_name_and_by_id(rig: Rig) -> None:
    (named,) = rig.metadata(TOPIC).topics
    assert [(each.leader_id, each.error_code) for each in named.partitions] == [(rig.topic_leader(), 0)]
    by_id = [metadata_requests.MetadataRequestTopic(each, None) for each in (named.topic_id, b"\x07" * 16)]
    known, unknown = rig.ask(metadata_requests.MetadataRequest(by_id), 12, MetadataResponse).topics
    assert (known.name, unknown.error_code) == (TOPIC, KafkaError.UNKNOWN_TOPIC_ID)
    everything = rig.ask(metadata_requests.MetadataRequest(None), 12, MetadataResponse)
    assert TOPIC in {each.name for each in everything.topics}
    assert rig.ask(metadata_requests.MetadataRequest([]), 12, MetadataResponse).topics == []
    assert TOPIC in {each.name for each in rig.ask(metadata_requests.MetadataRequest([]), 0, MetadataResponse).topics}


def test_a_topic_that_is_mentioned_is_created_only_where_the_node_says_so(rig: Rig) -> None:
    (topic,) = rig.metadata("mentioned").topics
    assert topic.error_code == KafkaError.UNKNOWN_TOPIC_OR_PARTITION
    creating = Rig(creates_topics=True)
    (topic,) = creating.metadata("mentioned").topics
    assert (topic.error_code, len(topic.partitions[0].replica_nodes)) == (KafkaError.NONE, 3)
    unwanted = metadata_requests.MetadataRequest(
        [metadata_requests.MetadataRequestTopic(name="unwanted")], allow_auto_topic_creation=False
    )
    (topic,) = creating.ask(unwanted, 12, MetadataResponse).topics
    assert topic.error_code == KafkaError.UNKNOWN_TOPIC_OR_PARTITION


# -- topics -------------------------------------------------------------------------------------------------------


def creation(*topics: topic_requests.CreatableTopic) -> topic_requests.CreateTopicsRequest:
    return topic_requests.CreateTopicsRequest(topics, 5_000)


def test_topics_are_created_as_kafkas_defaults_have_it_and_told_as_they_are() -> None:
    rig = Rig()
    config = topic_requests.CreatableTopicConfig
    wanted = [
        topic_requests.CreatableTopic("plain", -1, -1),
        topic_requests.CreatableTopic("kept", 2, 1, configs=[config("retention.ms", "5000"), config("flush.ms", "1")]),
        topic_requests.CreatableTopic("unclean", 1, 1, configs=[config("unclean.leader.election.enable", "true")]),
        topic_requests.CreatableTopic("__groups", 1, 1),
        topic_requests.CreatableTopic("twice", 1, 1),
        topic_requests.CreatableTopic("twice", 1, 1),
        topic_requests.CreatableTopic("odd", 1, 1, configs=[config("no.such.key", "1")]),
    ]
    answer = rig.ask(creation(*wanted), 7, CreateTopicsResponse)
    assert [(each.name, each.error_code) for each in answer.topics] == [
        ("plain", KafkaError.NONE),
        ("kept", KafkaError.NONE),
        ("unclean", KafkaError.INVALID_CONFIG),
        ("__groups", KafkaError.INVALID_TOPIC_EXCEPTION),
        ("twice", KafkaError.INVALID_REQUEST),
        ("twice", KafkaError.INVALID_REQUEST),
        ("odd", KafkaError.INVALID_CONFIG),
    ]
    plain, kept = answer.topics[:2]
    assert (plain.num_partitions, plain.replication_factor, kept.num_partitions) == (1, 3, 2)
    assert {each.name: each.value for each in kept.configs or ()}["retention.ms"] == "5000"
    described = rig.metadata("plain", "kept").topics
    assert [each.topic_id for each in described] == [plain.topic_id, kept.topic_id]


def test_underscored_topics_serve_records(rig: Rig) -> None:
    """A topic of a tool whose name starts with ``__`` is like any other; only ``__groups`` is internal."""
    name = "__debezium-heartbeat.shop"
    answer = rig.ask(creation(topic_requests.CreatableTopic(name, 1, 3)), 7, CreateTopicsResponse)
    assert answer.topics[0].error_code == KafkaError.NONE
    coordinator(rig)
    rig.until(lambda: rig.topic_leader(name) is not None, 20)
    leader = rig.topic_leader(name)
    rig.until(lambda: rig.produce(topic=name, node=leader).error_code == KafkaError.NONE, 20)
    assert rig.fetch(topic=name, node=leader).error_code == KafkaError.NONE
    everything = rig.ask(metadata_requests.MetadataRequest(None), 12, MetadataResponse).topics
    assert {topic.name for topic in everything if topic.is_internal} == {"__groups"}
    assert name in {topic.name for topic in everything}


def test_topics_grow_lose_records_and_go() -> None:
    rig = Rig()
    rig.produce()
    rig.produce(batch_of(b"c", b"d"))
    place = topic_requests.DeleteRecordsTopic(TOPIC, [topic_requests.DeleteRecordsPartition(0, 2)])
    deleted = rig.ask(topic_requests.DeleteRecordsRequest([place], 5_000), 2, DeleteRecordsResponse)
    assert [(each.error_code, each.low_watermark) for each in deleted.topics[0].partitions] == [(0, 2)]
    growth = topic_requests.CreatePartitionsRequest([topic_requests.CreatePartitionsTopic(TOPIC, 3, None)], 5_000)
    assert rig.ask(growth, 3, CreatePartitionsResponse).results[0].error_code == KafkaError.NONE
    assert rig.ask(growth, 3, CreatePartitionsResponse).results[0].error_code == KafkaError.INVALID_PARTITIONS
    topic_id = rig.metadata(TOPIC).topics[0].topic_id
    states = [
        topic_requests.DeleteTopicState(None, topic_id),
        topic_requests.DeleteTopicState(None, b"\x07" * 16),
        topic_requests.DeleteTopicState("nowhere"),
    ]
    gone = rig.ask(topic_requests.DeleteTopicsRequest(states, timeout_ms=5_000), 6, DeleteTopicsResponse, node=1)
    assert [(each.name, each.error_code) for each in gone.responses] == [
        (TOPIC, KafkaError.NONE),
        (None, KafkaError.UNKNOWN_TOPIC_ID),
        ("nowhere", KafkaError.UNKNOWN_TOPIC_OR_PARTITION),
    ]


def test_configurations_are_described_replaced_and_changed_key_by_key() -> None:
    rig = Rig()
    topic, node = 2, 4

    def described() -> dict[str, tuple[str | None, int]]:
        resource = config_requests.DescribeConfigsResource(topic, TOPIC, None)
        request = config_requests.DescribeConfigsRequest([resource], include_synonyms=True, include_documentation=True)
        (result,) = rig.ask(request, 4, DescribeConfigsResponse, node=1).results
        return {each.name: (each.value, each.config_source) for each in result.configs}

    def replaced(resource: int, name: str, **values: str | None) -> int:
        configs = [
            config_requests.AlterConfigsRequestAlterableConfig(key.replace("_", "."), value)
            for key, value in values.items()
        ]
        change = config_requests.AlterConfigsRequestAlterConfigsResource(resource, name, configs)
        answer = rig.ask(config_requests.AlterConfigsRequest([change]), 2, AlterConfigsResponse, node=1)
        rig.run(0.5)
        return answer.responses[0].error_code

    def changed(name: str, operation: int, value: str | None = None) -> int:
        config = config_requests.IncrementalAlterConfigsRequestAlterableConfig(name, operation, value)
        change = config_requests.IncrementalAlterConfigsRequestAlterConfigsResource(topic, TOPIC, [config])
        request = config_requests.IncrementalAlterConfigsRequest([change])
        answer = rig.ask(request, 1, IncrementalAlterConfigsResponse, node=1)
        rig.run(0.5)
        return answer.responses[0].error_code

    assert described()["max.message.bytes"] == ("1048588", 5)
    assert replaced(topic, TOPIC, retention_ms="7000", flush_ms="1") == KafkaError.NONE
    assert changed("max.message.bytes", 0, "2000000") == KafkaError.NONE
    assert (described()["retention.ms"], described()["max.message.bytes"]) == (("7000", 1), ("2000000", 1))
    assert changed("retention.ms", 1) == KafkaError.NONE
    assert described()["retention.ms"] == ("604800000", 5)
    assert replaced(topic, TOPIC) == KafkaError.NONE
    assert described()["max.message.bytes"] == ("1048588", 5)
    assert changed("segment.bytes", 0, "1") == KafkaError.NONE
    assert changed("retention.ms", 2, "1") == KafkaError.INVALID_REQUEST
    assert changed("retention.ms", 0) == KafkaError.INVALID_REQUEST
    assert changed("no.such.key", 0, "1") == KafkaError.INVALID_CONFIG
    assert changed("max.compaction.lag.ms", 0, "60000") == KafkaError.NONE
    assert described()["max.compaction.lag.ms"] == ("60000", 1)
    assert changed("min.compaction.lag.ms", 0, "60001") == KafkaError.INVALID_CONFIG
    assert replaced(node, "1", log_retention_ms="1") == KafkaError.INVALID_CONFIG
    assert replaced(node, "1") == KafkaError.NONE, "nothing is set of nodes: what is cleared stays as it is"
    assert replaced(99, "1") == KafkaError.INVALID_REQUEST
    assert replaced(topic, "nowhere", retention_ms="1") == KafkaError.UNKNOWN_TOPIC_OR_PARTITION


@pytest.mark.parametrize(
    ("name", "default", "other"),
    [
        ("unclean.leader.election.enable", "false", "true"),
        ("remote.storage.enable", "false", "true"),
    ],
)
def test_unsupported_keys_have_defaults_only(rig: Rig, topic: str, name: str, default: str, other: str) -> None:
    """Tools send Kafka's defaults; who sets another value relies on it."""
    for value, code in ((default, KafkaError.NONE), (other, KafkaError.INVALID_CONFIG)):
        config = [topic_requests.CreatableTopicConfig(name, value)]
        wanted = topic_requests.CreatableTopic(f"topic-{next(_numbers)}", 1, 1, configs=config)
        (created,) = rig.ask(creation(wanted), 7, CreateTopicsResponse).topics
        changed = rig.ask(
            config_requests.AlterConfigsRequest(
                [
                    config_requests.AlterConfigsRequestAlterConfigsResource(
                        2, topic, [config_requests.AlterConfigsRequestAlterableConfig(name, value)]
                    )
                ]
            ),
            2,
            AlterConfigsResponse,
            1,
        ).responses[0]
        increment = config_requests.IncrementalAlterConfigsRequestAlterableConfig(name, 0, value)
        resource = config_requests.IncrementalAlterConfigsRequestAlterConfigsResource(2, topic, [increment])
        incremental = rig.ask(
            config_requests.IncrementalAlterConfigsRequest([resource]), 1, IncrementalAlterConfigsResponse, 1
        ).responses[0]
        for answer in (created, changed, incremental):
            assert answer.error_code == code, (value, answer)
            if code != KafkaError.NONE:
                assert f"{name} is not supported: leave it out, or set it to {default}" in (answer.error_message or "")


def test_words_are_added_to_the_cleanup_policy() -> None:
    """IncrementalAlterConfigs adds words to a list and removes them (KIP-339), beginning with the default."""
    rig = Rig()

    def changed(operation: int, value: str | None, name: str = "cleanup.policy") -> tuple[int, str | None]:
        config = config_requests.IncrementalAlterConfigsRequestAlterableConfig(name, operation, value)
        change = config_requests.IncrementalAlterConfigsRequestAlterConfigsResource(2, TOPIC, [config])
        request = config_requests.IncrementalAlterConfigsRequest([change])
        answer = rig.ask(request, 1, IncrementalAlterConfigsResponse, node=1)
        rig.run(0.5)
        resource = config_requests.DescribeConfigsResource(2, TOPIC, ["cleanup.policy"])
        described = rig.ask(config_requests.DescribeConfigsRequest([resource]), 4, DescribeConfigsResponse, node=1)
        return answer.responses[0].error_code, described.results[0].configs[0].value

    appended, subtracted = 2, 3
    assert changed(appended, "compact") == (KafkaError.NONE, "delete,compact")
    assert changed(appended, "compact,delete") == (KafkaError.NONE, "delete,compact")
    assert changed(subtracted, "delete") == (KafkaError.NONE, "compact")
    assert changed(subtracted, "delete") == (KafkaError.NONE, "compact")
    assert changed(subtracted, "compact") == (KafkaError.INVALID_CONFIG, "compact")
    assert changed(appended, "shred") == (KafkaError.INVALID_CONFIG, "compact")
    assert changed(appended, None) == (KafkaError.INVALID_REQUEST, "compact")
    assert changed(4, "delete") == (KafkaError.INVALID_REQUEST, "compact")
    assert changed(appended, "1", "retention.ms") == (KafkaError.INVALID_REQUEST, "compact")
    assert changed(0, "compact,delete") == (KafkaError.NONE, "compact,delete")


# -- groups -------------------------------------------------------------------------------------------------------


def coordinator(rig: Rig, group: str = GROUP) -> int:
    """The node that coordinates a group, asked until there is one."""
    request = membership_requests.FindCoordinatorRequest(coordinator_keys=[group])
    for _ in range(100):
        (found,) = rig.ask(request, 6, FindCoordinatorResponse, node=1).coordinators
        if found.error_code == KafkaError.NONE:
            assert found.host == f"node-{found.node_id}"
            return found.node_id
        assert found.error_code in (KafkaError.COORDINATOR_NOT_AVAILABLE, KafkaError.NOT_COORDINATOR)
        rig.run(0.2)
    raise AssertionError("no node coordinates the group")


@pytest.mark.parametrize(
    ("key_type", "code", "reason"),
    [
        (2, KafkaError.INVALID_REQUEST, "share groups are not supported"),
        (99, KafkaError.INVALID_REQUEST, "unknown kind"),
    ],
)
def test_other_coordinators_are_refused(rig: Rig, key_type: int, code: KafkaError, reason: str) -> None:
    """One key before version 4, several from then on."""
    old = rig.ask(membership_requests.FindCoordinatorRequest("t", key_type), 3, FindCoordinatorResponse)
    assert (old.error_code, old.node_id) == (code, -1)
    assert reason in (old.error_message or "")
    new = membership_requests.FindCoordinatorRequest(key_type=key_type, coordinator_keys=["t", "u"])
    found = rig.ask(new, 4, FindCoordinatorResponse).coordinators
    assert [(each.key, each.error_code, each.node_id) for each in found] == [("t", code, -1), ("u", code, -1)]
    assert all(reason in (each.error_message or "") for each in found)


def test_a_member_joins_syncs_lives_commits_and_leaves() -> None:
    rig = Rig()
    node = coordinator(rig)

    def join(member_id: str) -> JoinGroupResponse:
        protocols = [membership_requests.JoinGroupRequestProtocol("range", b"likes")]
        request = membership_requests.JoinGroupRequest(GROUP, 10_000, 10_000, member_id, None, "consumer", protocols)
        return rig.ask(request, 9, JoinGroupResponse, node)

    named = join("")
    assert named.error_code == KafkaError.MEMBER_ID_REQUIRED
    member = named.member_id
    joined = join(member)
    assert (joined.error_code, joined.leader, joined.protocol_name) == (KafkaError.NONE, member, "range")
    assert [each.metadata for each in joined.members] == [b"likes"]
    generation = joined.generation_id
    note = f"{member} {generation} 1"  # By which the simulator finds the member of the commit.
    rig.produce()
    assignments = [membership_requests.SyncGroupRequestAssignment(member, b"all of it")]
    sync = membership_requests.SyncGroupRequest(GROUP, generation, member, None, "consumer", "range", assignments)
    assert rig.ask(sync, 5, SyncGroupResponse, node).assignment == b"all of it"
    beat = membership_requests.GroupHeartbeatRequest(GROUP, generation, member)
    assert rig.ask(beat, 4, GroupHeartbeatResponse, node).error_code == KafkaError.NONE
    beat.generation_id += 5
    assert rig.ask(beat, 4, GroupHeartbeatResponse, node).error_code == KafkaError.ILLEGAL_GENERATION

    partition = commit_requests.OffsetCommitRequestPartition
    topics = [
        commit_requests.OffsetCommitRequestTopic(TOPIC, partitions=[partition(0, 2, 3, note)]),
        commit_requests.OffsetCommitRequestTopic("nowhere", partitions=[partition(0, 2)]),
    ]
    commit = commit_requests.OffsetCommitRequest(GROUP, generation, member, topics=topics)
    committed = rig.ask(commit, 8, OffsetCommitResponse, node)
    assert [each.partitions[0].error_code for each in committed.topics] == [0, KafkaError.UNKNOWN_TOPIC_OR_PARTITION]
    wanted = committed_requests.OffsetFetchRequestGroup(GROUP, topics=None)
    (group,) = rig.ask(committed_requests.OffsetFetchRequest(groups=[wanted]), 8, OffsetFetchResponse, node).groups
    (reported,) = group.topics[0].partitions
    assert (reported.committed_offset, reported.committed_leader_epoch, reported.metadata) == (2, 3, note)
    old = committed_requests.OffsetFetchRequest(GROUP, [committed_requests.OffsetFetchRequestTopic(TOPIC, [0, 1])])
    (topic,) = rig.ask(old, 7, OffsetFetchResponse, node).topics
    assert [each.committed_offset for each in topic.partitions] == [2, -1]

    described = rig.ask(group_requests.DescribeGroupsRequest([GROUP, "nobody"], True), 5, DescribeGroupsResponse, node)
    assert [each.group_state for each in described.groups] == ["Stable", "Dead"]
    assert described.groups[0].members[0].member_assignment == b"all of it"
    listed = rig.ask(group_requests.ListGroupsRequest([], ["Classic"]), 5, ListGroupsResponse, node)
    assert [(each.group_id, each.group_type) for each in listed.groups] == [(GROUP, "classic")]
    for states, kinds in ((["Empty"], []), ([], ["consumer"]), (["NoSuchState"], [])):
        assert rig.ask(group_requests.ListGroupsRequest(states, kinds), 5, ListGroupsResponse, node).groups == []
    delete = group_requests.DeleteGroupsRequest([GROUP])
    assert rig.ask(delete, 2, DeleteGroupsResponse, node).results[0].error_code == KafkaError.NON_EMPTY_GROUP

    leave = membership_requests.LeaveGroupRequest(GROUP, members=[membership_requests.MemberIdentity(member)])
    left = rig.ask(leave, 5, LeaveGroupResponse, node)
    assert [each.error_code for each in left.members] == [KafkaError.NONE]
    gone = membership_requests.LeaveGroupRequest(GROUP, member)
    assert rig.ask(gone, 2, LeaveGroupResponse, node).error_code == KafkaError.UNKNOWN_MEMBER_ID
    places = [commit_requests.OffsetDeleteRequestPartition(0)]
    offsets = commit_requests.OffsetDeleteRequest(GROUP, [commit_requests.OffsetDeleteRequestTopic(TOPIC, places)])
    deleted = rig.ask(offsets, 0, OffsetDeleteResponse, node)
    assert (deleted.error_code, deleted.topics[0].partitions[0].error_code) == (0, 0)
    assert rig.ask(delete, 2, DeleteGroupsResponse, node).results[0].error_code == KafkaError.NONE


def test_a_name_that_a_request_repeats_is_answered_at_length_once() -> None:
    rig = Rig()
    node = coordinator(rig)
    described = rig.ask(group_requests.DescribeGroupsRequest([GROUP] * 3), 6, DescribeGroupsResponse, node)
    assert [each.group_id for each in described.groups] == [GROUP]
    wanted = [committed_requests.OffsetFetchRequestGroup(GROUP, topics=None)] * 3
    fetched = rig.ask(committed_requests.OffsetFetchRequest(groups=wanted), 8, OffsetFetchResponse, node)
    assert {each.error_code for each in fetched.groups} == {KafkaError.INVALID_REQUEST}
    resources = [config_requests.DescribeConfigsResource(2, TOPIC, None)] * 3
    reported = rig.ask(config_requests.DescribeConfigsRequest(resources), 4, DescribeConfigsResponse, node=1).results
    assert [(each.error_code, bool(each.configs)) for each in reported] == [
        (KafkaError.NONE, True),
        (KafkaError.INVALID_REQUEST, False),
        (KafkaError.INVALID_REQUEST, False),
    ]


def test_a_node_that_does_not_coordinate_a_group_says_so() -> None:
    rig = Rig()
    other = next(node for node in rig.cluster.node_ids if node != coordinator(rig))
    beat = membership_requests.GroupHeartbeatRequest(GROUP, 1, "member")
    assert rig.ask(beat, 4, GroupHeartbeatResponse, other).error_code == KafkaError.NOT_COORDINATOR
    described = rig.ask(group_requests.DescribeGroupsRequest([GROUP]), 6, DescribeGroupsResponse, other)
    assert described.groups[0].error_code == KafkaError.NOT_COORDINATOR


# -- permission ---------------------------------------------------------------------------------------------------


def test_kafkas_clients_may_do_what_rules_say_of_the_anonymous() -> None:
    cluster = Restricted(1, kafka=(1, 2, 3))
    cluster.run(1)
    leader = next(node for node, raft in cluster.replicas_of(cluster.groups()[0]).items() if raft.is_leader)
    link = SimKafkaLink("stranger", cluster.cluster, leader, cluster.scheduler)

    def ask(message: KafkaMessage, version: int, kind: type[Response]) -> Response:
        number = link.send(message, version)
        cluster.until(lambda: number in link.answers, 20)
        answer = link.answers[number]
        assert isinstance(answer, kind)
        return answer

    def produced() -> int:
        answer = ask(produce_of(batch_of(b"key")), PRODUCE, ProduceResponse)
        return answer.responses[0].partition_responses[0].error_code

    assert produced() == KafkaError.UNKNOWN_TOPIC_OR_PARTITION, "a user who may not describe a topic sees none"
    unknown = ask(produce_of(batch_of(b"key"), "nowhere"), PRODUCE, ProduceResponse)
    assert unknown.responses[0].partition_responses[0].error_code == KafkaError.UNKNOWN_TOPIC_OR_PARTITION
    assert ask(metadata_requests.MetadataRequest(None), 12, MetadataResponse).topics == []
    beat = membership_requests.GroupHeartbeatRequest(GROUP, 1, "member")
    assert ask(beat, 4, GroupHeartbeatResponse).error_code == KafkaError.GROUP_AUTHORIZATION_FAILED
    cluster.allow(
        Acl(
            principal="User:ANONYMOUS",
            operation=ACL_OPERATION_WRITE,
            permission=ACL_PERMISSION_ALLOW,
            resource_type=ACL_RESOURCE_TOPIC,
            resource_name=TOPIC,
            pattern_type=ACL_PATTERN_LITERAL,
        )
    )
    assert produced() == KafkaError.NONE


# -- requests that no client sends --------------------------------------------------------------------------------


def test_a_request_about_more_than_a_node_takes_ends_its_connection(rig: Rig) -> None:
    link = SimKafkaLink("greedy", rig.cluster, 1, rig.scheduler)
    topics = [metadata_requests.MetadataRequestTopic(name=f"t{number}") for number in range(10_001)]
    link.send(metadata_requests.MetadataRequest(topics), 12)
    assert link.end is not None
    assert link.end.fault is KafkaConnectionFault.REFUSED
    assert "10001 items" in link.end.detail


def test_a_batch_with_damaged_records_is_refused_by_a_compacted_topic_and_ends_nothing() -> None:
    rig = Rig()
    config = [topic_requests.CreatableTopicConfig("cleanup.policy", "compact")]
    rig.ask(creation(topic_requests.CreatableTopic("compacted", 1, 3, configs=config)), 7, CreateTopicsResponse)
    rig.until(lambda: rig.topic_leader("compacted") is not None, 20)
    rig.run(0.5)
    leader = rig.topic_leader("compacted")
    keyed = batch_of(b"key")
    assert rig.produce(keyed, "compacted", node=leader).error_code == KafkaError.NONE
    assert rig.produce(BATCH, "compacted", node=leader).error_code == KafkaError.INVALID_RECORD
    damaged = keyed[:-6] + bytes(6)
    assert rig.produce(damaged, "compacted", node=leader).error_code in (
        KafkaError.INVALID_RECORD,
        KafkaError.CORRUPT_MESSAGE,
    )


def test_batches_behind_one_that_is_looked_at_stay_behind_it() -> None:
    rig = Rig()
    config = [topic_requests.CreatableTopicConfig("cleanup.policy", "compact")]
    rig.ask(creation(topic_requests.CreatableTopic("compacted", 2, 3, configs=config)), 7, CreateTopicsResponse)
    rig.until(lambda: rig.topic_leader("compacted") is not None, 20)
    rig.run(0.5)
    link = rig.links[rig.topic_leader("compacted") or 1]
    made = rig.ask(produce_requests.InitProducerIdRequest(None), 4, InitProducerIdResponse)
    # The first is compressed: its records are read beside the steps, and those of the second at once.
    batches = [
        kafka_batch(
            [(b"key", b"looked at %d" % sequence, WALL_MS, [])],
            codec,
            producer_id=made.producer_id,
            producer_epoch=0,
            base_sequence=sequence,
        )
        for sequence, codec in enumerate((KafkaCodec.GZIP, KafkaCodec.NONE))
    ]
    both = produce_of(batches[0], "compacted")
    # A batch of another partition is before it, and is looked at first.
    other = produce_requests.PartitionProduceData(1, batch_of(b"key"))
    both.topic_data[0].partition_data = [other, *both.topic_data[0].partition_data]
    numbers = [link.send(both, PRODUCE), link.send(produce_of(batches[1], "compacted"), PRODUCE)]
    rig.until(lambda: numbers[-1] in link.answers, 10)
    answers = [link.answers[number] for number in numbers]
    offsets = [each.responses[0].partition_responses[-1].base_offset for each in answers]  # type: ignore[attr-defined]
    assert offsets == [0, 1]

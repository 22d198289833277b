"""Transactions of Kafka's clients, as simulated nodes serve them: requests of both versions, and their errors."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from functools import partial
from itertools import count
from typing import NamedTuple

import pytest

from quorumlog.server.deciding.finder import coordinator_of
from quorumlog.server.kafka.codec.administration.transaction_requests import (
    DescribeProducersRequest,
    DescribeTransactionsRequest,
    ListTransactionsRequest,
    ProducersTopic,
)
from quorumlog.server.kafka.codec.administration.transaction_responses import (
    DescribedTransaction,
    DescribeProducersResponse,
    DescribeTransactionsResponse,
    ListTransactionsResponse,
)
from quorumlog.server.kafka.codec.fetch_requests import FetchPartition, FetchRequest, FetchTopic
from quorumlog.server.kafka.codec.fetch_responses import FetchResponse
from quorumlog.server.kafka.codec.groups.commit_requests import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from quorumlog.server.kafka.codec.groups.commit_responses import TxnOffsetCommitResponse
from quorumlog.server.kafka.codec.groups.membership_requests import FindCoordinatorRequest
from quorumlog.server.kafka.codec.groups.membership_responses import FindCoordinatorResponse
from quorumlog.server.kafka.codec.primitives import KafkaMessage
from quorumlog.server.kafka.codec.produce_requests import (
    InitProducerIdRequest,
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from quorumlog.server.kafka.codec.produce_responses import InitProducerIdResponse, ProduceResponse
from quorumlog.server.kafka.codec.transaction_requests import (
    AddOffsetsToTxnRequest,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    EndTxnRequest,
)
from quorumlog.server.kafka.codec.transaction_responses import (
    AddOffsetsToTxnResponse,
    AddPartitionsToTxnResponse,
    EndTxnResponse,
)
from quorumlog.server.kafka.handlers.error_codes import KafkaError
from quorumlog.simulator.models.coordinator_model import OUTSIDER, CommitLabel
from quorumlog.simulator.world.kafka_link import SimKafkaLink
from quorumlog.wire.topic_names import TRANSACTIONS_TOPIC
from tests.support.kafka_batches import kafka_batch
from tests.support.kafka_nodes import KafkaAnswer, KafkaNodes
from tests.support.quiet_cluster import TOPIC

_numbers = itertools.count()
TIMEOUT_MS = 60_000
COMMITTED = 1
#: Versions of Produce and EndTxn of clients that keep their epoch, and of those that get one with each transaction.
OLD, NEW = (11, 4), (12, 5)
#: Kinds of coordinators.
OF_GROUPS, OF_TRANSACTIONS = 0, 1
RETRIED = (KafkaError.COORDINATOR_NOT_AVAILABLE, KafkaError.NOT_COORDINATOR, KafkaError.CONCURRENT_TRANSACTIONS)


class Identity(NamedTuple):
    """A producer id with its epoch."""

    producer_id: int
    epoch: int


NO_IDENTITY = Identity(-1, -1)


def _is_answered(link: SimKafkaLink, number: int) -> bool:
    return number in link.answers or link.end is not None


class Producer:
    """A transactional producer, with a connection to each node.

    Arguments:
        name: its transactional id.
    """

    def __init__(self, nodes: KafkaNodes, name: str) -> None:
        self.nodes = nodes
        self.name = name
        self.identity = NO_IDENTITY
        self.sequence = 0
        self.coordinator = self._find(name)
        self.links = self.connect()

    def move(self, is_wanted: Callable[[int], bool]) -> None:
        """Pauses the node of the coordinator until another one leads it, until that is a wanted one. Connections
        stay."""
        group = coordinator_of(self.nodes.image.topics[TRANSACTIONS_TOPIC], self.name).group
        while not is_wanted(self.coordinator):
            paused = self.nodes.cluster.processes[self.coordinator]
            paused.pause()
            self.nodes.until(lambda: self.nodes.led_by(group) not in (None, self.coordinator), 30)
            paused.resume()
            self.nodes.run(2)
            self.coordinator = self._find(self.name)

    def connect(self) -> dict[int, SimKafkaLink]:
        """Opens another connection to each node, and uses these from now on."""
        cluster = self.nodes.cluster
        self.links = {
            node: SimKafkaLink(f"{self.name}-{next(_numbers)}", cluster, node, self.nodes.scheduler)
            for node in cluster.node_ids
        }
        return self.links

    def _find(self, key: str, kind: int = OF_TRANSACTIONS) -> int:
        request = FindCoordinatorRequest(key_type=kind, coordinator_keys=[key])
        for _ in range(100):
            (found,) = self.nodes.ask(request, FindCoordinatorResponse).coordinators
            if found.error_code == KafkaError.NONE:
                assert (found.host, found.port) == (f"node-{found.node_id}", 9092)
                return found.node_id
            assert found.error_code in RETRIED, found
            self.nodes.run(0.2)
        raise AssertionError(f"no node coordinates {key}")

    def ask(
        self, message: KafkaMessage, version: int, kind: type[KafkaAnswer], link: SimKafkaLink | None = None
    ) -> KafkaAnswer:
        """Asks the coordinator until it does not want the request again."""
        link = link or self.links[self.coordinator]
        for _ in range(100):
            number = link.send(message, version)
            self.nodes.until(partial(_is_answered, link, number), 20)
            assert link.end is None, link.end
            answer = link.answers.pop(number)
            assert isinstance(answer, kind)
            if getattr(answer, "error_code", 0) not in RETRIED:
                return answer
            self.nodes.run(0.1)
        raise AssertionError(f"the coordinator does not serve {message}")

    def init(self, version: int = 5, *, had: Identity = NO_IDENTITY, timeout_ms: int = TIMEOUT_MS) -> KafkaError:
        answer = self.ask(InitProducerIdRequest(self.name, timeout_ms, *had), version, InitProducerIdResponse)
        if answer.error_code == KafkaError.NONE:
            self.identity, self.sequence = Identity(answer.producer_id, answer.producer_epoch), 0
        return KafkaError(answer.error_code)

    def add(self, topics: dict[str, list[int]], version: int = 3) -> dict[tuple[str, int], KafkaError]:
        """Adds partitions. Returns the code of each."""
        named = [AddPartitionsToTxnTopic(name, partitions) for name, partitions in topics.items()]
        request = AddPartitionsToTxnRequest(self.name, *self.identity, named)
        answer = self.ask(request, version, AddPartitionsToTxnResponse)
        return {
            (topic.name, each.partition_index): KafkaError(each.partition_error_code)
            for topic in answer.results_by_topic_v3_and_below
            for each in topic.results_by_partition
        }

    def produce(self, topic: str, version: int, *, transactional: bool = True, named: bool = True) -> KafkaError:
        """Produces one record. Returns the code, also if it means to try again."""
        rows = [(b"key", b"value %d" % next(_numbers), 1_700_000_000_000, [])]
        batch = kafka_batch(
            rows,
            producer_id=self.identity.producer_id,
            producer_epoch=self.identity.epoch,
            base_sequence=self.sequence,
            transactional=transactional,
        )
        data = [TopicProduceData(topic, partition_data=[PartitionProduceData(0, batch)])]
        request = ProduceRequest(self.name if named else None, -1, 5_000, data)
        leader = self.nodes.led_by(self.nodes.record(topic).group)
        assert leader is not None
        answer = self.ask(request, version, ProduceResponse, self.links[leader])
        code = KafkaError(answer.responses[0].partition_responses[0].error_code)
        self.sequence += code is KafkaError.NONE
        return code

    def commit_offset(self, topic: str, version: int, links: dict[int, SimKafkaLink]) -> KafkaError:
        """Commits an offset of a group that is named as the producer, in the transaction."""
        part = TxnOffsetCommitRequestPartition(0, 0, -1, str(CommitLabel(OUTSIDER, -1, next(_numbers))))
        topics = [TxnOffsetCommitRequestTopic(topic, [part])]
        request = TxnOffsetCommitRequest(self.name, self.name, *self.identity, topics=topics)
        for _ in range(100):
            link = links[self._find(self.name, OF_GROUPS)]
            answer = self.ask(request, version, TxnOffsetCommitResponse, link)
            code = KafkaError(answer.topics[0].partitions[0].error_code)
            if code not in (*RETRIED, KafkaError.COORDINATOR_LOAD_IN_PROGRESS):
                return code
            self.nodes.run(0.1)
        raise AssertionError("the coordinator of the group does not store the offset")

    def end(self, version: int, *, commit: bool = True, link: SimKafkaLink | None = None) -> KafkaError:
        request = EndTxnRequest(self.name, *self.identity, commit)
        answer = self.ask(request, version, EndTxnResponse, link)
        if answer.error_code == KafkaError.NONE and version >= 5:
            self.identity, self.sequence = Identity(answer.producer_id, answer.producer_epoch), 0
        return KafkaError(answer.error_code)


def committed(nodes: KafkaNodes, topic: str) -> tuple[int, int, list[int]]:
    """Returns the last stable offset, the high watermark, and where aborted transactions start."""
    partition = FetchPartition(0, -1, 0, partition_max_bytes=1 << 20)
    request = FetchRequest(
        max_wait_ms=0,
        min_bytes=0,
        isolation_level=COMMITTED,
        session_epoch=-1,
        topics=[FetchTopic(topic, nodes.image.topics[topic].topic_id, [partition])],
    )
    leader = nodes.led_by(nodes.record(topic).group)
    assert leader is not None
    answer = nodes.ask(request, FetchResponse, leader).responses[0].partitions[0]
    assert answer.error_code == KafkaError.NONE
    aborted = [each.first_offset for each in answer.aborted_transactions or ()]
    return answer.last_stable_offset, answer.high_watermark, aborted


@pytest.fixture(scope="module")
def nodes() -> KafkaNodes:
    return KafkaNodes()


@pytest.fixture
def topic(nodes: KafkaNodes) -> str:
    """A new topic."""
    name = f"topic-{next(_numbers)}"
    nodes.create_on(name, [1, 2, 3])
    return name


@pytest.fixture
def producer(nodes: KafkaNodes) -> Producer:
    """A new producer, with an identity."""
    made = Producer(nodes, f"producer-{next(_numbers)}")
    assert made.init() is KafkaError.NONE
    return made


def test_old_clients_commit_and_abort(nodes: KafkaNodes, topic: str, producer: Producer) -> None:
    identity = producer.identity
    for number, commit in enumerate((True, False)):
        assert producer.add({topic: [0]}) == {(topic, 0): KafkaError.NONE}
        assert producer.produce(topic, OLD[0]) is KafkaError.NONE
        assert committed(nodes, topic)[0] == 2 * number
        assert producer.end(OLD[1], commit=commit) is KafkaError.NONE
    assert producer.identity == identity
    assert committed(nodes, topic) == (4, 4, [2])


def test_new_clients_get_an_epoch_for_each_transaction(nodes: KafkaNodes, topic: str, producer: Producer) -> None:
    """Leaders add the partitions of clients that speak version 2 of transactions (KIP-890)."""
    epochs = [producer.identity.epoch]
    for commit in (True, False):
        assert producer.produce(topic, NEW[0]) is KafkaError.NONE
        assert producer.end(NEW[1], commit=commit) is KafkaError.NONE
        epochs.append(producer.identity.epoch)
    assert epochs == [0, 1, 2]
    assert committed(nodes, topic) == (4, 4, [2])


def test_old_clients_add_partitions_first(topic: str, producer: Producer) -> None:
    assert producer.produce(topic, OLD[0]) is KafkaError.INVALID_TXN_STATE


def test_batches_and_requests_are_both_of_a_transaction(nodes: KafkaNodes, topic: str, producer: Producer) -> None:
    assert producer.produce(topic, NEW[0], transactional=False) is KafkaError.INVALID_RECORD
    assert producer.produce(topic, NEW[0], named=False) is KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    assert committed(nodes, topic)[1] == 0


def test_former_instances_are_fenced(topic: str, producer: Producer) -> None:
    """Old versions of requests have the code for it that their clients understand (KIP-588)."""
    assert producer.produce(topic, NEW[0]) is KafkaError.NONE
    assert Producer(producer.nodes, producer.name).init() is KafkaError.NONE
    assert producer.produce(topic, NEW[0]) is KafkaError.INVALID_PRODUCER_EPOCH
    for version, code in ((1, KafkaError.INVALID_PRODUCER_EPOCH), (2, KafkaError.PRODUCER_FENCED)):
        assert producer.end(version) is code
        assert producer.add({topic: [0]}, version) == {(topic, 0): code}
        group = AddOffsetsToTxnRequest(producer.name, *producer.identity, "readers")
        assert producer.ask(group, version, AddOffsetsToTxnResponse).error_code == code
    for version, code in ((3, KafkaError.INVALID_PRODUCER_EPOCH), (4, KafkaError.PRODUCER_FENCED)):
        assert producer.init(version, had=producer.identity) is code
        assert producer.init(version, had=Identity(producer.identity.producer_id + 1_000_000, 0)) is code


def test_producers_go_on_after_an_error(producer: Producer) -> None:
    """A producer that presents its identity gets the next epoch; its repetition gets the same one (KIP-360)."""
    first = producer.identity
    for _ in range(2):
        assert producer.init(had=first) is KafkaError.NONE
        assert producer.identity == Identity(first.producer_id, first.epoch + 1)


def test_impossible_producers_are_refused(producer: Producer) -> None:
    for timeout_ms in (-1, 0, 1 << 30):
        assert producer.init(timeout_ms=timeout_ms) is KafkaError.INVALID_TRANSACTION_TIMEOUT
    assert producer.init(had=Identity(-1, 0)) is KafkaError.INVALID_REQUEST
    assert producer.init(had=Identity(7, -1)) is KafkaError.INVALID_REQUEST
    answer = producer.ask(InitProducerIdRequest("", TIMEOUT_MS), 5, InitProducerIdResponse)
    assert answer.error_code == KafkaError.INVALID_REQUEST


def test_partitions_are_added_all_or_none(topic: str, producer: Producer) -> None:
    assert producer.add({topic: [0], "nowhere": [0]}) == {
        (topic, 0): KafkaError.OPERATION_NOT_ATTEMPTED,
        ("nowhere", 0): KafkaError.UNKNOWN_TOPIC_OR_PARTITION,
    }
    for partition in (-1, 7):
        unknown = KafkaError.UNKNOWN_TOPIC_OR_PARTITION
        assert producer.add({topic: [0, partition]}) == {(topic, 0): unknown, (topic, partition): unknown}
    assert producer.add({}) == {}
    assert producer.end(OLD[1]) is KafkaError.INVALID_TXN_STATE


def test_groups_have_names(producer: Producer) -> None:
    request = AddOffsetsToTxnRequest(producer.name, *producer.identity, "")
    assert producer.ask(request, 4, AddOffsetsToTxnResponse).error_code == KafkaError.INVALID_GROUP_ID


def test_late_requests_on_older_connections_are_refused(nodes: KafkaNodes, topic: str, producer: Producer) -> None:
    """An old client repeats EndTxn on another connection, and starts its next transaction. Then the first EndTxn
    arrives (KAFKA-17754)."""
    former = producer.links[producer.coordinator]
    producer.add({topic: [0]})
    assert producer.produce(topic, OLD[0]) is KafkaError.NONE
    producer.connect()
    assert producer.end(OLD[1]) is KafkaError.NONE
    assert producer.add({topic: [0]}) == {(topic, 0): KafkaError.NONE}
    assert producer.produce(topic, OLD[0]) is KafkaError.NONE
    assert producer.end(OLD[1], link=former) is KafkaError.INVALID_TXN_STATE
    assert committed(nodes, topic)[0] == 2, "the transaction is open"
    assert producer.produce(topic, OLD[0]) is KafkaError.NONE
    assert producer.end(OLD[1]) is KafkaError.NONE
    assert committed(nodes, topic) == (5, 5, [])


def test_late_offsets_on_older_connections_are_refused(topic: str, producer: Producer) -> None:
    """An old client repeats TxnOffsetCommit on another connection, and starts its next transaction. Then the first one
    arrives: its offsets would be committed with the wrong transaction."""
    producer._find(producer.name, OF_GROUPS)
    producer.connect()  # An older connection would be closed: the term of the group's coordinator has just started.
    group = AddOffsetsToTxnRequest(producer.name, *producer.identity, producer.name)
    for _ in range(2):
        assert producer.ask(group, 3, AddOffsetsToTxnResponse).error_code == KafkaError.NONE
        former, used = producer.links, producer.connect()
        assert producer.commit_offset(topic, OLD[1], used) is KafkaError.NONE
        assert producer.commit_offset(topic, OLD[1], former) is KafkaError.INVALID_TXN_STATE
        assert producer.end(OLD[1]) is KafkaError.NONE


def test_requests_of_a_former_term_are_not_served() -> None:
    """An old client sends EndTxn to a coordinator that moves away, repeats it at the next one, and starts its next
    transaction. The coordinator moves back. Only then the first EndTxn arrives."""
    nodes = KafkaNodes(seed=3)
    topic = "orders"
    nodes.create_on(topic, [1, 2, 3])
    producer = Producer(nodes, "payer")
    assert producer.init() is KafkaError.NONE
    first = producer.coordinator
    late = producer.links[first]
    assert producer.add({topic: [0]}) == {(topic, 0): KafkaError.NONE}
    assert producer.produce(topic, OLD[0]) is KafkaError.NONE
    producer.move(lambda node: node != first)
    producer.connect()  # As clients do whose connection is closed.
    assert producer.end(OLD[1]) is KafkaError.NONE
    assert producer.add({topic: [0]}) == {(topic, 0): KafkaError.NONE}
    assert producer.produce(topic, OLD[0]) is KafkaError.NONE
    producer.move(lambda node: node == first)
    late.send(EndTxnRequest(producer.name, *producer.identity, True), OLD[1])
    nodes.until(lambda: not late.is_open, 20)
    assert committed(nodes, topic)[0] == 2, "the transaction is open"
    producer.connect()
    assert producer.produce(topic, OLD[0]) is KafkaError.NONE
    assert producer.end(OLD[1]) is KafkaError.NONE
    assert committed(nodes, topic) == (5, 5, [])


def test_initializing_connections_may_be_newer(topic: str, producer: Producer) -> None:
    """aiokafka initializes a producer on another connection than that of the requests that follow."""
    former = producer.links[producer.coordinator]
    producer.add({topic: [0]})
    producer.connect()
    assert producer.init() is KafkaError.NONE
    producer.links[producer.coordinator] = former
    assert producer.add({topic: [0]}) == {(topic, 0): KafkaError.NONE}
    assert producer.end(OLD[1]) is KafkaError.NONE


def test_internal_topics_take_no_part(producer: Producer) -> None:
    code = producer.add({"__transactions": [0]})["__transactions", 0]
    assert code is not KafkaError.NONE
    assert producer.add({TOPIC: [0]}) == {(TOPIC, 0): KafkaError.NONE}


# -- operators --------------------------------------------------------------------------------------------------------


def described(producer: Producer, name: str | None = None) -> DescribedTransaction:
    request = DescribeTransactionsRequest([name or producer.name])
    (state,) = producer.ask(request, 0, DescribeTransactionsResponse).transaction_states
    return state


def test_operators_describe_a_transaction(topic: str, producer: Producer) -> None:
    assert described(producer).transaction_state == "Empty"
    assert producer.produce(topic, NEW[0]) is KafkaError.NONE
    state = described(producer)
    assert (state.error_code, state.transaction_state, state.transaction_timeout_ms) == (0, "Ongoing", TIMEOUT_MS)
    assert (state.producer_id, state.producer_epoch) == producer.identity
    assert state.transaction_start_time_ms > 0
    assert [(each.topic, list(each.partitions)) for each in state.topics] == [(topic, [0])]
    assert producer.end(NEW[1]) is KafkaError.NONE
    state = described(producer)
    assert (state.transaction_state, list(state.topics)) == ("CompleteCommit", [])
    assert state.transaction_start_time_ms == -1
    coordinators = producer.nodes.image.topics[TRANSACTIONS_TOPIC]
    own = coordinator_of(coordinators, producer.name)
    absent = next(name for name in map("absent-{}".format, count()) if coordinator_of(coordinators, name) == own)
    assert described(producer, absent).error_code == KafkaError.TRANSACTIONAL_ID_NOT_FOUND


def test_a_severed_coordinator_describes_nothing() -> None:
    """Another one may have decided the transaction in the meantime."""
    nodes = KafkaNodes(seed=5)
    nodes.create_on("orders", [1, 2, 3])
    producer = Producer(nodes, "payer")
    assert producer.init() is KafkaError.NONE
    assert producer.produce("orders", NEW[0]) is KafkaError.NONE
    assert described(producer).transaction_state == "Ongoing"
    nodes.cluster.network.sever(producer.coordinator)
    link = producer.links[producer.coordinator]
    number = link.send(DescribeTransactionsRequest([producer.name]), 0)
    nodes.run(5)
    answer = link.answers.get(number)
    assert answer is None or answer.transaction_states[0].error_code in RETRIED


def test_operators_list_transactions(nodes: KafkaNodes, topic: str, producer: Producer) -> None:
    assert producer.produce(topic, NEW[0]) is KafkaError.NONE

    def listed(version: int, **filters: object) -> list[tuple[str, int, str]]:
        request = ListTransactionsRequest(**filters)  # type: ignore[arg-type]
        answer = producer.ask(request, version, ListTransactionsResponse)
        assert answer.error_code == KafkaError.NONE
        return [(each.transactional_id, each.producer_id, each.transaction_state) for each in answer.transaction_states]

    mine = (producer.name, producer.identity.producer_id, "Ongoing")
    assert mine in listed(0) and mine in listed(0, state_filters=["Ongoing"])
    assert listed(0, producer_id_filters=[producer.identity.producer_id]) == [mine]
    assert mine not in listed(0, state_filters=["Empty", "Dead"])
    assert mine not in listed(1, duration_filter=3_600_000)
    assert listed(2, transactional_id_pattern=producer.name) == [mine]
    nodes.run(0.2)
    assert mine in listed(1, duration_filter=100)
    unknown = producer.ask(ListTransactionsRequest(["Open"]), 2, ListTransactionsResponse)
    assert (list(unknown.unknown_state_filters), list(unknown.transaction_states)) == (["Open"], [])
    wrong = producer.ask(ListTransactionsRequest(transactional_id_pattern="("), 2, ListTransactionsResponse)
    assert wrong.error_code == KafkaError.INVALID_REGULAR_EXPRESSION
    assert producer.end(NEW[1], commit=False) is KafkaError.NONE


def test_operators_describe_the_producers_of_a_partition(nodes: KafkaNodes, topic: str, producer: Producer) -> None:
    for _ in range(2):
        assert producer.produce(topic, NEW[0]) is KafkaError.NONE
    leader = nodes.led_by(nodes.record(topic).group)
    assert leader is not None
    request = DescribeProducersRequest([ProducersTopic(topic, [0, 7])])
    answer = producer.ask(request, 0, DescribeProducersResponse, producer.links[leader])
    found, missing = answer.topics[0].partitions
    (active,) = found.active_producers
    assert (active.producer_id, active.producer_epoch, active.last_sequence) == (*producer.identity, 1)
    assert (active.last_timestamp, active.current_txn_start_offset) == (1_700_000_000_000, 0)
    assert missing.error_code == KafkaError.UNKNOWN_TOPIC_OR_PARTITION
    assert producer.end(NEW[1]) is KafkaError.NONE

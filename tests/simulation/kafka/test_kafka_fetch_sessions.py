"""Fetch sessions of Kafka's consumers (KIP-227): full once, then only what is new, and every end of one."""

from __future__ import annotations

from typing import TypeVar

import pytest

from quorumlog.server.config.options import NodeLimits
from quorumlog.server.kafka.codec import fetch_requests, metadata_requests, position_requests
from quorumlog.server.kafka.codec.fetch_responses import FetchResponse
from quorumlog.server.kafka.codec.metadata_responses import MetadataResponse
from quorumlog.server.kafka.codec.position_responses import OffsetForLeaderEpochResponse
from quorumlog.server.kafka.codec.primitives import KafkaMessage
from quorumlog.server.kafka.handlers.error_codes import KafkaError
from quorumlog.server.kafka.handlers.fetch_session import FetchSessionSpace
from quorumlog.simulator.world.kafka_link import SimKafkaLink
from quorumlog.v1.acls_pb2 import (
    ACL_OPERATION_DESCRIBE,
    ACL_OPERATION_READ,
    ACL_PATTERN_LITERAL,
    ACL_PERMISSION_ALLOW,
    ACL_RESOURCE_TOPIC,
    Acl,
    AclOperation,
)
from quorumlog.wire.kafka.batch import parse_kafka_header
from tests.support.fetching_rig import BY_ID, BY_NAME, Consumer, FetchingRig
from tests.support.quiet_cluster import TOPIC
from tests.support.restricted_cluster import Restricted

Response = TypeVar("Response", bound=KafkaMessage)
SECOND = 1_000_000


@pytest.fixture
def rig() -> FetchingRig:
    return FetchingRig()


def offset_of(records: object) -> int:
    """The first offset of what was fetched; -1 for nothing."""
    assert isinstance(records, (bytes, memoryview))
    return parse_kafka_header(bytes(records)).base_offset if records else -1


@pytest.mark.parametrize("version", [BY_NAME, BY_ID])
def test_a_session_is_told_of_everything_once_and_then_of_what_is_new(rig: FetchingRig, version: int) -> None:
    rig.produce(2)
    consumer = Consumer(rig, version=version)
    (first,) = consumer.fetch({0: 0}).values()
    assert (consumer.session > 0, offset_of(first.records), first.high_watermark) == (True, 0, 2)
    began = consumer.session
    assert consumer.fetch({0: 2}) == {}
    assert consumer.fetch() == {}
    rig.produce(3)
    (news,) = consumer.fetch().values()
    assert (offset_of(news.records), news.high_watermark) == (2, 5)
    assert consumer.fetch({0: 5}) == {}
    assert (consumer.session, consumer.epoch) == (began, 5)


def test_a_fetch_of_a_session_waits_for_what_is_new(rig: FetchingRig) -> None:
    consumer = Consumer(rig)
    consumer.fetch({0: 0})
    began = rig.scheduler.now
    assert consumer.fetch(max_wait_ms=700) == {}
    assert rig.scheduler.now - began >= 700_000
    rig.scheduler.after(300_000, lambda: None)
    rig.produce()
    began = rig.scheduler.now
    assert offset_of(consumer.fetch(max_wait_ms=5_000)[0].records) == 0
    assert rig.scheduler.now - began < 100_000


def test_records_come_again_until_the_consumer_names_the_next_offset(rig: FetchingRig) -> None:
    """Positions are the consumer's: one that has thrown away what it got, and wants it again, says nothing."""
    rig.produce(2)
    consumer = Consumer(rig)
    assert offset_of(consumer.fetch({0: 0})[0].records) == 0
    assert offset_of(consumer.fetch()[0].records) == 0
    assert consumer.fetch({0: 2}) == {}
    assert offset_of(consumer.fetch({0: 1})[0].records) == 0
    assert consumer.fetch({0: 2}).get(0) is None or not consumer.fetch({0: 2})[0].records


def led_together(rig: FetchingRig, count: int) -> list[int]:
    """Partitions of the topic that one node leads, which leads several."""
    rig.until(lambda: all(rig.leader_of(TOPIC, number) is not None for number in range(count)), 20)
    rig.run(1)
    led: dict[int | None, list[int]] = {}
    for number in range(count):
        led.setdefault(rig.leader_of(TOPIC, number), []).append(number)
    found = max(led.values(), key=len)
    assert len(found) > 1
    return found


def test_a_forgotten_partition_is_silent() -> None:
    rig = FetchingRig(2, partitions=5)
    first, second, *_ = led_together(rig, 5)
    node = rig.leader_of(TOPIC, first)
    elsewhere = next(number for number in range(5) if rig.leader_of(TOPIC, number) != node)
    consumer = Consumer(rig, rig.link(node))
    consumer.fetch({first: 0, second: 0, elsewhere: 0})
    # Its leader is another node, which each answer reports until it is forgotten.
    for _ in range(2):
        assert consumer.fetch()[elsewhere].error_code == KafkaError.NOT_LEADER_OR_FOLLOWER
    assert consumer.fetch(forgotten=[second, elsewhere]) == {}
    rig.produce(partition=second)
    assert consumer.fetch() == {}
    rig.produce(partition=first)
    assert set(consumer.fetch()) == {first}


def test_a_partition_that_is_forgotten_and_named_again_is_told_of_anew(rig: FetchingRig) -> None:
    rig.create("beside")
    consumer = Consumer(rig)
    consumer.fetch_of({TOPIC: {0: 0}, "beside": {0: 0}})
    consumer.fetch_of({}, {"beside": [0], TOPIC: [0, 3]})
    assert consumer.session == 0
    consumer.fetch_of({TOPIC: {0: 0}})
    consumer.fetch_of({"beside": {0: 0}}, {TOPIC: [0]})
    assert set(consumer.fetch_of({TOPIC: {0: 0}})) >= {TOPIC}


def test_a_session_of_which_nothing_is_left_is_over(rig: FetchingRig) -> None:
    consumer = Consumer(rig)
    consumer.fetch({0: 0})
    former, epoch = consumer.session, consumer.epoch
    assert consumer.fetch(forgotten=[0]) == {}
    assert consumer.session == 0
    consumer.session, consumer.epoch = former, epoch + 1
    consumer.fetch()
    assert consumer.error == KafkaError.FETCH_SESSION_ID_NOT_FOUND
    assert sessions_of(rig, consumer) == 0


def sessions_of(rig: FetchingRig, consumer: Consumer) -> int:
    """Fetch sessions that the consumer's node keeps."""
    node = rig.cluster.processes[consumer.link._node].node
    assert node is not None
    return int(node.readings()["fetch_sessions"])


def test_epochs_that_do_not_follow_and_sessions_that_are_not_there_are_refused(rig: FetchingRig) -> None:
    consumer = Consumer(rig)
    consumer.fetch({0: 0})
    session = consumer.session
    consumer.epoch = 3
    consumer.fetch()
    assert consumer.error == KafkaError.INVALID_FETCH_SESSION_EPOCH
    consumer.epoch = 1  # It is where it was.
    assert (consumer.fetch(), consumer.error) == ({}, 0)
    consumer.version = BY_ID
    consumer.fetch()
    assert consumer.error == KafkaError.FETCH_SESSION_TOPIC_ID_ERROR
    consumer.session = session + 1
    consumer.fetch()
    assert consumer.error == KafkaError.FETCH_SESSION_ID_NOT_FOUND


def test_a_session_belongs_to_its_connection(rig: FetchingRig) -> None:
    owner = Consumer(rig)
    owner.fetch({0: 0})
    thief = Consumer(rig)
    thief.session, thief.epoch = owner.session, owner.epoch
    thief.fetch()
    assert thief.error == KafkaError.FETCH_SESSION_ID_NOT_FOUND
    assert (owner.fetch(), owner.error) == ({}, 0)
    assert sessions_of(rig, owner) == 1
    owner.link.close()
    rig.run(1)
    assert sessions_of(rig, owner) == 0


def test_a_consumer_that_begins_anew_is_told_of_everything_again(rig: FetchingRig) -> None:
    consumer = Consumer(rig)
    consumer.fetch({0: 0})
    former = consumer.session
    consumer.epoch = 0
    assert set(consumer.fetch({0: 0})) == {0}
    assert consumer.session not in (0, former)
    assert sessions_of(rig, consumer) == 1
    # One that has done with it says so, and its node forgets it.
    consumer.epoch = -1
    assert consumer.fetch() == {}
    assert sessions_of(rig, consumer) == 0


def test_a_fetch_without_a_session_beside_one_leaves_that_alone(rig: FetchingRig) -> None:
    consumer = Consumer(rig)
    consumer.fetch({0: 0})
    session = consumer.session
    for _ in range(2):
        consumer.session, consumer.epoch = 0, -1
        assert set(consumer.fetch({0: 0})) == {0}
    consumer.session, consumer.epoch = session, 1
    rig.produce()
    assert offset_of(consumer.fetch()[0].records) == 0


def test_what_is_refused_is_refused_again_until_it_is_well(rig: FetchingRig) -> None:
    consumer = Consumer(rig)
    answers = consumer.fetch_of({TOPIC: {0: 0, 7: 0}, "later": {0: 0}})
    assert answers[TOPIC][7].error_code == KafkaError.UNKNOWN_TOPIC_OR_PARTITION
    assert answers["later"][0].error_code == KafkaError.UNKNOWN_TOPIC_OR_PARTITION
    began = rig.scheduler.now
    again = consumer.fetch_of({}, max_wait_ms=5_000)
    assert rig.scheduler.now - began < SECOND
    assert {topic: set(each) for topic, each in again.items()} == {TOPIC: {7}, "later": {0}}
    rig.create("later")
    rig.until(lambda: rig.leader_of("later") is not None, 20)
    rig.run(1)
    found = consumer.fetch_of({}, {TOPIC: [7]})["later"][0].error_code
    here = rig.leader_of("later") == rig.leader_of(TOPIC)
    assert found == (KafkaError.NONE if here else KafkaError.NOT_LEADER_OR_FOLLOWER)


def test_a_session_with_a_topic_that_is_not_there_does_not_wait(rig: FetchingRig) -> None:
    consumer = Consumer(rig)
    consumer.fetch_of({TOPIC: {0: 0}, "nowhere": {0: 0}})
    began = rig.scheduler.now
    reported = consumer.fetch_of({}, max_wait_ms=5_000)
    assert reported["nowhere"][0].error_code == KafkaError.UNKNOWN_TOPIC_OR_PARTITION
    assert rig.scheduler.now - began < SECOND


def test_an_offset_out_of_range_is_told_until_the_consumer_names_another(rig: FetchingRig) -> None:
    consumer = Consumer(rig)
    consumer.fetch({0: 0})
    for _ in range(2):
        assert consumer.fetch({0: 9})[0].error_code == KafkaError.OFFSET_OUT_OF_RANGE
    assert consumer.fetch()[0].error_code == KafkaError.OFFSET_OUT_OF_RANGE
    assert consumer.fetch({0: -4})[0].error_code == KafkaError.OFFSET_OUT_OF_RANGE
    assert consumer.fetch({0: 0})[0].error_code == KafkaError.NONE
    assert consumer.fetch() == {}


@pytest.mark.parametrize(
    ("version", "code"), [(BY_NAME, KafkaError.UNKNOWN_TOPIC_OR_PARTITION), (BY_ID, KafkaError.UNKNOWN_TOPIC_ID)]
)
def test_a_topic_that_is_deleted_is_told_of_and_by_name_its_successor_is_read(version: int, code: KafkaError) -> None:
    rig = FetchingRig(4)
    rig.produce(3)
    consumer = Consumer(rig, version=version)
    consumer.fetch({0: 0})
    consumer.fetch({0: 3})
    node = consumer.link._node
    rig.delete(TOPIC)
    answer = rig.ask(consumer.link, of_session(consumer), version, FetchResponse)
    assert [each.partitions[0].error_code for each in answer.responses] == [code]
    rig.create(TOPIC)
    rig.until(lambda: rig.leader_of(TOPIC) is not None, 20)
    rig.produce(5)
    consumer.epoch += 1
    answer = rig.ask(consumer.link, of_session(consumer), version, FetchResponse)
    (reported,) = answer.responses[0].partitions
    if version == BY_ID:
        assert reported.error_code == KafkaError.UNKNOWN_TOPIC_ID
    elif rig.leader_of(TOPIC) == node:
        assert (reported.error_code, reported.high_watermark) == (0, 5)
    else:
        assert reported.error_code == KafkaError.NOT_LEADER_OR_FOLLOWER


def of_session(consumer: Consumer) -> fetch_requests.FetchRequest:
    """The next request of a session that names nothing."""
    return fetch_requests.FetchRequest(
        max_wait_ms=0, min_bytes=1, session_id=consumer.session, session_epoch=consumer.epoch
    )


def test_the_first_answer_of_a_session_names_all_partitions_however_little_it_may_hold() -> None:
    rig = FetchingRig(6, partitions=5)
    led = led_together(rig, 5)
    node = rig.leader_of(TOPIC, led[0])
    for number in led:
        rig.produce(4, partition=number)
    consumer = Consumer(rig, rig.link(node))
    answer = consumer.fetch(dict.fromkeys(led, 0), max_bytes=1)
    assert set(answer) == set(led)
    assert {answer[number].high_watermark for number in led} == {4}
    seen = {number for number in led if answer[number].records}
    for _ in led:
        got = {n: each for n, each in consumer.fetch(dict.fromkeys(seen, 4), max_bytes=1).items() if each.records}
        seen |= set(got)
    assert seen == set(led)


def test_a_node_that_keeps_all_the_sessions_it_may_serves_without_one() -> None:
    rig = FetchingRig(8, limits=NodeLimits(fetch_sessions=2))
    first, second, third = (Consumer(rig) for _ in range(3))
    for each in (first, second):
        assert set(each.fetch({0: 0})) == {0}
        assert each.session
    assert set(third.fetch({0: 0})) == {0}
    assert third.session == 0
    # A session that has not been used for two minutes is evicted in favour of a new one.
    rig.run(70)
    first.fetch()
    rig.run(70)
    third.epoch = 0
    third.fetch({0: 0})
    assert third.session
    second.fetch()
    assert second.error == KafkaError.FETCH_SESSION_ID_NOT_FOUND
    assert (first.fetch(), first.error) == ({}, 0)


def test_partitions_that_sessions_keep_are_counted_and_bounded() -> None:
    rig = FetchingRig(9)
    space = FetchSessionSpace(3)
    large = Consumer(rig, rig.link(space=space))
    large.fetch({0: 0, 1: 0})
    assert (large.session > 0, space.kept) == (True, 2)
    small = Consumer(rig, rig.link(space=space))
    small.fetch({0: 0})
    assert (small.session > 0, space.kept) == (True, 3)
    small.fetch({8: 0})
    assert (small.error, space.kept) == (KafkaError.FETCH_SESSION_ID_NOT_FOUND, 2)
    small.session = small.epoch = 0
    assert set(small.fetch({0: 0, 1: 0})) == {0, 1}
    assert (small.session, space.kept) == (0, 2)
    large.fetch(forgotten=[1])
    assert space.kept == 1
    large.link.close()
    assert space.kept == 0


def test_what_is_sent_behind_a_fetch_of_a_session_waits_for_it(rig: FetchingRig) -> None:
    consumer = Consumer(rig)
    consumer.fetch({0: 0})
    request = of_session(consumer)
    request.max_wait_ms = 5_000
    number = consumer.link.send(request, BY_NAME)
    behind = consumer.link.send(metadata_requests.MetadataRequest([]), 12)
    rig.run(1)
    assert not consumer.link.answers
    rig.produce()
    rig.until(lambda: behind in consumer.link.answers, 5)
    assert isinstance(consumer.link.answers[behind], MetadataResponse)
    assert list(consumer.link.answers) == [number, behind]


def test_a_session_whose_node_leads_no_more_says_so_once_it_is_so(rig: FetchingRig) -> None:
    rig.produce()
    consumer = Consumer(rig)
    consumer.fetch({0: 0})
    consumer.fetch({0: 1})
    leader = consumer.link._node
    for node in rig.cluster.node_ids:
        if node != leader:
            rig.cluster.processes[node].pause()
    rig.run(20)
    for node in rig.cluster.node_ids:
        rig.cluster.processes[node].resume()
    rig.until(lambda: rig.leader_of(TOPIC) is not None, 20)
    rig.run(3)
    answer = consumer.fetch()
    if rig.leader_of(TOPIC) != leader:
        assert answer[0].error_code == KafkaError.NOT_LEADER_OR_FOLLOWER
    else:
        assert consumer.error == 0


def test_rights_that_change_are_told_in_a_session_and_epochs_need_describe() -> None:
    cluster = Restricted(1, kafka=(1, 2, 3))
    cluster.run(1)
    leader = next(node for node, raft in cluster.replicas_of(cluster.groups()[0]).items() if raft.is_leader)
    link = SimKafkaLink("stranger", cluster.cluster, leader, cluster.scheduler)

    def ask(message: KafkaMessage, version: int, kind: type[Response]) -> Response:
        number = link.send(message, version)
        cluster.until(lambda: number in link.answers, 20)
        answer = link.answers.pop(number)
        assert isinstance(answer, kind)
        return answer

    def allow(operation: AclOperation.ValueType) -> None:
        cluster.allow(
            Acl(
                principal="User:ANONYMOUS",
                operation=operation,
                permission=ACL_PERMISSION_ALLOW,
                resource_type=ACL_RESOURCE_TOPIC,
                resource_name=TOPIC,
                pattern_type=ACL_PATTERN_LITERAL,
            )
        )

    def fetch(session: int, epoch: int, max_wait_ms: int = 0, *, names: bool = False) -> FetchResponse:
        wanted = [fetch_requests.FetchTopic(TOPIC, partitions=[fetch_requests.FetchPartition(0, -1, 0, -1, -1, 1_000)])]
        request = fetch_requests.FetchRequest(
            max_wait_ms=max_wait_ms,
            min_bytes=1,
            session_id=session,
            session_epoch=epoch,
            topics=wanted if names else [],
        )
        return ask(request, BY_NAME, FetchResponse)

    def epoch_end() -> int:
        partition = position_requests.OffsetForLeaderPartition(0, -1, 1)
        request = position_requests.OffsetForLeaderEpochRequest(
            -1, [position_requests.OffsetForLeaderTopic(TOPIC, [partition])]
        )
        return ask(request, 4, OffsetForLeaderEpochResponse).topics[0].partitions[0].error_code

    assert epoch_end() == KafkaError.UNKNOWN_TOPIC_OR_PARTITION
    begun = fetch(0, 0, names=True)
    assert begun.responses[0].partitions[0].error_code == KafkaError.UNKNOWN_TOPIC_OR_PARTITION
    allow(ACL_OPERATION_DESCRIBE)
    assert epoch_end() == KafkaError.NONE
    reported = fetch(begun.session_id, 1, 5_000).responses[0].partitions[0]
    assert reported.error_code == KafkaError.TOPIC_AUTHORIZATION_FAILED
    allow(ACL_OPERATION_READ)
    assert fetch(begun.session_id, 2).responses[0].partitions[0].error_code == KafkaError.NONE
    assert fetch(begun.session_id, 3).responses == []
    waiting = fetch_requests.FetchRequest(max_wait_ms=20_000, min_bytes=1, session_id=begun.session_id, session_epoch=4)
    number = link.send(waiting, BY_NAME)
    cluster.run(1)
    assert number not in link.answers
    cluster.withdraw("User:ANONYMOUS")
    cluster.until(lambda: number in link.answers, 5)
    answer = link.answers[number]
    assert isinstance(answer, FetchResponse)
    assert answer.responses[0].partitions[0].error_code == KafkaError.UNKNOWN_TOPIC_OR_PARTITION

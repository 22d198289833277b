"""Ends of leader epochs, as Kafka's consumers request them after a change of the leader."""

from __future__ import annotations

import pytest

from quorumlog.server.kafka.handlers.error_codes import KafkaError
from quorumlog.server.partition.epoch_lookup import EpochEnd, find_epoch_end
from quorumlog.v1 import admin_pb2
from tests.support.compacting_cluster import Compacting
from tests.support.fetching_rig import Consumer, FetchingRig
from tests.support.quiet_cluster import TOPIC

NONE = KafkaError.NONE
UNKNOWN = (NONE, -1, -1)


def move_leader(rig: FetchingRig) -> int:
    """Kills the leader and starts it again once another leads; returns the new epoch."""
    former = rig.leader_of(TOPIC)
    assert former is not None
    group = rig.image.topics[TOPIC].partitions[0].group
    rig.cluster.processes[former].die(silent=False)
    rig.until(lambda: rig.led_by(group) not in (None, former), 30)
    rig.cluster.start(former)
    rig.run(3)
    leader = rig.led_by(group)
    assert leader is not None
    return rig.replicas_of(group)[leader].term


def term(rig: FetchingRig) -> int:
    group = rig.image.topics[TOPIC].partitions[0].group
    leader = rig.led_by(group)
    assert leader is not None
    return rig.replicas_of(group)[leader].term


@pytest.fixture(scope="module")
def epochs() -> tuple[FetchingRig, list[int]]:
    """A log of three leaders: offsets 0 to 4 of the first, none of the second, 5 to 7 of the third."""
    rig = FetchingRig(3)
    known = [term(rig)]
    rig.produce(2)
    rig.produce(3)
    known.append(move_leader(rig))
    known.append(move_leader(rig))
    rig.produce(3)
    assert known == sorted(set(known))
    return rig, known


def test_an_epoch_ends_where_a_newer_one_has_its_first_record(epochs: tuple[FetchingRig, list[int]]) -> None:
    rig, (first, second, third) = epochs
    assert rig.epoch_end(first) == (NONE, first, 5)
    # It has entries, though no records: it starts and ends where the next one starts.
    assert rig.epoch_end(second) == (NONE, second, 5)
    assert rig.epoch_end(third) == (NONE, third, 8)


def test_epochs_that_nobody_has_led_in_are_unknown(epochs: tuple[FetchingRig, list[int]]) -> None:
    rig, known = epochs
    for epoch in (known[-1] + 1, 1 << 30, -1, -7):
        assert rig.epoch_end(epoch) == UNKNOWN
    # From before the first entry: all that is known is where what came later starts.
    assert rig.epoch_end(0) == (NONE, 0, 0)


def test_a_client_with_another_epoch_is_told_so(epochs: tuple[FetchingRig, list[int]]) -> None:
    rig, (first, _, third) = epochs
    assert rig.epoch_end(first, known=third) == (NONE, first, 5)
    assert rig.epoch_end(first, known=first) == (KafkaError.FENCED_LEADER_EPOCH, -1, -1)
    assert rig.epoch_end(first, known=third + 1) == (KafkaError.UNKNOWN_LEADER_EPOCH, -1, -1)
    consumer = Consumer(rig)
    for known, code in ((third, NONE), (first, KafkaError.FENCED_LEADER_EPOCH)):
        assert consumer.fetch({0: 0}, epoch=known)[0].error_code == code
        consumer.session = consumer.epoch = 0
    assert consumer.fetch({0: 0}, epoch=third + 1)[0].error_code == KafkaError.UNKNOWN_LEADER_EPOCH


def test_who_asks_in_vain_is_told_why(epochs: tuple[FetchingRig, list[int]]) -> None:
    rig, (first, *_) = epochs
    other = next(node for node in rig.cluster.node_ids if node != rig.leader_of(TOPIC))
    assert rig.epoch_end(first, node=other)[0] == KafkaError.NOT_LEADER_OR_FOLLOWER
    assert rig.epoch_end(first, topic="nowhere")[0] == KafkaError.UNKNOWN_TOPIC_OR_PARTITION
    assert rig.epoch_end(first, replica=2)[0] == KafkaError.INVALID_REQUEST


def test_an_epoch_whose_records_have_expired_ends_where_the_log_begins() -> None:
    rig = FetchingRig(5)
    first = term(rig)
    rig.produce(4)
    second = move_leader(rig)
    rig.produce(3)
    request = admin_pb2.DeleteRecordsRequest(timeout_ms=2_000)
    request.partitions.add(topic_id=rig.id_of(TOPIC), partition=0, before_offset=6)
    answers: list[object] = []
    rig.cluster.request("admin", rig.leader_of(TOPIC) or 1, request, answers.append)
    rig.until(lambda: bool(answers), 5)
    rig.run(2)
    assert rig.epoch_end(first)[2] == 6
    assert rig.epoch_end(second) == (NONE, second, 7)


def test_an_epoch_that_was_compacted_ends_at_the_latest_where_the_entries_begin() -> None:
    cluster = Compacting(7)
    former = cluster.led_by(cluster.group)
    assert former is not None
    first = cluster.replicas_of(cluster.group)[former].term
    cluster.write(60)
    cluster.process(former).die(silent=False)
    cluster.until(lambda: cluster.led_by(cluster.group) not in (None, former), 30)
    cluster.cluster.start(former)
    cluster.write(60)

    def leads_without_entries_of_the_first_epoch() -> bool:
        node = cluster.led_by(cluster.group)
        return node is not None and cluster.partition(node).raft.anchor.term > first

    cluster.until(leads_without_entries_of_the_first_epoch, 90)
    node = cluster.led_by(cluster.group)
    assert node is not None
    partition = cluster.partition(node)
    end = find_epoch_end(partition, partition._reader, first)
    # A consumer whose position is at most the end of the compacted part does not learn that its records are gone.
    assert end is not None
    assert end.epoch == first
    assert partition.compacted_offset <= end.end_offset <= partition.high_watermark
    term = partition.raft.term
    assert find_epoch_end(partition, partition._reader, term) == EpochEnd(term, partition.high_watermark)

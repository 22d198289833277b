"""Kafka's own client in groups whose coordinator assigns (``group.protocol=consumer``), alone and beside our own
clients, on real nodes."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from itertools import count
from typing import Any

import pytest
from confluent_kafka import Consumer, ConsumerGroupType, KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewTopic

import quorumlog.sdk as quorumlog
from quorumlog.local import LocalCluster

pytestmark = pytest.mark.cluster

PARTITIONS, RECORDS = 4, 200
#: So long that no one is put out because the machine is busy.
SESSION_MS = 20_000
DEADLINE_S = 60.0
_numbers = count(1)


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    settings = {
        "group_session_timeout_ms": SESSION_MS,
        "kafka_max_connections_per_ip": 200,
        "kafka_auto_create_topics_enable": "false",
    }
    with LocalCluster(nodes=3, kafka=True, settings=settings) as running:
        yield running
        for node in running.node_ids:
            assert running.is_running(node), running.log_path(node).read_text()[-2_000:]
            assert "fault=failed" not in running.log_path(node).read_text()


@pytest.fixture(scope="module")
def admin(cluster: LocalCluster) -> AdminClient:
    return AdminClient({"bootstrap.servers": cluster.kafka_bootstrap_servers, "log_level": 0})


@pytest.fixture
def topic(cluster: LocalCluster, admin: AdminClient) -> str:
    name = f"topic-{next(_numbers)}"
    until([], lambda: is_created(admin, name), "the topic is created")
    write(cluster, name, 0)
    return name


def is_created(admin: AdminClient, name: str) -> bool:
    """Creates a topic, unless a node that was killed is not back yet."""
    (future,) = admin.create_topics([NewTopic(name, PARTITIONS, 3)]).values()
    try:
        future.result(DEADLINE_S)
    except KafkaException as problem:
        if problem.args[0].code() != KafkaError.INVALID_REPLICATION_FACTOR:
            raise
        time.sleep(0.1)
        return False
    return True


def write(cluster: LocalCluster, topic: str, begin: int) -> None:
    producer = Producer(
        {"bootstrap.servers": cluster.kafka_bootstrap_servers, "enable.idempotence": True, "log_level": 0}
    )
    for number in range(begin, begin + RECORDS):
        producer.produce(topic, b"%d" % number, partition=number % PARTITIONS)
    assert producer.flush(DEADLINE_S) == 0


class Member:
    """A member that notes what it is given, reads and commits."""

    def __init__(self, cluster: LocalCluster, group: str, *topics: str, **settings: object) -> None:
        self.numbers: list[int] = []
        self.owned: set[int] = set()
        self.stops = 0
        self.consumer = Consumer(
            {
                "bootstrap.servers": cluster.kafka_bootstrap_servers,
                "group.id": group,
                "group.protocol": "consumer",
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "log_level": 0,
                **settings,
            }
        )
        self.consumer.subscribe(list(topics), on_assign=self._assigned, on_revoke=self._revoked, on_lost=self._revoked)

    def _assigned(self, _consumer: Any, partitions: list[Any]) -> None:
        self.owned |= {each.partition for each in partitions}

    def _revoked(self, _consumer: Any, partitions: list[Any]) -> None:
        self.owned -= {each.partition for each in partitions}
        self.stops += 1

    def poll(self) -> None:
        message = self.consumer.poll(0.02)
        if message is None:
            return
        problem = message.error()
        if problem is not None:
            assert not problem.fatal(), problem
            return
        self.numbers.append(int(message.value() or b""))

    def commit(self) -> None:
        try:
            self.consumer.commit(asynchronous=False)
        except KafkaException as problem:
            if problem.args[0].code() != KafkaError._NO_OFFSET:  # It has read nothing.
                raise


def until(
    members: list[Member], condition: Callable[[], bool], what: str, also: Callable[[], object] | None = None
) -> float:
    """Lets members poll until something holds; returns how long that took (s)."""
    began = time.monotonic()
    while not condition():
        assert time.monotonic() < began + DEADLINE_S, what
        for member in members:
            member.poll()
        if also is not None:
            also()
    return time.monotonic() - began


def shares(*members: Member) -> bool:
    return sorted(number for member in members for number in member.owned) == list(range(PARTITIONS)) and all(
        member.owned for member in members
    )


def test_members_share_read_commit_and_go_on_where_others_stopped(cluster: LocalCluster, topic: str) -> None:
    group = f"group-{topic}"
    first = Member(cluster, group, topic)
    until([first], lambda: len(first.numbers) == RECORDS, "all are read")
    first.commit()
    second = Member(cluster, group, f"^{topic}$", **{"group.instance.id": "second"})
    until([first, second], lambda: shares(first, second), "they share")
    assert first.stops == 1 and len(first.owned) == 2, "it kept what it keeps"
    write(cluster, topic, RECORDS)
    until([first, second], lambda: len(first.numbers + second.numbers) == 2 * RECORDS, "the rest is read")
    assert sorted(first.numbers + second.numbers) == list(range(2 * RECORDS)), "none twice"
    first.commit()
    second.commit()
    first.consumer.close()
    until([second], lambda: len(second.owned) == PARTITIONS, "it has all")
    second.consumer.close()
    third = Member(cluster, group, topic, **{"group.instance.id": "second"})
    began = until([third], lambda: len(third.owned) == PARTITIONS, "the static member is back")
    assert began < SESSION_MS / 1_000
    write(cluster, topic, 2 * RECORDS)
    until([third], lambda: len(third.numbers) == RECORDS, "it continues where the others stopped")
    third.consumer.close()


def test_a_group_of_kafkas_clients_and_ours(cluster: LocalCluster, admin: AdminClient, topic: str) -> None:
    group = f"group-{topic}"
    theirs = Member(cluster, group, topic)
    until([theirs], lambda: len(theirs.owned) == PARTITIONS, "it has all")
    servers = cluster.bootstrap_servers
    numbers: list[int] = []
    with quorumlog.Consumer(topic, bootstrap_servers=servers, group_id=group, enable_auto_commit=False) as ours:

        def poll() -> None:
            for records in ours.poll(timeout_ms=20).values():
                numbers.extend(int(record.value) for record in records)

        def shared() -> bool:
            owned = [*theirs.owned, *(each.partition for each in ours.assignment())]
            return len(theirs.owned) == len(ours.assignment()) == 2 and sorted(owned) == list(range(PARTITIONS))

        until([theirs], shared, "they share", poll)
        theirs.commit()
        ours.commit()
        write(cluster, topic, RECORDS)
        until([theirs], lambda: {*theirs.numbers, *numbers} == {*range(2 * RECORDS)}, "all is read", poll)
        listed = admin.list_consumer_groups(request_timeout=DEADLINE_S, types={ConsumerGroupType.CONSUMER}).result()
        assert group in {each.group_id for each in listed.valid} and not listed.errors
        found = admin.describe_consumer_groups([group], request_timeout=DEADLINE_S)[group].result()
        assert (found.type, found.partition_assignor, len(found.members)) == (ConsumerGroupType.CONSUMER, "uniform", 2)
        has = [each.partition for member in found.members for each in member.assignment.topic_partitions]
        assert sorted(has) == list(range(PARTITIONS))
        assert {each.host for each in found.members} == {"/127.0.0.1"}
    until([theirs], lambda: len(theirs.owned) == PARTITIONS, "it has all again")
    theirs.consumer.close()


def test_a_coordinator_that_is_killed_takes_nothing_from_members(
    cluster: LocalCluster, admin: AdminClient, topic: str
) -> None:
    group = f"group-{topic}"
    members = [Member(cluster, group, topic) for _ in range(2)]
    until(members, lambda: shares(*members), "they share")
    before = [set(member.owned) for member in members]
    coordinator = admin.describe_consumer_groups([group], request_timeout=DEADLINE_S)[group].result().coordinator.id
    cluster.kill(coordinator)
    try:
        write(cluster, topic, RECORDS)
        until(members, lambda: {*members[0].numbers, *members[1].numbers} == {*range(2 * RECORDS)}, "all is read")
        for member in members:
            member.commit()
        third = Member(cluster, group, topic)
        until([*members, third], lambda: shares(*members, third), "a third has its share from the next coordinator")
    finally:
        cluster.start(coordinator)
    assert all(member.owned <= had for member, had in zip(members, before, strict=True)), "nothing else moved"
    for member in [*members, third]:
        member.commit()
        member.consumer.close()


def test_who_asks_for_what_is_not_there_is_told_so(cluster: LocalCluster, topic: str) -> None:
    reported: list[str] = []
    settings = {"group.remote.assignor": "sticky", "error_cb": lambda problem: reported.append(str(problem))}
    member = Member(cluster, f"group-{topic}", topic, **settings)

    def poll() -> None:
        message = member.consumer.poll(0.05)
        if message is not None:
            reported.append(str(message.error()))

    until(
        [], lambda: any("assignor" in each or "FATAL" in each for each in reported), f"it is refused: {reported}", poll
    )
    member.consumer.close()

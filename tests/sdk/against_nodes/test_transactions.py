"""Transactions of our own producer on real nodes: all or nothing, also while processes are killed."""

from __future__ import annotations

import pickle
from collections.abc import Iterator

import pytest
from command_line import leader_of

from quorumlog.local import LocalCluster
from quorumlog.sdk import (
    Admin,
    Consumer,
    IllegalStateError,
    NewTopic,
    Producer,
    ProducerFencedError,
    TopicPartition,
    TransactionAbortedError,
)


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    with LocalCluster(nodes=3) as made:
        yield made


def topic(cluster: LocalCluster, name: str, partitions: int = 2) -> str:
    with Admin(bootstrap_servers=cluster.bootstrap_servers) as admin:
        admin.create_topics([NewTopic(name, partitions, 3)])
    return name


def producer(cluster: LocalCluster, name: str, **options: object) -> Producer:
    return Producer(bootstrap_servers=cluster.bootstrap_servers, transactional_id=name, **options)  # type: ignore[arg-type]


def committed(cluster: LocalCluster, name: str, count: int) -> list[bytes]:
    """Returns the committed records, at least ``count`` and all that follow within a second."""
    found: list[bytes] = []
    with Consumer(name, bootstrap_servers=cluster.bootstrap_servers, auto_offset_reset="earliest") as consumer:
        for _ in range(60):
            polled = consumer.poll(1_000)
            found += [each.value for records in polled.values() for each in records]
            if not polled and len(found) >= count:
                break
    return sorted(found)


def test_a_block_commits_all_partitions_and_an_exception_aborts(cluster: LocalCluster) -> None:
    name = topic(cluster, "blocks")
    with producer(cluster, "blocks") as sending:
        with sending.transaction() as tx:
            tx.send(name, b"a", partition=0)
            sending.send(name, b"b", partition=1)
        with pytest.raises(KeyError), sending.transaction() as tx:  # noqa: PT012 - the block is what raises
            tx.send(name, b"lost", partition=0)
            sending.flush()
            raise KeyError
        with sending.transaction():
            pass
        with sending.transaction() as tx:
            tx.send(name, b"c", partition=0)
        with pytest.raises(IllegalStateError, match="send needs an open transaction"):
            sending.send(name, b"outside")
        with pytest.raises(IllegalStateError, match="send needs an open transaction"):
            tx.send(name, b"outside")
    assert committed(cluster, name, 3) == [b"a", b"b", b"c"]


def test_a_record_that_fails_aborts_whatever_becomes_of_its_handle(cluster: LocalCluster) -> None:
    name = topic(cluster, "fails")
    with Admin(bootstrap_servers=cluster.bootstrap_servers) as admin:
        admin.alter_configs({name: {"max.message.bytes": "2000"}})
    with producer(cluster, "fails") as sending:
        with pytest.raises(TransactionAbortedError), sending.transaction() as tx:  # noqa: PT012 - the block is what raises
            tx.send(name, b"lost", partition=0)
            tx.send(name, bytes(range(256)) * 40, partition=1)
        with sending.transaction() as tx:
            tx.send(name, b"kept", partition=0)
    assert committed(cluster, name, 1) == [b"kept"]


def test_a_new_instance_fences_the_former_one(cluster: LocalCluster) -> None:
    name = topic(cluster, "fenced")
    with producer(cluster, "one") as zombie, producer(cluster, "one") as newer:
        with pytest.raises(ProducerFencedError), zombie.transaction() as tx:  # noqa: PT012 - the block is what raises
            tx.send(name, b"lost", partition=0)
            zombie.flush()
            with newer.transaction() as other:
                other.send(name, b"kept", partition=0)
        with pytest.raises(ProducerFencedError), zombie.transaction() as tx:
            tx.send(name, b"lost", partition=0)
    assert committed(cluster, name, 1) == [b"kept"]


def test_named_writers_count_and_others_abort(cluster: LocalCluster) -> None:
    name = topic(cluster, "writers")
    with producer(cluster, "driver") as driver:
        with driver.transaction(work=1) as tx:
            token = pickle.loads(pickle.dumps(tx.token))
            done = []
            for number in range(3):
                with Producer(bootstrap_servers=cluster.bootstrap_servers, joins=token) as writer:
                    writer.send(name, b"%d" % number, partition=number % 2)
                    done.append(writer.finish())
            tx.include(done[:2])
        with driver.transaction(work=1) as tx:
            assert tx.work_committed
        with driver.transaction(work=2) as tx:
            assert not tx.work_committed
    assert committed(cluster, name, 2) == [b"0", b"1"]


def test_an_aborted_block_returns_the_consumer(cluster: LocalCluster) -> None:
    source, sink = topic(cluster, "back-in", 1), topic(cluster, "back-out", 1)
    with Producer(bootstrap_servers=cluster.bootstrap_servers) as filling:
        filling.send_many(source, [b"%d" % number for number in range(10)]).result(timeout=30)
    seen: list[bytes] = []
    with (
        producer(cluster, "back") as sending,
        Consumer(
            source,
            bootstrap_servers=cluster.bootstrap_servers,
            group_id="back",
            auto_offset_reset="earliest",
            enable_auto_commit=False,
        ) as consumer,
    ):
        failures = 2
        while len(seen) < 10:
            records = [each for part in consumer.poll(1_000, max_records=4).values() for each in part]
            if not records:
                continue
            try:
                with sending.transaction(consumer) as tx:
                    for each in records:
                        tx.send(sink, each.value)
                    if failures:
                        failures -= 1
                        raise KeyError
            except KeyError:
                continue
            seen += [each.value for each in records]
        assert consumer.committed(TopicPartition(source, 0)) == 10
    assert seen == [b"%d" % number for number in range(10)]
    assert committed(cluster, sink, 10) == seen


@pytest.mark.parametrize("killed", ["leader", "coordinator"])
def test_a_thousand_records_are_processed_once_under_kills(cluster: LocalCluster, killed: str) -> None:
    source, sink = topic(cluster, f"{killed}-in", 1), topic(cluster, f"{killed}-out", 1)
    everything = [b"%04d" % number for number in range(1_000)]
    with Producer(bootstrap_servers=cluster.bootstrap_servers) as filling:
        filling.send_many(source, everything).result(timeout=30)
    done = turns = 0
    with (
        producer(cluster, killed) as sending,
        Consumer(
            source,
            bootstrap_servers=cluster.bootstrap_servers,
            group_id=killed,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
        ) as consumer,
    ):
        while done < 1_000:
            records = [each for part in consumer.poll(1_000, max_records=50).values() for each in part]
            if not records:
                continue
            turns += 1
            try:
                with sending.transaction(consumer) as tx:
                    for each in records:
                        tx.send(sink, each.value)
                    if turns % 6 == 3:
                        sending.flush()
                        victim = leader_of(cluster, sink) if killed == "leader" else 1 + turns // 6 % 3
                        cluster.kill(victim)
                        cluster.start(victim)
            except TransactionAbortedError:
                continue
            done += len(records)
    assert committed(cluster, sink, 1_000) == everything

"""Transactions where the log is copied, or continues as another cluster."""

from __future__ import annotations

from pathlib import Path

import pytest
from command_line import until
from confluent_kafka import KafkaException, Producer
from test_kafka_transactions import DEADLINE_S, producer_of, read, send
from test_lost_majority import is_well, lose, recovered
from test_mirror_follows import command

from quorumlog.local import LocalCluster
from quorumlog.sdk import Admin, Consumer, NewTopic, TopicPartition
from tests.support.child_process import ChildProcess

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]

PLACES = [TopicPartition("orders", number) for number in range(2)]


def mirrored(source: LocalCluster, target: LocalCluster, log: Path) -> list[str]:
    """Returns the values in the target, by partition, after a mirror that ends where the source ends."""
    with log.open("wb") as said, ChildProcess(command(source, target, "--topic", "orders"), stderr=said) as mirror:
        assert mirror.wait(DEADLINE_S) == 0, log.read_text()
    return read(target, "orders")


def test_mirrors_copy_committed_records_only(tmp_path: Path) -> None:
    """Offsets of markers and aborted records hold no record: the mirror ends although it copies fewer records."""
    log = tmp_path / "mirror.log"
    with LocalCluster(nodes=1, kafka=True) as source, LocalCluster(nodes=1, kafka=True) as target:
        with Admin(bootstrap_servers=source.bootstrap_servers) as admin:
            admin.create_topics([NewTopic("orders", len(PLACES), 1)])
        producer, other = producer_of(source, "billing"), producer_of(source, "other")
        send(producer, "orders", "a1", "a2")
        producer.commit_transaction(DEADLINE_S)
        send(producer, "orders", "b1", "b2")
        producer.flush(DEADLINE_S)
        producer.abort_transaction(DEADLINE_S)
        assert mirrored(source, target, log) == ["a1", "a2"]

        send(other, "orders", "c1", "c2")
        other.flush(DEADLINE_S)
        send(producer, "orders", "d1", "d2")
        producer.commit_transaction(DEADLINE_S)
        assert mirrored(source, target, log) == ["a1", "a2"], "a transaction is open before d"

        other.abort_transaction(DEADLINE_S)
        assert sorted(mirrored(source, target, log)) == ["a1", "a2", "d1", "d2"]
        assert sorted(mirrored(source, target, log)) == ["a1", "a2", "d1", "d2"], "nothing is left to copy"
        with Consumer(bootstrap_servers=target.bootstrap_servers) as consumer:
            assert consumer.end_offsets(PLACES) == dict.fromkeys(PLACES, 2)


def committed(producer: Producer, *values: str) -> bool:
    """Runs a transaction. False: it failed, and another one may be tried."""
    try:
        send(producer, "orders", *values)
        producer.commit_transaction(DEADLINE_S)
    except KafkaException as failure:
        if not failure.args[0].txn_requires_abort():
            raise
        producer.abort_transaction(DEADLINE_S)
        return False
    return True


def test_open_transactions_end_after_a_recovery(tmp_path: Path) -> None:
    """A majority is lost while a transaction is open, and its producer with it. No reader waits for it permanently."""
    with LocalCluster(nodes=3, kafka=True) as cluster:
        with Admin(bootstrap_servers=cluster.bootstrap_servers) as admin:
            admin.create_topics([NewTopic("orders", len(PLACES), 3)])
        done = producer_of(cluster, "done")
        send(done, "orders", "a1", "a2")
        done.commit_transaction(DEADLINE_S)
        options = {"transactional.id": "lost", "transaction.timeout.ms": 5_000, "log_level": 0}
        lost = Producer({"bootstrap.servers": cluster.kafka_bootstrap_servers, **options})
        lost.init_transactions(DEADLINE_S)
        send(lost, "orders", "b1", "b2")
        lost.flush(DEADLINE_S)
        assert read(cluster, "orders", "read_uncommitted") == ["a1", "a2", "b1", "b2"]
        lose(cluster, 2, 3)
        cluster.stop(1)
        recovered(cluster, (1,), tmp_path)
        cluster.start(1)
        for node in (2, 3):
            cluster.start(node)
        until(lambda: is_well(cluster), "the cluster is healthy")
        until(lambda: read_to_the_end(cluster) == ["a1", "a2"], "the open transaction has ended")
        again = producer_of(cluster, "again")
        until(lambda: committed(again, "c1", "c2"), "a transaction is committed")
        until(lambda: read_to_the_end(cluster) == ["a1", "a2", "c1", "c2"], "it is visible")


def read_to_the_end(cluster: LocalCluster) -> list[str] | None:
    """Returns the committed values; None while a transaction is open."""
    ends = []
    for level in ("read_committed", "read_uncommitted"):
        with Consumer(bootstrap_servers=cluster.bootstrap_servers, isolation_level=level) as consumer:
            ends.append(consumer.end_offsets(PLACES))
    return sorted(read(cluster, "orders")) if ends[0] == ends[1] else None

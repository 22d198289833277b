"""``quorumlog transactions``, and reading and lag where offsets hold no record, against real nodes."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from confluent_kafka import KafkaException, Producer

from quorumlog.local import LocalCluster
from quorumlog.sdk import Admin, Consumer, NewTopic, TopicPartition, TransactionState
from quorumlog.sdk.errors import InvalidTxnStateError

pytestmark = pytest.mark.cluster

Run = Callable[..., str]


@pytest.fixture(scope="module")
def quorumlog_cluster() -> Iterator[LocalCluster]:
    """Three nodes with the Kafka port, whose clients have transactions."""
    with LocalCluster(nodes=3, kafka=True) as nodes:
        yield nodes


@pytest.fixture
def topic(quorumlog_cluster: LocalCluster, request: pytest.FixtureRequest) -> str:
    """A new topic of two partitions."""
    name: str = request.node.name.replace("[", "-").replace("]", "")[:60]
    with Admin(bootstrap_servers=quorumlog_cluster.bootstrap_servers) as admin:
        admin.create_topics([NewTopic(name, num_partitions=2)])
    return name


@contextmanager
def transaction(cluster: LocalCluster, topic: str, *, name: str, records: int = 3) -> Iterator[Producer]:
    """A producer with an open transaction that has written to partition 0."""
    producer = Producer(
        {"bootstrap.servers": cluster.kafka_bootstrap_servers, "transactional.id": name, "log_level": 0}
    )
    producer.init_transactions(30)
    producer.begin_transaction()
    for number in range(records):
        producer.produce(topic, b"%d" % number, partition=0)
    producer.flush(30)
    yield producer


def consumed(run: Run, topic: str, *options: str) -> list[str]:
    """The values in partition 0 that a command prints, up to the end."""
    return run("consume", topic, "--partition", "0", "--until-end", *options).splitlines()


def test_operator_finds_describes_and_aborts(
    quorumlog_cluster: LocalCluster, run: Run, refuse: Run, topic: str
) -> None:
    name = "stuck"
    with transaction(quorumlog_cluster, topic, name=name) as producer:
        (row,) = json.loads(run("transactions", "list", "--state", "ongoing", "--pattern", "st.*", "--output", "json"))
        assert (row["transactional_id"], row["state"]) == (name, "Ongoing")
        assert run("transactions", "list", "--longer-than", "3600") == "No transactional id matches.\n"
        (seen,) = json.loads(run("transactions", "describe", name, "--output", "json"))
        (participant,) = seen["participants"]
        assert (participant["topic"], participant["partition"]) == (topic, 0)
        assert (participant["outcome"], participant["held_back"]) == ("open", 3)
        shown = run("transactions", "describe", name)
        assert shown.startswith("stuck: Ongoing, producer ") and f"{topic}-0" in shown
        assert "Would abort" in run("transactions", "abort", name, "--dry-run")
        assert "--yes" in refuse(2, "transactions", "abort", name)
        assert run("transactions", "abort", name, "--yes").startswith("Aborted the transaction of stuck.")
        with pytest.raises(KafkaException):
            producer.commit_transaction(30)
    assert "no transaction of stuck is open: it is CompleteAbort" in refuse(1, "transactions", "abort", name, "--yes")
    assert "decided by: operator" in run("transactions", "describe", name)
    assert consumed(run, topic, "--from-beginning") == []


def test_admin_client(quorumlog_cluster: LocalCluster, topic: str) -> None:
    with (
        Admin(bootstrap_servers=quorumlog_cluster.bootstrap_servers) as admin,
        transaction(quorumlog_cluster, topic, name="api") as producer,
    ):
        (seen,) = admin.describe_transactions(["api"])
        assert seen.state is TransactionState.ONGOING and seen.partitions == {TopicPartition(topic, 0): False}
        listed = admin.list_transactions([TransactionState.ONGOING], producer_ids=[seen.producer_id])
        assert [each.transactional_id for each in listed] == ["api"]
        producers = admin.describe_producers(TopicPartition(topic, 0))
        assert (producers.high_watermark, producers.last_stable_offset) == (3, 0)
        (active,) = producers.producers
        assert (active.last_sequence, active.transaction_start_offset) == (2, 0)
        assert active.last_timestamp_ms is not None
        producer.commit_transaction(30)
        assert seen.place is not None
        with pytest.raises(InvalidTxnStateError):
            admin.abort_transaction("api", seen.place)


def test_tail_counts_records(quorumlog_cluster: LocalCluster, run: Run, topic: str) -> None:
    for number, ends in enumerate(("commit", "abort", "abort", "commit", "abort")):
        with transaction(quorumlog_cluster, topic, name=f"tail-{number}") as producer:
            producer.commit_transaction(30) if ends == "commit" else producer.abort_transaction(30)
    assert consumed(run, topic, "--from-beginning") == ["0", "1", "2", "0", "1", "2"]
    assert consumed(run, topic, "--tail", "1") == ["2"]
    assert consumed(run, topic, "--tail", "4") == ["2", "0", "1", "2"]
    assert consumed(run, topic, "--offset", "-6") == ["0", "1", "2", "0", "1", "2"]
    assert consumed(run, topic, "--tail", "100") == ["0", "1", "2", "0", "1", "2"]
    assert consumed(run, topic, "--tail", "0") == []


def test_lag_is_0_behind_a_marker(quorumlog_cluster: LocalCluster, run: Run, topic: str) -> None:
    with transaction(quorumlog_cluster, topic, name="lag") as producer:
        producer.commit_transaction(30)
    group = f"group-of-{topic}"
    with Consumer(
        bootstrap_servers=quorumlog_cluster.bootstrap_servers, group_id=group, auto_offset_reset="earliest"
    ) as consumer:
        consumer.subscribe([topic])
        read = 0
        while read < 3 or consumer.position(TopicPartition(topic, 0)) < 4:
            read += sum(map(len, consumer.poll(timeout_ms=500).values()))
        consumer.commit()
    rows = json.loads(run("groups", "describe", group, "--output", "json"))
    (row,) = (each for each in rows if each["partition"] == 0)
    assert (row["current_offset"], row["log_end_offset"], row["lag"]) == (4, 4, 0)


def test_until_end_stops_before_an_open_transaction(quorumlog_cluster: LocalCluster, run: Run, topic: str) -> None:
    with transaction(quorumlog_cluster, topic, name="before") as producer:
        producer.commit_transaction(30)
    with transaction(quorumlog_cluster, topic, name="open") as producer:
        assert consumed(run, topic, "--from-beginning") == ["0", "1", "2"]
        producer.abort_transaction(30)
    assert consumed(run, topic, "--from-beginning") == ["0", "1", "2"], "the end is a marker"

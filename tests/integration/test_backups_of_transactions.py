"""Backups of real nodes under a load of transactions: each transaction is in the backup as a whole, or not at all."""

from __future__ import annotations

import asyncio
import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from command_line import until

from quorumlog.local import LocalCluster
from quorumlog.sdk import Admin, Consumer, NewTopic, Producer, TopicPartition
from quorumlog.sdk.backup.commands import create_backup, restore_backup, verify_backup
from quorumlog.sdk.backup.commit_hold import BackupHold
from quorumlog.sdk.backup.manifest import read_manifest
from quorumlog.sdk.backup.store import DirectoryStore
from quorumlog.sdk.cluster.cluster import Cluster, parse_bootstrap_servers
from quorumlog.sdk.runtime.backoff import Backoff

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]

ACCOUNTS = 4
TOPICS = ("withdrawals", "deposits")
ORDERS = TopicPartition("orders", 0)
COUNT = 3_000


class _AbortError(Exception):
    """Aborts a transaction."""


@pytest.fixture
def source() -> Iterator[LocalCluster]:
    with LocalCluster(nodes=3) as running:
        with Admin(bootstrap_servers=running.bootstrap_servers) as admin:
            admin.create_topics([NewTopic(name, ACCOUNTS, 3) for name in TOPICS])
            admin.create_topics([NewTopic(name, 1, 3) for name in ("orders", "invoices")])
        with Producer(bootstrap_servers=running.bootstrap_servers) as producer:
            for number in range(COUNT):
                producer.send("orders", b"%d" % number, partition=0)
        yield running
        for node in running.node_ids:
            assert "fault=failed" not in running.log_path(node).read_text()


@contextmanager
def load(*works: Callable[[threading.Event], None]) -> Iterator[None]:
    """Runs each work in a thread; it ends with the block."""
    stop, failures = threading.Event(), list[BaseException]()

    def run(work: Callable[[threading.Event], None]) -> None:
        try:
            work(stop)
        except BaseException as failure:
            failures.append(failure)

    threads = [threading.Thread(target=run, args=(work,)) for work in works]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    assert not failures, failures


def transfers(cluster: LocalCluster, name: str, done: list[int]) -> Callable[[threading.Event], None]:
    """Moves amounts: each transaction has a record in both topics. Some abort."""

    def work(stop: threading.Event) -> None:
        rng = random.Random(name)
        with Producer(bootstrap_servers=cluster.bootstrap_servers, transactional_id=name) as producer:
            while not stop.is_set():
                amount = rng.randrange(1, 100)
                try:
                    with producer.transaction() as tx:
                        tx.send("withdrawals", b"%d" % -amount, partition=rng.randrange(ACCOUNTS))
                        tx.send("deposits", b"%d" % amount, partition=rng.randrange(ACCOUNTS))
                        if rng.random() < 0.2:
                            producer.flush()
                            raise _AbortError
                except _AbortError:
                    continue
                done.append(amount)

    return work


def billing(cluster: LocalCluster) -> Callable[[threading.Event], None]:
    """Writes an invoice for each order, and commits its place in the orders with it."""

    def work(stop: threading.Event) -> None:
        with (
            Consumer(
                "orders", bootstrap_servers=cluster.bootstrap_servers, group_id="billing",
                enable_auto_commit=False, auto_offset_reset="earliest", max_poll_records=3,
            ) as consumer,
            Producer(bootstrap_servers=cluster.bootstrap_servers, transactional_id="billing") as producer,
        ):  # fmt: skip
            while not stop.is_set():
                records = [each for part in consumer.poll(timeout_ms=500).values() for each in part]
                if records:
                    with producer.transaction(consumer) as tx:
                        for record in records:
                            tx.send("invoices", record.value, partition=0)

    return work


def read(cluster: LocalCluster, topic: str, partitions: int) -> list[int]:
    """Returns the numbers that a reader of committed records finds, in the order of each partition."""
    places = [TopicPartition(topic, number) for number in range(partitions)]
    found: list[int] = []
    with Consumer(bootstrap_servers=cluster.bootstrap_servers, auto_offset_reset="earliest") as consumer:
        ends = consumer.end_offsets(places)
        consumer.assign(places)

        def all_read() -> bool:
            for records in consumer.poll(timeout_ms=200).values():
                found.extend(int(each.value or b"") for each in records)
            return all(consumer.position(place) >= ends[place] for place in places)

        until(all_read, f"{topic} is read")
    return found


def check_restored(place: Path) -> int:
    """Restores a backup, and compares what belongs together. Returns the number of transfers in it."""
    with LocalCluster(nodes=1) as fresh:
        restore_backup(str(place), bootstrap_servers=fresh.bootstrap_servers, replication_factor=1)
        withdrawn, deposited = (read(fresh, topic, ACCOUNTS) for topic in TOPICS)
        assert Counter(-amount for amount in withdrawn) == Counter(deposited)
        invoices = read(fresh, "invoices", 1)
        assert invoices == list(range(len(invoices)))
        with Admin(bootstrap_servers=fresh.bootstrap_servers) as admin:
            committed = admin.list_group_offsets("billing")
        assert committed[ORDERS].offset == len(invoices)
        return len(deposited)


def test_backups_have_transactions_as_a_whole(source: LocalCluster, tmp_path: Path) -> None:
    """Three backups under load, each of which adds to the one before. In the meantime transactions stay open across
    one backup, and commit or abort before the next."""
    done: list[int] = []
    restored = []
    names = [f"transfers-{number}" for number in range(3)]
    slow = [
        Producer(bootstrap_servers=source.bootstrap_servers, transactional_id=f"slow-{number}") for number in range(2)
    ]
    try:
        with load(*(transfers(source, name, done) for name in names), billing(source)):
            for number in range(3):
                before = len(done)
                until(lambda before=before: len(done) >= before + 100, "transfers are committed")  # type: ignore[misc]
                with slow[0].transaction() as committed, _aborted(slow[1]) as aborted:
                    for tx in (committed, aborted):
                        for topic, amount in zip(TOPICS, (b"-1000", b"1000"), strict=True):
                            tx.send(topic, amount, partition=number).result(30)
                    at_least = len(done)
                    until(lambda at_least=at_least: len(done) >= at_least + 50, "more are committed")  # type: ignore[misc]
                    report = create_backup(str(tmp_path), bootstrap_servers=source.bootstrap_servers)
                    assert report.notes == () and not report.manifest.cut_transactions
                assert verify_backup(str(tmp_path)).problems == ()
                # What was committed before the backup is in it, also behind the open transactions.
                restored.append((check_restored(tmp_path), at_least + number))
    finally:
        for producer in slow:
            producer.close()
    print(restored, len(done))
    assert all(found >= expected for found, expected in restored), restored


@contextmanager
def _aborted(producer: Producer) -> Iterator[Producer]:
    """A transaction that aborts at the end of the block."""
    try:
        with producer.transaction():
            yield producer
            raise _AbortError
    except _AbortError:
        pass


def test_producers_behind_an_open_transaction_are_restored(source: LocalCluster, tmp_path: Path) -> None:
    """A producer has written more batches behind it than a partition remembers: the backup has all of them."""
    with (
        Producer(bootstrap_servers=source.bootstrap_servers, transactional_id="open") as producer,
        Producer(bootstrap_servers=source.bootstrap_servers, producer_name="etl") as named,
        _aborted(producer) as tx,
    ):
        tx.send("deposits", b"0", partition=0).result(30)
        for number in range(8):
            named.send("deposits", b"%d" % (number + 1), partition=0).result(30)
        create_backup(str(tmp_path), bootstrap_servers=source.bootstrap_servers)
    manifest = read_manifest(DirectoryStore(tmp_path))
    assert manifest is not None
    (backed_up,) = [topic.partitions[0] for topic in manifest.topics if topic.name == "deposits"]
    assert (backed_up.next_offset, backed_up.end_offset, backed_up.producer_count) == (0, 9, 1)
    with LocalCluster(nodes=1) as fresh:
        restore_backup(str(tmp_path), bootstrap_servers=fresh.bootstrap_servers, replication_factor=1)
        assert read(fresh, "deposits", 1) == list(range(1, 9))
        with Admin(bootstrap_servers=fresh.bootstrap_servers) as admin:
            (restored,) = admin.describe_producers(TopicPartition("deposits", 0)).producers
        assert restored.last_sequence == 7
        with Producer(bootstrap_servers=fresh.bootstrap_servers, producer_name="etl") as again:
            again.send("deposits", b"9", partition=0).result(30)
        assert read(fresh, "deposits", 1) == list(range(1, 10))


async def hold(cluster: LocalCluster) -> None:
    """Has commits held, as a backup that dies then."""
    client = Cluster(
        parse_bootstrap_servers(cluster.bootstrap_servers), request_timeout_s=30, bootstrap_timeout_s=30,
        backoff=Backoff(), client_id="test",
    )  # fmt: skip
    try:
        await client.ask_metadata([])
        await BackupHold(client).begin()
    finally:
        await client.close()


def test_holds_of_a_backup_that_dies_end(source: LocalCluster, tmp_path: Path) -> None:
    """Commits wait, and none fails. The next backup is complete."""
    done: list[int] = []
    with load(transfers(source, "transfers", done)):
        until(lambda: len(done) >= 20, "transfers are committed")
        asyncio.run(hold(source))
        began_s, before = time.monotonic(), len(done)
        until(lambda: len(done) > before + 1, "transfers continue")
        assert 2 < time.monotonic() - began_s < 20, "commits have waited for the end of the hold"
        report = create_backup(str(tmp_path), bootstrap_servers=source.bootstrap_servers)
    assert report.notes == ()

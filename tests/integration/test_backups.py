"""Backups of real clusters under load, restored into fresh ones."""

from __future__ import annotations

import asyncio
import itertools
import json
import random
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import grpc
import pytest
from command_line import cli, leader_of, until

from quorumlog.cli.main import main
from quorumlog.local import LocalCluster
from quorumlog.local.ports import ReservedPorts
from quorumlog.sdk import (
    Admin,
    Consumer,
    NewTopic,
    OffsetAndMetadata,
    Producer,
    TopicAlreadyExistsError,
    TopicPartition,
)
from quorumlog.sdk.backup.commands import create_backup, restore_backup, verify_backup
from quorumlog.sdk.backup.manifest import MANIFEST, PartitionBackup, read_manifest
from quorumlog.sdk.backup.partition_copy import PartitionCopy, PartitionCut
from quorumlog.sdk.backup.segments import BackedUpBatch, batches_in
from quorumlog.sdk.backup.store import DirectoryStore
from quorumlog.v1 import data_plane_pb2, data_plane_pb2_grpc
from quorumlog.wire.entry import build_batch, payload_of

pytestmark = pytest.mark.cluster
Record = tuple[int, bytes | None, bytes | None, int]


@pytest.fixture(scope="module")
def source() -> Iterator[LocalCluster]:
    with LocalCluster(nodes=3) as made:
        yield made


@pytest.fixture
def fresh() -> Iterator[LocalCluster]:
    with LocalCluster(nodes=3) as made:
        yield made


def create(cluster: LocalCluster, topic: str, partitions: int = 1, **configs: str) -> None:
    settings = {key.replace("_", "."): value for key, value in configs.items()}
    with Admin(bootstrap_servers=cluster.bootstrap_servers) as admin:
        admin.create_topics([NewTopic(topic, partitions, 3, settings)])


def write(cluster: LocalCluster, topic: str, values: range, **options: object) -> None:
    with Producer(bootstrap_servers=cluster.bootstrap_servers, linger_ms=1, **options) as producer:  # type: ignore[arg-type]
        sent = [producer.send(topic, b"v%d" % value, key=b"k%d" % (value % 7)) for value in values]
        for future in sent:
            future.result(timeout=30)


def records(cluster: LocalCluster, topic: str, partitions: int = 1) -> dict[int, list[Record]]:
    """All records of a topic, by partition."""
    found: dict[int, list[Record]] = {number: [] for number in range(partitions)}
    with Consumer(bootstrap_servers=cluster.bootstrap_servers, auto_offset_reset="earliest") as reader:
        tps = [TopicPartition(topic, number) for number in range(partitions)]
        ends = reader.end_offsets(tps)
        reader.assign(tps)
        reader.seek_to_beginning()

        def all_read() -> bool:
            for tp, polled in reader.poll(timeout_ms=200).items():
                found[tp.partition] += [(each.offset, each.key, each.value, each.timestamp) for each in polled]
            return all(reader.position(tp) >= ends[tp] for tp in tps)

        until(all_read, f"{topic} is read")
    return found


def before(found: dict[int, list[Record]], place: Path, topic: str) -> dict[int, list[Record]]:
    """Those of the records that a backup reaches."""
    manifest = read_manifest(DirectoryStore(place))
    assert manifest is not None
    [backed_up] = [each for each in manifest.topics if each.name == topic]
    ends = {partition.number: partition.end_offset for partition in backed_up.partitions}
    return {number: [each for each in kept if each[0] < ends[number]] for number, kept in found.items()}


def test_a_backup_under_load_is_restored_with_offsets_groups_and_settings(
    source: LocalCluster, fresh: LocalCluster, tmp_path: Path
) -> None:
    create(source, "orders", 3, retention_ms="-1")
    stop = threading.Event()

    def load() -> None:
        with Producer(bootstrap_servers=source.bootstrap_servers, linger_ms=1) as producer:
            for value in range(200_000):
                if stop.is_set():
                    break
                producer.send("orders", b"v%d" % value, key=b"k%d" % (value % 7))
                if value % 50 == 0:
                    time.sleep(0.005)

    writer = threading.Thread(target=load)
    writer.start()
    try:
        with Consumer("orders", bootstrap_servers=source.bootstrap_servers, group_id="billing") as consumer:
            until(lambda: sum(len(each) for each in consumer.poll(timeout_ms=100).values()) > 0, "something is read")
            consumer.commit()
            first = create_backup(str(tmp_path), bootstrap_servers=source.bootstrap_servers)
            until(lambda: sum(len(each) for each in consumer.poll(timeout_ms=100).values()) > 0, "something is read")
            consumer.commit()
            second = create_backup(str(tmp_path), bootstrap_servers=source.bootstrap_servers)
    finally:
        stop.set()
        writer.join()
    assert second.kept_bytes >= first.copied_bytes > 0, "the second copies only what is new"
    assert verify_backup(str(tmp_path)).problems == ()
    expected = before(records(source, "orders", 3), tmp_path, "orders")
    report = restore_backup(str(tmp_path), bootstrap_servers=fresh.bootstrap_servers)
    assert (report.topics, report.partitions, report.groups) == (1, 3, 1)
    assert records(fresh, "orders", 3) == expected
    assert sum(map(len, expected.values())) > 0
    with (
        Admin(bootstrap_servers=source.bootstrap_servers) as old,
        Admin(bootstrap_servers=fresh.bootstrap_servers) as new,
    ):
        [was], [now] = old.describe_topics(["orders"]), new.describe_topics(["orders"])
        assert (now.topic_id, now.configs) == (was.topic_id, was.configs)
        committed = new.list_group_offsets("billing")
        assert committed.keys() <= old.list_group_offsets("billing").keys()
        assert committed
        for tp, each in committed.items():
            assert each.offset <= len(expected[tp.partition]), "a group is ahead of the records"
    assert_nodes_are_sound(fresh)


def assert_nodes_are_sound(cluster: LocalCluster) -> None:
    """Every node's data is what ``log verify`` expects, once it has stopped."""
    for node in cluster.node_ids:
        cluster.stop(node)
        command = [
            sys.executable,
            "-m",
            "quorumlog.cli.main",
            "log",
            "verify",
            "--data-dir",
            str(cluster.data_dir(node)),
        ]
        checked = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        assert checked.returncode == 0, checked.stdout + checked.stderr


def test_a_retry_after_the_restore_is_still_a_duplicate(
    source: LocalCluster, fresh: LocalCluster, tmp_path: Path
) -> None:
    """Records acknowledged before the backup are sent again, as by a producer that never received the answer."""
    create(source, "paid")
    for name in ({}, {"producer_name": "etl"}):
        with Producer(bootstrap_servers=source.bootstrap_servers, linger_ms=0, **name) as producer:
            for value in range(3):
                producer.send("paid", b"%d" % value).result(timeout=30)
    old = create_backup(str(tmp_path / "old"), bootstrap_servers=source.bootstrap_servers, topics=["paid"])
    restore_backup(str(tmp_path / "old"), bootstrap_servers=fresh.bootstrap_servers)
    new = create_backup(str(tmp_path / "new"), bootstrap_servers=fresh.bootstrap_servers, topics=["paid"])
    assert new.manifest.next_producer_id > old.manifest.next_producer_id, "no producer gets the id of another"
    assert new.manifest.producer_names == old.manifest.producer_names
    [segment] = (tmp_path / "old").rglob("*.segment")
    batches = list(batches_in(segment.read_bytes(), segment.name))
    assert len({batch.header.producer_id for batch in batches}) == 2
    for batch in batches:
        answer = send_again(fresh, "paid", batch)
        assert not answer.HasField("error"), answer
        assert answer.base_offset == batch.header.base_offset
    assert len(records(fresh, "paid")[0]) == 6
    with Producer(bootstrap_servers=fresh.bootstrap_servers, producer_name="etl") as producer:
        assert producer.send("paid", b"on").result(timeout=30).offset == 6


def test_a_producer_that_lives_through_a_restore_goes_on(tmp_path: Path) -> None:
    """Behind its addresses is another cluster then, whose leader epochs start again."""
    reserved = ReservedPorts(1)
    [port] = reserved.ports
    with LocalCluster(nodes=1, base_port=port) as old:
        with Admin(bootstrap_servers=old.bootstrap_servers) as admin:
            admin.create_topics([NewTopic("lasting", 1, 1)])
        for _ in range(3):
            old.stop(1)
            old.start(1)
        producer = Producer(bootstrap_servers=old.bootstrap_servers, linger_ms=0, producer_name="lasting")
        for value in range(10):
            assert producer.send("lasting", b"%d" % value).result(timeout=30).offset == value
        create_backup(str(tmp_path), bootstrap_servers=old.bootstrap_servers)
    with LocalCluster(nodes=1, base_port=port) as new, producer:
        restore_backup(str(tmp_path), bootstrap_servers=new.bootstrap_servers)
        for value in range(10, 15):
            assert producer.send("lasting", b"%d" % value).result(timeout=60).offset == value
        assert [value for _, _, value, _ in records(new, "lasting")[0]] == [b"%d" % each for each in range(15)]
    reserved.close()


def send_again(cluster: LocalCluster, topic: str, stored: BackedUpBatch) -> data_plane_pb2.ProduceResult:
    """Sends a stored batch to partition 0 as its producer had sent it."""
    header = stored.header
    batch = build_batch(
        bytes(payload_of(stored.entry)),
        record_count=header.record_count,
        codec=header.codec,
        base_timestamp_ms=header.append_time_ms,
        max_timestamp_ms=header.max_timestamp_ms,
        producer_id=header.producer_id,
        producer_epoch=header.producer_epoch,
        base_sequence=header.base_sequence,
        attributes=header.attributes,
    )
    with Admin(bootstrap_servers=cluster.bootstrap_servers) as admin:
        [described] = admin.describe_topics([topic])
    request = data_plane_pb2.ProduceRequest(correlation_id=1, acks=-1, timeout_ms=10_000)
    request.batches.add(topic_id=bytes.fromhex(described.topic_id), partition=0, batch=batch)
    results: list[data_plane_pb2.ProduceResult] = []

    def is_answered() -> bool:
        """True if the contacted node led the partition."""
        with grpc.insecure_channel(cluster.address(leader_of(cluster, topic))) as channel:
            [answer] = data_plane_pb2_grpc.DataPlaneStub(channel).Produce(iter([request]), timeout=30)
        results[:] = answer.results
        return not results[0].error.retriable

    until(is_answered, f"{topic} takes the batch")
    [result] = results
    return result


def test_a_restore_that_was_killed_goes_on(source: LocalCluster, fresh: LocalCluster, tmp_path: Path) -> None:
    create(source, "large", 2)
    with Producer(bootstrap_servers=source.bootstrap_servers) as producer:
        payload = random.Random(5).randbytes(50_000)
        for value in range(600):
            producer.send("large", payload + b"%d" % value, partition=value % 2)
    create_backup(str(tmp_path), bootstrap_servers=source.bootstrap_servers, topics=["large"])
    command = [
        sys.executable, "-m", "quorumlog.cli.main", "backup", "restore", str(tmp_path), "-b", fresh.bootstrap_servers,
    ]  # fmt: skip
    with Admin(bootstrap_servers=fresh.bootstrap_servers) as admin:
        restoring = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        until(lambda: "large" in admin.list_topics() or restoring.poll() is not None, "the topic is there")
        time.sleep(0.05)
        restoring.kill()
        restoring.wait()
    restore_backup(str(tmp_path), bootstrap_servers=fresh.bootstrap_servers)
    assert records(fresh, "large", 2) == records(source, "large", 2)


def test_a_restore_goes_on_while_leaders_are_killed(source: LocalCluster, fresh: LocalCluster, tmp_path: Path) -> None:
    create(source, "moved", 2)
    with Producer(bootstrap_servers=source.bootstrap_servers) as producer:
        payload = random.Random(6).randbytes(50_000)
        for value in range(600):
            producer.send("moved", payload + b"%d" % value, partition=value % 2)
    create_backup(str(tmp_path), bootstrap_servers=source.bootstrap_servers, topics=["moved"])
    failures: list[BaseException] = []

    def restore() -> None:
        try:
            restore_backup(str(tmp_path), bootstrap_servers=fresh.bootstrap_servers)
        except BaseException as failure:
            failures.append(failure)

    work = threading.Thread(target=restore)
    work.start()
    with Admin(bootstrap_servers=fresh.bootstrap_servers) as admin:
        until(lambda: "moved" in admin.list_topics() or not work.is_alive(), "the topic is there")
        leader = admin.describe_topics(["moved"])[0].partitions[0].leader
    if leader is not None:
        fresh.kill(leader)
        fresh.start(leader)
    work.join()
    assert failures == []
    assert records(fresh, "moved", 2) == records(source, "moved", 2)


def test_a_backup_that_was_killed_leaves_the_one_before_and_goes_on(
    source: LocalCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    create(source, "twice")
    write(source, "twice", range(100))
    create_backup(str(tmp_path), bootstrap_servers=source.bootstrap_servers, topics=["twice"])
    written = (tmp_path / MANIFEST).read_bytes()
    write(source, "twice", range(100, 300))

    def die(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(PartitionCopy, "_write_producers", die)
        with pytest.raises(KeyboardInterrupt):
            create_backup(str(tmp_path), bootstrap_servers=source.bootstrap_servers, topics=["twice"])
    assert (tmp_path / MANIFEST).read_bytes() == written
    assert verify_backup(str(tmp_path)).problems == ()
    again = create_backup(str(tmp_path), bootstrap_servers=source.bootstrap_servers, topics=["twice"])
    assert again.copied_bytes == 0, "what the killed one had copied is there"
    manifest = read_manifest(DirectoryStore(tmp_path))
    assert manifest is not None
    files = {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file()}
    assert files == {MANIFEST, *(file.name for file in manifest.files())}, "nothing else is left"
    assert verify_backup(str(tmp_path)).records == 300


def test_what_a_group_commits_during_the_backup_is_not_in_it(
    source: LocalCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    create(source, "watched")
    write(source, "watched", range(10))
    tp = TopicPartition("watched", 0)
    copy = PartitionCopy.copy

    async def copy_then_commit(
        self: PartitionCopy, before: PartitionBackup | None, cut: PartitionCut | None
    ) -> PartitionBackup:
        copied = await copy(self, before, cut)
        await asyncio.to_thread(write, source, "watched", range(10, 20))
        await asyncio.to_thread(commit, 20)
        return copied

    def commit(offset: int) -> None:
        with Admin(bootstrap_servers=source.bootstrap_servers) as admin:
            admin.alter_group_offsets("watchers", {tp: OffsetAndMetadata(offset)})

    commit(5)
    monkeypatch.setattr(PartitionCopy, "copy", copy_then_commit)
    report = create_backup(str(tmp_path), bootstrap_servers=source.bootstrap_servers, topics=["watched"])
    [group] = report.manifest.groups
    assert [(each.topic, each.offset) for each in group.offsets] == [("watched", 5)]
    assert report.notes == ()


def test_a_damaged_file_is_named(source: LocalCluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    create(source, "damaged")
    write(source, "damaged", range(50))
    create_backup(str(tmp_path), bootstrap_servers=source.bootstrap_servers, topics=["damaged"])
    [segment] = tmp_path.rglob("*.segment")
    whole = segment.read_bytes()
    for damaged in (whole[:-1], whole[:70] + bytes([whole[70] ^ 1]) + whole[71:], None):
        if damaged is None:
            segment.unlink()
        else:
            segment.write_bytes(damaged)
        with pytest.raises(SystemExit) as ended:
            main(["backup", "verify", str(tmp_path)])
        assert ended.value.code == 1
        [line] = capsys.readouterr().out.splitlines()
        assert line.startswith("damaged-0: ")
        assert segment.name in line


def test_a_compacted_topic_keeps_its_offsets(fresh: LocalCluster, tmp_path: Path) -> None:
    with LocalCluster(nodes=3, settings={"compaction_interval_ms": 200}) as cluster:
        create(cluster, "table", cleanup_policy="compact", min_cleanable_dirty_ratio="0.01")
        for _ in range(4):
            write(cluster, "table", range(200))

        places = (tmp_path / str(number) for number in itertools.count())

        def compacted() -> bool:
            """Every look is a backup from the beginning: one that is added to keeps what it had before compaction."""
            report = create_backup(str(next(places)), bootstrap_servers=cluster.bootstrap_servers)
            return report.manifest.topics[0].partitions[0].compacted_offset > 300

        until(compacted, "the log is compacted")
        newest = max(tmp_path.iterdir(), key=lambda place: int(place.name))
        assert verify_backup(str(newest)).problems == ()
        expected = before(records(cluster, "table"), newest, "table")
    restore_backup(str(newest), bootstrap_servers=fresh.bootstrap_servers)
    restored = records(fresh, "table")
    # The cluster may have compacted more since.
    assert {each[0] for each in restored[0]} >= {each[0] for each in expected[0]}
    assert restored[0][-1] == expected[0][-1]
    assert len(restored[0]) < 800
    last = {key: (offset, value) for offset, key, value, _ in restored[0]}
    assert last == {key: (offset, value) for offset, key, value, _ in expected[0]}
    write(fresh, "table", range(3))
    assert records(fresh, "table")[0][-1][0] == 802


def test_a_backup_that_compaction_has_overtaken_is_taken_anew(fresh: LocalCluster, tmp_path: Path) -> None:
    """Otherwise it would bring back what was deleted: it has the record, and the tombstone is gone."""
    settings = {"compaction_interval_ms": 200}
    configs = {"cleanup_policy": "compact", "min_cleanable_dirty_ratio": "0.01", "delete_retention_ms": "0"}
    with LocalCluster(nodes=3, settings=settings) as cluster:
        create(cluster, "table", **configs)
        write(cluster, "table", range(1))
        create_backup(str(tmp_path), bootstrap_servers=cluster.bootstrap_servers)
        with Producer(bootstrap_servers=cluster.bootstrap_servers, linger_ms=0) as producer:
            producer.send("table", None, key=b"k0").result(timeout=30)

            def forgotten() -> bool:
                producer.send("table", b"x", key=b"other").result(timeout=30)
                return all(key == b"other" for _, key, _, _ in records(cluster, "table")[0])

            until(forgotten, "the record and its tombstone are gone")
        create_backup(str(tmp_path), bootstrap_servers=cluster.bootstrap_servers)
    assert verify_backup(str(tmp_path)).problems == ()
    restore_backup(str(tmp_path), bootstrap_servers=fresh.bootstrap_servers)
    assert {key for _, key, _, _ in records(fresh, "table")[0]} == {b"other"}


def test_what_retention_took_is_noted_and_stays_away(source: LocalCluster, fresh: LocalCluster, tmp_path: Path) -> None:
    create(source, "short")
    write(source, "short", range(100))
    create_backup(str(tmp_path), bootstrap_servers=source.bootstrap_servers, topics=["short"])
    write(source, "short", range(100, 200))
    with Admin(bootstrap_servers=source.bootstrap_servers) as admin:
        admin.delete_records({TopicPartition("short", 0): 150})
    report = create_backup(str(tmp_path), bootstrap_servers=source.bootstrap_servers, topics=["short"])
    assert report.notes == ("short-0: offsets 100 to 149 were gone before they were backed up",)
    restore_backup(str(tmp_path), bootstrap_servers=fresh.bootstrap_servers)
    assert [each[0] for each in records(fresh, "short")[0]] == list(range(150, 200))


def test_a_restored_partition_moves_and_is_trimmed_like_any_other(source: LocalCluster, tmp_path: Path) -> None:
    create(source, "settled")
    write(source, "settled", range(300))
    with Admin(bootstrap_servers=source.bootstrap_servers) as admin:
        admin.delete_records({TopicPartition("settled", 0): 20})
    create_backup(str(tmp_path), bootstrap_servers=source.bootstrap_servers, topics=["settled"])
    tp = TopicPartition("settled", 0)
    with LocalCluster(nodes=4) as cluster:
        restore_backup(str(tmp_path), bootstrap_servers=cluster.bootstrap_servers)
        with Admin(bootstrap_servers=cluster.bootstrap_servers) as admin:
            write(cluster, "settled", range(50))
            admin.delete_records({tp: 320})
            [described] = admin.describe_topics(["settled"])
            replicas = described.partitions[0].replicas
            [other] = {1, 2, 3, 4} - set(replicas)
            admin.reassign_partitions({tp: [other, *replicas[1:]]})
            until(lambda: not admin.list_partition_reassignments(), "the partition has moved")
        assert [each[0] for each in records(cluster, "settled")[0]] == list(range(320, 350))
        for node in cluster.node_ids:
            cluster.stop(node)
        for node in cluster.node_ids:
            cluster.start(node)
        write(cluster, "settled", range(1))
        assert [each[0] for each in records(cluster, "settled")[0]] == list(range(320, 351))
        assert_nodes_are_sound(cluster)


def test_a_restore_refuses_a_topic_that_is_there(source: LocalCluster, tmp_path: Path) -> None:
    create(source, "there")
    create_backup(str(tmp_path), bootstrap_servers=source.bootstrap_servers, topics=["there"])
    with Admin(bootstrap_servers=source.bootstrap_servers) as admin:
        admin.delete_topics(["there"])
    create(source, "there")
    with pytest.raises(TopicAlreadyExistsError, match="there exists already"):
        restore_backup(str(tmp_path), bootstrap_servers=source.bootstrap_servers)


def test_an_empty_partition_comes_back_where_it_was(source: LocalCluster, fresh: LocalCluster, tmp_path: Path) -> None:
    create(source, "emptied")
    write(source, "emptied", range(10))
    with Admin(bootstrap_servers=source.bootstrap_servers) as admin:
        admin.delete_records({TopicPartition("emptied", 0): -1})
        admin.alter_group_offsets("g", {TopicPartition("emptied", 0): OffsetAndMetadata(10, "end")})
    create_backup(str(tmp_path), bootstrap_servers=source.bootstrap_servers, topics=["emptied"])
    done = cli(fresh, "backup", "restore", str(tmp_path), "--replication-factor", "1", "--output", "json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["groups"] == 1
    write(fresh, "emptied", range(1))
    assert [each[0] for each in records(fresh, "emptied")[0]] == [10]
    with Admin(bootstrap_servers=fresh.bootstrap_servers) as admin:
        assert admin.list_group_offsets("g")[TopicPartition("emptied", 0)].offset == 10
        admin.alter_group_offsets("g", {TopicPartition("emptied", 0): OffsetAndMetadata(11)})
        again = cli(fresh, "backup", "restore", str(tmp_path))
        assert again.returncode == 0, again.stderr
        assert admin.list_group_offsets("g")[TopicPartition("emptied", 0)].offset == 11, "a group was sent back"


def test_records_of_transactions_are_restored(source: LocalCluster, fresh: LocalCluster, tmp_path: Path) -> None:
    """Markers and aborted records are not in the backup: their offsets are missing behind committed batches."""
    create(source, "transfers")
    with Producer(bootstrap_servers=source.bootstrap_servers, transactional_id="transfers") as producer:
        for number in range(4):
            with producer.transaction():
                for part in range(3):
                    producer.send("transfers", f"{number}.{part}".encode(), key=b"k")
            with suppress(ZeroDivisionError), producer.transaction():
                producer.send("transfers", b"aborted").result(timeout=30)
                raise ZeroDivisionError
    place = str(tmp_path)
    create_backup(place, bootstrap_servers=source.bootstrap_servers)
    assert verify_backup(place).problems == ()
    restore_backup(place, bootstrap_servers=fresh.bootstrap_servers)
    expected = records(source, "transfers")
    assert [value for _, _, value, _ in expected[0]] == [b"%d.%d" % divmod(number, 3) for number in range(12)]
    assert records(fresh, "transfers") == expected

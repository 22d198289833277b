"""Records of Kafka's clients on real nodes: consumers, look-ups, backups and dumps read them with the rest."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import grpc
import pyarrow as pa
import pytest
from command_line import until

from quorumlog.local import LocalCluster
from quorumlog.sdk import Admin, Consumer, CorruptRecordError, NewTopic, Producer, TopicPartition
from quorumlog.sdk.backup.commands import create_backup, restore_backup
from quorumlog.v1 import data_plane_pb2, data_plane_pb2_grpc
from quorumlog.v1.errors_pb2 import ErrorCode
from quorumlog.wire.kafka.batch import KafkaCodec
from quorumlog.wire.kafka.entry import entry_of_kafka
from tests.support.kafka_batches import (
    KafkaRow,
    kafka_batch,
    produce_kafka,
    restore_log,
    stored_kafka_entry,
    with_checksum,
)

pytestmark = pytest.mark.cluster

NOW_MS = 1_700_000_000_000


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    with LocalCluster(nodes=1, kafka=True) as running:
        yield running


def create(cluster: LocalCluster, topic: str, **configs: str) -> None:
    settings = {"retention.ms": "-1"} | {key.replace("_", "."): value for key, value in configs.items()}
    with Admin(bootstrap_servers=cluster.bootstrap_servers) as admin:
        admin.create_topics([NewTopic(topic, 1, 1, settings)])
    until(lambda: cluster.leader(topic, 0) is not None, f"{topic} has a leader")


def write_kafka(cluster: LocalCluster, topic: str, rows: list[KafkaRow], codec: KafkaCodec = KafkaCodec.NONE) -> None:
    code, _ = produce_kafka(cluster, topic, kafka_batch(rows, codec))
    assert code == 0


def write_ours(cluster: LocalCluster, topic: str, rows: list[KafkaRow]) -> None:
    with Producer(bootstrap_servers=cluster.bootstrap_servers) as producer:
        sent = [
            producer.send(topic, value, key=key, timestamp_ms=time_ms, headers=headers)
            for key, value, time_ms, headers in rows
        ]
        for future in sent:
            future.result(timeout=30)


def rows_from(first: int, count: int = 20) -> list[KafkaRow]:
    return [
        (
            b"k%d" % (number % 7),
            None if number % 5 == 4 else b"v%d" % number,
            NOW_MS + number,
            [("n", b"%d" % number)] * (number % 3),
        )
        for number in range(first, first + count)
    ]


def fill(cluster: LocalCluster, topic: str) -> list[KafkaRow]:
    """Both kinds of batches, under all codecs."""
    written: list[KafkaRow] = []
    for codec in KafkaCodec:
        for write in (
            lambda rows, codec=codec: write_kafka(cluster, topic, rows, codec),
            lambda rows: write_ours(cluster, topic, rows),
        ):
            rows = rows_from(len(written))
            write(rows)
            written += rows
    return written


def read(cluster: LocalCluster, topic: str) -> list[tuple[int, KafkaRow]]:
    """Offsets and rows, record by record."""
    found: list[tuple[int, KafkaRow]] = []
    tp = TopicPartition(topic, 0)
    with Consumer(bootstrap_servers=cluster.bootstrap_servers) as reader:
        reader.assign([tp])
        reader.seek_to_beginning()
        end = reader.end_offsets([tp])[tp]

        def all_read() -> bool:
            for records in reader.poll(200).values():
                found.extend(
                    (each.offset, (each.key, each.value, each.timestamp, list(each.headers))) for each in records
                )
            return reader.position(tp) >= end

        until(all_read, f"{topic} is read")
    return found


def test_a_log_of_both_kinds_is_read_as_one(cluster: LocalCluster) -> None:
    create(cluster, "both")
    written = fill(cluster, "both")
    assert read(cluster, "both") == list(enumerate(written))
    tp = TopicPartition("both", 0)
    with Consumer(bootstrap_servers=cluster.bootstrap_servers) as reader:
        reader.assign([tp])
        reader.seek_to_beginning()
        tables: list[pa.Table] = []

        def all_read() -> bool:
            tables.append(reader.poll_arrow(200))
            return reader.position(tp) >= len(written)

        until(all_read, "all is read as Arrow")
        table = pa.concat_tables(tables)
        assert table.column("offset").to_pylist() == [*range(len(written))]
        assert table.column("value").to_pylist() == [row[1] for row in written]
        # In the middle of a batch of either kind.
        for number in (5, 25):
            [found] = reader.offsets_for_times({tp: NOW_MS + number}).values()
            assert found is not None and (found.offset, found.timestamp) == (number, NOW_MS + number)


def poisonous_batch(rows: list[KafkaRow]) -> bytes:
    """A batch that no reader reads, though its checksum is right."""
    batch = bytearray(kafka_batch(rows))
    batch[61] ^= 2
    return with_checksum(bytes(batch))


def test_an_unreadable_batch_is_refused(cluster: LocalCluster) -> None:
    create(cluster, "refused")
    write_kafka(cluster, "refused", rows_from(0, 3))
    assert produce_kafka(cluster, "refused", poisonous_batch(rows_from(3, 3))) == (87, -1)
    write_kafka(cluster, "refused", rows_from(3, 3))
    assert read(cluster, "refused") == list(enumerate(rows_from(0, 6)))


def test_kafka_batches_are_refused_at_the_grpc_port(cluster: LocalCluster) -> None:
    """Only the port for Kafka's clients checks their records."""
    create(cluster, "other-port")
    entry = entry_of_kafka(poisonous_batch(rows_from(0, 3)), null_keys=False)
    with grpc.insecure_channel(cluster.address(1)) as channel:
        stub = data_plane_pb2_grpc.DataPlaneStub(channel)
        described = stub.Metadata(data_plane_pb2.MetadataRequest(topics=["other-port"]), timeout=30)
        batch = data_plane_pb2.PartitionBatch(topic_id=described.topics[0].topic_id, partition=0, batch=entry)
        request = data_plane_pb2.ProduceRequest(correlation_id=1, acks=-1, timeout_ms=10_000, batches=[batch])
        [result] = next(stub.Produce(iter([request]), timeout=30)).results
    assert result.error.code == ErrorCode.INVALID_RECORD and "port for Kafka" in result.error.message


def test_a_poisonous_batch_is_one_clear_error_and_what_follows_is_read(cluster: LocalCluster) -> None:
    """Nodes took such batches once, so logs and backups have some."""
    create(cluster, "poison")
    batches = [kafka_batch(rows_from(0, 3)), poisonous_batch(rows_from(3, 3))]
    entries = [stored_kafka_entry(batch, 3 * place) for place, batch in enumerate(batches)]
    restore_log(cluster, "poison", entries, 6)
    write_ours(cluster, "poison", rows_from(6, 3))
    tp = TopicPartition("poison", 0)
    with Consumer(bootstrap_servers=cluster.bootstrap_servers) as reader:
        reader.assign([tp])
        reader.seek_to_beginning()
        seen: list[int] = []
        reported: list[str] = []

        def poisoned() -> bool:
            try:
                seen.extend(record.offset for records in reader.poll(200).values() for record in records)
            except CorruptRecordError as error:
                reported.append(str(error))
            return bool(reported)

        until(poisoned, "the poisonous batch is reported")
        assert "poison-0: offsets 3 to 5 cannot be read" in reported[0] and "seek to offset 6" in reported[0]
        assert seen == [0, 1, 2]
        reader.seek(tp, 6)

        def all_read() -> bool:
            seen.extend(record.offset for records in reader.poll(200).values() for record in records)
            return reader.position(tp) == 9

        until(all_read, "what follows is read")
        assert seen == [0, 1, 2, 6, 7, 8]


def test_records_are_deleted_up_to_the_midst_of_a_kafka_batch(cluster: LocalCluster) -> None:
    create(cluster, "trimmed")
    rows = rows_from(0, 10)
    write_kafka(cluster, "trimmed", rows, KafkaCodec.ZSTD)
    tp = TopicPartition("trimmed", 0)
    with Admin(bootstrap_servers=cluster.bootstrap_servers) as admin:
        assert admin.delete_records({tp: 4}) == {tp: 4}
    assert read(cluster, "trimmed") == [(offset, rows[offset]) for offset in range(4, 10)]
    with Consumer(bootstrap_servers=cluster.bootstrap_servers) as reader:
        # Of the records from that time on, some are deleted.
        [found] = reader.offsets_for_times({tp: NOW_MS}).values()
        assert found is not None and (found.offset, found.timestamp) == (4, NOW_MS + 4)


def test_a_compacted_topic_keeps_the_last_of_each_key_whoever_wrote_it(cluster: LocalCluster) -> None:
    create(cluster, "latest", cleanup_policy="compact", min_cleanable_dirty_ratio="0", delete_retention_ms="86400000")
    written = fill(cluster, "latest")
    last = {row[0]: number for number, row in enumerate(written)}

    def compacted() -> bool:
        write_kafka(cluster, "latest", [(b"other", b"%d" % len(written), NOW_MS, [])])
        kept = [offset for offset, row in read(cluster, "latest") if row[0] in last]
        return kept == sorted(last.values())

    until(compacted, "only the last record of each key is left")


def test_a_backup_of_both_kinds_is_restored_and_dumped(cluster: LocalCluster, tmp_path: Path) -> None:
    create(cluster, "kept")
    written = fill(cluster, "kept")
    place = tmp_path / "backup"
    create_backup(str(place), bootstrap_servers=cluster.bootstrap_servers, topics=["kept"])
    with LocalCluster(nodes=1) as fresh:
        restore_backup(str(place), bootstrap_servers=fresh.bootstrap_servers)
        assert read(fresh, "kept") == list(enumerate(written))
        group = fresh_group(fresh, "kept")
        data_dir = str(fresh.data_dir(1))
        fresh.stop(1)
        dumped = log_dump("--data-dir", data_dir, "--group", str(group))
        kinds = {line.split()[8] for line in dumped.splitlines() if " batch " in line}
        assert kinds == {"none", *(f"kafka/{codec.name.lower()}" for codec in KafkaCodec)}
        rows = [
            json.loads(line)
            for line in log_dump("--data-dir", data_dir, "--group", str(group), "-o", "json").splitlines()
        ]
        batches = [row["batch"] for row in rows if "batch" in row]
        assert {batch["format"] for batch in batches} == {"arrow", "kafka"}
        assert {batch["codec"] for batch in batches if batch["format"] == "kafka"} == {
            codec.name.lower() for codec in KafkaCodec
        }


def fresh_group(cluster: LocalCluster, topic: str) -> int:
    with grpc.insecure_channel(cluster.address(1)) as channel:
        stub = data_plane_pb2_grpc.DataPlaneStub(channel)
        described = stub.Metadata(data_plane_pb2.MetadataRequest(topics=[topic]), timeout=10)
    return int(described.topics[0].partitions[0].group_id)


def log_dump(*arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "quorumlog.cli.main", "log", "dump", *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout

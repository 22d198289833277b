"""Records that are deleted, by command and by retention, as users of a real cluster see it."""

from __future__ import annotations

import itertools
import json
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from command_line import leader_of

from quorumlog.cli.main import main
from quorumlog.local import LocalCluster
from quorumlog.sdk import (
    Admin,
    Consumer,
    InvalidPartitionsError,
    NewTopic,
    OffsetOutOfRangeError,
    PolicyViolationError,
    Producer,
    RequestTimedOutError,
    TopicPartition,
    UnknownTopicOrPartitionError,
)
from quorumlog.sdk.aio import AsyncAdmin

pytestmark = pytest.mark.cluster
_numbers = itertools.count()
PATIENCE_S = 60.0


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    with LocalCluster(nodes=3) as made:
        yield made


def filled(cluster: LocalCluster, records: int = 10, **configs: object) -> TopicPartition:
    """A partition with one record per batch, each naming its offset."""
    name = f"deleted-{next(_numbers)}"
    settings = {key.replace("_", "."): value for key, value in configs.items()}
    with Admin(bootstrap_servers=cluster.bootstrap_servers) as admin:
        admin.create_topics([NewTopic(name, 1, 3, settings)])
    write(cluster, name, range(records))
    return TopicPartition(name, 0)


def write(cluster: LocalCluster, topic: str, numbers: range, padding: int = 0) -> None:
    with Producer(bootstrap_servers=cluster.bootstrap_servers, linger_ms=0) as producer:
        for number in numbers:
            record = producer.send(topic, b"%d" % number + bytes(padding), key=b"%d" % number)
            assert record.result(timeout=PATIENCE_S).offset == number


def consumer(cluster: LocalCluster, tp: TopicPartition, reset: str) -> Consumer:
    made = Consumer(bootstrap_servers=cluster.bootstrap_servers, auto_offset_reset=reset)
    made.assign([tp])
    return made


def poll(reader: Consumer) -> list[int]:
    end = time.monotonic() + PATIENCE_S
    while time.monotonic() < end:
        found = [record.offset for records in reader.poll(timeout_ms=500).values() for record in records]
        if found:
            return found
    raise AssertionError("nothing came")


def until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < end, "not in time"
        time.sleep(0.05)


def test_deleted_records_are_out_of_range_and_consumers_follow_their_reset_policy(cluster: LocalCluster) -> None:
    tp = filled(cluster)
    readers = {reset: consumer(cluster, tp, reset) for reset in ("earliest", "latest", "none")}
    with Admin(bootstrap_servers=cluster.bootstrap_servers) as admin:
        assert admin.delete_records({tp: 4}) == {tp: 4}
        assert admin.delete_records({tp: 1}) == {tp: 4}, "no deleted record returns"
    for reader in readers.values():
        reader.seek(tp, 2)
    assert readers["earliest"].beginning_offsets([tp]) == {tp: 4}
    assert poll(readers["earliest"])[0] == 4
    with pytest.raises(OffsetOutOfRangeError, match=r"offset 2 .* the log has 4 to"):
        poll(readers["none"])
    readers["latest"].poll(timeout_ms=1000)
    until(lambda: not readers["latest"].poll(timeout_ms=100) and readers["latest"].position(tp) == 10)
    write(cluster, tp.topic, range(10, 11))
    assert poll(readers["latest"]) == [10]
    for reader in readers.values():
        reader.close()


def test_records_go_under_a_running_consumer(cluster: LocalCluster) -> None:
    tp = filled(cluster, 5)
    with consumer(cluster, tp, "earliest") as reader, Admin(bootstrap_servers=cluster.bootstrap_servers) as admin:
        seen = poll(reader)
        assert admin.delete_records({tp: -1}) == {tp: 5}
        write(cluster, tp.topic, range(5, 8))
        while seen[-1] < 7:
            seen += poll(reader)
        assert seen == sorted(set(seen)) and {5, 6, 7} <= set(seen)


async def test_what_cannot_be_deleted_is_refused(cluster: LocalCluster) -> None:
    tp = filled(cluster, 3)
    compacted = filled(cluster, 1, cleanup_policy="compact")
    async with AsyncAdmin(bootstrap_servers=cluster.bootstrap_servers) as admin:
        with pytest.raises(OffsetOutOfRangeError, match=r"outside 0\.\.3"):
            await admin.delete_records({tp: 4})
        with pytest.raises(PolicyViolationError, match="is compacted"):
            await admin.delete_records({compacted: 1})
        with pytest.raises(InvalidPartitionsError, match="no partition 7"):
            await admin.delete_records({TopicPartition(tp.topic, 7): 1})
        with pytest.raises(UnknownTopicOrPartitionError):
            await admin.delete_records({TopicPartition("never", 0): 1})
        assert await admin.delete_records({}) == {}


def test_deletion_finds_the_new_leader_and_a_replica_that_was_away_agrees(cluster: LocalCluster) -> None:
    tp = filled(cluster, 20)
    old = leader_of(cluster, tp.topic)
    cluster.kill(old)
    with Admin(bootstrap_servers=cluster.bootstrap_servers) as admin:
        assert admin.delete_records({tp: 15}) == {tp: 15}
        cluster.start(old)
        until(lambda: len(admin.describe_topics([tp.topic])[0].partitions[0].isr) == 3)
    with Admin(bootstrap_servers=cluster.bootstrap_servers, request_timeout_ms=5_000) as admin:

        def leads_again() -> bool:
            # On a busy machine a handing over may take longer than one call waits for it.
            with suppress(RequestTimedOutError):
                admin.elect_leaders([tp])
            return cluster.leader(tp.topic, 0) == old

        until(leads_again)
    with consumer(cluster, tp, "earliest") as reader:
        assert poll(reader)[0] == 15


def test_small_logs_stay_small(cluster: LocalCluster) -> None:
    tp = filled(cluster, 0, retention_bytes=50_000)
    write(cluster, tp.topic, range(100), padding=2_000)
    with consumer(cluster, tp, "earliest") as reader:
        until(lambda: reader.beginning_offsets([tp])[tp] >= 70)
        assert reader.beginning_offsets([tp])[tp] <= 100 - 50_000 // 2_800, "not less than retention.bytes is kept"


def test_old_records_go_by_themselves(cluster: LocalCluster) -> None:
    tp = filled(cluster, 5, retention_ms=1_000)
    with consumer(cluster, tp, "earliest") as reader:
        until(lambda: reader.beginning_offsets([tp]) == {tp: 5})


def test_the_command_line_deletes_records(
    cluster: LocalCluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tp = filled(cluster, 5)

    def run(*arguments: str) -> tuple[int, str]:
        command = ["topics", "delete-records", *arguments, "-b", cluster.bootstrap_servers]
        with pytest.raises(SystemExit) as ended:
            main(command)
        output = capsys.readouterr()
        assert (ended.value.code == 0) == (output.err == "") and output.err.count("\n") <= 1, output.err
        return int(ended.value.code or 0), output.out

    code, text = run(tp.topic, "--partition", "0", "--before", "2")
    assert code == 0 and text.split()[-3:] == [tp.topic, "0", "2"]
    code, text = run(tp.topic, "--before", "3", "--output", "json")
    assert code == 0 and json.loads(text) == [{"topic": tp.topic, "partition": 0, "log_start_offset": 3}]
    offsets = tmp_path / "offsets.json"
    offsets.write_text(json.dumps({"partitions": [{"topic": tp.topic, "partition": 0, "offset": -1}], "version": 1}))
    code, text = run("--offset-json-file", str(offsets), "-o", "json")
    assert code == 0 and json.loads(text)[0]["log_start_offset"] == 5
    offsets.write_text('{"partitions": [{"topic": 5}]}')
    assert run("--offset-json-file", str(offsets))[0] == 2
    assert run("--offset-json-file", str(tmp_path / "none"))[0] == 1
    assert run(tp.topic)[0] == 2
    assert run(tp.topic, "--before", "-7")[0] == 2
    assert run(tp.topic, "--before", "99")[0] == 1

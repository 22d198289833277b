"""Reading a partition from nodes that misbehave: the range is read exactly, or an error says what is missing."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent import futures
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import grpc
import pytest
from child_process import ChildProcess

from quorumlog.sdk.errors import (
    CorruptRecordError,
    NetworkError,
    NoBrokersAvailableError,
    QuorumlogError,
    UnreadableBatchError,
    UnsupportedVersionError,
)
from quorumlog.sdk.spark import log_access, nodes
from quorumlog.sdk.spark.cluster_catalog import ClusterCatalog
from quorumlog.sdk.spark.errors import DataLossError
from quorumlog.sdk.spark.log_access import stored_rows
from quorumlog.sdk.spark.planning import OffsetRange
from quorumlog.sdk.spark.ranges import exact
from quorumlog.v1 import errors_pb2
from quorumlog.wire.entry import Codec
from tests.support.stand_in import StandIn, StoredPartition
from tests.support.unreadable_batches import COUNT, UNREADABLE, unreadable_entry


@pytest.fixture
def node() -> Iterator[StandIn]:
    with StandIn() as stand_in:
        yield stand_in


def read(node: StandIn, start: int, end: int, *, strict: bool = True, topic: str = "t") -> list[bytes]:
    wanted = OffsetRange(topic, node.topic_ids[topic], 0, start, end)
    rows = stored_rows(node.address, wanted, strict)
    return [value for piece in rows for value in piece.columns.column("value").to_pylist()]


def test_batches_of_every_codec_come_in_order_until_the_range_is_covered(node: StandIn) -> None:
    (log,) = node.create("t")
    for number, codec in enumerate([Codec.NONE, Codec.LZ4, Codec.ZSTD, Codec.NONE]):
        log.append([b"%d-%d" % (number, index) for index in range(100)], codec)
    assert read(node, 0, 400) == [b"%d-%d" % (number, index) for number in range(4) for index in range(100)]
    assert read(node, 150, 250)[50:150] == [b"%d-%d" % (1 + i // 100, i % 100) for i in range(50, 150)]


def test_more_than_one_answer_is_asked_for_when_one_does_not_suffice(node: StandIn) -> None:
    (log,) = node.create("t")
    for _ in range(6):
        log.append([b"x" * (1 << 20)] * 4)
    assert len(read(node, 0, 24)) == 24
    assert node.fetches == 6


def test_a_leader_that_says_that_it_is_none_is_asked_for_the_new_one(node: StandIn) -> None:
    (log,) = node.create("t")
    log.append([b"a", b"b"])
    codes = [errors_pb2.NOT_LEADER_OR_FOLLOWER, errors_pb2.FENCED_LEADER_EPOCH, errors_pb2.UNKNOWN_TOPIC_OR_PARTITION]
    node.fetch_errors = [errors_pb2.Error(code=code, retriable=code < 14) for code in codes]
    node.fetch_errors[1].retriable = True
    assert read(node, 0, 2) == [b"a", b"b"]


def test_a_leader_that_falls_silent_is_given_up_and_the_rest_read_from_the_next(
    node: StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_access, "_STREAM_S", 0.3)
    (log,) = node.create("t")
    for value in (b"x" * (2 << 20), b"y"):
        log.append([value])
    wanted = OffsetRange("t", node.topic_ids["t"], 0, 0, 2)
    node.silent_fetches = 1
    rows = stored_rows(node.address, wanted, True)
    assert next(rows).end == 1
    node.silent_fetches = 2  # The answer that is awaited, or not even that; and one of a new stream.
    assert [piece.end for piece in rows] == [2]


#: A node that has one record, and room for questions beyond it.
NODE = """
from tests.support.stand_in import StandIn
with StandIn() as node:
    node.create("t")[0].append([b"a"])
    print(node.address, node.topic_ids["t"].hex(), flush=True)
    input()
"""


def until_stopped(pid: int) -> None:
    """Waits until no thread of a process runs: until then one of them may still answer."""

    def is_stopped(stat: Path) -> bool:
        try:
            return stat.read_text().rpartition(")")[2].split()[0] == "T"
        except (FileNotFoundError, ProcessLookupError):
            return True  # The thread has ended.

    deadline = time.monotonic() + 30
    while not all(map(is_stopped, Path(f"/proc/{pid}/task").glob("*/stat"))):
        assert time.monotonic() < deadline
        time.sleep(0.001)


def test_a_process_that_is_stopped_is_noticed_by_pings(monkeypatch: pytest.MonkeyPatch) -> None:
    quick = tuple(
        (name, value // 10 if name.endswith(("time_ms", "timeout_ms", "backoff_ms")) else value)
        for name, value in nodes.CHANNEL_OPTIONS
    )
    monkeypatch.setattr(nodes, "CHANNEL_OPTIONS", quick)
    monkeypatch.setattr(log_access, "_STREAM_S", 3600.0)
    with ChildProcess([sys.executable, "-c", NODE], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as at:
        assert at.stdout is not None
        address, topic_id = at.stdout.readline().split()
        wanted = OffsetRange("t", bytes.fromhex(topic_id), 0, 0, 1)
        assert [rows.end for rows in stored_rows(address, wanted, True)] == [1]
        monkeypatch.setattr(nodes.Patience.__init__, "__defaults__", (0.3,))  # Less than pings take.
        at.send_signal(signal.SIGSTOP)
        until_stopped(at.pid)
        try:
            with pytest.raises(NetworkError, match=f"no connection to {address}"):
                list(stored_rows(address, wanted, True))
        finally:
            at.kill()


def test_time_that_spark_takes_with_rows_is_no_time_without_progress(
    node: StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    (log,) = node.create("t")
    for value in (b"x" * (2 << 20), b"y"):
        log.append([value])
    now_s = [0.0]
    clock = SimpleNamespace(monotonic=lambda: now_s[0], sleep=lambda _: None)
    monkeypatch.setattr(nodes, "time", clock)
    moved = errors_pb2.Error(code=errors_pb2.NOT_LEADER_OR_FOLLOWER, retriable=True)
    node.fetch_errors = [errors_pb2.Error(), moved, moved]
    rows = stored_rows(node.address, OffsetRange("t", node.topic_ids["t"], 0, 0, 2), True)
    assert next(rows).end == 1
    now_s[0] = 60.0
    assert [piece.end for piece in rows] == [2]


def test_offsets_that_retention_removed_are_data_loss_or_skipped(node: StandIn) -> None:
    (log,) = node.create("t")
    for number in range(4):
        log.append([b"%d" % (2 * number), b"%d" % (2 * number + 1)])
    del log.entries[:2]
    log.log_start = 4
    with pytest.raises(
        DataLossError, match=r"topic t partition 0: offsets \[1, 4\) are gone, the query reads \[1, 8\)"
    ):
        read(node, 1, 8)
    assert read(node, 1, 8, strict=False) == [b"4", b"5", b"6", b"7"]
    log.log_start = 5
    assert read(node, 1, 8, strict=False) == [b"5", b"6", b"7"], "not what the batch holds before the log's start"


def test_a_new_leader_that_does_not_know_its_end_yet_is_no_data_loss(node: StandIn) -> None:
    """It has been elected and serves up to its high watermark: offsets beyond it exist, only not served yet."""
    (log,) = node.create("t")
    log.append([b"a", b"b"])
    log.append([b"c"])
    behind = errors_pb2.Error(code=errors_pb2.OFFSET_OUT_OF_RANGE)
    for position in (0, 2):
        node.fetch_errors = [behind, behind]
        assert read(node, position, 3) == [b"a", b"b", b"c"][position:]


def test_a_topic_created_anew_is_not_mistaken_for_the_one_planned(node: StandIn) -> None:
    (log,) = node.create("t")
    log.append([b"old"])
    wanted = OffsetRange("t", node.topic_ids["t"], 0, 0, 1)
    (log,) = node.create("t")
    log.append([b"new"])
    with pytest.raises(DataLossError, match=r"topic t was deleted and created again .* offsets \[0, 1\)"):
        list(stored_rows(node.address, wanted, True))
    del node.topic_ids["t"]
    with pytest.raises(DataLossError, match="topic t does not exist"):
        list(stored_rows(node.address, wanted, True))
    assert list(stored_rows(node.address, wanted, False)) == []


def with_unreadable(node: StandIn, kind: str) -> OffsetRange:
    """Offsets 0 and 1, an unreadable batch at 2 to 4, 5 and 6, and another one at 7 to 9."""
    (log,) = node.create("t")
    for values in ([b"0", b"1"], [b"5", b"6"]):
        log.append(values)
        log.entries.append(unreadable_entry(kind, log.next_offset))
        log.next_offset += COUNT
    return OffsetRange("t", node.topic_ids["t"], 0, 0, 10)


@pytest.mark.parametrize("kind", UNREADABLE)
def test_an_unreadable_batch_is_named_or_skipped(node: StandIn, kind: str, caplog: pytest.LogCaptureFixture) -> None:
    wanted = with_unreadable(node, kind)
    rows = exact(stored_rows(node.address, wanted, True), wanted, True)
    assert next(rows).columns.column("value").to_pylist() == [b"0", b"1"]
    with pytest.raises(UnreadableBatchError, match="or set option onCorrupt to skip") as raised:
        next(rows)
    assert (raised.value.partition, raised.value.first_offset, raised.value.next_offset) == (("t", 0), 2, 5)
    rows = exact(stored_rows(node.address, wanted, True, skip_unreadable=True), wanted, True)
    assert [value for piece in rows for value in piece.columns.column("value").to_pylist()] == [b"0", b"1", b"5", b"6"]
    said = [record.getMessage().partition(" and were skipped")[0] for record in caplog.records]
    assert said == [f"topic t partition 0: offsets [{first}, {first + COUNT}) cannot be read" for first in (2, 7)]


@pytest.mark.parametrize(("start", "end", "expected"), [(3, 6, [b"5"]), (2, 5, []), (1, 3, [b"1"]), (8, 10, [])])
def test_tasks_that_share_an_unreadable_batch(node: StandIn, start: int, end: int, expected: list[bytes]) -> None:
    """A range may start or end in the middle of one. No offset counts as lost for that."""
    wanted = replace(with_unreadable(node, "cut off"), start=start, end=end)
    rows = exact(stored_rows(node.address, wanted, True, skip_unreadable=True), wanted, True)
    assert [value for piece in rows for value in piece.columns.column("value").to_pylist()] == expected


def test_skipping_hides_no_lost_offsets(node: StandIn) -> None:
    wanted = with_unreadable(node, "cut off")
    del node.partitions["t", 0].entries[2]
    with pytest.raises(DataLossError, match=r"offsets \[5, 7\) are gone"):
        list(exact(stored_rows(node.address, wanted, True, skip_unreadable=True), wanted, True))


def test_damage_on_the_way_is_found_by_the_reader(node: StandIn) -> None:
    (log,) = node.create("t")
    log.append([b"payload"])
    log.entries[0] = log.entries[0].replace(b"payload", b"paYload")
    with pytest.raises(CorruptRecordError, match="checksum"):
        read(node, 0, 1)
    wanted = OffsetRange("t", node.topic_ids["t"], 0, 0, 1)
    with pytest.raises(CorruptRecordError, match="checksum"):
        list(stored_rows(node.address, wanted, True, skip_unreadable=True))


def test_what_stays_away_is_waited_for_only_so_long(node: StandIn, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nodes.Patience.__init__, "__defaults__", (1.0,))
    (log,) = node.create("t")
    log.append([b"a"])
    with pytest.raises(QuorumlogError, match=r"nothing at offset 1 of topic t partition 0 offsets \[0, 2\)"):
        read(node, 0, 2)
    node.leader, node.leader_epoch = -1, 2
    catalog = ClusterCatalog(node.address, newest=False)
    shapes = catalog.describe(["t"])
    with pytest.raises(QuorumlogError, match="topic t partition 0 has no leader"):
        catalog.bounds(shapes, [("t", 0)])


def test_a_node_that_is_cut_off_does_not_hold_up_a_query_that_can_ask_others(node: StandIn) -> None:
    (log,) = node.create("t")
    log.append([b"a"])
    with StandIn() as other, StandIn() as third:
        for cut_off in (other, third):
            cut_off.topic_ids, cut_off.partitions = node.topic_ids, node.partitions
            cut_off.leader, cut_off.leader_epoch, cut_off.hears_controller = -1, 0, False
        began = time.monotonic()
        for newest, servers in (
            (True, f"{other.address},{third.address},{node.address}"),
            (False, f"{third.address},{other.address},{node.address}"),
        ):
            catalog = ClusterCatalog(servers, newest=newest)
            assert catalog.bounds(catalog.describe(["t"]), [("t", 0)]) == {("t", 0): (0, 1)}
        wanted = OffsetRange("t", node.topic_ids["t"], 0, 0, 1)
        assert [rows.end for rows in stored_rows(f"{other.address},{node.address}", wanted, True)] == [1]
        assert time.monotonic() - began < 20


def test_something_else_that_listens_where_a_node_was_is_passed_over(node: StandIn) -> None:
    node.create("t")
    stranger = grpc.server(futures.ThreadPoolExecutor(1), options=[("grpc.so_reuseport", 0)])
    address = f"127.0.0.1:{stranger.add_insecure_port('127.0.0.1:0')}"
    stranger.start()
    try:
        assert "t" in ClusterCatalog(f"{address},{node.address}", newest=True).describe(["t"])
        with pytest.raises(UnsupportedVersionError, match=rf"{address} does not offer .*: is it a quorumlog node"):
            ClusterCatalog(address, newest=True).describe(["t"])
        with pytest.raises(NoBrokersAvailableError, match=rf"no node answers at {address}, 127\.0\.0\.1:9: "):
            ClusterCatalog(f"{address},127.0.0.1:9", newest=True).describe(["t"])
    finally:
        stranger.stop(grace=None).wait()


def test_nobody_there_is_said_with_the_address() -> None:
    with pytest.raises(NoBrokersAvailableError, match=r"no node answers at 127\.0\.0\.1:9: start the cluster"):
        ClusterCatalog("127.0.0.1:9", newest=True).describe(["t"])


def test_the_catalog_knows_topics_and_offsets(node: StandIn) -> None:
    (log, _) = node.create("t", partitions=2)
    node.create("u")
    log.append([b"a", b"b", b"c"])
    log.log_start = 1
    catalog = ClusterCatalog(node.address, newest=False)
    assert sorted(catalog.topic_names()) == ["t", "u"]
    shapes = catalog.describe(["t", "nope"])
    assert {name: shape.partition_count for name, shape in shapes.items()} == {"t": 2}
    assert catalog.bounds(shapes, [("t", 0), ("t", 1)]) == {("t", 0): (1, 3), ("t", 1): (0, 0)}


@pytest.fixture
def replicas(node: StandIn) -> Iterator[list[StandIn]]:
    """A leader with a topic of one record, and its two followers."""
    node.create("t")[0].append([b"a"])
    with StandIn() as second, StandIn() as third:
        node.followers = [second, third]
        for each in node.followers:
            each.topic_ids, each.partitions = node.topic_ids, dict(node.partitions)
        yield [node, second, third]


def read_piece(replicas: list[StandIn], piece: int, end: int = 1) -> list[int]:
    """Reads a piece; returns how many fetches each replica has received since the start."""
    wanted = OffsetRange("t", replicas[0].topic_ids["t"], 0, 0, end, piece)
    rows = list(stored_rows(replicas[0].address, wanted, True, from_replicas=True))
    assert sum(piece.columns.num_rows for piece in rows) == end
    return [each.fetches for each in replicas]


def test_pieces_are_read_from_replicas_in_turn(replicas: list[StandIn]) -> None:
    """Each replica serves every third piece of a partition."""
    assert [read_piece(replicas, piece) for piece in range(4)] == [[1, 0, 0], [1, 1, 0], [1, 1, 1], [2, 1, 1]]


def test_refusing_replica_is_left_for_the_leader(replicas: list[StandIn]) -> None:
    """Whatever a replica's error is, retriable or not, only the leader's counts."""
    for code in (
        errors_pb2.OFFSET_NOT_AVAILABLE,
        errors_pb2.TOPIC_AUTHORIZATION_FAILED,
        errors_pb2.OFFSET_OUT_OF_RANGE,
    ):
        before = [each.fetches for each in replicas]
        replicas[1].fetch_errors = [errors_pb2.Error(code=code)]
        after = read_piece(replicas, 1)
        assert [now - then for now, then in zip(after, before, strict=True)] == [1, 1, 0]


def test_replica_without_the_range_is_left_for_the_leader(replicas: list[StandIn]) -> None:
    """A follower that has not received the records yet is asked once."""
    log = replicas[0].partitions["t", 0]
    replicas[1].partitions = {("t", 0): StoredPartition(next_offset=1, entries=list(log.entries))}
    log.append([b"b"])
    assert read_piece(replicas, 1, end=2) == [1, 2, 0]

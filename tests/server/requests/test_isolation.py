"""Readers of a log with transactions: committed records alone, all of them, or what Kafka's clients sort out."""

from __future__ import annotations

from typing import Any, cast

import pytest

from quorumlog.server.kafka.codec.fetch_responses import AbortedTransaction
from quorumlog.server.kafka.handlers.fetched_partition import answer_of, fill, isolation_level
from quorumlog.server.partition import time_lookup
from quorumlog.server.partition.time_lookup import find_latest, find_time
from quorumlog.server.partition.transaction_steps import TransactionDecision, end_transaction, open_transaction
from quorumlog.server.requests import isolation, list_offsets
from quorumlog.server.requests.isolation import read_isolated, stable_end
from quorumlog.v1 import data_plane_pb2 as pb
from quorumlog.v1 import errors_pb2
from quorumlog.v1.errors_pb2 import ErrorCode
from quorumlog.v1.partition_log_pb2 import PartitionCommand, TrimLog
from quorumlog.wire.entry import Attributes, Codec, build_batch, parse_header, verify
from quorumlog.wire.kafka.control import LogPlace
from tests.server.requests.test_fetch_sessions import Rig as FetchRig
from tests.support.partition_rig import NOW_MS, Rig, batch

COMMITTED, ALL = pb.ISOLATION_LEVEL_READ_COMMITTED, pb.ISOLATION_LEVEL_READ_UNCOMMITTED
UNSPECIFIED = pb.ISOLATION_LEVEL_UNSPECIFIED
LARGE = 1 << 20


class TransactionalRig(Rig):
    """A partition that this node leads, with transactions that are opened and ended by hand."""

    def __init__(self) -> None:
        super().__init__()
        self.lead()
        self._sequences: dict[int, int] = {}
        self._place = 0
        self._origins: dict[int, LogPlace] = {}

    def write(self, producer: int, count: int = 2, time_ms: int = NOW_MS) -> None:
        """Appends a batch, in a transaction that opens with the first."""
        self._place += 1
        transactions = self.partition.transactions
        if transactions is None or transactions.known(producer).opened is None:
            self._origins[producer] = LogPlace(1, self._place)
            assert open_transaction(3, self.partition, producer, 0, 0, self._origins[producer]) is None
        made = build_batch(
            b"x" * 10, record_count=count, codec=Codec.NONE, base_timestamp_ms=time_ms, max_timestamp_ms=time_ms,
            producer_id=producer, producer_epoch=0, base_sequence=self._sequences.get(producer, 0),
            attributes=Attributes.TRANSACTIONAL,
        )  # fmt: skip
        self._sequences[producer] = self._sequences.get(producer, 0) + count
        assert self.produce(made)[0] is None
        self.settle()

    def plain(self, count: int = 2, time_ms: int = NOW_MS) -> None:
        """Appends a batch outside of all transactions."""
        assert self.produce(batch(count, timestamp_ms=time_ms))[0] is None
        self.settle()

    def end(self, producer: int, *, commit: bool) -> None:
        """Ends a transaction."""
        self._place += 1
        decision = TransactionDecision(producer, 0, self._origins[producer], LogPlace(1, self._place), commit)
        assert not isinstance(end_transaction(3, NOW_MS, self.partition, decision), errors_pb2.Error)
        self.settle()

    def trim(self, start: int) -> None:
        """Moves the log start."""
        assert self.partition.propose_command(3, PartitionCommand(trim_log=TrimLog(log_start_offset=start)))
        self.settle()

    def seen(self, offset: int, level: Any, max_bytes: int = LARGE, *, takes_control: bool = False) -> list[str]:
        """Returns what a reader gets: the offsets of each batch, with C for covers and M for markers."""
        found = read_isolated(self.partition, offset, max_bytes, level, takes_control=takes_control)
        assert found.problem is None
        shown = []
        for entry in found.entries:
            verify(entry)
            header = parse_header(entry)
            kind = ("M" if header.is_kafka else "C") if header.is_control else ""
            shown.append(f"{kind}{header.base_offset}-{header.last_offset}")
        return shown


@pytest.fixture
def rig() -> TransactionalRig:
    """0-1 plain, 2-3 aborted, 4-5 committed, 6 commits, 7-8 plain, 9 aborts, 10-11 open, 12-13 plain."""
    rig = TransactionalRig()
    rig.plain()
    rig.write(1)
    rig.write(2)
    rig.end(2, commit=True)
    rig.plain()
    rig.end(1, commit=False)
    rig.write(3)
    rig.plain()
    return rig


def test_committed_readers_get_committed_records(rig: TransactionalRig) -> None:
    """They get neither aborted records nor markers, and nothing from the first open transaction on."""
    assert rig.seen(0, COMMITTED) == ["0-1", "4-5", "7-8", "C9-9"]
    assert rig.seen(10, COMMITTED) == []
    assert stable_end(rig.partition, COMMITTED) == 10


def test_all_records_come_without_markers(rig: TransactionalRig) -> None:
    """Readers of everything get aborted and open transactions too."""
    assert rig.seen(0, ALL) == ["0-1", "2-3", "4-5", "7-8", "10-11", "12-13"]
    assert rig.seen(9, ALL) == ["10-11", "12-13"]
    assert stable_end(rig.partition, ALL) == 14


def test_backups_get_what_is_not_aborted(rig: TransactionalRig) -> None:
    """Also behind the first open transaction, and the batches of that."""
    level = pb.ISOLATION_LEVEL_READ_NOT_ABORTED
    assert rig.seen(0, level) == ["0-1", "4-5", "7-8", "10-11", "12-13"]
    rig.write(4)
    rig.end(4, commit=False)
    assert rig.seen(12, level) == ["12-13", "C14-16"]
    assert stable_end(rig.partition, level) == 17


def test_readers_continue_behind_what_is_left_out(rig: TransactionalRig) -> None:
    """A cover has the offsets that are left out at the end of an answer; inside, the answer says that some miss."""
    size = len(rig.partition.read(0, 1)[0])
    assert rig.seen(2, COMMITTED, 1) == ["C2-3"]
    assert rig.seen(3, COMMITTED, 1) == ["C2-3"]
    assert rig.seen(0, COMMITTED, 2 * size) == ["0-1", "C2-3"]
    assert rig.seen(9, COMMITTED) == ["C9-9"]
    found = read_isolated(rig.partition, 0, LARGE, COMMITTED, takes_control=False)
    assert (found.gaps_before, found.next_offset, found.aborted) == (10, 10, [])
    found = read_isolated(rig.partition, 7, 1, COMMITTED, takes_control=False)
    assert (found.gaps_before, found.next_offset) == (0, 9)


def test_covers_have_limits(rig: TransactionalRig, monkeypatch: pytest.MonkeyPatch) -> None:
    """A cover has no more offsets than a batch can name: more of them follow each other."""
    monkeypatch.setattr(isolation, "_MOST_COVERED", 3)
    rig.write(4, 5)
    rig.end(3, commit=True)
    rig.end(4, commit=False)
    assert rig.seen(14, COMMITTED) == ["C14-16", "C17-19", "C20-20"]


def test_kafka_clients_get_the_list_of_aborted(rig: TransactionalRig) -> None:
    """They get every batch; with read_committed up to the stable offset, and the transactions to leave out."""
    stable = ["0-1", "2-3", "4-5", "M6-6", "7-8", "M9-9"]
    assert rig.seen(0, COMMITTED, takes_control=True) == stable
    assert rig.seen(0, ALL, takes_control=True) == [*stable, "10-11", "12-13"]

    def aborted(offset: int, level: Any, max_bytes: int = LARGE) -> list[tuple[int, int]]:
        found = read_isolated(rig.partition, offset, max_bytes, level, takes_control=True)
        return [(each.producer_id, each.first_offset) for each in found.aborted]

    assert aborted(0, COMMITTED) == [(1, 2)]
    assert aborted(0, COMMITTED, 1) == [], "its first batch is behind the answer"
    assert aborted(9, COMMITTED) == [(1, 2)], "its marker is in the answer"
    assert aborted(10, COMMITTED) == aborted(0, ALL) == []


def test_clients_that_know_no_transactions_are_refused(rig: TransactionalRig) -> None:
    """They get the entries before the first transactional batch, and then an error that says what to do."""
    assert rig.seen(0, UNSPECIFIED) == ["0-1"]
    found = read_isolated(rig.partition, 2, LARGE, UNSPECIFIED, takes_control=False)
    assert found.problem is not None and found.problem.code == ErrorCode.UNSUPPORTED_VERSION
    assert "upgrade" in found.problem.message and found.entries == []
    assert rig.seen(12, UNSPECIFIED) == ["12-13"]


def fetching(rig: TransactionalRig) -> FetchRig:
    """Returns a node's fetches of the partition."""
    served = FetchRig(1)
    served.logs[0] = cast(Any, rig.partition)
    return served


def test_fetches_name_the_stable_offset(rig: TransactionalRig) -> None:
    """An answer has the last stable offset where it is not the high watermark, and says which offsets may miss."""
    served = fetching(rig)
    request = {"isolation_level": COMMITTED, "takes_kafka_batches": True}
    [result] = served.replies[served.ask(0, {0: 0}, **request)].results
    assert (result.high_watermark, result.last_stable_offset, result.compacted_offset) == (14, 10, 10)
    assert [parse_header(entry).base_offset for entry in result.entries] == [0, 4, 7, 9]
    assert not result.aborted
    [result] = served.replies[served.ask(0, {0: 0}, takes_control_batches=True, **request)].results
    assert [(each.producer_id, each.first_offset) for each in result.aborted] == [(1, 2)]
    assert result.compacted_offset == 0
    rig.end(3, commit=True)
    [result] = served.replies[served.ask(0, {0: 14}, **request)].results
    assert result.high_watermark == 15 and not result.HasField("last_stable_offset")


def test_committed_readers_wait_for_the_marker(rig: TransactionalRig) -> None:
    """A fetch at the stable offset waits, and is answered when it moves, although no record is appended."""
    served = fetching(rig)
    waiting = served.ask(1, {0: 10}, isolation_level=COMMITTED, takes_kafka_batches=True, min_bytes=1)
    rig.plain()
    served.changed(0)
    assert waiting not in served.replies
    rig.end(3, commit=True)
    served.changed(0)
    assert served.answered(waiting) == {0: [10, 12, 14, 16]}
    assert [result.compacted_offset for result in served.replies[waiting].results] == [17]
    following = served.ask(2, isolation_level=COMMITTED, takes_kafka_batches=True, min_bytes=1)
    assert following not in served.replies, "the session's position is behind the marker"


def test_older_clients_are_refused_by_fetches(rig: TransactionalRig) -> None:
    """A client without an isolation level gets an error at the first transaction."""
    served = fetching(rig)
    assert served.answered(served.ask(0, {0: 0}, takes_kafka_batches=True)) == {0: [0]}
    [result] = served.replies[served.ask(0, {0: 2}, takes_kafka_batches=True)].results
    assert result.error.code == ErrorCode.UNSUPPORTED_VERSION and not result.entries


def test_answers_of_left_out_batches_come_at_once(rig: TransactionalRig) -> None:
    """A reader that wants many bytes does not wait at a stretch of aborted batches while more is behind it."""
    for _ in range(20):
        rig.write(1, 50)
    rig.end(1, commit=False)
    rig.end(3, commit=True)
    rig.plain()
    served = fetching(rig)
    fields = {"isolation_level": COMMITTED, "min_bytes": 100_000, "takes_kafka_batches": True}
    request = served.ask(0, {0: 14}, max_bytes=1_000_000, **fields)
    assert request not in served.replies, "all of it is read, and is not enough"
    small = served.fetches._limits
    served.fetches._limits = cast(Any, type(small))(fetch_bytes=600)
    request = served.ask(0, {0: 14}, **fields)
    assert served.answered(request) != {}


def test_times_are_those_of_records(rig: TransactionalRig) -> None:
    """Lookups by time find no marker, and with read_committed nothing behind the stable offset."""
    late = TransactionalRig()
    late.plain(2, NOW_MS)
    late.write(1, 2, NOW_MS + 10)
    late.end(1, commit=True)
    late.write(2, 2, NOW_MS + 20)
    late.end(2, commit=True)
    late.write(3, 2, NOW_MS + 30)
    reader = cast(Any, late.log)
    found = find_time(late.partition, reader, NOW_MS + 11, 0)
    assert found is not None and found.offset == 5
    found = find_time(late.partition, reader, NOW_MS + 5, 4)
    assert found is not None and found.offset == 5, "offset 4 is a marker"
    assert find_time(late.partition, reader, NOW_MS + 21, 0, stable_end(late.partition, COMMITTED)) is None
    found = find_latest(late.partition, reader)
    assert found is not None and found.offset == 8
    found = find_latest(late.partition, reader, stable_end(late.partition, COMMITTED))
    assert found is not None and found.offset == 5


def test_scans_by_time_end_at_the_stable_offset() -> None:
    """The stable batches themselves are examined: the index points to a batch that is removed."""
    rig = TransactionalRig()
    rig.plain(2, NOW_MS + 90)
    rig.write(1)
    rig.end(1, commit=True)
    rig.write(2, 2, NOW_MS + 95)
    rig.trim(2)
    assert rig.partition.last_stable_offset == 5
    reader = cast(Any, rig.log)
    assert find_time(rig.partition, reader, NOW_MS + 85, 0, stable_end(rig.partition, COMMITTED)) is None
    found = find_time(rig.partition, reader, NOW_MS + 85, 0)
    assert found is not None and found.offset == 5


def test_the_latest_record_may_precede_markers(monkeypatch: pytest.MonkeyPatch) -> None:
    """The last batch before the markers is the result: the one with the latest timestamp is removed."""
    rig = TransactionalRig()
    rig.plain(2, NOW_MS + 90)
    rig.write(1, 2, NOW_MS)
    rig.write(2, 2, NOW_MS + 10)
    rig.end(1, commit=True)
    rig.end(2, commit=True)
    rig.trim(2)
    assert (rig.partition.log_start_offset, rig.partition.high_watermark) == (2, 8)
    found = find_latest(rig.partition, cast(Any, rig.log))
    assert found is not None and found.header is not None
    assert (found.header.base_offset, found.header.last_offset) == (4, 5)
    monkeypatch.setattr(time_lookup, "MOST_MARKERS", 1)
    assert find_latest(rig.partition, cast(Any, rig.log)) is None
    rig.trim(6)
    monkeypatch.setattr(time_lookup, "MOST_MARKERS", 9)
    assert find_latest(rig.partition, cast(Any, rig.log)) is None


def test_logs_of_markers_have_no_latest_record() -> None:
    """A partition in which transactions ended without a record has no record of any time."""
    rig = TransactionalRig()
    assert open_transaction(3, rig.partition, 1, 0, 0, LogPlace(1, 1)) is None
    rig._place, rig._origins[1] = 1, LogPlace(1, 1)
    rig.end(1, commit=True)
    assert rig.partition.high_watermark == 1
    assert find_latest(rig.partition, cast(Any, rig.log)) is None
    assert find_time(rig.partition, cast(Any, rig.log), 0, 0) is None
    assert rig.seen(0, COMMITTED) == ["C0-0"]


def test_ends_depend_on_the_level(rig: TransactionalRig) -> None:
    """The end of a log is the stable offset for readers of committed records."""
    for level, end in ((COMMITTED, 10), (ALL, 14), (UNSPECIFIED, 14)):
        lookup = list_offsets._Lookup(
            1, 0, cast(Any, None), [pb.ListOffsetsPartition(timestamp_ms=-1)], pb.ListOffsetsResponse(), True, level
        )
        lookup.response.results.add()
        service = list_offsets.OffsetRequests.__new__(list_offsets.OffsetRequests)
        service._refuse_by_now = lambda *_: False  # type: ignore[method-assign]
        service._answer(lookup, 0, rig.partition)
        assert lookup.response.results[0].offset == end


def test_kafka_answers_have_the_aborted(rig: TransactionalRig) -> None:
    """A Kafka client gets the level that it asks for, the stable offset, and the list of aborted transactions."""
    assert [isolation_level(level) for level in (0, 1, 2)] == [ALL, COMMITTED, ALL]
    served = fetching(rig)
    fields = {"isolation_level": COMMITTED, "takes_kafka_batches": True, "takes_control_batches": True}
    [result] = served.replies[served.ask(0, {0: 0}, **fields)].results
    answer = answer_of(0)
    fill(cast(Any, None), answer, result)
    assert (answer.high_watermark, answer.last_stable_offset) == (14, 10)
    assert answer.aborted_transactions == [AbortedTransaction(1, 2)]
    rig.end(3, commit=True)
    [result] = served.replies[served.ask(0, {0: 10}, **fields)].results
    answer = answer_of(0)
    fill(cast(Any, None), answer, result)
    assert (answer.high_watermark, answer.last_stable_offset, answer.aborted_transactions) == (15, 15, ())
    [result] = served.replies[served.ask(0, {0: 0}, **fields)].results
    assert not result.HasField("last_stable_offset") and len(result.aborted) == 1

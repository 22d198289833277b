"""Transactions in a partition: when they open and end, what fences them, and what of them replicas keep."""

from __future__ import annotations

import pytest

from quorumlog.server.config.options import NodeLimits
from quorumlog.server.metadata.records import SECOND_FEATURE_LEVEL
from quorumlog.server.partition import open_transactions, transaction_steps
from quorumlog.server.partition.aborted_ranges import AbortedBatches, AbortedRange, AbortedRanges
from quorumlog.server.partition.open_transactions import OpenTransactions
from quorumlog.server.partition.partition import MAX_OFFSET, Partition
from quorumlog.server.partition.producer_table import ProducerTable
from quorumlog.server.partition.transaction_steps import (
    TransactionDecision,
    TransactionEnding,
    end_transaction,
    open_longer_than,
    open_transaction,
    transaction_of,
)
from quorumlog.server.step import newest_decisions
from quorumlog.v1 import errors_pb2
from quorumlog.v1.errors_pb2 import ErrorCode
from quorumlog.v1.partition_log_pb2 import ForgetProducers, PartitionCommand, TrimLog
from quorumlog.wire.entry import FIRST_NAMED_PRODUCER_ID, Attributes, Codec, build_batch, parse_header
from quorumlog.wire.kafka.control import LogPlace, build_marker
from tests.support.partition_rig import NOW_MS, Rig, batch

FIRST, SECOND, THIRD, FOURTH = (LogPlace(1, index) for index in (10, 20, 30, 40))
PRODUCER, OTHER = 7, 8


@pytest.fixture
def rig() -> Rig:
    rig = Rig()
    rig.lead()
    return rig


def transactional(sequence: int, *, count: int = 3, producer: int = PRODUCER, epoch: int = 0) -> bytes:
    """Returns a batch of a transaction."""
    return build_batch(
        b"x" * 10, record_count=count, codec=Codec.NONE, base_timestamp_ms=NOW_MS, max_timestamp_ms=NOW_MS,
        producer_id=producer, producer_epoch=epoch, base_sequence=sequence, attributes=Attributes.TRANSACTIONAL,
    )  # fmt: skip


def opens(
    rig: Rig, enlisted: LogPlace = FIRST, producer: int = PRODUCER, epoch: int = 0, now: int = 3
) -> errors_pb2.Error | None:
    """Opens a transaction."""
    return open_transaction(now, rig.partition, producer, epoch, 2, enlisted)


def ends(
    rig: Rig,
    decided: LogPlace = SECOND,
    *,
    commit: bool = True,
    producer: int = PRODUCER,
    epoch: int = 0,
    origin: LogPlace = FIRST,
) -> TransactionEnding | errors_pb2.Error:
    """Ends a transaction."""
    return end_transaction(3, NOW_MS, rig.partition, TransactionDecision(producer, epoch, origin, decided, commit))


def aborts(rig: Rig, decided: LogPlace = SECOND, producer: int = PRODUCER) -> None:
    """Aborts a transaction, and waits until it is."""
    assert isinstance(ends(rig, decided, commit=False, producer=producer), TransactionEnding)
    rig.settle()


def refused(
    problem: errors_pb2.Error | TransactionEnding | None, code: ErrorCode.ValueType, *, retriable: bool
) -> bool:
    """True if a step was refused definitely for a reason."""
    assert isinstance(problem, errors_pb2.Error)
    return (problem.code, problem.retriable, problem.definite) == (code, retriable, True)


def restarted(rig: Rig) -> Partition:
    """Returns the partition after a restart, from the rows that were written."""
    partition = rig.partition
    table = {key: value for key, value in partition.take_rows().items() if value is not None}
    return Partition(partition.identity, rig.raft, partition._sealer, rig.log, table, NodeLimits())  # type: ignore[arg-type]


def test_transactions_hold_the_stable_offset(rig: Rig) -> None:
    """The last stable offset waits at the first offset of the transaction, and moves on with its marker."""
    rig.produce(batch(2))
    assert opens(rig) is None
    assert rig.produce(transactional(0))[0] is None
    rig.produce(batch(4))
    assert rig.partition.last_stable_offset == 0
    rig.settle()
    assert (rig.partition.last_stable_offset, rig.partition.high_watermark) == (2, 9)
    ending = ends(rig)
    assert isinstance(ending, TransactionEnding) and ending.marker_offset == 9
    assert rig.partition.last_stable_offset == 2
    rig.settle()
    assert rig.partition.applied_index >= ending.index
    assert (rig.partition.last_stable_offset, rig.partition.high_watermark) == (10, 10)
    assert parse_header(rig.partition.read(9, 1)[0]).attributes & Attributes.COMMIT


def test_uncommitted_openings_do_not_count(rig: Rig) -> None:
    """A transaction holds the stable offset from its commit on, not from the leader's append on."""
    rig.produce(batch(2))
    rig.settle()
    assert opens(rig) is None and transaction_of(rig.partition, PRODUCER) is not None
    assert rig.partition.last_stable_offset == 2
    rig.produce(batch(3))
    rig.settle()
    assert rig.partition.last_stable_offset == 2


def test_stable_offset_waits_for_the_first(rig: Rig) -> None:
    """With several open transactions, the one that was opened first decides, whichever ends first."""
    opens(rig)
    rig.produce(transactional(0))
    opens(rig, SECOND, OTHER)
    rig.produce(transactional(0, producer=OTHER))
    rig.settle()
    ends(rig, THIRD, producer=OTHER, origin=SECOND)
    rig.settle()
    assert rig.partition.last_stable_offset == 0
    ends(rig, FOURTH)
    rig.settle()
    assert rig.partition.last_stable_offset == rig.partition.high_watermark == 8


def test_a_repeated_opening_has_no_effect(rig: Rig) -> None:
    """A transaction that is open, committed or not, is not opened again."""
    for _ in range(3):
        assert opens(rig) is None
        rig.settle()
    assert rig.commands() == ["open_transaction"]


def test_batches_need_their_transaction(rig: Rig) -> None:
    """A batch is accepted only inside of a transaction of its epoch, and no other batch of its producer is."""
    assert refused(rig.produce(transactional(0))[0], ErrorCode.INVALID_RECORD, retriable=False)
    opens(rig)
    assert refused(rig.produce(transactional(0, epoch=1))[0], ErrorCode.INVALID_RECORD, retriable=False)
    assert refused(rig.produce(batch(3, 0, PRODUCER))[0], ErrorCode.INVALID_RECORD, retriable=False)
    assert rig.produce(transactional(0))[0] is None
    assert rig.produce(batch(3, 0, OTHER))[0] is None
    ends(rig)
    problem, _ = rig.produce(transactional(3))
    assert refused(problem, ErrorCode.INVALID_RECORD, retriable=False)
    rig.settle()
    assert refused(rig.produce(transactional(3))[0], ErrorCode.INVALID_RECORD, retriable=False)


def test_late_duplicates_are_answered(rig: Rig) -> None:
    """A batch that is repeated after its transaction has ended is acknowledged, and appended once."""
    opens(rig)
    rig.produce(transactional(0))
    ends(rig)
    rig.settle()
    problem, result = rig.produce(transactional(0))
    rig.settle()
    assert problem is None and result.base_offset == 0 and rig.partition.log_end_offset == 4


def test_markers_are_written_once(rig: Rig) -> None:
    """A decision that comes again writes no second marker, whether the first is committed or not."""
    opens(rig)
    rig.produce(transactional(0))
    rig.settle()
    first = ends(rig)
    again = ends(rig)
    assert isinstance(first, TransactionEnding) and again == first
    rig.settle()
    assert ends(rig) == TransactionEnding(None, 0)
    assert rig.partition.log_end_offset == 4


def test_decisions_end_only_earlier_transactions(rig: Rig) -> None:
    """A decision of an earlier transaction does not end the one that is open now."""
    opens(rig, THIRD)
    rig.produce(transactional(0))
    rig.settle()
    assert ends(rig, SECOND, commit=False) == TransactionEnding(None, 0)
    assert transaction_of(rig.partition, PRODUCER) is not None
    assert isinstance(ends(rig, FOURTH), TransactionEnding)


def test_places_compare_terms_first(rig: Rig) -> None:
    """After a recovery of the coordinator its indexes go back, and its decisions still count."""
    opens(rig, LogPlace(1, 900))
    ending = ends(rig, LogPlace(2, 5), origin=LogPlace(1, 900))
    assert isinstance(ending, TransactionEnding) and ending.marker_offset == 0


def test_decided_transactions_do_not_open(rig: Rig) -> None:
    """A transaction that was enlisted at or before a decision is over, also where the decision found none."""
    assert ends(rig, SECOND) == TransactionEnding(None, 0)
    for enlisted in (FIRST, SECOND):
        assert refused(opens(rig, enlisted), ErrorCode.INVALID_PRODUCER_EPOCH, retriable=False)
    assert opens(rig, THIRD) is None
    ends(rig, FOURTH, origin=THIRD)
    for settled in range(2):
        assert refused(opens(rig, FOURTH), ErrorCode.INVALID_PRODUCER_EPOCH, retriable=False), settled
        rig.settle()
    assert opens(rig, LogPlace(1, 41)) is None


@pytest.mark.parametrize("decides_first", [False, True])
def test_one_entry_may_start_and_decide(rig: Rig, decides_first: bool) -> None:
    """A decision at the very place of a transaction ends it, or keeps it from opening."""
    if decides_first:
        assert ends(rig, FIRST, commit=False) == TransactionEnding(None, 0)
        assert refused(opens(rig, FIRST), ErrorCode.INVALID_PRODUCER_EPOCH, retriable=False)
    else:
        assert opens(rig, FIRST) is None
        ending = ends(rig, FIRST, commit=False)
        assert isinstance(ending, TransactionEnding) and ending.marker_offset == 0
    rig.settle()
    assert rig.partition.transactions is not None and not rig.partition.transactions.open
    assert opens(rig, SECOND) is None


def test_decision_ends_its_own_transaction_only(rig: Rig) -> None:
    """A transaction whose decision has not come yet does not end with the outcome of the next one."""
    opens(rig)
    assert refused(ends(rig, FOURTH, commit=False, origin=THIRD), ErrorCode.SERVER_BUSY, retriable=True)
    ending = ends(rig, SECOND)
    assert isinstance(ending, TransactionEnding) and ending.marker_offset == 0
    rig.settle()
    assert ends(rig, FOURTH, commit=False, origin=THIRD) == TransactionEnding(None, 0)


def test_the_next_transaction_waits_for_the_marker(rig: Rig) -> None:
    """Another transaction of the producer opens only after the marker of the one before it."""
    opens(rig)
    assert refused(opens(rig, THIRD), ErrorCode.SERVER_BUSY, retriable=True)
    ends(rig, SECOND)
    assert opens(rig, THIRD) is None
    rig.settle()
    assert transaction_of(rig.partition, PRODUCER) == rig.partition.transactions.open[PRODUCER]  # type: ignore[union-attr]


def test_late_openings_in_the_log_have_no_effect(rig: Rig) -> None:
    """Applying decides by the log alone: an opening behind its decision opens nothing."""
    opens(rig)
    ends(rig)
    rig.settle()
    transactions = rig.partition.transactions
    assert transactions is not None
    late = open_transactions.OpenedTransaction(0, 1, 2, SECOND)
    assert not transactions.apply_open(PRODUCER, late, 99) and not transactions.open
    other = open_transactions.OpenedTransaction(0, 1, 2, THIRD)
    assert transactions.apply_open(PRODUCER, other, 100)
    assert not transactions.apply_open(PRODUCER, other._replace(enlisted=FOURTH), 101)
    assert transactions.open[PRODUCER] == other


def test_markers_fence_earlier_epochs(rig: Rig) -> None:
    """From the marker on, batches of an earlier epoch of the producer are refused; the new one starts at 0."""
    opens(rig)
    rig.produce(transactional(0))
    ends(rig, epoch=1)
    for _ in range(2):
        problem, _ = rig.produce(batch(3, 3, PRODUCER))
        assert refused(problem, ErrorCode.INVALID_PRODUCER_EPOCH, retriable=False)
        assert refused(opens(rig, THIRD), ErrorCode.INVALID_PRODUCER_EPOCH, retriable=False)
        rig.settle()
    known = restarted(rig).producers.known(PRODUCER)
    assert known is not None and known.epoch == 1, "every replica fences, not only the leader that wrote the marker"
    assert opens(rig, THIRD, epoch=1) is None
    assert refused(rig.produce(transactional(3, epoch=1))[0], ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, retriable=False)
    for sequence in (0, 3):
        assert rig.produce(transactional(sequence, epoch=1))[0] is None
        rig.settle()


def test_epochs_go_on_across_transactions(rig: Rig) -> None:
    """A producer that keeps its epoch continues its sequence in the next transaction."""
    opens(rig)
    rig.produce(transactional(0))
    ends(rig)
    opens(rig, THIRD)
    assert rig.produce(transactional(3))[0] is None
    rig.settle()
    assert rig.partition.producers.next_sequence(PRODUCER) == 6


def test_aborted_transactions_leave_ranges(rig: Rig) -> None:
    """An aborted transaction is known by its offsets; a committed one leaves nothing."""
    opens(rig)
    rig.produce(transactional(0))
    aborts(rig)
    opens(rig, THIRD)
    rig.produce(transactional(3))
    ends(rig, FOURTH)
    rig.settle()
    transactions = rig.partition.transactions
    assert transactions is not None
    assert list(transactions.aborted.between(0, 100)) == [AbortedRange(PRODUCER, 0, 3)]


def test_restarts_and_snapshots_keep_transactions(rig: Rig) -> None:
    """Open, decided and aborted transactions are the same after a restart, and in a snapshot."""
    opens(rig)
    rig.produce(transactional(0))
    aborts(rig)
    opens(rig, THIRD)
    opens(rig, FIRST, OTHER, epoch=3)
    rig.settle()
    before, rows = rig.partition.transactions, rig.partition._all_rows()
    assert before is not None
    again = restarted(rig)
    assert again._all_rows() == rows
    assert again.last_stable_offset == rig.partition.last_stable_offset == 4
    after = again.transactions
    assert after is not None and after.open == before.open and after.began == 0
    assert [*after.aborted.between(0, 9)] == [AbortedRange(PRODUCER, 0, 3)]
    assert after.newest_decision(PRODUCER) == SECOND
    assert not after.apply_open(PRODUCER, before.open[PRODUCER]._replace(enlisted=SECOND), 99)


def test_written_rows_follow_the_state(rig: Rig) -> None:
    """The rows written step by step are those of the whole state, deleted ones included."""
    table: dict[bytes, bytes] = {}

    def written() -> dict[bytes, bytes]:
        for key, value in rig.partition.take_rows().items():
            if value is None:
                table.pop(key, None)
            else:
                table[key] = value
        return {key: value for key, value in table.items() if key not in (b"m",)}

    opens(rig)
    rig.produce(transactional(0))
    rig.settle()
    assert written() == rig.partition._all_rows()
    aborts(rig)
    assert written() == rig.partition._all_rows()
    rig.partition.propose_command(3, PartitionCommand(trim_log=TrimLog(log_start_offset=4)))
    rig.partition.propose_command(3, PartitionCommand(forget_producers=ForgetProducers(up_to_index=1 << 40)))
    rig.settle()
    assert written() == rig.partition._all_rows() and list(table) == [b"x", b"m"]


def test_uncommitted_steps_survive_a_new_leadership(rig: Rig) -> None:
    """A new leader counts the openings and markers in its log before they are applied."""
    opens(rig)
    rig.produce(transactional(0))
    opens(rig, FIRST, OTHER, epoch=5)
    ends(rig, epoch=1)
    assert rig.partition.transactions is not None
    known = [rig.partition.transactions.known(producer) for producer in (PRODUCER, OTHER)]
    rig.partition._end_leadership()
    assert rig.partition.transactions.known(OTHER).opened is None
    rig.partition._begin_leadership()
    assert [rig.partition.transactions.known(producer) for producer in (PRODUCER, OTHER)] == known
    assert refused(rig.produce(batch(3, 0, PRODUCER))[0], ErrorCode.INVALID_PRODUCER_EPOCH, retriable=False)
    assert refused(rig.produce(batch(3, 0, OTHER))[0], ErrorCode.INVALID_PRODUCER_EPOCH, retriable=False)
    assert rig.partition.log_end_offset == 4
    rig.settle()
    assert rig.partition.last_stable_offset == 3 and rig.partition.transactions.count == 1


def test_limits_are_definite_and_retriable(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond the limits of open and of aborted transactions, no further one opens until there is room again."""
    monkeypatch.setattr(transaction_steps, "MAX_OPEN", 2)
    monkeypatch.setattr(transaction_steps, "MAX_ABORTED", 3)
    assert opens(rig) is None and opens(rig, producer=OTHER) is None
    assert refused(opens(rig, producer=9), ErrorCode.SERVER_BUSY, retriable=True)
    rig.settle()
    assert refused(opens(rig, producer=9), ErrorCode.SERVER_BUSY, retriable=True)
    aborts(rig)
    aborts(rig, producer=OTHER)
    assert opens(rig, producer=9) is None
    assert refused(opens(rig, producer=10), ErrorCode.SERVER_BUSY, retriable=True)
    rig.produce(batch(1))
    rig.settle()
    rig.partition.propose_command(3, PartitionCommand(trim_log=TrimLog(log_start_offset=2)))
    rig.settle()
    assert opens(rig, producer=10) is None


def test_remembered_decisions_are_bounded(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """Decisions without a transaction are remembered for a minute; one too many is refused, and comes again."""
    monkeypatch.setattr(newest_decisions, "MAX_REMEMBERED", 2)
    for producer in (1, 2, 1):
        assert ends(rig, producer=producer) == TransactionEnding(None, 0)
    assert refused(ends(rig, producer=3), ErrorCode.SERVER_BUSY, retriable=True)
    later = 3 + newest_decisions.REMEMBERED_US
    decision = TransactionDecision(3, 0, FIRST, SECOND, commit=True)
    assert end_transaction(later, NOW_MS, rig.partition, decision) == TransactionEnding(None, 0)


def test_impossible_transactions_are_refused(rig: Rig) -> None:
    """Named producers, negative ids and epochs of more than 16 bits have no transactions."""
    for producer, epoch in ((FIRST_NAMED_PRODUCER_ID, 0), (-1, 0), (PRODUCER, 1 << 15), (PRODUCER, -1)):
        assert refused(opens(rig, producer=producer, epoch=epoch), ErrorCode.INVALID_REQUEST, retriable=False)
        assert refused(ends(rig, producer=producer, epoch=epoch), ErrorCode.INVALID_REQUEST, retriable=False)
    for made in (transactional(0, epoch=1 << 15), transactional(0, producer=rig.named)):
        assert refused(rig.produce(made)[0], ErrorCode.INVALID_RECORD, retriable=False)


def test_older_nodes_see_no_transactions(rig: Rig) -> None:
    """Below feature level 3 nothing of a transaction gets into a log."""
    rig.level = SECOND_FEATURE_LEVEL
    assert refused(opens(rig), ErrorCode.UNSUPPORTED_VERSION, retriable=False)
    assert refused(ends(rig), ErrorCode.UNSUPPORTED_VERSION, retriable=False)
    assert rig.produce(transactional(0))[0] is not None
    assert rig.commands() == [] and rig.partition.log_end_offset == 0


def test_only_leaders_take_steps(rig: Rig) -> None:
    """A replica that does not lead opens and ends nothing."""
    rig.partition.leading_term = 0
    assert isinstance(opens(rig), errors_pb2.Error) and opens(rig).code == ErrorCode.NOT_LEADER_OR_FOLLOWER  # type: ignore[union-attr]
    assert refused(ends(rig), ErrorCode.NOT_LEADER_OR_FOLLOWER, retriable=True)
    assert open_longer_than(3, rig.partition, 0) == []


def test_old_transactions_are_listed(rig: Rig) -> None:
    """A leader lists what it has known to be open for long, so that it can ask for the outcome."""
    opens(rig)
    rig.settle()
    assert open_longer_than(1_000, rig.partition, 10) == []
    opens(rig, producer=OTHER)
    rig.settle()
    assert [producer for producer, _ in open_longer_than(1_010, rig.partition, 10)] == [PRODUCER]
    ends(rig)
    opens(rig, THIRD)
    rig.settle()
    assert [producer for producer, _ in open_longer_than(1_030, rig.partition, 10)] == [OTHER]


def test_deleted_records_raise_the_stable_offset(rig: Rig) -> None:
    """A client may delete records of an open transaction: the stable offset is never below the log start."""
    opens(rig)
    rig.produce(transactional(0))
    rig.settle()
    rig.partition.propose_command(3, PartitionCommand(trim_log=TrimLog(log_start_offset=2)))
    rig.settle()
    assert rig.partition.last_stable_offset == 2


def test_open_producers_are_not_forgotten() -> None:
    """Neither by age nor by number is a producer with an open transaction forgotten; once it has ended, it is."""
    table, transactions = ProducerTable(2), OpenTransactions()
    table.transactions = transactions
    header = parse_header(transactional(0))
    transactions.apply_open(PRODUCER, open_transactions.OpenedTransaction(0, 0, 2, FIRST), 1)
    table.apply(header, 2)
    assert table.oldest_index is None
    for number in range(4):
        table.apply(header._replace(producer_id=100 + number), 3 + number)
    table.forget(1 << 40)
    assert table.known(PRODUCER) is not None and len(table) == 1
    marker = build_marker(PRODUCER, 0, SECOND, NOW_MS, commit=True)
    transactions.apply_marker(parse_header(marker), marker, 50)
    assert table.oldest_index == 2
    table.forget(1 << 40)
    assert table.known(PRODUCER) is None and transactions.rows()[b"x"] is not None
    assert len(transactions.rows()) == 1, "the decision is forgotten with its producer"


def test_ranges_are_found_by_offsets() -> None:
    """A reader gets the ranges that concern what it reads, and no others."""
    ranges = AbortedRanges()
    made = [AbortedRange(1, 0, 10), AbortedRange(2, 5, 20), AbortedRange(1, 11, 30), AbortedRange(3, 22, 40)]
    for each, stable in zip(made, (5, 11, 22, 41), strict=True):
        ranges.add(each, stable)
    assert [*ranges.between(0, 100)] == made
    assert [*ranges.between(0, 5)] == made[:1]
    assert [*ranges.between(11, 21)] == made[1:3]
    assert [*ranges.between(31, 100)] == made[3:]
    rows = ranges.take_rows()
    assert dict(ranges.rows()) == rows and ranges.take_rows() == {}
    loaded = AbortedRanges()
    loaded.load({key: value for key, value in rows.items() if value is not None})
    assert [*loaded.between(0, 100)] == made and dict(loaded.rows()) == rows
    ranges.forget_before(20)
    assert [*ranges.between(0, 100)] == made[1:] and list(ranges.take_rows().values()) == [None]


def test_aborted_batches_are_those_before_their_marker() -> None:
    """A batch belongs to the transaction whose marker comes next, if its first offset is not behind the batch."""
    aborted = AbortedBatches(iter([AbortedRange(1, 0, 10), AbortedRange(1, 30, 40)]))
    assert [aborted.holds(1, offset) for offset in (0, 9, 11, 29, 30, 39, 41)] == [
        True, True, False, False, True, True, False
    ]  # fmt: skip
    assert not aborted.holds(2, 5)


def test_markers_have_offsets_left(rig: Rig) -> None:
    """Near the end of the offsets no transaction opens, and no batch takes the offset of a marker."""
    opens(rig)
    rig.produce(transactional(0))
    rig.settle()
    rig.partition.log_end_offset = MAX_OFFSET - open_transactions.MAX_OPEN - 2
    for message in (transactional(3), batch(3)):
        assert refused(rig.produce(message)[0], ErrorCode.INVALID_RECORD, retriable=False)
    assert opens(rig, SECOND, OTHER) is None
    assert rig.produce(transactional(0, count=2, producer=OTHER))[0] is None
    assert rig.partition.log_end_offset == MAX_OFFSET - open_transactions.MAX_OPEN
    rig.partition.log_end_offset += 1
    assert refused(opens(rig, THIRD, 9), ErrorCode.INVALID_RECORD, retriable=False)
    for producer, origin in ((PRODUCER, FIRST), (OTHER, SECOND)):
        ending = ends(rig, FOURTH, producer=producer, origin=origin)
        assert isinstance(ending, TransactionEnding) and ending.marker_offset is not None
    assert rig.partition.log_end_offset < MAX_OFFSET

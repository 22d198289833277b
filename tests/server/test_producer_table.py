"""Deduplication of idempotent producers: the applied table and the overlay of the uncommitted tail."""

import pytest

from quorumlog.server.producer_table import Duplicate, ProducerTable, Refused
from quorumlog.v1.entry import SEQUENCE_MODULUS, BatchHeader, Codec, TimestampType
from quorumlog.v1.errors_pb2 import ErrorCode


def header(sequence: int, count: int = 2, producer: int = 7, epoch: int = 0, base_offset: int = 0) -> BatchHeader:
    return BatchHeader(base_offset, count, Codec.NONE, TimestampType.CREATE_TIME, 1, 2, producer, epoch, sequence)


def refusal(table: ProducerTable, *args: int, **kwargs: int) -> ErrorCode.ValueType:
    verdict = table.check(header(*args, **kwargs))
    assert isinstance(verdict, Refused)
    return verdict.code


def test_a_new_producer_begins_with_sequence_zero() -> None:
    table = ProducerTable(10)
    assert table.check(header(0)) is None
    assert refusal(table, 4) == ErrorCode.UNKNOWN_PRODUCER_ID


def test_the_next_batch_follows_and_a_gap_is_refused() -> None:
    table = ProducerTable(10)
    table.append(header(0), base_offset=0, index=1)
    assert table.check(header(2)) is None
    assert refusal(table, 4) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_a_retry_names_its_original_while_it_is_uncommitted_and_after() -> None:
    table = ProducerTable(10)
    table.append(header(0), base_offset=40, index=9)
    for commit in (lambda: None, lambda: table.apply(header(0, base_offset=40), index=9)):
        commit()
        verdict = table.check(header(0))
        assert isinstance(verdict, Duplicate)
        assert (verdict.batch.base_offset, verdict.batch.log_index) == (40, 9)


def test_the_last_five_batches_are_remembered() -> None:
    table = ProducerTable(10)
    for number in range(7):
        table.apply(header(2 * number, base_offset=2 * number), index=number + 1)
    assert isinstance(table.check(header(4)), Duplicate)
    assert refusal(table, 2) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_an_older_epoch_is_fenced_and_a_newer_one_starts_over() -> None:
    table = ProducerTable(10)
    table.apply(header(0, epoch=3), index=1)
    assert refusal(table, 2, epoch=2) == ErrorCode.INVALID_PRODUCER_EPOCH
    assert table.check(header(0, epoch=4)) is None
    assert refusal(table, 2, epoch=4) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_sequences_wrap_to_zero() -> None:
    table = ProducerTable(10)
    table.append(header(0, count=SEQUENCE_MODULUS - 2), base_offset=0, index=1)
    table.append(header(SEQUENCE_MODULUS - 2, count=4), base_offset=SEQUENCE_MODULUS - 2, index=2)
    assert table.check(header(2)) is None


@pytest.mark.scenario("22b")
def test_a_truncated_batch_is_not_called_a_duplicate_later() -> None:
    """raft.md 22: a deposed leader that kept the batch would confirm a retry of something that is lost."""
    table = ProducerTable(10)
    table.apply(header(0), index=1)
    table.append(header(2), base_offset=2, index=2)
    assert isinstance(table.check(header(2)), Duplicate)
    table.drop_tail()
    assert table.check(header(2)) is None


@pytest.mark.scenario("22a")
def test_a_new_leadership_knows_the_uncommitted_tail() -> None:
    table = ProducerTable(10)
    table.rebuild_tail([(header(0, base_offset=10), 5), (header(2, base_offset=12), 6)])
    verdict = table.check(header(0))
    assert isinstance(verdict, Duplicate)
    assert verdict.batch.base_offset == 10
    assert table.check(header(4)) is None


def test_rows_bring_the_table_back_in_the_order_of_last_use() -> None:
    table = ProducerTable(2)
    table.apply(header(0, producer=1), index=1)
    table.apply(header(0, producer=2, base_offset=2), index=2)
    table.apply(header(2, producer=1, base_offset=4), index=3)
    restored = ProducerTable(2)
    restored.load({key: row for key, row in table.take_rows().items() if row is not None})
    for each in (table, restored):
        each.apply(header(0, producer=3, base_offset=6), index=4)
        assert refusal(each, 2, producer=2) == ErrorCode.UNKNOWN_PRODUCER_ID
        assert each.check(header(4, producer=1)) is None
    assert list(table.take_rows().values()).count(None) == 1

"""A partition that is restored from a backup: step by step, over a real Raft core and a log in memory."""

from __future__ import annotations

import pytest
from partition_rig import NOW_MS, Rig, batch

from quorumlog.server.config.options import NodeLimits
from quorumlog.server.partition.partition import MAX_OFFSET, Partition
from quorumlog.server.partition.producer_records import restored
from quorumlog.server.partition.producer_table import ProducerTable
from quorumlog.server.partition.restore_steps import take_step
from quorumlog.server.partition.time_lookup import find_time
from quorumlog.server.partition.transaction_steps import open_transaction
from quorumlog.v1 import errors_pb2
from quorumlog.v1.admin_pb2 import (
    BeginPartitionRestore,
    FinishPartitionRestore,
    ProducerBatch,
    ProducerRecord,
    RestoreBatches,
    RestoredProducers,
    RestorePartitionRequest,
)
from quorumlog.v1.errors_pb2 import ErrorCode
from quorumlog.v1.partition_log_pb2 import BeginRestore
from quorumlog.wire.entry import (
    FIRST_NAMED_PRODUCER_ID,
    Codec,
    Flags,
    TimestampType,
    build_compacted,
    crc32c_of,
    parse_envelope,
    parse_header,
    seal_batch,
)
from quorumlog.wire.kafka.control import LogPlace, build_marker
from quorumlog.wire.kafka.entry import entry_of_kafka, kafka_batch_in
from tests.support.inflating_batches import stored_inflating_batch
from tests.support.kafka_batches import KafkaRow, kafka_batch, stored_kafka_entry

RESTORE = b"r" * 16
Step = BeginPartitionRestore | RestoreBatches | RestoredProducers | FinishPartitionRestore


@pytest.fixture
def rig() -> Rig:
    rig = Rig()
    rig.lead()
    return rig


def step(rig: Rig, body: Step, restore_id: bytes = RESTORE, *, settle: bool = True) -> errors_pb2.Error | None:
    """Carries out a step, waits for its commit if ``settle``, and returns the error."""
    request = RestorePartitionRequest(restore_id=restore_id)
    match body:
        case BeginPartitionRestore():
            request.begin.CopyFrom(body)
        case RestoreBatches():
            request.append.CopyFrom(body)
        case RestoredProducers():
            request.producers.CopyFrom(body)
        case FinishPartitionRestore():
            request.finish.CopyFrom(body)
    problem = take_step(3, rig.partition, request, NodeLimits())
    if settle:
        rig.settle()
    return problem


def backed_up(*batches: bytes) -> tuple[list[bytes], list[ProducerRecord]]:
    """Returns the entries and producer records that a backup of a partition with these batches holds."""
    source = Rig()
    source.lead()
    for each in batches:
        assert source.produce(each)[0] is None
        source.settle()
    return source.partition.read(0, 1 << 30), list(source.partition.producers.records(-1))


def compacted(base_offset: int, last_offset: int) -> bytes:
    return build_compacted(
        b"x" * 16,
        group=7,
        base_offset=base_offset,
        last_offset=last_offset,
        record_count=2,
        codec=Codec.NONE,
        timestamp_type=TimestampType.CREATE_TIME,
        append_time_ms=1,
        max_timestamp_ms=2,
    )


def test_a_restored_log_has_the_same_batches_at_the_same_offsets(rig: Rig) -> None:
    entries, _ = backed_up(batch(3), batch(4), batch(5))
    assert step(rig, BeginPartitionRestore(log_start_offset=3, next_offset=3)) is None
    assert step(rig, RestoreBatches(entries=entries[1:], next_offset=12)) is None
    assert step(rig, FinishPartitionRestore(log_start_offset=5, next_offset=12)) is None
    restored = rig.partition.read(3, 1 << 30)
    assert [parse_header(entry) for entry in restored] == [parse_header(entry) for entry in entries[1:]]
    assert [entry[96:] for entry in restored] == [entry[96:] for entry in entries[1:]]
    assert (rig.partition.log_start_offset, rig.partition.high_watermark) == (5, 12)
    assert rig.partition.read(11, 1 << 30) == restored[1:]


def test_a_batch_may_be_larger_by_the_offsets_that_it_states(rig: Rig) -> None:
    step(rig, BeginPartitionRestore())
    largest = NodeLimits().batch_bytes

    def of_size(size: int) -> bytes:
        return build_compacted(
            bytes(size - 96), group=7, base_offset=0, last_offset=1, record_count=2, codec=Codec.NONE,
            timestamp_type=TimestampType.CREATE_TIME, append_time_ms=1, max_timestamp_ms=2,
        )  # fmt: skip

    too_large = RestoreBatches(entries=[of_size(largest + 1_024)], next_offset=2)
    assert (problem := step(rig, too_large)) is not None and problem.code == ErrorCode.RECORD_TOO_LARGE
    assert step(rig, RestoreBatches(entries=[of_size(largest + 512)], next_offset=4)) is None


def test_batches_of_kafkas_clients_are_restored_as_they_came(rig: Rig) -> None:
    rows: list[KafkaRow] = [(b"k", b"v", 1, [])] * 3
    sent = kafka_batch(rows, producer_id=7, producer_epoch=0, base_sequence=0)
    entries, _ = backed_up(batch(3), entry_of_kafka(sent, null_keys=False), batch(2))
    step(rig, BeginPartitionRestore())
    assert step(rig, RestoreBatches(entries=entries, next_offset=8)) is None
    step(rig, FinishPartitionRestore(next_offset=8))
    _, kept, _ = rig.partition.read(0, 1 << 30)
    assert parse_header(kept) == parse_header(entries[1])
    assert bytes(kafka_batch_in(kept)) == sent


def test_a_kafka_batch_that_contradicts_its_entry_is_not_restored(rig: Rig) -> None:
    sent = bytearray(kafka_batch([(b"k", b"v", 1, [])] * 3))
    entry = bytearray(stored_kafka_entry(bytes(sent), 0))
    entry[96 + 57 : 96 + 61] = (2).to_bytes(4)
    entry[8:12] = crc32c_of(bytes(entry)).to_bytes(4, "little")
    step(rig, BeginPartitionRestore())
    problem = step(rig, RestoreBatches(entries=[bytes(entry)], next_offset=3))
    assert problem is not None and problem.code == ErrorCode.INVALID_RECORD
    assert "2 records where its entry has 3" in problem.message


def test_a_producer_goes_on_after_a_restore_where_it_was(rig: Rig) -> None:
    entries, producers = backed_up(batch(3, 0, 7), batch(4, 3, 7))
    step(rig, BeginPartitionRestore())
    step(rig, RestoreBatches(entries=entries, next_offset=7))
    step(rig, RestoredProducers(producers=producers))
    step(rig, FinishPartitionRestore(next_offset=7))
    problem, retried = rig.produce(batch(4, 3, 7))
    assert problem is None
    rig.settle()
    assert (retried.base_offset, rig.partition.high_watermark) == (3, 7)
    problem, following = rig.produce(batch(2, 7, 7))
    assert problem is None
    rig.settle()
    assert following.base_offset == 7


def test_a_partition_that_is_being_restored_takes_nothing_else(rig: Rig) -> None:
    step(rig, BeginPartitionRestore(log_start_offset=5, next_offset=5), settle=False)
    for applied in (False, True):
        problem, _ = rig.produce(batch())
        assert problem is not None, f"applied: {applied}"
        assert (problem.code, problem.retriable) == (ErrorCode.SERVER_BUSY, True)
        rig.settle()
    step(rig, FinishPartitionRestore(log_start_offset=5, next_offset=5))
    problem, result = rig.produce(batch())
    assert problem is None
    rig.settle()
    assert result.base_offset == 5


def test_a_new_leader_knows_of_the_beginning_that_it_has_not_applied(rig: Rig) -> None:
    step(rig, BeginPartitionRestore(log_start_offset=5, next_offset=5), settle=False)
    rig.partition._end_leadership()
    rig.partition._begin_leadership()
    assert rig.produce(batch())[0] is not None
    rig.settle()
    assert rig.partition.log_end_offset == 5


def test_a_beginning_that_is_applied_leaves_the_offsets_of_what_is_behind_it(rig: Rig) -> None:
    """A beginning that is applied keeps the offsets of entries behind it: the steps prevent such entries, but no offset
    may be assigned twice."""
    assert rig.produce(batch(3))[0] is None
    assert rig.partition.log_end_offset == 3
    rig.partition.begin_restore(BeginRestore(restore_id=RESTORE, next_offset=2))
    assert (rig.partition.high_watermark, rig.partition.log_end_offset) == (2, 3)


def test_offsets_that_a_restore_leaves_out_are_read_as_nothing(rig: Rig) -> None:
    """Offsets that a restore leaves out are read as empty, even if nothing is appended (found by hostile requests)."""
    assert step(rig, BeginPartitionRestore(log_start_offset=0, next_offset=1_000)) is None
    assert rig.partition.high_watermark == 1_000
    assert rig.partition.read(1, 1 << 20) == []
    assert find_time(rig.partition, rig.partition._reader, 1, 0) is None


def test_steps_that_come_again_do_no_harm(rig: Rig) -> None:
    entries, producers = backed_up(batch(3, 0, 7), batch(4, 3, 7))
    for _ in range(2):
        assert step(rig, BeginPartitionRestore()) is None
    for _ in range(2):
        assert step(rig, RestoreBatches(entries=entries[:1], next_offset=3)) is None
    assert step(rig, RestoreBatches(entries=entries, next_offset=7)) is None
    assert rig.partition.high_watermark == 3, "batches that start elsewhere are sent again from the end of the log"
    assert step(rig, RestoreBatches(entries=entries[1:], next_offset=7)) is None
    for _ in range(2):
        assert step(rig, RestoredProducers(producers=producers)) is None
    for _ in range(2):
        assert step(rig, FinishPartitionRestore(next_offset=7)) is None
    assert step(rig, RestoreBatches(entries=entries, next_offset=7)) is None
    assert rig.partition.high_watermark == 7
    assert len(rig.partition.producers) == 1


def test_a_gap_that_compaction_left_is_covered_by_the_batch_before_it(rig: Rig) -> None:
    entries = [compacted(10, 14), compacted(20, 21)]
    step(rig, BeginPartitionRestore(log_start_offset=4, next_offset=10))
    assert step(rig, RestoreBatches(entries=entries, next_offset=30)) is None
    step(rig, FinishPartitionRestore(log_start_offset=4, next_offset=30))
    first, second = rig.partition.read(4, 1 << 30)
    assert [parse_header(each).last_offset for each in (first, second)] == [19, 29]
    assert parse_envelope(first).flags is Flags.GAPS
    assert rig.partition.read(17, 1) == [first]
    problem, result = rig.produce(batch())
    assert problem is None
    rig.settle()
    assert result.base_offset == 30


def test_a_restore_is_known_after_a_restart(rig: Rig) -> None:
    _, producers = backed_up(batch(3, 0, 9), batch(4, 0, 7), batch(1, 0, 8))
    step(rig, BeginPartitionRestore())
    step(rig, RestoredProducers(producers=producers))
    table = {key: value for key, value in rig.partition.take_rows().items() if value is not None}
    again = Partition(rig.partition.identity, rig.raft, rig.partition._sealer, rig.log, table, NodeLimits())
    assert again.restoring
    assert again.producers.rows() == rig.partition.producers.rows()
    assert list(again.producers._applied) == list(rig.partition.producers._applied)


def test_a_step_waits_for_the_one_before(rig: Rig) -> None:
    step(rig, BeginPartitionRestore(log_start_offset=5, next_offset=5), settle=False)
    problem = step(rig, BeginPartitionRestore(log_start_offset=6, next_offset=6), b"s" * 16, settle=False)
    assert problem is not None
    assert (problem.code, problem.retriable) == (ErrorCode.SERVER_BUSY, True)


def test_a_partition_with_records_cannot_be_restored(rig: Rig) -> None:
    rig.produce(batch())
    rig.settle()
    problem = step(rig, BeginPartitionRestore())
    assert problem is not None
    assert problem.code == ErrorCode.POLICY_VIOLATION


def test_two_restores_of_one_partition_do_not_mix(rig: Rig) -> None:
    step(rig, BeginPartitionRestore())
    problem = step(rig, RestoreBatches(entries=backed_up(batch())[0], next_offset=3), b"s" * 16)
    assert problem is not None
    assert problem.code == ErrorCode.POLICY_VIOLATION
    assert rig.partition.high_watermark == 0


@pytest.mark.parametrize(
    "body",
    [
        BeginPartitionRestore(log_start_offset=-1),
        BeginPartitionRestore(log_start_offset=1, next_offset=0),
        BeginPartitionRestore(log_start_offset=0, next_offset=MAX_OFFSET),
        BeginPartitionRestore(compacted_offset=-1),
    ],
    ids=str,
)
def test_a_restore_that_cannot_begin_so_is_refused(rig: Rig, body: BeginPartitionRestore) -> None:
    problem = step(rig, body)
    assert problem is not None
    assert problem.code == ErrorCode.INVALID_REQUEST
    assert not rig.partition.restoring


ENTRY = backed_up(batch(3))[0][0]


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (RestoreBatches(), ErrorCode.INVALID_REQUEST),
        (RestoreBatches(entries=[ENTRY], next_offset=2), ErrorCode.INVALID_REQUEST),
        (RestoreBatches(entries=[ENTRY], next_offset=4), ErrorCode.INVALID_REQUEST),
        (RestoreBatches(entries=[ENTRY], next_offset=-1), ErrorCode.INVALID_REQUEST),
        (RestoreBatches(entries=[ENTRY], next_offset=MAX_OFFSET), ErrorCode.INVALID_REQUEST),
        (RestoreBatches(entries=[ENTRY, ENTRY], next_offset=3), ErrorCode.INVALID_REQUEST),
        (RestoreBatches(entries=[compacted(5, 9)], next_offset=10), ErrorCode.INVALID_REQUEST),
        (RestoreBatches(entries=[ENTRY[:-1] + b"?"], next_offset=3), ErrorCode.CORRUPT_MESSAGE),
        (RestoreBatches(entries=[b""], next_offset=3), ErrorCode.CORRUPT_MESSAGE),
        (FinishPartitionRestore(next_offset=1), ErrorCode.INVALID_REQUEST),
        (FinishPartitionRestore(log_start_offset=1), ErrorCode.INVALID_REQUEST),
        (FinishPartitionRestore(log_start_offset=-1), ErrorCode.INVALID_REQUEST),
        (RestoredProducers(), ErrorCode.INVALID_REQUEST),
    ],
    ids=lambda value: str(value)[:60],
)
def test_a_step_that_does_not_fit_is_refused_and_changes_nothing(rig: Rig, body: Step, code: int) -> None:
    step(rig, BeginPartitionRestore())
    before = rig.raft.last_id
    problem = step(rig, body)
    assert problem is not None
    assert problem.code == code
    assert rig.raft.last_id == before
    assert rig.partition.restoring


def producer(**fields: object) -> ProducerRecord:
    """Returns a producer that can be restored, with some fields replaced."""
    made = ProducerRecord(producer_id=7, records=3, batches=[ProducerBatch(record_count=3)])
    for name, value in fields.items():
        made.ClearField(name)  # type: ignore[arg-type]
        made.MergeFrom(ProducerRecord(**{name: value}))  # type: ignore[arg-type]
    return made


@pytest.mark.parametrize(
    "records",
    [
        [producer(producer_id=-1)],
        [producer(epoch=-1)],
        [producer(batches=[])],
        [producer(batches=[ProducerBatch(record_count=1)] * 6)],
        [producer(batches=[ProducerBatch(record_count=0)])],
        [producer(batches=[ProducerBatch(record_count=1 << 31)])],
        [producer(batches=[ProducerBatch(record_count=3, base_sequence=1 << 31)])],
        [producer(batches=[ProducerBatch(record_count=3, base_offset=-1)])],
        [producer(records=2)],
        [producer(records=1 << 63)],
        [producer(replayable=True)],
        [producer(digests=b"x" * 12)],
        [producer(), producer()],
        [producer(producer_id=each) for each in range(1_001)],
    ],
    ids=lambda records: str(records[0])[:60].replace("\n", " "),
)
def test_producers_that_cannot_be_are_refused(rig: Rig, records: list[ProducerRecord]) -> None:
    step(rig, BeginPartitionRestore())
    problem = step(rig, RestoredProducers(producers=records))
    assert problem is not None
    assert problem.code == ErrorCode.INVALID_REQUEST
    assert len(rig.partition.producers) == 0


def test_more_named_producers_than_fit_are_refused(rig: Rig) -> None:
    step(rig, BeginPartitionRestore())
    limit = NodeLimits().producers_per_partition * 4 // 5
    named = [producer(producer_id=FIRST_NAMED_PRODUCER_ID + each) for each in range(limit + 1)]
    for first in range(0, limit, 1_000):
        assert step(rig, RestoredProducers(producers=named[first : min(first + 1_000, limit)])) is None
    problem = step(rig, RestoredProducers(producers=named[-1:]))
    assert problem is not None
    assert problem.code == ErrorCode.PRODUCER_LIMIT_EXCEEDED


def test_the_digests_of_an_epoch_that_can_be_replayed_come_along() -> None:
    named = FIRST_NAMED_PRODUCER_ID + 1
    record = producer(producer_id=named, replayable=True, digests=bytes(range(24)))
    table = ProducerTable(10)
    table.restore(restored([record], 5))
    rows = {key: value for key, value in table.take_rows().items() if value is not None}
    again = ProducerTable(10)
    again.load(rows)
    assert list(again.records(-1)) == list(table.records(-1)) == [record]
    assert again.named_apart


def test_a_backup_brings_no_batch_that_nobody_would_decompress(rig: Rig) -> None:
    assert step(rig, BeginPartitionRestore()) is None
    refused = step(rig, RestoreBatches(entries=[stored_inflating_batch(64 << 20)], next_offset=1), settle=False)
    assert refused is not None
    assert refused.code == ErrorCode.INVALID_RECORD
    assert rig.partition.high_watermark == 0


def test_markers_are_not_restored(rig: Rig) -> None:
    """A backup has no markers: one in a step is refused, and the step with it."""
    assert step(rig, BeginPartitionRestore()) is None
    unsealed = build_marker(7, 0, LogPlace(1, 1), NOW_MS, commit=True)
    marker = seal_batch(unsealed, group=9, term=1, index=1, previous_hash=0, base_offset=0)
    problem = step(rig, RestoreBatches(entries=[marker], next_offset=1))
    assert problem is not None and problem.code == ErrorCode.INVALID_REQUEST and "markers" in problem.message
    assert rig.partition.log_end_offset == 0


def test_no_restore_begins_around_a_transaction(rig: Rig) -> None:
    """A transaction may be open in a partition without records: it must end first."""
    assert open_transaction(3, rig.partition, 7, 0, 0, LogPlace(1, 1)) is None
    rig.settle()
    assert rig.partition.high_watermark == 0
    problem = step(rig, BeginPartitionRestore(next_offset=5))
    assert problem is not None and problem.code == ErrorCode.POLICY_VIOLATION and "transaction" in problem.message


def test_restored_batches_leave_their_transactions(rig: Rig) -> None:
    """A backup has only what was committed: its batches belong to no transaction of the restored log."""
    rows: list[KafkaRow] = [(b"k", b"v", NOW_MS, [])]
    made = kafka_batch(rows, producer_id=7, producer_epoch=0, base_sequence=0, transactional=True)
    entry = entry_of_kafka(made, null_keys=False)
    sealed = seal_batch(entry, group=9, term=1, index=1, previous_hash=0, base_offset=0, append_time_ms=NOW_MS)
    assert parse_header(sealed).is_transactional
    assert step(rig, BeginPartitionRestore()) is None
    assert step(rig, RestoreBatches(entries=[sealed], next_offset=1)) is None
    (restored_entry,) = rig.partition.read(0, 1 << 20)
    assert not parse_header(restored_entry).is_transactional and bytes(kafka_batch_in(restored_entry)) == made

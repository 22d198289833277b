"""Deduplication of idempotent producers: the applied table and the overlay of the uncommitted tail."""

import random

import pytest

from quorumlog.server.metadata.producer_names import NamedProducers
from quorumlog.server.partition.epoch_digests import MAX_EPOCH_BATCHES, ROW_DIGESTS, content_digest
from quorumlog.server.partition.producer_table import DuplicateBatch, ProducerTable, Refused
from quorumlog.v1 import metadata_log_pb2, peer_pb2
from quorumlog.v1.errors_pb2 import ErrorCode
from quorumlog.wire.entry import (
    FIRST_NAMED_PRODUCER_ID,
    SEQUENCE_MODULUS,
    Attributes,
    BatchHeader,
    Codec,
    TimestampType,
    build_batch,
    parse_header,
    seal_batch,
)

NAMED = FIRST_NAMED_PRODUCER_ID


def header(
    sequence: int, count: int = 2, producer: int = 7, epoch: int = 0, base_offset: int = 0, replayable: bool = False
) -> BatchHeader:
    attributes = Attributes.REPLAYABLE if replayable else Attributes.NONE
    return BatchHeader(
        base_offset, count, Codec.NONE, TimestampType.CREATE_TIME, 1, 2, producer, epoch, sequence, attributes
    )


def some_names(*names: str) -> NamedProducers:
    """Names as the metadata have them, claimed one after the other."""
    producers = NamedProducers()
    for name in names:
        producers.claim(peer_pb2.ClaimProducer(name=name, epoch=3), 0)
    return producers


def remembering(limit: int) -> ProducerTable:
    """Returns the table of a node with some named producers, all with epoch 0."""
    claimed = NamedProducers()
    for name in "abcdefghij":
        claimed.claim(peer_pb2.ClaimProducer(name=name, epoch=0), 0)
    return ProducerTable(limit, lambda: claimed)


def refusal(table: ProducerTable, *args: int, **kwargs: int) -> ErrorCode.ValueType:
    verdict = table.check(header(*args, **kwargs))
    assert isinstance(verdict, Refused)
    return verdict.code


def test_a_new_producer_begins_with_sequence_zero() -> None:
    table = remembering(10)
    assert table.check(header(0)) is None
    assert refusal(table, 4) == ErrorCode.UNKNOWN_PRODUCER_ID


def test_the_next_batch_follows_and_a_gap_is_refused() -> None:
    table = remembering(10)
    table.append(header(0), base_offset=0, index=1)
    assert table.check(header(2)) is None
    assert refusal(table, 4) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_a_retry_names_its_original_while_it_is_uncommitted_and_after() -> None:
    table = remembering(10)
    table.append(header(0), base_offset=40, index=9)
    for commit in (lambda: None, lambda: table.apply(header(0, base_offset=40), index=9)):
        commit()
        verdict = table.check(header(0))
        assert isinstance(verdict, DuplicateBatch)
        assert (verdict.base_offset, verdict.log_index) == (40, 9)


def test_the_last_five_batches_are_remembered() -> None:
    table = remembering(10)
    for number in range(7):
        table.apply(header(2 * number, base_offset=2 * number), index=number + 1)
    assert table.check(header(4)) == DuplicateBatch(log_index=3, base_offset=4)


def test_an_older_epoch_is_fenced_and_a_newer_one_starts_over() -> None:
    table = remembering(10)
    table.apply(header(0, epoch=3), index=1)
    assert refusal(table, 2, epoch=2) == ErrorCode.INVALID_PRODUCER_EPOCH
    assert table.check(header(0, epoch=4)) is None
    assert refusal(table, 2, epoch=4) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_sequences_wrap_to_zero() -> None:
    table = remembering(10)
    table.append(header(0, count=SEQUENCE_MODULUS - 2), base_offset=0, index=1)
    table.append(header(SEQUENCE_MODULUS - 2, count=4), base_offset=SEQUENCE_MODULUS - 2, index=2)
    assert table.check(header(2)) is None


@pytest.mark.scenario("22b")
def test_a_truncated_batch_is_not_called_a_duplicate_later() -> None:
    """raft.md 22: a deposed leader that kept the batch would confirm a retry of something that is lost."""
    table = remembering(10)
    table.apply(header(0), index=1)
    table.append(header(2), base_offset=2, index=2)
    assert isinstance(table.check(header(2)), DuplicateBatch)
    table.drop_tail()
    assert table.check(header(2)) is None


@pytest.mark.scenario("22a")
def test_a_new_leadership_knows_the_uncommitted_tail() -> None:
    table = remembering(10)
    table.rebuild_tail([(header(0, base_offset=10), 5, 0), (header(2, base_offset=12), 6, 0)])
    verdict = table.check(header(0))
    assert isinstance(verdict, DuplicateBatch)
    assert verdict.base_offset == 10
    assert table.check(header(4)) is None


def test_rows_bring_the_table_back_in_the_order_of_last_use() -> None:
    table = remembering(2)
    table.apply(header(0, producer=1), index=1)
    table.apply(header(0, producer=2, base_offset=2), index=2)
    table.apply(header(2, producer=1, base_offset=4), index=3)
    restored = remembering(2)
    restored.load({key: row for key, row in table.take_rows().items() if row is not None})
    for each in (table, restored):
        each.apply(header(0, producer=3, base_offset=6), index=4)
        assert refusal(each, 2, producer=2) == ErrorCode.UNKNOWN_PRODUCER_ID
        assert each.check(header(4, producer=1)) is None
    assert list(table.take_rows().values()).count(None) == 1


def test_a_batch_older_than_the_remembered_ones_is_a_duplicate_once_the_newest_is_committed() -> None:
    table = remembering(10)
    for number in range(7):
        table.apply(header(2 * number, base_offset=2 * number), index=number + 1)
    table.append(header(14), base_offset=14, index=8)
    assert table.check(header(2)) == DuplicateBatch(log_index=8, base_offset=-1)
    assert table.check(header(0)) == DuplicateBatch(log_index=8, base_offset=-1)


def test_what_overlaps_remembered_batches_without_being_one_is_out_of_order() -> None:
    table = remembering(10)
    for number in range(7):
        table.apply(header(2 * number), index=number + 1)
    for sequence, count in ((3, 2), (6, 4), (7, 2), (12, 4)):
        assert refusal(table, sequence, count) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_a_sequence_far_ahead_is_not_taken_for_one_from_before_the_wrap() -> None:
    table = remembering(10)
    table.append(header(0), base_offset=0, index=1)
    assert refusal(table, SEQUENCE_MODULUS - 2) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_old_batches_are_recognised_across_the_wrap() -> None:
    table = remembering(10)
    half = SEQUENCE_MODULUS // 2
    sequences = [0, half, *range(SEQUENCE_MODULUS - 6, SEQUENCE_MODULUS, 2), *range(0, 12, 2)]
    counts = [half, half - 6, *[2] * 9]
    for index, (sequence, count) in enumerate(zip(sequences, counts, strict=True), start=1):
        assert table.check(header(sequence, count)) is None
        table.apply(header(sequence, count), index)
    assert table.check(header(SEQUENCE_MODULUS - 4)) == DuplicateBatch(log_index=11, base_offset=-1)
    assert table.check(header(0)) == DuplicateBatch(log_index=11, base_offset=-1)
    assert refusal(table, 14) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_epochs_are_64_bits_wide() -> None:
    table = remembering(10)
    table.apply(header(0, epoch=2**62), index=1)
    assert refusal(table, 2, epoch=2**31) == ErrorCode.INVALID_PRODUCER_EPOCH
    assert table.check(header(0, epoch=2**63 - 1)) is None


def test_producers_silent_for_long_are_forgotten_and_those_that_came_back_since_are_not() -> None:
    table = remembering(10)
    for index, producer in enumerate((1, 2, NAMED, 1), start=1):
        table.apply(header(0 if index < 4 else 2, producer=producer), index)
    assert table.oldest_index == 2
    table.take_rows()
    table.forget(3)
    assert table.oldest_index == 4
    assert refusal(table, 2, producer=2) == ErrorCode.UNKNOWN_PRODUCER_ID
    assert isinstance(table.check(header(2, producer=1)), DuplicateBatch)
    assert isinstance(table.check(header(0, producer=NAMED)), DuplicateBatch)
    assert [value is None for value in table.take_rows().values()] == [True]


def test_a_producer_whose_next_batch_is_on_its_way_is_known_again_after_it_was_forgotten() -> None:
    table = remembering(10)
    table.apply(header(0), index=1)
    table.append(header(2), base_offset=2, index=3)
    table.forget(1)
    table.apply(header(2, base_offset=2), index=3)
    assert table.check(header(4)) is None
    assert refusal(table, 0) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


@pytest.mark.parametrize("named", [0, 1, 4])
def test_so_many_others_without_a_name_must_write_before_one_is_forgotten(named: int) -> None:
    table = remembering(5)
    table.count_named_apart()
    for index in range(named):
        assert table.check(header(0, producer=NAMED + index)) is None
        table.apply(header(0, producer=NAMED + index), index + 1)
    for producer in range(1, 6):
        table.apply(header(0, producer=producer), named + producer)
    # Named producers displace no others: the retry of a first batch is still recognised as a duplicate.
    assert isinstance(table.check(header(0, producer=1)), DuplicateBatch)
    table.apply(header(0, producer=6), named + 6)
    assert refusal(table, 2, producer=1) == ErrorCode.UNKNOWN_PRODUCER_ID
    assert table.check(header(2, producer=2)) is None


@pytest.mark.parametrize("restored", ["", "from its rows", "from a snapshot"])
def test_the_log_says_from_which_entry_on_named_producers_are_counted_apart(restored: str) -> None:
    """Nodes of the first feature level count all: at each entry every replica must forget the same."""
    table = remembering(3)
    for index, producer in enumerate((1, 2, NAMED, NAMED + 1), start=1):
        table.apply(header(0, producer=producer), index)
    assert (len(table), table.oldest_index) == (3, 2), "the first made room for a named one"
    table.count_named_apart()
    rows = table.rows() if restored == "from a snapshot" else table.take_rows()
    if restored:
        table = remembering(3)
        table.load({key: row for key, row in rows.items() if row is not None})
    for index, producer in enumerate((3, 4), start=5):
        table.apply(header(0, producer=producer), index)
    assert (len(table), table.oldest_index) == (5, 2)


def test_a_named_producer_too_many_is_refused_and_those_there_are_stay() -> None:
    table = remembering(5)
    table.count_named_apart()
    for index in range(4):
        assert table.check(header(0, producer=NAMED + index)) is None
        table.apply(header(0, producer=NAMED + index), index + 1)
    for producer in range(1, 9):
        table.apply(header(0, producer=producer), 4 + producer)
    assert len(table) == 5 + 4
    assert refusal(table, 0, producer=NAMED + 4) == ErrorCode.PRODUCER_LIMIT_EXCEEDED
    for index in range(4):
        assert table.check(header(2, producer=NAMED + index)) is None


def test_replicas_forget_the_same_producers() -> None:
    seed = random.randrange(1 << 30)
    print(f"seed {seed}")
    rng = random.Random(seed)
    whole, restarted = remembering(6), remembering(6)
    stored: dict[bytes, bytes] = {}
    sequences: dict[int, int] = {}
    for index in range(1, 400):
        producer = rng.choice([1, 2, 3, 4, 5, 6, 7, 8, NAMED, NAMED + 1])
        if rng.random() < 0.1:
            up_to = index - rng.choice([5, 20])
            whole.forget(up_to)
            restarted.forget(up_to)
        if rng.random() < 0.05:
            gone = rng.choice(([NAMED], [NAMED + 1], [NAMED, NAMED + 1]))
            whole.forget_named(gone, index)
            restarted.forget_named(gone, index)
        sequence = sequences.get(producer, 0)
        if isinstance(whole.check(header(sequence, producer=producer)), Refused):
            sequence = 0
        sequences[producer] = sequence + 2
        for table in (whole, restarted):
            table.apply(header(sequence, producer=producer, base_offset=2 * index), index)
        for key, row in restarted.take_rows().items():
            if row is None:
                stored.pop(key, None)
            else:
                stored[key] = row
        if rng.random() < 0.2:
            restarted = remembering(6)
            restarted.load(stored)
        assert restarted.rows() == whole.rows() == stored


def test_a_claim_fences_where_the_new_holder_has_not_written_yet() -> None:
    names = some_names("a")
    names.claim(peer_pb2.ClaimProducer(name="a", epoch=4), 0)
    table = ProducerTable(10, lambda: names)
    table.apply(header(0, producer=NAMED, epoch=3), index=1)
    assert refusal(table, 2, producer=NAMED, epoch=3) == ErrorCode.INVALID_PRODUCER_EPOCH
    assert table.check(header(0, producer=NAMED, epoch=4)) is None
    assert table.check(header(0, producer=NAMED, epoch=5)) is None


class Replay:
    """A named producer's epoch on one table: batches of one record, distinguished by their digests."""

    def __init__(self, limit: int = 10) -> None:
        self.table = remembering(limit)
        self.stored: dict[bytes, bytes] = {}
        self.index = 0

    def check(self, sequence: int, digest: int, epoch: int = 0) -> DuplicateBatch | Refused | None:
        return self.table.check(header(sequence, 1, NAMED, epoch, replayable=True), digest)

    def apply(self, sequence: int, digest: int, epoch: int = 0) -> None:
        self.index += 1
        assert self.check(sequence, digest, epoch) is None
        self.table.apply(header(sequence, 1, NAMED, epoch, sequence, replayable=True), self.index, digest)

    def store(self) -> dict[bytes, bytes | None]:
        rows = self.table.take_rows()
        for key, row in rows.items():
            if row is None:
                self.stored.pop(key, None)
            else:
                self.stored[key] = row
        return rows

    def restart(self) -> None:
        self.store()
        assert self.table.rows() == self.stored
        self.table.load(self.stored)
        assert self.table.rows() == self.stored

    def code(self, sequence: int, digest: int, epoch: int = 0) -> ErrorCode.ValueType:
        verdict = self.check(sequence, digest, epoch)
        assert isinstance(verdict, Refused), verdict
        return verdict.code


@pytest.mark.parametrize("restarted", [False, True])
def test_an_equal_replay_is_acknowledged_and_goes_on_where_the_log_ends(restarted: bool) -> None:
    replay = Replay()
    for sequence in range(200):
        replay.apply(sequence, sequence * 7)
    if restarted:
        replay.restart()
    for sequence in range(195):
        assert replay.check(sequence, sequence * 7) == DuplicateBatch(200, -1)
    assert replay.check(199, 199 * 7) == DuplicateBatch(200, 199)
    assert replay.check(200, 1) is None
    assert replay.code(201, 1) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


@pytest.mark.parametrize("sequence", [0, 63, 64, 130, 199])
def test_a_replay_with_other_content_is_refused_anywhere(sequence: int) -> None:
    replay = Replay()
    for each in range(200):
        replay.apply(each, each * 7)
    replay.restart()
    assert replay.code(sequence, 1) == ErrorCode.DUPLICATE_SEQUENCE_MISMATCH


def test_a_replay_that_is_cut_otherwise_is_refused() -> None:
    table = remembering(10)
    table.apply(header(0, 4, NAMED, replayable=True), 1, 5)
    table.apply(header(4, 4, NAMED, replayable=True), 2, 6)
    for sequence, count in ((0, 2), (2, 4), (6, 4)):
        verdict = table.check(header(sequence, count, NAMED, replayable=True), 7)
        assert isinstance(verdict, Refused)
        assert verdict.code == ErrorCode.DUPLICATE_SEQUENCE_MISMATCH


def test_a_new_epoch_replaces_the_digests_of_the_one_before() -> None:
    replay = Replay()
    for sequence in range(3 * ROW_DIGESTS):
        replay.apply(sequence, sequence)
    assert len(replay.store()) == 1 + 3
    replay.apply(0, 9, epoch=1)
    rows = replay.store()
    assert sorted(row is None for row in rows.values()) == [False, False, True, True]
    replay.restart()
    assert replay.check(0, 9, epoch=1) == DuplicateBatch(replay.index, 0)
    assert replay.code(0, 0) == ErrorCode.INVALID_PRODUCER_EPOCH


def test_a_batch_rewrites_one_small_row_of_digests() -> None:
    replay = Replay()
    for sequence in range(1_000):
        replay.apply(sequence, sequence)
        rows = replay.store()
        assert len(rows) == 2
        assert all(row is not None and len(row) <= 12 * ROW_DIGESTS for row in rows.values())


def test_an_epoch_that_could_not_be_replayed_is_refused_on_the_first_run() -> None:
    replay = Replay()
    for sequence in range(MAX_EPOCH_BATCHES):
        replay.apply(sequence, sequence)
    assert replay.code(MAX_EPOCH_BATCHES, 1) == ErrorCode.PRODUCER_LIMIT_EXCEEDED
    assert replay.check(0, 0) == DuplicateBatch(MAX_EPOCH_BATCHES, -1)


def test_digests_of_batches_that_are_cut_off_are_forgotten() -> None:
    replay = Replay()
    replay.apply(0, 10)
    replay.table.append(header(1, 1, NAMED, replayable=True), 1, 2, 11)
    replay.table.append(header(0, 1, NAMED, epoch=1, replayable=True), 2, 3, 12)
    replay.table.drop_tail()
    assert replay.code(0, 11) == ErrorCode.DUPLICATE_SEQUENCE_MISMATCH
    assert replay.check(0, 10) == DuplicateBatch(1, 0)
    assert replay.check(1, 99) is None
    replay.apply(1, 99)
    assert replay.check(1, 99) == DuplicateBatch(2, 1)


def test_a_replayable_epoch_that_has_come_round_takes_nothing_more() -> None:
    # Logs may hold such a batch: earlier versions took it.
    table = ProducerTable(10)
    table.append(header(0, SEQUENCE_MODULUS, NAMED, replayable=True), 0, 1, 5)
    verdict = table.check(header(0, 1, NAMED, replayable=True), 6)
    assert isinstance(verdict, Refused)
    assert verdict.code == ErrorCode.PRODUCER_LIMIT_EXCEEDED


def test_a_log_in_which_a_replayable_epoch_has_come_round_is_read_as_it_is() -> None:
    batches = [header(0, SEQUENCE_MODULUS, NAMED, replayable=True), header(0, 1, NAMED, replayable=True)]
    leader, follower = ProducerTable(10), ProducerTable(10)
    leader.rebuild_tail([(batches[0], 1, 5), (batches[1], 2, 6)])
    for index, each in enumerate(batches, 1):
        leader.apply(each, index, 4 + index)
        follower.apply(each, index, 4 + index)
    assert leader.rows() == follower.rows()
    loaded = ProducerTable(10)
    loaded.load(leader.rows())
    assert loaded.rows() == leader.rows()
    # It is refused, not acknowledged as a duplicate: the batches of this epoch can no longer be distinguished.
    assert isinstance(loaded.check(header(0, 1, NAMED, replayable=True), 7), Refused)
    loaded.apply(header(0, 4, NAMED, epoch=1, replayable=True), 3, 8)
    assert loaded.check(header(4, 4, NAMED, epoch=1, replayable=True), 9) is None


def test_an_epoch_is_replayable_from_its_first_batch_on_or_not_at_all() -> None:
    table = remembering(10)
    table.apply(header(0, producer=NAMED), index=1)
    verdict = table.check(header(0, producer=NAMED, replayable=True), 5)
    assert isinstance(verdict, Refused)
    assert verdict.code == ErrorCode.DUPLICATE_SEQUENCE_MISMATCH


def test_the_digest_is_of_the_records_and_not_of_their_place() -> None:
    def made(payload: bytes, sequence: int, count: int = 1) -> bytes:
        return build_batch(
            payload,
            record_count=count,
            codec=Codec.NONE,
            base_timestamp_ms=1,
            max_timestamp_ms=1,
            producer_id=NAMED,
            producer_epoch=0,
            base_sequence=sequence,
            attributes=Attributes.REPLAYABLE,
        )

    def digest(batch: bytes) -> int:
        return content_digest(parse_header(batch), batch)

    batch = made(b"12345678", 0)
    sealed = seal_batch(batch, group=1, term=2, index=3, previous_hash=4, base_offset=5, append_time_ms=6)
    assert digest(batch) == digest(sealed) == digest(made(b"12345678", 9))
    assert digest(batch) not in (digest(made(b"12345679", 0)), digest(made(b"12345678", 0, 2)), 0)


def delete(producers: NamedProducers, name: str, index: int) -> None:
    """Deletes a name, by the entry of the metadata log at ``index``."""
    producers.delete(index, metadata_log_pb2.DeleteProducers(names=[name]))


def test_nothing_is_taken_of_a_named_producer_whose_name_is_deleted() -> None:
    names = some_names("a", "b")
    table = ProducerTable(10, lambda: names)
    for number in (0, 1):
        table.apply(header(0, producer=NAMED + number, epoch=3, base_offset=2 * number), index=number + 1)
    assert table.deleted() == []
    delete(names, "a", 9)
    assert table.deleted() == [NAMED]
    for sequence in (0, 2):
        assert refusal(table, sequence, producer=NAMED, epoch=3) == ErrorCode.INVALID_PRODUCER_EPOCH
    assert table.check(header(2, producer=NAMED + 1, epoch=3)) is None
    table.forget_named(table.deleted(), names.deleted_index)
    assert (table.deleted(), len(table)) == ([], 1)
    assert refusal(table, 0, producer=NAMED, epoch=3) == ErrorCode.INVALID_PRODUCER_EPOCH
    assert refusal(table, 0, producer=NAMED, epoch=4) == ErrorCode.INVALID_PRODUCER_EPOCH


def test_an_id_that_nobody_was_given_takes_no_place_and_one_that_is_to_be_heard_of_is_sent_again() -> None:
    names = some_names("a")
    table = ProducerTable(5, lambda: names)
    for producer in (NAMED + 1, (1 << 63) - 1):
        for sequence in (0, 2):
            verdict = table.check(header(sequence, producer=producer, epoch=3))
            assert isinstance(verdict, Refused)
            assert verdict.code == ErrorCode.SERVER_BUSY, "this node may be the one that is behind: it is retriable"
            assert f"{producer}" in verdict.message and "claim" in verdict.message
    names.claim(peer_pb2.ClaimProducer(name="b", epoch=3), 0)
    assert table.check(header(0, producer=NAMED + 1, epoch=3)) is None
    assert refusal(table, 0, producer=NAMED + 2, epoch=3) == ErrorCode.SERVER_BUSY


def test_a_leader_that_is_behind_goes_on_with_whom_the_log_knows() -> None:
    table = ProducerTable(5, NamedProducers)
    table.apply(header(0, producer=NAMED + 1, epoch=3), index=1)
    assert table.check(header(2, producer=NAMED + 1, epoch=3)) is None
    assert isinstance(table.check(header(0, producer=NAMED + 1, epoch=3)), DuplicateBatch)


@pytest.mark.parametrize("restored", [False, True])
def test_a_leader_that_has_not_heard_of_a_deletion_takes_nothing_of_whom_it_does_not_know(restored: bool) -> None:
    behind = some_names("a", "b")
    table = ProducerTable(10, lambda: behind)
    for number in (0, 1):
        table.apply(header(0, producer=NAMED + number, epoch=3, base_offset=2 * number), index=number + 1)
    table.forget_named([NAMED], 9)
    if restored:
        rows, table = table.rows(), ProducerTable(10, lambda: behind)
        table.load(rows)
    # Its first batch is in the log: accepting it as new would append it twice.
    assert refusal(table, 0, producer=NAMED, epoch=3) == ErrorCode.SERVER_BUSY
    assert table.check(header(2, producer=NAMED + 1, epoch=3)) is None, "who is known here was not forgotten"
    delete(behind, "a", 9)
    assert refusal(table, 0, producer=NAMED, epoch=3) == ErrorCode.INVALID_PRODUCER_EPOCH
    behind.claim(peer_pb2.ClaimProducer(name="c", epoch=0), 0)
    assert table.check(header(0, producer=NAMED + 2, epoch=0)) is None


def replayed(number: int, epoch: int = 3) -> tuple[BatchHeader, int]:
    """Returns the header of one record of a replayable epoch, and its digest."""
    return header(number, 1, NAMED, epoch, base_offset=number, replayable=True), 1_000 + number


def test_a_forgotten_producer_leaves_no_rows() -> None:
    table, stored = remembering(10), {}
    for number in range(ROW_DIGESTS + 1):
        (batch, digest), index = replayed(number), number + 1
        table.apply(batch, index, digest)
    stored.update(table.take_rows())
    assert len(stored) == 3
    table.forget_named([NAMED, NAMED + 5], 9)
    stored.update(table.take_rows())
    assert {key: row for key, row in stored.items() if row is not None} == table.rows()
    assert len(table.rows()) == 1, "since when producers may have been forgotten"
    assert table.take_rows() == {}


@pytest.mark.parametrize("epoch", [3, 4])
def test_what_was_on_its_way_when_a_producer_was_forgotten_is_known_once_it_is_applied(epoch: int) -> None:
    """Batches in flight when a producer is forgotten are known once they are applied: a leader that had not yet applied
    the deletion appended them behind the command that forgets the producer."""
    leader, follower = remembering(10), remembering(10)
    first = replayed(0)
    for table in (leader, follower):
        table.apply(first[0], 1, first[1])
    later = [replayed(number + (epoch == 3), epoch) for number in range(3)]
    for place, (batch, digest) in enumerate(later):
        assert leader.check(batch, digest) is None
        leader.append(batch, batch.base_offset, 10 + place, digest)
    for table in (leader, follower):
        table.forget_named([NAMED], 9)
    assert refusal(leader, 0, producer=NAMED, epoch=epoch) == ErrorCode.SERVER_BUSY
    for place, (batch, digest) in enumerate(later):
        for table in (leader, follower):
            table.apply(batch, 10 + place, digest)
    assert leader.rows() == follower.rows()
    following = replayed(3 + (epoch == 3), epoch)
    assert leader.check(*following) is None
    assert leader.check(*later[-1]) == DuplicateBatch(log_index=12, base_offset=later[-1][0].base_offset)
    copy = remembering(10)
    copy.load(leader.rows())
    assert copy.check(*following) is None
    for table in (leader, follower):
        table.forget_named([NAMED], 12)
        assert len(table) == 0

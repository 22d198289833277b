"""The model of a partition's log decides what may be committed, given up and reported, on hand-made logs."""

from __future__ import annotations

import pytest

from quorumlog.raft.types import Entry, EntryKind
from quorumlog.simulator.models.committed_partition import CommittedPartition, TopicRetention, Violation
from quorumlog.v1.partition_log_pb2 import (
    ForgetProducers,
    PartitionCommand,
    PartitionSnapshot,
    TableRow,
    TrimLog,
)
from quorumlog.wire.entry import Codec, EnvelopeKind, build_batch, seal, seal_batch

GROUP = 1000
WALL_MS = 10_000
NAMED = 1 << 62


class Log:
    """A log that is committed as it is written."""

    def __init__(self, *retentions: TopicRetention) -> None:
        self.model = CommittedPartition(GROUP, retentions=set(retentions))
        self.index = 0

    def batch(self, values: str, at_ms: int = 0, producer: int = -1, epoch: int = -1, sequence: int = -1) -> int:
        """Appends a batch of one-letter values; returns its index."""
        payload = ",".join(values).encode().ljust(16, b"\0")
        unsealed = build_batch(
            payload,
            record_count=len(values),
            codec=Codec.NONE,
            base_timestamp_ms=at_ms,
            max_timestamp_ms=at_ms,
            producer_id=producer,
            producer_epoch=epoch,
            base_sequence=sequence,
        )
        index = self.index + 1
        offset = self.model.next_offset
        data = seal_batch(unsealed, group=GROUP, term=1, index=index, previous_hash=0, base_offset=offset)
        return self._commit(EntryKind.BATCH, data)

    def command(self, **body: object) -> int:
        """Appends a command; returns its index."""
        text = PartitionCommand(**body).SerializeToString()  # type: ignore[arg-type]
        return self._commit(EntryKind.COMMAND, seal(GROUP, 1, self.index + 1, 0, EnvelopeKind.COMMAND, text))

    def trim(self, start: int) -> int:
        """Moves the log start."""
        return self.command(trim_log=TrimLog(log_start_offset=start))

    def _commit(self, kind: EntryKind, data: bytes) -> int:
        self.index += 1
        self.model.commit(Entry(self.index, 1, kind, self.index, data), WALL_MS)
        return self.index

    def switch(self, anchor: int, state: PartitionSnapshot, applied: int = -1) -> None:
        """A replica is about to keep a snapshot."""
        self.model.check_snapshot(1, anchor, applied, [state.SerializeToString()])


def test_records_that_somebody_deletes_go_even_in_the_midst_of_a_batch() -> None:
    log = Log()
    log.batch("abc")
    log.model.deletable = 2
    log.trim(2)
    log.trim(1)
    assert [log.model.log_start_at(index) for index in range(4)] == [0, 0, 2, 2]
    with pytest.raises(Violation, match="from 2 to 3: no"):
        log.trim(3)


def test_what_goes_by_size_leaves_enough_behind_it() -> None:
    log = Log(TopicRetention(retained_bytes=2 * 112, retained_ms=-1))
    for value in "abcd":
        log.batch(value)
    log.trim(2)
    with pytest.raises(Violation, match="from 2 to 3: no"):
        log.trim(3)


def test_what_goes_by_time_is_too_old() -> None:
    log = Log(TopicRetention(retained_bytes=-1, retained_ms=1_000))
    log.batch("ab", at_ms=WALL_MS - 1_001)
    log.batch("c", at_ms=WALL_MS - 1_000)
    with pytest.raises(Violation, match="inside a batch"):
        log.trim(1)
    log.trim(2)
    with pytest.raises(Violation, match="from 2 to 3: no"):
        log.trim(3)


def test_a_log_start_beyond_what_is_committed() -> None:
    log = Log()
    log.batch("a")
    log.model.deletable = 5
    with pytest.raises(Violation, match="beyond the committed end 1"):
        log.trim(2)


def test_an_older_epoch_after_a_newer_one() -> None:
    log = Log()
    log.batch("a", producer=NAMED, epoch=4, sequence=0)
    log.batch("b", producer=NAMED, epoch=5, sequence=0)
    with pytest.raises(Violation, match="epoch 4 is committed at index 3, after one of epoch 5"):
        log.batch("c", producer=NAMED, epoch=4, sequence=1)


def test_a_sequence_that_does_not_follow() -> None:
    log = Log()
    log.batch("ab", producer=7, epoch=0, sequence=0)
    with pytest.raises(Violation, match="sequence 1 of producer 7"):
        log.batch("c", producer=7, epoch=0, sequence=1)


def test_only_who_has_no_name_is_forgotten_and_begins_anew() -> None:
    log = Log()
    log.batch("a", producer=7, epoch=0, sequence=0)
    log.batch("b", producer=NAMED, epoch=0, sequence=0)
    log.command(forget_producers=ForgetProducers(up_to_index=2))
    log.batch("c", producer=7, epoch=0, sequence=0)
    with pytest.raises(Violation, match="sequence 0 of producer"):
        log.batch("d", producer=NAMED, epoch=0, sequence=0)


def trimmed() -> Log:
    """Returns a log of three batches, the first of which is deleted by entry 4."""
    log = Log()
    log.model.deletable = 1
    for value in "abc":
        log.batch(value)
    log.trim(1)
    return log


def test_a_sound_snapshot_and_a_sound_state() -> None:
    log = trimmed()
    rows = [TableRow(key=b"p", value=b"x")]
    log.switch(1, PartitionSnapshot(next_offset=1, log_start_offset=1, table_index=4, rows=rows), applied=4)
    log.model.check_meta(1, applied=3, high_watermark=3, log_start=0, table_index=0)
    log.model.check_meta(1, applied=3, high_watermark=3, log_start=1, table_index=4)


@pytest.mark.parametrize(
    ("anchor", "state", "applied", "reason"),
    [
        (2, PartitionSnapshot(next_offset=2, log_start_offset=1, table_index=4), 4, "records from 1 to 2 are lost"),
        (1, PartitionSnapshot(next_offset=2, log_start_offset=1, table_index=4), 4, r"the log says \(1, 1\)"),
        (1, PartitionSnapshot(next_offset=1, log_start_offset=1, table_index=3), 4, r"the log says \(1, 0\)"),
        (1, PartitionSnapshot(next_offset=1, log_start_offset=0, table_index=0), 4, "older than the log"),
        (1, PartitionSnapshot(next_offset=1, log_start_offset=1, table_index=4), 0, "only applied up to 0"),
    ],
)
def test_a_snapshot_that_is_not_the_log(anchor: int, state: PartitionSnapshot, applied: int, reason: str) -> None:
    with pytest.raises(Violation, match=reason):
        trimmed().switch(anchor, state, applied)


def test_two_tables_as_of_one_entry() -> None:
    log = trimmed()
    state = PartitionSnapshot(next_offset=1, log_start_offset=1, table_index=4)
    log.switch(1, state)
    state.rows.add(key=b"p", value=b"other")
    with pytest.raises(Violation, match="another than some node had"):
        log.switch(1, state)


def test_a_state_that_is_not_the_log() -> None:
    with pytest.raises(Violation, match=r"the log says \(3, 1\)"):
        trimmed().model.check_meta(1, applied=4, high_watermark=3, log_start=0, table_index=0)


def test_times_are_found_by_looking_at_every_batch() -> None:
    log = Log()
    for value, at_ms in (("a", 5), ("b", 9), ("c", 7), ("d", 12)):
        log.batch(value, at_ms=at_ms)
    found = [log.model.first_reaching(at_ms, first, 4) for at_ms, first in ((6, 0), (6, 2), (10, 0), (13, 0))]
    assert [batch and batch.base_offset for batch in found] == [1, 2, 3, None]

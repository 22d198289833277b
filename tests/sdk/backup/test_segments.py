"""Batches that state the offsets of their records, because offsets are missing behind them."""

from __future__ import annotations

import pytest

from quorumlog.sdk.backup.segments import BackedUpBatch, checked_batch, stating_offsets
from quorumlog.simulator.models.records import arrow_payload, records_of
from quorumlog.wire.entry import Codec, build_batch, parse_header, seal_batch
from tests.support.backed_up import stored
from tests.support.kafka_batches import kafka_batch, stored_kafka_entry

VALUES = ["a", "b", "c"]


def backed_up(payload: bytes) -> BackedUpBatch:
    batch = build_batch(
        payload, record_count=3, codec=Codec.NONE, base_timestamp_ms=1_000, max_timestamp_ms=1_000,
        producer_id=2, producer_epoch=0, base_sequence=0,
    )  # fmt: skip
    return checked_batch(seal_batch(batch, group=7, term=1, index=3, previous_hash=0, base_offset=5))


def restored(entry: bytes) -> bytes:
    """The batch in a restored log, where it also covers offsets 8 and 9."""
    return seal_batch(entry, group=8, term=1, index=4, previous_hash=0, base_offset=5, last_offset=9)


@pytest.mark.parametrize("keys", [None, ["x", "y", "z"]], ids=["no keys", "keys"])
def test_records_before_missing_offsets_are_readable(keys: list[str] | None) -> None:
    batch = backed_up(arrow_payload(keys, VALUES, 1_000))
    entry = restored(stating_offsets(batch).entry)
    assert records_of(entry) == records_of(batch.entry)
    header = parse_header(entry)
    assert (header.base_offset, header.last_offset, header.record_count) == (5, 9, 3)
    assert (header.append_time_ms, header.max_timestamp_ms) == (1_000, 1_000)


def test_batches_that_state_offsets_stay_as_they_are() -> None:
    kafka = checked_batch(stored_kafka_entry(kafka_batch([(b"k", b"v", 1, [])] * 3), 5))
    stating = stating_offsets(backed_up(arrow_payload(None, VALUES, 1_000)))
    assert [stating_offsets(each) is each for each in (kafka, stating)] == [True, True]


def test_unreadable_batches_stay_unreadable() -> None:
    """A restore must not fail because of a batch that was accepted long ago."""
    batch = stored(5, 3)
    found = stating_offsets(batch)
    assert found.header.last_offset == 7
    assert found.entry[96:] == batch.entry[96:]

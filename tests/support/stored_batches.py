"""Batches as a log keeps them, for tests of what reads them."""

from __future__ import annotations

from array import array
from collections.abc import Sequence

from quorumlog.sdk.records.fetched import FetchedRows
from quorumlog.sdk.records.record_batch import batch_from_columns, encode
from quorumlog.sdk.types import TopicPartition
from quorumlog.wire.entry import Codec, build_batch, seal_batch


def stored_batch(
    offset: int,
    count: int,
    *,
    leader_epoch: int = 1,
    keys: Sequence[bytes | None] = (),
    size: int = 0,
    codec: Codec = Codec.NONE,
) -> bytes:
    """An entry with the records ``offset`` and so on, whose values are their offsets, of at least ``size`` digits."""
    values = [b"%0*d" % (size, number) for number in range(offset, offset + count)]
    made = encode(batch_from_columns(list(keys), values, array("q", [1_000_000] * count), {}), codec)
    batch = build_batch(
        made.payload,
        record_count=count,
        codec=codec,
        base_timestamp_ms=1,
        max_timestamp_ms=1,
        attributes=made.attributes,
    )
    return seal_batch(batch, group=1, term=leader_epoch, index=1 + offset, previous_hash=0, base_offset=offset)


def fetched_rows(tp: TopicPartition, offset: int, count: int, *, leader_epoch: int = 1) -> FetchedRows:
    """The rows of such an entry, decoded."""
    return FetchedRows.of_entry(tp, stored_batch(offset, count, leader_epoch=leader_epoch))

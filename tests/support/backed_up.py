"""Batches as backups hold them."""

from __future__ import annotations

from quorumlog.sdk.backup.segments import BackedUpBatch
from quorumlog.wire.entry import Codec, build_batch, seal_batch, verify_batch


def stored(base_offset: int, count: int) -> BackedUpBatch:
    """Returns a batch as a node stores it."""
    batch = build_batch(b"x" * 16, record_count=count, codec=Codec.NONE, base_timestamp_ms=1, max_timestamp_ms=2)
    entry = seal_batch(batch, group=1000, term=3, index=9, previous_hash=7, base_offset=base_offset)
    return BackedUpBatch(entry, verify_batch(entry)[1])

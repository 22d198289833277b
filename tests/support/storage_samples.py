"""Entries, writes and files for the tests of storage."""

from __future__ import annotations

import random

from quorumlog.raft.types import ORIGIN, Configuration, Entry, EntryId, EntryKind, HardState, Snapshot
from quorumlog.storage.rows import cut_slice, describe_snapshot
from quorumlog.storage.transaction import RaftGroupWrite, SnapshotSlice, StorageTransaction
from quorumlog.wire.entry import Codec, EnvelopeKind, build_batch, entry_hash, seal, seal_batch

CONFIGURATION = Configuration(voters=(1, 2, 3))
SLICE_BYTES = 4096


def noop(group: int, previous: EntryId, term: int = 1) -> Entry:
    """The entry without a body that follows ``previous``."""
    data = seal(group, term, previous.index + 1, previous.hash, EnvelopeKind.NOOP, b"")
    return Entry(previous.index + 1, term, EntryKind.NOOP, entry_hash(data), data)


def batch(
    group: int,
    previous: EntryId,
    base_offset: int,
    payload: bytes,
    *,
    records: int = 1,
    term: int = 1,
    time_ms: int = 1000,
) -> Entry:
    """The batch that follows ``previous``. The payload is not Arrow: storage does not look into it."""
    unsealed = build_batch(
        payload, record_count=records, codec=Codec.NONE, base_timestamp_ms=time_ms, max_timestamp_ms=time_ms
    )
    data = seal_batch(
        unsealed, group=group, term=term, index=previous.index + 1, previous_hash=previous.hash, base_offset=base_offset
    )
    return Entry(previous.index + 1, term, EntryKind.BATCH, entry_hash(data), data)


def identity(entry: Entry) -> EntryId:
    """An entry's identity."""
    return EntryId(entry.index, entry.term, entry.hash)


class LogBuilder:
    """Makes the entries of one group's log, one after the other."""

    def __init__(self, group: int, *, previous: EntryId = ORIGIN, next_offset: int = 0, seed: int = 0) -> None:
        self.group = group
        self.previous = previous
        self.next_offset = next_offset
        self._rng = random.Random(f"{seed}-{group}")

    def noop(self, *, term: int = 1) -> Entry:
        """An entry without a body."""
        return self._follow(noop(self.group, self.previous, term))

    def batch(self, size: int = 100, *, records: int = 1, term: int = 1, time_ms: int = 1000) -> Entry:
        """A batch with ``size`` bytes of payload."""
        payload = self._rng.randbytes(size)
        entry = batch(self.group, self.previous, self.next_offset, payload, records=records, term=term, time_ms=time_ms)
        self.next_offset += records
        return self._follow(entry)

    def batches(self, count: int, size: int = 100, *, records: int = 1, term: int = 1) -> list[Entry]:
        """Several of them."""
        return [self.batch(size, records=records, term=term) for _ in range(count)]

    def _follow(self, entry: Entry) -> Entry:
        self.previous = identity(entry)
        return entry


def create(group: int, entries: list[Entry] | None = None, **fields: object) -> RaftGroupWrite:
    """A new replica with entries, all committed but the last unless said otherwise."""
    entries = entries or []
    fields.setdefault("hard_state", HardState(term=1, vote=1, commit=max(0, len(entries) - 1)))
    return RaftGroupWrite(group, create=CONFIGURATION, entries=entries, **fields)  # type: ignore[arg-type]


def staged(
    last: EntryId, data: bytes, configuration: Configuration = CONFIGURATION, *, stage: int | None = None
) -> tuple[Snapshot, list[SnapshotSlice]]:
    """A snapshot, and the slices that must be staged before it is switched to."""
    if stage is None:
        stage = random.Random(f"{last}-{len(data)}").getrandbits(64)
    described = describe_snapshot(stage, data, SLICE_BYTES)
    slices = [cut_slice(stage, data, SLICE_BYTES, number) for number in range(described.slices)]
    return Snapshot(last, configuration, described), slices


def transaction(*writes: RaftGroupWrite, number: int = 1, **fields: object) -> StorageTransaction:
    """One transaction of these writes."""
    return StorageTransaction(number, list(writes), **fields)  # type: ignore[arg-type]

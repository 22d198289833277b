"""Digests of a replayable epoch in a log: the first sequence and a digest of each of its batches.

A pipeline that runs a piece of work again (Spark: a micro-batch after a crash) claims the epoch of the first run and
sends everything from sequence 0 on. Batches that are in the log already must be acknowledged without being added, and
only if they are the same: a replay that differs would duplicate some rows and drop others, without any error.

Other ways were considered. The batches themselves may be gone, by retention or compaction, and reading them back would
cost a replay a disk read per batch. One rolling hash per epoch is smaller, but is comparable only once the replay has
reached the end of the log: by then its batches have been acknowledged, and a shorter replay never gets there. Twelve
bytes per batch allow an immediate decision, and a limit on the batches of one epoch in one partition bounds them. The
limit applies to the first run: a limit that only the replay hit would be discovered on the day of the crash. They are
stored in rows of up to 64, so that a batch rewrites one small row, and a new epoch deletes at most 64.
"""

from __future__ import annotations

import struct
from array import array
from bisect import bisect_right
from collections.abc import Iterable
from zlib import crc32

import google_crc32c

from quorumlog.wire.entry import BATCH_OVERHEAD_BYTES, BatchHeader

#: Maximum number of batches of one replayable epoch in one partition.
MAX_EPOCH_BATCHES = 4_096
#: Digests in one row.
ROW_DIGESTS = 64

_DIGEST = struct.Struct("<IQ")
#: Bytes of one of them in a row.
DIGEST_BYTES = _DIGEST.size
_RULES = struct.Struct("<IB")


def content_digest(header: BatchHeader, batch: bytes) -> int:
    """Returns a 64-bit digest of a batch's records, the same before and after it is sealed; 0 unless it is replayable.

    It is two CRCs with different polynomials: a replay differs by mistake, never by intent, and every replica computes
    this for every byte. A cryptographic hash took a fifth of a node's processor time under a writing query.
    """
    if not header.replayable:
        return 0
    rules, records = _RULES.pack(header.record_count, header.codec), batch[BATCH_OVERHEAD_BYTES:]
    return int(google_crc32c.extend(google_crc32c.value(rules), records)) << 32 | crc32(records, crc32(rules))


class EpochDigests:
    """The batches of one producer's epoch in one partition, in order: first the applied ones, then those that a leader
    has appended and that are not committed."""

    __slots__ = ("_digests", "_sequences", "applied")

    def __init__(self) -> None:
        self._sequences = array("I")
        self._digests = array("Q")
        #: Number of applied ones.
        self.applied = 0

    def __len__(self) -> int:
        return len(self._sequences)

    def append(self, sequence: int, digest: int) -> None:
        """Adds a batch that a leader appended.

        Sequences increase within an epoch. A log from before that was checked may hold one that has wrapped around: it
        is kept as it is, and the epoch accepts nothing more.
        """
        self._sequences.append(sequence)
        self._digests.append(digest)

    def apply(self, sequence: int, digest: int) -> int:
        """Records that a batch is committed; returns its position in the epoch."""
        place = self.applied
        if place == len(self) or (self._sequences[place], self._digests[place]) != (sequence, digest):
            self.drop_tail()
            self.append(sequence, digest)
        self.applied += 1
        return place

    def drop_tail(self) -> None:
        """Removes the batches that are not applied."""
        del self._sequences[self.applied :]
        del self._digests[self.applied :]

    def holds(self, sequence: int, digest: int) -> bool:
        """True if a batch with that first sequence and that content is among them."""
        place = bisect_right(self._sequences, sequence) - 1
        return place >= 0 and self._sequences[place] == sequence and self._digests[place] == digest

    def row(self, number: int) -> bytes | None:
        """Returns one row of the applied part; None if it is empty."""
        places = range(number * ROW_DIGESTS, min((number + 1) * ROW_DIGESTS, self.applied))
        packed = b"".join(_DIGEST.pack(self._sequences[place], self._digests[place]) for place in places)
        return packed or None

    @property
    def rows(self) -> int:
        """Number of rows of the applied part."""
        return -(-self.applied // ROW_DIGESTS)

    @classmethod
    def from_rows(cls, rows: Iterable[bytes]) -> EpochDigests:
        """Returns the applied part from its rows, in order."""
        made = cls()
        for row in rows:
            for sequence, digest in _DIGEST.iter_unpack(row):
                made.append(sequence, digest)
        made.applied = len(made)
        return made

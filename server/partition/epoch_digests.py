"""What a log keeps of a replayable epoch: the first sequence and a digest of each of its batches.

A pipeline that runs a piece of work again (Spark: a micro-batch after a crash) claims the epoch of the first run and
sends everything from sequence 0 on. What is in the log already must be acknowledged without being added, and only if it
is the same: a replay that differs would double some rows and drop others, and nobody would notice.

Other ways were considered. The batches themselves may be gone, by retention or compaction, and reading them back would
cost a replay a disk read per batch. One rolling hash per epoch is smaller, but speaks only once the replay has come to
the end of what is there: by then its batches have been acknowledged, and a shorter replay never gets there. Twelve
bytes per batch answer at once, and a limit on the batches of one epoch in one partition bounds them. The limit holds on
the first run: one that only the replay found out about would be a trap for the day of the crash. They stand in rows of
up to 64, so that a batch rewrites one small row, and a new epoch deletes at most 64.
"""

from __future__ import annotations

import struct
from array import array
from bisect import bisect_right
from collections.abc import Iterable
from zlib import crc32

import google_crc32c

from quorumlog.wire.entry import BATCH_OVERHEAD_BYTES, BatchHeader

#: Batches of one replayable epoch in one partition.
MAX_EPOCH_BATCHES = 4_096
#: Digests in one row.
ROW_DIGESTS = 64

_DIGEST = struct.Struct("<IQ")
#: Bytes of one of them in a row.
DIGEST_BYTES = _DIGEST.size
_RULES = struct.Struct("<IB")


def content_digest(header: BatchHeader, batch: bytes) -> int:
    """A 64-bit digest of a batch's records, the same before and after it is sealed; 0 unless it is replayable.

    It is two CRCs with different polynomials: a replay differs by mistake, never by intent, and every replica computes
    this for every byte. A cryptographic hash made up a fifth of a node's processor time under a writing query.
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
        #: How many of them are applied.
        self.applied = 0

    def __len__(self) -> int:
        return len(self._sequences)

    def append(self, sequence: int, digest: int) -> None:
        """A leader appended a batch.

        Sequences rise within an epoch. A log from before that was checked may hold one that has come round: it is kept
        as it is, and the epoch takes nothing more.
        """
        self._sequences.append(sequence)
        self._digests.append(digest)

    def apply(self, sequence: int, digest: int) -> int:
        """A batch is committed; returns which of the epoch's it is."""
        place = self.applied
        if place == len(self) or (self._sequences[place], self._digests[place]) != (sequence, digest):
            self.drop_tail()
            self.append(sequence, digest)
        self.applied += 1
        return place

    def drop_tail(self) -> None:
        """What is not applied is not known any more."""
        del self._sequences[self.applied :]
        del self._digests[self.applied :]

    def holds(self, sequence: int, digest: int) -> bool:
        """Whether a batch that begins there, with that content, is among them."""
        place = bisect_right(self._sequences, sequence) - 1
        return place >= 0 and self._sequences[place] == sequence and self._digests[place] == digest

    def row(self, number: int) -> bytes | None:
        """One row of the applied part; None where there is nothing."""
        places = range(number * ROW_DIGESTS, min((number + 1) * ROW_DIGESTS, self.applied))
        packed = b"".join(_DIGEST.pack(self._sequences[place], self._digests[place]) for place in places)
        return packed or None

    @property
    def rows(self) -> int:
        """How many rows the applied part has."""
        return -(-self.applied // ROW_DIGESTS)

    @classmethod
    def from_rows(cls, rows: Iterable[bytes]) -> EpochDigests:
        """The applied part from its rows, in order."""
        made = cls()
        for row in rows:
            for sequence, digest in _DIGEST.iter_unpack(row):
                made.append(sequence, digest)
        made.applied = len(made)
        return made

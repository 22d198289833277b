"""Files of stored batches: entries one after the other, byte for byte as a node stores them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import pyarrow as pa

from quorumlog.sdk.backup.manifest import BackupFile, CorruptBackupError, SegmentFile
from quorumlog.wire.entry import (
    ENVELOPE_BYTES,
    BatchHeader,
    CorruptEntryError,
    build_compacted,
    parse_envelope,
    payload_of,
    states_offsets,
    verify_batch,
)
from quorumlog.wire.payload import COMPACTED_SCHEMA, read_payload, write_payload

#: Position of an entry's length: four bytes, little-endian.
_LENGTH_AT, _LENGTH_END = 4, 8


class BackedUpBatch(NamedTuple):
    """A whole entry, and its header."""

    entry: bytes
    header: BatchHeader


def checked_batch(entry: bytes) -> BackedUpBatch:
    """Returns a batch with a verified checksum.

    Raises:
        CorruptEntryError: the checksum is wrong, or the entry is not a batch.
    """
    return BackedUpBatch(entry, verify_batch(entry)[1])


def batches_in(content: bytes, name: str) -> Iterator[BackedUpBatch]:
    """Yields the verified batches of a segment.

    Arguments:
        name: of its file, for messages.

    Raises:
        CorruptBackupError: it does not consist of whole batches.
    """
    position = 0
    while position < len(content):
        length = int.from_bytes(content[position + _LENGTH_AT : position + _LENGTH_END], "little")
        entry = content[position : position + max(length, ENVELOPE_BYTES)]
        try:
            yield checked_batch(entry)
        except CorruptEntryError as error:
            raise CorruptBackupError(f"{name} is damaged at byte {position}: {error}") from None
        position += len(entry)


def stating_offsets(batch: BackedUpBatch) -> BackedUpBatch:
    """Returns a batch whose payload states the offset of each record, so that it may cover missing offsets behind it.

    Batches that compaction left, and those in Kafka's format, do so already. One that no reader can decode stays so.
    """
    header, envelope = batch.header, parse_envelope(batch.entry)
    if states_offsets(envelope, header):
        return batch
    try:
        columns = read_payload(batch.entry, header).columns
        deltas = pa.array(range(header.record_count), pa.uint32())
        rows = pa.RecordBatch.from_arrays([*columns, deltas], schema=COMPACTED_SCHEMA)
        payload = write_payload(rows, header.codec)
    except CorruptEntryError:
        payload = bytes(payload_of(batch.entry))
    entry = build_compacted(
        payload,
        group=envelope.group,
        base_offset=header.base_offset,
        last_offset=header.last_offset,
        record_count=header.record_count,
        codec=header.codec,
        timestamp_type=header.timestamp_type,
        append_time_ms=header.append_time_ms,
        max_timestamp_ms=header.max_timestamp_ms,
    )
    return checked_batch(entry)


class SegmentBuilder:
    """Gathers batches, in offset order, into one segment."""

    def __init__(self) -> None:
        self._entries: list[bytes] = []
        self._base_offset = self._end_offset = 0
        self.size_bytes = 0

    def add(self, batch: BackedUpBatch) -> None:
        """Adds the next batch."""
        if not self._entries:
            self._base_offset = batch.header.base_offset
        self._entries.append(batch.entry)
        self._end_offset = batch.header.last_offset + 1
        self.size_bytes += len(batch.entry)

    def build(self, folder: str, sequence: int) -> tuple[SegmentFile, bytes]:
        """Returns the segment and its content.

        Arguments:
            sequence: of the backup that writes it, so that a later one never overwrites a file that an earlier one
                lists.
        """
        content = b"".join(self._entries)
        name = f"{folder}/{self._base_offset:020d}-{self._end_offset:020d}-{sequence}.segment"
        file = BackupFile.of(name, content)
        return SegmentFile(file, self._base_offset, self._end_offset, len(self._entries)), content


def range_of(name: str) -> tuple[int, int, int] | None:
    """Returns base offset, end offset and sequence from the name of a segment; None for another file."""
    stem, _, suffix = name.rpartition("/")[2].partition(".")
    parts = stem.split("-")
    if suffix != "segment" or len(parts) != 3 or not all(part.isdecimal() for part in parts):
        return None
    return int(parts[0]), int(parts[1]), int(parts[2])

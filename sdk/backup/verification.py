"""Reads a whole backup, and reports its problems, a line each. No cluster is needed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

from google.protobuf.message import DecodeError

from quorumlog.sdk.backup.manifest import (
    CorruptBackupError,
    Manifest,
    PartitionBackup,
    TopicBackup,
    require_manifest,
)
from quorumlog.sdk.backup.segments import BackedUpBatch, batches_in
from quorumlog.sdk.backup.store import BackupStore
from quorumlog.v1 import admin_pb2
from quorumlog.wire.columns import read_columns
from quorumlog.wire.entry import CorruptEntryError

#: Limit of unreadable batches that a report names.
MOST_UNREADABLE = 20


class VerificationReport(NamedTuple):
    """Content of a backup, and its problems.

    Arguments:
        manifest: None if it could not be read itself; the problem says why.
        unreadable: batches whose records cannot be decoded, ``MOST_UNREADABLE`` of them at most, a line each. Their
            producers wrote them so, so the backup is intact.
        unreadable_batches: number of such batches.
    """

    manifest: Manifest | None
    files: int
    size_bytes: int
    batches: int
    records: int
    problems: tuple[str, ...]
    unreadable: tuple[str, ...] = ()
    unreadable_batches: int = 0


class BackupVerification:
    """Verifies one backup.

    Arguments:
        progress: called with the bytes read so far.
    """

    def __init__(self, store: BackupStore, location: str, progress: Callable[[int], None]) -> None:
        self._store = store
        self._location = location
        self._progress = progress
        self._files = self._size_bytes = self._batches = self._records = self._unreadable_batches = 0
        self._unreadable: list[str] = []

    def verify(self) -> VerificationReport:
        """Reads everything.

        Raises:
            IllegalStateError: there is no backup.
        """
        try:
            manifest = require_manifest(self._store, self._location)
        except CorruptBackupError as error:
            return VerificationReport(None, 0, 0, 0, 0, (error.message,))
        problems = [*self._problems(manifest)]
        return VerificationReport(
            manifest,
            self._files,
            self._size_bytes,
            self._batches,
            self._records,
            tuple(problems),
            tuple(self._unreadable),
            self._unreadable_batches,
        )

    def _problems(self, manifest: Manifest) -> Iterator[str]:
        for topic in manifest.topics:
            for partition in topic.partitions:
                yield from self._of_partition(topic, partition)
        ends = {(topic.name, each.number): each.end_offset for topic in manifest.topics for each in topic.partitions}
        for group in manifest.groups:
            for each in group.offsets:
                if not 0 <= each.offset <= ends.get((each.topic, each.partition), -1):
                    yield (
                        f"group {group.group_id} has committed offset {each.offset} of {each.topic}-{each.partition},"
                        " which the backup does not reach"
                    )

    def _of_partition(self, topic: TopicBackup, partition: PartitionBackup) -> Iterator[str]:
        name = f"{topic.name}-{partition.number}"
        position = partition.log_start_offset
        for segment in partition.segments:
            self._files += 1
            try:
                content = segment.file.read(self._store)
                count = 0
                for batch in batches_in(content, segment.file.name):
                    base, end = batch.header.base_offset, batch.header.last_offset + 1
                    if base > position >= partition.compacted_offset:
                        yield f"{name}: offsets {position} to {base - 1} are missing before {segment.file.name}"
                    if position > max(base, partition.log_start_offset):
                        yield f"{name}: offset {base} comes again in {segment.file.name}"
                    position = end
                    count += 1
                    self._records += batch.header.record_count
                    self._note_unreadable(name, batch)
                if count != segment.batches or position != segment.end_offset:
                    yield f"{segment.file.name} has {count} batches up to {position}, not {segment.batches}"
                self._batches += count
            except CorruptBackupError as error:
                yield f"{name}: {error.message}"
                position = segment.end_offset
            self._size_bytes += segment.file.size_bytes
            self._progress(self._size_bytes)
        if position < partition.end_offset and partition.compacted_offset <= position:
            yield f"{name}: offsets {position} to {partition.end_offset - 1} are missing at the end"
        yield from self._of_producers(name, partition)

    def _note_unreadable(self, name: str, batch: BackedUpBatch) -> None:
        try:
            read_columns(batch.entry, batch.header)
        except CorruptEntryError as error:
            self._unreadable_batches += 1
            if len(self._unreadable) < MOST_UNREADABLE:
                header = batch.header
                self._unreadable.append(f"{name}: offsets {header.base_offset} to {header.last_offset}: {error}")

    def _of_producers(self, name: str, partition: PartitionBackup) -> Iterator[str]:
        if partition.producers is None:
            return
        self._files += 1
        try:
            content = partition.producers.read(self._store)
            producers = admin_pb2.RestoredProducers.FromString(content).producers
        except CorruptBackupError as error:
            yield f"{name}: {error.message}"
            return
        except DecodeError:
            yield f"{name}: {partition.producers.name} is not a list of producers"
            return
        if len(producers) != partition.producer_count:
            yield f"{name}: {partition.producers.name} has {len(producers)} producers, not {partition.producer_count}"
        for each in producers:
            if any(batch.base_offset >= partition.end_offset for batch in each.batches):
                yield f"{name}: producer {each.producer_id} has written beyond the end of the backup"

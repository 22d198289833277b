"""The content of a backup, as JSON: the one file that is written last, and that lists all others."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

from quorumlog.sdk.backup.store import BackupStore
from quorumlog.sdk.errors import IllegalArgumentError, IllegalStateError, QuorumlogError

MANIFEST = "manifest.json"
#: Formats of the files of a backup. A reader refuses others. With the second one, a backup may lack what was open in
#: transactions: a reader of the first one would add to it behind that.
FORMAT = 1
TRANSACTIONS_FORMAT = 2


class CorruptBackupError(QuorumlogError):
    """A backup was changed after it was written. The message names the file."""


@dataclass(slots=True, frozen=True)
class BackupFile:
    """A file of the backup: its name in the storage, its size, and its SHA-256 in hexadecimal digits."""

    name: str
    size_bytes: int
    sha256: str

    @classmethod
    def of(cls, name: str, content: bytes) -> BackupFile:
        """Returns the description of some content."""
        return cls(name, len(content), hashlib.sha256(content).hexdigest())

    def read(self, store: BackupStore) -> bytes:
        """Returns the verified content.

        Raises:
            CorruptBackupError: the file is missing, or has other content.
        """
        content = store.read(self.name)
        if content is None:
            raise CorruptBackupError(f"{self.name} is missing")
        if len(content) != self.size_bytes:
            raise CorruptBackupError(f"{self.name} has {len(content)} bytes, not {self.size_bytes}")
        if hashlib.sha256(content).hexdigest() != self.sha256:
            raise CorruptBackupError(f"{self.name} is not what was written: its SHA-256 differs")
        return content


@dataclass(slots=True, frozen=True)
class SegmentFile:
    """A file of stored batches: from ``base_offset`` to before ``end_offset``."""

    file: BackupFile
    base_offset: int
    end_offset: int
    batches: int


@dataclass(slots=True, frozen=True)
class PartitionBackup:
    """One partition.

    Arguments:
        log_start_offset: the first offset that was kept.
        end_offset: the backup has all committed records before it.
        compacted_offset: below it offsets may be missing: of records that compaction has removed, of markers and of
            records of aborted transactions.
        segments: in offset order.
        producers: the file of the partition's producer state; None without any.
        not_backed_up: ranges of offsets that the log had removed before they were backed up.
        stable_offset: the last stable offset, where the next backup continues: of the transactions behind it, some were
            open, and are left out. -1: the end.
    """

    number: int
    log_start_offset: int
    end_offset: int
    compacted_offset: int
    segments: tuple[SegmentFile, ...]
    producers: BackupFile | None
    producer_count: int
    not_backed_up: tuple[tuple[int, int], ...] = ()
    stable_offset: int = -1

    @property
    def next_offset(self) -> int:
        """The offset from which the next backup copies."""
        return self.end_offset if self.stable_offset < 0 else self.stable_offset

    def files(self) -> Iterator[BackupFile]:
        """Yields its files."""
        yield from (segment.file for segment in self.segments)
        if self.producers is not None:
            yield self.producers


@dataclass(slots=True, frozen=True)
class TopicBackup:
    """One topic: its id in hexadecimal digits, and its settings."""

    name: str
    topic_id: str
    replication_factor: int
    configs: dict[str, str]
    partitions: tuple[PartitionBackup, ...]


@dataclass(slots=True, frozen=True)
class CommittedBackup:
    """A committed offset of a group; leader epoch -1 if unknown."""

    topic: str
    partition: int
    offset: int
    leader_epoch: int
    metadata: str


@dataclass(slots=True, frozen=True)
class GroupBackup:
    """A consumer group."""

    group_id: str
    offsets: tuple[CommittedBackup, ...]


@dataclass(slots=True, frozen=True)
class ProducerNameBackup:
    """A producer name with its identity; the note in hexadecimal digits."""

    name: str
    producer_id: int
    epoch: int
    claimed_ms: int
    note: str


@dataclass(slots=True, frozen=True)
class Manifest:
    """A backup.

    Arguments:
        sequence: number of times that the backup was created or added to.
        cluster_id, feature_level: of the source cluster.
        taken_ms: time of creation, in milliseconds since the epoch, on the clock of the machine that created it.
        next_producer_id, next_named_producer_id: the lowest ids not yet in use.
        cut_transactions: of a transaction, the backup may have only the records of some partitions.
    """

    sequence: int
    cluster_id: str
    feature_level: int
    taken_ms: int
    topics: tuple[TopicBackup, ...] = ()
    groups: tuple[GroupBackup, ...] = ()
    producer_names: tuple[ProducerNameBackup, ...] = ()
    next_producer_id: int = 0
    next_named_producer_id: int = 0
    cut_transactions: bool = False

    @property
    def format(self) -> int:
        """The oldest format with all of it."""
        stable = all(each.stable_offset < 0 for topic in self.topics for each in topic.partitions)
        return FORMAT if stable and not self.cut_transactions else TRANSACTIONS_FORMAT

    def files(self) -> Iterator[BackupFile]:
        """Yields all files of the backup."""
        for topic in self.topics:
            for partition in topic.partitions:
                yield from partition.files()

    def partition(self, topic_id: str, number: int) -> PartitionBackup | None:
        """Returns a partition of a topic, if it is in the backup."""
        for topic in self.topics:
            if topic.topic_id == topic_id and number < len(topic.partitions):
                return topic.partitions[number]
        return None

    @property
    def restore_id(self) -> bytes:
        """Id of restores of exactly this backup, by which an interrupted one is resumed."""
        return hashlib.sha256(_body(self)).digest()[:16]

    def encode(self) -> bytes:
        """Returns the file's content. It contains its own hash."""
        body = _body(self)
        return b'{"sha256": "' + hashlib.sha256(body).hexdigest().encode() + b'",\n"backup": ' + body + b"}\n"


def _body(manifest: Manifest) -> bytes:
    body = asdict(manifest) | {"format": manifest.format}
    # Without transactions a manifest is as it was before there were any.
    if not manifest.cut_transactions:
        del body["cut_transactions"]
    for topic in body["topics"]:
        for partition in topic["partitions"]:
            if partition["stable_offset"] < 0:
                del partition["stable_offset"]
    return json.dumps(body, indent=1, sort_keys=True, ensure_ascii=False).encode()


def read_manifest(store: BackupStore) -> Manifest | None:
    """Returns the manifest at a location; None without one.

    Raises:
        CorruptBackupError: it was changed after it was written.
        IllegalArgumentError: a later version wrote it.
    """
    content = store.read(MANIFEST)
    if content is None:
        return None
    try:
        whole = json.loads(content)
        body, digest = whole["backup"], whole["sha256"]
        if body["format"] not in (FORMAT, TRANSACTIONS_FORMAT):
            raise IllegalArgumentError(
                f"the backup has format {body['format']}, this version reads {FORMAT} and {TRANSACTIONS_FORMAT}:"
                " use the version that wrote it"
            )
        manifest = _manifest(body)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        if isinstance(error, IllegalArgumentError):
            raise
        raise CorruptBackupError(f"{MANIFEST} is not what was written: {type(error).__name__}") from None
    if hashlib.sha256(_body(manifest)).hexdigest() != digest:
        raise CorruptBackupError(f"{MANIFEST} is not what was written: its SHA-256 differs")
    return manifest


def require_manifest(store: BackupStore, location: str) -> Manifest:
    """Returns the manifest at a location.

    Raises:
        IllegalStateError: there is no manifest.
        CorruptBackupError: it was changed after it was written.
    """
    manifest = read_manifest(store)
    if manifest is None:
        raise IllegalStateError(f"there is no backup at {location}: it has no {MANIFEST}")
    return manifest


def _manifest(body: dict[str, Any]) -> Manifest:
    rest = {key: body[key] for key in body if key not in ("topics", "groups", "producer_names", "format")}
    return Manifest(
        topics=tuple(_topic(each) for each in body["topics"]),
        groups=tuple(
            GroupBackup(each["group_id"], tuple(CommittedBackup(**offset) for offset in each["offsets"]))
            for each in body["groups"]
        ),
        producer_names=tuple(ProducerNameBackup(**each) for each in body["producer_names"]),
        **rest,
    )


def _topic(body: dict[str, Any]) -> TopicBackup:
    rest = {key: body[key] for key in body if key != "partitions"}
    return TopicBackup(partitions=tuple(_partition(each) for each in body["partitions"]), **rest)


def _partition(body: dict[str, Any]) -> PartitionBackup:
    segments = tuple(
        SegmentFile(BackupFile(**each["file"]), each["base_offset"], each["end_offset"], each["batches"])
        for each in body["segments"]
    )
    producers = None if body["producers"] is None else BackupFile(**body["producers"])
    missing = tuple((first, end) for first, end in body["not_backed_up"])
    rest = {key: body[key] for key in body if key not in ("segments", "producers", "not_backed_up")}
    return PartitionBackup(segments=segments, producers=producers, not_backed_up=missing, **rest)

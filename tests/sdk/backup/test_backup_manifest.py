"""The manifest of a backup: what it says returns, and what was changed in it is noticed."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from quorumlog.sdk import IllegalArgumentError, IllegalStateError
from quorumlog.sdk.backup.commands import verify_backup
from quorumlog.sdk.backup.manifest import (
    MANIFEST,
    BackupFile,
    CommittedBackup,
    CorruptBackupError,
    GroupBackup,
    Manifest,
    PartitionBackup,
    ProducerNameBackup,
    SegmentFile,
    TopicBackup,
    read_manifest,
)
from quorumlog.sdk.backup.segments import BackedUpBatch, SegmentBuilder, batches_in, range_of
from quorumlog.sdk.backup.store import DirectoryStore
from tests.support.backed_up import stored


def backup(place: Path, *batches: BackedUpBatch, end: int, start: int = 0, committed: int = 0) -> Manifest:
    """A backup of one partition in a directory, with these batches in one segment."""
    store = DirectoryStore(place)
    builder = SegmentBuilder()
    for batch in batches:
        builder.add(batch)
    segment, content = builder.build("topics/orders.00/0", 1)
    store.write(segment.file.name, content)
    manifest = Manifest(
        sequence=1,
        cluster_id="c",
        feature_level=2,
        taken_ms=5,
        topics=(TopicBackup("orders", "00", 3, {"retention.ms": "-1"}, (_partition(start, end, segment),)),),
        groups=(GroupBackup("g", (CommittedBackup("orders", 0, committed, -1, "größe"),)),),
        producer_names=(ProducerNameBackup("etl", 1 << 62, 4, 9, "00ff"),),
    )
    store.write(MANIFEST, manifest.encode())
    return manifest


def _partition(start: int, end: int, segment: SegmentFile) -> PartitionBackup:
    return PartitionBackup(0, start, end, 0, (segment,), None, 0, ((0, start),) if start else ())


def test_a_manifest_comes_back_as_it_was(tmp_path: Path) -> None:
    manifest = backup(tmp_path, stored(2, 3), end=5, start=2)
    assert read_manifest(DirectoryStore(tmp_path)) == manifest
    assert len(manifest.restore_id) == 16


def test_manifests_without_transactions_are_as_before(tmp_path: Path) -> None:
    """Earlier versions read them, and their own are read."""
    manifest = backup(tmp_path, stored(0, 3), end=3)
    assert b"stable_offset" not in manifest.encode() and b"cut_transactions" not in manifest.encode()
    assert b'"format": 1,' in manifest.encode()
    (topic,) = manifest.topics
    assert topic.partitions[0].next_offset == 3
    later = replace(topic, partitions=(replace(topic.partitions[0], stable_offset=2),))
    for changed in (
        replace(manifest, topics=(later,)),
        replace(manifest, cut_transactions=True),
        replace(manifest, topics=(later,), cut_transactions=True),
    ):
        # Earlier versions refuse it: they would continue behind what was open.
        assert b'"format": 2,' in changed.encode()
        (tmp_path / MANIFEST).write_bytes(changed.encode())
        assert read_manifest(DirectoryStore(tmp_path)) == changed
    assert later.partitions[0].next_offset == 2


def test_every_changed_byte_of_a_manifest_is_noticed(tmp_path: Path) -> None:
    manifest = backup(tmp_path, stored(0, 3), end=3)
    whole = (tmp_path / MANIFEST).read_bytes()
    for place in range(len(whole)):
        (tmp_path / MANIFEST).write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
        try:
            found = read_manifest(DirectoryStore(tmp_path))
        except (CorruptBackupError, IllegalArgumentError):
            continue
        assert found == manifest, f"byte {place}"  # A blank between two words of it.


@pytest.mark.parametrize("content", [b"", b"{}", b"[]", b"null", b'{"backup": 1, "sha256": ""}', b"\xff"])
def test_another_file_is_no_manifest(tmp_path: Path, content: bytes) -> None:
    (tmp_path / MANIFEST).write_bytes(content)
    assert len(verify_backup(str(tmp_path)).problems) == 1


def test_a_place_without_a_backup_is_said_to_be_so(tmp_path: Path) -> None:
    with pytest.raises(IllegalStateError, match="there is no backup"):
        verify_backup(str(tmp_path))


def test_a_sound_backup_has_no_problems(tmp_path: Path) -> None:
    backup(tmp_path, stored(0, 3), stored(3, 4), end=7, committed=7)
    report = verify_backup(str(tmp_path))
    assert (report.problems, report.batches, report.records) == ((), 2, 7)


@pytest.mark.parametrize(
    ("batches", "end", "problem"),
    [
        ([stored(0, 3), stored(5, 2)], 7, "offsets 3 to 4 are missing"),
        ([stored(0, 3), stored(2, 5)], 7, "offset 2 comes again"),
        ([stored(0, 3), stored(3, 3)], 7, "offsets 6 to 6 are missing at the end"),
        ([stored(1, 6)], 7, "offsets 0 to 0 are missing"),
    ],
)
def test_offsets_that_are_missing_or_come_twice_are_named(
    tmp_path: Path, batches: list[BackedUpBatch], end: int, problem: str
) -> None:
    backup(tmp_path, *batches, end=end)
    [found] = verify_backup(str(tmp_path)).problems
    assert problem in found


def test_a_group_that_is_ahead_of_the_records_is_named(tmp_path: Path) -> None:
    backup(tmp_path, stored(0, 3), end=3, committed=4)
    [found] = verify_backup(str(tmp_path)).problems
    assert "group g has committed offset 4" in found


def test_a_segment_says_where_it_is_damaged() -> None:
    content = stored(0, 3).entry + stored(3, 1).entry
    place = len(stored(0, 3).entry)
    for damaged in (content[:-1], content[: place + 50] + b"?" + content[place + 51 :], content + b"x"):
        with pytest.raises(CorruptBackupError, match=rf"s\.segment is damaged at byte ({place}|{len(content)})"):
            list(batches_in(damaged, "s.segment"))


def test_names_of_segments_say_what_is_in_them() -> None:
    assert range_of("a/b/00000000000000000003-00000000000000000009-2.segment") == (3, 9, 2)
    for other in ("a/producers-1.bin", "a/3-9.segment", "a/x-9-1.segment", "manifest.json"):
        assert range_of(other) is None


def test_a_file_is_what_its_hash_says(tmp_path: Path) -> None:
    store = DirectoryStore(tmp_path)
    store.write("f", b"1")
    assert BackupFile.of("f", b"1").read(store) == b"1"
    for wrong, said in ((BackupFile.of("f", b"2"), "SHA-256"), (BackupFile.of("g", b"1"), "missing")):
        with pytest.raises(CorruptBackupError, match=said):
            wrong.read(store)


def test_partitions_are_found_by_id_and_number(tmp_path: Path) -> None:
    """A topic may have gained partitions since: the backup has none of them."""
    manifest = backup(tmp_path, stored(0, 5), end=5)
    found = manifest.partition("00", 0)
    assert found is not None and found.number == 0
    assert manifest.partition("00", 1) is None
    assert manifest.partition("01", 0) is None

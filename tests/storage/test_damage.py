"""Damage on disk is noticed, named and never served."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from storage_samples import LogBuilder, batch, create, identity, staged, transaction

from quorumlog.raft.types import HardState
from quorumlog.storage.interface import DamageError
from quorumlog.storage.storage import Storage
from quorumlog.storage.transaction import RaftGroupWrite
from quorumlog.storage.verification import verify

pytestmark = pytest.mark.timeout(400)

SUPPORT = Path(__file__).resolve().parents[1] / "support"
FLIPS = 60
PAGE_BYTES = 4096


@pytest.fixture(scope="module")
def data_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three groups with small and large entries, a snapshot, tables, garbage that is not swept."""
    path = tmp_path_factory.mktemp("damage") / "data"
    with Storage(path, max_deletes=3) as storage:
        metadata, small, large = LogBuilder(0), LogBuilder(1000), LogBuilder(1001)
        storage.commit(transaction(create(0), create(1000), create(1001), node_state={b"directory": b"d1"}))
        for _ in range(12):
            writes = [
                RaftGroupWrite(0, entries=metadata.batches(2, 200), table={b"k": os.urandom(30)}),
                RaftGroupWrite(1000, entries=[small.noop(), *small.batches(10, 150, records=7)]),
                RaftGroupWrite(1001, entries=large.batches(2, 20_000)),
            ]
            for write in writes:
                write.hard_state = HardState(1, 1, write.entries[-1].index)
            storage.commit(transaction(*writes))
        entry = identity(storage.entries(0, 6, 6, 1)[0])
        checkpoint, slices = staged(entry, os.urandom(9000))
        storage.commit(transaction(RaftGroupWrite(0, stage=slices, checkpoint=checkpoint, compact_to=entry)))
    return path


def probe(data_dir: Path, scratch: Path, faults: list[list[object]]) -> list[tuple[str, list[str]]]:
    """Outcome of reading under each fault, and what a verification found."""
    result = subprocess.run(
        [sys.executable, str(SUPPORT / "damage_probe.py"), str(data_dir), str(scratch)],
        input="".join(json.dumps(fault) + "\n" for fault in faults),
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        env={**os.environ, "PYTHONPATH": str(SUPPORT)},
    )
    print(result.stderr)
    assert result.returncode == 0
    outcomes = [tuple(json.loads(line)) for line in result.stdout.splitlines()]
    assert len(outcomes) == len(faults)
    return outcomes


@pytest.fixture
def rng() -> random.Random:
    seed = int(os.environ.get("QUORUMLOG_TEST_SEED", random.SystemRandom().randrange(1 << 32)))
    print(f"QUORUMLOG_TEST_SEED={seed}")
    return random.Random(seed)


def test_no_flipped_bit_is_ever_served(data_dir: Path, tmp_path: Path, rng: random.Random) -> None:
    size = (data_dir / "data.mdb").stat().st_size
    faults: list[list[object]] = [["flip", rng.randrange(size), rng.randrange(8)] for _ in range(FLIPS)]
    outcomes = probe(data_dir, tmp_path / "scratch", faults)
    print(Counter(outcome for outcome, _ in outcomes))
    for fault, (outcome, problems) in zip(faults, outcomes, strict=True):
        assert outcome != "wrong", f"{fault} was served"
        assert outcome != "hung", f"{fault} led in a circle"
        assert outcome == "same" or problems, f"{fault} was noticed by a read ({outcome}), not by verify"


def test_every_flipped_bit_of_an_entry_is_found(data_dir: Path, tmp_path: Path, rng: random.Random) -> None:
    whole = (data_dir / "data.mdb").read_bytes()
    with Storage(data_dir) as storage:
        entries = storage.entries(1001, 1, 24, 1 << 40)
    faults: list[list[object]] = []
    for entry in entries:
        # Large entries have pages of their own, which are written once: this is where the entry is.
        assert whole.count(entry.data) == 1
        position = whole.index(entry.data) + rng.randrange(len(entry.data))
        faults.append(["flip", position, rng.randrange(8)])
    for entry, fault, (outcome, problems) in zip(
        entries, faults, probe(data_dir, tmp_path / "scratch", faults), strict=True
    ):
        assert outcome in ("refused", "found"), f"{fault} in entry {entry.index}: {outcome}"
        assert any(f"group 1001: entry {entry.index}:" in problem for problem in problems), problems


def test_a_cut_file_is_refused_before_it_is_mapped(data_dir: Path, tmp_path: Path, rng: random.Random) -> None:
    size = (data_dir / "data.mdb").stat().st_size
    sizes = [1, 100, 4096, 5000, 8192, size // 2, size - PAGE_BYTES * 8, size - 1]
    sizes += [rng.randrange(1, size - 8 * PAGE_BYTES) for _ in range(8)]
    for cut_to, (outcome, problems) in zip(
        sizes, probe(data_dir, tmp_path / "scratch", [["cut", size] for size in sizes]), strict=True
    ):
        # Pages at the very end may be free, and then nothing is missing.
        assert outcome == "refused" or (cut_to >= size - 8 * PAGE_BYTES and outcome == "same"), (cut_to, outcome)
        assert problems or outcome == "same"


def test_zeroed_pages_are_found(data_dir: Path, tmp_path: Path, rng: random.Random) -> None:
    pages = (data_dir / "data.mdb").stat().st_size // PAGE_BYTES
    numbers = [0, 1, *(rng.randrange(2, pages) for _ in range(20))]
    faults: list[list[object]] = [["zero", number * PAGE_BYTES, PAGE_BYTES] for number in numbers]
    outcomes = probe(data_dir, tmp_path / "scratch", faults)
    assert [outcome for outcome, _ in outcomes[:2]] == ["refused", "refused"]
    for fault, (outcome, problems) in zip(faults, outcomes, strict=True):
        assert outcome not in ("wrong", "hung"), fault
        assert outcome == "same" or problems, (fault, outcome)


def damaged_copy(data_dir: Path, copy: Path, old: bytes, new: bytes) -> Path:
    whole = (data_dir / "data.mdb").read_bytes()
    assert whole.count(old) >= 1
    copy.mkdir()
    (copy / "data.mdb").write_bytes(whole.replace(old, new))
    return copy


def test_damage_in_the_tail_keeps_a_node_from_starting_and_says_what_to_do(data_dir: Path, tmp_path: Path) -> None:
    with Storage(data_dir) as storage:
        last = storage.entries(1001, 24, 24, 1)[0].data
    flipped = last[:-1] + bytes([last[-1] ^ 1])
    copy = damaged_copy(data_dir, tmp_path / "copy", last, flipped)
    with pytest.raises(DamageError) as refusal:
        Storage(copy)
    message = str(refusal.value)
    assert "entry 24 of group 1001" in message
    assert str(copy) in message
    assert "quorumlog log verify" in message
    assert "\n" not in message
    assert (copy / "data.mdb").read_bytes().count(flipped) == 1, "nothing is deleted on doubt"
    assert [problem.index for problem in verify(copy).problems] == [24]


def test_damage_before_the_tail_spoils_only_the_reads_that_touch_it(tmp_path: Path) -> None:
    log = LogBuilder(1)
    entries = log.batches(200, 7900)
    with Storage(tmp_path / "data") as storage:
        storage.commit(transaction(create(1, entries)))
    old = entries[50].data
    copy = damaged_copy(tmp_path / "data", tmp_path / "copy", old, old[:1000] + bytes([old[1000] ^ 4]) + old[1001:])
    with Storage(copy) as storage:
        assert storage.entries(1, 49, 53, 1 << 40) == entries[48:50]
        with pytest.raises(DamageError, match="entry 51 of group 1 "):
            storage.entries(1, 51, 53, 1 << 40)
        with pytest.raises(DamageError, match="entry 51 of group 1 "):
            storage.term_at(1, 51)
        assert storage.entries(1, 1, 50, 1 << 40) == entries[:50]
        assert storage.entries(1, 52, 200, 1 << 40) == entries[51:]
        more = LogBuilder(1, previous=log.previous, next_offset=200).batches(3)
        storage.commit(transaction(RaftGroupWrite(1, entries=more)))
    assert [problem.index for problem in verify(copy).problems] == [51]


def test_two_entries_that_changed_places_are_found(tmp_path: Path) -> None:
    entries = LogBuilder(1).batches(100, 7900)
    with Storage(tmp_path / "data") as storage:
        storage.commit(transaction(create(1, entries)))
    one, other = entries[10].data, entries[11].data
    whole = bytearray((tmp_path / "data" / "data.mdb").read_bytes())
    places = (whole.index(one), whole.index(other))
    for place, data in zip(places, (other, one), strict=True):
        whole[place : place + len(data)] = data
    (tmp_path / "copy").mkdir()
    (tmp_path / "copy" / "data.mdb").write_bytes(whole)
    with Storage(tmp_path / "copy") as storage, pytest.raises(DamageError, match="in its place is entry 12"):
        storage.entries(1, 11, 11, 1)


def test_a_sound_entry_of_another_history_breaks_the_chain(tmp_path: Path) -> None:
    log = LogBuilder(1)
    entries = log.batches(100, 7900)
    other = batch(1, identity(entries[9])._replace(hash=99), 10, bytes(7900))
    with Storage(tmp_path / "data") as storage:
        storage.commit(transaction(create(1, entries)))
    copy = damaged_copy(tmp_path / "data", tmp_path / "copy", entries[10].data, other.data)
    with Storage(copy) as storage, pytest.raises(DamageError, match=r"entry 11 of group 1 .*hash chain"):
        storage.entries(1, 8, 12, 1 << 40)
    assert [problem.index for problem in verify(copy).problems] == [11]


def test_a_log_that_lost_committed_entries_is_refused(tmp_path: Path) -> None:
    """An old copy of the file under a newer hard state cannot come about by a crash, only by damage."""
    path = tmp_path / "data"
    with Storage(path) as storage:
        storage.commit(transaction(create(1, LogBuilder(1).batches(10), hard_state=HardState(1, 1, 10))))
        environment = storage._environment
        with environment.writing() as txn:
            txn.delete(b"\0\0\0\x01" + (10).to_bytes(8, "big"), db=environment.databases[b"entries"])
    with pytest.raises(DamageError, match=r"entry 10 of group 1 .* is missing, and entries up to 10 were committed"):
        Storage(path)


@pytest.mark.parametrize("database", [b"hard-states", b"anchors", b"configurations"])
def test_a_group_without_one_of_its_rows_is_refused(tmp_path: Path, database: bytes) -> None:
    with Storage(tmp_path / "data") as storage:
        storage.commit(transaction(create(1, LogBuilder(1).batches(10))))
        with storage._environment.writing() as txn:
            txn.delete(b"\0\0\0\x01", db=storage._environment.databases[database])
    with pytest.raises(DamageError, match=f"{database.decode()} of group 1 .* is missing"):
        Storage(tmp_path / "data")
    assert not verify(tmp_path / "data").sound

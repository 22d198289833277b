"""Reading while the storage thread writes: no false alarm, nothing half done."""

from __future__ import annotations

import errno
import random
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import lmdb
import pytest
from storage_samples import LogBuilder, create, identity, transaction

from quorumlog.raft.types import HardState
from quorumlog.storage.interface import FatalStorageError
from quorumlog.storage.storage import Storage
from quorumlog.storage.transaction import RaftGroupWrite

COMMITS = 250
GROUP = 5


def rewrite(storage: Storage, rng: random.Random) -> None:
    """Appends, truncates uncommitted entries, compacts, destroys the group and creates it again."""
    log = LogBuilder(GROUP)
    kept = log.batches(4)
    storage.commit(transaction(create(GROUP, kept, hard_state=HardState(1, 1, 2))))
    committed, term = 2, 1
    for number in range(COMMITS):
        write = RaftGroupWrite(GROUP)
        if number % 100 == 99:
            storage.commit(transaction(RaftGroupWrite(GROUP, destroy=True)))
            log = LogBuilder(GROUP, seed=number)
            kept = log.batches(4)
            storage.commit(transaction(create(GROUP, kept, hard_state=HardState(1, 1, 2))))
            committed, term = 2, 1
            continue
        if rng.random() < 0.5:
            write.truncate_from = committed + 1
            del kept[committed - kept[0].index + 1 :]
            next_offset = int(kept[-1].index)
            log = LogBuilder(GROUP, previous=identity(kept[-1]), next_offset=next_offset, seed=number)
            term += 1
        write.entries = log.batches(rng.randrange(1, 6), rng.choice([50, 5000]), term=term)
        kept += write.entries
        committed = rng.randrange(committed, kept[-1].index + 1)
        write.hard_state = HardState(term, 1, committed)
        if rng.random() < 0.3 and committed > kept[0].index + 1:
            cut = committed - 1 - kept[0].index
            write.compact_to = identity(kept[cut - 1])
            del kept[:cut]
        storage.commit(transaction(write))


def test_reads_beside_commits_see_whole_transactions(tmp_path: Path) -> None:
    seed = random.SystemRandom().randrange(1 << 32)
    print(f"seed {seed}")
    failures: list[BaseException] = []
    done = threading.Event()

    def run() -> None:
        try:
            rewrite(storage, random.Random(seed))
        except BaseException as error:
            failures.append(error)
        finally:
            done.set()

    with Storage(tmp_path, max_deletes=3) as storage:
        thread = threading.Thread(target=run)
        thread.start()
        rng = random.Random(seed + 1)
        near, reads, misses = 1, 0, 0
        while not done.is_set():
            # Near the last entry read, or where the log starts again: of all indexes there are, nearly all are
            # gone or to come, and a quick disk leaves no time to find enough of the others.
            first = max(1, rng.choice((near, near, 1)) + rng.randrange(-20, 21))
            try:
                entries = storage.entries(GROUP, first, first + rng.randrange(3), 1 << 40)
                assert entries[0].index == first
                storage.term_at(GROUP, first)
                index = storage.find_offset(GROUP, first - 1)
                assert index is None or index >= first
                near, reads = first, reads + 1
            except LookupError:
                misses += 1
        thread.join()
        assert not failures, failures
        assert reads > 50, (reads, misses)


def test_after_an_io_error_nothing_more_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """LMDB itself would continue writing, over pages that never reached the disk."""
    log = LogBuilder(GROUP)
    with Storage(tmp_path) as storage:
        storage.commit(transaction(create(GROUP, log.batches(3))))
        writing = storage._environment.writing

        @contextmanager
        def failing() -> Iterator[object]:
            with writing() as txn:
                yield txn
                raise lmdb.Error("mdb_txn_commit", errno.EIO)

        monkeypatch.setattr(storage._environment, "writing", failing)
        entries = log.batches(2)
        with pytest.raises(FatalStorageError, match="check the disk"):
            storage.commit(transaction(RaftGroupWrite(GROUP, entries=entries)))
        monkeypatch.undo()
        with pytest.raises(FatalStorageError, match="has failed earlier"):
            storage.commit(transaction(RaftGroupWrite(GROUP, entries=entries)))
        with pytest.raises(LookupError):
            storage.entries(GROUP, 4, 4, 1)
    with Storage(tmp_path) as storage:
        assert storage.groups()[GROUP].last.index == 3

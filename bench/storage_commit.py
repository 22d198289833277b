"""Cost of a commit beside the same bytes put into a bare LMDB: ``python -m bench.storage_commit``.

Each line commits transactions of several groups, one sync each, through ``Storage`` and through plain ``put`` calls,
alternating in one run, and gives the median rate of both. The ratio is what counts: the disk is shared.
"""

from __future__ import annotations

import argparse
import cProfile
import pstats
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import lmdb

from quorumlog.raft.types import ORIGIN, Configuration, Entry, EntryId, EntryKind, HardState
from quorumlog.storage.storage import Storage
from quorumlog.storage.transaction import RaftGroupWrite, StorageTransaction
from quorumlog.wire.entry import Codec, build_batch, entry_hash, seal_batch

#: (payload bytes, groups per transaction, batches per group)
SHAPES = ((100, 1, 1), (16 << 10, 1, 1), (16 << 10, 4, 4), (64 << 10, 4, 2), (1 << 20, 2, 2))
ROUNDS = 7
MIB = 1 << 20


class TransactionFeed:
    """Makes the next transaction of every group, ahead of the clock."""

    def __init__(self, groups: int, batches: int, payload_bytes: int) -> None:
        self._batches = batches
        self._unsealed = build_batch(
            bytes(payload_bytes), record_count=1, codec=Codec.NONE, base_timestamp_ms=0, max_timestamp_ms=0
        )
        self._last = dict.fromkeys(range(groups), ORIGIN)

    def next(self) -> StorageTransaction:
        """One transaction."""
        writes = []
        for group, last in self._last.items():
            entries: list[Entry] = []
            for _ in range(self._batches):
                index = last.index + 1
                data = seal_batch(
                    self._unsealed, group=group, term=1, index=index, previous_hash=last.hash, base_offset=last.index
                )
                last = EntryId(index, 1, entry_hash(data))
                entries.append(Entry(index, 1, EntryKind.BATCH, last.hash, data))
            self._last[group] = last
            writes.append(RaftGroupWrite(group, entries=entries, hard_state=HardState(1, 1, last.index)))
        return StorageTransaction(1, writes)


def rate(commit: Callable[[StorageTransaction], None], transactions: list[StorageTransaction]) -> float:
    """Transactions per second."""
    begin = time.perf_counter()
    for transaction in transactions:
        commit(transaction)
    return len(transactions) / (time.perf_counter() - begin)


def bare(environment: lmdb.Environment, database: lmdb._Database) -> Callable[[StorageTransaction], None]:
    """Puts the same entries under the same keys, and nothing else."""

    def commit(transaction: StorageTransaction) -> None:
        with environment.begin(write=True, db=database) as txn:
            for write in transaction.writes:
                for entry in write.entries:
                    txn.put(b"%c%c" % (0, write.group) + entry.index.to_bytes(8, "big"), entry.data)

    return commit


def measure(directory: Path, payload: int, groups: int, batches: int, seconds: float) -> tuple[float, float]:
    """Median transactions per second of a bare LMDB and of Storage."""
    bytes_each = payload * groups * batches
    count = max(5, min(400, int(seconds / ROUNDS / 2 * 1000), 256 * MIB // bytes_each // ROUNDS))
    feed = TransactionFeed(groups, batches, payload)
    environment = lmdb.open(str(directory / "bare"), map_size=1 << 40, max_dbs=2, lib_version=0)
    plain = bare(environment, environment.open_db(b"entries"))
    with Storage(directory / "storage") as storage, environment:
        storage.commit(
            StorageTransaction(0, [RaftGroupWrite(group, create=Configuration((1,))) for group in range(groups)])
        )
        rates: tuple[list[float], list[float]] = ([], [])
        for _ in range(ROUNDS):
            transactions = [feed.next() for _ in range(count)]
            rates[0].append(rate(plain, transactions))
            rates[1].append(rate(storage.commit, transactions))
    return statistics.median(rates[0]), statistics.median(rates[1])


def main() -> None:
    """Prints one line per shape."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--directory", type=Path, help="where to write; a temporary directory by default")
    parser.add_argument("--seconds", type=float, default=4.0, help="roughly, per line")
    parser.add_argument("--profile", action="store_true", help="where the time of Storage goes")
    options = parser.parse_args()
    print(f"{'payload':>9} {'groups':>6} {'batches':>7} {'bare LMDB':>22} {'Storage':>22} {'ratio':>6}")
    profile = cProfile.Profile()
    for payload, groups, batches in SHAPES:
        directory = Path(tempfile.mkdtemp(dir=options.directory))
        try:
            if options.profile:
                profile.enable()
            plain, stored = measure(directory, payload, groups, batches, options.seconds)
            profile.disable()
        finally:
            shutil.rmtree(directory)
        mib = payload * groups * batches / MIB
        print(
            f"{payload:>9} {groups:>6} {batches:>7} {plain:>9.0f}/s {plain * mib:>5.0f} MiB/s"
            f" {stored:>9.0f}/s {stored * mib:>5.0f} MiB/s {stored / plain:>6.2f}"
        )
    if options.profile:
        pstats.Stats(profile).sort_stats("tottime").print_stats(15)


if __name__ == "__main__":
    main()

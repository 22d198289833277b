"""Appending while retention gives up the beginning of the log: ``python -m bench steady-state``.

Per batch size, a log is first filled up to what is retained (the fresh rate), then three times as much is written
through it, with the oldest batches trimmed as a node does it. The ratio of the two rates is what counts, and how large
the file is beside what is retained: the disk is shared. By default one storage environment; ``--cluster`` measures
three real nodes, with a topic of which ``retention.bytes`` is kept.
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path

from rich.table import Table

from bench.options import add_json, add_work_dir
from bench.printing import result_console
from bench.steady_cluster import measure_cluster
from bench.steady_figures import MIB, Steady
from quorumlog.raft.types import ORIGIN, Configuration, Entry, EntryId, EntryKind, HardState, Snapshot
from quorumlog.server.partition.retention import BYTES_SLACK
from quorumlog.storage.meta_pages import DATA_FILE
from quorumlog.storage.rows import cut_slice, describe_snapshot
from quorumlog.storage.storage import Storage
from quorumlog.storage.transaction import RaftGroupWrite, StorageTransaction
from quorumlog.wire.entry import Codec, build_batch, entry_hash, seal_batch

BATCH_BYTES = (4 << 10, 64 << 10, 1 << 20)
#: Written through after the log is full, in units of what is retained.
TURNS = 3
GROUPS = 8
#: Of one transaction, about: what gathers in a round.
TRANSACTION_BYTES = 512 << 10
CONFIGURATION = Configuration((1,))


@dataclass(slots=True)
class _Log:
    """One group's log as its leader sees it."""

    group: int
    last: EntryId = ORIGIN
    first_end: int = 0


class _LogWriter:
    """Appends to the logs of one environment in turn, and trims them as `quorumlog.server` does."""

    def __init__(self, storage: Storage, batch_bytes: int, retained_bytes: int) -> None:
        self._storage = storage
        self._rng = random.Random(1)
        self._limit = retained_bytes // GROUPS
        self._payload = self._rng.randbytes(2 * batch_bytes)
        self._batch_bytes = batch_bytes
        self._logs = [_Log(group) for group in range(GROUPS)]
        self._turn = 0
        storage.commit(StorageTransaction(0, [RaftGroupWrite(log.group, create=CONFIGURATION) for log in self._logs]))

    def write(self, size_bytes: int) -> float:
        """Writes about that much; returns MiB per second."""
        written, taken_s = 0, 0.0
        while written < size_bytes:
            transaction, size = self._next()
            began = time.perf_counter()
            self._storage.commit(transaction)
            taken_s += time.perf_counter() - began
            written += size
        return written / MIB / taken_s

    def _next(self) -> tuple[StorageTransaction, int]:
        writes: dict[int, RaftGroupWrite] = {}
        size = 0
        while size < TRANSACTION_BYTES:
            log = self._logs[self._turn % GROUPS]
            self._turn += 1
            write = writes.setdefault(log.group, RaftGroupWrite(log.group))
            entry = self._entry(log)
            write.entries.append(entry)
            size += len(entry.data)
        for group, write in writes.items():
            last = self._logs[group].last
            write.hard_state = HardState(1, 1, last.index)
            self._trim(self._logs[group], write)
        return StorageTransaction(1, list(writes.values())), size

    def _entry(self, log: _Log) -> Entry:
        size = self._rng.randint(self._batch_bytes // 2, self._batch_bytes * 3 // 2)
        unsealed = build_batch(
            self._payload[:size], record_count=1, codec=Codec.NONE, base_timestamp_ms=0, max_timestamp_ms=0
        )
        index, previous = log.last.index + 1, log.last
        data = seal_batch(
            unsealed, group=log.group, term=1, index=index, previous_hash=previous.hash, base_offset=previous.index
        )
        log.last = EntryId(index, 1, entry_hash(data))
        return Entry(index, 1, EntryKind.BATCH, log.last.hash, data)

    def _trim(self, log: _Log, write: RaftGroupWrite) -> None:
        last = self._storage.last_batch(log.group)
        if last is None or last.end_position - log.first_end <= self._limit * (BYTES_SLACK + 1) // BYTES_SLACK:
            return
        needed = self._storage.find_batch(log.group, 0, lambda row: last.end_position - row.end_position < self._limit)
        assert needed is not None
        log.first_end = needed.end_position
        [before] = self._storage.entries(log.group, needed.index - 1, needed.index - 1, 1)
        anchor = EntryId(before.index, before.term, before.hash)
        stage = self._rng.getrandbits(64)
        write.stage.append(cut_slice(stage, b"state", MIB, 0))
        write.checkpoint = Snapshot(anchor, CONFIGURATION, describe_snapshot(stage, b"state", MIB))
        write.compact_to = anchor

    def retained_bytes(self) -> int:
        """Returns the bytes of batches that are kept."""
        return sum(
            last.end_position - log.first_end
            for log in self._logs
            if (last := self._storage.last_batch(log.group)) is not None
        )


def measure(directory: Path, batch_bytes: int, retained_bytes: int) -> Steady:
    """Fills one environment, and writes through it."""
    with Storage(directory) as storage:
        writer = _LogWriter(storage, batch_bytes, retained_bytes)
        fresh = writer.write(retained_bytes)
        writer.write(retained_bytes)
        steady = writer.write((TURNS - 1) * retained_bytes)
        size = (directory / DATA_FILE).stat().st_size
        return Steady(batch_bytes, writer.retained_bytes(), fresh, steady, size)


def main(arguments: list[str]) -> int:
    """Measures and prints; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m bench steady-state", description=__doc__)
    parser.add_argument("--retained-mib", type=int, default=256, help="kept per batch size, in MiB (default 256)")
    parser.add_argument("--batch-kib", type=int, nargs="*", help="batch sizes (default 4 64 1024)")
    parser.add_argument("--cluster", action="store_true", help="three real nodes instead of one storage environment")
    add_json(parser)
    add_work_dir(parser)
    parsed = parser.parse_args(arguments)
    if parsed.retained_mib < 1 or any(size < 1 for size in parsed.batch_kib or ()):
        print("bench: error: --retained-mib and --batch-kib are at least 1", file=sys.stderr)
        return 2
    sizes = [size << 10 for size in parsed.batch_kib] if parsed.batch_kib else BATCH_BYTES
    parsed.work_dir.mkdir(parents=True, exist_ok=True)
    found = []
    for batch_bytes in sizes:
        directory = Path(tempfile.mkdtemp(dir=parsed.work_dir))
        try:
            run = measure_cluster if parsed.cluster else measure
            found.append(run(directory, batch_bytes, parsed.retained_mib * MIB))
        finally:
            shutil.rmtree(directory, ignore_errors=True)
    _show(found)
    if parsed.json is not None:
        parsed.json.write_text(json.dumps([asdict(steady) for steady in found], indent=2) + "\n")
    return 0


def _show(found: list[Steady]) -> None:
    table = Table("batch", "retained", "fresh", "steady", "ratio", "file", "file / retained")
    for steady in found:
        table.add_row(
            f"{steady.batch_bytes >> 10} KiB",
            f"{steady.retained_bytes / MIB:.0f} MiB",
            f"{steady.fresh_mib_s:.0f} MiB/s",
            f"{steady.steady_mib_s:.0f} MiB/s",
            f"{steady.ratio:.2f}",
            f"{steady.file_bytes / MIB:.0f} MiB",
            f"{steady.file_ratio:.2f}",
        )
    result_console().print(table)

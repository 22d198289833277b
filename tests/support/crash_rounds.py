"""Commits a fixed course of transactions in child processes that are killed at random moments, and says after each kill
how much of it exists. Run as a program: data directory, seed, rounds. It forks, so nothing else may run in it.
"""

from __future__ import annotations

import os
import random
import signal
import sys
import time
from pathlib import Path

from disk_samples import Script, advance, assert_same, make_disk

from quorumlog.storage.storage import Storage
from quorumlog.storage.transaction import StorageTransaction

#: A child is killed at some moment in so much time (s) after it has started to commit.
LONGEST_LIFE_S = 0.03
TRANSACTIONS = 4_000


def commit_all(data_dir: Path, transactions: list[StorageTransaction], done: int) -> int:
    """In a child: commits one after the other, and writes a byte for each once it is durable."""
    with Storage(data_dir) as storage:
        os.write(done, b"!")
        for transaction in transactions:
            storage.commit(transaction)
            os.write(done, b".")
    return 0


def life(data_dir: Path, transactions: list[StorageTransaction], rng: random.Random) -> int:
    """Lets a child commit, and kills it; returns how many commits were reported to it."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os._exit(commit_all(data_dir, transactions, writing))
    os.close(writing)
    assert os.read(reading, 1) == b"!"
    time.sleep(rng.random() * LONGEST_LIFE_S)
    os.kill(child, signal.SIGKILL)
    acknowledged = 0
    while heard := os.read(reading, 1 << 16):
        acknowledged += len(heard)
    os.close(reading)
    os.waitpid(child, 0)
    return acknowledged


def main(data_dir: Path, seed: int, rounds: int) -> None:
    rng = random.Random(seed)
    script = Script(seed)
    transactions = [script.next() for _ in range(TRANSACTIONS)]
    scheduler, disk = make_disk(seed)
    at, kept = 0, 0
    for _ in range(rounds):
        acknowledged = life(data_dir, transactions[at:], rng)
        for transaction in transactions[at : at + acknowledged]:
            advance(disk, scheduler, transaction)
        at += acknowledged
        with Storage(data_dir) as storage:
            try:
                assert_same(storage, disk)
            except AssertionError:
                # The transaction under way when the child was killed: whole, or this fails.
                advance(disk, scheduler, transactions[at])
                assert_same(storage, disk)
                at += 1
                kept += 1
    print(f"{rounds} kills, {at} transactions, {kept} of them unacknowledged")


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))

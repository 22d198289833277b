"""Appends to one data directory until it is killed. Prints a line per commit, once it is durable."""

from __future__ import annotations

import random
import sys
from pathlib import Path

from storage_samples import LogBuilder, create, transaction

from quorumlog.raft.types import ORIGIN, HardState
from quorumlog.storage.storage import Storage
from quorumlog.storage.transaction import RaftGroupWrite

GROUPS = (3, 4, 1000)


def main(data_dir: Path, seed: int) -> None:
    rng = random.Random(seed)
    storage = Storage(data_dir)
    groups = storage.groups()
    if not groups:
        storage.commit(transaction(*(create(group) for group in GROUPS)))
        groups = storage.groups()
    logs = {}
    for group, state in groups.items():
        offset = 0
        if state.last != ORIGIN:
            offset = int(storage.node_state()[b"offset-%d" % group])
        logs[group] = LogBuilder(group, previous=state.last, next_offset=offset, seed=seed)
    while True:
        writes = [
            RaftGroupWrite(group, entries=log.batches(rng.randrange(1, 4), rng.choice([50, 3000, 40_000])))
            for group, log in logs.items()
        ]
        for write in writes:
            write.hard_state = HardState(1, 1, write.entries[-1].index)
        offsets = {b"offset-%d" % group: str(log.next_offset).encode() for group, log in logs.items()}
        storage.commit(transaction(*writes, node_state=offsets))
        print(" ".join(f"{group}:{log.previous.index}:{log.previous.hash}" for group, log in logs.items()), flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))

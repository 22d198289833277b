"""Installs one snapshot after the other, slice by slice, until it is killed. Prints a line per installed one."""

from __future__ import annotations

import random
import sys
from pathlib import Path

from storage_samples import create, staged, transaction

from quorumlog.raft.types import EntryId, HardState
from quorumlog.storage.storage import Storage
from quorumlog.storage.transaction import RaftGroupWrite

GROUP = 3


def data_of(index: int) -> bytes:
    """Returns the content of the snapshot at an index."""
    return random.Random(index).randbytes(9_000 + index * 100 % 50_000)


def main(data_dir: Path) -> None:
    storage = Storage(data_dir)
    if not storage.groups():
        storage.commit(transaction(create(GROUP)))
    index = storage.groups()[GROUP].anchor.index
    while True:
        index += 10
        snapshot, slices = staged(EntryId(index, 1, index), data_of(index), stage=random.getrandbits(64))
        for piece in slices:
            storage.commit(transaction(RaftGroupWrite(GROUP, stage=[piece])))
        install = RaftGroupWrite(
            GROUP, snapshot=snapshot, hard_state=HardState(1, 1, index), table={b"at": b"%d" % index}
        )
        storage.commit(transaction(install))
        print(index, flush=True)
        storage.sweep()


if __name__ == "__main__":
    main(Path(sys.argv[1]))

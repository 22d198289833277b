"""Reads damaged copies of a data directory, each in a process of its own, and says how each read ended.

The engine may crash on damage that the checks at opening have not come across; a test process must not. Run as a
program: data directory, scratch directory; one fault per line on stdin, one outcome per line on stdout.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from quorumlog.storage import opening
from quorumlog.storage.interface import DamageError
from quorumlog.storage.storage import Storage
from quorumlog.storage.verification import verify

_SAME, _WRONG, _REFUSED, _FOUND = range(4)
_NAMES = {_SAME: "same", _WRONG: "wrong", _REFUSED: "refused", _FOUND: "found", -signal.SIGALRM: "hung"}
#: A read or a verification of so small a file takes a fraction of a second.
_HUNG_S = 60


def flip(data: bytearray, position: int, bit: int) -> None:
    """One bit of the file."""
    data[position] ^= 1 << bit


def cut(data: bytearray, size: int) -> None:
    """The file ends early."""
    del data[size:]


def zero(data: bytearray, start: int, length: int) -> None:
    """A stretch of zeros."""
    data[start : start + length] = bytes(length)


FAULTS: dict[str, Callable[..., None]] = {"flip": flip, "cut": cut, "zero": zero}


def content(storage: Storage) -> dict[str, Any]:
    """All that can be read. Raises DamageError with what was read so far already compared by the caller."""
    found: dict[str, Any] = {"groups": storage.groups(), "node": storage.node_state()}
    for group, state in storage.groups().items():
        for index in range(state.anchor.index + 1, state.last.index + 1):
            found[f"{group}/{index}"] = storage.entries(group, index, index, 1)
        found[f"{group} whole"] = (
            storage.entries(group, state.anchor.index + 1, state.last.index, 1 << 40) if state.last.index else []
        )
        for offset in range(0, 2000, 5):
            index = storage.find_offset(group, offset)
            found[f"{group}@{offset}"] = index
            if index is None:
                break
    return found


def read(data_dir: Path, expected: dict[str, Any]) -> int:
    """Reads everything, also after reads that find damage, and returns the outcome."""
    try:
        storage = Storage(data_dir)
    except DamageError:
        return _REFUSED
    outcome = _SAME
    for key, value in expected.items():
        try:
            if key == "groups":
                found: Any = storage.groups()
            elif key == "node":
                found = storage.node_state()
            elif key.endswith(" whole"):
                group = int(key.split()[0])
                found = []
                while len(found) < len(value):
                    found += storage.entries(group, value[len(found)].index, value[-1].index, 1 << 40)
            elif "/" in key:
                group, index = map(int, key.split("/"))
                found = storage.entries(group, index, index, 1)
            else:
                group, offset = map(int, key.split("@"))
                found = storage.find_offset(group, offset)
        except DamageError:
            outcome = _FOUND
            continue
        if found != value:
            os.write(2, f"{key}: {str(found)[:200]} instead of {str(value)[:200]}\n".encode())
            return _WRONG
    return outcome


def main(data_dir: Path, scratch: Path) -> None:
    # The checks at opening would find nearly everything in so small a file, and leave nothing to the reads.
    opening.TAIL_ENTRIES = 1
    with Storage(data_dir) as storage:
        expected = content(storage)
    whole = (data_dir / "data.mdb").read_bytes()
    for line in sys.stdin:
        kind, *arguments = json.loads(line)
        damaged = bytearray(whole)
        FAULTS[kind](damaged, *arguments)
        shutil.rmtree(scratch, ignore_errors=True)
        scratch.mkdir()
        (scratch / "data.mdb").write_bytes(damaged)
        child = os.fork()
        if child == 0:
            code = 99
            signal.alarm(_HUNG_S)
            try:
                code = read(scratch, expected)
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(code)
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        signal.alarm(_HUNG_S)
        try:
            problems = [str(problem) for problem in verify(scratch).problems]
        except DamageError as error:
            problems = [str(error)]
        signal.alarm(0)
        print(json.dumps([_NAMES.get(status, f"crashed ({status})"), problems[:3]]), flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))

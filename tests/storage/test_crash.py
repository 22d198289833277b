"""Acknowledged commits survive a killed process, and a transaction is stored in all of its groups or in none."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from pathlib import Path

from child_process import ChildProcess
from crash_writer import GROUPS

from quorumlog.storage.storage import Storage
from quorumlog.storage.verification import verify

SUPPORT = Path(__file__).resolve().parents[1] / "support"
KILLS = 5


def write_until_killed(data_dir: Path, seed: int, commits: int) -> str:
    """Lets a process commit, kills it in the midst of it, returns the last line that it got out."""
    command = [sys.executable, str(SUPPORT / "crash_writer.py"), str(data_dir), str(seed)]
    with ChildProcess(
        command, stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": str(SUPPORT)}
    ) as process:
        assert process.stdout is not None
        lines = [process.stdout.readline() for _ in range(commits)]
        process.send_signal(signal.SIGKILL)
        lines += process.stdout.readlines()
    complete = [line for line in lines if line.endswith("\n")]
    assert len(complete) >= commits, "the writer died before it was killed"
    return complete[-1]


def test_everything_acknowledged_survives_a_kill(tmp_path: Path) -> None:
    seed = random.SystemRandom().randrange(1 << 32)
    print(f"seed {seed}")
    rng = random.Random(seed)
    for kill in range(KILLS):
        acknowledged = write_until_killed(tmp_path, seed + kill, rng.randrange(5, 40))
        with Storage(tmp_path) as storage:
            groups = storage.groups()
            node_state = storage.node_state()
            ahead = set()
            for group, index, entry_hash in (part.split(":") for part in acknowledged.split()):
                state = groups[int(group)]
                assert storage.entries(int(group), int(index), int(index), 1)[0].hash == int(entry_hash)
                assert state.hard_state.commit == state.last.index
                assert storage.find_offset(int(group), int(node_state[b"offset-%d" % int(group)])) is None
                assert storage.find_offset(int(group), int(node_state[b"offset-%d" % int(group)]) - 1) is not None
                ahead.add(state.last.index > int(index))
            assert len(ahead) == 1, "a commit that was not acknowledged is there in some groups only"
        report = verify(tmp_path)
        assert report.problems == ()
        assert report.groups == len(GROUPS)

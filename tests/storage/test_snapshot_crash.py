"""A kill at any point of an install leaves the state before it or the state after it, whole, and nothing else."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from child_process import ChildProcess
from snapshot_crash_writer import GROUP, data_of

from quorumlog.storage.rows import read_snapshot
from quorumlog.storage.storage import Storage
from quorumlog.storage.verification import verify

SUPPORT = Path(__file__).resolve().parents[1] / "support"
KILLS = 8


def installed_when_killed(data_dir: Path, rng: random.Random) -> int:
    """Lets a process install snapshots, kills it at a random moment, returns the index of the last that it got done."""
    command = [sys.executable, str(SUPPORT / "snapshot_crash_writer.py"), str(data_dir)]
    environment = {**os.environ, "PYTHONPATH": str(SUPPORT)}
    with ChildProcess(command, stdout=subprocess.PIPE, text=True, env=environment) as process:
        assert process.stdout is not None
        lines = [process.stdout.readline() for _ in range(rng.randrange(1, 4))]
        try:
            # Some of the next one's slices are staged when it ends.
            process.wait(rng.uniform(0, 0.02))
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGKILL)
        lines += process.stdout.readlines()
    return int([line for line in lines if line.endswith("\n")][-1])


@pytest.mark.scenario("6f")
def test_a_killed_install_leaves_one_whole_snapshot_with_its_hard_state(tmp_path: Path) -> None:
    seed = random.SystemRandom().randrange(1 << 32)
    print(f"seed {seed}")
    rng = random.Random(seed)
    for _ in range(KILLS):
        acknowledged = installed_when_killed(tmp_path, rng)
        with Storage(tmp_path) as storage:
            state = storage.groups()[GROUP]
            assert state.snapshot is not None
            index = state.snapshot.last.index
            assert index in (acknowledged, acknowledged + 10)
            assert (state.anchor, state.last) == (state.snapshot.last, state.snapshot.last)
            assert (state.hard_state.commit, state.table) == (index, {b"at": b"%d" % index})
            assert read_snapshot(storage, GROUP, state.snapshot.data) == data_of(index)
            while storage.sweep():
                pass
            with storage._environment.reading() as reading:
                assert reading.stages(GROUP) == [state.snapshot.data.stage], "an unfinished stage is swept away"
        assert verify(tmp_path).problems == ()

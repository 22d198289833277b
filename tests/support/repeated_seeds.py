"""Seeds that run again in another process, where every hash of a text differs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterable

from quorumlog.simulator.seeds.story import Story

_PROGRAM = """
import json, sys
from quorumlog.simulator.seeds.story import Story, run_story
story = Story[sys.argv[1]]
print(json.dumps({seed: run_story(int(seed), story).trace for seed in sys.argv[2:]}))
"""


def traces_with_other_hashes(seeds: Iterable[int], story: Story) -> dict[int, str]:
    """Returns the traces of seeds, run with a fixed hash seed; that of this process is random."""
    ended = subprocess.run(
        [sys.executable, "-c", _PROGRAM, story.name, *map(str, seeds)],
        env=os.environ | {"PYTHONHASHSEED": "12345"},
        capture_output=True,
        text=True,
        check=True,
        timeout=300,
    )
    return {int(seed): trace for seed, trace in json.loads(ended.stdout).items()}

"""``python -m bench instructions SIDE SIDE …``: instructions per round of replication, counted instead of timed.

The loads are those of ``python -m bench rounds``. Valgrind counts the instructions of the whole process; the difference
between a run with three repetitions and one with a single repetition belongs to two repetitions alone. The counts do
not depend on other programs of the machine: they show differences of one percent where times vary by a third. They say
nothing about waiting, caches and the kernel.

Each SIDE is one of these; the first one is what the others are compared with:

- ``this``: this checkout as it is installed;
- ``compiled``: this checkout as compiled by ``make compile``;
- a commit, by any of git's names;
- a directory that contains the package ``quorumlog``, such as ``build/compiled`` of another checkout.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from rich.table import Table

from bench.compare import CHECKOUT, THIS, Contender, UnknownSideError, find_sides
from bench.options import add_json, add_work_dir
from bench.printing import result_console

#: Calls of ``bench.rounds`` with a number of repetitions; a shape is the number of groups in a round, and of entries of
#: each. They are programs, because another checkout has its own.
LOADS = {
    "core alone": "core_costs({})",
    "1 group, 1 entry": "round_costs(((1, 1),), {})",
    "1 group, 64 entries": "round_costs(((1, 64),), {})",
    "10 groups, 8 entries": "round_costs(((10, 8),), {})",
}
_REPETITIONS = (1, 3)
_RUN_TIMEOUT_S = 1_800.0
_COUNT = re.compile(r"I\s+refs:\s+([\d,]+)")


class CountError(Exception):
    """Raised if a run cannot be counted. The message is one line that says what to do."""


def count(side: Contender, load: str) -> int:
    """Returns the instructions of a repetition of a load.

    Raises:
        CountError: Valgrind is not installed, or the load failed.
    """
    few, many = (_instructions(side, load, repetitions) for repetitions in _REPETITIONS)
    return (many - few) // (_REPETITIONS[1] - _REPETITIONS[0])


def _instructions(side: Contender, load: str, repetitions: int) -> int:
    valgrind = shutil.which("valgrind")
    if valgrind is None:
        raise CountError("valgrind is not installed: install the package valgrind")
    counter = [valgrind, "--tool=cachegrind", "--cache-sim=no", "--cachegrind-out-file=/dev/null"]
    program = f"from bench import rounds; rounds.{LOADS[load].format(repetitions)}"
    loaded = [sys.executable, "-P", "-c", program]
    paths = [str(CHECKOUT)] if side.packages is None else [str(side.packages), str(_own_loads(side.packages))]
    # With one seed of hashes, two runs execute the same instructions.
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "PYTHONHASHSEED": "0"}
    try:
        run = subprocess.run(
            [*counter, *loaded], check=False, env=env, capture_output=True, text=True, timeout=_RUN_TIMEOUT_S
        )
    except subprocess.TimeoutExpired:
        raise CountError(f"{side.name}, {load}: not finished within {_RUN_TIMEOUT_S:.0f} s") from None
    found = _COUNT.search(run.stderr)
    if run.returncode or found is None:
        said = [line for line in run.stderr.splitlines() if line.strip() and not line.startswith("==")]
        last = said[-1] if said else "no output"
        raise CountError(f"{side.name}, {load}: exit status {run.returncode}: {last}")
    return int(found[1].replace(",", ""))


def _own_loads(packages: Path) -> Path:
    """Returns the checkout whose loads run on ``packages``: their own, since the loads use what users do not import."""
    found = (folder for folder in packages.parents if (folder / "bench" / "rounds.py").is_file())
    return next(found, CHECKOUT)


def main(arguments: list[str]) -> int:
    """Counts and reports; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m bench instructions", description=__doc__)
    parser.add_argument("sides", nargs="*", metavar="SIDE", help="this, compiled, a commit or a directory")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="number of runs at a time")
    add_json(parser)
    add_work_dir(parser)
    parsed = parser.parse_args(arguments)
    if len(parsed.sides) < 2:
        parser.error("at least two sides are needed")
    parsed.work_dir.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(dir=parsed.work_dir))
    try:
        counts = _count_all(_sides(parsed.sides, folder), parsed.jobs)
    except (UnknownSideError, CountError) as problem:
        print(f"bench: error: {problem}", file=sys.stderr)
        return 2
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    result_console().print(_table(counts))
    if parsed.json is not None:
        command = shlex.join(["python", "-m", "bench", "instructions", *arguments])
        parsed.json.write_text(json.dumps({"command": command, "instructions": counts}, indent=2) + "\n")
    return 0


def _sides(names: list[str], folder: Path) -> list[Contender]:
    sides: list[Contender] = []
    for number, name in enumerate(names):
        if name == "this":
            sides.append(Contender(THIS))
        elif (Path(name) / "quorumlog").is_dir():
            sides.append(Contender(name, Path(name).resolve()))
        else:
            sides.append(find_sides([name], folder / str(number))[1])
    return sides


def _count_all(sides: list[Contender], jobs: int) -> dict[str, dict[str, int]]:
    """Returns the counts of each side by load."""
    with ThreadPoolExecutor(jobs) as pool:
        runs = {side.name: {load: pool.submit(count, side, load) for load in LOADS} for side in sides}
        return {name: {load: run.result() for load, run in loads.items()} for name, loads in runs.items()}


def _table(counts: dict[str, dict[str, int]]) -> Table:
    first = next(iter(counts))
    table = Table(title="million instructions of a repetition, three nodes together", title_justify="left")
    table.add_column("load")
    for name in counts:
        table.add_column(name, justify="right", overflow="fold")
        if name != first:
            table.add_column("ratio", justify="right")
    for load in LOADS:
        cells = [load]
        for name, loads in counts.items():
            cells.append(f"{loads[load] / 1e6:.1f}")
            if name != first:
                cells.append(f"{loads[load] / counts[first][load]:.3f}")
        table.add_row(*cells)
    return table

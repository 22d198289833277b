"""``python -m quorumlog.chaos.simulate``: runs seeds, or replays one.

Examples:
    python -m quorumlog.chaos.simulate --seed 4711
    python -m quorumlog.chaos.simulate --seeds 200 --start 1000 --jobs 2
    python -m quorumlog.chaos.simulate --minutes 30
"""

from __future__ import annotations

import argparse
import itertools
import multiprocessing
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
from pathlib import Path

from quorumlog.chaos.simulation import Result, Simulation


def run_seed(seed: int) -> Result:
    """One seed in this process."""
    return Simulation(seed).run()


def run_seeds(seeds: Iterable[int], jobs: int, deadline: float | None = None) -> Iterator[Result]:
    """Results as they come, from ``jobs`` processes, with no new seed after ``deadline`` (``time.monotonic``)."""
    waiting = iter(seeds)
    if jobs <= 1:
        for seed in waiting:
            if deadline is not None and time.monotonic() > deadline:
                return
            yield run_seed(seed)
        return
    with ProcessPoolExecutor(jobs, mp_context=multiprocessing.get_context("spawn")) as pool:
        under_way = {pool.submit(run_seed, seed) for seed in itertools.islice(waiting, 2 * jobs)}
        while under_way:
            done, under_way = wait(under_way, return_when=FIRST_COMPLETED)
            for future in done:
                yield future.result()
                if deadline is None or time.monotonic() < deadline:
                    under_way.update(pool.submit(run_seed, seed) for seed in itertools.islice(waiting, 1))


def replay_line(result: Result) -> str:
    """A failed seed and how to see it again."""
    return (
        f"seed {result.seed}: {result.violation}\n    replay: python -m quorumlog.chaos.simulate --seed {result.seed}"
    )


def main(arguments: list[str] | None = None) -> int:
    """Runs what the command line asks for; 0 when no seed broke a promise."""
    parser = argparse.ArgumentParser(prog="python -m quorumlog.chaos.simulate", description=__doc__.splitlines()[0])
    which = parser.add_mutually_exclusive_group(required=True)
    which.add_argument("--seed", type=int, help="replay this one")
    which.add_argument("--seeds", type=int, help="run this many")
    which.add_argument("--minutes", type=float, help="run for so long")
    parser.add_argument("--start", type=int, default=1, help="the first seed (default 1)")
    parser.add_argument("--jobs", type=int, default=2, help="processes (default 2)")
    parser.add_argument("--history", help="with --seed: write the clients' history there, as JSON lines")
    chosen = parser.parse_args(arguments)
    if chosen.seed is not None:
        return _replay(chosen.seed, chosen.history)
    if chosen.seeds is not None:
        return _run_many(range(chosen.start, chosen.start + chosen.seeds), chosen.jobs, None)
    return _run_many(itertools.count(chosen.start), chosen.jobs, time.monotonic() + 60 * chosen.minutes)


def _replay(seed: int, history_path: str | None) -> int:
    began = time.monotonic()
    simulation = Simulation(seed)
    result = simulation.run()
    if history_path is not None:
        simulation.history.save(Path(history_path))
    print(
        f"seed {seed}: {result.events} events, {result.steps} steps, {result.elections} elections,"
        f" {result.acknowledged} records acknowledged, {result.operations} operations,"
        f" {result.virtual_us / 1e6:.1f} s of virtual time in {time.monotonic() - began:.1f} s"
    )
    print(f"faults: {_faults(result.faults)}")
    print(f"trace: {result.trace}")
    if result.traceback:
        print(result.traceback, file=sys.stderr)
    print(f"violation: {result.violation}" if result.violation else "every promise held")
    return 1 if result.violation else 0


def _run_many(seeds: Iterable[int], jobs: int, deadline: float | None) -> int:
    began = time.monotonic()
    total, faults, events, acknowledged = 0, Counter[str](), 0, 0
    failed: list[Result] = []
    for result in run_seeds(seeds, jobs, deadline):
        total += 1
        events += result.events
        acknowledged += result.acknowledged
        faults.update(result.faults)
        if result.violation is not None:
            failed.append(result)
            print(replay_line(result), flush=True)
        if total % 50 == 0:
            print(f"{total} seeds, {events} events, {time.monotonic() - began:.0f} s", flush=True)
    print(
        f"{total} seeds, {events} events, {faults.total()} faults, {acknowledged} records acknowledged,"
        f" {time.monotonic() - began:.0f} s: {len(failed)} broke a promise"
    )
    print(f"faults: {_faults(faults)}")
    return 1 if failed else 0


def _faults(count: Counter[str]) -> str:
    return ", ".join(f"{name} {number}" for name, number in sorted(count.items())) or "none"


if __name__ == "__main__":
    sys.exit(main())

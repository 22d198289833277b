"""``python -m quorumlog.simulator.simulate``: runs seeds, or replays one.

Examples:
    python -m quorumlog.simulator.simulate --seed 4711
    python -m quorumlog.simulator.simulate --seed 4711 --reduce --out story.txt
    python -m quorumlog.simulator.simulate --seeds 20000 --minutes 25 --start 1000 --record run.json
    python -m quorumlog.simulator.simulate --seeds 5000 --groups
    python -m quorumlog.simulator.simulate --seeds 5000 --rights
    python -m quorumlog.simulator.simulate --seeds 5000 --clients
"""

from __future__ import annotations

import argparse
import gc
import itertools
import multiprocessing
import sys
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
from pathlib import Path

from quorumlog.simulator.seeds.client_simulation import ClientSimulation
from quorumlog.simulator.seeds.reduction import reduce_faults
from quorumlog.simulator.seeds.simulation import SeedResult, Simulation
from quorumlog.simulator.seeds.story import Story, run_story, simulation_of
from quorumlog.simulator.seeds.summary import Tally, counted, replay_line
from quorumlog.simulator.seeds.transcript import transcript

#: Number of seeds between two progress lines.
PROGRESS_SEEDS = 200
#: Thresholds of the garbage collector: new objects, and collections of the younger generations.
COLLECTIONS = (50_000, 20, 100)


def run_seeds(
    seeds: Iterable[int], jobs: int, deadline: float | None = None, story: Story = Story.NODES
) -> Iterator[SeedResult]:
    """Yields results as they arrive, from ``jobs`` processes, with no new seed after ``deadline``
    (``time.monotonic``).
    """
    waiting = iter(seeds)
    if jobs <= 1:
        for seed in waiting:
            if deadline is not None and time.monotonic() > deadline:
                return
            yield run_story(seed, story)
        return
    processes = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(jobs, mp_context=processes, initializer=_spare_the_collector) as pool:
        under_way = {pool.submit(run_story, seed, story) for seed in itertools.islice(waiting, 4 * jobs)}
        while under_way:
            done, under_way = wait(under_way, return_when=FIRST_COMPLETED)
            for future in done:
                yield future.result()
                if deadline is None or time.monotonic() < deadline:
                    under_way.update(pool.submit(run_story, seed, story) for seed in itertools.islice(waiting, 1))


def _spare_the_collector() -> None:
    """Reduces garbage collections: loaded modules stay, and seeds leave few cycles behind; collections took a twelfth
    of the time.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(*COLLECTIONS)


def main(arguments: list[str] | None = None) -> int:
    """Runs the seeds that the command line requests; returns 0 if none violated an invariant."""
    parser = argparse.ArgumentParser(prog="python -m quorumlog.simulator.simulate", description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, help="seed to replay")
    parser.add_argument("--seeds", type=int, help="number of seeds to run, or fewer within --minutes")
    parser.add_argument("--minutes", type=float, help="minutes to run, or less if the seeds are done")
    parser.add_argument("--start", type=int, default=1, help="first seed (default 1)")
    parser.add_argument("--jobs", type=int, default=2, help="number of processes (default 2)")
    parser.add_argument("--record", type=Path, help="file for the totals and violations, as JSON")
    stories = parser.add_mutually_exclusive_group()
    stories.add_argument("--groups", action="store_true", help="use consumer groups in every seed, not in one of three")
    stories.add_argument("--rights", action="store_true", help="use clients that need ACLs, which change")
    stories.add_argument("--machines", action="store_true", help="use machines with several nodes, which fail together")
    stories.add_argument("--transactions", action="store_true", help="use transactions, in every seed")
    stories.add_argument(
        "--clients", action="store_true", help="use the SDK's own clients; odd seeds have consumer groups"
    )
    parser.add_argument("--history", type=Path, help="with --seed: file for the clients' history, as JSON lines")
    parser.add_argument("--reduce", action="store_true", help="with --seed: reduce it to the relevant faults")
    parser.add_argument("--out", type=Path, help="with --reduce: file for the transcript")
    chosen = parser.parse_args(arguments)
    chosen_by = {Story.CLIENTS: chosen.clients, Story.GROUPS: chosen.groups, Story.RIGHTS: chosen.rights}
    chosen_by |= {Story.MACHINES: chosen.machines, Story.TRANSACTIONS: chosen.transactions}
    story = next((story for story, is_chosen in chosen_by.items() if is_chosen), Story.NODES)
    if chosen.seed is not None and chosen.reduce:
        if story in (Story.CLIENTS, Story.RIGHTS, Story.MACHINES, Story.TRANSACTIONS):
            parser.error(f"a seed of{story.value} cannot be reduced: its clients behave differently without a fault")
        return _reduce(chosen.seed, chosen.out, chosen.groups)
    if chosen.seed is not None:
        return _replay(chosen.seed, chosen.history, story)
    if chosen.seeds is None and chosen.minutes is None:
        parser.error("no seeds chosen: give --seed N, --seeds N, or --minutes M")
    return _run_many(chosen.start, chosen.seeds, chosen.minutes, chosen.jobs, chosen.record, story)


def _replay(seed: int, history_path: Path | None, story: Story) -> int:
    began = time.monotonic()
    if story is Story.CLIENTS:
        clients = ClientSimulation(seed, with_groups=seed % 2 == 1)
        result = clients.run()
        if history_path is not None:
            clients.history.save(history_path)
    else:
        simulation = simulation_of(seed, story)
        result = simulation.run()
        if history_path is not None:
            simulation.history.save(history_path)
            if len(simulation.group_history):
                simulation.group_history.save(history_path.with_suffix(".groups" + history_path.suffix))
    print(
        f"seed {seed}: {result.events} events, {result.steps} steps, {result.elections} elections,"
        f" {result.acknowledged} records acknowledged, {result.operations} operations,"
        f" {result.virtual_us / 1e6:.1f} s of virtual time in {time.monotonic() - began:.1f} s"
    )
    print(f"faults: {', '.join(f'{fault.number} {fault.kind}' for fault in result.struck) or 'none'}")
    if result.groups:
        print(
            f"groups: {result.groups}, changed {result.group_commands} times,"
            f" {result.group_records} records processed; {counted(result.happened)}"
        )
        print(f"processed again: {counted(result.duplicates)}")
    print(f"trace: {result.trace}")
    if result.traceback:
        print(result.traceback, file=sys.stderr)
    print(f"violation: {result.violation}" if result.violation else "all invariants hold")
    return 1 if result.violation else 0


def _reduce(seed: int, out: Path | None, with_groups: bool) -> int:
    reduction = reduce_faults(lambda faults: Simulation(seed, faults, with_groups=with_groups).run())
    if reduction is None:
        print(f"seed {seed}: all invariants hold; nothing to reduce")
        return 0
    text, _ = transcript(seed, reduction.faults, with_groups)
    left = ", ".join(f"{fault.number} {fault.kind}" for fault in reduction.result.struck) or "none"
    print(
        f"{len(reduction.result.struck)} of {reduction.faults_before} faults left after {reduction.runs} runs: {left}"
    )
    if out is None:
        print(text)
    else:
        out.write_text(text)
        print(f"transcript: {out}")
    return 1


def _run_many(
    start: int, count: int | None, minutes: float | None, jobs: int, record: Path | None, story: Story
) -> int:
    began = time.monotonic()
    deadline = None if minutes is None else began + 60 * minutes
    seeds = itertools.count(start) if count is None else range(start, start + count)
    tally = Tally(story)
    for result in run_seeds(seeds, jobs, deadline, story):
        tally.add(result)
        tally.wall_seconds = time.monotonic() - began
        if result.violation is not None:
            print(replay_line(result, story), flush=True)
        if tally.seeds % PROGRESS_SEEDS == 0:
            print(f"{tally.seeds} seeds, {tally.events} events, {tally.wall_seconds:.0f} s", flush=True)
            if record is not None:
                tally.save(record)
    print("\n".join(tally.lines()))
    if record is not None:
        tally.save(record)
    return 1 if tally.failed else 0


if __name__ == "__main__":
    sys.exit(main())

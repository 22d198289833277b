"""``python -m bench rounds``: what a round of replication and an idle partition cost in Python, without processes.

The core: three replicas of one Raft group, entries sealed, appended, replicated and committed, nothing around them.
The node: three shipped nodes step in one process; network and disk are memory. A round is a set of produce requests
that reach the leader at once: checked, appended, replicated to two followers, acknowledged by all three, answered. Its
cost is the CPU time of all three nodes' steps; what encoding and decoding of their frames takes is given beside it.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import platform
import shlex
import statistics
import time
from dataclasses import asdict, dataclass

from rich.console import Console
from rich.table import Table

from bench.core_trio import CoreTrio
from bench.node_trio import EPOCH_MS, NODES, Trio
from bench.options import add_json
from bench.printing import result_console
from quorumlog.v1 import data_plane_pb2 as wire
from quorumlog.wire.entry import Codec, build_batch

#: Entries in a round of the core.
CORE_ENTRIES = (1, 8, 64)
#: (groups in a round, entries of each).
SHAPES = ((1, 1), (1, 8), (1, 64), (10, 1), (10, 8), (100, 1), (100, 8))
PAYLOAD_BYTES = 100
REPETITIONS = 5
#: Entries written per repetition; bounds the memory of the three logs.
ENTRIES = 1_600
ROUNDS = (10, 200)
IDLE_S = 10.0
ACKS_ALL = -1


@dataclass(slots=True, frozen=True)
class RoundCost:
    """Medians over the repetitions; µs of CPU, all three nodes together.

    Arguments:
        groups, entries: how many groups a round had, and entries of each.
        round_us: a round's steps.
        codec_us: encoding and decoding its frames.
    """

    groups: int
    entries: int
    round_us: float
    codec_us: float

    @property
    def entry_us(self) -> float:
        """Steps, per entry."""
        return self.round_us / (self.groups * self.entries)


@dataclass(slots=True, frozen=True)
class IdleCost:
    """Cost of partitions to which nothing happens.

    Arguments:
        groups: partitions, each on all three nodes.
        cpu_percent: CPU time of the steps, in percent of the time that passed; per node.
        codec_percent: the same of encoding and decoding, all nodes together.
        steps_per_s: of all nodes.
    """

    groups: int
    cpu_percent: list[float]
    codec_percent: float
    steps_per_s: float


def core_costs(repetitions: int = REPETITIONS) -> dict[int, float]:
    """µs of CPU of a round in the core alone, by its number of entries."""
    costs: dict[int, float] = {}
    for entries in CORE_ENTRIES:
        trio = CoreTrio()
        rounds = ENTRIES // entries
        taken: list[float] = []
        _collect()
        for _ in range(repetitions + 1):
            began = time.thread_time()
            for _ in range(rounds):
                trio.round(PAYLOAD_BYTES, entries)
            taken.append((time.thread_time() - began) / rounds * 1e6)
        costs[entries] = statistics.median(taken[1:])
    return costs


def round_costs(shapes: tuple[tuple[int, int], ...] = SHAPES, repetitions: int = REPETITIONS) -> list[RoundCost]:
    """Measures every shape on a cluster of its own."""
    return [_round_cost(groups, entries, repetitions) for groups, entries in shapes]


def _round_cost(groups: int, entries: int, repetitions: int) -> RoundCost:
    # Leaders are spread over the nodes: with three times as many partitions, one node leads as many as are wanted.
    trio = Trio(groups * len(NODES))
    leader = NODES[0]
    partitions = trio.led_by(leader)[:groups]
    assert len(partitions) == groups
    batch = build_batch(
        bytes(PAYLOAD_BYTES), record_count=1, codec=Codec.NONE, base_timestamp_ms=EPOCH_MS, max_timestamp_ms=EPOCH_MS
    )
    request = wire.ProduceRequest(acks=ACKS_ALL, timeout_ms=30_000)
    for partition in partitions:
        request.batches.add(topic_id=trio.topic_id, partition=partition, batch=batch)
    requests = [request] * entries
    rounds = max(ROUNDS[0], min(ROUNDS[1], ENTRIES // (groups * entries)))
    steps_us: list[float] = []
    codec_us: list[float] = []
    _collect()
    for _ in range(repetitions + 1):
        steps, codec = sum(trio.step_seconds().values()), trio.codec_s
        for _ in range(rounds):
            for answer in trio.ask_all(leader, requests):
                assert isinstance(answer, wire.ProduceResponse)
                assert not any(result.HasField("error") for result in answer.results), answer
        steps_us.append((sum(trio.step_seconds().values()) - steps) / rounds * 1e6)
        codec_us.append((trio.codec_s - codec) / rounds * 1e6)
    # The first time fills caches and the producers' ways.
    return RoundCost(groups, entries, statistics.median(steps_us[1:]), statistics.median(codec_us[1:]))


def idle_cost(groups: int, seconds: float = IDLE_S) -> IdleCost:
    """Lets virtual time pass over partitions that have been led for some seconds."""
    trio = Trio(groups)
    trio.pass_time(5)
    _collect()
    before, codec, steps = trio.step_seconds(), trio.codec_s, trio.steps()
    trio.pass_time(seconds)
    used = [after - before[node] for node, after in trio.step_seconds().items()]
    return IdleCost(
        groups,
        [100 * one / seconds for one in used],
        100 * (trio.codec_s - codec) / seconds,
        (trio.steps() - steps) / seconds,
    )


def _collect() -> None:
    """As the shipped node after its start: what exists is not garbage, and later collections are spared it."""
    gc.collect()
    gc.freeze()


def main(arguments: list[str]) -> int:
    """Measures and reports; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m bench rounds", description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--repetitions", type=int, default=REPETITIONS, help="how often each shape is measured")
    parser.add_argument("--groups", type=int, default=1_000, help="idle partitions")
    add_json(parser)
    parsed = parser.parse_args(arguments)
    load = os.getloadavg()[0]
    core = core_costs(parsed.repetitions)
    costs = round_costs(repetitions=parsed.repetitions)
    idle = [idle_cost(groups) for groups in (0, parsed.groups)]
    show(result_console(), core, costs, idle)
    if parsed.json is not None:
        report = {
            "command": shlex.join(["python", "-m", "bench", "rounds", *arguments]),
            "finished_at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            "load_average": load,
            "machine": {"system": platform.platform(), "python": platform.python_version()},
            "core_round_us": core,
            "rounds": [{**asdict(cost), "entry_us": cost.entry_us} for cost in costs],
            "idle": [asdict(cost) for cost in idle],
        }
        parsed.json.parent.mkdir(parents=True, exist_ok=True)
        parsed.json.write_text(json.dumps(report, indent=2) + "\n")
    return 0


def show(console: Console, core: dict[int, float], costs: list[RoundCost], idle: list[IdleCost]) -> None:
    """Prints the tables."""
    alone = Table(title="CPU of a round in the core alone, three replicas together (µs)", title_justify="left")
    for column in ("entries", "per round", "per entry"):
        alone.add_column(column, justify="right")
    for entries, cost in core.items():
        alone.add_row(str(entries), f"{cost:.1f}", f"{cost / entries:.1f}")
    console.print(alone)
    rounds = Table(title="CPU of a round, three nodes together (µs)", title_justify="left")
    for column in ("groups", "entries each", "per round", "per group", "per entry", "frames' codec per round"):
        rounds.add_column(column, justify="right")
    for one in costs:
        figures = (one.round_us, one.round_us / one.groups, one.entry_us, one.codec_us)
        rounds.add_row(str(one.groups), str(one.entries), *(f"{figure:.1f}" for figure in figures))
    console.print(rounds)
    idling = Table(title="idle partitions, each on all three nodes", title_justify="left")
    for column in ("groups", "steps, % of a core per node", "codec, % of all nodes", "steps/s of all nodes"):
        idling.add_column(column, justify="right")
    for rest in idle:
        each = " / ".join(f"{percent:.2f}" for percent in rest.cpu_percent)
        idling.add_row(str(rest.groups), each, f"{rest.codec_percent:.2f}", f"{rest.steps_per_s:.0f}")
    console.print(idling)

"""``python -m bench peers``: the log store beside its peers, in alternating rounds of one run.

Produce, consume, one record at a time, the servers' processor time and memory, and the longest gap in acknowledgements
when the leader is killed. Three servers each, factor 3, acks of a majority at least. A peer that is not installed is
named in the report, with what to install.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import platform
import shlex
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from bench.options import add_json, add_work_dir
from bench.peers import kafka, nats, rabbitmq, spark_formats
from bench.peers.artifacts import fetch
from bench.peers.client_process import CLIENT_PACKAGES, client_versions
from bench.peers.loads import COUNTS, loads, size_name
from bench.peers.ours import OURS
from bench.peers.peer import Peer
from bench.peers.readings import PeerRow, Reading, markdown, rows_of, show
from bench.peers.turns import measure
from bench.printing import result_console
from quorumlog.local import ClusterError
from quorumlog.sdk.errors import QuorumlogError

PEERS = (OURS, *kafka.PEERS, *nats.PEERS, *rabbitmq.PEERS)
_SIZES = {size_name(size).replace(" ", ""): size for size in COUNTS}


def main(arguments: list[str]) -> int:
    """Measures and reports; returns the exit status."""
    parsed = _parser().parse_args(arguments)
    if parsed.fetch:
        return fetch([kafka.JARS, spark_formats.JARS])
    if parsed.spark:
        return spark_formats.main(parsed, shlex.join(["python", "-m", "bench", "peers", *arguments]))
    present, left_out = choose(PEERS, parsed.only or [])
    console = result_console()
    for name, why in left_out.items():
        console.print(f"{name} is left out: {why}", style="yellow")
    load_average = os.getloadavg()[0]
    every = loads(parsed.scale, tuple(_SIZES[size] for size in parsed.sizes))
    chosen = [load for load in every if parsed.loads in load.name]
    if not chosen:
        print(
            f"bench: error: --loads {parsed.loads!r} is in none of: {'; '.join(e.name for e in every)}", file=sys.stderr
        )
        return 2
    parsed.work_dir.mkdir(parents=True, exist_ok=True)
    try:
        readings, failures = measure(present, chosen, parsed.repetitions, parsed.work_dir, console.print)
    except (ClusterError, QuorumlogError) as problem:
        print(f"bench: error: {' '.join(str(problem).split())}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    rows = rows_of(readings)
    if parsed.markdown:
        print(markdown(rows))
    else:
        title = f"three servers each, medians of {parsed.repetitions}; load average before: {load_average:.1f}"
        show(console, title, rows)
    for line in settings(present):
        console.print(line)
    for name, why in left_out.items():
        console.print(f"{name} is left out: {why}", style="yellow")
    for failure in failures:
        print(f"bench: error: {failure}", file=sys.stderr)
    if parsed.json is not None:
        figures = {
            "command": shlex.join(["python", "-m", "bench", "peers", *arguments]),
            "load_average": load_average,
            "settings": settings(present),
            "left_out": left_out,
            "failures": failures,
        }
        _write_json(parsed.json, figures, rows, readings)
    return 1 if failures else 0


def choose(peers: Sequence[Peer], only: Sequence[str]) -> tuple[list[Peer], dict[str, str]]:
    """The peers that are measured, and why others are not, by name.

    Arguments:
        only: products that are asked for; all where it is empty. Our own is always measured.
    """
    present, left_out = [], {}
    for peer in peers:
        if only and peer.product not in only and peer is not OURS:
            continue
        missing = peer.missing()
        if missing:
            left_out[peer.name] = f"install {missing}"
        elif peer.reserved and not only:
            left_out[peer.name] = f"{peer.reserved}; --only {peer.product} measures it all the same"
        else:
            present.append(peer)
    return present, left_out


def settings(peers: list[Peer]) -> list[str]:
    """A line for each peer with its version and settings, and one for each side with what differs from defaults."""
    lines = []
    for peer in peers:
        lines.append(f"{peer.name} {peer.version()}: {peer.settings}")
        for side in peer.sides:
            set_ = [f"{name}={value}" for name, value in {**side.options, **side.configs}.items()]
            if set_:
                lines.append(f"  {side.name} ({side.kind.name.lower()}): {', '.join(set_)}")
    versions = ", ".join(f"{name} {version}" for name, version in client_versions().items() if name in CLIENT_PACKAGES)
    return [*lines, f"clients: {versions or 'ours alone'}; Python {platform.python_version()}"]


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m bench peers", description=__doc__)
    parser.add_argument("--repetitions", type=int, default=3, help="how often everything is measured (default 3)")
    parser.add_argument("--scale", type=float, default=1.0, help="multiplies the amounts of data")
    products = sorted({peer.product for peer in PEERS} - {OURS.product})
    parser.add_argument("--only", action="append", choices=products, help="only this peer beside ours; may be repeated")
    parser.add_argument(
        "--sizes", nargs="+", choices=list(_SIZES), default=list(_SIZES), help="only records of these sizes"
    )
    parser.add_argument("--loads", default="", help="only loads with this in their name, such as 'consume'")
    parser.add_argument("--markdown", action="store_true", help="print the table as Markdown")
    parser.add_argument("--fetch", action="store_true", help="only download the jars that peers need, with Maven")
    parser.add_argument("--spark", action="store_true", help="Spark's own Kafka format beside ours, and nothing else")
    add_json(parser)
    add_work_dir(parser)
    return parser


def _write_json(path: Path, figures: dict[str, object], rows: list[PeerRow], readings: list[Reading]) -> None:
    report = {
        **figures,
        "finished_at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "machine": {"system": platform.platform(), "python": platform.python_version()},
        "rows": [dataclasses.asdict(row) for row in rows],
        "readings": [dataclasses.asdict(reading) for reading in readings],
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(report, indent=2) + "\n")

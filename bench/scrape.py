"""``python -m bench scrape``: what it costs three nodes to be asked for their metrics.

1,000 partitions with a replica on every node, 100 consumer groups with committed offsets, records in every partition.
Each node is scraped again and again, and its processor time beside that of as long a time without is what a scrape
costs. One scrape in 15 s is what Prometheus does by default.
"""

from __future__ import annotations

import argparse
import dataclasses
import shlex
import statistics
import sys
import time
import urllib.request
from dataclasses import dataclass, field

from bench.options import add_json
from bench.printing import result_console
from bench.process_cost import cpu_seconds, watch
from bench.target_table import FigureLine, show, write_json
from quorumlog.local import ClusterError, LocalCluster
from quorumlog.local.ports import ReservedPorts
from quorumlog.sdk import Admin, NewTopic, Producer, TopicPartition
from quorumlog.sdk.errors import QuorumlogError

NODES = 3
TOPIC = "scraped"
#: Partitions of which each group has committed an offset.
COMMITTED = 10
#: Seconds between two scrapes of a node, as Prometheus has it.
INTERVAL_S = 15.0
SCRAPE_TARGET_S = 0.3
CORE_TARGET_PERCENT = 1.0
_WAIT_S = 60.0


@dataclass(slots=True)
class ScrapeFigures:
    """Figures of one run, per node in the order of the nodes.

    Arguments:
        seconds: of each scrape, as its client saw it.
        samples: lines that are not comments, of the last one.
        page_bytes: its size.
        cpu_s_per_scrape: processor time of the node beyond that of as long a time without.
    """

    partitions: int
    groups: int
    seconds: list[list[float]] = field(default_factory=list)
    samples: list[int] = field(default_factory=list)
    page_bytes: list[int] = field(default_factory=list)
    cpu_s_per_scrape: list[float] = field(default_factory=list)


def scrape(address: str) -> tuple[float, bytes]:
    """Seconds that a page of metrics takes, and the page."""
    began = time.monotonic()
    with urllib.request.urlopen(f"http://{address}/metrics", timeout=_WAIT_S) as answer:
        page: bytes = answer.read()
    return time.monotonic() - began, page


def fill(servers: str, partitions: int, groups: int) -> None:
    """Creates the topic, writes a record to each partition, and commits for each group."""
    with Admin(bootstrap_servers=servers) as admin, Producer(bootstrap_servers=servers) as producer:
        admin.create_topics([NewTopic(TOPIC, partitions, NODES)])
        for number in range(partitions):
            producer.send(TOPIC, b"record", partition=number)
        producer.flush()
        for group in range(groups):
            places = [(group * COMMITTED + each) % partitions for each in range(min(COMMITTED, partitions))]
            admin.alter_group_offsets(f"group-{group}", {TopicPartition(TOPIC, number): 1 for number in places})


def measure(cluster: LocalCluster, addresses: list[str], figures: ScrapeFigures, scrapes: int, idle_s: float) -> None:
    """Scrapes each node, and takes down what it cost."""
    pids = [pid for node in cluster.node_ids if (pid := cluster.pid(node)) is not None]
    for address, pid in zip(addresses, pids, strict=True):
        scrape(address)  # Objects that the first one makes exist afterwards.
        resting = watch([pid], idle_s).cpu_percent[0] / 100
        began, used = time.monotonic(), cpu_seconds(pid)
        taken = [scrape(address) for _ in range(scrapes)]
        took, used = time.monotonic() - began, cpu_seconds(pid) - used
        page = taken[-1][1]
        figures.seconds.append([seconds for seconds, _ in taken])
        figures.page_bytes.append(len(page))
        figures.samples.append(sum(not line.startswith(b"#") for line in page.splitlines()))
        figures.cpu_s_per_scrape.append((used - resting * took) / scrapes)


def lines_of(figures: ScrapeFigures) -> list[FigureLine]:
    """The table's lines."""
    medians = [statistics.median(each) for each in figures.seconds]
    worst = max(max(each) for each in figures.seconds)
    percent = [100 * each / INTERVAL_S for each in figures.cpu_s_per_scrape]
    return [
        FigureLine("samples of a node", " / ".join(map(str, figures.samples))),
        FigureLine("size of its page", " / ".join(f"{each / 1024:.0f} KiB" for each in figures.page_bytes)),
        FigureLine("a scrape, median", " / ".join(f"{each:.3f} s" for each in medians), max(medians), SCRAPE_TARGET_S),
        FigureLine("the longest", f"{worst:.3f} s"),
        FigureLine(
            f"a core, at one scrape in {INTERVAL_S:g} s",
            " / ".join(f"{each:.2f} %" for each in percent),
            max(percent),
            CORE_TARGET_PERCENT,
        ),
    ]


def main(arguments: list[str]) -> int:
    """Measures and reports; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m bench scrape", description=__doc__)
    parser.add_argument("--partitions", type=int, default=1_000, help="each on all three nodes")
    parser.add_argument("--groups", type=int, default=100, help="consumer groups with committed offsets")
    parser.add_argument("--scrapes", type=int, default=30, help="of each node")
    parser.add_argument("--idle", type=float, default=5.0, help="seconds for which a node is watched without any")
    add_json(parser)
    parsed = parser.parse_args(arguments)
    console = result_console()
    figures = ScrapeFigures(parsed.partitions, parsed.groups)
    reserved = ReservedPorts(NODES)
    addresses = [f"127.0.0.1:{port}" for port in reserved.ports]
    listening = {node: {"metrics_listen": address} for node, address in enumerate(addresses, start=1)}
    try:
        with LocalCluster(nodes=NODES, node_settings=listening) as cluster:
            fill(cluster.bootstrap_servers, parsed.partitions, parsed.groups)
            measure(cluster, addresses, figures, parsed.scrapes, parsed.idle)
    except (ClusterError, QuorumlogError, OSError) as problem:
        print(f"bench: error: {' '.join(str(problem).split())}", file=sys.stderr)
        return 1
    finally:
        reserved.close()
    lines = lines_of(figures)
    show(console, f"{parsed.partitions} partitions and {parsed.groups} groups on three nodes", lines)
    if parsed.json is not None:
        command = shlex.join(["python", "-m", "bench", "scrape", *arguments])
        write_json(parsed.json, {"command": command, **dataclasses.asdict(figures)}, lines)
    return 0

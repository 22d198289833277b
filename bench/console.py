"""``python -m bench console``: the costs of an open page of the web console, and its delay.

Three nodes with 1,000 partitions, each on all of them, and 100 consumer groups with committed offsets; a console, and
one page. The nodes' processor time with the page open is compared with that without, in turns. Then the node that leads
the first partition is killed, and the time until the page's stream reports the new leader, and the node that is down,
is measured. A browser renders the page if Chromium and Playwright are available.
"""

from __future__ import annotations

import argparse
import dataclasses
import gzip
import http.cookiejar
import json
import shlex
import shutil
import statistics
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import Any

from bench.options import add_json
from bench.printing import result_console
from bench.process_cost import memory_of, watch
from bench.scrape import NODES, TOPIC, fill
from bench.target_table import FigureLine, show, write_json
from quorumlog.console.assets import Assets
from quorumlog.local import ClusterError, LocalCluster
from quorumlog.sdk.errors import QuorumlogError

_WAIT_S = 60.0
_START_S = 30.0
#: The budgets, in the units of their lines.
NODE_PERCENT, CONSOLE_PERCENT, CONSOLE_MB = 1.0, 10.0, 150.0
LEADER_S, DOWN_S, PICTURE_S = 0.5, 0.5, 1.0
STATE_KB, ASSETS_KB = 16.0, 80.0


class ConsoleError(Exception):
    """Raised if an awaited event of the console did not happen; the message is one line."""


@dataclass(slots=True)
class ConsoleFigures:
    """Results of one run.

    Arguments:
        node_percent: per turn, the additional load of each node while a page is open, in percent of a core.
        console_percent: per turn, in percent of a core.
        state_bytes, packed_bytes: size of the whole state, as a page gets it first, and compressed.
        picture_s: time from the request until a browser has rendered the lines that it shows; None without a browser.
    """

    partitions: int
    groups: int
    node_percent: list[list[float]] = field(default_factory=list)
    console_percent: list[float] = field(default_factory=list)
    console_bytes: int = 0
    state_bytes: int = 0
    packed_bytes: int = 0
    assets_bytes: int = 0
    leader_s: float = 0.0
    down_s: float = 0.0
    picture_s: list[float] = field(default_factory=list)


class OpenPage:
    """A page as a browser has it open: its stream, and the received items.

    Arguments:
        url: the address that the console has printed.
    """

    def __init__(self, url: str) -> None:
        opener = urllib.request.build_opener(urllib.request.HTTPCookieProcessor(http.cookiejar.CookieJar()))
        opener.open(url, timeout=_WAIT_S).read()
        self._stream = opener.open(url.partition("/?")[0] + "/events", timeout=_WAIT_S)
        self._news = threading.Condition()
        self._ended = False
        self.things: dict[str, Any] = {}
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        for line in self._stream:
            if self._ended:
                return
            if line.startswith(b"data: "):
                self._take(line[6:])

    def _take(self, event: bytes) -> None:
        change = json.loads(event)
        with self._news:
            self.things.update(change["set"])
            for gone in change["gone"]:
                self.things.pop(gone, None)
            self._news.notify_all()

    def until(self, reached: Callable[[dict[str, Any]], bool], what: str) -> float:
        """Waits until the page has received something; returns the time.

        Raises:
            ConsoleError: it did not.
        """
        with self._news:
            if not self._news.wait_for(lambda: reached(self.things), _WAIT_S):
                raise ConsoleError(f"the page was not notified within {_WAIT_S:g} s: {what}")
            return time.monotonic()

    def close(self) -> None:
        """Closes the page. The console notices with its next message."""
        self._ended = True
        self._reader.join(_WAIT_S)
        self._stream.close()


@contextmanager
def running_console(servers: str) -> Iterator[tuple[str, int]]:
    """Runs ``quorumlog console`` as a process; yields its address and process id."""
    command = [sys.executable, "-m", "quorumlog.cli.main", "console", "-b", servers, "--output", "json"]
    with subprocess.Popen([*command, "--listen", "127.0.0.1:0"], stdout=subprocess.PIPE, text=True) as process:
        stopper = threading.Timer(_START_S, process.kill)
        stopper.start()
        try:
            assert process.stdout is not None
            said = ""
            while not said.endswith("}\n"):
                line = process.stdout.readline()
                if not line:
                    raise ConsoleError("the console exited before it served")
                said += line
            stopper.cancel()
            yield json.loads(said)["url"], process.pid
        finally:
            stopper.cancel()
            process.kill()


def watch_turns(
    cluster: LocalCluster, url: str, console: int, figures: ConsoleFigures, turns: int, look_s: float
) -> None:
    """Measures the load of nodes and console, without a page and with one, in turns."""
    pids = [pid for node in cluster.node_ids if (pid := cluster.pid(node)) is not None]
    watch(pids, look_s / 2)  # Until new objects are asleep.
    for _ in range(turns):
        without = watch([*pids, console], look_s).cpu_percent
        page = OpenPage(url)
        page.until(lambda things: len(things) > figures.partitions, "all partitions")
        # The state that the next page gets immediately.
        state = json.dumps({"set": page.things}).encode()
        figures.state_bytes, figures.packed_bytes = len(state), len(gzip.compress(state))
        watch(pids, look_s / 4)
        during = watch([*pids, console], look_s).cpu_percent
        figures.node_percent.append([more - less for more, less in zip(during[:-1], without[:-1], strict=True)])
        figures.console_percent.append(during[-1])
        figures.console_bytes = max(figures.console_bytes, memory_of(console).resident * 1024)
        page.close()


def kill_a_leader(cluster: LocalCluster, url: str, figures: ConsoleFigures) -> None:
    """Measures the delay of the page."""
    page, first = OpenPage(url), f"partition/{TOPIC}/0"
    page.until(lambda things: things.get(first, {}).get("leader") is not None, "a leader")
    page.until(
        lambda things: all(things.get(f"node/{node}", {}).get("state") == "up" for node in cluster.node_ids), "up"
    )
    victim = page.things[first]["leader"]
    killed_s = time.monotonic()
    cluster.kill(victim)
    down: list[float] = []
    watcher = threading.Thread(
        target=lambda: down.append(
            page.until(lambda things: things[f"node/{victim}"]["state"] == "down", "a node is down")
        )
    )
    watcher.start()
    figures.leader_s = (
        page.until(lambda things: things[first]["leader"] not in (None, victim), "a new leader") - killed_s
    )
    watcher.join()
    if not down:
        raise ConsoleError(f"node {victim} was never shown as down")
    figures.down_s = down[0] - killed_s
    page.close()


def draw(url: str, chromium: str, times: int) -> list[float]:
    """Returns the seconds until Chromium has rendered the lines of the first view, for each time that the page is
    opened.
    """
    from playwright.sync_api import sync_playwright

    taken = []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        page = browser.new_page()
        page.goto(url)
        page.locator("[data-partition]").nth(63).wait_for(timeout=_WAIT_S * 1000)
        for _ in range(times):
            began_s = time.monotonic()
            page.reload(wait_until="commit")
            page.locator("[data-partition]").nth(63).wait_for(timeout=_WAIT_S * 1000)
            taken.append(time.monotonic() - began_s)
        browser.close()
    return taken


def lines_of(figures: ConsoleFigures) -> list[FigureLine]:
    """Returns the lines of the table."""
    nodes = [statistics.median(turn[place] for turn in figures.node_percent) for place in range(NODES)]
    spread = [more for turn in figures.node_percent for more in turn]
    console = statistics.median(figures.console_percent)
    memory, packed = figures.console_bytes / 1e6, figures.packed_bytes / 1e3
    picture = statistics.median(figures.picture_s) if figures.picture_s else None
    return [
        FigureLine(
            "a node, with a page open, % of a core more",
            f"{' / '.join(f'{each:+.1f}' for each in nodes)} ({min(spread):+.1f} to {max(spread):+.1f})",
            max(nodes),
            NODE_PERCENT,
        ),
        FigureLine("the console, % of a core", f"{console:.1f}", console, CONSOLE_PERCENT),
        FigureLine("the console's memory, MB", f"{memory:.0f}", memory, CONSOLE_MB),
        FigureLine(
            "the whole state, compressed, KB", f"{packed:.1f} of {figures.state_bytes / 1e3:.0f}", packed, STATE_KB
        ),
        FigureLine(
            "all files of the page, compressed, KB",
            f"{figures.assets_bytes / 1e3:.1f}",
            figures.assets_bytes / 1e3,
            ASSETS_KB,
        ),
        FigureLine("a new leader is shown, s", f"{figures.leader_s:.2f}", figures.leader_s, LEADER_S),
        FigureLine("a dead node is shown, s", f"{figures.down_s:.2f}", figures.down_s, DOWN_S),
        FigureLine("the first view, s", "no browser" if picture is None else f"{picture:.2f}", picture, PICTURE_S),
    ]


def main(arguments: list[str]) -> int:
    """Measures and reports; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m bench console", description=__doc__)
    parser.add_argument("--partitions", type=int, default=1_000, help="each on all three nodes; 64 at least")
    parser.add_argument("--groups", type=int, default=100, help="number of consumer groups with committed offsets")
    parser.add_argument("--turns", type=int, default=5, help="number of turns without and with a page")
    parser.add_argument("--look", type=float, default=10.0, help="duration of each in seconds")
    add_json(parser)
    parsed = parser.parse_args(arguments)
    chromium = shutil.which("chromium") if find_spec("playwright") is not None else None
    figures = ConsoleFigures(parsed.partitions, parsed.groups, assets_bytes=Assets().compressed_bytes)
    try:
        with ExitStack() as running:
            cluster = running.enter_context(LocalCluster(nodes=NODES))
            fill(cluster.bootstrap_servers, parsed.partitions, parsed.groups)
            url, console = running.enter_context(running_console(cluster.bootstrap_servers))
            watch_turns(cluster, url, console, figures, parsed.turns, parsed.look)
            if chromium is not None:
                figures.picture_s = draw(url, chromium, parsed.turns)
            kill_a_leader(cluster, url, figures)
    except (ClusterError, ConsoleError, QuorumlogError, OSError) as problem:
        print(f"bench: error: {' '.join(str(problem).split())}", file=sys.stderr)
        return 1
    lines = lines_of(figures)
    show(
        result_console(),
        f"a console on {parsed.partitions} partitions and {parsed.groups} groups on three nodes",
        lines,
    )
    if parsed.json is not None:
        command = shlex.join(["python", "-m", "bench", "console", *arguments])
        write_json(parsed.json, {"command": command, **dataclasses.asdict(figures)}, lines)
    return 0

"""Cost of an open page to a cluster of 1,000 partitions and to the console: budgets, on real processes."""

from __future__ import annotations

import http.cookiejar
import json
import threading
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from browsing import running_console

from bench.process_cost import watch
from quorumlog.local import LocalCluster
from quorumlog.sdk import Admin, NewTopic

pytestmark = [pytest.mark.cluster, pytest.mark.alone, pytest.mark.timeout(300)]

PARTITIONS, TOPICS = 1_000, 5
LOOK_S = 3.0
#: What nodes do now and then may fall into one look. What a page costs is seen in each.
LOOKS = 3
#: Of a core. Metadata are to cost 1, and the ends of 64 partitions 1 more; ticks of the kernel's clock are counted.
NODE_PERCENT, CONSOLE_PERCENT = 4.0, 10.0
CONSOLE_MB = 150


@contextmanager
def open_page(url: str) -> Iterator[list[dict[str, object]]]:
    """A page as a browser has it open; what it is sent."""
    opener = urllib.request.build_opener(urllib.request.HTTPCookieProcessor(http.cookiejar.CookieJar()))
    opener.open(url, timeout=30).read()
    stream = opener.open(url.partition("/?")[0] + "/events", timeout=30)
    sent: list[dict[str, object]] = []
    first = threading.Event()

    closed = threading.Event()

    def read() -> None:
        while not closed.is_set() and (line := stream.readline()):
            if line.startswith(b"data: "):
                sent.append(json.loads(line[6:]))
                first.set()

    reader = threading.Thread(target=read)
    reader.start()
    try:
        assert first.wait(30)
        yield sent
    finally:
        closed.set()
        reader.join(30)  # Something is said ten times in a minute at least.
        stream.close()


def test_an_open_page_is_within_its_budgets() -> None:
    with (
        LocalCluster(nodes=3) as cluster,
        # A thousand partitions take their time on a busy machine.
        Admin(bootstrap_servers=cluster.bootstrap_servers, request_timeout_ms=120_000) as admin,
    ):
        for number in range(TOPICS):
            admin.create_topics([NewTopic(f"wide-{number}", PARTITIONS // TOPICS, 3)])
        pids = [pid for node in cluster.node_ids if (pid := cluster.pid(node)) is not None]
        with running_console(cluster.bootstrap_servers) as url:
            for _ in range(LOOKS):
                watch(pids, LOOK_S / 2)  # Until all leaders are known, and what was new is asleep.
                before = watch(pids, LOOK_S).cpu_percent
                with open_page(url) as sent:
                    watch(pids, LOOK_S / 2)
                    during = watch(pids, LOOK_S).cpu_percent
                    [load] = [each["set"]["console"] for each in sent if "console" in each.get("set", {})][-1:]
                more = [with_page - without for with_page, without in zip(during, before, strict=True)]
                print(f"nodes: {before} without a page, {during} with one; the console: {load}")
                if max(more) < NODE_PERCENT:
                    break
        assert max(more) < NODE_PERCENT
        assert load["cpu_percent"] <= CONSOLE_PERCENT
        assert load["memory_mb"] <= CONSOLE_MB

"""The test that the console is for: a leader is killed, and the page shows the new leader while no record is lost."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from browsing import PICTURES, SteadyProducer, chromium, looking, needs_chromium, running_console
from playwright.sync_api import Page, expect

from quorumlog.local import LocalCluster
from quorumlog.sdk import Admin, Consumer, NewTopic, TopicPartition

pytestmark = [pytest.mark.browser, pytest.mark.cluster, pytest.mark.alone, pytest.mark.timeout(400), needs_chromium]

TOPICS = {"clicks": 3, "orders": 6, "payments": 4}
#: Within which the page shows what has happened.
SHOWN_WITHIN_S = 2.0
PATIENCE_MS = 60_000
OF_THE_README = Path(__file__).resolve().parent.parent.parent / "docs" / "images" / "console.png"


@contextmanager
def reading(cluster: LocalCluster, topics: list[str], group: str, pause_s: float) -> Iterator[None]:
    """A consumer of a group that takes its time, so that there is a lag to see."""
    stopped = threading.Event()

    def read() -> None:
        options = {"bootstrap_servers": cluster.bootstrap_servers, "group_id": group, "client_id": f"{group}-app"}
        with Consumer(*topics, **options, auto_offset_reset="earliest") as consumer:  # type: ignore[arg-type]
            while not stopped.wait(pause_s):
                consumer.poll(timeout_ms=200, max_records=40)

    thread = threading.Thread(target=read)
    thread.start()
    try:
        yield
    finally:
        stopped.set()
        thread.join(60)


def seconds_until(page: Page, since_s: float, selector: str, name: str, value: re.Pattern[str]) -> float:
    """Returns the seconds from ``since_s`` until an attribute has a value."""
    expect(page.locator(selector)).to_have_attribute(name, value, timeout=PATIENCE_MS)
    return time.monotonic() - since_s


def draw(page: Page, name: str) -> None:
    """Writes what is seen, light and dark."""
    PICTURES.mkdir(parents=True, exist_ok=True)
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]
        page.screenshot(path=PICTURES / f"{name}-{scheme}.png", full_page=True)
    page.emulate_media(color_scheme="light")
    if name == "killed" and os.environ.get("RETAKE_PICTURES"):
        # The one of the README; python tools/pictures.py takes the others.
        shutil.copy(PICTURES / "killed-light.png", OF_THE_README)
        if shutil.which("pngquant"):
            subprocess.run(["pngquant", "--force", "--ext", ".png", "--speed", "1", "64", OF_THE_README], check=True)


def test_a_killed_leader_is_shown_within_two_seconds_and_no_row_is_lost() -> None:
    with LocalCluster(nodes=3) as cluster, Admin(bootstrap_servers=cluster.bootstrap_servers) as admin:
        admin.create_topics([NewTopic(name, count, 3) for name, count in TOPICS.items()])
        with (
            SteadyProducer(cluster.bootstrap_servers, "orders") as orders,
            SteadyProducer(cluster.bootstrap_servers, "payments", 40),
            reading(cluster, ["orders"], "billing", 0.01),
            reading(cluster, ["orders", "payments"], "fraud", 0.4),
            running_console(cluster.bootstrap_servers) as url,
            chromium() as browser,
            looking(browser, url) as look,
        ):
            page, rows = look.page, sum(TOPICS.values())
            expect(page.locator("[data-partition]")).to_have_count(rows, timeout=PATIENCE_MS)
            opened_s = time.monotonic()
            page.reload(wait_until="commit")
            expect(page.locator("[data-partition]")).to_have_count(rows, timeout=PATIENCE_MS)
            drawn_s = time.monotonic() - opened_s
            print(f"opened again: everything is drawn in {drawn_s:.2f} s")
            assert drawn_s < SHOWN_WITHIN_S
            expect(page.locator("[data-group=fraud]")).to_be_visible(timeout=PATIENCE_MS)
            expect(page.locator("[data-node][data-state=up]")).to_have_count(3, timeout=PATIENCE_MS)
            first = "[data-partition=orders-0]"
            expect(page.locator(first)).to_have_attribute("data-leader", re.compile("[123]"), timeout=PATIENCE_MS)
            victim = int(page.locator(first).get_attribute("data-leader") or "")
            survivors = re.compile(f"^[{'123'.replace(str(victim), '')}]$")
            expect(page.locator(".spark").nth(5)).to_be_visible(timeout=PATIENCE_MS)
            draw(page, "whole")

            killed_s = time.monotonic()
            cluster.kill(victim)
            shown_s = seconds_until(page, killed_s, first, "data-leader", survivors)
            down_s = seconds_until(page, killed_s, f"[data-node='{victim}']", "data-state", re.compile("down"))
            print(f"after the kill: new leader on the page in {shown_s:.2f} s, node down in {down_s:.2f} s")
            assert shown_s < SHOWN_WITHIN_S and down_s < SHOWN_WITHIN_S
            expect(page.locator("[data-partition]")).to_have_count(rows)
            expect(page.locator(".happenings")).to_contain_text(f"node {victim} is down")
            expect(page.locator(f"[data-leader='{victim}']")).to_have_count(0, timeout=PATIENCE_MS)
            expect(page.locator(f"[data-behind='{victim}']")).to_have_count(rows, timeout=PATIENCE_MS)
            page.wait_for_timeout(700)  # Until what glides has arrived: for the picture only.
            draw(page, "killed")

            cluster.start(victim)
            back = page.locator(f"[data-node='{victim}']")
            expect(back).to_have_attribute("data-state", "up", timeout=PATIENCE_MS)
            expect(page.locator("[data-behind='']")).to_have_count(rows, timeout=PATIENCE_MS)
            expect(page.locator("[data-partition]")).to_have_count(rows)
            expect(page.locator(".health")).to_have_text("all well", timeout=PATIENCE_MS)
            orders.stop()
            assert (look.said, look.strangers()) == ([], [])
        assert not orders.failed and orders.acknowledged
        assert orders.acknowledged - everything_in(cluster, "orders") == set()


def everything_in(cluster: LocalCluster, topic: str) -> set[bytes]:
    """The values of all records of a topic."""
    partitions = [TopicPartition(topic, number) for number in range(TOPICS[topic])]
    values: set[bytes] = set()
    with Consumer(bootstrap_servers=cluster.bootstrap_servers) as consumer:
        consumer.assign(partitions)
        consumer.seek_to_beginning(*partitions)
        ends = consumer.end_offsets(partitions)
        deadline = time.monotonic() + 60
        while any(consumer.position(tp) < end for tp, end in ends.items()):
            assert time.monotonic() < deadline, "it cannot be read to its end"
            for records in consumer.poll(timeout_ms=500, max_records=5_000).values():
                values.update(record.value for record in records)
    return values

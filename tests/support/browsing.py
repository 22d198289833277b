"""A console beside real nodes, and Chromium that looks at it."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, BrowserContext, Page, expect, sync_playwright

from quorumlog.sdk import Producer, QuorumlogError

CHROMIUM = shutil.which("chromium")
#: Where tests put what they have seen.
PICTURES = Path(__file__).resolve().parent.parent.parent / "build" / "console"
START_S = 60
#: Until the page shows what is expected of it.
SHOWN_MS = 30_000
#: Which of axe's rules a page has to keep: WCAG 2.2, A and AA.
RULES = {"runOnly": {"type": "tag", "values": ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa"]}}

#: For test modules: they are skipped, with the reason, where there is no browser.
needs_chromium = pytest.mark.skipif(
    CHROMIUM is None, reason="needs Chromium: as root, apt-get install --no-install-recommends chromium"
)


@contextmanager
def running_console(bootstrap_servers: str, *options: str) -> Iterator[str]:
    """``quorumlog console``, as a process; its address, with the token. It has ended well when the block has."""
    command = [sys.executable, "-m", "quorumlog.cli.main", "console", "-b", bootstrap_servers, "--output", "json"]
    process = subprocess.Popen(
        [*command, "--listen", "127.0.0.1:0", *options], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    stopper = threading.Timer(START_S, process.kill)
    stopper.start()
    try:
        assert process.stdout is not None and process.stderr is not None
        said = ""
        while not said.endswith("}\n"):
            line = process.stdout.readline()
            assert line, f"the console ended: {process.stderr.read()}"
            said += line
        stopper.cancel()
        yield json.loads(said)["url"]
        process.send_signal(signal.SIGTERM)
        _, complaint = process.communicate(timeout=START_S)
        # Its clients warn while no majority is up.
        complaints = [line for line in complaint.splitlines() if not line.startswith("quorumlog: warning: ")]
        assert (process.returncode, complaints) == (0, [])
    finally:
        stopper.cancel()
        process.kill()
        process.wait()


@contextmanager
def chromium() -> Iterator[Browser]:
    """The browser of the machine. (As root it runs only without its sandbox.)"""
    expect.set_options(timeout=SHOWN_MS)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        browser.close()


@dataclass
class Look:
    """A page of the console, and all that it said and asked for.

    Attributes:
        origin: of the console, without a slash.
        said: messages of the browser's console, errors and dialogs.
        asked: addresses of all requests.
    """

    page: Page
    origin: str
    context: BrowserContext
    said: list[str] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)

    def at(self, address: str) -> Page:
        """Goes to an address of the console."""
        self.page.goto(self.origin + address)
        return self.page

    def strangers(self) -> list[str]:
        """Requests that left the origin."""
        return [url for url in self.asked if not url.startswith((self.origin, "data:"))]


@contextmanager
def looking(browser: Browser, url: str, **options: Any) -> Iterator[Look]:
    """Opens the printed address in a browser of its own.

    Arguments:
        options: of Playwright's ``new_context``.
    """
    context = browser.new_context(**{"viewport": {"width": 1360, "height": 900}, **options})
    look = Look(context.new_page(), url.partition("/?")[0], context)
    look.page.on("console", lambda message: look.said.append(f"{message.type}: {message.text}"))
    look.page.on("pageerror", lambda error: look.said.append(f"error: {error}"))
    look.page.on("request", lambda request: look.asked.append(request.url))

    def refuse(dialog: Any) -> None:
        look.said.append(f"dialog: {dialog.message}")
        dialog.dismiss()

    look.page.on("dialog", refuse)
    look.page.goto(url)
    try:
        yield look
    finally:
        context.close()


def broken_rules(page: Page, what: str, *schemes: str) -> list[str]:
    """Rules of accessibility that a page breaks, light and dark unless a scheme is named. Its context has
    ``bypass_csp``."""
    broken = []
    for scheme in schemes or ("light", "dark"):
        page.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]
        found = Axe().run(page, options=RULES)
        broken += [
            f"{what}, {scheme}: {each['id']}: {each['nodes'][0]['html'][:160]}" for each in found.response["violations"]
        ]
    return broken


class SteadyProducer:
    """Sends numbered records to a topic from a thread, and keeps which were acknowledged.

    Arguments:
        per_second: about.
    """

    def __init__(self, bootstrap_servers: str, topic: str, per_second: int = 100) -> None:
        self._servers, self._topic, self._pause_s = bootstrap_servers, topic, 1 / per_second
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._send)
        self.acknowledged: set[bytes] = set()
        self.failed: list[QuorumlogError] = []

    def _send(self) -> None:
        with Producer(bootstrap_servers=self._servers, acks="all", linger_ms=5) as producer:
            sent = []
            while not self._stopped.wait(self._pause_s):
                value = f"record-{len(sent)}".encode()
                sent.append((value, producer.send(self._topic, value=value, key=str(len(sent) % 97).encode())))
            for value, future in sent:
                try:
                    future.result(timeout=60)
                    self.acknowledged.add(value)
                except QuorumlogError as error:
                    self.failed.append(error)

    def __enter__(self) -> SteadyProducer:
        self._thread.start()
        return self

    def stop(self) -> None:
        """Sends no more, and returns once all that was sent is settled."""
        self._stopped.set()
        self._thread.join(90)
        assert not self._thread.is_alive()

    def __exit__(self, *_: object) -> None:
        self._stopped.set()
        self._thread.join(90)

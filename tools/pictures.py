"""Takes the pictures of the documentation: ``python tools/pictures.py`` (``docs/images/``).

A console with a playground, in Chromium; each picture is made small by ``pngquant`` where that is installed. The same
in dark is in ``build/console``. Look at all of them before they are committed. ``--transactions`` takes only the one of
transactions. ``docs/images/console.png`` is taken by a test: ``RETAKE_PICTURES=1 pytest
tests/console/test_console_kill.py``.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from playwright.sync_api import Locator, Page, expect, sync_playwright

from quorumlog.sdk import Producer, TransactionAbortedError

ROOT = Path(__file__).resolve().parent.parent
IMAGES, LOOKED_AT = ROOT / "docs" / "images", ROOT / "build" / "console"
PATIENCE_MS = 90_000
#: Of the page, and the height after which it is cut.
WIDTH, HEIGHT, TALLEST = 1180, 760, 1400
#: How long a record takes until it is acknowledged on an otherwise idle machine.
USUAL_MS = 25
#: Around a part of the page.
MARGIN = 16
#: Pictures that are kept in dark, too.
IN_DARK = ("topology",)
#: Transactional ids and their timeouts (ms).
OPEN = {"refunds-0": 60_000, "billing-0": 600_000}


@contextmanager
def playground() -> Iterator[str]:
    """A console on a cluster of its own with life in it; its address, with the token."""
    command = [sys.executable, "-m", "quorumlog.cli.main", "console", "--playground", "--allow-changes"]
    command += ["--output", "json", "--listen", "127.0.0.1:0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        said = ""
        while not said.endswith("}\n"):
            said += process.stdout.readline()
        try:
            yield json.loads(said)["url"]
        finally:
            process.send_signal(signal.SIGTERM)


def shrink(path: Path) -> None:
    """Fewer colours: a quarter of the bytes."""
    if shutil.which("pngquant"):
        subprocess.run(["pngquant", "--force", "--ext", ".png", "--speed", "1", "64", str(path)], check=True)
    print(f"{path.relative_to(ROOT)}: {path.stat().st_size // 1024} KiB")


class Camera:
    """A page of the console, and pictures of it."""

    def __init__(self, page: Page, url: str) -> None:
        self.page = page
        self._origin = url.partition("/?")[0]
        page.goto(url)

    def at(self, address: str) -> None:
        """Goes to an address."""
        self.page.goto(self._origin + address)

    def take(self, name: str, *, until: str = "body", most: int = TALLEST) -> None:
        """Writes what is seen, light and dark.

        Arguments:
            until: selects the last part that must be visible.
            most: how high the picture may be.
        """
        self.page.set_viewport_size({"width": WIDTH, "height": HEIGHT})
        for scheme in ("light", "dark"):
            self.page.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]
            self.page.wait_for_timeout(700)  # Until what glides has arrived.
            box = self.page.locator(until).first.bounding_box()
            assert box is not None, f"there is no {until}"
            seen = {"x": 0, "y": 0, "width": WIDTH, "height": min(most, box["y"] + box["height"] + 22)}
            kept = scheme == "light" or name in IN_DARK
            path = (IMAGES if kept else LOOKED_AT) / f"{name}{'-dark' * (scheme == 'dark')}.png"
            self.page.screenshot(path=path, full_page=True, clip=seen)  # type: ignore[arg-type]
            shrink(path)
        self.page.emulate_media(color_scheme="light")

    def take_part(self, name: str, part: Locator) -> None:
        """Writes a part of what is seen, light and dark."""
        for scheme, folder in (("light", IMAGES), ("dark", LOOKED_AT)):
            self.page.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]
            self.page.wait_for_timeout(700)
            self.page.evaluate("window.scrollTo(0, 0)")
            self.page.mouse.move(0, 0)  # What the mouse is on has another colour.
            box = part.bounding_box()
            assert box is not None, f"there is no {name}"
            seen = {"x": box["x"] - MARGIN, "y": box["y"] - MARGIN}
            seen |= {"width": box["width"] + 2 * MARGIN, "height": box["height"] + 2 * MARGIN}
            path = folder / f"{name}.png"
            self.page.screenshot(path=path, full_page=True, clip=seen)  # type: ignore[arg-type]
            shrink(path)
        self.page.emulate_media(color_scheme="light")

    def press(self, name: str) -> None:
        """Presses a button."""
        self.page.get_by_role("button", name=name).click(timeout=PATIENCE_MS)

    def press_link(self, name: str) -> None:
        """Follows a link."""
        self.page.get_by_role("link", name=name).click(timeout=PATIENCE_MS)

    def is_well(self) -> None:
        """Waits until everything is led and in sync."""
        expect(self.page.locator(".health")).to_have_text("all well", timeout=PATIENCE_MS)


def take_all(camera: Camera) -> None:
    """All pictures, in the order of what happens."""
    page = camera.page
    expect(page.locator("[data-partition]")).to_have_count(13, timeout=PATIENCE_MS)
    expect(page.locator("[data-group=fraud]")).to_be_visible(timeout=PATIENCE_MS)
    camera.is_well()
    page.wait_for_timeout(50_000)  # Until lines of the last minute are whole.
    camera.take("topology", until=".frame")
    camera.press_link("A leader dies")
    leader = page.locator("[data-partition=orders-0]").get_attribute("data-leader") or ""
    led = page.locator(f"[data-leader='{leader}']").count()
    camera.press(f"Kill node {leader}")
    expect(page.locator(f"[data-leader='{leader}']")).to_have_count(0, timeout=PATIENCE_MS)
    expect(page.locator(f"[data-behind='{leader}']")).to_have_count(13, timeout=PATIENCE_MS)
    camera.take("a-node-dies", until=".happenings")
    camera.press("Read everything back")
    expect(page.locator(".verdict")).to_contain_text("are there", timeout=PATIENCE_MS)
    camera.press(f"Start node {leader}")
    camera.is_well()
    expect(page.locator(".shows")).to_be_visible(timeout=PATIENCE_MS)
    camera.take("playground", until=".playground")
    camera.press_link("Leave")
    # It leads again what it led before.
    expect(page.locator(f"[data-leader='{leader}']")).to_have_count(led, timeout=PATIENCE_MS)
    camera.is_well()
    camera.take("it-is-back")
    camera.at("/topics/orders")
    expect(page.locator("tbody tr").first).to_be_visible(timeout=PATIENCE_MS)
    page.wait_for_timeout(2_000)
    camera.take("topic", most=HEIGHT)
    page.get_by_text("Send a record").click()
    page.locator(".send").get_by_label("Value").fill("3 apples")
    for sent in range(12):  # The first one waits for the producer to be known, too; on a busy machine others wait, too.
        camera.press("Send and explain")
        expect(page.locator(".send .outcome")).to_contain_text("Acknowledged", timeout=PATIENCE_MS)
        took = re.search(r"after ([\d.]+) ms", page.locator(".way").inner_text())
        if sent >= 2 and took is not None and float(took[1]) < USUAL_MS:
            break
    expect(page.locator(".way .decided")).to_be_visible(timeout=PATIENCE_MS)
    camera.take_part("way", page.locator(".way"))
    camera.at("/topics/orders/0/10")
    expect(page.locator("[data-part=value]")).to_be_visible(timeout=PATIENCE_MS)
    camera.take("record", until=".record")
    camera.at("/groups/fraud")
    expect(page.locator(".lagbar").first).to_be_visible(timeout=PATIENCE_MS)
    page.wait_for_timeout(3_000)
    camera.take("group", until=".change")


def take_transactions(camera: Camera) -> None:
    """Open transactions, one of them near its timeout."""
    page = camera.page
    camera.at("/nodes")
    camera.is_well()
    servers = page.locator("[data-row='1'] td").first.inner_text(timeout=PATIENCE_MS)
    with contextlib.ExitStack() as opened:
        for number, (name, timeout_ms) in enumerate(OPEN.items()):
            producer = Producer(bootstrap_servers=servers, transactional_id=name, transaction_timeout_ms=timeout_ms)
            opened.enter_context(producer)
            opened.enter_context(contextlib.suppress(TransactionAbortedError))
            transaction = opened.enter_context(producer.transaction())
            for topic in ("orders", "payments")[number:]:
                for partition in range(1 + number, 3 + number):
                    transaction.send(topic, b"3 apples", partition=partition)
            producer.flush()
        camera.at("/transactions")
        expect(page.locator(".trouble")).to_be_visible(timeout=PATIENCE_MS)
        camera.is_well()
        camera.take("transactions", until=".table + .table")


def main() -> int:
    """Takes them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--transactions", action="store_true", help="Take only the picture of transactions.")
    wanted = parser.parse_args()
    chromium = shutil.which("chromium")
    if chromium is None:
        print("tools/pictures.py: error: it needs Chromium", file=sys.stderr)
        return 1
    for folder in (IMAGES, LOOKED_AT):
        folder.mkdir(parents=True, exist_ok=True)
    with playground() as url, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        context = browser.new_context(viewport={"width": WIDTH, "height": HEIGHT})
        camera = Camera(context.new_page(), url)
        if not wanted.transactions:
            take_all(camera)
        take_transactions(camera)
        browser.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())

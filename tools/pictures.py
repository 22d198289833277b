"""Takes the pictures of the documentation: ``python tools/pictures.py`` (``docs/images/``).

A console with a playground, in Chromium; each picture is made small by ``pngquant`` where that is installed. Look at
them before they are committed.
"""

from __future__ import annotations

import argparse
import json
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from playwright.sync_api import Locator, Page, expect, sync_playwright

IMAGES = Path(__file__).resolve().parent.parent / "docs" / "images"
PATIENCE_MS = 90_000
WIDTH, HEIGHT, TALL = 1180, 760, 1160


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


class Camera:
    """A page of the console, and pictures of it."""

    def __init__(self, page: Page, url: str) -> None:
        self.page = page
        self._origin = url.partition("/?")[0]
        page.goto(url)

    def at(self, address: str) -> None:
        """Goes to an address."""
        self.page.goto(self._origin + address)

    def take(self, name: str, part: Locator | None = None, *, dark: bool = False) -> None:
        """Writes what is seen, or a part of it."""
        self.page.emulate_media(color_scheme="dark" if dark else "light")
        self.page.wait_for_timeout(700)  # Until what glides has arrived.
        path = IMAGES / f"{name}.png"
        if part is None:
            self.page.screenshot(path=path)
        else:
            part.screenshot(path=path)
        if shutil.which("pngquant"):
            subprocess.run(["pngquant", "--force", "--ext", ".png", "--speed", "1", "48", str(path)], check=True)
        print(f"{path.name}: {path.stat().st_size // 1024} KiB")

    def press(self, name: str) -> None:
        """Presses a button."""
        self.page.get_by_role("button", name=name).click(timeout=PATIENCE_MS)

    def is_well(self) -> None:
        """Waits until everything is led and in sync."""
        expect(self.page.locator(".health")).to_have_text("all well", timeout=PATIENCE_MS)


def take_all(camera: Camera) -> None:
    """All pictures, in the order of what happens."""
    page = camera.page
    expect(page.locator("[data-partition]")).to_have_count(13, timeout=PATIENCE_MS)
    expect(page.locator("[data-group=fraud]")).to_be_visible(timeout=PATIENCE_MS)
    camera.is_well()
    page.set_viewport_size({"width": WIDTH, "height": TALL})
    page.wait_for_timeout(20_000)  # Until there is something to see of rates and lag.
    camera.take("topology")
    camera.take("topology-dark", dark=True)
    leader = page.locator("[data-partition=orders-0]").get_attribute("data-leader") or ""
    camera.press(f"Kill node {leader}")
    expect(page.locator(f"[data-leader='{leader}']")).to_have_count(0, timeout=PATIENCE_MS)
    expect(page.locator(f"[data-node='{leader}']")).to_have_attribute("data-state", "down", timeout=PATIENCE_MS)
    camera.take("a-node-dies")
    camera.press(f"Start node {leader}")
    camera.is_well()
    camera.take("it-is-back")
    camera.press("Read everything back")
    expect(page.locator(".verdict")).to_contain_text("are there", timeout=PATIENCE_MS)
    page.set_viewport_size({"width": WIDTH, "height": HEIGHT})
    camera.take("playground")
    camera.at("/topics/orders")
    expect(page.locator("tbody tr").first).to_be_visible(timeout=PATIENCE_MS)
    page.wait_for_timeout(2_000)
    camera.take("topic")
    page.get_by_text("Send a record").click()
    page.get_by_label("Value").fill("3 apples")
    for _ in range(2):  # The first one waits for the producer to be known, too.
        camera.press("Send and explain")
    expect(page.locator(".way .decided")).to_be_visible(timeout=PATIENCE_MS)
    camera.take("way", page.locator(".way"))
    camera.at("/topics/orders/0/10")
    page.wait_for_timeout(2_000)
    camera.take("record")
    camera.at("/groups/fraud")
    page.wait_for_timeout(3_000)
    camera.take("group")


def main() -> int:
    """Takes them."""
    argparse.ArgumentParser(description=__doc__).parse_args()
    chromium = shutil.which("chromium")
    if chromium is None:
        print("tools/pictures.py: error: it needs Chromium", file=sys.stderr)
        return 1
    IMAGES.mkdir(parents=True, exist_ok=True)
    with playground() as url, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        context = browser.new_context(viewport={"width": WIDTH, "height": HEIGHT})
        take_all(Camera(context.new_page(), url))
        browser.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""The pages of topics, partitions and groups in a real browser, without a cluster: what they show, in what order."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import cast

import pytest
from browsing import Look, broken_rules, chromium, looking, needs_chromium
from playwright.sync_api import Browser, expect
from scripted_log import LogConsumer
from scripted_page import ScriptedPage, partition, scripted_page, topic, whole_cluster
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from quorumlog.console.records.endpoints import RecordEndpoints
from quorumlog.console.shared_state import Thing
from quorumlog.sdk.aio import AsyncAdmin, AsyncConsumer

pytestmark = [pytest.mark.browser, pytest.mark.timeout(120), needs_chromium]

NOON_MS = 1_795_780_800_000  # 2026-11-27 12:00:00 UTC
TIMES = {0: [NOON_MS, NOON_MS + 1], 1: [NOON_MS + 86_400_000, 9_000_000_000_000_000]}
SETTINGS = [
    {"name": "cleanup.policy", "value": "delete", "default": "delete", "is_default": True, "documentation": "…"},
    {"name": "retention.bytes", "value": "-1", "default": "-1", "is_default": True, "documentation": "…"},
    {"name": "retention.ms", "value": "604800000", "default": "604800000", "is_default": True, "documentation": "…"},
]


def routes() -> Sequence[Route]:
    """Records of a scripted log, and the settings of every topic."""
    admin = cast(AsyncAdmin, LogConsumer({}))
    admin.describe_topics = LogConsumer(TIMES).describe_topics  # type: ignore[method-assign, assignment]
    records = RecordEndpoints(admin, lambda: cast(AsyncConsumer, LogConsumer(TIMES)), hide_values=False)

    async def settings(request: Request) -> JSONResponse:
        return JSONResponse(SETTINGS)

    return [*records.routes(), Route("/changes/configs/{topic}", settings)]


def things() -> dict[str, Thing]:
    shown = whole_cluster(topic("orders", 2), topic("__groups", 2))
    for number in (0, 1):
        shown[f"end/orders/{number}"] = {"end": str(10 + number), "rate": 5.0, "start": "1", "bytes": "1500"}
    shown["group/slow"] = {"id": "slow", "state": "Stable", "members": 4}
    return shown


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as opened:
        yield opened


@pytest.fixture(scope="module")
def console() -> Iterator[ScriptedPage]:
    with scripted_page(things(), routes) as made:
        yield made


@pytest.fixture
def look(browser: Browser, console: ScriptedPage) -> Iterator[Look]:
    with looking(browser, console.url, bypass_csp=True) as opened:
        expect(opened.page.locator(".health")).to_have_text("all well")
        yield opened
        assert (opened.said, opened.strangers()) == ([], [])


def test_records_have_dates_and_sizes(look: Look) -> None:
    page = look.at("/topics/orders")
    row = page.locator("[data-record='0/1']")
    expect(row).to_contain_text("2026-11-27 12:00:00.001")
    expect(row.locator("td").last).to_have_text("3 B")
    expect(page.locator("[data-record='1/1']")).to_contain_text("9,000,000,000,000,000 ms")
    headings = page.locator(".rows thead th")
    expect(headings).to_have_text(["Record", "Time (UTC)", "Key", "Value", "Size"])
    page.locator("[data-record='0/1'] a").click()
    expect(page.locator(".facts")).to_contain_text("2026-11-27 12:00:00.001 UTC")


def test_columns_are_chosen_in_the_address(look: Look) -> None:
    page = look.at("/topics/orders")
    page.locator(".columns summary").click()
    page.get_by_role("checkbox", name="Headers").uncheck()
    page.get_by_role("checkbox", name="Key size").check()
    page.get_by_role("checkbox", name="Time (UTC)").uncheck()
    headings = page.locator(".rows thead th")
    expect(headings).to_have_text(["Record", "Key", "Value", "Size", "Key size"])
    page.reload()
    expect(headings).to_have_text(["Record", "Key", "Value", "Size", "Key size"])
    look.at("/topics/orders?columns=headers")
    expect(headings).to_have_text(["Record", "Headers"])
    expect(page.locator("[data-record='0/1'] td")).to_have_text("0")


def test_keys_and_values_have_formats(look: Look) -> None:
    page = look.at("/topics/orders?columns=key,value")
    cells = page.locator("[data-record='0/1'] td")
    expect(cells).to_have_text(["k1", "1"])
    page.get_by_label("Keys as").select_option("hex")
    expect(cells).to_have_text(["6b 31", "1"])
    page.get_by_label("Values as").select_option("base64")
    expect(cells).to_have_text(["6b 31", "MQ=="])
    expect(page).to_have_url(f"{look.origin}/topics/orders?columns=key%2Cvalue&key=hex&value=base64")
    page.get_by_label("Keys as").select_option("auto")
    expect(cells).to_have_text(["k1", "MQ=="])


def test_found_records_are_downloaded(look: Look) -> None:
    page = look.at("/topics/orders?from=all&filter=value+%3D+1")
    for kind, text in (("JSON lines", '"value": "1"'), ("CSV", "k1,1")):
        with page.expect_download() as downloading:
            page.get_by_role("link", name=kind, exact=True).click()
        assert downloading.value.suggested_filename.startswith("orders.")
        content = Path(downloading.value.path()).read_text()
        assert text in content and "k0" not in content
    expect(page).to_have_url(f"{look.origin}/topics/orders?from=all&filter=value+%3D+1")


def test_a_topic_page_says_how_much_is_kept(look: Look, console: ScriptedPage) -> None:
    page = look.at("/topics/orders")
    facts = page.locator(".facts")
    for text in ("Records19", "Size3.0 kB", "Records/s10/s", "Kept for7 d by default"):
        expect(facts).to_contain_text(text)
    expect(page.locator(".rates")).to_be_visible()
    order = page.evaluate(
        "() => [...document.querySelectorAll('.rates, .table, .settings, .records, .delete')].map(e => e.classList[0])"
    )
    headings = page.locator("h2, summary").all_inner_texts()
    assert order[:2] == ["rates", "table"]
    places = [next(at for at, text in enumerate(headings) if text.startswith(name)) for name in ("Settings", "Records")]
    assert places == sorted(places), "settings are above the records"


def test_replicas_in_sync_are_not_repeated(look: Look, console: ScriptedPage) -> None:
    page = look.at("/topics/orders")
    table = page.get_by_role("region", name="Partitions")
    expect(table.locator("[data-row=orders-0]")).to_contain_text("1, 2, 3")
    expect(table.locator("thead")).not_to_contain_text("Behind")
    assert (table.locator("[data-row=orders-0]").inner_text()).count("1, 2, 3") == 1
    console.show("partition/orders/", {f"partition/orders/{n}": partition("orders", n, isr=(1, 2)) for n in (0, 1)})
    expect(table.locator("thead")).to_contain_text("Behind")
    page = look.at("/topics/orders/0")
    expect(page.locator(".facts")).to_contain_text("Behind3")
    console.show("partition/orders/", {f"partition/orders/{n}": partition("orders", n) for n in (0, 1)})
    expect(page.locator(".facts")).not_to_contain_text("Behind")


@pytest.mark.parametrize(("view", "rows"), [("/topics", 1), ("/partitions", 2)])
def test_internal_topics_are_behind_a_switch(look: Look, view: str, rows: int) -> None:
    page = look.at(view)
    expect(page.locator("[data-row]")).to_have_count(rows)
    page.get_by_role("link", name="Show 1 internal topic").click()
    expect(page.locator("[data-row]")).to_have_count(2 * rows)
    expect(page.locator("main")).to_contain_text("__groups")
    page.get_by_role("link", name="Hide 1 internal topic").click()
    expect(page.locator("[data-row]")).to_have_count(rows)


def test_a_slow_group_keeps_its_name(look: Look) -> None:
    page = look.at("/groups/slow")
    expect(page.locator(".trail")).to_have_text("Groups/slow")
    expect(page.locator(".facts")).to_have_text("StateStableMembers4")


@pytest.mark.parametrize("view", ["/", "/topics/orders", "/topics", "/acls", "/users"])
def test_a_phone_shows_every_view(browser: Browser, console: ScriptedPage, view: str) -> None:
    with looking(browser, console.url, viewport={"width": 390, "height": 800}) as look:
        page = look.at(view)
        for link in page.locator(".masthead nav a").all():
            box = link.bounding_box()
            assert box is not None and box["x"] >= 0 and box["x"] + box["width"] <= 390
        if view == "/":
            expect(page.locator(".sideways")).to_have_text("Scroll the picture sideways: 3 nodes.")
        if view == "/topics/orders":
            expect(page.locator(".rates")).to_be_visible()
            box = page.locator(".rates").bounding_box()
            assert box is not None and box["x"] + box["width"] <= 390
        assert page.evaluate("() => document.documentElement.scrollWidth") <= 390


def test_a_wide_picture_needs_no_hint(look: Look) -> None:
    expect(look.page.locator("[data-partition]")).to_have_count(2)
    expect(look.page.locator(".sideways")).to_have_count(0)


def test_the_pages_keep_the_rules_of_accessibility(look: Look) -> None:
    page = look.at("/topics/orders")
    expect(page.locator("[data-record='0/1']")).to_be_visible()
    page.evaluate("() => document.querySelectorAll('details').forEach(each => (each.open = true))")
    assert broken_rules(page, "a topic") == []

"""The views of the console in a real browser: what they show, by keyboard and to screen readers, whatever names say."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

import pytest
from browsing import Look, broken_rules, chromium, looking, needs_chromium, running_console
from command_line import until
from playwright.sync_api import Browser, expect

from quorumlog.console.access import CONTENT_SECURITY_POLICY
from quorumlog.local import LocalCluster
from quorumlog.sdk import Admin, NewTopic, Producer, TopicPartition

pytestmark = [pytest.mark.browser, pytest.mark.cluster, pytest.mark.timeout(400), needs_chromium]

PATIENCE_MS = 60_000
HOSTILE = "<img src=x onerror=alert(1)>/../ &amp; 'quoted'"
VIEWS = ("/", "/?as=table", "/nodes", "/topics", "/topics/orders", "/topics/orders/0", "/partitions", "/groups",
         "/groups/billing", "/quorum")  # fmt: skip


@pytest.fixture(scope="module")
def url(quorumlog_cluster: LocalCluster) -> Iterator[str]:
    servers = quorumlog_cluster.bootstrap_servers
    with Admin(bootstrap_servers=servers) as admin:
        admin.create_topics([NewTopic("orders", 3, 3, {"retention.ms": 60_000}), NewTopic("payments", 2, 3)])
        with Producer(bootstrap_servers=servers) as producer:
            for number in range(120):
                producer.send("orders", value=b"%d" % number, partition=number % 3)
        for group in ("billing", HOSTILE):
            admin.alter_group_offsets(group, {TopicPartition("orders", number): 10 for number in range(3)})
    with running_console(servers, "--allow-changes") as address:
        yield address


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as opened:
        yield opened


@pytest.fixture
def look(browser: Browser, url: str) -> Iterator[Look]:
    """A page; nothing that it shows makes it complain, or ask anybody else."""
    with looking(browser, url) as opened:
        expect(opened.page.locator("[data-partition]")).to_have_count(5, timeout=PATIENCE_MS)
        yield opened
        assert (opened.said, opened.strangers()) == ([], [])


def test_the_token_is_not_in_the_address_any_more(look: Look) -> None:
    assert look.page.url == f"{look.origin}/"
    assert [cookie.get("httpOnly") for cookie in look.context.cookies()] == [True]


def test_the_page_comes_with_the_policy(look: Look) -> None:
    answer = look.page.goto(look.origin)
    assert answer is not None and answer.headers["content-security-policy"] == CONTENT_SECURITY_POLICY


def test_the_picture_and_the_table_show_the_same(look: Look) -> None:
    page = look.page

    def shows_the_same() -> bool:
        lines = page.locator("[data-partition]").evaluate_all(
            "all => all.map(one => [one.dataset.partition, one.dataset.leader, one.dataset.epoch])"
        )
        page.get_by_role("link", name="As a table").click()
        expect(page).to_have_url(f"{look.origin}/?as=table")
        expect(page.locator("[data-row]")).to_have_count(5)
        rows = page.locator("[data-row]").evaluate_all(
            "all => all.map(one => [...one.cells].slice(0, 3).map(c => c.innerText))"
        )
        page.go_back()
        expect(page.locator("[data-partition]")).to_have_count(5)
        return bool(rows == lines)

    # On a busy machine a leadership may move between two looks.
    until(shows_the_same, "the table has what the picture has")


def test_a_group_shows_how_far_behind_it_is_on_the_page_of_the_partition(look: Look) -> None:
    page = look.at("/topics/orders/1")
    row = page.locator("[data-row='billing/1']")
    expect(row).to_contain_text("10", timeout=PATIENCE_MS)
    expect(row.locator("td").nth(3)).to_have_text("30", timeout=PATIENCE_MS)


def test_names_are_text_whatever_they_say(look: Look) -> None:
    page = look.at("/groups")
    link = page.get_by_role("link", name=HOSTILE, exact=True)
    expect(link).to_be_visible(timeout=PATIENCE_MS)
    link.click()
    expect(page.locator(".trail strong")).to_have_text(HOSTILE)
    expect(page.locator(".facts")).to_contain_text("Empty", timeout=PATIENCE_MS)
    page.reload()
    expect(page.locator(".trail strong")).to_have_text(HOSTILE, timeout=PATIENCE_MS)
    expect(page.locator("main img")).to_have_count(0)


def test_sorting_and_filtering_are_in_the_address(look: Look) -> None:
    page = look.at("/partitions")
    page.get_by_role("link", name="Partition", exact=True).click()
    expect(page.locator("[aria-sort=ascending]")).to_have_count(1)
    page.get_by_role("link", name="Partition", exact=True).click()
    page.keyboard.press("/")
    page.keyboard.type("orders")
    expect(page.locator("[data-row]")).to_have_count(3)
    expect(page).to_have_url(f"{look.origin}/partitions?sort=-partition&q=orders")
    page.reload()
    expect(page.locator("[data-row] th")).to_have_text(["orders-2", "orders-1", "orders-0"], timeout=PATIENCE_MS)


def test_everything_is_reached_by_keyboard(look: Look) -> None:
    page = look.page
    reached = set()
    for _ in range(60):
        page.keyboard.press("Tab")
        reached.add(
            page.evaluate("() => document.activeElement.getAttribute('href') ?? document.activeElement.tagName")
        )
    for wanted in ("#content", "/nodes", "/quorum", "/topics/orders", "/topics/orders/0", "/topics/payments/1"):
        assert wanted in reached, f"{wanted} is not among {sorted(reached)}"
    page.locator("[data-partition=orders-0]").focus()
    page.keyboard.press("Enter")
    expect(page).to_have_url(f"{look.origin}/topics/orders/0")
    page.go_back()
    expect(page.locator("[data-partition=orders-0]")).to_be_visible()


@pytest.mark.parametrize("path", ["/topics/nothing", "/topics/orders/77", "/groups/nobody"])
def test_what_does_not_exist_is_said_to(look: Look, path: str) -> None:
    expect(look.at(path).locator("main")).to_contain_text("There is no", timeout=PATIENCE_MS)


def test_motion_stops_for_who_wants_none(browser: Browser, url: str) -> None:
    style = "line => getComputedStyle(line.querySelector('.lead')).transitionDuration"
    for request, moves in (("reduce", False), ("no-preference", True)):
        with looking(browser, url, reduced_motion=request) as look:
            line = look.page.locator("[data-partition=orders-0]")
            expect(line).to_be_visible(timeout=PATIENCE_MS)
            assert (float(line.evaluate(style).removesuffix("s")) > 0) is moves


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_no_view_breaks_a_rule_of_accessibility(browser: Browser, url: str, scheme: str) -> None:
    with looking(browser, url, color_scheme=scheme, bypass_csp=True) as look:
        broken = []
        for view in VIEWS:
            expect(look.at(view).locator("main :is(.picture, table)").first).to_be_visible(timeout=PATIENCE_MS)
            look.page.evaluate("() => document.querySelectorAll('details').forEach(each => (each.open = true))")
            broken += broken_rules(look.page, view, scheme)
        assert broken == []


def test_a_console_that_has_ended_is_said_to_have(browser: Browser, quorumlog_cluster: LocalCluster) -> None:
    with ExitStack() as opened:
        with running_console(quorumlog_cluster.bootstrap_servers) as address:
            look = opened.enter_context(looking(browser, address))
            expect(look.page.locator(".health")).to_have_text("all well", timeout=PATIENCE_MS)
            expect(look.page.locator("[data-partition]")).to_have_count(5, timeout=PATIENCE_MS)
        expect(look.page.locator("[role=alert]")).to_contain_text("The console does not answer", timeout=PATIENCE_MS)
        expect(look.page.locator("[data-partition]")).not_to_have_count(0)


def test_many_partitions_are_shown_in_parts_and_the_page_says_so(browser: Browser) -> None:
    with LocalCluster(1) as cluster, Admin(bootstrap_servers=cluster.bootstrap_servers) as admin:
        admin.create_topics([NewTopic("narrow", 3, 1), NewTopic("wide", 117, 1)])
        with running_console(cluster.bootstrap_servers) as url, looking(browser, url) as look:
            expect(look.page.locator("[data-partition]")).to_have_count(64, timeout=PATIENCE_MS)
            expect(look.page.locator(".note")).to_contain_text("64 of 120 partitions")
            page = look.at("/?topic=narrow")
            expect(page.locator("[data-partition]")).to_have_count(3, timeout=PATIENCE_MS)
            page = look.at("/partitions")
            expect(page.locator("[data-row]")).to_have_count(100, timeout=PATIENCE_MS)
            page.get_by_role("link", name="Next").click()
            expect(page.locator("[data-row]")).to_have_count(20)
            expect(page).to_have_url(f"{look.origin}/partitions?page=2")
            assert (look.said, look.strangers()) == ([], [])

"""The status of the page: one, which never says more than is known."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from browsing import Look, chromium, looking, needs_chromium
from playwright.sync_api import Browser, expect
from scripted_page import ScriptedPage, node, partition, scripted_page, whole_cluster

pytestmark = [pytest.mark.browser, pytest.mark.timeout(120), needs_chromium]


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as opened:
        yield opened


@pytest.fixture
def console() -> Iterator[ScriptedPage]:
    with scripted_page(whole_cluster()) as made:
        yield made


@pytest.fixture
def look(browser: Browser, console: ScriptedPage) -> Iterator[Look]:
    with looking(browser, console.url) as opened:
        expect(opened.page.locator(".health")).to_have_text("all well")
        yield opened
        assert (opened.said, opened.strangers()) == ([], [])


def levels(look: Look) -> set[str]:
    """The colours that the page shows at the moment."""
    found = look.page.evaluate(
        "() => [...document.querySelectorAll('.badge, .notice')].map(each => each.className.replace('badge ', ''))"
    )
    return set(found)


def nodes(*states: tuple[str, int | None]) -> dict:  # type: ignore[type-arg]
    return {f"node/{number}": node(number, *state) for number, state in enumerate(states, start=1)}


def test_green_is_alone(look: Look, console: ScriptedPage) -> None:
    """A request that was not answered: nothing is "all well" beside it."""
    console.show("trouble", {"trouble": {"groups": "no answer within 10 s"}})
    expect(look.page.locator(".health")).to_have_text("groups not known")
    expect(look.page.locator(".notice")).to_contain_text("groups: no answer within 10 s")
    assert levels(look) == {"warn", "notice"}
    console.show("trouble", {})
    expect(look.page.locator(".notice")).to_have_count(0)
    expect(look.page.locator(".health")).to_have_text("all well")
    assert levels(look) == {"good"}


def test_one_silent_node_is_amber(look: Look, console: ScriptedPage) -> None:
    console.show("node/", nodes(("up", None), ("no answer", 5), ("up", None)))
    expect(look.page.locator(".health")).to_have_text("node 2: no answer for 5 s")
    assert levels(look) == {"warn"}
    card = look.page.locator("[data-node='2']")
    expect(card).to_contain_text("no answer, 5 s")
    expect(look.page.locator(".happenings")).to_contain_text("node 2 does not answer")
    expect(look.page.locator(".happenings")).not_to_contain_text("down")


def test_no_node_answers_is_grey(look: Look, console: ScriptedPage) -> None:
    """Whatever else was known is of before, so that only this is said."""
    console.show("partition/", {"partition/orders/0": partition("orders", 0, None)})
    console.show("trouble", {"trouble": {"metadata": "no answer within 10 s", "quorum": "no answer within 3 s"}})
    console.show("node/", nodes(("down", None), ("no answer", 9), ("no answer", 7)))
    expect(look.page.locator(".health")).to_have_text("no answer for 7 s")
    expect(look.page.locator(".notice")).to_have_text(
        "No node has answered for 7 s. The page shows the state before that."
    )
    assert levels(look) == {"unknown", "notice"}


def test_a_down_node_comes_first(look: Look, console: ScriptedPage) -> None:
    console.show("trouble", {"trouble": {"groups": "no answer within 10 s"}})
    console.show("node/", nodes(("up", None), ("no answer", 5), ("down", None)))
    badges = look.page.locator(".health .badge")
    expect(badges).to_have_text(["node 3 is down", "node 2: no answer for 5 s", "and 1 more"])
    assert levels(look) == {"bad", "warn", "notice"}


def test_flaps_are_counted_not_listed(look: Look, console: ScriptedPage) -> None:
    for times in range(1, 6):
        console.show("node/", nodes(("up", None), ("no answer", 3), ("up", None)))
        line = look.page.locator(".happenings li", has_text="node 2 does not answer")
        expect(line).to_contain_text("does not answer" if times == 1 else f"{times} times")
        console.show("node/", nodes(("up", None), ("up", None), ("up", None)))
        line = look.page.locator(".happenings li", has_text="node 2 answers again")
        expect(line).to_contain_text("answers again" if times == 1 else f"{times} times")
    expect(look.page.locator(".happenings li")).to_have_count(2)


def test_a_console_without_a_cluster_deletes_nothing(look: Look, console: ScriptedPage) -> None:
    """It has started again, and has no data yet."""
    console.show("", {"options": {"changes": False, "hide_values": False}})
    expect(look.page.locator(".health")).to_have_text("asking")
    console.show("", whole_cluster())
    expect(look.page.locator(".health")).to_have_text("all well")
    expect(look.page.locator(".happenings")).to_contain_text("Nothing since this page was opened")


def test_a_new_leader_fades_in(look: Look, console: ScriptedPage) -> None:
    """A box that slides would cover half of another for a while, as if there were two replicas."""
    console.show("partition/", {"partition/orders/0": partition("orders", 0, 3)})
    expect(look.page.locator("[data-partition=orders-0]")).to_have_attribute("data-leader", "3")
    moving = look.page.locator(".lead").evaluate("lead => getComputedStyle(lead).transitionProperty")
    assert moving == "opacity"

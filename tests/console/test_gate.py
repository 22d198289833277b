"""Admission of requests and the headers of every response, tested as raw ASGI, as no client library would send it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from raw_browser import HOST, PATIENCE_S, RawBrowser

from quorumlog.console.access import CONTENT_SECURITY_POLICY
from quorumlog.console.page_stream import MAX_PAGES
from quorumlog.console.poller import PageWish
from quorumlog.console.process import ConsoleOptions, is_loopback, served_hosts


@pytest.fixture
def browser() -> RawBrowser:
    return RawBrowser()


@pytest.fixture
async def guest(browser: RawBrowser) -> RawBrowser:
    """One who has been let in."""
    await browser.enter()
    return browser


async def until(reached: Any) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not reached():  # noqa: ASYNC110 - what is waited for is an answer
            await asyncio.sleep(0.005)


async def test_the_token_is_exchanged_for_a_cookie_and_gone_from_the_address(browser: RawBrowser) -> None:
    answer = await browser.ask(f"/topics/orders?sort=lag&token={browser.gate.token}")
    assert (answer.status, answer.headers["location"]) == (303, "/topics/orders?sort=lag")
    cookie = answer.headers["set-cookie"]
    assert "HttpOnly" in cookie and "SameSite=strict" in cookie and browser.gate.token not in cookie
    assert cookie.startswith("quorumlog_console_7000=")


async def test_an_exchange_never_leads_to_another_host(browser: RawBrowser) -> None:
    answer = await browser.ask(f"//evil.example/?token={browser.gate.token}")
    assert answer.headers["location"] == "/evil.example/"


@pytest.mark.parametrize("path", ["/", "/events", "/static/main.js", "/topics/orders", "/?token=guess", "/?token="])
async def test_who_has_neither_token_nor_cookie_gets_nothing(browser: RawBrowser, path: str) -> None:
    answer = await browser.ask(path)
    assert (answer.status, "quorumlog console" in answer.text) == (401, True)


@pytest.mark.parametrize(
    "cookie", ["quorumlog_console_7000=guess", "quorumlog_console_7000", "a=b; ;=;\x01", "other=1"]
)
async def test_a_cookie_that_is_not_ours_opens_nothing(browser: RawBrowser, cookie: str) -> None:
    browser.cookie = cookie
    assert (await browser.ask("/")).status == 401


@pytest.mark.parametrize(
    "host", ["evil.example:7000", "127.0.0.1", "127.0.0.1:7001", "", "127.0.0.1:7000.evil.example"]
)
async def test_a_host_that_is_not_served_is_refused_whoever_asks(guest: RawBrowser, host: str) -> None:
    assert (await guest.ask("/", host=host)).status == 400


@pytest.mark.parametrize("origin", ["http://evil.example", "null", "https://127.0.0.1", "http://127.0.0.1:7001"])
async def test_a_foreign_origin_is_refused_whatever_it_asks(guest: RawBrowser, origin: str) -> None:
    assert (await guest.ask("/events", "GET", ("origin", origin))).status == 403
    assert (await guest.ask("/", "POST", ("origin", origin))).status == 403


async def test_a_change_needs_an_origin(guest: RawBrowser) -> None:
    assert (await guest.ask("/", "POST")).status == 403
    assert (await guest.ask("/", "POST", ("origin", f"http://{HOST}"))).status == 405, "let through: there is no such"


async def test_names_of_hosts_are_the_same_in_capitals(guest: RawBrowser) -> None:
    assert (await guest.ask("/", host="LOCALHOST:7000")).status == 200


@pytest.mark.parametrize("path", ["/", "/static/main.js", "/nowhere", "/?token=guess"])
async def test_every_answer_has_the_policy(guest: RawBrowser, path: str) -> None:
    headers = (await guest.ask(path)).headers
    assert headers["content-security-policy"] == CONTENT_SECURITY_POLICY
    assert headers["x-content-type-options"] == "nosniff" and headers["referrer-policy"] == "no-referrer"


@pytest.mark.parametrize(
    "view", ["/", "/nodes", "/topics", "/topics/a.b", "/topics/a.b/3", "/groups/a%2Fb/c", "/quorum"]
)
async def test_every_view_has_an_address_of_its_own(guest: RawBrowser, view: str) -> None:
    answer = await guest.ask(view)
    assert (answer.status, "main.js" in answer.text) == (200, True)


@pytest.mark.parametrize("path", ["/static/../gate.py", "/static/%2e%2e/gate.py", "/static//etc/passwd", "/topics/a/b"])
async def test_nothing_but_the_page_is_served(guest: RawBrowser, path: str) -> None:
    assert (await guest.ask(path)).status == 404


async def test_who_gets_lost_gets_the_page_which_says_so(guest: RawBrowser) -> None:
    lost = await guest.ask("/nowhere", "GET", ("accept", "text/html,*/*"))
    assert (lost.status, "main.js" in lost.text) == (404, True)
    program = await guest.ask("/nowhere", "GET", ("accept", "*/*"))
    assert (program.status, "main.js" in program.text) == (404, False)


async def test_a_page_gets_everything_and_then_what_changes(guest: RawBrowser) -> None:
    guest.picture.put("node/", {"node/1": {"state": "up"}})
    answer, task, gone = guest.start("/events")
    await until(lambda: len(answer.events()) == 1)
    guest.picture.put("node/", {"node/1": {"state": "down"}})
    await until(lambda: len(answer.events()) == 2)
    assert answer.events() == [
        {"all": True, "set": {"node/1": {"state": "up"}}, "gone": []},
        {"all": False, "set": {"node/1": {"state": "down"}}, "gone": []},
    ]
    assert answer.headers["content-type"].startswith("text/event-stream")
    gone.set()
    await asyncio.wait_for(task, PATIENCE_S)
    assert len(guest.pages) == 0


async def test_a_page_goes_on_where_it_was_but_not_with_another_console(guest: RawBrowser) -> None:
    guest.picture.put("node/", {"node/1": {"state": "up"}})
    last = f"{guest.picture.run}-{guest.picture.version}"
    guest.picture.put("topic/", {"topic/orders": {"name": "orders"}})
    for event_id, everything in ((last, False), ("other-1", True), (f"{guest.picture.run}-x", True)):
        answer, task, gone = guest.start(f"/events?since={event_id}")
        await until(answer.events)
        assert answer.events()[0]["all"] is everything
        gone.set()
        await asyncio.wait_for(task, PATIENCE_S)


async def test_streams_end_with_the_console(guest: RawBrowser) -> None:
    guest.picture.put("node/", {"node/1": {"state": "up"}})
    answer, task, _ = guest.start("/events")
    await until(answer.events)
    guest.picture.close()
    await asyncio.wait_for(task, PATIENCE_S)
    assert answer.ended


async def test_more_pages_than_the_most_are_refused(guest: RawBrowser) -> None:
    for _ in range(MAX_PAGES):
        guest.pages.open(object(), PageWish())
    assert (await guest.ask("/events")).status == 503


def test_what_a_console_is_called_by() -> None:
    assert served_hosts(ConsoleOptions(""), 70) == {"127.0.0.1:70", "localhost:70", "[::1]:70"}
    beyond = ConsoleOptions("", host="10.0.0.5", names=("console.example", "proxy:8443"))
    reached = {"10.0.0.5:70", "console.example", "console.example:70", "proxy:8443"}
    assert reached <= served_hosts(beyond, 70) and "10.0.0.5" not in served_hosts(beyond, 70)


@pytest.mark.parametrize(("host", "expected"), [
    ("127.0.0.1", True), ("127.9.9.9", True), ("localhost", True), ("[::1]", True), ("::1", True),
    ("0.0.0.0", False), ("10.0.0.5", False), ("example.com", False), ("127.0.0.1.evil.example", False),
])  # fmt: skip
def test_what_is_loopback(host: str, expected: bool) -> None:
    assert is_loopback(host) is expected

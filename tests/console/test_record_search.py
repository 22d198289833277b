"""Searches on real nodes: exact, and honest about what was not searched; what is followed drops nothing in silence."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator
from typing import Any

import pytest
from browsing import chromium, looking, needs_chromium, running_console
from playwright.sync_api import expect
from raw_browser import HOST, PATIENCE_S, Answer, RawBrowser

from quorumlog.console.access import ConsoleGate
from quorumlog.console.application import ConsoleEndpoints
from quorumlog.console.assets import Assets
from quorumlog.console.page_stream import PageStreams
from quorumlog.console.records import search
from quorumlog.console.records.endpoints import RecordEndpoints
from quorumlog.local import LocalCluster
from quorumlog.sdk import Admin, NewTopic, Producer
from quorumlog.sdk.aio import AsyncAdmin, AsyncConsumer, AsyncProducer
from quorumlog.sdk.records.partitioner import partition_for_key

pytestmark = pytest.mark.cluster

PARTITIONS, RECORDS = 3, 600
PATIENCE_MS = 60_000
#: Of a busy machine.
AT_ONCE_S = 10
HOSTILE = "<script>alert(1)</script>\u202e"


@pytest.fixture(scope="module")
def servers(quorumlog_cluster: LocalCluster) -> str:
    servers = quorumlog_cluster.bootstrap_servers
    with Admin(bootstrap_servers=servers) as admin, Producer(bootstrap_servers=servers) as producer:
        admin.create_topics([NewTopic("orders", PARTITIONS, 3), NewTopic("empty", 2, 3), NewTopic("odd", 1, 3)])
        for number in range(RECORDS):
            producer.send("orders", key=b"k%d" % (number % 50), value=b'{"number": %d}' % number)
        producer.send("odd", key=HOSTILE.encode(), value=b"<img src=x onerror=alert(1)>", headers={"<b>": b"\xff"})
        producer.send("odd", value=b"x" * 1_000_000)
        producer.send("odd", value=b'{"large": 9223372036854775807}')
    return servers


class Reader(RawBrowser):
    """Asks a console for records."""

    def __init__(self, admin: AsyncAdmin, servers: str, hide_values: bool = False) -> None:
        super().__init__()
        self.records = RecordEndpoints(admin, lambda: AsyncConsumer(bootstrap_servers=servers), hide_values=hide_values)
        endpoints = ConsoleEndpoints(PageStreams(self.picture, self.pages), Assets(), self.records.routes())
        self.gate = ConsoleGate(endpoints.application(), [HOST], 7000)

    async def find(self, path: str) -> tuple[list[dict[str, Any]], dict[str, Any]]:
        """Rows, and how the search ended."""
        lines = lines_of(await self.ask(f"/records/{path}"))
        return [row for line in lines for row in line.get("rows", ())], lines[-1]


def lines_of(answer: Answer) -> list[dict[str, Any]]:
    assert answer.status == 200, answer.text
    return [json.loads(line) for line in answer.text.splitlines()]


@pytest.fixture
async def reader(servers: str) -> AsyncIterator[Reader]:
    async with AsyncAdmin(bootstrap_servers=servers) as admin:
        made = Reader(admin, servers)
        await made.enter()
        yield made


async def test_everything_is_found_and_said_to_be_everything(reader: Reader) -> None:
    rows, end = await reader.find("orders/search?limit=500&filter=value/number%20<%20450")
    numbers = sorted(json.loads(row["value"]["text"])["number"] for row in rows)
    assert numbers == list(range(450))
    assert (end["why"], end["found"], end["away"], end["left_out"]) == ("everything", 450, [], [])
    assert sum(int(part["at"]) - int(part["start"]) for part in end["partitions"]) == RECORDS
    assert all(part["at"] == part["end"] for part in end["partitions"])


async def test_an_empty_topic_is_searched_at_once(reader: Reader) -> None:
    rows, end = await reader.find("empty/search")
    assert (rows, end["why"]) == ([], "everything")
    assert end["seconds"] < AT_ONCE_S


async def test_a_search_that_has_enough_says_from_where_it_did_not_look(reader: Reader) -> None:
    rows, end = await reader.find("orders/search?limit=7&partition=1")
    assert [row["offset"] for row in rows] == [str(number) for number in range(7)]
    (part,) = end["partitions"]
    assert (end["why"], part["at"]) == ("rows", "7"), "the next row is at 7, and was not shown"


async def test_a_search_that_has_read_enough_says_what_is_left(reader: Reader, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search, "BUDGET_BYTES", 1)
    monkeypatch.setattr(search, "_POLL_ROWS", 5)
    _, end = await reader.find("orders/search?limit=500&filter=key%20=%20nobody&everywhere=1")
    assert end["why"] == "bytes"
    assert any(part["at"] != part["end"] for part in end["partitions"])


async def test_a_key_is_looked_for_where_a_producer_has_put_it(reader: Reader) -> None:
    home = partition_for_key(b"k7", PARTITIONS)
    rows, end = await reader.find("orders/search?limit=500&filter=key%20=%20k7")
    assert len(rows) == RECORDS // 50 and {row["partition"] for row in rows} == {home}
    assert end["left_out"] == [number for number in range(PARTITIONS) if number != home]
    rows, end = await reader.find("orders/search?limit=500&everywhere=1&filter=key%20=%20k7")
    assert (len(rows), end["left_out"]) == (RECORDS // 50, [])


async def test_the_newest_are_the_last_ones_of_each_partition(reader: Reader) -> None:
    rows, end = await reader.find("orders/search?last=5&limit=500")
    assert len(rows) == 5 * PARTITIONS
    assert all(int(part["end"]) - int(part["start"]) == 5 for part in end["partitions"])


async def test_one_record_is_shown_as_it_is_whatever_it_is(reader: Reader) -> None:
    ((row,), _) = await reader.find("odd/search?partition=0&offset=2&limit=1")
    assert row["value"]["text"] == '{\n  "large": 9223372036854775807\n}'
    ((row,), _) = await reader.find("odd/search?partition=0&offset=1&limit=1")
    assert (row["value"]["size"], row["value"]["cut"]) == (1_000_000, True)
    ((row,), _) = await reader.find("odd/search?partition=0&offset=0&limit=1")
    assert row["headers"] == [["<b>", {"kind": "bytes", "text": "ff", "size": 1, "cut": False}]]
    assert "\u202e" not in row["key"]["text"]


@pytest.mark.parametrize("query", [
    "limit=x", "partition=-1", "offset=9223372036854775808", "offset=1e3", "since=٣", "filter=nonsense",
    "last=" + "9" * 50,
])  # fmt: skip
async def test_what_makes_no_search_is_refused_in_a_line(reader: Reader, query: str) -> None:
    answer = await reader.ask(f"/records/orders/search?{query}")
    assert answer.status == 400 and answer.text.count("\n") == 1


@pytest.mark.parametrize("path", ["nowhere/search", "orders/search?partition=77", "nowhere/follow"])
async def test_what_does_not_exist_is_said_in_the_stream(reader: Reader, path: str) -> None:
    (line,) = lines_of(await reader.ask(f"/records/{path}"))
    assert line["kind"] == "error" and ("exist" in line["message"] or "no partition 77" in line["message"])


async def test_a_page_that_goes_ends_its_search_and_what_it_follows(reader: Reader) -> None:
    answer, task, gone = reader.start("/records/orders/follow")
    async with asyncio.timeout(PATIENCE_S):
        while "follows" not in answer.text:  # noqa: ASYNC110 - what is waited for is an answer
            await asyncio.sleep(0.005)
    assert reader.records._readers == 1
    gone.set()
    await asyncio.wait_for(task, PATIENCE_S)
    assert reader.records._readers == 0


async def test_what_is_followed_is_shown_or_counted(reader: Reader, servers: str) -> None:
    answer, task, gone = reader.start("/records/empty/follow")
    sent = 2_000
    async with asyncio.timeout(60), AsyncProducer(bootstrap_servers=servers, linger_ms=50) as producer:
        while "rows" not in answer.text:  # noqa: ASYNC110 - what is waited for is an answer
            await asyncio.sleep(0.005)
        for number in range(sent):
            await producer.send("empty", value=b"%d" % number)
        await producer.flush()

        def counted() -> int:
            lines = [json.loads(line) for line in answer.text.splitlines()[:-1]]
            return sum(
                len(line.get("rows", ())) + int(line.get("left_out", 0)) for line in lines if line["kind"] == "rows"
            )

        while counted() < sent:  # noqa: ASYNC110 - what is waited for is an answer
            await asyncio.sleep(0.02)
        assert counted() == sent
    gone.set()
    await asyncio.wait_for(task, PATIENCE_S)


async def test_who_hides_values_hides_them_from_filters_too(servers: str) -> None:
    async with AsyncAdmin(bootstrap_servers=servers) as admin:
        reader = Reader(admin, servers, hide_values=True)
        await reader.enter()
        rows, _ = await reader.find("orders/search?last=1&limit=500")
        assert {row["value"]["kind"] for row in rows} == {"hidden"}
        for hidden in ("value contains n", "value/number = 3", "header.a = b"):
            assert (await reader.ask(f"/records/orders/search?filter={hidden}")).status == 400


@pytest.mark.browser
@needs_chromium
def test_records_are_browsed_found_and_linked_to(servers: str) -> None:
    with running_console(servers) as url, chromium() as browser, looking(browser, url) as look:
        page = look.at("/topics/orders")
        expect(page.locator("[data-record]")).to_have_count(50, timeout=PATIENCE_MS)
        page.get_by_role("searchbox", name="Filter of records").fill("value/number = 123")
        page.get_by_role("button", name="Search").click()
        expect(page.locator("[data-record]")).to_have_count(1, timeout=PATIENCE_MS)
        expect(page.locator("[data-result=end]")).to_contain_text("1 row in 600 offsets", timeout=PATIENCE_MS)
        address = page.url
        page.locator("[data-record] a").click()
        expect(page.locator("[data-part=value]")).to_contain_text('"number": 123', timeout=PATIENCE_MS)
        page.goto(address)
        expect(page.locator("[data-record]")).to_have_count(1, timeout=PATIENCE_MS)
        page.get_by_role("searchbox", name="Filter of records").fill("nonsense")
        page.get_by_role("button", name="Search").click()
        expect(page.locator(".records [role=alert]")).to_contain_text("no condition starts at", timeout=PATIENCE_MS)
        look.at("/topics/odd")
        expect(page.locator("[data-record='0/0'] .content").first).to_have_text(
            "<script>alert(1)</script>\\u202e", timeout=PATIENCE_MS
        )
        expect(page.locator("main :is(img, script)")).to_have_count(0)
        page.get_by_role("link", name="Follow").click()
        expect(page.locator("[data-result=follow]")).to_contain_text("Following", timeout=PATIENCE_MS)
        stopped_s = time.monotonic()
        page.get_by_role("button", name="Stop").click()
        expect(page.locator("[data-result=follow]")).to_contain_text("No longer following", timeout=PATIENCE_MS)
        print(f"stopped in {time.monotonic() - stopped_s:.2f} s")
        assert time.monotonic() - stopped_s < 5
        page.get_by_role("link", name="From the beginning").click()
        expect(page.locator("[data-result=end]")).to_contain_text("rows in", timeout=PATIENCE_MS)
        page.get_by_role("link", name="Follow").click()
        expect(page.locator("[data-result=follow]")).to_contain_text("Following", timeout=PATIENCE_MS)
        refused = [line for line in look.said if "400 (Bad Request)" not in line]
        assert (refused, look.strangers()) == ([], [])


@pytest.mark.browser
@needs_chromium
def test_an_address_that_somebody_has_typed_leads_to_a_page(servers: str) -> None:
    with running_console(servers) as url, chromium() as browser, looking(browser, url) as look:
        for address, said in (
            ("/nowhere", "There is nothing at this address"),
            ("/topics/orders/0/abc", "There is nothing at this address"),
            ("/topics/%E0%A4%A", "There is no topic %E0%A4%A"),
            ("/?topic=nothing", "There is no topic nothing"),
            ("/topics/orders/0/99999999999999999999", "offset is '99999999999999999999': expected a whole number"),
            ("/topics/orders/0/9223372036854775807", "There is no record at offset 9,223,372,036,854,775,807"),
        ):
            expect(look.at(address).locator("main")).to_contain_text(said, timeout=PATIENCE_MS)
            expect(look.page.get_by_role("navigation", name="Views")).to_be_visible()
        page = look.at("/topics/orders/0/007")
        expect(page.locator(".facts")).to_contain_text("Offset7", timeout=PATIENCE_MS)
        expect(page.locator("main")).not_to_contain_text("no longer exists")
        shown = [line for line in look.said if "404 (Not Found)" not in line and "400 (Bad Request)" not in line]
        assert (shown, look.strangers()) == ([], [])

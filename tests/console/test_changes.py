"""Changes from the page: what they would do is shown first, and nothing is there unless it was allowed."""

from __future__ import annotations

import asyncio
import json
import os
import re
import time
from collections.abc import AsyncIterator
from typing import Any

import pytest
from browsing import chromium, looking, needs_chromium, running_console
from playwright.sync_api import expect
from raw_browser import HOST, RawBrowser

from quorumlog.console.access import ConsoleGate
from quorumlog.console.application import ConsoleEndpoints
from quorumlog.console.assets import Assets
from quorumlog.console.changes.endpoints import ChangeEndpoints
from quorumlog.console.changes.requests import LARGEST_BODY
from quorumlog.console.changes.reset_plan import ResetTo, ResetWish, step
from quorumlog.console.page_stream import PageStreams
from quorumlog.local import LocalCluster
from quorumlog.sdk import Admin, NewTopic, Producer, TopicPartition
from quorumlog.sdk.aio import AsyncAdmin, AsyncConsumer, AsyncProducer

PLACE = TopicPartition("orders", 0)
PATIENCE_MS = 60_000
CHANGES = ("/changes/reset", "/changes/configs/orders", "/changes/records/orders", "/changes/moves/orders/0")


@pytest.mark.parametrize(
    ("wish", "committed", "target", "note"),
    [
        (ResetWish(ResetTo.EARLIEST), 50, 10, ""),
        (ResetWish(ResetTo.LATEST), 50, 90, ""),
        (ResetWish(ResetTo.OFFSET, 42), None, 42, ""),
        (ResetWish(ResetTo.OFFSET, 3), 50, 10, "3 lies before the start"),
        (ResetWish(ResetTo.OFFSET, 2**62), 50, 90, f"{2**62} lies beyond the end"),
        (ResetWish(ResetTo.SHIFT, -20), 50, 30, ""),
        (ResetWish(ResetTo.SHIFT, -60), 50, 10, "-10 lies before the start"),
        (ResetWish(ResetTo.SHIFT, 5), None, 10, "no offset is committed: using the start"),
        (ResetWish(ResetTo.TIME, 1), 50, 33, ""),
    ],
)
def test_a_group_goes_on_where_the_log_has_something(
    wish: ResetWish, committed: int | None, target: int, note: str
) -> None:
    planned = step(PLACE, wish, committed, 10, 90, 33)
    assert (planned.target, planned.note) == (target, note)


def test_after_the_last_record_a_time_is_the_end() -> None:
    assert step(PLACE, ResetWish(ResetTo.TIME, 1), 50, 10, 90, None).target == 90


class Operator(RawBrowser):
    """Asks a console for changes."""

    def __init__(self, admin: AsyncAdmin, consumer: AsyncConsumer, servers: str, *, allowed: bool) -> None:
        super().__init__()
        self.changes = ChangeEndpoints(
            admin, consumer, lambda: AsyncProducer(bootstrap_servers=servers), allowed=allowed
        )
        endpoints = ConsoleEndpoints(PageStreams(self.picture, self.pages), Assets(), self.changes.routes())
        self.gate = ConsoleGate(endpoints.application(), [HOST], 7000)

    async def change(self, path: str, body: Any, kind: str = "application/json") -> tuple[int, str]:
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        headers = (("origin", f"http://{HOST}"), ("content-type", kind))
        answer = await self.ask(path, "POST", *headers, body=content)
        return answer.status, answer.text


@pytest.fixture(scope="module")
def servers(quorumlog_cluster: LocalCluster) -> str:
    servers = quorumlog_cluster.bootstrap_servers
    with Admin(bootstrap_servers=servers) as admin, Producer(bootstrap_servers=servers) as producer:
        admin.create_topics([NewTopic("orders", 2, 3)])
        for number in range(100):
            producer.send("orders", value=b"%d" % number, partition=number % 2)
        producer.flush()
        admin.alter_group_offsets("billing", {TopicPartition("orders", number): 20 for number in range(2)})
    return servers


@pytest.fixture
async def operator(servers: str) -> AsyncIterator[Operator]:
    async with AsyncAdmin(bootstrap_servers=servers) as admin, AsyncConsumer(bootstrap_servers=servers) as consumer:
        made = Operator(admin, consumer, servers, allowed=True)
        await made.enter()
        yield made
        await made.changes.close()


@pytest.mark.cluster
async def test_a_reset_does_what_its_plan_has_shown(operator: Operator, servers: str) -> None:
    answer = await operator.ask("/changes/reset?group=billing&to=shift&by=-5")
    plan = json.loads(answer.text)
    assert plan["members"] == 0
    assert [(each["committed"], each["target"], each["end"]) for each in plan["steps"]] == [("20", "15", "50")] * 2
    assert (await operator.change("/changes/reset", {"group": "billing", "steps": plan["steps"]}))[0] == 204
    async with AsyncAdmin(bootstrap_servers=servers) as admin:
        assert {each.offset for each in (await admin.list_group_offsets("billing")).values()} == {15}


@pytest.mark.cluster
async def test_a_setting_is_set_and_cleared(operator: Operator) -> None:
    async def value() -> str:
        rows = json.loads((await operator.ask("/changes/configs/orders")).text)
        return str(next(row["value"] for row in rows if row["name"] == "retention.ms"))

    before = await value()
    assert (await operator.change("/changes/configs/orders", {"name": "retention.ms", "value": "60000"}))[0] == 204
    assert await value() == "60000"
    assert (await operator.change("/changes/configs/orders", {"name": "retention.ms", "value": None}))[0] == 204
    assert await value() == before
    status, why = await operator.change("/changes/configs/orders", {"name": "nonsense", "value": "1"})
    assert status == 409 and "nonsense" in why


@pytest.mark.cluster
async def test_a_record_is_sent_and_its_place_is_told(operator: Operator) -> None:
    status, reported = await operator.change("/changes/records/orders", {"key": "é", "value": "v", "partition": "1"})
    assert status == 200 and json.loads(reported)["partition"] == 1
    status, why = await operator.change("/changes/records/orders", {"key": None, "value": "v", "partition": 7})
    assert status == 409 and "7" in why


@pytest.mark.cluster
async def test_a_record_that_is_sent_to_be_explained_tells_its_way(operator: Operator) -> None:
    body = {"key": None, "value": "v", "partition": 0, "explain": True}
    status, reported = await operator.change("/changes/records/orders", body)
    way = json.loads(reported)["way"]
    assert (status, way["untraced"], way["attempts"]) == (200, "", 1)
    assert "2 of the 3 that vote" in way["rule"]
    assert [each["decided"] for each in way["stages"]].count(True) == 1
    assert (await operator.change("/changes/records/orders", body | {"partition": 7}))[0] == 409
    assert (await operator.change("/changes/records/orders", body))[0] == 200, "a failed one does not end the session"


@pytest.mark.cluster
async def test_a_partition_is_moved_once_it_was_shown_what_that_does(operator: Operator, servers: str) -> None:
    async with AsyncAdmin(bootstrap_servers=servers) as admin:
        await admin.create_topics([NewTopic("moved", replica_assignments={0: [1, 2, 3]})])
        reported = json.loads((await operator.ask("/changes/moves/moved/0?replicas=3,1,%202")).text)
        assert reported == {"replicas": [3, 1, 2], "adding": [], "removing": []}
        reported = json.loads((await operator.ask("/changes/moves/moved/0?replicas=2")).text)
        assert (reported["adding"], reported["removing"]) == ([], [1, 3])
        assert (await operator.change("/changes/moves/moved/0", {"replicas": [2]}))[0] == 204
        deadline = time.monotonic() + 60
        while (await admin.describe_topics(["moved"]))[0].partitions[0].replicas != (2,):
            assert time.monotonic() < deadline, "it is not moved"
            await asyncio.sleep(0.05)
    status, why = await operator.change("/changes/moves/moved/0", {"replicas": None})
    assert status == 409 and "moved-0" in why
    for query in ("replicas=", "replicas=x", "replicas=9", "replicas=1,1,2", ""):
        answer = await operator.ask(f"/changes/moves/moved/0?{query}")
        assert answer.status in (400, 409) and answer.text.count("\n") == 1, query
    assert (await operator.ask("/changes/moves/moved/7?replicas=1")).status == 400
    assert (await operator.change("/changes/moves/moved/0", {"replicas": "1"}))[0] == 400


@pytest.mark.cluster
@pytest.mark.parametrize("body", [
    b"", b"[]", b"nonsense", b'{"group": 3}', b'{"group": "billing", "steps": []}', b"[" * 100_000,
    b" " * (LARGEST_BODY + 1),
    b'{"group": "billing", "steps": [{"topic": "orders", "partition": 0, "target": -1}]}',
    b'{"group": "billing", "steps": [{"topic": "orders", "partition": 0, "target": true}]}',
    b'{"group": "billing", "steps": [{"topic": 3, "partition": 0, "target": 1}]}',
    b'{"group": "billing", "steps": [7]}',
])  # fmt: skip
async def test_what_means_nothing_changes_nothing(operator: Operator, body: bytes) -> None:
    status, why = await operator.change("/changes/reset", body)
    assert status == 400 and why.count("\n") == 1


@pytest.mark.cluster
async def test_a_form_of_another_kind_is_refused(operator: Operator) -> None:
    assert (await operator.change("/changes/reset", b"{}", "text/plain"))[0] == 400


@pytest.mark.cluster
@pytest.mark.parametrize("query", ["group=billing", "group=billing&to=nowhere", "group=billing&to=shift", "to=earliest",
                                   "group=billing&to=offset&by=1e9", "group=nobody&to=earliest"])  # fmt: skip
async def test_what_cannot_be_planned_is_said_in_a_line(operator: Operator, query: str) -> None:
    answer = await operator.ask(f"/changes/reset?{query}")
    assert answer.status in (400, 409) and answer.text.count("\n") == 1


@pytest.mark.cluster
async def test_without_permission_plans_are_shown_and_nothing_is_changed(servers: str) -> None:
    async with AsyncAdmin(bootstrap_servers=servers) as admin, AsyncConsumer(bootstrap_servers=servers) as consumer:
        visitor = Operator(admin, consumer, servers, allowed=False)
        await visitor.enter()
        assert (await visitor.ask("/changes/reset?group=billing&to=latest")).status == 200
        for path in CHANGES:
            assert (await visitor.change(path, {}))[0] in (404, 405)
        committed = await admin.list_group_offsets("billing")
        assert 50 not in {each.offset for each in committed.values()}


@pytest.mark.cluster
@pytest.mark.browser
@needs_chromium
def test_an_operator_resets_a_group_sets_a_setting_and_sends_a_record(servers: str) -> None:
    with running_console(servers, "--allow-changes") as url, chromium() as browser, looking(browser, url) as look:
        page = look.at("/groups/billing")
        page.get_by_role("button", name="Show what it would do").click(timeout=PATIENCE_MS)
        plan = page.get_by_role("region", name="What it would do")
        expect(plan.locator("[data-row='orders-1']")).to_contain_text("again", timeout=PATIENCE_MS)
        page.get_by_role("button", name="Apply the reset").click()
        expect(page.locator(".outcome")).to_contain_text("billing now continues there", timeout=PATIENCE_MS)
        row = page.get_by_role("region", name="Partitions").locator("[data-row='orders-1'] td").first
        expect(row).to_have_text("0", timeout=PATIENCE_MS)
        page = look.at("/topics/orders")
        page.locator(".settings summary").click(timeout=PATIENCE_MS)
        page.get_by_role("button", name="Change retention.ms").click(timeout=PATIENCE_MS)
        field = page.get_by_label("retention.ms", exact=True)
        field.fill("a day")
        page.get_by_role("button", name="Set", exact=True).click()
        expect(page.locator(".settings .alarm")).to_contain_text("a day", timeout=PATIENCE_MS)
        expect(field).to_have_value("a day")
        assert "409" in look.said.pop()  # What browsers say of each answer that refuses something.
        field.fill("70000")
        page.get_by_role("button", name="Set", exact=True).click()
        expect(page.get_by_role("button", name="Clear retention.ms")).to_be_visible(timeout=PATIENCE_MS)
        page = look.at("/topics/orders/1")
        page.locator(".move summary").click(timeout=PATIENCE_MS)
        page.get_by_label("Replicas, the preferred leader first").fill("2")
        page.locator(".move").get_by_role("button", name="Show what it would do").click()
        expect(page.locator(".planned")).to_contain_text("Copied to: none.", timeout=PATIENCE_MS)
        page.get_by_role("button", name="Move it").click()
        replicas = page.locator("dt", has_text="Replicas").locator("+ dd")
        expect(replicas).to_have_text("2", timeout=PATIENCE_MS)
        page = look.at("/topics/orders")
        page.get_by_text("Send a record").click()
        page.locator(".send").get_by_label("Key").fill("anna")
        page.locator(".send").get_by_label("Value").fill('{"pounds": 3}')
        page.get_by_role("button", name="Send", exact=True).click()
        expect(page.locator(".send .outcome")).to_contain_text("Acknowledged: partition", timeout=PATIENCE_MS)
        page.get_by_label("Partition", exact=True).fill("0")
        page.get_by_role("button", name="Send and explain").click()
        way = page.get_by_role("region", name="Stages of the record")
        expect(way.locator("tbody tr").first).to_contain_text("producer", timeout=PATIENCE_MS)
        expect(way.locator("tbody tr", has_text="the last that was needed")).to_have_count(1)
        expect(way.locator("tbody tr", has_text="follower")).to_have_count(2)
        expect(page.locator(".way .rule")).to_contain_text("2 of the 3 that vote")
        assert (look.said, look.strangers()) == ([], [])


@pytest.mark.cluster
@pytest.mark.browser
@needs_chromium
def test_a_move_is_seen_while_it_lasts_and_called_off_from_the_page(servers: str) -> None:
    with Admin(bootstrap_servers=servers) as admin, Producer(bootstrap_servers=servers) as producer:
        admin.create_topics([NewTopic("heavy", 1, 1)])
        place = TopicPartition("heavy", 0)
        for _ in range(400):
            producer.send("heavy", os.urandom(100_000))
        producer.flush()
        [before] = admin.describe_topics(["heavy"])[0].partitions[0].replicas
        other = 1 + before % 3
        with running_console(servers, "--allow-changes") as url, chromium() as browser, looking(browser, url) as look:
            page = look.at("/partitions")
            # Not before: it lasts for forty seconds, and a browser may take its time until it appears.
            admin.reassign_partitions({place: [other]}, throttle_bytes_per_second=1 << 20)
            row = page.get_by_role("region", name="Being moved").locator("[data-row=heavy-0]")
            expect(row).to_contain_text(re.compile(r"of 4.\.. MB"), timeout=PATIENCE_MS)
            expect(row).to_contain_text("1.0 MB/s")
            line = look.at("/?topic=heavy").locator("[data-partition=heavy-0] .moves")
            expect(line).to_have_text(re.compile(r"[0-9]+ %|leaves"), timeout=PATIENCE_MS)
            page = look.at("/topics/heavy/0")
            page.get_by_role("button", name="Call the move of heavy-0 off").click(timeout=PATIENCE_MS)
            expect(page.get_by_role("region", name="Being moved")).to_have_count(0, timeout=PATIENCE_MS)
            assert (look.said, look.strangers()) == ([], [])
        assert admin.list_partition_reassignments() == {}
        assert admin.describe_topics(["heavy"], linearizable=True)[0].partitions[0].replicas == (before,)


@pytest.mark.cluster
@pytest.mark.browser
@needs_chromium
def test_a_visitor_sees_plans_and_no_buttons(servers: str) -> None:
    with running_console(servers) as url, chromium() as browser, looking(browser, url) as look:
        page = look.at("/groups/billing")
        page.get_by_role("button", name="Show what it would do").click(timeout=PATIENCE_MS)
        expect(page.locator("main")).to_contain_text("started without --allow-changes", timeout=PATIENCE_MS)
        expect(page.locator("[data-action=execute]")).to_have_count(0)
        page = look.at("/topics/orders")
        expect(page.locator(".settings summary")).to_be_visible(timeout=PATIENCE_MS)
        expect(page.get_by_text("Send a record")).to_have_count(0)

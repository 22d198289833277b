"""The pages of transactions in a real browser: what is open, what it holds back, and how an operator aborts it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import cast

import pytest
from browsing import Look, broken_rules, chromium, looking, needs_chromium, running_console
from playwright.sync_api import Browser, expect
from scripted_page import ScriptedPage, scripted_page, topic, whole_cluster

from quorumlog.console.changes.administration import AdministrationEndpoints
from quorumlog.console.shared_state import Json, Thing
from quorumlog.local import LocalCluster
from quorumlog.sdk import (
    Admin,
    Consumer,
    NewTopic,
    Producer,
    TopicPartition,
    TransactionAbortedError,
    TransactionPlace,
)
from quorumlog.sdk.aio import AsyncAdmin
from quorumlog.sdk.errors import InvalidTxnStateError

pytestmark = [pytest.mark.browser, pytest.mark.timeout(300), needs_chromium]

PATIENCE_MS = 60_000
#: An hour, so that a test takes a negligible share of it.
TIMEOUT_MS = 3_600_000


def opened(name: str, open_ms: int, *held: int) -> dict[str, Thing]:
    """An open transaction with partitions of "orders", in which so many offsets are held back each."""
    started_ms = int(time.time() * 1000) - open_ms
    listed: Thing = {"id": name, "state": "Ongoing", "started_ms": started_ms, "producer": str(2**53 + 1), "epoch": 3}
    partitions: list[Json] = [
        {"topic": "orders", "partition": number, "missing": False, "stable": str(100 - back), "end": "100",
         "held": str(back)}
        for number, back in enumerate(held)
    ]  # fmt: skip
    detail: Thing = {
        "timeout_ms": TIMEOUT_MS, "place": {"term": "4", "index": str(2**53 + 1)}, "cause": None, "writers": 1,
        "coordinator": 2, "partitions": partitions, "groups": [], "participants": len(partitions),
    }  # fmt: skip
    return {f"transaction/{name}": listed, f"participants/{name}": listed | detail}


def ended(name: str, *missing: int) -> dict[str, Thing]:
    """A committed transaction; these partitions of "orders" miss the outcome."""
    state = "PrepareCommit" if missing else "CompleteCommit"
    both = opened(name, 0)
    changes: Thing = {"state": state, "started_ms": None}
    partitions: list[Json] = [
        {"topic": "orders", "partition": number, "missing": True, "stable": None, "end": None, "held": None}
        for number in missing
    ]
    participants: Thing = {"place": None, "cause": "producer", "partitions": partitions, "participants": len(missing)}
    return {
        f"transaction/{name}": both[f"transaction/{name}"] | changes,
        f"participants/{name}": both[f"participants/{name}"] | changes | participants,
    }


def reader(name: str, committed: int) -> dict[str, Thing]:
    """A group that has committed an offset of partition 0 of "orders"."""
    row: Thing = {"topic": "orders", "partition": 0, "committed": str(committed), "end": "100",
                  "lag": str(100 - committed), "owner": None}  # fmt: skip
    detail: Thing = {"id": name, "state": "Empty", "kind": "Consumer", "epoch": 1, "assignor": None, "coordinator": 1,
                     "members": [], "rows": [row], "lag": str(100 - committed), "unknown": 0}  # fmt: skip
    return {f"group/{name}": {"id": name, "state": "Empty", "members": 0}, f"detail/{name}": detail}


@dataclass
class ScriptedAborts:
    """An admin client that keeps which transactions it has aborted."""

    aborted: list[tuple[str, TransactionPlace]] = field(default_factory=list)
    refusal: InvalidTxnStateError | None = None

    async def abort_transaction(self, transactional_id: str, place: TransactionPlace) -> bool:
        if self.refusal is not None:
            raise self.refusal
        self.aborted.append((transactional_id, place))
        return True


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as started:
        yield started


@pytest.fixture
def admin() -> ScriptedAborts:
    return ScriptedAborts()


@pytest.fixture
def console(admin: ScriptedAborts) -> Iterator[ScriptedPage]:
    things = whole_cluster(topic("orders", 2))
    things |= opened("slow", TIMEOUT_MS // 10, 30, 0) | opened("stuck", TIMEOUT_MS * 9 // 10, 30)
    things |= ended("late", 1) | ended("done") | reader("behind", 40) | reader("waits", 90) | reader("fast", 100)
    things["transactions"] = {"total": 4, "unfinished": 3, "described": 3}
    routes = AdministrationEndpoints(cast(AsyncAdmin, admin), allowed=True).routes
    with scripted_page(things, routes) as made:
        yield made


@pytest.fixture
def look(browser: Browser, console: ScriptedPage) -> Iterator[Look]:
    with looking(browser, console.url, bypass_csp=True) as seen:
        expect(seen.page.locator(".health")).to_have_text("all well")
        yield seen
        assert seen.strangers() == []


def test_open_transactions_come_first_and_one_near_its_timeout_stands_out(look: Look, console: ScriptedPage) -> None:
    page = look.page
    page.get_by_role("link", name="Transactions").click()
    rows = page.get_by_role("region", name="Transactional IDs").locator("[data-row]")
    expect(rows.locator("th")).to_have_text(["stuck", "slow", "late", "done"])
    expect(rows.nth(0)).to_contain_text("near its timeout")
    expect(rows.nth(0)).to_contain_text("54 min")
    expect(rows.nth(1)).not_to_contain_text("near its timeout")
    expect(rows.nth(2)).to_contain_text("1 participant without the outcome")
    expect(rows.nth(0)).to_contain_text("9007199254740993 epoch 3")
    expect(page.locator(".trouble")).to_contain_text("stuck has been open for 54 min")
    expect(page.locator(".trouble")).to_contain_text("it is aborted after 1 h")
    console.show("participants/stuck", opened("stuck", TIMEOUT_MS + 60_000, 30))
    expect(rows.nth(0)).to_contain_text("past its timeout")
    expect(page.locator(".trouble")).to_contain_text("open for 1 h 1 min: longer than its timeout of 1 h")
    assert look.said == []


def test_a_partition_shows_who_waits_for_its_transactions(look: Look) -> None:
    """Lag before the last stable offset has other causes."""
    page = look.at("/transactions")
    held = page.get_by_role("region", name="Partitions with open transactions")
    row = held.locator("[data-row=orders-0]")
    expect(row.locator("td")).to_have_text(["70", "100", "30", "behind 30, waits 10", "slow, stuck"])
    expect(held.locator("[data-row=orders-1] td").nth(3)).to_have_text("–")
    row.get_by_role("link", name="waits").click()
    expect(page).to_have_url(f"{look.origin}/groups/waits")
    page.go_back()
    held.get_by_role("link", name="slow").first.click()
    expect(page).to_have_url(f"{look.origin}/transactions/slow")
    assert look.said == []


def test_what_is_left_out_is_said(look: Look, console: ScriptedPage) -> None:
    console.show("transactions", {"transactions": {"total": 5_000, "unfinished": 40, "described": 16}})
    page = look.at("/transactions")
    expect(page.locator("main")).to_contain_text("The first 4 of 5,000 transactional IDs.")
    expect(page.locator("main")).to_contain_text("Partitions are shown of 16 of 40 transactions")
    page = look.at("/transactions/none")
    expect(page.locator("main")).to_contain_text("There is no transactional ID none.")


def test_the_shown_transaction_is_aborted_once_its_name_is_typed(
    look: Look, console: ScriptedPage, admin: ScriptedAborts
) -> None:
    page = look.at("/transactions/stuck")
    expect(page.locator(".facts")).to_contain_text("Coordinatornode 2")
    page.get_by_text("Abort the transaction of stuck").click()
    field, button = page.get_by_label("Type stuck to abort the transaction of stuck"), page.get_by_role("button")
    expect(button).to_be_disabled()
    field.fill("stuck")
    admin.refusal = InvalidTxnStateError("the transaction is committed")
    button.click()
    expect(page.locator(".delete .alarm")).to_have_text("the transaction is committed")
    assert "409" in look.said.pop()
    admin.refusal = None
    with page.expect_response("**/changes/transactions/abort"):
        button.click()
    assert admin.aborted == [("stuck", TransactionPlace(4, 2**53 + 1))]
    both = opened("stuck", 1_000, 5)
    place: Thing = {"place": {"term": "4", "index": "9"}}
    console.show("participants/stuck", {"participants/stuck": both["participants/stuck"] | place})
    expect(page.get_by_label("Type stuck to abort")).to_have_value("")
    console.show("participants/stuck", ended("stuck"))
    expect(page.locator(".delete")).to_have_count(0)
    assert look.said == []


def test_a_visitor_aborts_nothing(browser: Browser) -> None:
    things = whole_cluster() | opened("stuck", 1_000, 3)
    things["transactions"] = {"total": 1, "unfinished": 1, "described": 1}
    with scripted_page(things, changes=False) as console, looking(browser, console.url) as look:
        page = look.at("/transactions/stuck")
        expect(page.locator("main")).to_contain_text("started without --allow-changes")
        expect(page.locator(".delete")).to_have_count(0)


@pytest.mark.parametrize("view", ["/transactions", "/transactions/stuck", "/transactions/late", "/transactions/done"])
def test_the_pages_of_transactions_keep_the_rules_of_accessibility(look: Look, view: str) -> None:
    page = look.at(view)
    expect(page.locator("table").first).to_be_visible()
    page.evaluate("() => document.querySelectorAll('details').forEach(each => (each.open = true))")
    assert broken_rules(page, view) == []


def test_a_phone_shows_transactions(browser: Browser, console: ScriptedPage) -> None:
    with looking(browser, console.url, viewport={"width": 390, "height": 800}) as look:
        for view in ("/transactions", "/transactions/stuck"):
            page = look.at(view)
            expect(page.locator("table").first).to_be_visible()
            assert page.evaluate("() => document.documentElement.scrollWidth") <= 390


# -- on nodes ---------------------------------------------------------------------------------------------------------


@pytest.mark.cluster
def test_an_operator_sees_a_stuck_transaction_and_aborts_it(browser: Browser) -> None:
    with ExitStack() as closing:
        servers = closing.enter_context(LocalCluster(nodes=3)).bootstrap_servers
        client = closing.enter_context(Admin(bootstrap_servers=servers))
        client.create_topics([NewTopic("orders", 2, 3)])
        url = closing.enter_context(running_console(servers, "--allow-changes"))
        look = closing.enter_context(looking(browser, url, bypass_csp=True))
        page = look.at("/transactions")
        expect(page.locator("main")).to_contain_text("There are no transactional IDs yet.", timeout=PATIENCE_MS)
        assert "__transactions" not in {each.name for each in client.describe_topics(include_internal=True)}
        producer = closing.enter_context(Producer(bootstrap_servers=servers, transactional_id="billing"))
        with producer.transaction() as tx:
            tx.send("orders", b"committed", partition=0)
        client.alter_group_offsets("reader", {TopicPartition("orders", 0): 1})
        with pytest.raises(TransactionAbortedError), producer.transaction() as tx:  # noqa: PT012 - the block is what raises
            for number in range(10):
                tx.send("orders", b"%d" % number, partition=number % 2)
            producer.flush()
            row = page.get_by_role("region", name="Transactional IDs").locator("[data-row=billing]")
            expect(row).to_contain_text("Ongoing", timeout=PATIENCE_MS)
            expect(row).to_contain_text("of 1 min")
            held = page.get_by_role("region", name="Partitions with open transactions")
            expect(held.locator("[data-row=orders-0] td").nth(2)).to_have_text("5", timeout=PATIENCE_MS)
            expect(held.locator("[data-row=orders-0] td").nth(3)).to_have_text("reader 5", timeout=PATIENCE_MS)
            assert broken_rules(page, "transactions of nodes") == []
            row.get_by_role("link", name="billing").click()
            page.get_by_text("Abort the transaction of billing").click(timeout=PATIENCE_MS)
            page.get_by_label("Type billing to abort the transaction of billing").fill("billing")
            with page.expect_response("**/changes/transactions/abort", timeout=PATIENCE_MS) as answer:
                page.get_by_role("button", name="Abort").click()
            assert answer.value.ok, answer.value.text()
            expect(page.locator(".facts")).to_contain_text("CompleteAbort", timeout=PATIENCE_MS)
            expect(page.locator(".facts")).to_contain_text("Decided byoperator")
        with Consumer("orders", bootstrap_servers=servers, auto_offset_reset="earliest") as consumer:
            found: list[bytes] = []
            while not found:
                found += [each.value for part in consumer.poll(1_000).values() for each in part]
            assert not consumer.poll(1_000)
        assert found == [b"committed"]
        assert (look.said, look.strangers()) == ([], [])

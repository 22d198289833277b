"""The playground: what the page may do to nodes, one thing at a time, and only to a cluster that exists for it."""

from __future__ import annotations

import asyncio
import re
import threading

import pytest
from browsing import PICTURES, broken_rules, chromium, looking, needs_chromium, running_console
from command_line import until
from confluent_kafka import KafkaError, Producer
from confluent_kafka.admin import AdminClient
from playwright.sync_api import expect
from raw_browser import HOST, PATIENCE_S, RawBrowser

from quorumlog.cli.playground import playground_nodes
from quorumlog.console.access import ConsoleGate
from quorumlog.console.application import ConsoleEndpoints
from quorumlog.console.assets import Assets
from quorumlog.console.page_stream import PageStreams
from quorumlog.console.playground.controls import NodeControlError, Playground
from quorumlog.console.playground.workload import MOST_PER_SECOND, Life
from quorumlog.local import LocalCluster
from quorumlog.sdk import Admin, NewTopic, TopicPartition
from quorumlog.sdk.aio import AsyncAdmin

OURS = ("origin", f"http://{HOST}")
PATIENCE_MS = 60_000


class Nodes:
    """Three processes that are none."""

    node_ids = (1, 2, 3)
    bootstrap_servers = "127.0.0.1:1"
    kafka_bootstrap_servers = ""
    cuts_links = True

    def __init__(self) -> None:
        self.done: list[tuple[str, int]] = []
        self.held = threading.Event()
        self.held.set()

    def kill(self, node: int) -> None:
        self._do("kill", node)

    def pause(self, node: int) -> None:
        self._do("pause", node)

    def resume(self, node: int) -> None:
        self._do("resume", node)

    def start(self, node: int) -> None:
        self._do("start", node)

    def cut(self, node: int) -> None:
        self._do("cut", node)

    def rejoin(self, node: int) -> None:
        self._do("rejoin", node)

    def _do(self, action: str, node: int) -> None:
        assert self.held.wait(PATIENCE_S)
        if node == 3:
            raise NodeControlError("node 3 is not running")
        self.done.append((action, node))


class PlaygroundBrowser(RawBrowser):
    """Asks a console that has a playground."""

    def __init__(self) -> None:
        super().__init__()
        self.nodes, self.life = Nodes(), Life("127.0.0.1:1")
        routes = Playground(self.nodes, self.life, self.picture).routes()
        endpoints = ConsoleEndpoints(PageStreams(self.picture, self.pages), Assets(), routes)
        self.gate = ConsoleGate(endpoints.application(), [HOST], 7000)


@pytest.fixture
async def player() -> PlaygroundBrowser:
    """One who has been let in."""
    browser = PlaygroundBrowser()
    await browser.enter()
    return browser


async def test_a_node_is_killed_once_and_started_again(player: PlaygroundBrowser) -> None:
    requests = [
        ("kill", 204),
        ("kill", 409),
        ("pause", 409),
        ("resume", 409),
        ("start", 204),
        ("pause", 204),
        ("resume", 204),
        ("rejoin", 409),
        ("cut", 204),
        ("kill", 409),
        ("rejoin", 204),
    ]
    for action, status in requests:
        assert (await player.ask(f"/playground/nodes/1/{action}", "POST", OURS)).status == status, action
    done = ["kill", "start", "pause", "resume", "cut", "rejoin"]
    assert player.nodes.done == [(action, 1) for action in done]


async def test_two_clicks_are_one_kill(player: PlaygroundBrowser) -> None:
    player.nodes.held.clear()
    clicks = [asyncio.create_task(player.ask("/playground/nodes/2/kill", "POST", OURS)) for _ in range(2)]
    await asyncio.sleep(0)
    player.nodes.held.set()
    assert sorted([(await click).status for click in clicks]) == [204, 409]
    assert player.nodes.done == [("kill", 2)]


async def test_what_cannot_be_done_is_said_in_a_line(player: PlaygroundBrowser) -> None:
    answer = await player.ask("/playground/nodes/3/kill", "POST", OURS)
    assert (answer.status, answer.text) == (409, "node 3 is not running\n")


@pytest.mark.parametrize(
    "path", ["/playground/nodes/9/kill", "/playground/nodes/1/erase", "/playground/nodes/1/__init__"]
)
async def test_there_is_nothing_else_to_be_done(player: PlaygroundBrowser, path: str) -> None:
    assert (await player.ask(path, "POST", OURS)).status == 404


@pytest.mark.parametrize("path", ["/playground/nodes/1/kill", "/playground/pace/9", "/playground/check"])
async def test_nothing_is_done_by_a_link_or_by_another_page(player: PlaygroundBrowser, path: str) -> None:
    assert (await player.ask(path)).status == 405
    assert (await player.ask(path, "POST")).status == 403
    assert (await player.ask(path, "POST", ("origin", "http://evil.example"))).status == 403
    assert player.nodes.done == []


async def test_the_pace_has_a_limit(player: PlaygroundBrowser) -> None:
    assert (await player.ask("/playground/pace/7", "POST", OURS)).status == 204
    assert player.life.per_second == 7
    await player.ask("/playground/pace/999999999", "POST", OURS)
    assert player.life.per_second == MOST_PER_SECOND


@pytest.mark.parametrize("path", ["/playground/nodes/1/kill", "/playground/pace/9", "/playground/check"])
async def test_a_console_of_somebodys_cluster_has_none_of_it(path: str) -> None:
    browser = RawBrowser()
    await browser.enter()
    assert (await browser.ask(path, "POST", OURS)).status == 404


@pytest.mark.cluster
async def test_what_retention_has_removed_is_not_missing() -> None:
    with LocalCluster(1) as cluster:
        life = Life(cluster.bootstrap_servers, 500)
        living = asyncio.create_task(life.run())
        async with asyncio.timeout(60), AsyncAdmin(bootstrap_servers=cluster.bootstrap_servers) as admin:
            while life.acknowledged < 300:  # noqa: ASYNC110 - no event reports it
                await asyncio.sleep(0.05)
            await admin.delete_records({TopicPartition("orders", 0): 10, TopicPartition("orders", 1): 7})
            found = await life.read_back()
            living.cancel()
            await asyncio.wait([living])
    assert (found.missing, found.removed) == (0, 17)
    assert found.compared >= 283


@pytest.mark.cluster
def test_kafkas_clients_reach_the_playground_and_a_node_that_is_cut_off_is_so_for_them_too() -> None:
    with playground_nodes(1, kafka=True) as nodes:
        reported: list[KafkaError | None] = []
        quick = {"message.timeout.ms": 2_000, "topic.metadata.refresh.interval.ms": 500, "log_level": 0}
        producer = Producer({"bootstrap.servers": nodes.kafka_bootstrap_servers, **quick})

        def sent() -> bool:
            producer.produce("orders", b"3 apples", on_delivery=lambda error, _: reported.append(error))
            return producer.flush(PATIENCE_S) == 0 and reported.pop() is None

        with Admin(bootstrap_servers=nodes.bootstrap_servers) as admin:
            admin.create_topics([NewTopic("orders", 1)])
        until(sent, "the first record is taken")
        nodes.cut(1)
        assert not sent()
        nodes.rejoin(1)
        until(sent, "records are taken again")


@pytest.mark.browser
@pytest.mark.cluster
@needs_chromium
def test_the_page_says_where_kafkas_clients_are_served() -> None:
    options = ("--playground", "--nodes", "1", "--kafka")
    with running_console("127.0.0.1:1", *options) as url, chromium() as browser, looking(browser, url) as look:
        said = look.page.locator(".kafka")
        expect(said).to_contain_text("bootstrap.servers", timeout=PATIENCE_MS)
        servers = said.locator("code").inner_text().partition("=")[2]
        assert AdminClient({"bootstrap.servers": servers}).list_topics(timeout=PATIENCE_S).brokers.keys() == {1}
        assert (look.said, look.strangers()) == ([], [])


@pytest.mark.browser
@pytest.mark.cluster
@needs_chromium
def test_where_no_leader_is_up_nothing_is_led_and_nothing_runs() -> None:
    options = ("--playground", "--nodes", "1")
    with running_console("127.0.0.1:1", *options) as url, chromium() as browser, looking(browser, url) as look:
        page = look.page
        expect(page.locator(".flow").first).to_be_attached(timeout=PATIENCE_MS)
        page.get_by_role("button", name="Kill node 1").click()
        expect(page.locator(".health")).to_contain_text("without a leader that is up", timeout=PATIENCE_MS)
        expect(page.locator(".tiles div", has_text="Partitions led").locator("dd")).to_contain_text("0of")
        expect(page.locator(".flow")).to_have_count(0)
        expect(page.locator(".rate").first).to_have_text("–")
        page.get_by_role("button", name="Start node 1").click()
        expect(page.locator(".health")).to_have_text("all well", timeout=PATIENCE_MS)
        expect(page.locator(".flow").first).to_be_attached(timeout=PATIENCE_MS)


@pytest.mark.browser
@pytest.mark.cluster
@needs_chromium
def test_neither_the_playground_nor_the_way_of_a_record_breaks_a_rule_of_accessibility() -> None:
    options = ("--playground", "--nodes", "1", "--kafka")
    with (
        running_console("127.0.0.1:1", *options) as url,
        chromium() as browser,
        looking(browser, url, bypass_csp=True) as look,
    ):
        page, broken = look.at("/?lesson=leader"), []
        expect(page.locator(".lesson")).to_be_visible(timeout=PATIENCE_MS)
        broken += broken_rules(page, "the playground")
        page = look.at("/topics/orders")
        page.get_by_text("Send a record").click(timeout=PATIENCE_MS)
        page.get_by_role("button", name="Send and explain").click()
        expect(page.locator(".way")).to_be_visible(timeout=PATIENCE_MS)
        broken += broken_rules(page, "the way")
        page = look.at("/topics/orders/0/0")
        expect(page.locator("[data-part=value]")).to_be_visible(timeout=PATIENCE_MS)
        assert broken + broken_rules(page, "a record") == []


@pytest.mark.browser
@pytest.mark.cluster
@needs_chromium
def test_a_node_is_killed_from_the_page_and_everything_acknowledged_is_there() -> None:
    with running_console("127.0.0.1:1", "--playground") as url, chromium() as browser, looking(browser, url) as look:
        page = look.page
        expect(page.locator("[data-partition]")).to_have_count(13, timeout=PATIENCE_MS)
        expect(page.locator("[data-group=fraud]")).to_be_visible(timeout=PATIENCE_MS)
        page.get_by_role("button", name="Kill node 1").click()
        expect(page.locator("[data-node='1']")).to_have_attribute("data-state", "down", timeout=PATIENCE_MS)
        expect(page.locator("[data-leader='1']")).to_have_count(0, timeout=PATIENCE_MS)
        page.get_by_role("button", name="Read everything back").click()
        expect(page.locator(".verdict")).to_contain_text("acknowledged records found", timeout=PATIENCE_MS)
        PICTURES.mkdir(parents=True, exist_ok=True)
        page.screenshot(path=PICTURES / "playground.png", full_page=True)
        page.get_by_role("button", name="Start node 1").click()
        expect(page.locator(".health")).to_have_text("all well", timeout=PATIENCE_MS)
        page.get_by_role("button", name="Pause node 2").click()
        expect(page.locator("[data-node='2']")).to_have_attribute("data-state", "down", timeout=PATIENCE_MS)
        page.get_by_role("button", name="Resume node 2").click()
        expect(page.locator(".health")).to_have_text("all well", timeout=PATIENCE_MS)
        assert (look.said, look.strangers()) == ([], [])


@pytest.mark.timeout(400)
@pytest.mark.browser
@pytest.mark.cluster
@needs_chromium
def test_lessons_are_passed_by_doing_what_they_say() -> None:
    with running_console("127.0.0.1:1", "--playground") as url, chromium() as browser, looking(browser, url) as look:
        page = look.page
        expect(page.locator("[data-group=fraud]")).to_be_visible(timeout=PATIENCE_MS)

        def done(steps: int) -> None:
            expect(page.locator(".lesson")).to_have_attribute("data-done", str(steps), timeout=PATIENCE_MS)

        def meant() -> str:
            """The node that the lesson is about: the leader when it started."""
            done(0)
            found = re.search(r"\bnode (\d)\b", page.locator(".lesson li.now").inner_text(), re.IGNORECASE)
            assert found is not None
            return found[1]

        def act(what: str, node: int | str) -> None:
            page.get_by_role("button", name=f"{what} node {node}").click(timeout=PATIENCE_MS)

        page.get_by_role("link", name="A leader dies").click()
        leader = meant()
        act("Kill", leader)
        done(2)
        page.get_by_role("button", name="Read everything back").click()
        done(3)
        act("Start", leader)
        done(4)
        expect(page.locator(".shows")).to_contain_text("None is missing")
        expect(page.locator(".health")).to_have_text("all well", timeout=PATIENCE_MS)

        page.get_by_role("link", name="Two of three are down").click()
        done(0)
        act("Kill", 1)
        act("Kill", 2)
        done(2)
        act("Start", 1)
        done(3)
        act("Start", 2)
        page.get_by_role("button", name="Read everything back").click()
        done(4)
        expect(page.locator(".health")).to_have_text("all well", timeout=PATIENCE_MS)

        page.get_by_role("link", name="Paused is worse than dead").click()
        leader = meant()
        act("Pause", leader)
        done(2)
        act("Resume", leader)
        done(3)
        page.get_by_role("button", name="Read everything back").click()
        done(4)
        expect(page.locator(".health")).to_have_text("all well", timeout=PATIENCE_MS)

        page.get_by_role("link", name="Alone on the wrong side").click()
        leader = meant()
        act("Cut off", leader)
        done(2)
        expect(page.locator(f"[data-node='{leader}']")).to_have_attribute("data-state", "down", timeout=PATIENCE_MS)
        act("Rejoin", leader)
        done(3)
        page.get_by_role("button", name="Read everything back").click()
        done(4)
        PICTURES.mkdir(parents=True, exist_ok=True)
        page.screenshot(path=PICTURES / "lesson.png", full_page=True)
        assert look.strangers() == []

"""The poller on scripted clients: what it asks for, and that no old news gets onto a page."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest
from scripted_console import ScriptedClients, StableOffsets, broker, cluster, group, partition, topic, transaction

from quorumlog.console.poller import MAX_ENDS, MAX_GROUPS, OpenPages, PageWish, Poller
from quorumlog.console.shared_state import SharedState, Thing
from quorumlog.console.transactions import MAX_DESCRIBED, MAX_HELD, MAX_LISTED, MAX_PARTICIPANTS, UNFINISHED
from quorumlog.sdk import (
    ClusterChange,
    GroupState,
    LogDescription,
    OffsetAndMetadata,
    PartitionReassignment,
    QuorumlogError,
    ReplicaCopy,
    TopicPartition,
    TransactionState,
)
from quorumlog.sdk.errors import AuthorizationFailedError, NetworkError, RequestTimedOutError

GROUPS, TRANSACTIONS = topic("__groups"), topic("__transactions")
ORDERS = TopicPartition("orders", 0)


class Console:
    """A poller on scripted clients, with a clock that the test moves."""

    def __init__(self) -> None:
        self.now_s = 100.0
        self.clients, self.picture, self.pages = ScriptedClients(), SharedState(), OpenPages()
        self.stable = StableOffsets()
        self.poller = Poller(self.clients, self.clients, self.stable, self.picture, self.pages, lambda: self.now_s)

    def thing(self, key: str) -> Thing | None:
        shown = self.picture.since(None)["set"]
        assert isinstance(shown, dict)
        found = shown.get(key)
        assert found is None or isinstance(found, dict)
        return found

    def things(self, prefix: str) -> dict[str, Thing]:
        shown = self.picture.since(None)["set"]
        assert isinstance(shown, dict)
        return {key: thing for key, thing in shown.items() if key.startswith(prefix)}

    async def hear(self, *, after_s: float = 0.25) -> None:
        self.now_s += after_s
        await self.poller.ask_metadata()


@pytest.fixture
def console() -> Console:
    return Console()


# -- no old news ------------------------------------------------------------------------------------------------------


async def test_a_leader_epoch_never_goes_back_whatever_the_order_of_answers(console: Console) -> None:
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    chance = random.Random(seed)
    history = [partition(0, leader=1 + epoch % 3, epoch=epoch, changes=epoch // 2) for epoch in range(1, 40)]
    newest = shown_before = 0
    for _ in range(400):
        newest = min(len(history) - 1, newest + chance.randrange(2))
        console.clients.topics = [topic("orders", history[max(0, newest - chance.randrange(12))])]
        await console.hear(after_s=chance.choice((0.01, 0.25, 3.0)))
        shown = console.thing("partition/orders/0")
        assert shown is not None and isinstance(shown["epoch"], int)
        assert shown["epoch"] >= shown_before
        assert shown["leader"] == 1 + shown["epoch"] % 3, "the leader is of that epoch"
        shown_before = shown["epoch"]


async def test_a_partition_that_has_lost_its_leader_is_shown_so_in_the_same_epoch(console: Console) -> None:
    console.clients.topics = [topic("orders", partition(leader=1, epoch=4, changes=7))]
    await console.hear()
    console.clients.topics = [topic("orders", partition(leader=None, epoch=4, changes=8))]
    await console.hear()
    assert console.thing("partition/orders/0") == replace_leader(None, 4)
    console.clients.topics = [topic("orders", partition(leader=1, epoch=4, changes=7))]
    await console.hear()
    assert console.thing("partition/orders/0") == replace_leader(None, 4)


def replace_leader(leader: int | None, epoch: int) -> Thing:
    return {
        "topic": "orders",
        "partition": 0,
        "leader": leader,
        "epoch": epoch,
        "replicas": [1, 2, 3],
        "isr": [1, 2, 3],
        "witness": None,
    }


async def test_a_new_leader_counts_before_the_replicas_in_sync_are_known_anew(console: Console) -> None:
    console.clients.topics = [topic("orders", replace(partition(leader=1, epoch=4, changes=8), isr=(1, 2)))]
    await console.hear()
    console.clients.topics = [topic("orders", partition(leader=2, epoch=5, changes=7))]
    await console.hear()
    assert console.thing("partition/orders/0") == {**replace_leader(2, 5), "isr": [1, 2]}


async def test_a_topic_does_not_blink_when_one_node_has_not_heard_of_it(console: Console) -> None:
    both = console.clients.topics = [topic("orders"), topic("payments")]
    await console.hear()
    console.clients.topics, console.clients.committed_topics = [topic("orders")], both
    for _ in range(10):
        await console.hear(after_s=1.0)
        await console.poller.settle_doubts()
        assert console.thing("topic/payments") is not None
    console.clients.committed_topics = [topic("orders")]
    await console.hear(after_s=0.6)
    await console.poller.settle_doubts()
    assert console.thing("topic/payments") is None
    assert console.thing("partition/payments/0") is None


async def test_lists_that_agree_are_not_confirmed(console: Console) -> None:
    for _ in range(3):
        await console.hear()
        await console.poller.settle_doubts()
    assert console.clients.calls("list_committed_topics") == []


async def test_unconfirmed_lists_delete_nothing(console: Console) -> None:
    await console.hear()
    console.clients.topics, console.clients.committed_topics = [], QuorumlogError("no controller is active")
    for _ in range(5):
        await console.hear(after_s=10.0)
        await console.poller.ask_once("topics", console.poller.settle_doubts)
        assert console.thing("topic/orders") is not None
    assert console.thing("trouble") == {"topics": "no controller is active"}


async def test_topics_newer_than_the_list_stay(console: Console) -> None:
    """The linearizable list was requested before the topic was created."""
    await console.hear()
    console.clients.topics = []
    await console.hear()
    console.poller.image.take_topics([topic("payments")], console.now_s + 1)
    console.poller.image.take_confirmed_list([topic("orders")], console.now_s, console.now_s + 2)
    assert [name.name for name, _ in console.poller.image.topics()] == ["orders", "payments"]


async def test_a_deleted_topic_is_not_back_because_one_node_still_has_it(console: Console) -> None:
    both = console.clients.topics = [topic("orders"), topic("payments")]
    await console.hear()
    console.clients.topics = console.clients.committed_topics = [topic("orders")]
    await console.hear(after_s=1.1)
    await console.poller.settle_doubts()
    console.clients.topics = both
    for _ in range(10):
        await console.hear(after_s=6.0)
        assert console.thing("topic/payments") is None
        await console.poller.settle_doubts()
        assert console.thing("topic/payments") is None
    console.clients.committed_topics = both
    await console.hear(after_s=1.0)
    await console.poller.settle_doubts()
    assert console.thing("topic/payments") is not None, "the cluster has it, such as after a change of rights"


async def test_an_earlier_topic_of_the_name_stays_deleted(console: Console) -> None:
    first = topic("orders", replace(partition(leader=1, epoch=9, changes=9), group_id=10), topic_id="first")
    second = topic("orders", replace(partition(leader=3, epoch=1, changes=1), group_id=20), topic_id="second")
    for shown in (second, first, second, first):
        console.clients.topics = [shown]
        await console.hear()
        assert console.thing("partition/orders/0") == replace_leader(3, 1)


async def test_a_topic_created_anew_begins_with_its_own_epochs(console: Console) -> None:
    console.clients.topics = [topic("orders", partition(leader=1, epoch=9, changes=9), topic_id="first")]
    await console.hear()
    console.clients.topics = [topic("orders", partition(leader=3, epoch=1, changes=1), topic_id="second")]
    await console.hear()
    assert console.thing("partition/orders/0") == replace_leader(3, 1)
    console.clients.topics = [topic("orders", partition(leader=1, epoch=9, changes=9), topic_id="first")]
    await console.hear()
    assert console.thing("partition/orders/0") == replace_leader(3, 1)


async def test_a_node_that_knows_less_does_not_bring_a_fenced_one_back(console: Console) -> None:
    console.clients.fence(2)
    await console.hear()
    console.clients.cluster = cluster(age_ms=800)
    await console.hear(after_s=0.25)
    node = console.thing("node/2")
    assert node is not None and node["state"] == "down"
    console.clients.cluster = cluster(age_ms=0)
    await console.hear(after_s=0.25)
    node = console.thing("node/2")
    assert node is not None and node["state"] == "up"


async def test_old_views_are_shown_when_there_are_no_others(console: Console) -> None:
    await console.hear()
    console.clients.cluster = replace(cluster(age_ms=None), controller_id=None)
    await console.hear()
    assert (console.thing("cluster") or {})["controller"] == 1
    await console.hear(after_s=2.5)
    assert (console.thing("cluster") or {})["controller"] is None


async def test_another_cluster_behind_the_addresses_is_shown_from_its_beginning(console: Console) -> None:
    console.clients.cluster = cluster(broker(1, epoch=9), broker(2, epoch=9))
    console.clients.topics = [topic("orders", partition(epoch=9, changes=9))]
    await console.hear()
    console.clients.cluster = cluster(broker(1), cluster_id="another")
    console.clients.topics = [topic("orders", partition(epoch=1, changes=1))]
    await console.hear()
    assert console.thing("partition/orders/0") == replace_leader(1, 1)
    assert console.thing("node/2") is None


# -- what is asked ----------------------------------------------------------------------------------------------------


async def test_nothing_is_asked_while_no_page_is_open(console: Console) -> None:
    running = asyncio.create_task(console.poller.run())
    for _ in range(20):
        await asyncio.sleep(0)
    assert console.clients.asked == []
    page = object()
    console.pages.open(page, PageWish())
    async with asyncio.timeout(30):
        await console.picture.newer_than(0)
    running.cancel()


async def test_a_node_that_does_not_answer_is_down_before_the_controller_knows(console: Console) -> None:
    await console.hear()
    refused = NetworkError("no connection to 127.0.0.1:9002: Connection refused")
    console.clients.silent = {2: refused}
    await console.poller.ask_nodes()
    node = console.thing("node/2")
    assert node is not None
    assert (node["state"], node["reason"], node["fenced"]) == ("down", refused.message, False)
    console.clients.silent = {}
    await console.poller.ask_nodes()
    node = console.thing("node/2")
    assert node is not None
    assert (node["state"], node["reason"]) == ("up", "")


async def test_a_slow_node_is_not_down(console: Console) -> None:
    """It is without an answer, after a while, and up again with the first answer."""
    await console.hear()
    await console.poller.ask_nodes()
    console.clients.silent = {2: RequestTimedOutError("127.0.0.1:9002 did not answer in time")}
    seen = []
    for _ in range(10):
        console.now_s += 1
        await console.poller.ask_nodes()
        node = console.thing("node/2") or {}
        seen.append((node["state"], node["silent_s"]))
    assert seen[:2] == [("up", None)] * 2
    assert seen[2:] == [("no answer", seconds) for seconds in range(3, 11)]
    console.clients.silent = {}
    await console.poller.ask_nodes()
    node = console.thing("node/2") or {}
    assert (node["state"], node["silent_s"]) == ("up", None)


async def test_a_stalled_console_blames_no_node(console: Console) -> None:
    """The console has not run for a minute: the answers had arrived, and it had not read them."""
    await console.hear()
    await console.poller.ask_nodes()
    console.now_s += 60
    console.clients.silent = {each: RequestTimedOutError("did not answer in time") for each in (1, 2, 3)}
    await console.poller.ask_nodes()
    console.clients.silent = {}
    assert {node["state"] for node in console.things("node/").values()} == {"up"}


@pytest.mark.parametrize(
    "cause",
    ["connection attempt timed out", "connect() timed out", "ping_timeout)", "tcp handshaker shutdown"],
)
async def test_connections_without_answer_are_silence(console: Console, cause: str) -> None:
    """The node runs and has no processor."""
    await console.hear()
    console.clients.silent = {2: NetworkError(f"no connection to 127.0.0.1:9002: {cause}")}
    await console.poller.ask_nodes()
    assert (console.thing("node/2") or {})["state"] == "up"
    console.now_s += 5
    await console.poller.ask_nodes()
    assert (console.thing("node/2") or {})["state"] == "no answer"


async def test_a_broken_connection_is_made_again_first(console: Console) -> None:
    await console.hear()
    console.clients.breaks = {2: 1}
    await console.poller.ask_nodes()
    assert (console.thing("node/2") or {})["state"] == "up"
    assert console.clients.calls("describe_node").count("127.0.0.1:9002") == 2


async def test_a_fenced_node_is_down(console: Console) -> None:
    console.clients.fence(2)
    await console.hear()
    await console.poller.ask_nodes()
    node = console.thing("node/2") or {}
    assert (node["state"], node["reason"]) == ("down", "fenced by the controller")


async def test_a_refusal_is_an_answer(console: Console) -> None:
    await console.hear()
    console.clients.silent = {2: AuthorizationFailedError("User:anna may not DESCRIBE the cluster")}
    for _ in range(5):
        console.now_s += 5
        await console.poller.ask_nodes()
    assert (console.thing("node/2") or {})["state"] == "up"


async def test_without_a_topic_of_groups_nobody_asks_for_groups_which_would_make_it(console: Console) -> None:
    await console.hear()
    await console.poller.ask_groups()
    assert console.clients.calls("list_groups") == []
    console.clients.topics = [GROUPS, topic("orders")]
    await console.hear()
    await console.poller.ask_groups()
    assert len(console.clients.calls("list_groups")) == 1


async def test_ends_are_asked_for_what_pages_show_and_never_for_more_than_the_most(console: Console) -> None:
    many = [partition(number) for number in range(50)]
    console.clients.topics = [topic("a", *many), topic("b", *many), topic("c", *many)]
    await console.hear()
    first, second = object(), object()
    console.pages.open(first, PageWish(topics=("c",)))
    await console.poller.ask_ends()
    assert [tp.topic for tp in asked_ends(console)] == ["c"] * 50
    console.pages.open(second, PageWish())
    await console.poller.ask_ends()
    assert len(asked_ends(console)) == MAX_ENDS
    console.pages.close(first)
    console.pages.close(second)
    console.pages.open(first, PageWish(topics=("no such topic",)))
    console.clients.asked.clear()
    await console.poller.ask_ends()
    assert console.clients.asked == []
    assert console.thing("end/c/0") is None, "no page shows it any longer"


def asked_ends(console: Console) -> list[TopicPartition]:
    last = console.clients.calls("end_offsets")[-1]
    assert isinstance(last, list)
    return last


async def test_ends_of_partitions_of_a_silent_leader_are_not_waited_for(console: Console) -> None:
    three = (partition(number, leader) for number, leader in enumerate((1, 2, None)))
    console.clients.topics = [topic("orders", *three)]
    await console.hear()
    console.pages.open(object(), PageWish())
    console.clients.silent = {2: NetworkError("no connection: Connection refused")}
    await console.poller.ask_nodes()
    await console.poller.ask_ends()
    assert console.clients.calls("end_offsets") == [[TopicPartition("orders", 0)]]


async def test_growth_is_told_in_records_per_second_and_offsets_as_text(console: Console) -> None:
    tp = TopicPartition("orders", 0)
    await console.hear()
    console.pages.open(object(), PageWish())
    console.clients.ends = {tp: 2**62}
    await console.poller.ask_ends()
    assert console.thing("end/orders/0") == {"end": str(2**62), "rate": None}
    console.now_s += 2
    console.clients.ends = {tp: 2**62 + 300}
    await console.poller.ask_ends()
    assert console.thing("end/orders/0") == {"end": str(2**62 + 300), "rate": 150}


async def test_a_group_shows_who_reads_what_and_how_far_behind_it_is(console: Console) -> None:
    read, forgotten = TopicPartition("orders", 0), TopicPartition("orders", 1)
    console.clients.topics = [GROUPS, topic("orders", partition(0), partition(1))]
    console.clients.groups = {"billing": group("billing", [read])}
    console.clients.committed = {"billing": {read: OffsetAndMetadata(40), forgotten: OffsetAndMetadata(7)}}
    console.clients.ends = {read: 100, forgotten: 9}
    await console.hear()
    console.pages.open(object(), PageWish())
    await console.poller.ask_ends()
    await console.poller.ask_groups()
    assert console.thing("group/billing") == {"id": "billing", "state": "Stable", "members": 1}
    detail = console.thing("detail/billing")
    assert detail is not None
    assert (detail["lag"], detail["unknown"], detail["coordinator"]) == ("62", 0, 2)
    assert detail["rows"] == [
        {"topic": "orders", "partition": 0, "committed": "40", "end": "100", "lag": "60", "owner": 0},
        {"topic": "orders", "partition": 1, "committed": "7", "end": "9", "lag": "2", "owner": None},
    ]


async def test_a_group_is_nowhere_shown_to_be_ahead_of_the_end(console: Console) -> None:
    """It has read and committed on since the look at the end."""
    tp = TopicPartition("orders", 0)
    console.clients.topics = [GROUPS, topic("orders")]
    console.clients.groups = {"billing": group("billing", [tp])}
    console.clients.committed = {"billing": {tp: OffsetAndMetadata(107)}}
    console.clients.ends = {tp: 100}
    await console.hear()
    console.pages.open(object(), PageWish())
    await console.poller.ask_ends()
    await console.poller.ask_groups()
    detail = console.thing("detail/billing")
    assert detail is not None and detail["lag"] == "0"
    assert detail["rows"] == [
        {"topic": "orders", "partition": 0, "committed": "107", "end": "107", "lag": "0", "owner": 0}
    ]


async def test_a_move_is_shown_with_what_is_copied_of_it(console: Console) -> None:
    place = TopicPartition("orders", 0)
    console.clients.moves = {place: PartitionReassignment((1, 2, 3), (3,), (1,), 1_000)}
    others = (ReplicaCopy("orders", 1, 3, 7, 7), ReplicaCopy("orders", 0, 2, 7, 7))
    console.clients.copies = [ReplicaCopy("orders", 0, 3, 2**60, 2**59), *others]
    await console.poller.ask_metadata()
    await console.poller.ask_nodes()
    await console.poller.ask_quorum()
    assert console.things("move/") == {
        "move/orders/0": {
            "topic": "orders",
            "partition": 0,
            "replicas": [1, 2, 3],
            "adding": [3],
            "removing": [1],
            "throttle": 1_000,
            "copies": {"3": {"size": str(2**60), "left": str(2**59)}},
        }
    }
    console.clients.moves.clear()
    await console.poller.ask_quorum()
    assert console.things("move/") == {}


async def test_no_more_groups_are_described_than_the_most_and_those_that_a_page_names_first(console: Console) -> None:
    console.clients.topics = [GROUPS]
    console.clients.groups = {f"group-{number:02}": group(f"group-{number:02}") for number in range(40)}
    await console.hear()
    console.pages.open(object(), PageWish())
    console.pages.open(object(), PageWish(groups=("group-33", "deleted")))
    await console.poller.ask_groups()
    (described,) = console.clients.calls("describe_groups")
    assert isinstance(described, list)
    assert len(described) == MAX_GROUPS and described[0] == "group-33" and "deleted" not in described
    shown = console.thing("group/group-39")
    assert shown is not None and shown["state"] == GroupState.STABLE.value


async def test_a_round_that_fails_is_said_on_the_page_and_the_next_one_takes_it_back(console: Console) -> None:
    await console.hear()
    console.clients.failure = QuorumlogError("no node answers")
    await console.poller.ask_once("quorum", console.poller.ask_quorum)
    assert console.thing("trouble") == {"quorum": "no node answers"}
    assert console.thing("cluster") is not None, "what was known stays"
    console.clients.failure = None
    await console.poller.ask_once("quorum", console.poller.ask_quorum)
    assert console.thing("trouble") is None
    assert (console.thing("quorum") or {})["high_watermark"] == str(2**62)


async def test_a_slow_round_is_no_trouble(console: Console) -> None:
    """On a busy machine a round fails now and then; the page says so once what it shows is outdated."""
    await console.hear()
    await console.poller.ask_once("quorum", console.poller.ask_quorum)
    console.clients.failure = RequestTimedOutError("127.0.0.1:9002 did not answer in time")
    for _ in range(9):
        console.now_s += 1
        await console.poller.ask_once("quorum", console.poller.ask_quorum)
        assert console.thing("trouble") is None
    console.now_s += 1
    await console.poller.ask_once("quorum", console.poller.ask_quorum)
    assert console.thing("trouble") == {"quorum": "127.0.0.1:9002 did not answer in time"}
    console.clients.failure = None
    await console.poller.ask_once("quorum", console.poller.ask_quorum)
    assert console.thing("trouble") is None


# -- transactions -----------------------------------------------------------------------------------------------------


async def test_transactions_are_polled_only_where_a_page_shows_them(console: Console) -> None:
    console.clients.topics = [topic("orders"), TRANSACTIONS]
    console.clients.transactions = {"billing": transaction("billing", TransactionState.ONGOING, ORDERS)}
    await console.hear()
    console.pages.open(object(), PageWish())
    await console.poller.ask_transactions()
    assert console.clients.calls("list_transactions") == [] and console.thing("transactions") is None
    page = object()
    console.pages.open(page, PageWish(transactions=()))
    await console.poller.ask_transactions()
    assert console.things("transaction").keys() == {"transactions", "transaction/billing"}
    console.pages.close(page)
    await console.poller.ask_transactions()
    assert len(console.clients.calls("list_transactions")) == 1
    assert console.things("transaction") == console.things("participants/") == {}, "the next page starts with nothing"


async def test_no_coordinator_is_asked_before_its_topic_exists(console: Console) -> None:
    """A request would create the topic."""
    await console.hear()
    console.pages.open(object(), PageWish(transactions=("billing",)))
    await console.poller.ask_transactions()
    assert console.thing("transactions") == {"total": 0, "unfinished": 0, "described": 0}
    assert console.clients.calls("list_transactions") == console.stable.asked == []


async def test_an_open_transaction_shows_what_it_holds_back(console: Console) -> None:
    console.clients.topics = [topic("orders", partition(0), partition(1, leader=None)), TRANSACTIONS]
    console.clients.ends = {ORDERS: 2**53 + 9}
    console.stable.stable = {ORDERS: 2**53 + 1}
    open_one = transaction("billing", TransactionState.ONGOING, TopicPartition("orders", 1), ORDERS)
    console.clients.transactions = {"billing": replace(open_one, groups={"etl": False})}
    await console.hear()
    console.pages.open(object(), PageWish(transactions=()))
    await console.poller.ask_ends()
    await console.poller.ask_transactions()
    assert console.thing("transaction/billing") == {
        "id": "billing",
        "state": "Ongoing",
        "started_ms": 1_000,
        "producer": str(2**53 + 1),
        "epoch": 3,
    }
    unknown = {"topic": "orders", "partition": 1, "missing": False, "stable": None, "end": None, "held": None}
    ends = {"stable": str(2**53 + 1), "end": str(2**53 + 9), "held": "8"}
    detail = console.thing("participants/billing")
    assert detail is not None
    assert detail["partitions"] == [unknown | {"partition": 0} | ends, unknown], "no leader, no answer"
    assert (detail["groups"], detail["participants"]) == ([{"id": "etl", "missing": False}], 3)
    assert detail["place"] == {"term": "4", "index": str(2**53 + 1)}
    console.stable.stable = {ORDERS: 2**53 + 20}
    await console.poller.ask_transactions()
    (row, _) = (console.thing("participants/billing") or {})["partitions"]  # type: ignore[misc]
    assert (row["end"], row["held"]) == (str(2**53 + 20), "0"), "the end was known before"


async def test_a_silent_leader_hides_no_other_partition(console: Console) -> None:
    two = TopicPartition("orders", 1)
    console.clients.topics = [topic("orders", partition(0), partition(1, leader=2)), TRANSACTIONS]
    console.stable.stable = {ORDERS: NetworkError("reset"), two: 7}
    console.clients.transactions = {"billing": transaction("billing", TransactionState.PREPARE_COMMIT, ORDERS, two)}
    await console.hear()
    console.pages.open(object(), PageWish(transactions=()))
    await console.poller.ask_transactions()
    detail = console.thing("participants/billing")
    assert detail is not None and [row["stable"] for row in detail["partitions"]] == [None, "7"]  # type: ignore[index, union-attr, call-overload]


async def test_no_more_transactions_are_shown_than_the_most_and_the_oldest_first(console: Console) -> None:
    wide = topic("wide", *(partition(number) for number in range(2 * MAX_PARTICIPANTS)))
    console.clients.topics = [wide, TRANSACTIONS]
    every = [TopicPartition("wide", number) for number in range(2 * MAX_PARTICIPANTS)]
    states = (TransactionState.COMPLETE_COMMIT, TransactionState.ONGOING)
    console.clients.transactions = {
        name: transaction(name, states[number % 2], *every, started_ms=9_000 - number)
        for number, name in enumerate(f"id-{number:04}" for number in range(2 * MAX_LISTED))
    }
    await console.hear()
    console.pages.open(object(), PageWish(transactions=("id-0000", "none")))
    await console.poller.ask_transactions()
    (described,) = console.clients.calls("describe_transactions")
    assert isinstance(described, list)
    assert (len(described), described[:2]) == (MAX_DESCRIBED, ["id-0000", f"id-{2 * MAX_LISTED - 1:04}"])
    assert [len(asked) for asked in console.stable.asked] == [MAX_HELD]
    shown = console.things("transaction/")
    assert len(shown) == MAX_LISTED and all(each["state"] == "Ongoing" for each in shown.values())
    total = {"total": 2 * MAX_LISTED, "unfinished": MAX_LISTED, "described": MAX_DESCRIBED - 1}
    assert console.thing("transactions") == total
    assert len((console.thing("participants/id-0000") or {})["partitions"]) == MAX_PARTICIPANTS  # type: ignore[arg-type]


async def test_many_ids_are_all_listed_less_often(console: Console) -> None:
    """In between, only those are listed that have not ended. How one has ended is not known until then."""
    console.clients.topics = [topic("orders"), TRANSACTIONS]
    ids = {f"id-{number:04}": transaction(f"id-{number:04}", TransactionState.EMPTY) for number in range(2_500)}
    console.clients.transactions = ids | {"billing": transaction("billing")}
    await console.hear()
    console.pages.open(object(), PageWish(transactions=()))
    await console.poller.ask_transactions()
    console.clients.transactions |= {
        "billing": transaction("billing", TransactionState.COMPLETE_ABORT),
        "new": transaction("new"),
    }
    console.now_s += 1
    await console.poller.ask_transactions()
    assert console.clients.calls("list_transactions") == [None, set(UNFINISHED)]
    assert (console.thing("transactions") or {})["unfinished"] == 1
    assert (console.thing("transaction/new") or {})["state"] == "Ongoing"
    assert "transaction/billing" not in console.things("transaction/"), "it is not among the first any longer"
    console.now_s += 2
    await console.poller.ask_transactions()
    assert console.clients.calls("list_transactions")[-1] is None


async def test_a_transaction_that_has_ended_since_is_shown_so(console: Console) -> None:
    console.clients.topics = [topic("orders"), TRANSACTIONS]
    console.clients.transactions = {name: transaction(name) for name in map(str, range(500))}
    await console.hear()
    console.pages.open(object(), PageWish(transactions=()))
    await console.poller.ask_transactions()
    console.clients.transactions["7"] = transaction("7", TransactionState.COMPLETE_COMMIT)
    console.now_s += 0.4
    await console.poller.ask_transactions()
    shown = console.thing("transaction/7")
    assert shown is not None and (shown["state"], shown["started_ms"]) == ("Ended", None)
    console.now_s += 0.2
    await console.poller.ask_transactions()
    assert (console.thing("transaction/7") or {})["state"] == "CompleteCommit"


# -- reports of nodes ------------------------------------------------------------------------------------

LOG = LogDescription(leader_epoch=3, high_watermark=50, log_start_offset=10, size_bytes=4_096)


class ToldConsole(Console):
    """A console whose nodes report changes. ``say`` lets one of them send a report."""

    async def begin(self) -> None:
        """Every node has reported everything."""
        await self.hear()
        for number in (1, 2, 3):
            self.clients.told[f"127.0.0.1:{9000 + number}"] = asyncio.Queue()
        self.poller.watches.follow(self.poller.image.brokers())
        for number in (1, 2, 3):
            await self.say(number, self.whole())
        self.clients.asked.clear()

    def whole(self) -> ClusterChange:
        return ClusterChange(is_whole=True, cluster=self.clients.cluster, topics=tuple(self.clients.topics))

    async def say(self, node: int, news: ClusterChange | QuorumlogError) -> None:
        self.clients.told[f"127.0.0.1:{9000 + node}"].put_nowait(news)
        for _ in range(5):
            await asyncio.sleep(0)


@pytest.fixture
async def told() -> AsyncIterator[ToldConsole]:
    made = ToldConsole()
    await made.begin()
    yield made
    await made.poller.watches.close()


async def test_what_a_node_tells_is_on_the_page_at_once_and_nobody_is_asked(told: ToldConsole) -> None:
    await told.say(2, ClusterChange(is_whole=False, topics=(topic("orders", partition(leader=2, epoch=2, changes=2)),)))
    assert told.thing("partition/orders/0") == replace_leader(2, 2)
    for _ in range(40):
        await told.hear()
    assert told.thing("partition/orders/0") == replace_leader(2, 2), "and it stays, though it is not reported again"
    assert told.clients.calls("describe_topics") == told.clients.calls("describe_cluster") == []


async def test_a_node_that_breaks_off_is_asked_at_once_and_shown_as_down(told: ToldConsole) -> None:
    told.clients.silent[2] = NetworkError("no connection to 127.0.0.1:9002: Connection refused")
    await told.say(2, NetworkError("reset"))
    assert told.clients.calls("describe_node") == ["127.0.0.1:9002"]
    assert (told.thing("node/2") or {})["state"] == "down"
    assert (told.thing("node/1") or {})["state"] == "up"


async def test_a_topic_whose_deletion_a_node_reports_is_gone(told: ToldConsole) -> None:
    for node in (2, 1, 3):
        await told.say(node, ClusterChange(is_whole=False, gone_topics=("orders",)))
        assert told.thing("topic/orders") is None
        await told.hear(after_s=1.1)
        assert told.thing("topic/orders") is None, "others may still list it"


async def test_a_late_report_of_deletion_spares_the_next_topic(told: ToldConsole) -> None:
    await told.say(1, ClusterChange(is_whole=False, gone_topics=("orders",)))
    second = topic("orders", replace(partition(leader=3), group_id=20), topic_id="second")
    await told.say(1, ClusterChange(is_whole=False, topics=(second,)))
    await told.say(2, ClusterChange(is_whole=False, gone_topics=("orders",)))
    assert (told.thing("topic/orders") or {})["id"] == "second"


async def test_what_was_not_told_any_more_is_forgotten_with_the_whole(told: ToldConsole) -> None:
    """Such as by a node that has restarted."""
    told.clients.committed_topics = [topic("payments")]
    for node in (1, 2, 3):
        await told.say(node, ClusterChange(is_whole=True, cluster=told.clients.cluster, topics=(topic("payments"),)))
    await told.hear(after_s=1.1)
    await told.poller.settle_doubts()
    assert told.thing("topic/payments") is not None and told.thing("topic/orders") is None


async def test_silence_deletes_no_topic(told: ToldConsole) -> None:
    """All nodes are paused for a minute; then a change of one topic is the first that is reported."""
    told.clients.topics = [topic("orders"), topic("payments")]
    for node in (1, 2, 3):
        await told.say(node, told.whole())
    told.now_s += 60
    change = topic("orders", partition(leader=2, epoch=2, changes=2))
    await told.say(1, ClusterChange(is_whole=False, topics=(change,)))
    assert told.things("topic/").keys() == {"topic/orders", "topic/payments"}
    assert told.thing("partition/orders/0") == replace_leader(2, 2)


async def test_no_history_deletes_an_existing_topic(told: ToldConsole) -> None:
    """Nodes apply one history of topics, each at its own pace, with pauses and restarts."""
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    chance = random.Random(seed)
    names, history = [f"topic-{number}" for number in range(6)], [{"orders": topic("orders")}]
    applied = dict.fromkeys((1, 2, 3), 0)

    def news(node: int, until: int) -> ClusterChange:
        before, after = history[applied[node]], history[until]
        applied[node] = until
        gone = tuple(name for name in before if name not in after)
        changed = tuple(each for name, each in after.items() if before.get(name) != each)
        return ClusterChange(is_whole=False, topics=changed, gone_topics=gone)

    for step in range(600):
        if chance.random() < 0.4:
            name, now = chance.choice(names), dict(history[-1])
            if now.pop(name, None) is None:
                now[name] = topic(name, replace(partition(), group_id=100 + step), topic_id=f"{name}-{step}")
            history.append(now)
        node, shown = chance.choice((1, 2, 3)), told.things("topic/")
        told.now_s += chance.choice((0.01, 0.3, 1.5, 30.0))
        match chance.choice(("news", "news", "news", "restart", "round", "round", "settle")):
            case "news":
                await told.say(node, news(node, chance.randrange(applied[node], len(history))))
            case "restart":
                applied[node] = chance.randrange(len(history))
                listed = tuple(history[applied[node]].values())
                await told.say(node, ClusterChange(is_whole=True, cluster=told.clients.cluster, topics=listed))
            case "round":
                await told.hear()
            case "settle":
                told.clients.committed_topics = list(history[-1].values())
                await told.poller.settle_doubts()
        for key, was in shown.items():
            kept = history[-1].get(key.removeprefix("topic/"))
            if kept is not None and kept.topic_id == was["id"]:
                assert (told.thing(key) or {}).get("id") == was["id"], f"step {step}: {key} exists"
    told.clients.committed_topics = list(history[-1].values())
    for node in (1, 2, 3):
        await told.say(node, news(node, len(history) - 1))
    for _ in range(3):
        await told.hear()
        await told.poller.settle_doubts()
    assert told.things("topic/").keys() == {f"topic/{name}" for name in history[-1]}


async def test_where_no_node_tells_anything_more_they_are_asked(told: ToldConsole) -> None:
    for node in (1, 2, 3):
        await told.hear()
        assert told.clients.calls("describe_topics") == []
        await told.say(node, NetworkError("it is gone"))
    told.clients.topics = [topic("orders", partition(leader=3, epoch=9, changes=9))]
    await told.hear()
    assert told.thing("partition/orders/0") == replace_leader(3, 9)
    assert told.clients.calls("describe_topics") == [None]


async def test_what_a_silent_node_has_told_does_not_count(told: ToldConsole) -> None:
    for node in (1, 2, 3):
        told.clients.silent[node] = NetworkError("no connection: Connection refused")
    await told.poller.ask_nodes()
    await told.hear()
    assert told.clients.calls("describe_topics") == [None]


async def test_ends_that_are_told_are_shown_of_all_partitions_and_not_asked_for(told: ToldConsole) -> None:
    wide = topic("wide", *(partition(number) for number in range(3 * MAX_ENDS)))
    logs = {TopicPartition("wide", number): LOG for number in range(3 * MAX_ENDS)}
    await told.say(1, ClusterChange(is_whole=False, topics=(wide,), logs=logs))
    told.pages.open(object(), PageWish())
    await told.poller.ask_ends()
    end: Thing = {"end": "50", "rate": None, "start": "10", "bytes": "4096"}
    assert told.thing(f"end/wide/{3 * MAX_ENDS - 1}") == end
    assert told.clients.calls("end_offsets") == [[TopicPartition("orders", 0)]], "only those that no node reports"
    told.now_s += 1
    await told.poller.ask_ends()
    assert told.thing("end/wide/0") == end | {"rate": 0.0}, "an end that is not reported again does not change"


@pytest.mark.parametrize(("start", "lag"), [(10, "50"), (40, "20"), (60, "0")])
async def test_lag_counts_from_the_log_start(told: ToldConsole, start: int, lag: str) -> None:
    tp = TopicPartition("orders", 0)
    told.clients.groups = {"billing": group("billing", [tp])}
    told.clients.committed = {"billing": {tp: OffsetAndMetadata(10)}}
    log = replace(LOG, high_watermark=60, log_start_offset=start)
    await told.say(1, ClusterChange(is_whole=False, topics=(GROUPS,), logs={tp: log}))
    told.pages.open(object(), PageWish())
    await told.poller.ask_ends()
    await told.poller.ask_groups()
    detail = told.thing("detail/billing")
    assert detail is not None and detail["lag"] == lag
    assert [(row["committed"], row["lag"]) for row in detail["rows"]] == [("10", lag)]


async def test_of_two_who_tell_of_a_log_who_leads_in_the_newer_epoch_is_right(told: ToldConsole) -> None:
    tp = TopicPartition("orders", 0)
    for node, log in ((1, LOG), (2, replace(LOG, leader_epoch=4, high_watermark=60)), (3, LOG)):
        await told.say(node, ClusterChange(is_whole=False, logs={tp: log}))
    await told.poller.ask_ends()
    shown = told.thing("end/orders/0")
    assert shown is not None and shown["end"] == "60"


async def test_without_a_page_nobody_is_watched(console: Console) -> None:
    console.clients.told["127.0.0.1:9001"] = asyncio.Queue()
    page = object()
    console.pages.open(page, PageWish())
    running = asyncio.create_task(console.poller.run())
    deadline_s = time.monotonic() + 30
    while "127.0.0.1:9001" not in console.clients.calls("watch_cluster"):
        assert time.monotonic() < deadline_s, "no node is watched"
        await asyncio.sleep(0)
    assert console.poller.watches.is_watching
    console.pages.close(page)
    while console.poller.watches.is_watching:
        assert time.monotonic() < deadline_s, "watched without an open page"
        await asyncio.sleep(0.01)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)

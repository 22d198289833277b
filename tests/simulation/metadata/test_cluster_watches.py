"""Watches of a cluster in virtual time: what is reported, when, and to whom."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from quiet_cluster import TOPIC, Quiet
from restricted_cluster import Restricted
from rights import rule
from sequenced_client import SequencedClient, make_leader

from quorumlog.server.requests.cluster_watches import MAX_WAIT_US, MAX_WATCHERS, TICK_US
from quorumlog.v1 import acls_pb2, admin_pb2
from quorumlog.v1.errors_pb2 import ErrorCode


@dataclass
class Watcher:
    """Asks one node again and again, and keeps the answers as a client would."""

    quiet: Quiet
    node: int = 1
    client: str = "watcher"
    answers: list[admin_pb2.WatchClusterResponse] = field(default_factory=list)
    told_at: list[int] = field(default_factory=list)
    leaders: dict[str, list[int]] = field(default_factory=dict)
    ends: dict[tuple[str, int], int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._ask(0, 0)

    def _ask(self, run: int, version: int) -> None:
        request = admin_pb2.WatchClusterRequest(run=run, version=version, timeout_ms=60_000)
        self.quiet.cluster.request(self.client, self.node, request, self._take)

    def _take(self, answer: object) -> None:
        if not isinstance(answer, admin_pb2.WatchClusterResponse):
            return  # The node is gone.
        self.answers.append(answer)
        self.told_at.append(self.quiet.scheduler.now)
        if answer.HasField("error"):
            return
        if answer.whole:
            self.leaders.clear()
            self.ends.clear()
        for topic in answer.topics:
            self.leaders[topic.name] = [each.leader for each in topic.partitions]
        for name in answer.gone_topics:
            self.leaders.pop(name, None)
        self.ends.update({(each.topic, each.partition): each.high_watermark for each in answer.logs})
        self._ask(answer.run, answer.version)

    @property
    def news(self) -> list[admin_pb2.WatchClusterResponse]:
        """The answers that said something."""
        return [
            each for each in self.answers if each.HasField("cluster") or each.topics or each.gone_topics or each.logs
        ]


@pytest.fixture
def quiet() -> Quiet:
    quiet = Quiet(11)
    quiet.until(lambda: bool(quiet.groups()) and quiet.led_by(quiet.groups()[0]) is not None, 5)
    quiet.run(2)
    return quiet


def test_first_everything_is_told_and_then_nothing_for_as_long_as_nothing_happens(quiet: Quiet) -> None:
    leader = quiet.led_by(quiet.groups()[0])
    watcher = Watcher(quiet)
    quiet.run(1)
    first = watcher.answers[0]
    assert first.whole and len(first.cluster.brokers) == 3
    assert watcher.leaders == {TOPIC: [leader]}
    settled = len(watcher.news)
    quiet.run(3 * MAX_WAIT_US / 1_000_000)
    assert len(watcher.news) == settled, "no watcher is woken without a change"
    assert len(watcher.answers) <= settled + 4, "but is notified that the node is alive"


def test_topics_come_change_and_go(quiet: Quiet) -> None:
    watcher = Watcher(quiet)
    quiet.create("more", 2)
    quiet.until(lambda: len(watcher.leaders.get("more", [])) == 2 and -1 not in watcher.leaders["more"], 2)
    assert not any(each.whole for each in watcher.answers[1:])
    deleted: list[object] = []
    request = admin_pb2.DeleteTopicsRequest(names=["more"], timeout_ms=3_000)
    quiet.cluster.request("admin", 2, request, deleted.append)
    quiet.until(lambda: "more" not in watcher.leaders, 2)
    assert TOPIC in watcher.leaders


def test_a_new_leader_is_told_of_at_once(quiet: Quiet) -> None:
    (group,) = quiet.groups()
    old = quiet.led_by(group)
    watchers = {node: Watcher(quiet, node) for node in (1, 2, 3) if node != old}
    quiet.run(1)
    assert old is not None
    quiet.cluster.processes[old].die(silent=False)
    quiet.until(lambda: quiet.led_by(group) not in (None, old), 5)
    took_s = quiet.until(lambda: all(each.leaders[TOPIC] == [quiet.led_by(group)] for each in watchers.values()), 2)
    assert took_s <= TICK_US / 1_000_000 + 0.1


def test_the_leader_tells_where_its_logs_end_and_at_most_five_times_a_second(quiet: Quiet) -> None:
    (group,) = quiet.groups()
    leader = quiet.led_by(group)
    assert leader is not None
    client, watcher = SequencedClient(quiet), Watcher(quiet, leader)
    quiet.run(1)
    before = len(watcher.news)
    began = quiet.scheduler.now
    for number in range(40):
        client.sent(f"v{number}", number)
        quiet.run(0.02)
    quiet.run(0.3)
    assert watcher.ends == {(TOPIC, 0): 40}
    seconds = (quiet.scheduler.now - began) / 1_000_000
    assert 3 <= len(watcher.news) - before <= seconds * 5 + 1
    gaps = [
        after - earlier
        for earlier, after in zip(watcher.told_at[before:-1], watcher.told_at[before + 1 :], strict=True)
    ]
    assert min(gaps) >= TICK_US - 5_000, "what a message may be delayed"
    assert watcher.news[-1].logs[0].HasField("size_bytes")


def test_a_change_between_two_questions_is_not_missed(quiet: Quiet) -> None:
    leader = quiet.led_by(quiet.groups()[0])
    assert leader is not None
    client = SequencedClient(quiet)
    first: list[object] = []
    quiet.cluster.request("w", leader, admin_pb2.WatchClusterRequest(timeout_ms=1), first.append)
    quiet.until(lambda: bool(first), 1)
    known = first[0]
    assert isinstance(known, admin_pb2.WatchClusterResponse)
    client.sent("v", 0)
    quiet.run(1)
    later: list[object] = []
    request = admin_pb2.WatchClusterRequest(run=known.run, version=known.version, timeout_ms=5_000)
    quiet.cluster.request("w", leader, request, later.append)
    quiet.until(lambda: bool(later), 1)
    reported = later[0]
    assert isinstance(reported, admin_pb2.WatchClusterResponse)
    assert not reported.whole and [each.high_watermark for each in reported.logs] == [1]


def test_who_comes_back_after_a_while_or_from_another_life_gets_everything(quiet: Quiet) -> None:
    first: list[object] = []
    quiet.cluster.request("w", 1, admin_pb2.WatchClusterRequest(timeout_ms=1), first.append)
    quiet.until(lambda: bool(first), 1)
    known = first[0]
    assert isinstance(known, admin_pb2.WatchClusterResponse)
    client = SequencedClient(quiet)
    quiet.run(30)
    client.sent("v", 0)  # No client watches now: it is not recorded.
    later: list[object] = []
    request = admin_pb2.WatchClusterRequest(run=known.run, version=known.version, timeout_ms=5_000)
    quiet.cluster.request("w", 1, request, later.append)
    quiet.until(lambda: bool(later), 1)
    reported = later[0]
    assert isinstance(reported, admin_pb2.WatchClusterResponse)
    assert reported.whole and reported.run != known.run


def test_watchers_are_bounded(quiet: Quiet) -> None:
    watchers = [Watcher(quiet, client=f"w{number}") for number in range(MAX_WATCHERS + 1)]
    quiet.run(1)
    refused = [each for each in watchers if each.answers[-1].HasField("error")]
    assert [each.answers[-1].error.code for each in refused] == [ErrorCode.SERVER_BUSY]


def test_what_one_may_not_describe_is_not_there_also_when_it_changes_and_goes() -> None:
    restricted = Restricted(12)
    restricted.create("secret")
    describe, topics = acls_pb2.ACL_OPERATION_DESCRIBE, acls_pb2.ACL_RESOURCE_TOPIC
    restricted.allow(rule("User:alice", describe, topics, TOPIC))
    watchers = {node: Watcher(restricted, node, "alice") for node in (1, 2, 3)}
    restricted.run(1)
    assert all(set(each.leaders) == {TOPIC} for each in watchers.values())
    assert {name for each in watchers.values() for name, _ in each.ends} == {TOPIC}
    reported = {node: len(each.news) for node, each in watchers.items()}
    answer = restricted.ask(
        "admin",
        admin_pb2.DeleteTopicsRequest(names=["secret"], timeout_ms=3_000),
        admin_pb2.DeleteTopicsResponse,
    )
    assert not answer.results[0].HasField("error")
    restricted.run(1)
    assert {node: len(each.news) for node, each in watchers.items()} == reported, "nor that it existed"
    restricted.withdraw("User:alice")
    restricted.run(1)
    assert all(each.leaders == {} and each.answers[-1].whole for each in watchers.values())
    restricted.allow(rule("User:alice", describe, topics, TOPIC))
    restricted.run(1)
    assert all(set(each.leaders) == {TOPIC} for each in watchers.values())


def test_a_leadership_that_moves_is_told_of_by_who_leads_now(quiet: Quiet) -> None:
    (group,) = quiet.groups()
    watchers = {node: Watcher(quiet, node) for node in (1, 2, 3)}
    quiet.run(1)
    to = next(node for node in (1, 2, 3) if node != quiet.led_by(group))
    make_leader(quiet, group, to)
    quiet.until(lambda: all(each.leaders[TOPIC] == [to] for each in watchers.values()), 3)
    newest = max(
        (log.leader_epoch, node) for node, each in watchers.items() for said in each.answers for log in said.logs
    )
    assert newest[1] == to

"""Nodes keep links with voters of the metadata quorum and nodes that share a Raft group, and with no others."""

from __future__ import annotations

import itertools

import pytest
from google.protobuf.message import Message as ProtoMessage
from quiet_cluster import SECOND, TOPIC, Quiet

from quorumlog.raft.types import Configuration
from quorumlog.server.config.options import BalanceOptions
from quorumlog.server.metadata.records import PartitionRecord, Topic
from quorumlog.server.node.needed_links import NeededLinks
from quorumlog.simulator.world.clients import Unanswered
from quorumlog.v1 import admin_pb2, peer_pb2
from quorumlog.v1.errors_pb2 import ErrorCode

MACHINES = ("a", "b", "c") * 4
VOTERS = (1, 2, 3)


class Frame:
    """The answers that a node sends to another one."""

    def __init__(self, answers: list[peer_pb2.ControllerResponse]) -> None:
        self.controller_responses = answers


class Workers(Quiet):
    """Three machines with four nodes each; the first node of each votes on metadata."""

    def __init__(self, seed: int, partitions: int, balance: BalanceOptions | None = None) -> None:
        super().__init__(seed, partitions, balance, nodes=len(MACHINES), machines=MACHINES)

    def create(self, name: str, partitions: int = 1, node: int = 1) -> None:
        """Creates a topic once all nodes count as up: its replicas are on all of them."""
        self.until(self._are_up, 5)
        super().create(name, partitions, node)

    def _are_up(self) -> bool:
        image = self.cluster.processes[1].image
        running = [node for node, process in self.cluster.processes.items() if process.running]
        return image is not None and not any(image.is_fenced(node) for node in running)

    def links(self) -> set[tuple[int, int]]:
        """Returns the pairs of nodes of which the first one keeps streams open to the second."""
        network = self.cluster.network
        return {pair for pair in itertools.permutations(self.cluster.node_ids, 2) if network.connected(*pair)}

    def records(self, topic: str) -> list[PartitionRecord]:
        image = self.cluster.processes[1].image
        assert image is not None
        return [record for record in image.partitions.values() if record.topic.name == topic]

    def needed(self, topic: str) -> set[tuple[int, int]]:
        """Returns the links that the nodes need for a topic and for the metadata."""
        pairs = set(itertools.permutations(self.cluster.node_ids, 2))
        shared = {pair for record in self.records(topic) for pair in itertools.permutations(record.replicas, 2)}
        return shared | {pair for pair in pairs if {*pair} & {*VOTERS}}

    def ask(self, node: int, request: ProtoMessage) -> ProtoMessage | Unanswered:
        answers: list[ProtoMessage | Unanswered] = []
        self.cluster.request("admin", node, request, answers.append)
        self.until(lambda: bool(answers), 5)
        return answers[0]


def test_links_grow_with_machines() -> None:
    """Three machines of four nodes have 78 links, of the 132 between all nodes."""
    workers = Workers(1, partitions=24)
    workers.run(3)
    assert workers.links() == workers.needed(TOPIC)
    assert len(workers.links()) == 78


def test_links_end_with_the_groups_they_served() -> None:
    """A topic's links end some time after it is deleted, and are opened again for the next one without an election
    timeout."""
    workers = Workers(2, partitions=24)
    workers.run(1)
    assert len(workers.links()) == 78
    deleted = workers.ask(5, admin_pb2.DeleteTopicsRequest(names=[TOPIC], timeout_ms=5_000))
    assert isinstance(deleted, admin_pb2.DeleteTopicsResponse)
    assert deleted.results[0].error.code == ErrorCode.NONE
    workers.run(0.5)
    assert len(workers.links()) == 78, "they are kept for a while"
    workers.run(2)
    assert len(workers.links()) == 60
    request = admin_pb2.CreateTopicsRequest(timeout_ms=5_000)
    request.topics.add(name="next", num_partitions=24, replication_factor=3)
    workers.ask(7, request)
    groups = [record.group for record in workers.records("next")]
    seconds = workers.until(lambda: None not in [workers.led_by(group) for group in groups], 3)
    print(f"leaders of a new topic after {seconds:.3f} s")
    # An election timeout is a second or more; opening a link takes up to 150 ms here.
    assert seconds < 0.5
    workers.run(0.5)
    assert len(workers.links()) == 78


def test_a_leader_without_a_link_is_asked_to_hand_over() -> None:
    """A node passes the request on by way of a voter, since it has no link to the leader."""
    workers = Workers(3, partitions=24, balance=BalanceOptions(enabled=False))
    workers.run(2)
    record = next(each for each in workers.records(TOPIC) if not {*each.replicas} & {*VOTERS})
    preferred = record.replicas[0]
    workers.cluster.processes[preferred].die(silent=False)
    workers.until(lambda: workers.led_by(record.group) not in (None, preferred), 5)
    workers.cluster.start(preferred)
    workers.run(3)
    leader = workers.led_by(record.group)
    asked = next(node for node in workers.cluster.node_ids if node not in {*record.replicas, *VOTERS})
    assert leader is not None
    assert not workers.cluster.network.connected(asked, leader)
    request = admin_pb2.ElectLeadersRequest(timeout_ms=2_000)
    request.partitions.add(topic=TOPIC, partition=record.number)
    answer = workers.ask(asked, request)
    assert isinstance(answer, admin_pb2.ElectLeadersResponse)
    assert [result.error.code for result in answer.results] == [ErrorCode.NONE], answer
    assert workers.led_by(record.group) == preferred


def test_voters_pass_on_elections_alone() -> None:
    """Other requests, and requests for nodes that a voter cannot reach, are answered at once and leave nothing."""
    workers = Workers(3, partitions=3)
    member = workers.cluster.processes[1].node._member  # type: ignore[union-attr]
    assert member is not None
    answers: list[peer_pb2.ControllerResponse] = []
    sent: list[peer_pb2.ControllerRequest] = []
    member._traffic.client.ask = lambda *args, **options: sent.append(args[1])  # type: ignore[method-assign]
    member._traffic._links.control_answer = lambda link: Frame(answers)  # type: ignore[method-assign,assignment]
    elect = peer_pb2.ElectPreferredLeaders(groups=[7], timeout_ms=100)
    for number, (target, known) in enumerate(((5, True), (5, False), (2**31 - 1, True)), start=1):
        request = peer_pb2.ControllerRequest(request_id=number, forward_to=target)
        if known:
            request.elect_preferred_leaders.CopyFrom(elect)
        else:
            request.heartbeat.node_id = 5
        member._traffic.on_request(4, request)
    assert [each.WhichOneof("body") for each in sent] == ["elect_preferred_leaders"]
    assert not sent[0].HasField("forward_to")
    assert [(each.request_id, each.error.code) for each in answers] == [
        (2, ErrorCode.REQUEST_TIMED_OUT),
        (3, ErrorCode.REQUEST_TIMED_OUT),
    ]
    assert member._traffic._links.find(2**31 - 1) is None


@pytest.mark.parametrize("seed", range(4, 7))
def test_nodes_that_were_down_find_their_links(seed: int) -> None:
    """Topics are created and deleted while a node is down. When it returns it has the links that it needs now."""
    workers = Workers(seed, partitions=24)
    workers.run(1)
    workers.cluster.processes[11].die(silent=False)
    workers.create("later", partitions=6)
    workers.ask(5, admin_pb2.DeleteTopicsRequest(names=[TOPIC], timeout_ms=5_000))
    workers.cluster.start(11)
    workers.run(4)
    assert workers.links() == workers.needed("later")


def test_members_of_a_group_need_links() -> None:
    """The metadata and the group's own configuration both count. A link ends later than its groups."""
    links = NeededLinks(1, 5 * SECOND)
    nodes = range(1, 10)
    assert links.select(0, {1, 2}, nodes) == set(nodes)
    links = NeededLinks(1, 5 * SECOND)
    assert links.select(0, {2, 3}, nodes) == {2, 3}
    record = PartitionRecord(Topic("t", bytes(16), {}), 0, 1000, replicas=(1, 4), isr=(1,), witness=5)
    assert links.follow(1000, record, None)
    assert links.select(0, {2, 3}, nodes) == {2, 3, 4, 5}
    joint = Configuration((1, 6), (7,), (1, 4, 5))
    assert links.follow(1000, record, joint)
    assert links.is_current(1000, joint)
    assert links.select(0, {2, 3}, nodes) == {2, 3, 4, 5, 6, 7}
    moved = PartitionRecord(Topic("t", bytes(16), {}), 0, 1000, replicas=(6, 7, 8), isr=(6,))
    assert not links.follow(1000, moved, joint), "the replica here still has its own view"
    assert links.follow(1000, moved, None)
    assert links.next_deadline is None
    assert links.select(SECOND, {2, 3}, nodes) == {2, 3, 4, 5, 6, 7}
    assert links.next_deadline == 6 * SECOND
    assert links.select(2 * SECOND, {2, 3}, [1, 2, 3, 4]) == {2, 3, 4}, "a node that is gone is not kept"
    assert links.select(6 * SECOND, {2, 3}, nodes) == {2, 3}
    assert links.next_deadline is None
    assert links.groups() == []

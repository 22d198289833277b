"""Tests of how clients find the coordinators of groups, and follow them when they move."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence

import pytest
import pytest_asyncio
from scripted_cluster import Code, ScriptedCluster, error
from scripted_groups import Asked, ScriptedCoordinators, ScriptedGroup

from quorumlog.sdk.cluster.cluster import Cluster
from quorumlog.sdk.cluster.connection import NodeConnection
from quorumlog.sdk.cluster.coordinators import CoordinatorCache
from quorumlog.sdk.errors import CoordinatorNotAvailableError, InvalidGroupIdError, RequestTimedOutError
from quorumlog.sdk.runtime.backoff import Backoff
from quorumlog.v1 import errors_pb2, groups_pb2

LIMIT_S = 30.0


@pytest_asyncio.fixture
async def script(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[ScriptedCoordinators]:
    """Three nodes, each of which leads one partition of ``__groups``. No one asks a second one for the first one being
    slow: questions are counted."""
    monkeypatch.setattr("quorumlog.sdk.cluster.cluster._HEDGE_AFTER_S", LIMIT_S)
    nodes = ScriptedCluster(nodes=3)
    made = ScriptedCoordinators(nodes)
    await nodes.start()
    yield made
    await nodes.stop()


@pytest_asyncio.fixture
async def cluster(script: ScriptedCoordinators) -> AsyncIterator[Cluster]:
    made = Cluster(
        script.cluster.bootstrap_servers.split(","),
        request_timeout_s=LIMIT_S,
        bootstrap_timeout_s=LIMIT_S,
        backoff=Backoff(0.001, 0.01),
        client_id="test",
    )
    yield made
    await made.close()


@pytest.fixture
def coordinators(cluster: Cluster) -> CoordinatorCache:
    return CoordinatorCache(cluster)


async def fetch(coordinators: CoordinatorCache, group_id: str = "g", limit_s: float = LIMIT_S) -> None:
    request = groups_pb2.FetchOffsetsRequest(group_id=group_id, member_epoch=-1)
    what = "the fetch"
    await coordinators.ask(group_id, lambda node: node.groups.FetchOffsets(request, timeout=LIMIT_S), limit_s, what)


def address(script: ScriptedCoordinators, node_id: int) -> str:
    return f"127.0.0.1:{script.cluster.nodes[node_id].port}"


async def test_a_coordinator_is_asked_for_once(script: ScriptedCoordinators, coordinators: CoordinatorCache) -> None:
    for _ in range(3):
        await fetch(coordinators)
    assert (script.count("FindCoordinators"), script.count("FetchOffsets")) == (1, 3)
    known = coordinators.known("g")
    assert known is not None
    assert known.address == address(script, script.leaders[script.partition("g")][0])
    assert coordinators.known("other") is None


async def test_a_hint_is_followed_without_asking_anew(
    script: ScriptedCoordinators, cluster: Cluster, coordinators: CoordinatorCache
) -> None:
    await cluster.ask_metadata([])  # The nodes' addresses.
    partition = script.partition("g")
    assert partition == script.partition("j")
    await coordinators.require_each(["g", "j"])
    leader = script.leaders[partition][0] % 3 + 1
    script.elect(partition, leader)
    script.asked.clear()
    await fetch(coordinators, "g")
    await fetch(coordinators, "j")  # What is learned of one group serves all of its partition.
    assert script.count("FindCoordinators") == 0
    assert [request.node_id for request in script.asked[1:]] == [leader, leader]


async def test_without_a_hint_or_with_an_old_one_any_node_is_asked(
    script: ScriptedCoordinators, coordinators: CoordinatorCache
) -> None:
    await fetch(coordinators)
    partition = script.partition("g")
    script.hints = False
    script.elect(partition, 1 + script.leaders[partition][0] % 3)
    await fetch(coordinators)
    assert script.count("FindCoordinators") == 2
    refused = errors_pb2.Error(code=Code.NOT_COORDINATOR, leader=errors_pb2.LeaderHint(node_id=3, leader_epoch=1))
    coordinators.learn_from("g", refused)
    assert coordinators.known("g") is None


async def test_a_coordinator_that_has_lost_its_disk_is_forgotten(
    script: ScriptedCoordinators, coordinators: CoordinatorCache
) -> None:
    await fetch(coordinators)
    assert coordinators.known("g") is not None
    coordinators.learn_from("g", errors_pb2.Error(code=Code.CLUSTER_NOT_FORMED, retriable=True))
    assert coordinators.known("g") is None


async def test_older_news_do_not_replace_newer_ones(
    script: ScriptedCoordinators, coordinators: CoordinatorCache
) -> None:
    partition = script.partition("g")
    script.shown = list(script.leaders)
    script.elect(partition, 3)
    script.elect(partition, 2)
    await fetch(coordinators)  # Sent to the wrong node at first, which names the right one.
    await coordinators.require_all()
    known = coordinators.known("g")
    assert known is not None
    assert known.address == address(script, 2)


async def test_coordinators_that_are_being_created_are_waited_for(
    script: ScriptedCoordinators, coordinators: CoordinatorCache
) -> None:
    def refuse(asked: Asked) -> errors_pb2.Error | None:
        early = asked.method == "FindCoordinators" and script.count("FindCoordinators") < 4
        return error(Code.COORDINATOR_NOT_AVAILABLE) if early else None

    script.refuse = refuse
    await fetch(coordinators)
    assert script.count("FindCoordinators") >= 4


async def test_a_partition_without_a_leader_is_waited_for_and_named(
    script: ScriptedCoordinators, coordinators: CoordinatorCache
) -> None:
    partition = script.partition("g")
    leader = script.leaders[partition]
    script.leaders[partition] = (-1, 1)
    with pytest.raises((RequestTimedOutError, CoordinatorNotAvailableError), match="'g' has no coordinator"):
        await fetch(coordinators, limit_s=1.0)
    with pytest.raises(CoordinatorNotAvailableError, match="__groups-"):
        await coordinators.require_all()
    script.leaders[partition] = leader
    await fetch(coordinators)


async def test_a_node_that_went_is_asked_for_anew(script: ScriptedCoordinators, coordinators: CoordinatorCache) -> None:
    await fetch(coordinators)
    partition = script.partition("g")
    leader = script.leaders[partition][0]
    await script.cluster.stop_node(leader)
    script.elect(partition, leader % 3 + 1)
    await fetch(coordinators)
    known = coordinators.known("g")
    assert known is not None
    assert known.address == address(script, leader % 3 + 1)


async def test_a_group_that_cannot_be_is_refused_at_once(
    script: ScriptedCoordinators, coordinators: CoordinatorCache
) -> None:
    with pytest.raises(InvalidGroupIdError):
        await fetch(coordinators, "bad")
    assert script.count("FindCoordinators") == 1


async def test_several_groups_are_asked_at_their_nodes(
    script: ScriptedCoordinators, coordinators: CoordinatorCache
) -> None:
    ids = ["a", "b", "c", "d"]
    script.groups = {group_id: ScriptedGroup() for group_id in ids}
    requests: list[list[str]] = []
    taken: list[str] = []

    async def ask(node: NodeConnection, part: list[str]) -> Sequence[groups_pb2.GroupDescription]:
        requests.append(part)
        request = groups_pb2.DescribeGroupsRequest(group_ids=part)
        return (await node.call(node.groups.DescribeGroups(request, timeout=LIMIT_S))).groups

    await coordinators.ask_each(ids, ask, lambda group_id, result: taken.append(group_id))
    assert sorted(taken) == ids
    assert sorted(sorted(part) for part in requests) == [["a", "d"], ["b"], ["c"]]


async def test_a_coordinator_moves_a_node_to_no_former_address(
    script: ScriptedCoordinators, cluster: Cluster, coordinators: CoordinatorCache
) -> None:
    """A node that is behind names the address of a former registration; another one has reported the present one."""
    cluster.metadata.learn_address(7, "127.0.0.1", 7002, 12)
    behind = groups_pb2.GroupCoordinator(
        partition=0, node_id=7, host="127.0.0.1", port=7001, leader_epoch=1, broker_epoch=9
    )
    found = coordinators._take(behind)
    assert found is not None and found.address == "127.0.0.1:7002"
    behind.broker_epoch, behind.port = 15, 7003
    found = coordinators._take(behind)
    assert found is not None and found.address == "127.0.0.1:7003"


async def test_a_coordinator_of_an_older_epoch_is_none(
    script: ScriptedCoordinators, cluster: Cluster, coordinators: CoordinatorCache
) -> None:
    def named(node_id: int, leader_epoch: int) -> str:
        found = coordinators._take(
            groups_pb2.GroupCoordinator(
                partition=0, node_id=node_id, host="127.0.0.1", port=7000 + node_id, leader_epoch=leader_epoch
            )
        )
        assert found is not None
        return found.address

    assert [named(1, 4), named(2, 5), named(1, 4), named(3, 5)] == [
        "127.0.0.1:7001",
        "127.0.0.1:7002",
        "127.0.0.1:7002",
        "127.0.0.1:7003",
    ]


async def test_tasks_share_one_coordinator_look_up(
    script: ScriptedCoordinators, coordinators: CoordinatorCache
) -> None:
    found = await asyncio.gather(*(coordinators.require("g") for _ in range(20)))
    assert len(set(found)) == 1
    assert script.count("FindCoordinators") == 1


async def test_hints_of_the_same_epoch_are_not_followed(
    script: ScriptedCoordinators, cluster: Cluster, coordinators: CoordinatorCache
) -> None:
    """A hint that led here would lead here again: two nodes that name each other would be asked in turn."""
    await cluster.ask_metadata([])
    await fetch(coordinators)
    partition = script.partition("g")
    node, epoch = script.leaders[partition]
    for hinted, known in ((epoch, None), (epoch + 1, node % 3 + 1)):
        await coordinators.require("g")
        hint = errors_pb2.LeaderHint(node_id=node % 3 + 1, leader_epoch=hinted)
        coordinators.learn_from("g", errors_pb2.Error(code=Code.NOT_COORDINATOR, leader=hint, retriable=True))
        found = coordinators.known("g")
        assert (found and found.address) == (known and address(script, known))


async def test_remembered_groups_are_bounded(
    script: ScriptedCoordinators, coordinators: CoordinatorCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("quorumlog.sdk.cluster.coordinators.MAX_REMEMBERED", 3)
    for number in range(10):
        await coordinators.require(f"g{number}")
        assert len(coordinators._partitions) <= 3
    assert coordinators.known("g9") is not None

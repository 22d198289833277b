"""Questions that any node can answer: who is asked, and whose answer counts."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace

import pytest
from hand_driven_cluster import HandDrivenNode, Question

from quorumlog.sdk.cluster.cluster import Cluster
from quorumlog.sdk.cluster.connection import NodeConnection
from quorumlog.sdk.errors import ClusterNotFormedError
from quorumlog.sdk.runtime.backoff import Backoff
from quorumlog.sdk.runtime.client_runtime import SYSTEM_RUNTIME
from quorumlog.v1 import data_plane_pb2, errors_pb2

NODES = ["node-1:1", "node-2:1", "node-3:1"]


@dataclass
class _Bench:
    """A client of three nodes whose answers the test gives, on a clock that the test moves."""

    now_s: float = 100.0

    def __post_init__(self) -> None:
        runtime = replace(SYSTEM_RUNTIME, monotonic_s=lambda: self.now_s)
        self.nodes = {address: HandDrivenNode(address) for address in NODES}
        self.cluster = Cluster(
            NODES,
            request_timeout_s=1,
            bootstrap_timeout_s=60,
            backoff=Backoff(0.001, 0.001, runtime),
            client_id="test",
            runtime=runtime,
        )
        self.cluster._connections.update(self.nodes)  # type: ignore[arg-type]

    def first_asked(self) -> str:
        return self.cluster.candidates()[0].address

    def fail(self, address: str) -> None:
        self.nodes[address].suspect = True
        self.nodes[address].failed_at_s = self.now_s

    async def asked(self) -> tuple[HandDrivenNode, Question[data_plane_pb2.MetadataResponse]]:
        """The next node that is asked for metadata."""
        async with asyncio.timeout(30):
            while True:
                for node in self.nodes.values():
                    for question in node.data_plane.asked("Metadata"):
                        return node, question
                await asyncio.sleep(0)


def answer(*brokers: int) -> data_plane_pb2.MetadataResponse:
    response = data_plane_pb2.MetadataResponse(cluster_id="c", applied_index=7 if brokers else 0)
    if not brokers:
        response.topics.add(name="t").error.code = errors_pb2.UNKNOWN_TOPIC_OR_PARTITION
    for broker in brokers:
        response.brokers.add(node_id=broker, host=f"node-{broker}", port=1, broker_epoch=broker)
    return response


def test_a_node_that_has_failed_is_asked_behind_the_others_and_after_a_while_in_its_turn_again() -> None:
    bench = _Bench()
    bench.fail("node-1:1")
    bench.fail("node-2:1")
    assert {bench.first_asked() for _ in range(6)} == {"node-3:1"}
    bench.now_s += 1.1
    assert {bench.first_asked() for _ in range(6)} == set(NODES)


async def test_a_node_that_has_heard_of_no_broker_is_passed_over() -> None:
    bench = _Bench()
    asking = asyncio.ensure_future(bench.cluster.ask_metadata(["t"]))
    first, question = await bench.asked()
    question.answer.set_result(answer())
    second, question = await bench.asked()
    assert second is not first
    question.answer.set_result(answer(1, 2, 3))
    assert (await asking).cluster_id == "c"
    assert bench.cluster.metadata._absent == {}


async def test_who_is_told_by_an_error_alone_that_no_cluster_has_formed_is_told_so() -> None:
    bench = _Bench()
    asking = asyncio.ensure_future(bench.cluster.ask_metadata(["t"]))
    for _ in NODES:
        _, question = await bench.asked()
        question.answer.set_exception(ClusterNotFormedError("waits for the controllers"))
        await asyncio.sleep(0)
    with pytest.raises(ClusterNotFormedError, match="waits for the controllers"):
        async with asyncio.timeout(30):
            await asking


async def test_where_no_node_belongs_to_a_cluster_no_topic_is_said_to_be_missing() -> None:
    bench = _Bench()
    waiting = asyncio.ensure_future(bench.cluster.ensure_topics(["t"], 60))
    while bench.now_s < 103.0:
        _, question = await bench.asked()
        question.answer.set_result(answer())
        bench.now_s += 0.5
    with pytest.raises(ClusterNotFormedError, match="start all of its controllers"):
        await waiting
    assert bench.cluster.metadata._absent == {}


async def test_a_connection_says_when_it_has_failed() -> None:
    now_s = 5.0
    runtime = replace(SYSTEM_RUNTIME, monotonic_s=lambda: now_s)
    connection = NodeConnection("127.0.0.1:1", "test", runtime, lambda: 1)
    connection._heard(True)
    assert not connection.suspect
    now_s = 6.0
    connection._heard(False)
    assert connection.suspect
    assert connection.failed_at_s == 6.0
    await connection.close()

"""A client's cluster without a network: nodes write down what they are asked, and answer when the test says so.

The clock is the test's. What a client does in the background runs at :func:`turn`.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from quorumlog.sdk.cluster.cluster import Cluster
from quorumlog.sdk.cluster.connection import NodeConnection
from quorumlog.sdk.errors import NetworkError, QuorumlogError
from quorumlog.sdk.runtime.backoff import Backoff
from quorumlog.sdk.runtime.client_runtime import ClientRuntime
from quorumlog.v1 import data_plane_pb2, errors_pb2, groups_pb2

TOPIC_ID = b"0123456789abcdef"
Code = errors_pb2.ErrorCode
Asked = TypeVar("Asked")
Reply = TypeVar("Reply")


class HandClock:
    """Does not move until the test moves it."""

    def __init__(self, now_s: float = 100.0) -> None:
        self.now_s = now_s

        self._source: Callable[[], float] | None = None

    def follow_the_machine(self) -> None:
        """Runs without being stepped from now on, as with real timers."""
        began, now_s = time.monotonic(), self.now_s
        self._source = lambda: now_s + time.monotonic() - began

    def __call__(self) -> float:
        return self.now_s if self._source is None else self._source()


@dataclass(eq=False)
class Question(Generic[Asked]):
    """A request on its way."""

    request: Asked
    answer: asyncio.Future[Any]


class HandDrivenStream(Generic[Asked]):
    """Stands for a ``ClientStream``. Requests are answered by the test, in any order."""

    def __init__(self) -> None:
        self.life = 1
        self.questions: list[Question[Asked]] = []

    def open(self) -> int:
        return self.life

    def submit(self, request: Asked) -> asyncio.Future[Any]:
        question = Question(request, asyncio.get_running_loop().create_future())
        self.questions.append(question)
        return question.answer

    post = submit

    @property
    def requests(self) -> list[Asked]:
        """All of them, in order."""
        return [question.request for question in self.questions]

    @property
    def unanswered(self) -> list[Question[Asked]]:
        """Those under way."""
        return [question for question in self.questions if not question.answer.done()]

    def lose(self, error: QuorumlogError | None = None) -> None:
        """The stream breaks; the next request opens another one."""
        self.life += 1
        for question in self.unanswered:
            question.answer.set_exception(error or NetworkError("lost"))


class UnaryCalls:
    """Stands for a stub: each call is a question under its name."""

    def __init__(self) -> None:
        self.questions: list[tuple[str, Question[Any]]] = []

    def __getattr__(self, name: str) -> Any:
        def call(request: Any, timeout: float | None = None) -> asyncio.Future[Any]:
            question = Question(request, asyncio.get_running_loop().create_future())
            self.questions.append((name, question))
            return question.answer

        return call

    def asked(self, name: str) -> list[Question[Any]]:
        """The questions of that name that have no answer yet."""
        return [question for called, question in self.questions if called == name and not question.answer.done()]


@dataclass(eq=False)
class HandDrivenNode:
    """Stands for a ``NodeConnection``."""

    address: str
    suspect: bool = False
    failed_at_s: float = 0.0
    produce: HandDrivenStream[Any] = field(default_factory=HandDrivenStream)
    fetch: HandDrivenStream[data_plane_pb2.FetchRequest] = field(default_factory=HandDrivenStream)
    heartbeats: HandDrivenStream[groups_pb2.GroupHeartbeatRequest] = field(default_factory=HandDrivenStream)
    data_plane: UnaryCalls = field(default_factory=UnaryCalls)
    groups: UnaryCalls = field(default_factory=UnaryCalls)

    async def call(self, call: Awaitable[Any]) -> Any:
        try:
            reply = await call
        except QuorumlogError:
            self.suspect = True
            raise
        self.suspect = False
        return reply

    async def drain(self) -> None:
        return

    async def close(self) -> list[asyncio.Task[None]]:
        return []


class HandDrivenCluster(Cluster):
    """Nodes 1 to 3 and what is known of topics: nothing is requested by them.

    Attributes:
        refreshes: how often news of the cluster was asked for.
    """

    def __init__(self, clock: HandClock | None = None) -> None:
        self.clock = clock or HandClock()
        self.runtime = ClientRuntime(monotonic_s=self.clock, wall_ns=lambda: 10**18, rng=random.Random(1))
        super().__init__(
            ["127.0.0.1:1"],
            request_timeout_s=5.0,
            bootstrap_timeout_s=1.0,
            backoff=Backoff(0.02, 0.5, self.runtime),
            client_id="test",
            runtime=self.runtime,
        )
        self.refreshes = 0
        self.nodes = {number: HandDrivenNode(f"127.0.0.1:{number}") for number in (1, 2, 3)}

    def connection(self, address: str) -> NodeConnection:
        return self.nodes[int(address.rpartition(":")[2])]  # type: ignore[return-value]

    def request_refresh(self) -> None:
        self.refreshes += 1

    async def ask_any(self, ask: Callable[[NodeConnection, float], Awaitable[Reply]]) -> Reply:
        """Asks one node, however long it takes: who is asked beside it depends on the machine's time."""
        node = self.candidates()[0]
        return await node.call(ask(node, self.request_timeout_s))

    def show(
        self,
        *leaders: int,
        epoch: int = 1,
        topic: str = "t",
        topic_id: bytes = TOPIC_ID,
        replicas: Sequence[int] = (1, 2, 3),
        compacted: bool = False,
        brokers: Sequence[int] = (1, 2, 3),
    ) -> None:
        """A node describes a topic: the leader of each partition, -1 for none. The listeners are notified."""
        response = data_plane_pb2.MetadataResponse(cluster_id="hand-driven")
        for number in brokers:
            response.brokers.add(node_id=number, host="127.0.0.1", port=number)
        configs = {"cleanup.policy": "compact"} if compacted else {}
        described = response.topics.add(name=topic, topic_id=topic_id, configs=configs)
        for partition, leader in enumerate(leaders):
            described.partitions.add(partition=partition, leader=leader, leader_epoch=epoch, replicas=replicas)
        self.metadata.merge(response)
        for listener in self._listeners:
            listener()


async def turn(times: int = 12) -> None:
    """Lets the loop work off what is due."""
    for _ in range(times):
        await asyncio.sleep(0)

"""A process with many hostile clients. It reads its order from standard input, and reports progress in lines.

Many processes are needed: a single Python process would be slower than the nodes that it attacks. They are started and
not forked, because gRPC does not survive that.
"""

from __future__ import annotations

import asyncio
import json
import random
import sys
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TextIO

from quorumlog.chaos.hostile.access import Entrance
from quorumlog.chaos.hostile.caller import HostileCaller
from quorumlog.chaos.hostile.fixture import stage
from quorumlog.chaos.hostile.kafka_clients import HostileKafkaClients
from quorumlog.chaos.hostile.known_ids import STAGE, Vocabulary
from quorumlog.chaos.hostile.record import SentLog, write_record
from quorumlog.chaos.hostile.requests import RequestMaker
from quorumlog.chaos.hostile.sequences import Stories
from quorumlog.chaos.hostile.services import METHODS, SIGN_IN_METHODS
from quorumlog.chaos.hostile.strangers import Strangers
from quorumlog.chaos.hostile.wire import Wire
from quorumlog.v1 import data_plane_pb2, groups_pb2

#: Concurrent clients of one process; most of them wait.
CLIENTS = 48
#: Intervals at which a process reports, and refreshes its metadata (s).
REPORT_S, REFRESH_S = 0.5, 1.0
#: Offset between the stream numbers of two processes.
_STREAMS_PER_WORKER = 1 << 32
#: Share of stories of unauthenticated peers.
_STRANGERS = 0.05


@dataclass(slots=True)
class WorkerOrder:
    """Order for a process.

    Arguments:
        number: number of the process, from 0.
        requests: number of requests to send.
        record: file for the requests sent last.
        caller, entrance: identity, and access to the nodes.
    """

    number: int
    seed: int
    requests: int
    record: str
    caller: HostileCaller
    entrance: Entrance

    def to_line(self) -> str:
        """Returns the order as one line."""
        return json.dumps(asdict(self)) + "\n"

    @classmethod
    def from_line(cls, line: str) -> WorkerOrder:
        """Parses an order that was written by ``to_line``."""
        values = json.loads(line)
        entrance = values.pop("entrance")
        nodes = {int(node): address for node, address in entrance.pop("nodes").items()}
        kafka = {int(node): address for node, address in entrance.pop("kafka").items()}
        caller = HostileCaller(values.pop("caller"))
        return cls(**values, caller=caller, entrance=Entrance(nodes=nodes, kafka=kafka, **entrance))


@dataclass(slots=True)
class WorkerNews:
    """Progress of a process.

    Arguments:
        tokens: tokens of the sessions in which it called.
    """

    sent: int = 0
    done: bool = False
    outcomes: dict[str, int] = field(default_factory=dict)
    by_method: dict[str, int] = field(default_factory=dict)
    answers: dict[str, int] = field(default_factory=dict)
    findings: list[str] = field(default_factory=list)
    tokens: list[str] = field(default_factory=list)


class HostileProcess:
    """The clients of one process."""

    def __init__(self, order: WorkerOrder) -> None:
        chance = random.Random(f"{order.seed}/{order.number}")
        self._order = order
        self._chance = chance
        self._vocabulary = Vocabulary(tuple(order.entrance.nodes))
        self._recorder = SentLog()
        self._tokens = order.entrance.sign_in()
        first_stream = order.number * _STREAMS_PER_WORKER
        self._wire = Wire(order.entrance, self._vocabulary, self._recorder, first_stream, self._tokens)
        self._maker = RequestMaker(self._vocabulary, chance)
        methods = METHODS | SIGN_IN_METHODS if order.caller.by_password else METHODS
        self._stories = Stories(self._wire, self._vocabulary, self._maker, chance, methods)
        self._strangers = Strangers(self._wire, self._vocabulary, self._maker, chance)
        has_kafka = bool(order.entrance.kafka)
        self._kafka = HostileKafkaClients(order.entrance, self._vocabulary, chance) if has_kafka else None
        self._over = asyncio.Event()

    async def run(self, stop: TextIO, out: TextIO) -> None:
        """Sends the ordered requests, but stops when ``stop`` is closed."""
        loop = asyncio.get_running_loop()
        loop.run_in_executor(None, stop.read).add_done_callback(lambda _: self._over.set())
        await self._refresh()
        others = [asyncio.ensure_future(self._report(out)), asyncio.ensure_future(self._keep_fresh())]
        clients = [asyncio.ensure_future(self._client()) for _ in range(CLIENTS)]
        over = asyncio.ensure_future(self._over.wait())
        done = asyncio.ensure_future(asyncio.wait(clients))
        await asyncio.wait({over, done}, return_when=asyncio.FIRST_COMPLETED)
        self._over.set()
        for task in (*others, *clients):
            task.cancel()
        await asyncio.gather(*others, *clients, return_exceptions=True)
        topics = {
            name: self._vocabulary.topics[name].topic_id.hex() for name in STAGE if name in self._vocabulary.topics
        }
        write_record(Path(self._order.record), topics, self._recorder.all(), self._order.caller)
        for client in clients:
            if not client.cancelled() and (problem := client.exception()) is not None:
                raise problem
        print(self._news(done=True), file=out, flush=True)

    @property
    def _sent(self) -> int:
        return self._wire.sent + (0 if self._kafka is None else self._kafka.sent)

    async def _client(self) -> None:
        while not self._over.is_set() and self._sent < self._order.requests:
            if self._kafka is not None:
                await self._kafka.visit()
            elif self._chance.random() < _STRANGERS:
                await self._strangers.visit()
            else:
                await self._chance.choice(self._stories.all)()

    async def _keep_fresh(self) -> None:
        while True:
            await asyncio.sleep(REFRESH_S)
            await self._refresh()

    async def _refresh(self) -> None:
        """Refreshes the metadata, and creates prepared topics again that were deleted."""
        node = self._vocabulary.node(self._chance)
        request = data_plane_pb2.MetadataRequest(all_topics=True).SerializeToString()
        answer = await self._wire.call(node, METHODS["Metadata"], request, 2.0)
        if isinstance(answer, data_plane_pb2.MetadataResponse):
            present = {topic.name for topic in answer.topics}
            for gone in self._vocabulary.topics.keys() - present:
                del self._vocabulary.topics[gone]
            missing = [name for name in STAGE if name not in present]
            if missing and self._order.number == 0:
                await self._wire.call(node, METHODS["CreateTopics"], stage(missing).SerializeToString(), 5.0)
        every = groups_pb2.FindCoordinatorsRequest(all=True).SerializeToString()
        await self._wire.call(node, METHODS["FindCoordinators"], every, 2.0)

    async def _report(self, out: TextIO) -> None:
        while True:
            await asyncio.sleep(REPORT_S)
            print(self._news(done=False), file=out, flush=True)

    def _news(self, *, done: bool) -> str:
        wire = self._wire
        # A repeated finding is reported once.
        findings = list(dict.fromkeys(wire.findings))[:100]
        news = WorkerNews(
            self._sent,
            done,
            dict(wire.outcomes),
            dict(wire.by_method),
            dict(wire.answers),
            findings,
            list(self._tokens.values()),
        )
        if self._kafka is not None:
            news.outcomes |= self._kafka.outcomes
            news.by_method |= self._kafka.by_method
            news.answers |= self._kafka.answers
            news.findings += list(dict.fromkeys(self._kafka.findings))[:100]
        return json.dumps(asdict(news))


def main() -> None:
    """Reads an order, and executes it."""

    async def run() -> None:
        await HostileProcess(WorkerOrder.from_line(sys.stdin.readline())).run(sys.stdin, sys.stdout)

    asyncio.run(run())


if __name__ == "__main__":
    main()

"""Hostile clients on the port for Kafka clients: sequences of frames, and misuse of connections."""

from __future__ import annotations

import asyncio
import contextlib
import random
import struct
import time
from collections import Counter, deque
from collections.abc import Awaitable, Callable
from typing import Any

from quorumlog.chaos.hostile.access import Entrance
from quorumlog.chaos.hostile.kafka_requests import KafkaRequestMaker, error_codes_of
from quorumlog.chaos.hostile.known_ids import GROUPS, STAGE, Vocabulary
from quorumlog.sdk.runtime.scram_client import ScramIdentity
from quorumlog.server.kafka.codec.apis import APIS
from quorumlog.server.kafka.codec.fetch_requests import FetchPartition, FetchRequest, FetchTopic, ForgottenTopic
from quorumlog.server.kafka.codec.groups.consumer_group_requests import (
    ConsumerGroupHeartbeatRequest,
    OwnedTopicPartitions,
)
from quorumlog.server.kafka.codec.groups.membership_requests import (
    GroupHeartbeatRequest,
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    SyncGroupRequest,
    SyncGroupRequestAssignment,
)
from quorumlog.server.kafka.codec.headers import unpack_response_header
from quorumlog.server.kafka.codec.metadata_requests import MetadataRequest, MetadataRequestTopic
from quorumlog.server.kafka.codec.primitives import KafkaMessage, MalformedKafkaMessageError, decode
from quorumlog.server.kafka.codec.produce_requests import (
    InitProducerIdRequest,
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from quorumlog.server.kafka.codec.sasl_requests import SaslAuthenticateRequest, SaslHandshakeRequest
from quorumlog.server.kafka.codec.version_requests import ApiVersionsRequest
from quorumlog.server.kafka.handlers.error_codes import KafkaError

_SIZE = struct.Struct(">i")
#: A larger answer is invalid.
_MOST_ANSWER_BYTES = 256 << 20
_CONNECT_S, _ANSWER_S = 5.0, 3.0
#: Time after which a node that has not answered a new connection counts as hung (s).
HUNG_S = 20.0
_KEPT_MEMBERS = 40
_FETCH, _API_VERSIONS, _PRODUCE = 1, 18, 0
_KNOWN = {each.value for each in KafkaError}
_UNKNOWN = -1


class HostileKafkaClients:
    """Runs hostile clients, and collects the results.

    Arguments:
        entrance: access to the nodes, and texts that no answer may contain.
        chance: source of all random decisions.
    """

    def __init__(self, entrance: Entrance, vocabulary: Vocabulary, chance: random.Random) -> None:
        self._places = dict(entrance.kafka)
        self._context = entrance.tls_context()
        self._identity = entrance.identity()
        self.forbidden = tuple(each.encode() for each in entrance.forbidden)
        self._vocabulary = vocabulary
        self._chance = chance
        self._maker = KafkaRequestMaker(chance)
        self.sent = 0
        self.outcomes: Counter[str] = Counter()
        self.by_method: Counter[str] = Counter()
        self.answers: Counter[str] = Counter()
        self.findings: list[str] = []
        #: Longest time that a new connection waited for its first answer (s).
        self.slowest_s = 0.0
        self._stories: tuple[tuple[int, Callable[[], Awaitable[None]]], ...] = (
            (60, self._ask_anything), (12, self._produce), (10, self._join), (8, self._beat),
            (8, self._fetch_in_session), (10, self._alter), (4, self._babble), (2, self._stop_half_way),
            (2, self._read_slowly), (3, self._knock), (1, self._flood_versions),
        )  # fmt: skip

    async def visit(self) -> None:
        """Runs one story at one node. The first ones produce: later on, topics may be deleted."""
        weights, stories = zip(*self._stories, strict=True)
        with contextlib.suppress(OSError, TimeoutError, asyncio.IncompleteReadError):
            await (self._chance.choices(stories, weights)[0] if self.sent else self._produce)()

    async def knock_at_all(self) -> None:
        """Checks that each node answers a new connection."""
        for node in self._places:
            with contextlib.suppress(OSError, asyncio.IncompleteReadError):
                await self._knock_at(node)

    # -- stories --------------------------------------------------------------------------------------------------

    async def _ask_anything(self) -> None:
        async with self._connected() as one:
            for _ in range(self._chance.choice((5, 20, 60))):
                if one.over:
                    return
                key, version, frame, message = self._maker.framed(one.next_number)
                await one.send(key, version, frame, message)
                if self._chance.random() < 0.3:
                    await one.settle(_ANSWER_S)
            await one.settle(_ANSWER_S)

    async def _produce(self) -> None:
        """Sends as a producer that is valid for a while."""
        chance = self._chance
        topic = chance.choice(STAGE)
        partition, leader = await self._partition_of(topic)
        async with self._connected(leader if chance.random() < 0.8 else None) as one:
            answer = await self._ask(one, InitProducerIdRequest(transaction_timeout_ms=1_000), 4)
            known: tuple[int, int] = (answer.producer_id, answer.producer_epoch) if answer is not None else (-1, -1)
            self._maker.producers = [*self._maker.producers[-8:], known]
            sequence = (1 << 31) - 3 if chance.random() < 0.2 else 0
            for number in range(chance.randint(1, 12)):
                if one.over:
                    return
                # Whatever follows is sent to a partition that has accepted something of this producer.
                first = number == 0
                count, batch = self._maker.batches.batch(*known, sequence, valid=first)
                data = [TopicProduceData(topic, partition_data=[PartitionProduceData(partition, batch)])]
                acks = -1 if first else chance.choice((-1, -1, 1, 0, 2))
                request = ProduceRequest(acks=acks, timeout_ms=1_000, topic_data=data)
                await self._send(one, request, chance.randint(3, 12))
                if chance.random() < 0.8:
                    sequence = (sequence + count) % (1 << 31)
                else:
                    sequence = chance.choice((0, sequence + 1, -1, (1 << 31) - 1)) % (1 << 31)
                if chance.random() < 0.1:
                    known = known[0], min(known[1] + 1, (1 << 15) - 1)
            await one.settle(_ANSWER_S)

    async def _partition_of(self, topic: str) -> tuple[int, int | None]:
        """Returns a partition of a topic, and its leader if it has one."""
        async with self._connected() as one:
            answer = await self._ask(one, MetadataRequest(topics=[MetadataRequestTopic(name=topic)]), 8)
        found = [each for described in answer.topics for each in described.partitions] if answer is not None else []
        if not found:
            return self._chance.randrange(2), None
        chosen = self._chance.choice(found)
        return chosen.partition_index, chosen.leader_id if chosen.leader_id in self._places else None

    async def _fetch_in_session(self) -> None:
        """Fetches in a session that is valid for a while."""
        chance = self._chance
        version = chance.choice((7, 12, 13, 18))

        def changes() -> FetchRequest:
            named = FetchTopic(
                chance.choice((*STAGE, "nowhere")),
                chance.choice(self._maker.topic_ids),
                [
                    FetchPartition(
                        chance.choice((0, 0, 1, 7)), -1, chance.choice((0, 0, 1, 5, 1_000, -3)), -1, -1, 1 << 20
                    )
                    for _ in range(chance.choice((0, 1, 3)))
                ],
            )
            forgotten = ForgottenTopic(named.topic, named.topic_id, [chance.choice((0, 1, 9))])
            return FetchRequest(
                max_wait_ms=chance.choice((0, 0, 50)),
                min_bytes=1,
                max_bytes=chance.choice((0, 1, 1 << 20)),
                topics=[named] * chance.choice((0, 1, 1, 2)),
                forgotten_topics_data=[forgotten] * chance.choice((0, 0, 1)),
            )

        async with self._connected() as one:
            session = epoch = 0
            for _ in range(chance.randint(2, 12)):
                request = changes()
                request.session_id, request.session_epoch = session, epoch
                if chance.random() < 0.15:
                    request.session_epoch = chance.choice((-1, 0, epoch + 1, (1 << 31) - 1))
                self._maker.fetch_session = session, epoch
                answer = await self._ask(one, request, version)
                if answer is None:
                    return
                if not answer.error_code:
                    session, epoch = answer.session_id, request.session_epoch + 1 if answer.session_id else 0

    async def _join(self) -> None:
        """Joins a group, assigns nonsense, and disconnects."""
        chance = self._chance
        group = chance.choice(GROUPS)
        member, generation = "", -1
        async with self._connected() as one:
            for _ in range(chance.randint(1, 4)):
                protocols = [
                    JoinGroupRequestProtocol(name, chance.choice((b"", b"\0" * 20, b"\xff" * 300, b"m" * 20_000)))
                    for name in ("range", "roundrobin")
                ]
                request = JoinGroupRequest(
                    group,
                    chance.choice((6_000, 10_000, 300_000)),
                    chance.choice((1, 500, 60_000)),
                    member,
                    protocol_type="consumer",
                    protocols=protocols,
                )
                answer = await self._ask(one, request, chance.randint(5, 9))
                if answer is None:
                    return
                member, generation = answer.member_id or member, answer.generation_id
                self._maker.members = [*self._maker.members[-_KEPT_MEMBERS:], member]
                self._maker.generations = [*self._maker.generations[-_KEPT_MEMBERS:], generation]
                if answer.error_code == KafkaError.NONE:
                    assignments = [
                        SyncGroupRequestAssignment(chance.choice((member, "nobody")), b"a" * chance.choice((0, 9)))
                        for _ in range(chance.randint(0, 3))
                    ]
                    await self._ask(one, SyncGroupRequest(group, generation, member, assignments=assignments), 4)
                    await self._ask(one, GroupHeartbeatRequest(group, generation, member), 4)

    async def _beat(self) -> None:
        """Joins a group whose coordinator assigns, reports arbitrary partitions as owned, and disconnects."""
        chance = self._chance
        group, member = chance.choice(GROUPS), chance.choice(("", f"m-{chance.randrange(100)}"))
        epoch, owned = 0, [OwnedTopicPartitions(chance.choice(self._maker.topic_ids), [0, 1])]
        async with self._connected() as one:
            for number in range(chance.randint(1, 6)):
                joins = epoch == 0
                request = ConsumerGroupHeartbeatRequest(
                    group,
                    member,
                    epoch,
                    instance_id=chance.choice((None, None, "i-1")),
                    rebalance_timeout_ms=chance.choice((1, 500, 60_000)) if joins or chance.random() < 0.3 else -1,
                    subscribed_topic_names=chance.choice((list(STAGE), [])) if joins or number % 3 == 2 else None,
                    topic_partitions=[] if joins else chance.choice((None, [], owned, owned * 50)),
                )
                answer = await self._ask(one, request, 0 if not member else chance.randint(0, 1))
                if answer is None:
                    return
                member = answer.member_id or member
                self._maker.members = [*self._maker.members[-_KEPT_MEMBERS:], member]
                assigned = answer.assignment.topic_partitions if answer.assignment is not None else ()
                owned = [OwnedTopicPartitions(each.topic_id, each.partitions) for each in assigned] or owned
                epoch = chance.choice((answer.member_epoch,) * 6 + (0, -1, -2, answer.member_epoch + 1))

    async def _alter(self) -> None:
        """Sends altered frames of requests."""
        async with self._connected() as one:
            for _ in range(self._chance.choice((1, 5, 20))):
                if one.over:
                    return
                key, version, frame, _ = self._maker.framed(one.next_number)
                altered = self._maker.altered(frame)
                one.forget_order()
                await one.send(key, version, altered, None)
                if self._chance.random() < 0.5:
                    await one.settle(0.05)

    async def _babble(self) -> None:
        """Sends random bytes."""
        chance = self._chance
        async with self._connected() as one:
            one.forget_order()
            for _ in range(chance.choice((1, 3))):
                start = chance.choice(
                    (b"", b"GET / HTTP/1.1\r\n\r\n", b"\x16\x03\x01\x02\0", b"\x7f\xff\xff\xff", b"\xff" * 4)
                )
                await one.send_raw(start + chance.randbytes(chance.choice((1, 40, 5_000))))
                self._note("random bytes")
            await one.settle(0.1)

    async def _stop_half_way(self) -> None:
        """Sends the first part of a large frame, and then nothing."""
        chance = self._chance
        async with self._connected() as one:
            one.forget_order()
            head = struct.pack(">hhi", 0, 9, 1)
            await one.send_raw(
                _SIZE.pack(chance.choice((100, 1 << 20, 31 << 20))) + head + bytes(chance.choice((0, 80, 1 << 20)))
            )
            self._note("half a frame")
            await asyncio.sleep(chance.choice((0.1, 2.0, 8.0)))

    async def _read_slowly(self) -> None:
        """Sends many requests with large answers, without reading these."""
        async with self._connected() as one:
            one.read_no_more()
            for _ in range(300):
                key, version, frame, message = self._maker.framed(
                    one.next_number, self._chance.choice((1, 3, 15, 16, 32))
                )
                await one.send(key, version, frame, message)
                if one.over:
                    return
            await asyncio.sleep(self._chance.choice((0.1, 3.0)))

    async def _flood_versions(self) -> None:
        """Sends the one request that is answered immediately, many times."""
        async with self._connected() as one:
            for _ in range(300):
                await self._send(one, ApiVersionsRequest("x", "1"), self._chance.randint(0, 3))
            await one.settle(_ANSWER_S)

    async def _knock(self) -> None:
        await self._knock_at(self._chance.choice(list(self._places)))

    async def _knock_at(self, node: int) -> None:
        began = time.monotonic()
        try:
            async with asyncio.timeout(HUNG_S), self._connected(node) as one:
                await self._ask(one, MetadataRequest(topics=None), 1, HUNG_S)
        except TimeoutError:
            self.findings.append(f"node {node} does not answer a new connection of Kafka's within {HUNG_S:.0f} s")
        self.slowest_s = max(self.slowest_s, time.monotonic() - began)

    # -- connections ----------------------------------------------------------------------------------------------

    async def _send(self, one: _Conversing, message: KafkaMessage, version: int) -> None:
        frame = self._maker.frame(message.API_KEY, version, message, one.next_number)
        if frame is not None:
            await one.send(message.API_KEY, version, frame, message)

    async def _ask(
        self, one: _Conversing, message: KafkaMessage, version: int, timeout_s: float = _ANSWER_S
    ) -> Any | None:
        one.last = None
        await self._send(one, message, version)
        if not await one.settle(timeout_s):
            return None
        return one.last if isinstance(one.last, APIS[message.API_KEY].response) else None

    @contextlib.asynccontextmanager
    async def _connected(self, node: int | None = None) -> Any:
        node = self._chance.choice(list(self._places)) if node is None else node
        host, _, port = self._places[node].rpartition(":")
        async with asyncio.timeout(_CONNECT_S):
            name = None if self._context is None else host
            reader, writer = await asyncio.open_connection(
                host, int(port), limit=1 << 20, ssl=self._context, server_hostname=name
            )
        for topic in self._vocabulary.topics.values():
            if topic.topic_id not in self._maker.topic_ids:
                self._maker.topic_ids = [*self._maker.topic_ids[-12:], topic.topic_id]
        one = _Conversing(node, self, reader, writer)
        try:
            if self._identity is not None:
                await self._sign_in(one, self._identity)
            yield one
        finally:
            await one.close()

    async def _sign_in(self, one: _Conversing, identity: ScramIdentity) -> None:
        """Authenticates like a valid client."""
        exchange = identity.begin(self._chance)
        if await self._ask(one, SaslHandshakeRequest(identity.mechanism.sasl_name), 1) is None:
            return
        begun = await self._ask(one, SaslAuthenticateRequest(exchange.first.text.encode()), 2)
        if begun is None or begun.error_code != KafkaError.NONE:
            return
        final = exchange.answer(bytes(begun.auth_bytes).decode())
        finished = await self._ask(one, SaslAuthenticateRequest(final.encode()), 2)
        if finished is not None and finished.error_code == KafkaError.NONE:
            self.outcomes["kafka authenticated"] += 1

    def _note(self, what: str) -> None:
        self.sent += 1
        self.by_method[f"Kafka {what}"] += 1

    def noted(self, key: int, version: int, frame: bytes) -> None:
        """Counts a frame that is sent."""
        self._note(APIS[key].name)

    def learn(self, node: int, key: int, version: int, frame: bytes, answer: KafkaMessage) -> None:
        """Evaluates an answer."""
        name = APIS[key].name
        for code in error_codes_of(answer):
            known = KafkaError(code).name if code in _KNOWN else str(code)
            self.answers[f"Kafka {name} {known}"] += 1
            if code == _UNKNOWN:
                self.findings.append(
                    f"node {node} answered {name} of version {version} with UNKNOWN_SERVER_ERROR: {frame[:200].hex()}"
                )


class _Conversing:
    """One connection. Answers are read as they arrive, except for a slow reader."""

    def __init__(
        self, node: int, clients: HostileKafkaClients, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self._node = node
        self._clients = clients
        self._reader, self._writer = reader, writer
        self._asked: deque[tuple[int, int, int, bytes]] = deque()
        self._in_order = True
        self._number = 0
        self._news = asyncio.Event()
        self._may_read = asyncio.Event()
        self._may_read.set()
        self.over = False
        self.last: KafkaMessage | None = None
        self._task = asyncio.ensure_future(self._read())

    @property
    def next_number(self) -> int:
        """Returns the number of the next request."""
        self._number += 1
        return self._number

    def read_no_more(self) -> None:
        """Stops reading answers."""
        self._may_read.clear()

    def forget_order(self) -> None:
        """Accepts data that is not an answer to a request from now on."""
        self._in_order = False

    async def send(self, key: int, version: int, frame: bytes, message: KafkaMessage | None) -> None:
        """Sends a frame."""
        self._clients.noted(key, version, frame)
        if message is not None and not (isinstance(message, ProduceRequest) and message.acks == 0):
            self._asked.append((self._number, key, version, frame))
        await self.send_raw(_SIZE.pack(len(frame)) + frame)

    async def send_raw(self, data: bytes) -> None:
        """Sends bytes."""
        if self.over:
            return
        try:
            self._writer.write(data)
            async with asyncio.timeout(_ANSWER_S):
                await self._writer.drain()
        except (OSError, TimeoutError):
            self.over = True

    async def settle(self, timeout_s: float) -> bool:
        """Waits until all requests are answered, or the connection is closed; returns True if they are answered."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                while self._asked and not self.over:
                    self._news.clear()
                    await self._news.wait()
        return not self._asked

    async def _read(self) -> None:
        try:
            while True:
                await self._may_read.wait()
                (size,) = _SIZE.unpack(await self._reader.readexactly(_SIZE.size))
                if not 0 <= size <= _MOST_ANSWER_BYTES:
                    self._find(f"sent an answer of {size} bytes")
                    return
                self._take(await self._reader.readexactly(size))
                self._news.set()
        except (OSError, asyncio.IncompleteReadError):
            self._clients.outcomes["kafka connection ended by the node"] += 1
        finally:
            self.over = True
            self._news.set()

    def _take(self, data: bytes) -> None:
        if any(each in data for each in self._clients.forbidden):
            self._find("disclosed a secret")
        if not self._in_order:
            return
        if not self._asked:
            self._find("sent an answer to no request")
            return
        number, key, version, frame = self._asked.popleft()
        kind = APIS[key].response
        try:
            correlation_id, at = unpack_response_header(
                data, flexible=version >= kind.FLEXIBLE_FROM and key != _API_VERSIONS
            )
            if correlation_id != number:
                self._find(f"answered request {correlation_id} instead of {number} ({APIS[key].name})")
                return
            answer = decode(kind, data, version, at=at, most_elements=10_000_000)
        except MalformedKafkaMessageError as problem:
            self._find(
                f"answered {APIS[key].name} of version {version} with an invalid answer: {problem}: {data[:60].hex()}"
            )
            return
        self.last = answer
        self._clients.outcomes["kafka answered"] += 1
        self._clients.learn(self._node, key, version, frame, answer)

    def _find(self, what: str) -> None:
        self._clients.findings.append(f"node {self._node} {what}")

    async def close(self) -> None:
        """Closes the connection, usually without a proper end."""
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        self._writer.transport.abort()

"""The cluster as a client uses it: the connection to each node, what is known of topics, and how it is kept current."""

from __future__ import annotations

import asyncio
import itertools
import logging
import re
from collections.abc import Awaitable, Callable, Collection, Coroutine, Iterable, Sequence
from functools import partial
from typing import Any, TypeVar

from quorumlog.sdk.cluster.connection import CLOSE_TIMEOUT_S, NodeConnection
from quorumlog.sdk.cluster.metadata import MetadataCache, PartitionView, TopicView, new_leaders
from quorumlog.sdk.cluster.request_parts import in_parts
from quorumlog.sdk.cluster.shared_calls import SharedCalls
from quorumlog.sdk.errors import (
    ClientClosedError,
    ClusterNotFormedError,
    IllegalArgumentError,
    InvalidPartitionsError,
    InvalidTopicError,
    LeaderNotAvailableError,
    NetworkError,
    NoBrokersAvailableError,
    QuorumlogError,
    RequestTimedOutError,
    UnknownTopicOrPartitionError,
    error_from_proto,
)
from quorumlog.sdk.runtime.backoff import Backoff
from quorumlog.sdk.runtime.client_runtime import SYSTEM_RUNTIME, ClientRuntime
from quorumlog.sdk.runtime.security import WITHOUT_TLS, ClientSecurity, runtime_with_tls
from quorumlog.sdk.types import TopicPartition
from quorumlog.v1 import data_plane_pb2, errors_pb2

Reply = TypeVar("Reply")

_log = logging.getLogger("quorumlog.sdk")

DEFAULT_BOOTSTRAP_SERVERS = "127.0.0.1:19092"
#: A node that has not answered a question within this time is not waited for alone: the next one is asked as well.
_HEDGE_AFTER_S = 0.15
#: A node that has failed is asked behind the others for so long.
_AVOIDED_S = 1.0
#: How long a single node may take over a question that any node can answer.
_ATTEMPT_TIMEOUT_S = 5.0
#: Where no node answers, so many addresses are examined for what serves there instead.
_EXAMINED_ADDRESSES = 3
#: A topic created a moment ago may be unknown to some nodes yet; one unknown for this long does not exist.
_UNKNOWN_TOPIC_GRACE_S = 2.0
#: The key of the shared call that refreshes the metadata.
_REFRESH = "refresh"
_PORT = re.compile(r"[0-9]{1,5}")
#: A name or an address of IPv4, or an address of IPv6 in brackets. Whether there is such a host is for the resolver.
_HOST = re.compile(r"[\w.-]{1,253}|\[[0-9A-Fa-f:.%\w-]{2,100}\]")
#: A topic that nobody has used for so long is forgotten. Whoever wants it again asks for it, as for any other.
IDLE_S = 300.0
#: How often to look for such topics: it takes a look at all that there are.
_LOOK_EVERY_S = IDLE_S / 10


class TopicTtl:
    """Tracks which topics a client uses, so that it forgets the others.

    A client may live for months and use topics that live for minutes. Kafka's producer also forgets topics that were
    not used for ``metadata.max.idle.ms``.

    Arguments:
        clock: monotonic seconds.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._used_at_s: dict[str, float] = {}
        self._users: list[Callable[[], Iterable[str]]] = []
        self._look_at_s = clock() + _LOOK_EVERY_S

    def note(self, topics: Iterable[str]) -> None:
        """Somebody uses topics now."""
        self._used_at_s.update(dict.fromkeys(topics, self._clock()))

    def add_user(self, user: Callable[[], Iterable[str]]) -> None:
        """Adds somebody who says at any time which topics he uses then."""
        self._users.append(user)

    def take_idle(self, known: Iterable[str]) -> list[str]:
        """Those of all known topics that were not used for :data:`IDLE_S`. Only now and then are there any.

        One that is seen here for the first time counts as used now.
        """
        now = self._clock()
        if now < self._look_at_s:
            return []
        self._look_at_s = now + _LOOK_EVERY_S
        for user in self._users:
            self.note(user())
        used = {name: self._used_at_s.get(name, now) for name in known}
        idle = [name for name, at_s in used.items() if now - at_s >= IDLE_S]
        for name in idle:
            del used[name]
        self._used_at_s = used
        return idle


def parse_bootstrap_servers(servers: str | Sequence[str]) -> tuple[str, ...]:
    """``host:port`` addresses from a comma-separated string or a sequence.

    Raises:
        IllegalArgumentError: none is given, or one is not an address.
    """
    listed = servers.split(",") if isinstance(servers, str) else servers
    if not isinstance(listed, Sequence) or not all(isinstance(address, str) for address in listed):
        raise IllegalArgumentError(f"bootstrap_servers is {servers!r}: give 'host:port' strings")
    addresses = tuple(address.strip() for address in listed if address.strip())
    if not addresses:
        raise IllegalArgumentError("bootstrap_servers is empty: give at least one host:port")
    for address in addresses:
        host, _, port = address.rpartition(":")
        if not _HOST.fullmatch(host) or not _PORT.fullmatch(port) or not 0 < int(port) < 65536:
            raise IllegalArgumentError(
                f"bootstrap_servers has {address!r}, which is not host:port{_advice_on(address, host)}"
            )
    return addresses


def _advice_on(address: str, host: str) -> str:
    """What was probably meant by what is no address."""
    if "://" in address:
        return f": leave {address.partition('://')[0]}:// out"
    if len(re.split(r"[\s;]+", address)) > 1:
        return ": separate several by commas"
    if host.count(":") > 1 or (host.count(":") == 1 and not host.strip(":")):
        return ": put brackets around an address of IPv6, as in [::1]:19092"
    return ""


class Cluster:
    """Connections and metadata of one client. Lives on one event loop.

    Arguments:
        bootstrap_servers: where to look first.
        request_timeout_s: limit on a single question.
        bootstrap_timeout_s: how long to look for any node at all before giving up.
        backoff: between attempts.
        client_id: what nodes see the client as.
        runtime: the client's; what it hands on to others takes time and threads from there, too.
        security: how nodes are reached.
    """

    def __init__(
        self,
        bootstrap_servers: Sequence[str],
        *,
        request_timeout_s: float,
        bootstrap_timeout_s: float,
        backoff: Backoff,
        client_id: str,
        runtime: ClientRuntime = SYSTEM_RUNTIME,
        security: ClientSecurity = WITHOUT_TLS,
    ) -> None:
        self._tls_files = security.files()
        runtime = runtime_with_tls(runtime, self._tls_files)
        self.bootstrap_servers = tuple(bootstrap_servers)
        self.metadata = MetadataCache.empty()
        self.backoff = backoff
        self._client_id = client_id
        self._identity = security.identity()
        self.runtime = runtime
        self._correlation_ids = itertools.count(1)
        self.request_timeout_s = request_timeout_s
        self._bootstrap_timeout_s = bootstrap_timeout_s
        self._connections: dict[str, NodeConnection] = {}
        self._wanted: set[str] = set()
        self._use = TopicTtl(runtime.monotonic_s)
        self._background: dict[asyncio.Task[Any], None] = {}
        self.shared = SharedCalls(self.in_background)
        self._listeners: list[Callable[[], None]] = []
        self._rotation = 0
        self._reached = False
        self._closed = False
        self._loop: asyncio.AbstractEventLoop | None = None

    def on_change(self, listener: Callable[[], None]) -> None:
        """Calls ``listener`` whenever metadata has been heard."""
        self._listeners.append(listener)

    def connection(self, address: str) -> NodeConnection:
        """The connection to an address; made on first use."""
        if self._closed:
            raise ClientClosedError("the client is closed")
        found = self._connections.get(address)
        if found is None:
            self._loop = asyncio.get_running_loop()
            found = self._connections[address] = NodeConnection(
                address,
                self._client_id,
                self.runtime,
                partial(next, self._correlation_ids),
                self._identity,
                self._tls_files,
            )
        return found

    @property
    def connection_count(self) -> int:
        """The addresses that it has turned to."""
        return len(self._connections)

    def open_on(self) -> asyncio.AbstractEventLoop | None:
        """Returns the event loop of its connections; None while there are none, and once it is closed."""
        return None if self._closed else self._loop

    def node(self, node_id: int) -> NodeConnection | None:
        """The connection to a node; None when its address is unknown."""
        address = self.metadata.addresses.get(node_id)
        return self.connection(address) if address is not None else None

    def leader(self, topic: str, partition: int) -> tuple[PartitionView, NodeConnection] | None:
        """A partition's leader, if one is known and has an address."""
        view = self.metadata.partition(topic, partition)
        if view is None or view.leader < 0:
            return None
        node = self.node(view.leader)
        return (view, node) if node is not None else None

    def learn_from(self, topic: str, topic_id: bytes, partition: int, error: errors_pb2.Error) -> bool:
        """Takes in the leader that an error names; True if it was news.

        Arguments:
            topic_id: of the topic that the answer is about.
        """
        if not error.HasField("leader"):
            return False
        hint = error.leader
        news = self.metadata.learn_leader(topic, topic_id, partition, hint.node_id, hint.leader_epoch)
        if news:
            self._log_leader(topic, partition)
            if (node := self.node(error.leader.node_id)) is not None:
                node.suspect = False  # Whatever failed there was before it was elected.
        return news

    def _log_leader(self, topic: str, partition: int) -> None:
        view = self.metadata.partition(topic, partition)
        assert view is not None, "its leader is known"
        _log.info("node %d leads %s-%d now, in epoch %d", view.leader, topic, partition, view.leader_epoch)

    def in_background(self, work: Coroutine[Any, Any, Reply]) -> asyncio.Task[Reply]:
        """Runs something of the client's until it is closed, which waits for its end."""
        task = asyncio.get_running_loop().create_task(work)
        self._background[task] = None
        task.add_done_callback(lambda ended: self._background.pop(ended, None))
        if self._closed:
            task.cancel()
        return task

    # --- metadata ------------------------------------------------------------------------------------------------

    def watch_topics(self, topics: Collection[str]) -> None:
        """Includes topics in every refresh from now on, for as long as they are used."""
        self._wanted.update(topics)
        self._use.note(topics)

    def keep_topics(self, user: Callable[[], Iterable[str]]) -> None:
        """Forgets no topics that ``user`` uses, who says at any time which ones those are."""
        self._use.add_user(user)

    def _forget_idle(self) -> None:
        for name in self._use.take_idle({**dict.fromkeys(self._wanted), **self.metadata.topics}):
            self._wanted.discard(name)
            self.metadata.forget(name)

    def request_refresh(self) -> None:
        """Starts a refresh in the background unless one is under way. Failures are left to the next one."""
        if not self._closed:
            self.shared.begin(_REFRESH, self._refresh_once)

    async def _refresh_once(self) -> None:
        await self.ask_metadata(sorted(self._wanted))

    async def ask_metadata(
        self, topics: Sequence[str], *, all_topics: bool = False, linearizable: bool = False
    ) -> data_plane_pb2.MetadataResponse:
        """Asks for brokers and topics, takes the answer in, and returns it. One without brokers says nothing but that
        no cluster has formed, as far as the nodes that answer know.

        Arguments:
            linearizable: the answer shows all that was done before it was asked for.
        """
        timeout_ms = int(min(_ATTEMPT_TIMEOUT_S, self.request_timeout_s) * 1000)
        answers = []
        for part in list(in_parts(topics)) or [[]]:
            request = data_plane_pb2.MetadataRequest(
                topics=part, all_topics=all_topics, linearizable=linearizable, timeout_ms=timeout_ms
            )
            answers.append(await self._ask_metadata_part(request))
        # Taken in together: the listeners are told of all or, where one part has failed, of nothing.
        errors = dict[str, QuorumlogError]()
        for answer in answers:
            if answer.brokers:
                before = {topic.name: self.metadata.topics.get(topic.name) for topic in answer.topics}
                errors |= self.metadata.merge(answer)
                for name, view in before.items():
                    for led in new_leaders(view, self.metadata.topics.get(name)):
                        self._log_leader(name, led.partition)
        response, *others = answers
        for other in others:
            response.MergeFrom(other)
        for name, error in errors.items():
            if isinstance(error, UnknownTopicOrPartitionError | InvalidTopicError) and name not in self.metadata.topics:
                self._wanted.discard(name)
        self._forget_idle()
        for listener in self._listeners:
            listener()
        return response

    async def _ask_metadata_part(self, request: data_plane_pb2.MetadataRequest) -> data_plane_pb2.MetadataResponse:
        ignorant: data_plane_pb2.MetadataResponse | None = None

        async def ask(node: NodeConnection, limit_s: float) -> data_plane_pb2.MetadataResponse:
            nonlocal ignorant
            response = await node.data_plane.Metadata(request, timeout=limit_s)
            if not response.brokers:
                # It may be new, or have lost its disk: of topics it knows nothing, not even that there are none.
                ignorant = response
                raise ClusterNotFormedError(f"{node.address} has not heard of a cluster that has formed")
            return response

        try:
            return await self.ask_any(ask)
        except ClusterNotFormedError:
            if ignorant is None:
                raise  # A node has said so itself, and why.
            return ignorant

    async def ensure_topics(self, topics: Collection[str], limit_s: float) -> dict[str, TopicView]:
        """Returns the views of topics. Requests those that are not known, once for all tasks that wait for them.

        Raises:
            UnknownTopicOrPartitionError: a topic does not exist.
            InvalidTopicError: no topic can have such a name.
            NoBrokersAvailableError: nobody answered.
            RequestTimedOutError: ``limit_s`` was too short.
        """
        if any(topic not in self.metadata.topics for topic in topics):
            key = ("topics", frozenset(topics), limit_s)
            return await self.shared.share(key, lambda: self._look_up_topics(topics, limit_s))
        # Also those that were known, from an answer about all topics: each refresh asks who leads them.
        self.watch_topics(topics)
        return {topic: self.metadata.topics[topic] for topic in topics}

    async def _look_up_topics(self, topics: Collection[str], limit_s: float) -> dict[str, TopicView]:
        async def attempt() -> None:
            self._use.note(topics)
            missing = [topic for topic in topics if topic not in self.metadata.topics]
            if not missing:
                return
            self.watch_topics(missing)
            response = await self.ask_metadata(sorted({*self._wanted, *missing}))
            if not response.brokers:
                raise ClusterNotFormedError("the cluster has not formed yet: start all of its controllers")
            refused = {
                topic.name: error_from_proto(topic.error) for topic in response.topics if topic.HasField("error")
            }
            for topic in missing:
                if isinstance(refused.get(topic), InvalidTopicError):
                    raise refused[topic]  # No wait will bring it.
                if topic not in self.metadata.topics:
                    raise UnknownTopicOrPartitionError(f"topic {topic!r} does not exist: create it first")

        not_there = (UnknownTopicOrPartitionError, ClusterNotFormedError)
        async for turn in self.backoff.retrying(limit_s, not_there, _UNKNOWN_TOPIC_GRACE_S):
            with turn:
                await attempt()
        self.watch_topics(topics)
        return {topic: self.metadata.topics[topic] for topic in topics}

    async def require_leader(self, topic: str, partition: int) -> tuple[PartitionView, NodeConnection]:
        """A partition's leader, after a refresh where none is known.

        Raises:
            LeaderNotAvailableError: it has none at the moment (retriable).
        """
        self._use.note([topic])
        found = self.leader(topic, partition)
        if found is None:
            self.watch_topics([topic])
            await self.shared.share(_REFRESH, self._refresh_once)
            found = self.leader(topic, partition)
        if found is None:
            raise LeaderNotAvailableError(f"partition {topic}-{partition} has no leader at the moment: try again")
        return found

    async def require_partitions(self, wanted: Iterable[TopicPartition], limit_s: float) -> None:
        """Makes sure that partitions exist.

        Raises:
            InvalidPartitionsError: there is no such partition.
            UnknownTopicOrPartitionError: there is no such topic.
        """
        views = await self.ensure_topics(sorted({tp.topic for tp in wanted}), limit_s)
        for tp in wanted:
            if not 0 <= tp.partition < len(views[tp.topic].partitions):
                last = len(views[tp.topic].partitions) - 1
                raise InvalidPartitionsError(
                    f"there is no partition {tp.partition} in topic {tp.topic!r}: it has 0 to {last}"
                )

    # --- questions that any node can answer ----------------------------------------------------------------------

    async def ask_any(self, ask: Callable[[NodeConnection, float], Awaitable[Reply]]) -> Reply:
        """Asks one node after the other, the next as soon as one fails or hesitates; the first answer counts.

        Raises:
            NoBrokersAvailableError: no node was ever reached within the bootstrap time; names the addresses.
            QuorumlogError: all nodes failed this time.
        """
        if self._reached:
            return await self._ask_round(ask)
        try:
            async for turn in self.backoff.retrying(self._bootstrap_timeout_s, (ClusterNotFormedError,)):
                with turn:
                    reply = await self._ask_round(ask)
        except QuorumlogError as error:
            if not isinstance(error, NetworkError | RequestTimedOutError):
                self._reached = True  # A node has answered, if only to say why it cannot help.
                raise
            raise NoBrokersAvailableError(await self._why_nobody_answers(error)) from None
        self._reached = True
        return reply

    async def _why_nobody_answers(self, error: QuorumlogError) -> str:
        """Returns what is wrong with the addresses, and what to do."""
        tls = self._tls_files is not None
        for address in self.bootstrap_servers[:_EXAMINED_ADDRESSES]:
            problem: str | None = await self.runtime.run_blocking(self.runtime.what_answers, address, tls)
            if problem is not None:
                return problem
        tried = ", ".join(self.bootstrap_servers)
        return f"no quorumlog node answered at {tried} ({error.message}): is the cluster up, the address right?"

    async def _ask_round(self, ask: Callable[[NodeConnection, float], Awaitable[Reply]]) -> Reply:
        limit_s = min(_ATTEMPT_TIMEOUT_S, self.request_timeout_s, max(0.1, self._bootstrap_timeout_s))
        waiting = self.candidates()
        running: list[asyncio.Task[Reply]] = []
        failure: QuorumlogError | None = None
        try:
            while waiting or running:
                if waiting:
                    node = waiting.pop(0)
                    asked = asyncio.ensure_future(node.call(ask(node, limit_s)))
                    asked.add_done_callback(_look_at_error)
                    running.append(asked)
                done, _ = await asyncio.wait(
                    running, timeout=_HEDGE_AFTER_S if waiting else None, return_when=asyncio.FIRST_COMPLETED
                )
                # In the order in which they were asked: a set of tasks has none that a second run would repeat.
                ended, running = [t for t in running if t in done], [t for t in running if t not in done]
                for task in ended:
                    error = task.exception()
                    if error is None:
                        return task.result()
                    if not isinstance(error, QuorumlogError):
                        raise error
                    failure = error
        finally:
            for task in running:
                task.cancel()
        assert failure is not None
        raise failure

    def candidates(self) -> list[NodeConnection]:
        """Every node, each time another one first; those that failed just now come last.

        Not those that failed at some time: as long as a node that knows little answers, nobody would ask them again.
        """
        now = self.runtime.monotonic_s()
        addresses = list(dict.fromkeys([*self.metadata.addresses.values(), *self.bootstrap_servers]))
        self._rotation += 1
        start = self._rotation % len(addresses)
        connections = [self.connection(address) for address in addresses[start:] + addresses[:start]]
        return sorted(connections, key=lambda node: node.suspect and now < node.failed_at_s + _AVOIDED_S)

    async def retrying(self, attempt: Callable[[], Awaitable[Reply]], limit_s: float, what: str) -> Reply:
        """Runs ``attempt`` until it succeeds, fails for good or ``limit_s`` has passed.

        Raises:
            RequestTimedOutError: the time was over while an attempt was under way.
        """
        last: QuorumlogError | None = None

        async def noting() -> Reply:
            nonlocal last
            try:
                return await attempt()
            except QuorumlogError as error:
                last = error
                raise

        try:
            async with asyncio.timeout(limit_s):
                async for turn in self.backoff.retrying(limit_s):
                    with turn:
                        reply = await noting()
        except TimeoutError:
            why = f": {last.message}" if last is not None else ""
            raise RequestTimedOutError(f"{what} did not complete within {limit_s:g} s{why}") from None
        return reply

    async def close(self) -> None:
        """Closes every connection. One that is cancelled closes them all the same, at once."""
        self._closed = True
        self.shared.close()
        connections = list(self._connections.values())
        ending = list(self._background)
        for task in ending:
            task.cancel()
        try:
            await asyncio.gather(*(connection.drain() for connection in connections))
        finally:
            for connection in connections:
                ending += await connection.close()
        if ending:
            await asyncio.wait(ending, timeout=CLOSE_TIMEOUT_S)


def _look_at_error(task: asyncio.Future[Any]) -> None:
    """Nobody waits for the nodes that were asked beside the one that answered first; asyncio would complain of that."""
    if not task.cancelled():
        task.exception()

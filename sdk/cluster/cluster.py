"""A client's connections to nodes, and its metadata of topics."""

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
#: If a node has not answered a request within this time, the next one is asked too.
_HEDGE_AFTER_S = 0.15
#: A node that has failed is tried after the others for this time.
_AVOIDED_S = 1.0
#: Time limit of a single node for a request that any node can answer.
_ATTEMPT_TIMEOUT_S = 5.0
#: If no node answers, this many addresses are examined for another protocol.
_EXAMINED_ADDRESSES = 3
#: A topic that was just created may be unknown to some nodes; one unknown for this long does not exist.
_UNKNOWN_TOPIC_GRACE_S = 2.0
#: The key of the shared call that refreshes the metadata.
_REFRESH = "refresh"
_PORT = re.compile(r"[0-9]{1,5}")
#: A name, an IPv4 address, or an IPv6 address in brackets. The resolver decides whether the host exists.
_HOST = re.compile(r"[\w.-]{1,253}|\[[0-9A-Fa-f:.%\w-]{2,100}\]")
#: A topic unused for this time is forgotten. Its next use requests it again.
IDLE_S = 300.0
#: Interval of checks for such topics: each looks at all known ones.
_LOOK_EVERY_S = IDLE_S / 10


class TopicTtl:
    """Tracks the topics in use, so that a client forgets the others.

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
        """Marks topics as used now."""
        self._used_at_s.update(dict.fromkeys(topics, self._clock()))

    def add_user(self, user: Callable[[], Iterable[str]]) -> None:
        """Adds a callback that returns the topics in use at any time."""
        self._users.append(user)

    def take_idle(self, known: Iterable[str]) -> list[str]:
        """Returns known topics that were not used for :data:`IDLE_S`; usually none.

        A topic seen here for the first time counts as used now.
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
    """Returns the ``host:port`` addresses of a comma-separated string or a sequence.

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
    """Returns advice for an invalid address, by its likely meaning."""
    if "://" in address:
        return f": leave {address.partition('://')[0]}:// out"
    if len(re.split(r"[\s;]+", address)) > 1:
        return ": separate several by commas"
    if host.count(":") > 1 or (host.count(":") == 1 and not host.strip(":")):
        return ": put brackets around an address of IPv6, as in [::1]:19092"
    return ""


class Cluster:
    """Connections and metadata of one client, on one event loop.

    Arguments:
        bootstrap_servers: first addresses to contact.
        request_timeout_s: time limit of a single request.
        bootstrap_timeout_s: time limit for reaching a first node.
        backoff: between attempts.
        client_id: the user agent that nodes see.
        runtime: source of time, randomness and threads, also for objects that it is passed to.
        security: options for TLS and authentication.
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
        """Calls ``listener`` whenever metadata was received."""
        self._listeners.append(listener)

    def connection(self, address: str) -> NodeConnection:
        """Returns the connection to an address; created on first use."""
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
        """Number of addresses with a connection object."""
        return len(self._connections)

    def open_on(self) -> asyncio.AbstractEventLoop | None:
        """Returns the event loop of its connections; None before the first one, and once it is closed."""
        return None if self._closed else self._loop

    def node(self, node_id: int) -> NodeConnection | None:
        """Returns the connection to a node; None if its address is unknown."""
        address = self.metadata.addresses.get(node_id)
        return self.connection(address) if address is not None else None

    def leader(self, topic: str, partition: int) -> tuple[PartitionView, NodeConnection] | None:
        """Returns a partition's leader, if it is known and has an address."""
        view = self.metadata.partition(topic, partition)
        if view is None or view.leader < 0:
            return None
        node = self.node(view.leader)
        return (view, node) if node is not None else None

    def learn_from(self, topic: str, topic_id: bytes, partition: int, error: errors_pb2.Error) -> bool:
        """Applies the leader that an error names; returns True if it was new.

        Arguments:
            topic_id: of the topic in the response.
        """
        if not error.HasField("leader"):
            return False
        hint = error.leader
        news = self.metadata.learn_leader(topic, topic_id, partition, hint.node_id, hint.leader_epoch)
        if news:
            self._log_leader(topic, partition)
            if (node := self.node(error.leader.node_id)) is not None:
                node.suspect = False  # Earlier failures do not matter: it was elected after them.
        return news

    def _log_leader(self, topic: str, partition: int) -> None:
        view = self.metadata.partition(topic, partition)
        assert view is not None, "its leader is known"
        _log.info("node %d leads %s-%d now, in epoch %d", view.leader, topic, partition, view.leader_epoch)

    def in_background(self, work: Coroutine[Any, Any, Reply]) -> asyncio.Task[Reply]:
        """Runs a coroutine until the client is closed; closing waits for its end."""
        task = asyncio.get_running_loop().create_task(work)
        self._background[task] = None
        task.add_done_callback(lambda ended: self._background.pop(ended, None))
        if self._closed:
            task.cancel()
        return task

    # --- metadata ------------------------------------------------------------------------------------------------

    def watch_topics(self, topics: Collection[str]) -> None:
        """Includes topics in every refresh from now on, as long as they are used."""
        self._wanted.update(topics)
        self._use.note(topics)

    def keep_topics(self, user: Callable[[], Iterable[str]]) -> None:
        """Keeps the topics that ``user`` returns, at any time, from being forgotten."""
        self._use.add_user(user)

    def _forget_idle(self) -> None:
        for name in self._use.take_idle({**dict.fromkeys(self._wanted), **self.metadata.topics}):
            self._wanted.discard(name)
            self.metadata.forget(name)

    def request_refresh(self) -> None:
        """Starts a refresh in the background unless one is in progress. Failures are left to the next one."""
        if not self._closed:
            self.shared.begin(_REFRESH, self._refresh_once)

    async def _refresh_once(self) -> None:
        await self.ask_metadata(sorted(self._wanted))

    async def ask_metadata(
        self, topics: Sequence[str], *, all_topics: bool = False, linearizable: bool = False
    ) -> data_plane_pb2.MetadataResponse:
        """Requests brokers and topics, applies the response, and returns it.

        A response without brokers means only that the answering nodes belong to no formed cluster.

        Arguments:
            linearizable: the response includes all changes that completed before the request.
        """
        timeout_ms = int(min(_ATTEMPT_TIMEOUT_S, self.request_timeout_s) * 1000)
        answers = []
        for part in list(in_parts(topics)) or [[]]:
            request = data_plane_pb2.MetadataRequest(
                topics=part, all_topics=all_topics, linearizable=linearizable, timeout_ms=timeout_ms
            )
            answers.append(await self._ask_metadata_part(request))
        # Applied together: the listeners are notified of all parts, or of none if one has failed.
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
                # It may be new, or have lost its disk: it has no topics, and cannot tell that they do not exist.
                ignorant = response
                raise ClusterNotFormedError(f"{node.address} belongs to no cluster that has formed")
            return response

        try:
            return await self.ask_any(ask)
        except ClusterNotFormedError:
            if ignorant is None:
                raise  # A node has reported the reason itself.
            return ignorant

    async def ensure_topics(self, topics: Collection[str], limit_s: float) -> dict[str, TopicView]:
        """Returns the views of topics. Requests unknown topics, once for all tasks that wait for them.

        Raises:
            UnknownTopicOrPartitionError: a topic does not exist.
            InvalidTopicError: a topic name is not allowed.
            NoBrokersAvailableError: no node answered.
            RequestTimedOutError: ``limit_s`` has passed.
        """
        if any(topic not in self.metadata.topics for topic in topics):
            key = ("topics", frozenset(topics), limit_s)
            return await self.shared.share(key, lambda: self._look_up_topics(topics, limit_s))
        # Also topics known from a response about all topics: each refresh requests their leaders.
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
                    raise refused[topic]  # Waiting would not help.
                if topic not in self.metadata.topics:
                    raise UnknownTopicOrPartitionError(f"topic {topic!r} does not exist: create it first")

        not_there = (UnknownTopicOrPartitionError, ClusterNotFormedError)
        async for turn in self.backoff.retrying(limit_s, not_there, _UNKNOWN_TOPIC_GRACE_S):
            with turn:
                await attempt()
        self.watch_topics(topics)
        return {topic: self.metadata.topics[topic] for topic in topics}

    async def require_leader(self, topic: str, partition: int) -> tuple[PartitionView, NodeConnection]:
        """Returns a partition's leader, after a refresh if none is known.

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
        """Verifies that partitions exist.

        Raises:
            InvalidPartitionsError: a partition does not exist.
            UnknownTopicOrPartitionError: a topic does not exist.
        """
        views = await self.ensure_topics(sorted({tp.topic for tp in wanted}), limit_s)
        for tp in wanted:
            if not 0 <= tp.partition < len(views[tp.topic].partitions):
                last = len(views[tp.topic].partitions) - 1
                raise InvalidPartitionsError(f"topic {tp.topic!r} has no partition {tp.partition}: it has 0 to {last}")

    # --- questions that any node can answer ----------------------------------------------------------------------

    async def ask_any(self, ask: Callable[[NodeConnection, float], Awaitable[Reply]]) -> Reply:
        """Sends a request to one node after the other, the next one as soon as one fails or is slow; the first answer
        counts.

        Raises:
            NoBrokersAvailableError: no node was ever reached within the bootstrap time; the message names the
                addresses.
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
                self._reached = True  # A node has answered, if only with an error.
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
                    call = asyncio.ensure_future(node.call(ask(node, limit_s)))
                    call.add_done_callback(_look_at_error)
                    running.append(call)
                done, _ = await asyncio.wait(
                    running, timeout=_HEDGE_AFTER_S if waiting else None, return_when=asyncio.FIRST_COMPLETED
                )
                # In the order of the requests: a set of tasks has no order that a second run would repeat.
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
        """Returns all nodes, starting with another one each time; nodes that failed just now come last.

        Earlier failures do not count: otherwise they would never be tried again as long as a node with little metadata
        answers.
        """
        now = self.runtime.monotonic_s()
        addresses = list(dict.fromkeys([*self.metadata.addresses.values(), *self.bootstrap_servers]))
        self._rotation += 1
        start = self._rotation % len(addresses)
        connections = [self.connection(address) for address in addresses[start:] + addresses[:start]]
        return sorted(connections, key=lambda node: node.suspect and now < node.failed_at_s + _AVOIDED_S)

    async def retrying(
        self,
        attempt: Callable[[], Awaitable[Reply]],
        limit_s: float,
        what: str,
        brief: tuple[type[QuorumlogError], ...] = (),
        brief_s: float = 0.0,
    ) -> Reply:
        """Runs ``attempt`` until it succeeds, fails permanently or ``limit_s`` has passed.

        Arguments:
            brief: errors that are accepted as final once ``brief_s`` has passed.

        Raises:
            RequestTimedOutError: the time was over during an attempt.
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
                async for turn in self.backoff.retrying(limit_s, brief, brief_s):
                    with turn:
                        reply = await noting()
        except TimeoutError:
            why = f": {last.message}" if last is not None else ""
            raise RequestTimedOutError(f"{what} did not complete within {limit_s:g} s{why}") from None
        return reply

    async def close(self) -> None:
        """Closes every connection. If it is cancelled, it still closes all of them, at once."""
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
    """Retrieves the exceptions of nodes asked in addition to the one that answered first; otherwise asyncio would
    warn."""
    if not task.cancelled():
        task.exception()

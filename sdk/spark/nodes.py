"""Blocking calls to a cluster's nodes, for Spark's Python workers.

A Spark task reads one partition, in one thread, in a forked process that serves many tasks. So this is gRPC's
synchronous client, without threads or event loops of ours: connections and metadata are kept per process, and created
only after the fork.
"""

from __future__ import annotations

import functools
import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeVar

import grpc

from quorumlog.sdk.cluster.blocking_session import BlockingSession
from quorumlog.sdk.cluster.metadata import MetadataCache, PartitionView, TopicView
from quorumlog.sdk.cluster.request_parts import in_parts
from quorumlog.sdk.errors import (
    LeaderNotAvailableError,
    NoBrokersAvailableError,
    QuorumlogError,
    SaslSessionExpiredError,
    UnknownTopicOrPartitionError,
    UnsupportedVersionError,
    error_from_proto,
)
from quorumlog.sdk.failed_calls import error_from_rpc
from quorumlog.sdk.records.fetch_answer import FetchAnswer, read_fetch_answer
from quorumlog.sdk.runtime.backoff import Backoff
from quorumlog.sdk.runtime.security import IDLE_MS
from quorumlog.sdk.spark.servers import security_of
from quorumlog.v1 import data_plane_pb2 as pb
from quorumlog.v1 import data_plane_pb2_grpc

_Answer = TypeVar("_Answer")

#: A node that is up answers a metadata request at once, from memory.
_METADATA_TIMEOUT_S = 5.0
CHANNEL_OPTIONS = (
    ("grpc.max_receive_message_length", 256 << 20),
    ("grpc.enable_http_proxy", 0),
    # A response is received while the previous one is being processed; gRPC's own window would delay most of it.
    ("grpc.http2.lookahead_bytes", 16 << 20),
    ("grpc.http2.bdp_probe", 0),
    ("grpc.enable_retries", 0),
    ("grpc.initial_reconnect_backoff_ms", 50),
    # The time limit of one attempt to connect, which takes seconds on a busy machine.
    ("grpc.min_reconnect_backoff_ms", 5_000),
    ("grpc.max_reconnect_backoff_ms", 500),
    # A process that is suspended keeps its socket open: only an unanswered ping detects it. The ping timeout counts for
    # pings of gRPC itself: while one is in flight, a minute by default, no keepalive ping is sent.
    ("grpc.keepalive_time_ms", 5_000),
    ("grpc.keepalive_timeout_ms", 10_000),
    ("grpc.http2.ping_timeout_ms", 10_000),
    ("grpc.http2.max_pings_without_data", 0),
)


class Patience:
    """Limits the time without progress; delays between attempts grow, with jitter.

    Arguments:
        limit_s: seconds without progress after which the last error is raised.
    """

    def __init__(self, limit_s: float = 30.0) -> None:
        self._limit_s = limit_s
        self._backoff = Backoff()
        self.progress()

    def progress(self) -> None:
        """Restarts the clock after progress."""
        self._failures = 0
        self._deadline = time.monotonic() + self._limit_s

    @property
    def failing(self) -> bool:
        """True if the last attempt has failed."""
        return self._failures > 0

    def pause(self, error: QuorumlogError) -> None:
        """Waits before the next attempt, or raises ``error`` if it is permanent or the time is over."""
        self._failures += 1
        delay_s = self._backoff.delay_s(self._failures)
        if not error.retriable or time.monotonic() + delay_s > self._deadline:
            raise error
        time.sleep(delay_s)


class Nodes:
    """A process's connections and metadata of a cluster. Created by ``nodes_at``."""

    def __init__(self, bootstrap_servers: str) -> None:
        self._bootstrap = bootstrap_servers.split(",")
        self._security = security_of(bootstrap_servers)
        self._identity = self._security.identity()
        self._tls_files = self._security.files()
        self._made_with = 0
        #: The node to ask first.
        self._first = self._bootstrap[0]
        self._channels: dict[str, grpc.Channel] = {}
        self._cache = MetadataCache.empty()
        self._feature_level = 0
        #: Addresses of the coordinators of transactional ids, as they were last: one may have moved since.
        self.coordinators: dict[str, str] = {}

    def channel(self, address: str) -> grpc.Channel:
        """Returns the connection to the node at ``host:port``; a new one if its TLS files have changed."""
        if self._tls_files is not None and (state := self._tls_files.look()) != self._made_with:
            # Calls in flight keep the previous ones open.
            self._channels, self._made_with = {}, state
        channel = self._channels.get(address)
        if channel is None:
            if self._tls_files is None:
                channel = grpc.insecure_channel(address, options=CHANNEL_OPTIONS)
            else:
                options = (*CHANNEL_OPTIONS, ("grpc.client_idle_timeout_ms", IDLE_MS))
                channel = grpc.secure_channel(address, self._tls_files.credentials(), options=options)
            if self._identity is not None:
                channel = grpc.intercept_channel(channel, BlockingSession(channel, self._identity, address))
            self._channels[address] = channel
        return channel

    def stub(self, address: str) -> data_plane_pb2_grpc.DataPlaneStub:
        """Returns the data plane of the node at ``host:port``."""
        return data_plane_pb2_grpc.DataPlaneStub(self.channel(address))

    def fetches(
        self, address: str, requests: Iterator[pb.FetchRequest], timeout_s: float
    ) -> grpc.CallIterator[FetchAnswer]:
        """Opens a stream of fetches from the node at ``host:port``, with a time limit."""
        call = self.channel(address).stream_stream(
            "/quorumlog.v1.DataPlane/Fetch",
            request_serializer=pb.FetchRequest.SerializeToString,
            response_deserializer=read_fetch_answer,
        )
        return call(requests, timeout=timeout_s)

    def topic_names(self, *, newest: bool) -> list[str]:
        """Returns all topics except internal ones.

        Arguments:
            newest: request them from the controller, instead of from any node's possibly older metadata.

        Raises:
            NoBrokersAvailableError: no node answers.
        """
        if newest:
            response = self._newest(pb.MetadataRequest(all_topics=True))
        else:
            response = self._first_answer(pb.MetadataRequest(all_topics=True))
        return [topic.name for topic in response.topics if not topic.HasField("error") and not topic.internal]

    def topics(self, names: Iterable[str], *, newest: bool = False) -> dict[str, TopicView]:
        """Returns the existing topics of these names, with their current leaders.

        Nodes learn of a new topic one after the other: a name unknown to one of them counts as missing only if the
        controller confirms it.

        Arguments:
            newest: request them from the controller, instead of from any node's possibly older metadata.

        Raises:
            NoBrokersAvailableError: no node answers.
        """
        found: dict[str, TopicView] = {}
        for part in in_parts(sorted(names)):
            found |= self._topics(part, newest)
        return found

    def _topics(self, wanted: list[str], newest: bool) -> dict[str, TopicView]:
        found: dict[str, TopicView] = {}
        if not newest:
            found = self._take(wanted, self._first_answer(pb.MetadataRequest(topics=wanted)))
            wanted = [name for name in wanted if name not in found]
        if wanted:
            found |= self._take(wanted, self._newest(pb.MetadataRequest(topics=wanted)))
        return found

    def _take(self, names: Sequence[str], response: pb.MetadataResponse) -> dict[str, TopicView]:
        errors = self._cache.merge(response)
        for refusal in errors.values():
            if not isinstance(refusal, UnknownTopicOrPartitionError):
                raise refusal
        return {name: self._cache.topics[name] for name in names if name not in errors}

    def feature_level(self, wanted: int) -> int:
        """Returns the cluster's feature level, or a former one that is ``wanted`` or higher: levels never decrease.

        Raises:
            NoBrokersAvailableError: no node answers.
        """
        if self._feature_level < wanted:
            self._feature_level = self._first_answer(pb.MetadataRequest()).feature_level
        if self._feature_level < wanted:
            # A node may not have received the newest level yet.
            self._feature_level = self._newest(pb.MetadataRequest()).feature_level
        return self._feature_level

    def look_again(self, names: Iterable[str]) -> dict[str, TopicView]:
        """Returns the existing topics of these names, after the known metadata has proved outdated.

        A node that is cut off from the others answers too, and never learns of a new leader: after a response without
        changes the next request goes to another node.

        Raises:
            NoBrokersAvailableError: no node answers.
        """
        wanted = sorted(names)
        before = {name: self._cache.topics.get(name) for name in wanted}
        found = self.topics(wanted)
        if all(found.get(name) == view for name, view in before.items()):
            self._turn()
        return found

    def leader(
        self, topic: str, topic_id: bytes, partition: int, *, refresh: bool, failing: bool = False
    ) -> tuple[PartitionView, str]:
        """Returns a partition and the address of its leader.

        Arguments:
            topic_id: identity of the topic: another topic of its name is an error.
            refresh: look it up again, because the metadata may be outdated.
            failing: the metadata has proved outdated: see ``look_again``.

        Raises:
            UnknownTopicOrPartitionError: the topic is deleted, or another has its name.
            LeaderNotAvailableError: it has no leader at the moment; retriable.
        """
        known = self._cache.topics.get(topic)
        if failing:
            known = self.look_again([topic]).get(topic)
        elif refresh or not _is_meant(known, topic_id, partition):
            known = self.topics([topic]).get(topic)
        if known is not None and not _is_meant(known, topic_id, partition):
            # A node that lags behind may have an older topic of that name, or fewer partitions.
            known = self.topics([topic], newest=True).get(topic)
        if known is None or not _is_meant(known, topic_id, partition):
            state = "does not exist" if known is None else "was deleted and created again"
            raise UnknownTopicOrPartitionError(f"topic {topic} {state} since the query was planned", retriable=False)
        view = known.partitions[partition]
        address = self._cache.addresses.get(view.leader)
        if address is None:
            raise LeaderNotAvailableError(f"topic {topic} partition {partition} has no leader: are its replicas up?")
        return view, address

    def address(self, node_id: int) -> str | None:
        """Returns the address of a node, or None if none is known."""
        return self._cache.addresses.get(node_id)

    def addresses(self) -> list[str]:
        """Returns the addresses of all nodes, starting with the one that answered last.

        So a silent node is waited for once, and not in every call. Addresses beyond the bootstrap servers are learned
        from metadata: a cluster may move while the job runs.
        """
        every = list(dict.fromkeys([*self._bootstrap, *self._cache.addresses.values()]))
        at = every.index(self._first) if self._first in every else 0
        return every[at:] + every[:at]

    def _turn(self) -> None:
        """Moves the node that answered last to the end of the order."""
        _, *others = self.addresses()
        self._first = others[0] if others else self._first

    def first_answer(self, ask: Callable[[str], _Answer]) -> _Answer:
        """Returns the answer of the first node that answers.

        Arguments:
            ask: sends the request to an address.

        Raises:
            NoBrokersAvailableError: no node answers.
            QuorumlogError: one has refused.
        """
        failures: list[QuorumlogError] = []
        for address in self.addresses():
            try:
                answer = self._ask_in_session(ask, address)
            except grpc.RpcError as error:
                failure = error_from_rpc(error, address)
                # Another service may listen at a former node's address, and the others are still nodes.
                if not failure.retriable and not isinstance(failure, UnsupportedVersionError):
                    raise failure from None
                failures.append(failure)
                continue
            self._first = address
            return answer
        if all(isinstance(failure, UnsupportedVersionError) for failure in failures):
            raise failures[-1]
        raise self._nobody(failures[-1])

    def _ask_in_session(self, ask: Callable[[str], _Answer], address: str) -> _Answer:
        """Sends a request to a node; again in a new session if the node no longer has the old one, as after a
        restart."""
        try:
            return ask(address)
        except grpc.RpcError as error:
            if not isinstance(error_from_rpc(error, address), SaslSessionExpiredError):
                raise
            return ask(address)

    def _first_answer(self, request: pb.MetadataRequest) -> pb.MetadataResponse:
        answer: pb.MetadataResponse = self.first_answer(
            lambda address: self.stub(address).Metadata(request, timeout=_METADATA_TIMEOUT_S)
        )
        return answer

    def _newest(self, request: pb.MetadataRequest) -> pb.MetadataResponse:
        """Returns a response that includes all changes that completed before the request."""
        request.linearizable = True
        request.timeout_ms = int(_METADATA_TIMEOUT_S * 1000) // 2
        patience = Patience()
        while True:
            response = self._first_answer(request)
            if not response.HasField("error"):
                return response
            # This node may be cut off from the controller, while others are not.
            self._turn()
            patience.pause(error_from_proto(response.error))

    def _nobody(self, failure: QuorumlogError) -> NoBrokersAvailableError:
        return NoBrokersAvailableError(
            f"no node answers at {', '.join(self.addresses())}: start the cluster, or correct option"
            f" quorumlog.bootstrap.servers ({failure.message})"
        )


def _is_meant(view: TopicView | None, topic_id: bytes, partition: int) -> bool:
    return view is not None and view.topic_id == topic_id and partition < len(view.partitions)


def lagging_is_retriable(error: QuorumlogError) -> QuorumlogError:
    """Marks the error of an unknown topic as retriable: the node may lag behind, and the next look-up decides."""
    if isinstance(error, UnknownTopicOrPartitionError):
        error.retriable = True
    return error


def nodes_at(bootstrap_servers: str) -> Nodes:
    """Returns the cluster at these addresses, cached for the lifetime of the process."""
    return _nodes(os.getpid(), bootstrap_servers)


@functools.cache
def _nodes(process: int, bootstrap_servers: str) -> Nodes:
    """Keyed by process, because a connection that was made before a fork hangs in the child."""
    return Nodes(bootstrap_servers)

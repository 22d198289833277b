"""Blocking calls to a cluster's nodes, for Spark's Python workers.

A task of Spark reads one partition, in one thread, in a forked process that serves many tasks. So this is gRPC's
synchronous client, without threads or event loops of ours: connections and what is known of the cluster are kept per
process, and made only after the fork.
"""

from __future__ import annotations

import functools
import os
import time
from collections.abc import Iterable, Sequence

import grpc

from quorumlog.sdk.backoff import Backoff
from quorumlog.sdk.errors import (
    LeaderNotAvailableError,
    NoBrokersAvailableError,
    QuorumlogError,
    UnknownTopicOrPartitionError,
    error_from_rpc,
)
from quorumlog.sdk.metadata import MetadataCache, PartitionView, TopicView
from quorumlog.v1 import data_plane_pb2 as pb
from quorumlog.v1 import data_plane_pb2_grpc

#: A node that is up answers a metadata request at once, from memory.
_METADATA_TIMEOUT_S = 5.0
_CHANNEL_OPTIONS = (
    ("grpc.max_receive_message_length", 256 << 20),
    ("grpc.enable_http_proxy", 0),
    # An answer is received while the one before is being worked on; gRPC's own window would hold most of it back.
    ("grpc.http2.lookahead_bytes", 16 << 20),
    ("grpc.http2.bdp_probe", 0),
    ("grpc.enable_retries", 0),
    ("grpc.initial_reconnect_backoff_ms", 50),
    ("grpc.min_reconnect_backoff_ms", 1_000),
    ("grpc.max_reconnect_backoff_ms", 500),
    # A process that is stopped but not gone keeps its socket open: only a ping that stays unanswered tells.
    ("grpc.keepalive_time_ms", 5_000),
    ("grpc.keepalive_timeout_ms", 5_000),
    ("grpc.http2.max_pings_without_data", 0),
)


class Patience:
    """Bounds how long something may go without progress; pauses between attempts grow, with jitter.

    Arguments:
        limit_s: seconds without progress after which the last error is raised.
    """

    def __init__(self, limit_s: float = 30.0) -> None:
        self._limit_s = limit_s
        self._backoff = Backoff()
        self.progress()

    def progress(self) -> None:
        """Something came: the clock starts anew."""
        self._failures = 0
        self._deadline = time.monotonic() + self._limit_s

    def pause(self, error: QuorumlogError) -> None:
        """Waits before the next attempt, or raises ``error`` if it is final or the time is up."""
        self._failures += 1
        delay_s = self._backoff.delay_s(self._failures)
        if not error.retriable or time.monotonic() + delay_s > self._deadline:
            raise error
        time.sleep(delay_s)


class Nodes:
    """A cluster as one process sees it: connections, topics, leaders. Made by ``nodes_at``."""

    def __init__(self, bootstrap_servers: str) -> None:
        self._bootstrap = bootstrap_servers.split(",")
        self._stubs: dict[str, data_plane_pb2_grpc.DataPlaneStub] = {}
        self._cache = MetadataCache.empty()

    def stub(self, address: str) -> data_plane_pb2_grpc.DataPlaneStub:
        """The data plane of the node at ``host:port``."""
        stub = self._stubs.get(address)
        if stub is None:
            stub = data_plane_pb2_grpc.DataPlaneStub(grpc.insecure_channel(address, options=_CHANNEL_OPTIONS))
            self._stubs[address] = stub
        return stub

    def topic_names(self) -> list[str]:
        """Every topic, as the first node that answers knows them.

        Raises:
            NoBrokersAvailableError: no node answers.
        """
        response = self._first_answer(pb.MetadataRequest(all_topics=True))
        return [topic.name for topic in response.topics if not topic.HasField("error")]

    def topics(self, names: Iterable[str]) -> dict[str, TopicView]:
        """The topics of these names that exist, leaders looked up now.

        A name that one node does not know is asked of all: nodes learn of a new topic one after the other.

        Raises:
            NoBrokersAvailableError: no node answers.
        """
        missing = set(names)
        found: dict[str, TopicView] = {}
        reasons: list[str] = []
        for address in self._addresses():
            try:
                response = self._metadata(address, pb.MetadataRequest(topics=sorted(missing)))
            except QuorumlogError as error:
                reasons.append(error.message)
                continue
            errors = self._cache.merge(response)
            for name in missing - errors.keys():
                found[name] = self._cache.topics[name]
            missing -= found.keys()
            for refusal in errors.values():
                if not isinstance(refusal, UnknownTopicOrPartitionError):
                    raise refusal
            if not missing:
                break
        if missing and len(reasons) == len(self._addresses()):
            raise self._nobody(reasons)
        return found

    def leader(self, topic: str, topic_id: bytes, partition: int, *, refresh: bool) -> tuple[PartitionView, str]:
        """A partition and the address of its leader.

        Arguments:
            topic_id: identity of the topic that is meant: another topic of its name does not do.
            refresh: look it up anew, because what is known has proved stale.

        Raises:
            UnknownTopicOrPartitionError: the topic is gone, or another has its name.
            LeaderNotAvailableError: it has no leader at the moment; retriable.
        """
        known = self._cache.topics.get(topic)
        if refresh or known is None or known.topic_id != topic_id:
            known = self.topics([topic]).get(topic)
        if known is None or known.topic_id != topic_id or partition >= len(known.partitions):
            state = "does not exist any more" if known is None else "was deleted and created anew"
            raise UnknownTopicOrPartitionError(f"topic {topic} {state} since the query was planned", retriable=False)
        view = known.partitions[partition]
        address = self._cache.addresses.get(view.leader)
        if address is None:
            raise LeaderNotAvailableError(f"topic {topic} partition {partition} has no leader: are its replicas up?")
        return view, address

    def _addresses(self) -> list[str]:
        """Bootstrap addresses, then those learnt from them: a cluster may have moved on since the job was written."""
        return list(dict.fromkeys([*self._bootstrap, *self._cache.addresses.values()]))

    def _first_answer(self, request: pb.MetadataRequest) -> pb.MetadataResponse:
        reasons = []
        for address in self._addresses():
            try:
                return self._metadata(address, request)
            except QuorumlogError as error:
                reasons.append(error.message)
        raise self._nobody(reasons)

    def _metadata(self, address: str, request: pb.MetadataRequest) -> pb.MetadataResponse:
        try:
            response: pb.MetadataResponse = self.stub(address).Metadata(request, timeout=_METADATA_TIMEOUT_S)
        except grpc.RpcError as error:
            raise error_from_rpc(error, address) from None
        return response

    def _nobody(self, reasons: Sequence[str]) -> NoBrokersAvailableError:
        first_line = (reasons[-1].splitlines() or [""])[0]
        return NoBrokersAvailableError(
            f"no node answers at {', '.join(self._addresses())}: start the cluster, or correct option"
            f" quorumlog.bootstrap.servers ({first_line})"
        )


def nodes_at(bootstrap_servers: str) -> Nodes:
    """The cluster behind these addresses, kept for as long as the process lives."""
    return _nodes(os.getpid(), bootstrap_servers)


@functools.cache
def _nodes(process: int, bootstrap_servers: str) -> Nodes:
    """Keyed by process: a connection that was made before a fork hangs in the child."""
    return Nodes(bootstrap_servers)

"""A data plane in memory, for what a real cluster does not do on demand: gaps, a log that moves, a wrong leader."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent import futures
from dataclasses import dataclass, field

import grpc
import pyarrow as pa

from quorumlog.sdk.records.record_batch import encode, to_log_schema
from quorumlog.v1 import data_plane_pb2 as pb
from quorumlog.v1 import data_plane_pb2_grpc, errors_pb2
from quorumlog.wire.entry import Codec, build_batch, parse_header, seal_batch

NOW_MS = 1_700_000_000_000


@dataclass
class StoredPartition:
    """One partition's entries and where its log starts and ends."""

    log_start: int = 0
    next_offset: int = 0
    entries: list[bytes] = field(default_factory=list)

    def append(
        self, values: Sequence[bytes | None], codec: Codec = Codec.NONE, skip: int = 0, time_ms: int = NOW_MS
    ) -> None:
        """Adds one batch; ``skip`` leaves a gap before it."""
        (batch,) = to_log_schema(pa.table({"value": pa.array(values, pa.binary())}), time_ms).to_batches()
        payload, count, first_ms, last_ms, _ = encode(batch, codec)
        unsealed = build_batch(
            payload, record_count=count, codec=codec, base_timestamp_ms=first_ms, max_timestamp_ms=last_ms
        )
        base_offset = self.next_offset + skip
        index = len(self.entries) + 1
        self.entries.append(
            seal_batch(unsealed, group=7, term=1, index=index, previous_hash=0, base_offset=base_offset)
        )
        self.next_offset = base_offset + count


#: As of real nodes, none has been another topic's before: one stand-in may get the port of an earlier one, which the
#: process remembers with its topics.
_topic_ids = itertools.count(1)


class StandIn(data_plane_pb2_grpc.DataPlaneServicer):
    """One node that leads everything. Use it as a context manager; ``address`` is where it listens."""

    def __init__(self) -> None:
        self.partitions: dict[tuple[str, int], StoredPartition] = {}
        self.topic_ids: dict[str, bytes] = {}
        #: Partitions that only the controller has.
        self.lagging: set[tuple[str, int]] = set()
        self.leader = 1
        self.leader_epoch = 1
        #: The nodes with the ids from 2 on, which have the same partitions.
        self.followers: list[StandIn] = []
        #: Errors that the next fetches get, in order; an empty one is none.
        self.fetch_errors: list[errors_pb2.Error] = []
        #: The next fetches that get no answer at all, as from a process that is stopped.
        self.silent_fetches = 0
        self.fetches = 0
        #: It can answer like the controller.
        self.hears_controller = True
        self.lookups = 0
        #: Notified by tests that append while a fetch waits.
        self.appended = threading.Condition()
        self._server = grpc.server(futures.ThreadPoolExecutor(16), options=[("grpc.so_reuseport", 0)])
        data_plane_pb2_grpc.add_DataPlaneServicer_to_server(self, self._server)
        self._port = self._server.add_insecure_port("127.0.0.1:0")

    @property
    def address(self) -> str:
        """host:port."""
        return f"127.0.0.1:{self._port}"

    def __enter__(self) -> StandIn:
        self._server.start()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._server.stop(grace=None).wait()

    def create(self, topic: str, partitions: int = 1) -> list[StoredPartition]:
        """Makes a topic, with a new id each time."""
        self.topic_ids[topic] = next(_topic_ids).to_bytes(16, "big")
        made = [StoredPartition() for _ in range(partitions)]
        self.partitions.update({(topic, number): partition for number, partition in enumerate(made)})
        return made

    def Metadata(self, request: pb.MetadataRequest, context: grpc.ServicerContext) -> pb.MetadataResponse:
        response = pb.MetadataResponse(cluster_id="stand-in")
        for number, node in enumerate([self, *self.followers], start=1):
            response.brokers.add(node_id=number, host="127.0.0.1", port=node._port)
        replicas = [broker.node_id for broker in response.brokers]
        if request.linearizable and not self.hears_controller:
            response.error.code, response.error.retriable = errors_pb2.NOT_CONTROLLER, True
            return response
        for name in self.topic_ids if request.all_topics else request.topics:
            topic = response.topics.add(name=name)
            if name not in self.topic_ids:
                topic.error.code = errors_pb2.UNKNOWN_TOPIC_OR_PARTITION
                continue
            topic.topic_id = self.topic_ids[name]
            for key in self.partitions:
                if key[0] == name and (request.linearizable or key not in self.lagging):
                    topic.partitions.add(
                        partition=key[1], leader=self.leader, leader_epoch=self.leader_epoch, replicas=replicas
                    )
        return response

    def ListOffsets(self, request: pb.ListOffsetsRequest, context: grpc.ServicerContext) -> pb.ListOffsetsResponse:
        self.lookups += 1
        response = pb.ListOffsetsResponse()
        for part in request.partitions:
            stored = self._find(part.topic_id, part.partition)
            assert stored is not None
            if part.timestamp_ms >= 0:
                self._look_up(stored, part, response.results.add(timestamp_ms=-1))
            else:
                response.results.add(offset=stored.log_start if part.timestamp_ms == -2 else stored.next_offset)
        return response

    def Fetch(
        self, request_iterator: Iterator[pb.FetchRequest], context: grpc.ServicerContext
    ) -> Iterator[pb.FetchResponse]:
        for request in request_iterator:
            self.fetches += 1
            if self.silent_fetches:
                self.silent_fetches -= 1
                continue
            deadline_s = time.monotonic() + request.max_wait_ms / 1000
            while True:
                response = pb.FetchResponse(correlation_id=request.correlation_id)
                for part in request.partitions:
                    self._fetch(part, response.results.add(topic_id=part.topic_id, partition=part.partition))
                news = any(result.entries or result.HasField("error") for result in response.results)
                left_s = deadline_s - time.monotonic()
                if news or left_s <= 0 or not context.is_active():
                    break
                with self.appended:
                    self.appended.wait(min(left_s, 0.05))
            yield response

    def _fetch(self, asked: pb.FetchPartition, result: pb.FetchResult) -> None:
        stored = self._find(asked.topic_id, asked.partition)
        error = self.fetch_errors.pop(0) if self.fetch_errors else errors_pb2.Error()
        if error.code:
            result.error.CopyFrom(error)
        elif stored is None:
            result.error.code = errors_pb2.UNKNOWN_TOPIC_OR_PARTITION
        elif not stored.log_start <= asked.fetch_offset <= stored.next_offset:
            result.error.code = errors_pb2.OFFSET_OUT_OF_RANGE
            result.log_start_offset = stored.log_start
        else:
            self._read(stored, asked, result)

    def _find(self, topic_id: bytes, partition: int) -> StoredPartition | None:
        names = [name for name, known in self.topic_ids.items() if known == topic_id]
        return self.partitions.get((names[0], partition)) if names else None

    @staticmethod
    def _look_up(stored: StoredPartition, asked: pb.ListOffsetsPartition, result: pb.ListOffsetsResult) -> None:
        """Names one batch per answer, as a server may that has only so much time."""
        result.offset = -1
        for entry in stored.entries:
            header = parse_header(entry)
            if header.last_offset >= asked.first_offset and header.max_timestamp_ms >= asked.timestamp_ms:
                result.entry = entry
                result.offset = max(asked.first_offset, stored.log_start)
                return
            if header.base_offset >= asked.first_offset:
                result.unfinished = True
                result.offset = header.last_offset + 1
                return

    @staticmethod
    def _read(stored: StoredPartition, asked: pb.FetchPartition, result: pb.FetchResult) -> None:
        size = 0
        for entry in stored.entries:
            if parse_header(entry).last_offset >= asked.fetch_offset and (not size or size < asked.max_bytes):
                result.entries.append(entry)
                size += len(entry)

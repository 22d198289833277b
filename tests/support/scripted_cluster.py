"""A cluster of gRPC servers in the test's own event loop, with logs in memory, that does to batches what the test says.

It keeps the rule that the clients rely on: a batch is appended only if its sequence follows the last one of its
producer, and one of a producer's last five is answered with its place. Everything else (errors, losses, silence,
leaders) is scripted.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from functools import partial

import grpc.aio

from quorumlog.local.ports import ReservedPorts
from quorumlog.v1 import admin_pb2, admin_pb2_grpc, data_plane_pb2, data_plane_pb2_grpc, errors_pb2
from quorumlog.wire.entry import BatchHeader, build_cover, parse_header, seal_batch, verify

TOPIC_ID = b"0123456789abcdef"
Code = errors_pb2.ErrorCode


@dataclass
class Log:
    """One partition: its batches, its leader, and its producers.

    Arguments:
        stable: its last stable offset; None: its end.
        gaps_before: offsets below it may be missing.
    """

    leader: int = 1
    leader_epoch: int = 1
    entries: list[bytes] = field(default_factory=list)
    next_offset: int = 0
    log_start: int = 0
    next_sequence: dict[int, int] = field(default_factory=dict)
    remembered: dict[int, deque[tuple[int, int]]] = field(default_factory=dict)
    stable: int | None = None
    gaps_before: int = 0

    def append(self, batch: bytes) -> tuple[int, errors_pb2.ErrorCode.ValueType]:
        """Appends a batch or recognises it; its base offset and the error code, if any."""
        verify(batch)
        header = parse_header(batch)
        if header.producer_id >= 0:
            remembered = self.remembered.setdefault(header.producer_id, deque(maxlen=5))
            for sequence, offset in remembered:
                if sequence == header.base_sequence:
                    return offset, Code.NONE
            if header.base_sequence != self.next_sequence.get(header.producer_id, 0):
                return -1, Code.OUT_OF_ORDER_SEQUENCE_NUMBER
            self.next_sequence[header.producer_id] = header.next_sequence
            remembered.append((header.base_sequence, self.next_offset))
        base = self.next_offset
        self.entries.append(
            seal_batch(
                batch, group=1, term=self.leader_epoch, index=len(self.entries), previous_hash=0, base_offset=base
            )
        )
        self.next_offset += header.record_count
        return base, Code.NONE

    def cover(self, offsets: int) -> None:
        """Appends a cover, as of markers or aborted records."""
        self.entries.append(build_cover(1, self.next_offset, self.next_offset + offsets - 1))
        self.next_offset += offsets

    def leave_out(self, offsets: int) -> None:
        """Leaves offsets out, which no cover has."""
        self.next_offset += offsets
        self.gaps_before = self.next_offset

    def end_for(self, level: data_plane_pb2.IsolationLevel.ValueType) -> int:
        """The end for readers of an isolation level."""
        is_committed = level == data_plane_pb2.ISOLATION_LEVEL_READ_COMMITTED
        return self.stable if is_committed and self.stable is not None else self.next_offset

    def headers(self) -> list[BatchHeader]:
        """The headers of all batches."""
        return [parse_header(entry) for entry in self.entries]


@dataclass
class Produced:
    """One batch as it arrived, for scripts to decide on."""

    node_id: int
    partition: int
    batch: bytes
    arrival: int

    @property
    def header(self) -> BatchHeader:
        """Its header."""
        return parse_header(self.batch)


class LoseStream(Exception):
    """Raised by a script: break the stream instead of answering."""


class StaySilent(Exception):
    """Raised by a script: never answer."""


#: Decides on a request of a fetch session: None lets it continue.
SessionScript = Callable[[data_plane_pb2.FetchRequest], errors_pb2.Error | None]
#: Decides on a batch: None lets the log decide; an Error is the answer.
ProduceScript = Callable[["ScriptedCluster", Produced], Awaitable[errors_pb2.Error | None]]


def error(
    code: errors_pb2.ErrorCode.ValueType,
    *,
    retriable: bool = True,
    definite: bool = True,
    leader: tuple[int, int] | None = None,
) -> errors_pb2.Error:
    """An error as a server reports it; ``leader`` is (node id, epoch)."""
    made = errors_pb2.Error(code=code, message=Code.Name(code).lower(), retriable=retriable, definite=definite)
    if leader is not None:
        made.leader.node_id, made.leader.leader_epoch = leader
    return made


class _Session:
    """A Fetch stream's session: scripts see each of its requests with all the partitions that it stands for."""

    def __init__(self, on_session: SessionScript) -> None:
        self._on_session = on_session
        self._epoch = 0
        self._partitions: dict[int, data_plane_pb2.FetchPartition] = {}
        self._waiting: asyncio.Task[data_plane_pb2.FetchResponse | None] | None = None

    def take_request(self, request: data_plane_pb2.FetchRequest) -> errors_pb2.Error | None:
        """Takes in what a request changes; why it is refused, if it is."""
        if request.session_epoch == 0:
            return None
        if self._waiting is not None:
            self._waiting.cancel()
        if request.session_epoch == 1:
            self._partitions.clear()
        elif request.session_epoch != self._epoch + 1:
            return error(Code.INVALID_FETCH_SESSION_EPOCH)
        refusal = self._on_session(request)
        if refusal is not None:
            return refusal
        self._epoch = request.session_epoch
        for gone in request.forgotten:
            self._partitions.pop(gone.partition, None)
        for wanted in request.partitions:
            self._partitions[wanted.partition] = data_plane_pb2.FetchPartition.FromString(wanted.SerializeToString())
        return None

    async def ask(
        self,
        fetch: Callable[[data_plane_pb2.FetchRequest], Awaitable[data_plane_pb2.FetchResponse | None]],
        request: data_plane_pb2.FetchRequest,
    ) -> data_plane_pb2.FetchResponse | None:
        """Returns the script's answer to the request with all partitions of the session."""
        if request.session_epoch == 0:
            return await fetch(request)
        whole = data_plane_pb2.FetchRequest()
        whole.CopyFrom(request)
        del whole.partitions[:]
        whole.partitions.extend(self._partitions.values())
        asking = self._waiting = asyncio.ensure_future(fetch(whole))
        try:
            response = await asking
        except asyncio.CancelledError:
            if asking is self._waiting:
                raise
            return data_plane_pb2.FetchResponse()  # The next request has taken its place.
        for result in response.results if response is not None else ():
            if result.HasField("error"):
                self._partitions.pop(result.partition, None)
            elif result.entries and result.partition in self._partitions:
                self._partitions[result.partition].fetch_offset = parse_header(result.entries[-1]).last_offset + 1
        return response


class _Node(data_plane_pb2_grpc.DataPlaneServicer, admin_pb2_grpc.AdminServicer):
    def __init__(self, cluster: ScriptedCluster, node_id: int) -> None:
        self.cluster = cluster
        self.node_id = node_id
        self.server: grpc.aio.Server | None = None
        #: Its port is its own from its first start on, also while it is down.
        self.place: ReservedPorts | None = None
        self.port = 0
        self.metadata_requests = 0

    async def Produce(
        self, requests: AsyncIterator[data_plane_pb2.ProduceRequest], context: grpc.aio.ServicerContext
    ) -> AsyncIterator[data_plane_pb2.ProduceResponse]:
        async for request in requests:
            self.cluster.requests.append(request)
            try:
                results = [await self._settle(batch) for batch in request.batches]
            except StaySilent:
                continue
            except LoseStream:
                await context.abort(grpc.StatusCode.UNAVAILABLE, "lost")
            if request.acks != 0:
                yield data_plane_pb2.ProduceResponse(correlation_id=request.correlation_id, results=results)

    async def _settle(self, batch: data_plane_pb2.PartitionBatch) -> data_plane_pb2.ProduceResult:
        cluster = self.cluster
        produced = Produced(self.node_id, batch.partition, batch.batch, len(cluster.arrivals))
        cluster.arrivals.append(produced)
        result = data_plane_pb2.ProduceResult(
            topic_id=batch.topic_id, partition=batch.partition, base_offset=-1, log_append_time_ms=-1
        )
        log = cluster.logs[batch.partition]
        answer = await cluster.on_produce(cluster, produced)
        if answer is None and log.leader != self.node_id:
            answer = error(Code.NOT_LEADER_OR_FOLLOWER, leader=(log.leader, log.leader_epoch))
        if answer is None:
            base, code = log.append(batch.batch)
            if code == Code.NONE:
                result.base_offset, result.leader_epoch = base, log.leader_epoch
                return result
            answer = error(code, retriable=False)
        result.error.CopyFrom(answer)
        return result

    async def Fetch(
        self, requests: AsyncIterator[data_plane_pb2.FetchRequest], context: grpc.aio.ServicerContext
    ) -> AsyncIterator[data_plane_pb2.FetchResponse]:
        answers: asyncio.Queue[data_plane_pb2.FetchResponse] = asyncio.Queue()
        session = _Session(self.cluster.on_session)

        async def answer(request: data_plane_pb2.FetchRequest) -> None:
            refusal = session.take_request(request)
            response: data_plane_pb2.FetchResponse | None
            if refusal is not None:
                response = data_plane_pb2.FetchResponse(error=refusal)
            else:
                response = await session.ask(partial(self.cluster.on_fetch, self.node_id), request)
            if response is not None:
                response.correlation_id = request.correlation_id
                await answers.put(response)

        async def take() -> None:
            async with asyncio.TaskGroup() as waiting:  # A long poll does not hold up the request behind it.
                async for request in requests:
                    self.cluster.raw_fetches.append(request)
                    waiting.create_task(answer(request))

        taking = asyncio.create_task(take())
        try:
            while True:
                yield await answers.get()
        finally:
            taking.cancel()

    async def ListOffsets(
        self, request: data_plane_pb2.ListOffsetsRequest, context: grpc.aio.ServicerContext
    ) -> data_plane_pb2.ListOffsetsResponse:
        response = data_plane_pb2.ListOffsetsResponse()
        for wanted in request.partitions:
            log = self.cluster.logs[wanted.partition]
            result = response.results.add(topic_id=wanted.topic_id, partition=wanted.partition, timestamp_ms=-1)
            if log.leader != self.node_id:
                result.error.CopyFrom(error(Code.NOT_LEADER_OR_FOLLOWER, leader=(log.leader, log.leader_epoch)))
            else:
                result.offset = log.log_start if wanted.timestamp_ms == -2 else log.end_for(request.isolation_level)
        return response

    async def InitProducerId(
        self, request: data_plane_pb2.InitProducerIdRequest, context: grpc.aio.ServicerContext
    ) -> data_plane_pb2.InitProducerIdResponse:
        self.cluster.producer_ids += 1
        return data_plane_pb2.InitProducerIdResponse(producer_id=self.cluster.producer_ids, producer_epoch=0)

    async def Metadata(
        self, request: data_plane_pb2.MetadataRequest, context: grpc.aio.ServicerContext
    ) -> data_plane_pb2.MetadataResponse:
        self.metadata_requests += 1
        await self.cluster.on_metadata(self.node_id)
        return self.cluster.metadata(request)

    async def CreateTopics(
        self, request: admin_pb2.CreateTopicsRequest, context: grpc.aio.ServicerContext
    ) -> admin_pb2.CreateTopicsResponse:
        return await self.cluster.on_create(request)

    async def ListProducers(
        self, request: admin_pb2.ListProducersRequest, context: grpc.aio.ServicerContext
    ) -> admin_pb2.ListProducersResponse:
        return self.cluster.on_list_producers(request)

    async def DeleteTopics(
        self, request: admin_pb2.DeleteTopicsRequest, context: grpc.aio.ServicerContext
    ) -> admin_pb2.DeleteTopicsResponse:
        return self.cluster.on_delete_topics(request)

    async def AlterConfigs(
        self, request: admin_pb2.AlterConfigsRequest, context: grpc.aio.ServicerContext
    ) -> admin_pb2.AlterConfigsResponse:
        return self.cluster.on_alter_configs(request)

    async def DescribeConfigs(
        self, request: admin_pb2.DescribeConfigsRequest, context: grpc.aio.ServicerContext
    ) -> admin_pb2.DescribeConfigsResponse:
        return self.cluster.on_describe_configs(self.node_id, request)

    async def CreatePartitions(
        self, request: admin_pb2.CreatePartitionsRequest, context: grpc.aio.ServicerContext
    ) -> admin_pb2.CreatePartitionsResponse:
        return self.cluster.on_create_partitions(request)

    async def ReassignPartitions(
        self, request: admin_pb2.ReassignPartitionsRequest, context: grpc.aio.ServicerContext
    ) -> admin_pb2.ReassignPartitionsResponse:
        return self.cluster.on_reassign(request)

    async def DeleteRecords(
        self, request: admin_pb2.DeleteRecordsRequest, context: grpc.aio.ServicerContext
    ) -> admin_pb2.DeleteRecordsResponse:
        return self.cluster.on_delete_records(request)

    async def ElectLeaders(
        self, request: admin_pb2.ElectLeadersRequest, context: grpc.aio.ServicerContext
    ) -> admin_pb2.ElectLeadersResponse:
        return self.cluster.on_elect(request)

    async def DeleteProducers(
        self, request: admin_pb2.DeleteProducersRequest, context: grpc.aio.ServicerContext
    ) -> admin_pb2.DeleteProducersResponse:
        return self.cluster.on_delete_producers(request)


class ScriptedCluster:
    """Nodes 1 to ``nodes``, one topic ``t``. Set ``on_produce``, ``on_fetch``, ``on_metadata`` to script them."""

    def __init__(self, nodes: int = 1, partitions: int = 1) -> None:
        self.nodes = {node_id: _Node(self, node_id) for node_id in range(1, nodes + 1)}
        self.logs = [Log(leader=1 + partition % nodes) for partition in range(partitions)]
        self.shown_leaders: list[tuple[int, int]] | None = None
        self.configs: dict[str, str] = {}
        self.arrivals: list[Produced] = []
        self.requests: list[data_plane_pb2.ProduceRequest] = []
        self.fetches: deque[data_plane_pb2.FetchRequest] = deque(maxlen=1000)
        #: Fetches as they came; in a session they name only what changes.
        self.raw_fetches: deque[data_plane_pb2.FetchRequest] = deque(maxlen=1000)
        self.on_session: SessionScript = lambda request: None
        self.topic_id = TOPIC_ID
        #: The Raft group of the first partition: higher for a topic that is created later.
        self.first_group = 1000
        self.producer_ids = 100
        #: Adds services to the server of each node that starts.
        self.on_start: Callable[[int, grpc.aio.Server], None] = lambda node_id, server: None
        self.on_produce: ProduceScript = _let_the_log_decide
        self.on_fetch = self.fetch
        self.on_metadata: Callable[[int], Awaitable[None]] = _answer_at_once
        self.on_create: Callable[[admin_pb2.CreateTopicsRequest], Awaitable[admin_pb2.CreateTopicsResponse]] = (
            _create_all
        )
        self.on_delete_producers: Callable[[admin_pb2.DeleteProducersRequest], admin_pb2.DeleteProducersResponse] = (
            lambda request: admin_pb2.DeleteProducersResponse()
        )
        self.on_list_producers: Callable[[admin_pb2.ListProducersRequest], admin_pb2.ListProducersResponse] = (
            lambda request: admin_pb2.ListProducersResponse()
        )
        self.on_delete_topics: Callable[[admin_pb2.DeleteTopicsRequest], admin_pb2.DeleteTopicsResponse] = (
            lambda request: admin_pb2.DeleteTopicsResponse()
        )
        self.on_alter_configs: Callable[[admin_pb2.AlterConfigsRequest], admin_pb2.AlterConfigsResponse] = (
            lambda request: admin_pb2.AlterConfigsResponse()
        )
        self.on_describe_configs: Callable[
            [int, admin_pb2.DescribeConfigsRequest], admin_pb2.DescribeConfigsResponse
        ] = lambda node_id, request: admin_pb2.DescribeConfigsResponse()
        self.on_create_partitions: Callable[[admin_pb2.CreatePartitionsRequest], admin_pb2.CreatePartitionsResponse] = (
            lambda request: admin_pb2.CreatePartitionsResponse()
        )
        self.on_reassign: Callable[[admin_pb2.ReassignPartitionsRequest], admin_pb2.ReassignPartitionsResponse] = (
            lambda request: admin_pb2.ReassignPartitionsResponse()
        )
        self.on_delete_records: Callable[[admin_pb2.DeleteRecordsRequest], admin_pb2.DeleteRecordsResponse] = (
            lambda request: admin_pb2.DeleteRecordsResponse()
        )
        self.on_elect: Callable[[admin_pb2.ElectLeadersRequest], admin_pb2.ElectLeadersResponse] = lambda request: (
            admin_pb2.ElectLeadersResponse()
        )

    async def start(self) -> None:
        """Starts every node on a free port."""
        for node_id in self.nodes:
            await self.start_node(node_id)

    async def start_node(self, node_id: int) -> None:
        """Starts a node, on its former port if it had one."""
        node = self.nodes[node_id]
        if node.place is None:
            node.place = ReservedPorts(1)
            (node.port,) = node.place.ports
        node.server = grpc.aio.server(options=[("grpc.so_reuseport", 0), ("grpc.max_receive_message_length", -1)])
        data_plane_pb2_grpc.add_DataPlaneServicer_to_server(node, node.server)
        admin_pb2_grpc.add_AdminServicer_to_server(node, node.server)
        self.on_start(node_id, node.server)
        node.server.add_insecure_port(f"127.0.0.1:{node.port}")
        await node.server.start()

    async def stop_node(self, node_id: int) -> None:
        """Ends a node at once; its streams break."""
        server = self.nodes[node_id].server
        assert server is not None
        await server.stop(grace=None)

    async def stop(self) -> None:
        """Ends all nodes."""
        await asyncio.gather(*(self.stop_node(node_id) for node_id in self.nodes))
        for node in self.nodes.values():
            if node.place is not None:
                node.place.close()

    @property
    def bootstrap_servers(self) -> str:
        """Every node's address."""
        return ",".join(f"127.0.0.1:{node.port}" for node in self.nodes.values())

    def elect(self, partition: int, leader: int) -> None:
        """Gives a partition a new leader, one epoch on."""
        log = self.logs[partition]
        log.leader, log.leader_epoch = leader, log.leader_epoch + 1

    def metadata(self, request: data_plane_pb2.MetadataRequest) -> data_plane_pb2.MetadataResponse:
        """The answer to a metadata request: the truth, or ``shown_leaders``."""
        response = data_plane_pb2.MetadataResponse(cluster_id="scripted", controller_id=1)
        for node_id, node in self.nodes.items():
            response.brokers.add(node_id=node_id, host="127.0.0.1", port=node.port)
        for name in ["t"] if request.all_topics else request.topics:
            if name != "t":
                unknown = response.topics.add(name=name)
                unknown.error.CopyFrom(error(Code.UNKNOWN_TOPIC_OR_PARTITION))
                continue
            topic = response.topics.add(name="t", topic_id=self.topic_id, configs=self.configs)
            for number, log in enumerate(self.logs):
                leader, epoch = self.shown_leaders[number] if self.shown_leaders else (log.leader, log.leader_epoch)
                topic.partitions.add(
                    partition=number,
                    leader=leader,
                    leader_epoch=epoch,
                    partition_epoch=epoch,
                    group_id=self.first_group + number,
                    replicas=list(self.nodes),
                )
        return response

    async def fetch(self, node_id: int, request: data_plane_pb2.FetchRequest) -> data_plane_pb2.FetchResponse | None:
        """Answers a fetch from the logs, waiting for data as long as asked to."""
        self.fetches.append(request)
        deadline = asyncio.get_running_loop().time() + request.max_wait_ms / 1000
        while True:
            response = data_plane_pb2.FetchResponse()
            for wanted in request.partitions:
                self.add_result(node_id, wanted, response, request.isolation_level)
            if any(result.entries or result.HasField("error") for result in response.results):
                return response
            if asyncio.get_running_loop().time() >= deadline:
                return response
            await asyncio.sleep(0.005)

    def add_result(
        self,
        node_id: int,
        wanted: data_plane_pb2.FetchPartition,
        response: data_plane_pb2.FetchResponse,
        level: data_plane_pb2.IsolationLevel.ValueType,
    ) -> None:
        """Adds what one partition has from the wanted offset on."""
        log = self.logs[wanted.partition]
        result = response.results.add(
            topic_id=wanted.topic_id,
            partition=wanted.partition,
            high_watermark=log.next_offset,
            log_start_offset=log.log_start,
            leader_epoch=log.leader_epoch,
            last_stable_offset=log.stable,
            compacted_offset=log.gaps_before,
        )
        if log.leader != node_id:
            result.error.CopyFrom(error(Code.NOT_LEADER_OR_FOLLOWER, leader=(log.leader, log.leader_epoch)))
        elif not log.log_start <= wanted.fetch_offset <= log.next_offset:
            result.error.CopyFrom(error(Code.OFFSET_OUT_OF_RANGE, retriable=False))
        else:
            size = 0
            for entry in log.entries:
                header = parse_header(entry)
                if wanted.fetch_offset <= header.last_offset < log.end_for(level) and (
                    not size or size + len(entry) <= wanted.max_bytes
                ):
                    result.entries.append(entry)
                    size += len(entry)


async def _let_the_log_decide(cluster: ScriptedCluster, produced: Produced) -> errors_pb2.Error | None:
    return None


async def _answer_at_once(node_id: int) -> None:
    return None


async def _create_all(request: admin_pb2.CreateTopicsRequest) -> admin_pb2.CreateTopicsResponse:
    return admin_pb2.CreateTopicsResponse(
        results=[admin_pb2.CreateTopicResult(name=topic.name, topic_id=TOPIC_ID) for topic in request.topics]
    )

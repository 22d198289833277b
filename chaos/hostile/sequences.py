"""Sequences of requests that are valid for a while, so that later ones meet a node with state."""

from __future__ import annotations

import random
import uuid
from collections.abc import Awaitable, Callable, Mapping

from quorumlog.chaos.hostile.known_ids import (
    GROUPS,
    PRODUCER_NAMES,
    STAGE,
    KnownMember,
    KnownProducer,
    Vocabulary,
)
from quorumlog.chaos.hostile.requests import RequestMaker, Subject
from quorumlog.chaos.hostile.services import METHODS, Method
from quorumlog.chaos.hostile.wire import Wire, WireStream
from quorumlog.v1 import admin_pb2, data_plane_pb2, groups_pb2
from quorumlog.wire.entry import FIRST_NAMED_PRODUCER_ID, SEQUENCE_MODULUS

#: Time limit for an answer that the sequence needs (s).
PATIENCE_S = 2.0
#: Share of wrong requests in a sequence.
_SPOILT = 0.15


class Stories:
    """Runs sequences against the nodes.

    Arguments:
        chance: source of all random decisions.
        methods: methods that are called in random order.
    """

    def __init__(
        self,
        wire: Wire,
        vocabulary: Vocabulary,
        maker: RequestMaker,
        chance: random.Random,
        methods: Mapping[str, Method] = METHODS,
    ) -> None:
        self._methods = methods
        self._wire = wire
        self._vocabulary = vocabulary
        self._maker = maker
        self._chance = chance
        self._kept: list[WireStream] = []
        self.all: tuple[Callable[[], Awaitable[None]], ...] = (
            self.producer,
            self.fetch_session,
            self.member,
            self.offsets,
            self.burst,
            self.calls,
            self.calls,
            self.burst,
        )

    # -- without a plan -------------------------------------------------------------------------------------------

    async def calls(self) -> None:
        """Sends random unary calls, one after the other."""
        methods = [method for method in self._methods.values() if not method.streams]
        weights = [method.weight for method in methods]
        for method in self._chance.choices(methods, weights, k=self._chance.choice((1, 10, 30))):
            about = self._maker.subject()
            data = self._maker.request(method.request, about).SerializeToString()
            if self._chance.random() < 0.01:
                data = self._chance.randbytes(self._chance.choice((1, 10, 100)))
            await self._wire.call(self._node_for(method, about), method, data, self._chance.choice((0.02, 0.5, 2.0)))

    async def burst(self) -> None:
        """Sends many requests at once on a stream."""
        method = self._chance.choice([method for method in self._methods.values() if method.streams])
        about = self._maker.subject()
        stream = self._wire.open(self._node_for(method, about), method)
        count = self._chance.choice((1, 10, 40, 40, 120))
        for _ in range(count):
            data = self._maker.request(method.request, self._follow(about)).SerializeToString()
            if not await stream.send(data):
                break
        await self._end(stream, count)

    def _follow(self, about: Subject) -> Subject:
        return about if self._chance.random() < 0.5 else self._maker.subject()

    def _node_for(self, method: Method, about: Subject) -> int:
        """Returns usually the node that can serve the request: the others only redirect."""
        if self._chance.random() < 0.8:
            if method.path.startswith("/quorumlog.v1.Groups/"):
                found = self._vocabulary.coordinators.get(about.group_id)
            else:
                found = about.partition.leader if about.partition is not None else None
            if found in self._vocabulary.nodes:
                return found
        return self._vocabulary.node(self._chance)

    async def _end(self, stream: WireStream, answers: int) -> None:
        """Ends a stream in one of the possible ways; some are left open for a while."""
        draw = self._chance.random()
        if draw < 0.2:
            await stream.cancel()
        elif draw < 0.3:
            self._kept.append(stream)
            if len(self._kept) > 40:
                await self._kept.pop(self._chance.randrange(20)).cancel()
        else:
            await stream.settle(answers, 0.5)
            await stream.half_close(0.5)

    async def close(self) -> None:
        """Cancels streams that were left open."""
        for stream in self._kept:
            await stream.cancel()

    # -- a producer -----------------------------------------------------------------------------------------------

    async def producer(self) -> None:
        """Requests a producer id, sends consecutive batches, and then invalid ones."""
        chance, init = self._chance, METHODS["InitProducerId"]
        name = chance.choice((*PRODUCER_NAMES, "", ""))
        request = data_plane_pb2.InitProducerIdRequest(
            name=name, timeout_ms=1_000, epoch=-1 if name else 0, known_epoch=-1
        )
        known = next((one for one in self._vocabulary.producers if name and one.name == name), None)
        if known is not None:
            request.known_epoch = known.epoch
        if chance.random() < _SPOILT:
            self._maker.spoil(request)
        answer = await self._wire.call(self._vocabulary.node(chance), init, request.SerializeToString(), PATIENCE_S)
        about = self._maker.subject()
        if not isinstance(answer, data_plane_pb2.InitProducerIdResponse) or about.topic is None:
            return
        producer = KnownProducer(answer.producer_id, answer.producer_epoch, name)
        self._vocabulary.producers.append(producer)
        await self._send_batches(producer, about)

    async def _send_batches(self, producer: KnownProducer, about: Subject) -> None:
        chance, produce = self._chance, METHODS["Produce"]
        if about.topic is None or about.partition is None:
            return
        replayable = producer.producer_id >= FIRST_NAMED_PRODUCER_ID and chance.random() < 0.6
        stream = self._wire.open(self._node_for(produce, about), produce)
        place = (about.topic.topic_id, about.partition.number)
        count = chance.choice((3, 10, 30))
        for number in range(count):
            sequence = producer.sequences.get(place, 0)
            request = data_plane_pb2.ProduceRequest(correlation_id=number + 1, acks=-1, timeout_ms=1_000)
            data = self._maker.batches.batch(producer, sequence, replayable)
            request.batches.add(topic_id=place[0], partition=place[1], batch=data)
            if chance.random() < 0.15:
                again = self._maker.batches.batch(
                    producer, chance.choice((0, sequence, SEQUENCE_MODULUS - 1)), replayable
                )
                request.batches[0].batch = again
            elif chance.random() < _SPOILT:
                self._maker.spoil(request)
            answer = await stream.ask(request.SerializeToString(), 0.5)
            if not isinstance(answer, data_plane_pb2.ProduceResponse):
                break
            if answer.results and not answer.results[0].HasField("error"):
                rows = int.from_bytes(data[48:52], "little") if len(data) >= 52 else 1
                producer.sequences[place] = answer.results[0].next_sequence or (sequence + rows) % SEQUENCE_MODULUS
        await self._end(stream, count)

    # -- a reader -------------------------------------------------------------------------------------------------

    async def fetch_session(self) -> None:
        """Fetches in a session with correct epochs, until one is wrong."""
        chance, fetch = self._chance, METHODS["Fetch"]
        about = self._maker.subject()
        stream = self._wire.open(self._node_for(fetch, about), fetch)
        epoch, count = 1, chance.choice((3, 10, 40))
        for number in range(count):
            request = self._maker.request(data_plane_pb2.FetchRequest, self._follow(about))
            assert isinstance(request, data_plane_pb2.FetchRequest)
            request.correlation_id = number + 1
            request.max_wait_ms = chance.choice((0, 0, 20, 1_000))
            request.session_epoch = epoch
            if epoch > 1 and chance.random() < 0.5:
                del request.partitions[:]
            epoch = 1 if chance.random() < 0.05 else epoch + 1
            if chance.random() < _SPOILT:
                self._maker.spoil(request)
            if not await stream.send(request.SerializeToString()):
                break
            if chance.random() < 0.3:
                await stream.settle(number, 0.1)
        await self._end(stream, count)

    async def offsets(self) -> None:
        """Looks up an offset of a partition, and deletes its first records; rarely with a wrong field."""
        chance, look_up, delete = self._chance, METHODS["ListOffsets"], METHODS["DeleteRecords"]
        about = self._maker.subject()
        if about.topic is None or about.partition is None:
            return
        place = {"topic_id": about.topic.topic_id, "partition": about.partition.number}
        asked = data_plane_pb2.ListOffsetsRequest(timeout_ms=1_000)
        asked.partitions.add(**place, timestamp_ms=chance.choice((-1, -2, -3)), leader_epoch=-1)
        deleted = admin_pb2.DeleteRecordsRequest(timeout_ms=1_000)
        deleted.partitions.add(**place, before_offset=chance.choice((-1, 0, 1, 10)))
        for method, request in ((look_up, asked), (delete, deleted)):
            if chance.random() < _SPOILT:
                self._maker.spoil(request)
            await self._wire.call(self._node_for(method, about), method, request.SerializeToString(), PATIENCE_S)

    # -- a member -------------------------------------------------------------------------------------------------

    async def member(self) -> None:
        """Joins a consumer group, heartbeats, commits, and then sends invalid requests."""
        chance, heartbeat = self._chance, METHODS["Heartbeat"]
        group_id = chance.choice(GROUPS)
        if group_id not in self._vocabulary.coordinators:
            await self._find_coordinators()
        node = self._vocabulary.coordinators.get(group_id, self._vocabulary.node(chance))
        stream = self._wire.open(node, heartbeat)
        member = KnownMember(group_id, str(uuid.UUID(int=chance.getrandbits(128), version=4)), 0)
        assigned: list[groups_pb2.TopicPartitions] = []
        for number in range(chance.choice((3, 10, 20))):
            request = groups_pb2.GroupHeartbeatRequest(
                correlation_id=number + 1,
                group_id=group_id,
                member_id=member.member_id,
                member_epoch=member.member_epoch,
                session_timeout_ms=6_000,
                rebalance_timeout_ms=2_000,
                topics=STAGE[:2],
                full=True,
                owned=assigned if member.member_epoch else (),
            )
            if chance.random() < _SPOILT:
                self._maker.spoil(request)
            answer = await stream.ask(request.SerializeToString(), 0.5)
            if not isinstance(answer, groups_pb2.GroupHeartbeatResponse):
                break
            if not answer.HasField("error") and answer.member_epoch >= 0:
                if not member.member_epoch:
                    self._vocabulary.members.append(member)
                member.member_epoch = answer.member_epoch
                if answer.HasField("assignment"):
                    assigned = [
                        groups_pb2.TopicPartitions(topic_id=topic.topic_id, partitions=topic.partitions)
                        for topic in answer.assignment.topics
                    ]
            await self._commit(node, member, assigned)
        await self._end(stream, 0)

    async def _commit(self, node: int, member: KnownMember, assigned: list[groups_pb2.TopicPartitions]) -> None:
        request = groups_pb2.CommitOffsetsRequest(
            group_id=member.group_id, member_id=member.member_id, member_epoch=member.member_epoch, timeout_ms=500
        )
        for topic in assigned:
            for number in topic.partitions:
                request.offsets.add(topic_id=topic.topic_id, partition=number, offset=self._chance.randrange(100))
        if self._chance.random() < _SPOILT:
            self._maker.spoil(request)
        await self._wire.call(node, METHODS["CommitOffsets"], request.SerializeToString(), PATIENCE_S)

    async def _find_coordinators(self) -> None:
        request = groups_pb2.FindCoordinatorsRequest(group_ids=GROUPS)
        node = self._vocabulary.node(self._chance)
        await self._wire.call(node, METHODS["FindCoordinators"], request.SerializeToString(), PATIENCE_S)

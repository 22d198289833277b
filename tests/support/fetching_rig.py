"""Simulated nodes that serve Kafka's clients, and consumers at them that fetch and look up by hand."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from quorumlog.server.config.options import NodeLimits
from quorumlog.server.kafka.codec import fetch_requests, position_requests, produce_requests, topic_requests
from quorumlog.server.kafka.codec.fetch_responses import FetchResponse, PartitionData
from quorumlog.server.kafka.codec.position_responses import (
    OffsetForLeaderEpochResponse,
    OffsetForLeaderEpochResponseEpochEndOffset,
)
from quorumlog.server.kafka.codec.primitives import KafkaMessage
from quorumlog.server.kafka.codec.produce_responses import ProduceResponse
from quorumlog.server.kafka.codec.topic_responses import DeleteTopicsResponse
from quorumlog.server.kafka.handlers.fetch_session import FetchSessionSpace
from quorumlog.simulator.world.kafka_link import SimKafkaLink
from tests.support.kafka_batches import kafka_batch
from tests.support.quiet_cluster import TOPIC, Quiet

Response = TypeVar("Response", bound=KafkaMessage)
#: In which topics go by name, and by id.
BY_NAME, BY_ID = 12, 18
_WALL_MS = 1_700_000_000_000
_numbers = itertools.count()


def batch_of(records: int = 1) -> bytes:
    """A batch. The simulator wants each value to be there once."""
    return kafka_batch([(b"key", b"value %d" % next(_numbers), _WALL_MS, []) for _ in range(records)])


class FetchingRig(Quiet):
    """Three quiet nodes that serve Kafka's clients, and one topic."""

    def __init__(
        self, seed: int = 1, partitions: int = 1, *, limits: NodeLimits | None = None, racks: tuple[str, ...] = ()
    ) -> None:
        super().__init__(seed, partitions, kafka=(1, 2, 3), limits=limits, racks=racks)
        self.until(lambda: self.image.feature_level >= 2 and self.leader_of(TOPIC) is not None, 20)
        self.run(0.5)  # All nodes have applied that.
        self._links = itertools.count()

    @property
    def image(self) -> Any:
        """The metadata image of a running node."""
        return next(each.image for each in self.cluster.processes.values() if each.running)

    def leader_of(self, topic: str, partition: int = 0) -> int | None:
        """The node that leads a partition."""
        return self.led_by(self.image.topics[topic].partitions[partition].group)

    def id_of(self, topic: str) -> bytes:
        """A topic's id."""
        found: bytes = self.image.topics[topic].topic_id
        return found

    def link(self, node: int | None = None, space: FetchSessionSpace | None = None) -> SimKafkaLink:
        """A new connection to a node, the topic's leader unless another is named."""
        at = node or self.leader_of(TOPIC) or 1
        return SimKafkaLink(f"consumer-{next(self._links)}", self.cluster, at, self.scheduler, fetch_sessions=space)

    def ask(self, link: SimKafkaLink, message: KafkaMessage, version: int, kind: type[Response]) -> Response:
        """Asks, and waits for the answer."""
        number = link.send(message, version)
        self.until(lambda: number in link.answers or link.end is not None, 20)
        assert link.end is None, link.end
        answer = link.answers.pop(number)
        assert isinstance(answer, kind)
        return answer

    def produce(self, records: int = 1, topic: str = TOPIC, partition: int = 0) -> None:
        """Has a batch appended by the node that leads."""
        self.until(lambda: self.leader_of(topic, partition) is not None, 20)
        data = produce_requests.PartitionProduceData(partition, batch_of(records))
        topics = [produce_requests.TopicProduceData(topic, partition_data=[data])]
        link = self.link(self.leader_of(topic, partition))
        answer = self.ask(link, produce_requests.ProduceRequest(None, -1, 5_000, topics), 12, ProduceResponse)
        assert answer.responses[0].partition_responses[0].error_code == 0
        link.close()

    def delete(self, topic: str) -> None:
        """Deletes a topic."""
        request = topic_requests.DeleteTopicsRequest(topic_names=[topic], timeout_ms=5_000)
        answer = self.ask(self.link(), request, 5, DeleteTopicsResponse)
        assert answer.responses[0].error_code == 0
        self.run(0.5)

    def epoch_end(
        self, epoch: int, *, known: int = -1, topic: str = TOPIC, node: int | None = None, replica: int = -1
    ) -> tuple[int, int, int]:
        """Error, epoch and end that the answer to OffsetForLeaderEpoch says."""
        partition = position_requests.OffsetForLeaderPartition(0, known, epoch)
        request = position_requests.OffsetForLeaderEpochRequest(
            replica, [position_requests.OffsetForLeaderTopic(topic, [partition])]
        )
        answer = self.ask(self.link(node), request, 4, OffsetForLeaderEpochResponse)
        found: OffsetForLeaderEpochResponseEpochEndOffset = answer.topics[0].partitions[0]
        return found.error_code, found.leader_epoch, found.end_offset


class Consumer:
    """A consumer that fetches on one connection, as a session of Kafka's protocol has it.

    Attributes:
        session, epoch: of its next request.
        rack: its rack; empty if it has none.
        error: what the last answer as a whole says.
    """

    def __init__(self, rig: FetchingRig, link: SimKafkaLink | None = None, *, version: int = BY_NAME) -> None:
        self.rig = rig
        self.link = link or rig.link()
        self.version = version
        self.session = self.epoch = self.error = 0
        self.rack = ""

    def fetch(
        self,
        wanted: Mapping[int, int] | None = None,
        *,
        topic: str = TOPIC,
        forgotten: Sequence[int] = (),
        max_wait_ms: int = 0,
        max_bytes: int = 1 << 20,
        epoch: int = -1,
    ) -> dict[int, PartitionData]:
        """Sends the next request and returns what it answers, by partition.

        Arguments:
            wanted: offsets by partition, of those that are named.
            epoch: the leader epoch of its metadata.
        """
        responses = self.fetch_of({topic: wanted or {}}, {topic: forgotten}, max_wait_ms, max_bytes, epoch)
        return responses.get(topic, {})

    def fetch_of(
        self,
        wanted: Mapping[str, Mapping[int, int]],
        forgotten: Mapping[str, Sequence[int]] | None = None,
        max_wait_ms: int = 0,
        max_bytes: int = 1 << 20,
        epoch: int = -1,
    ) -> dict[str, dict[int, PartitionData]]:
        """The same of several topics."""
        names = {self._named(topic): topic for topic in [*wanted, *(forgotten or {})]}
        request = self.request(wanted, forgotten, max_wait_ms, max_bytes, epoch)
        answer = self.rig.ask(self.link, request, self.version, FetchResponse)
        self.error = answer.error_code
        if not answer.error_code:
            self.session, self.epoch = answer.session_id, self.epoch + 1 if answer.session_id else 0
        for each in answer.responses:
            names.setdefault((each.topic, each.topic_id), each.topic or each.topic_id.hex())
        return {
            names[each.topic, each.topic_id]: {one.partition_index: one for one in each.partitions}
            for each in answer.responses
        }

    def _named(self, topic: str) -> tuple[str, bytes]:
        return ("", self.rig.id_of(topic)) if self.version >= BY_ID else (topic, bytes(16))

    def request(
        self,
        wanted: Mapping[str, Mapping[int, int]],
        forgotten: Mapping[str, Sequence[int]] | None = None,
        max_wait_ms: int = 0,
        max_bytes: int = 1 << 20,
        epoch: int = -1,
    ) -> fetch_requests.FetchRequest:
        """Its next request, unsent."""
        return fetch_requests.FetchRequest(
            max_wait_ms=max_wait_ms,
            min_bytes=1,
            max_bytes=max_bytes,
            session_id=self.session,
            session_epoch=self.epoch,
            rack_id=self.rack,
            topics=[
                fetch_requests.FetchTopic(
                    *self._named(topic),
                    [
                        fetch_requests.FetchPartition(n, epoch, at, partition_max_bytes=1 << 20)
                        for n, at in partitions.items()
                    ],
                )
                for topic, partitions in wanted.items()
                if partitions
            ],
            forgotten_topics_data=[
                fetch_requests.ForgottenTopic(*self._named(topic), numbers)
                for topic, numbers in (forgotten or {}).items()
                if numbers
            ],
        )

"""A client that creates topics at one node and asks another, linearizably, what there is: it must not be told less."""

from __future__ import annotations

from collections.abc import Callable

from google.protobuf.message import Message as ProtoMessage

from quorumlog.chaos.committed_partition import Violation
from quorumlog.chaos.scheduler import Scheduler
from quorumlog.chaos.sim_clients import Port, Unanswered
from quorumlog.v1 import admin_pb2
from quorumlog.v1 import data_plane_pb2 as pb
from quorumlog.v1.errors_pb2 import ErrorCode

MOST_TOPICS = 3
TIMEOUT_MS = 700


class MetadataProbe:
    """Linearizable reads of the metadata, each judged by what was known when it was asked.

    Arguments:
        replication_factor: of the topics that it creates.
        stopped: tells when to end.
        interval_us: least and most time between two questions.

    Attributes:
        answered: reads that were answered.
    """

    def __init__(
        self,
        port: Port,
        scheduler: Scheduler,
        replication_factor: int,
        stopped: Callable[[], bool],
        interval_us: tuple[int, int],
    ) -> None:
        self._port = port
        self._scheduler = scheduler
        self._rng = scheduler.stream("metadata-probe")
        self._replication_factor = replication_factor
        self._stopped = stopped
        self._interval_us = interval_us
        self._asked_for: list[str] = []
        self._topics: set[str] = set()
        self._epochs: dict[tuple[str, int], int] = {}
        self.answered = 0
        self._go_on()

    def _go_on(self) -> None:
        if self._stopped():
            return
        self._scheduler.after(self._rng.randint(*self._interval_us), self._go_on)
        if len(self._asked_for) < MOST_TOPICS and self._rng.random() < 0.3:
            self._create()
        self._read()

    def _create(self) -> None:
        name = f"probed{len(self._asked_for)}"
        self._asked_for.append(name)
        request = admin_pb2.CreateTopicsRequest(timeout_ms=TIMEOUT_MS)
        request.topics.add(name=name, num_partitions=1, replication_factor=self._replication_factor)

        def created(answer: ProtoMessage | Unanswered) -> None:
            if isinstance(answer, admin_pb2.CreateTopicsResponse) and answer.results[0].error.code == ErrorCode.NONE:
                self._topics.add(name)

        self._port.request("metadata-probe", self._rng.choice(self._port.node_ids), request, created)

    def _read(self) -> None:
        topics, epochs = frozenset(self._topics), dict(self._epochs)
        node = self._rng.choice(self._port.node_ids)
        request = pb.MetadataRequest(all_topics=True, linearizable=True, timeout_ms=TIMEOUT_MS)
        # A connection of its own: a question must not wait behind another's answer.
        self._port.request(
            f"metadata-probe-{node}", node, request, lambda answer: self._judge(node, topics, epochs, answer)
        )

    def _judge(
        self, node: int, topics: frozenset[str], epochs: dict[tuple[str, int], int], answer: ProtoMessage | Unanswered
    ) -> None:
        if not isinstance(answer, pb.MetadataResponse) or answer.HasField("error"):
            return
        self.answered += 1
        missing = topics - {topic.name for topic in answer.topics}
        if missing:
            raise Violation(f"node {node} is asked linearizably and does not know topics {sorted(missing)}")
        for topic in answer.topics:
            self._topics.add(topic.name)
            for partition in topic.partitions:
                place = (topic.name, partition.partition)
                if partition.partition_epoch < epochs.get(place, 0):
                    raise Violation(
                        f"node {node} is asked linearizably and shows {topic.name}-{partition.partition} at epoch"
                        f" {partition.partition_epoch}; {epochs[place]} had been shown before"
                    )
                self._epochs[place] = max(partition.partition_epoch, self._epochs.get(place, 0))

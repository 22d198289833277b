"""A client that creates, changes and deletes topics at one node and reads the metadata at another, linearizably: the
answer must contain all completed changes, and no deleted topics.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from google.protobuf.message import Message as ProtoMessage

from quorumlog.simulator.models.committed_partition import Violation
from quorumlog.simulator.world.clients import Port, Unanswered
from quorumlog.simulator.world.scheduler import Scheduler
from quorumlog.v1 import admin_pb2
from quorumlog.v1 import data_plane_pb2 as pb
from quorumlog.v1.errors_pb2 import ErrorCode

NAMES = ("probed0", "probed1", "probed2")
MOST_PARTITIONS = 3
TIMEOUT_MS = 700


@dataclass(slots=True, frozen=True)
class _Known:
    """The certain state of a topic id when a request is sent, which the answer must contain."""

    partitions: int
    retention_ms: int
    epochs: tuple[int, ...]


class MetadataProbe:
    """Linearizable reads of the metadata, each judged by the state that was known when it was requested.

    The known state of a topic is what answers and reads have shown for its id: it exists, it has at least a number of
    partitions, its configuration is at least as new (the values that the probe sets only grow), and once it is known to
    be deleted it must not appear again. A change of unknown outcome may yet arrive, and affect any later topic of its
    name: those are no longer expected to exist, or to have a certain configuration.

    Arguments:
        replication_factor: of the topics that it creates.
        stopped: returns True when to end.
        interval_us: minimum and maximum time between two reads.
    Attributes:
        answered: number of answered reads.
        deleted: number of answered deletions.
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
        self._ids: dict[str, bytes] = {}
        self._known: dict[bytes, _Known] = {}
        self._gone: set[bytes] = set()
        self._unsure: set[bytes] = set()
        self._stray: set[str] = set()
        self._changing = False
        self._newest_value = 0
        self.answered = self.deleted = 0
        self._change_and_read()

    def _change_and_read(self) -> None:
        if self._stopped():
            return
        self._scheduler.after(self._rng.randint(*self._interval_us), self._change_and_read)
        if not self._changing and self._rng.random() < 0.8:
            self._change(self._rng.choice(NAMES))
        self._read()

    # -- changes --------------------------------------------------------------------------------------------------

    def _change(self, name: str) -> None:
        topic_id = self._ids.get(name)
        if topic_id is None:
            request = admin_pb2.CreateTopicsRequest(timeout_ms=TIMEOUT_MS)
            request.topics.add(name=name, num_partitions=1, replication_factor=self._replication_factor)
            self._ask(name, request, lambda result: self._created(name, result))
            return
        kind = self._rng.choice(("delete", "delete", "grow", "alter"))
        if kind == "delete":
            # From here on it may be deleted, whatever the answer.
            self._unsure.add(topic_id)
            deletion = admin_pb2.DeleteTopicsRequest(names=[name], timeout_ms=TIMEOUT_MS)
            self._ask(name, deletion, lambda result: self._deleted(name, topic_id, result))
        elif kind == "grow":
            total = min(MOST_PARTITIONS, self._of(topic_id).partitions + 1)
            growth = admin_pb2.CreatePartitionsRequest(timeout_ms=TIMEOUT_MS)
            growth.topics.add(name=name, total_count=total)
            self._ask(name, growth, lambda result: self._learn(topic_id, result, partitions=total))
        else:
            self._newest_value += 1
            value = self._newest_value
            change = admin_pb2.AlterConfigsRequest(timeout_ms=TIMEOUT_MS)
            change.topics.add(name=name, set={"retention.ms": str(value)})
            self._ask(name, change, lambda result: self._learn(topic_id, result, retention_ms=value))

    def _ask(self, name: str, request: ProtoMessage, done: Callable[[ProtoMessage], None]) -> None:
        self._changing = True

        def answered(answer: ProtoMessage | Unanswered) -> None:
            self._changing = False
            result = None if isinstance(answer, Unanswered) else answer.results[0]  # type: ignore[attr-defined]
            if result is None or (result.HasField("error") and not result.error.definite):
                self._stray.add(name)
            if result is not None:
                done(result)

        self._port.request("metadata-probe", self._rng.choice(self._port.node_ids), request, answered)

    def _created(self, name: str, result: ProtoMessage) -> None:
        assert isinstance(result, admin_pb2.CreateTopicResult)
        if result.error.code == ErrorCode.NONE:
            self._ids[name] = result.topic_id
            self._known.setdefault(result.topic_id, _Known(1, 0, (0,)))

    def _deleted(self, name: str, topic_id: bytes, result: ProtoMessage) -> None:
        assert isinstance(result, admin_pb2.TopicResult)
        if result.error.code == ErrorCode.NONE:
            # Whichever topic of the name that was, this one is deleted: there is only one at a time.
            self.deleted += 1
            self._gone.add(topic_id)
        if result.error.code in (ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION):
            self._ids.pop(name, None)

    def _learn(self, topic_id: bytes, result: ProtoMessage, *, partitions: int = 0, retention_ms: int = 0) -> None:
        assert isinstance(result, admin_pb2.TopicResult)
        if result.error.code == ErrorCode.NONE and topic_id not in self._gone:
            known = self._of(topic_id)
            self._known[topic_id] = _Known(
                max(known.partitions, partitions), max(known.retention_ms, retention_ms), known.epochs
            )

    def _of(self, topic_id: bytes) -> _Known:
        return self._known.get(topic_id, _Known(1, 0, (0,)))

    # -- reads ----------------------------------------------------------------------------------------------------

    def _read(self) -> None:
        certain = {
            topic_id: self._of(topic_id)
            for name, topic_id in self._ids.items()
            if topic_id not in self._unsure and name not in self._stray
        }
        epochs = {topic_id: known.epochs for topic_id, known in self._known.items()}
        gone = frozenset(self._gone)
        node = self._rng.choice(self._port.node_ids)
        request = pb.MetadataRequest(all_topics=True, linearizable=True, timeout_ms=TIMEOUT_MS)
        # A connection of its own: a read must not wait behind another's answer.
        self._port.request(
            f"metadata-probe-{node}", node, request, lambda answer: self._judge(node, certain, epochs, gone, answer)
        )

    def _judge(
        self,
        node: int,
        certain: dict[bytes, _Known],
        epochs: dict[bytes, tuple[int, ...]],
        gone: frozenset[bytes],
        answer: ProtoMessage | Unanswered,
    ) -> None:
        if not isinstance(answer, pb.MetadataResponse) or answer.HasField("error"):
            return
        self.answered += 1
        shown = {topic.topic_id: topic for topic in answer.topics}
        strays = {self._ids[name] for name in self._stray if name in self._ids}
        missing = [each.hex() for each in certain if each not in shown and each not in self._unsure | strays]
        if missing:
            raise Violation(f"a linearizable read at node {node} lacks topics {missing}")
        for topic in answer.topics:
            if topic.topic_id in gone:
                raise Violation(f"a linearizable read at node {node} shows {topic.name}, which was deleted")
            known = certain.get(topic.topic_id, _Known(0, 0, ()))
            retention_ms = int(topic.configs.get("retention.ms", "0"))
            older = retention_ms < known.retention_ms and topic.name not in self._stray
            if len(topic.partitions) < known.partitions or older:
                raise Violation(
                    f"a linearizable read at node {node} shows {topic.name} with {len(topic.partitions)} partitions"
                    f" and retention.ms={retention_ms}; {known} was known"
                )
            self._judge_epochs(node, topic, retention_ms, epochs.get(topic.topic_id, ()))

    def _judge_epochs(self, node: int, topic: pb.TopicMetadata, retention_ms: int, epochs: tuple[int, ...]) -> None:
        """Judges the epochs of a topic's partitions, and remembers them."""
        shown = tuple(partition.partition_epoch for partition in topic.partitions)
        for number, (before, now) in enumerate(zip(epochs, shown, strict=False)):
            if now < before:
                raise Violation(
                    f"a linearizable read at node {node} shows {topic.name}-{number} at epoch {now}; {before} had"
                    " been shown before"
                )
        known = self._of(topic.topic_id)
        highest = [max(pair) for pair in zip(shown, known.epochs, strict=False)]
        merged = (*highest, *shown[len(highest) :], *known.epochs[len(highest) :])
        self._known[topic.topic_id] = _Known(
            max(known.partitions, len(shown)), max(known.retention_ms, retention_ms), merged
        )
        if topic.name in NAMES and topic.topic_id not in self._gone:
            self._ids.setdefault(topic.name, topic.topic_id)

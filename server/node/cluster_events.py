"""Events in the cluster, as log lines and as counters for metrics.

Each event is reported once: events of the cluster as a whole by the active controller, events of a partition by the
node that leads it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from quorumlog.server.hosting.partition_replica import PartitionReplica
from quorumlog.server.metadata.image import MetadataImage
from quorumlog.server.metadata.records import ApplyResult, PartitionRecord, Topic
from quorumlog.server.step.events import EventLog, LogLevel
from quorumlog.server.step.node_service import StepTime

#: Maximum number of lines of one kind per second. The loss of a node moves a thousand leaderships at once.
LINES_PER_SECOND = 20
_SECOND_US = 1_000_000


@dataclass(slots=True)
class _Budget:
    """Lines of one kind in the second that started at ``since``."""

    since: int
    written: int = 0
    left_out: int = 0


@dataclass(slots=True)
class JournalCounts:
    """A node's counters since its start."""

    leader_elections: int = 0
    isr_shrinks: int = 0
    isr_expansions: int = 0
    brokers_fenced: int = 0


@dataclass(slots=True)
class _ToldBefore:
    """The last reported state of the cluster."""

    brokers: dict[int, bool]
    topics: dict[bytes, tuple[Mapping[str, str], int]]
    partitions: dict[int, tuple[tuple[int, ...], tuple[int, ...]]]


class ClusterEvents:
    """Reports changes of the metadata image, and of the partitions that this node leads.

    Arguments:
        image: the image when the node joins.
        time: the time of the current step; the node updates it.

    Attributes:
        led: Raft groups of the partitions that this node leads.
        left_out: kinds of which lines were left out, which has not been reported yet.
    """

    def __init__(self, image: MetadataImage, write: EventLog, time: StepTime) -> None:
        self._write = write
        self._time = time
        self.led: set[int] = set()
        self._budgets: dict[str, _Budget] = {}
        self.left_out: dict[str, LogLevel] = {}
        self.counts = JournalCounts()
        self.start_from(image)

    def begin_step(self) -> None:
        """Starts a step of the node: reports the kinds of which lines were left out, once their second is over."""
        for event, level in list(self.left_out.items()):
            budget = self._budgets[event]
            if self._time.now - budget.since >= _SECOND_US:
                self._write(level, event, left_out=budget.left_out)
                del self._budgets[event], self.left_out[event]

    def start_from(self, image: MetadataImage) -> None:
        """Takes the image as already reported, after it was replaced as a whole."""
        self._known = _ToldBefore(
            {node: broker.fenced for node, broker in image.brokers.items()},
            {topic.topic_id: (topic.configs, len(topic.partitions)) for topic in image.topics.values()},
            {group: (record.isr, record.target) for group, record in image.partitions.items()},
        )

    def applied(self, image: MetadataImage, result: ApplyResult, *, is_controller: bool) -> None:
        """Reports the changes made by a command that was applied to the image.

        Arguments:
            is_controller: True if this node is the active controller, which reports events of the cluster as a whole.
        """
        if result.brokers_changed:
            self._brokers(image, is_controller=is_controller)
        for topic in result.deleted:
            self._known.topics.pop(topic.topic_id, None)
            for gone in topic.partitions:
                self._known.partitions.pop(gone.group, None)
            if is_controller:
                self._say("info", "topic_deleted", topic=topic.name, partitions=len(topic.partitions))
        changed: dict[bytes, Topic] = {}
        for group in sorted(result.changed_groups):
            record = image.partitions.get(group)
            if record is not None:
                changed[record.topic.topic_id] = record.topic
                self._partition(record, is_controller=is_controller)
        for topic in changed.values():
            self._topic(topic, is_controller=is_controller)

    def follow(self, replica: PartitionReplica, *, leads: bool) -> None:
        """Records whether a replica leads, after its Raft group was stepped or the replica was removed."""
        if leads == (replica.group in self.led):
            return
        if leads:
            self.led.add(replica.group)
            self.counts.leader_elections += 1
            self._say("info", "leader_elected", partition=replica.name, leader_epoch=replica.raft.term)
        else:
            self.led.discard(replica.group)

    def _brokers(self, image: MetadataImage, *, is_controller: bool) -> None:
        known = self._known.brokers
        self._known.brokers = {node: broker.fenced for node, broker in image.brokers.items()}
        if not is_controller:
            return
        for node, broker in sorted(image.brokers.items()):
            if node not in known:
                self._say("info", "broker_registered", broker=node)
            elif broker.fenced and not known[node]:
                self.counts.brokers_fenced += 1
                self._say("warning", "broker_fenced", broker=node)
            if not broker.fenced and known.get(node, True):
                self._say("info", "broker_unfenced", broker=node)
        for node in sorted(known.keys() - image.brokers.keys()):
            self._say("info", "broker_removed", broker=node)

    def _topic(self, topic: Topic, *, is_controller: bool) -> None:
        known, now = self._known.topics.get(topic.topic_id), (topic.configs, len(topic.partitions))
        self._known.topics[topic.topic_id] = now
        if not is_controller or known == now:
            return
        if known is None:
            factor = len(topic.partitions[0].replicas)
            self._say("info", "topic_created", topic=topic.name, partitions=now[1], replication_factor=factor)
        elif known[1] != now[1]:
            self._say("info", "partitions_added", topic=topic.name, partitions=now[1], before=known[1])
        if known is None or known[0] != now[0]:
            for name in sorted(topic.configs.keys() | (known[0].keys() if known is not None else ())):
                value, before = topic.configs.get(name), known[0].get(name) if known is not None else None
                if value != before:
                    self._say("info", "topic_config_changed", topic=topic.name, config=name, value=value, before=before)

    def _partition(self, record: PartitionRecord, *, is_controller: bool) -> None:
        known, now = self._known.partitions.get(record.group), (record.isr, record.target)
        self._known.partitions[record.group] = now
        if known is None or known == now:
            return
        name = f"{record.topic.name}-{record.number}"
        isr, target = known
        if is_controller and target != record.target:
            if record.target:
                self._say("info", "move_begins", partition=name, replicas=record.replicas, target=record.target)
            else:
                self._say("info", "move_ended", partition=name, replicas=record.replicas)
        if record.group not in self.led:
            return
        lost, came = set(isr) - set(record.isr), set(record.isr) - set(isr)
        if lost:
            self.counts.isr_shrinks += 1
            self._say("warning", "isr_shrunk", partition=name, isr=record.isr, out_of_sync=tuple(sorted(lost)))
        if came:
            self.counts.isr_expansions += 1
            self._say("info", "isr_expanded", partition=name, isr=record.isr, in_sync=tuple(sorted(came)))

    def _say(self, level: LogLevel, event: str, **fields: object) -> None:
        now = self._time.now
        budget = self._budgets.get(event)
        if budget is None or (now - budget.since >= _SECOND_US and not budget.left_out):
            budget = self._budgets[event] = _Budget(now)
        if budget.written < LINES_PER_SECOND:
            budget.written += 1
            self._write(level, event, **fields)
        else:
            budget.left_out += 1
            self.left_out[event] = level

"""Consumers of Kafka's protocol in virtual time, which fetch in sessions (KIP-227): each has one connection to a node,
and sends only changes there.

A session must not omit records that can be read. So a reader remembers the reported end of each partition, and counts
the answers without a partition that has records after its position.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from quorumlog.chaos.checkers.history import History, Operation, OperationKind, OperationOutcome
from quorumlog.server.kafka.codec.fetch_requests import FetchPartition, FetchRequest, FetchTopic, ForgottenTopic
from quorumlog.server.kafka.codec.fetch_responses import FetchResponse, PartitionData
from quorumlog.server.kafka.codec.primitives import NO_UUID
from quorumlog.server.kafka.connection import KafkaConnectionFault
from quorumlog.server.kafka.handlers.error_codes import KafkaError
from quorumlog.server.kafka.handlers.fetch_session import FetchSessionSpace
from quorumlog.simulator.models.committed_partition import Violation
from quorumlog.simulator.models.records import TOMBSTONE
from quorumlog.simulator.world.clients import Directory, PartitionName
from quorumlog.simulator.world.cluster import SimCluster
from quorumlog.simulator.world.kafka_link import SimKafkaLink
from quorumlog.simulator.world.scheduler import Scheduler

#: Versions in which topics are named, and identified by id.
BY_NAME, BY_ID = 12, 18
#: Timeout of an answer, after which the connection is closed (µs).
_PATIENCE_US = 1_000_000
#: Delay between two fetches from a node, and if there is nothing to fetch (µs).
_SOON_US, _LATER_US = (500, 20_000), (20_000, 120_000)
#: Maximum number of consecutive answers without a partition that has records, for each partition of the session: each
#: answer has at least a batch of one of them.
_MOST_SILENT = 4
#: Duration for which a partition is left out (µs).
_LEFT_OUT_US = (20_000, 400_000)
#: Start of a batch: its first offset, and the size of the rest.
_BATCH = struct.Struct(">qi")
_SESSION_OVER = (
    KafkaError.FETCH_SESSION_ID_NOT_FOUND,
    KafkaError.INVALID_FETCH_SESSION_EPOCH,
    KafkaError.FETCH_SESSION_TOPIC_ID_ERROR,
)


@dataclass(slots=True, frozen=True)
class KafkaReaderPlan:
    """The seed's decisions for one reader: probabilities of its actions per fetch.

    Arguments:
        by_id: it identifies topics by id.
        names_epochs: it sends the known leader epoch.
        throws_away: discards records of a partition, which it fetches again without notice.
        leaves_out: leaves a partition out for a while.
        breaks: breaks its connection.
        begins_anew: starts a new session.
        max_bytes: limit of an answer; ``max_wait_ms``: time that it waits for records.
    """

    name: str
    partitions: tuple[PartitionName, ...]
    by_id: bool = True
    names_epochs: bool = False
    throws_away: float = 0.0
    leaves_out: float = 0.0
    breaks: float = 0.0
    begins_anew: float = 0.0
    max_bytes: tuple[int, ...] = (300, 4_000, 1 << 20)
    max_wait_ms: int = 200


#: A session's state of a partition: the offset to read from, and the known leader epoch.
_Wish = tuple[int, int]


@dataclass(slots=True, eq=False)
class _NodeFetches:
    """A reader's connection to one node, and its session there.

    Arguments:
        session, epoch: of the next request; 0 without a session.
        named: the partitions of the session.
        asked: further partitions named by the pending request.
        number: number of that request; 0 if none exists.
        ends: the reported ends of partitions, unless an error was reported since.
        silent: number of consecutive answers without a partition that has records.
    """

    node: int
    link: SimKafkaLink | None = None
    session: int = 0
    epoch: int = 0
    named: dict[PartitionName, _Wish] = field(default_factory=dict)
    asked: Mapping[PartitionName, _Wish] = field(default_factory=dict)
    forgotten: Sequence[PartitionName] = ()
    number: int = 0
    began_us: int = 0
    ends: dict[PartitionName, int] = field(default_factory=dict)
    silent: dict[PartitionName, int] = field(default_factory=dict)

    def ends_session(self) -> None:
        """Makes the next request start another session."""
        self.session = self.epoch = 0
        self.begins_anew()

    def begins_anew(self) -> None:
        """Makes the next request name all partitions."""
        self.epoch = 0
        self.named, self.ends, self.silent = {}, {}, {}


def session_spaces(node_ids: Iterable[int], kept_partitions: int) -> dict[int, FetchSessionSpace]:
    """Returns the space for sessions at each node's port."""
    return {node: FetchSessionSpace(kept_partitions) for node in node_ids}


class SimKafkaReader:
    """Reads partitions from offset 0 on. Records that are no longer retained are skipped.

    Arguments:
        spaces: limits of the partitions in sessions, by node.

    Attributes:
        positions: the next offset to read, by partition.
        incremental: number of incremental answers of sessions.
    """

    def __init__(
        self,
        plan: KafkaReaderPlan,
        cluster: SimCluster,
        scheduler: Scheduler,
        history: History,
        spaces: Mapping[int, FetchSessionSpace],
    ) -> None:
        self.plan = plan
        self.positions = dict.fromkeys(plan.partitions, 0)
        self.incremental = 0
        self._cluster = cluster
        self._scheduler = scheduler
        self._rng = scheduler.stream(plan.name)
        self._history = history
        self._spaces = spaces
        self._directory = Directory(plan.name, cluster, scheduler, scheduler.stream(f"{plan.name}/directory"))
        self._left_out: dict[PartitionName, int] = {}
        self._healed = self._stopped = False
        self._nodes = {node: _NodeFetches(node) for node in cluster.node_ids}
        for each in self._nodes.values():
            self._again(each, _SOON_US)

    def heal(self) -> None:
        """Removes all obstacles; from now on it only reads."""
        self._healed = True
        self._left_out.clear()

    def stop(self) -> None:
        """Stops fetching."""
        self._stopped = True
        for each in self._nodes.values():
            self._disconnect(each)

    def behind(self, ends: Mapping[PartitionName, int]) -> list[str]:
        """Returns the partitions of which it has not reached the end."""
        return [
            f"{name} at {at} of {ends[name]}" for name, at in self.positions.items() if name in ends and at < ends[name]
        ]

    def _does(self, often: float) -> bool:
        return not self._healed and self._rng.random() < often

    def _again(self, fetches: _NodeFetches, within_us: tuple[int, int]) -> None:
        self._scheduler.after(self._rng.randint(*within_us), lambda: self._fetch(fetches))

    # -- requests -----------------------------------------------------------------------------------------------------

    def _wanted(self, node: int) -> dict[PartitionName, _Wish]:
        """Returns the partitions to fetch from a node: those that it leads, according to the reader."""
        wanted: dict[PartitionName, _Wish] = {}
        for name, position in self.positions.items():
            known = self._directory.partitions.get(name)
            if known is None or known.leader < 0:
                self._directory.refresh()
            elif known.leader == node and self._left_out.get(name, 0) <= self._scheduler.now:
                wanted[name] = (position, known.epoch if self.plan.names_epochs else -1)
        return wanted

    def _fetch(self, fetches: _NodeFetches) -> None:
        if self._stopped or fetches.number:
            return
        if self._does(self.plan.breaks):
            self._disconnect(fetches)
        if self._does(self.plan.begins_anew):
            fetches.begins_anew()  # The request names the session that is given up.
        if self._does(self.plan.leaves_out):
            left_out = self._rng.choice(self.plan.partitions)
            self._left_out[left_out] = self._scheduler.now + self._rng.randint(*_LEFT_OUT_US)
        wanted = self._wanted(fetches.node)
        if not wanted and (not fetches.session or self._rng.random() < 0.9):
            self._again(fetches, _LATER_US)
            return
        fetches.asked = {
            name: parameters for name, parameters in wanted.items() if fetches.named.get(name) != parameters
        }
        fetches.forgotten = [name for name in fetches.named if name not in wanted]
        if fetches.link is None:
            fetches.link = SimKafkaLink(
                self.plan.name,
                self._cluster,
                fetches.node,
                self._scheduler,
                fetch_sessions=self._spaces[fetches.node],
                on_answer=lambda: self._look(fetches),
            )
        request = FetchRequest(
            max_wait_ms=self.plan.max_wait_ms,
            min_bytes=1,
            max_bytes=self._rng.choice(self.plan.max_bytes),
            session_id=fetches.session,
            session_epoch=fetches.epoch,
            topics=[
                FetchTopic(*self._called(name), [FetchPartition(name.number, epoch, offset, -1, -1, 1 << 20)])
                for name, (offset, epoch) in fetches.asked.items()
            ],
            forgotten_topics_data=[ForgottenTopic(*self._called(name), [name.number]) for name in fetches.forgotten],
        )
        fetches.began_us = self._scheduler.now
        link = fetches.link
        fetches.number = number = link.send(request, BY_ID if self.plan.by_id else BY_NAME)
        self._scheduler.after(_PATIENCE_US, lambda: self._give_up(fetches, link, number))
        self._look(fetches)  # A rejected request is answered immediately.

    def _called(self, name: PartitionName) -> tuple[str, bytes]:
        """Returns name and id of a topic as used in requests."""
        if self.plan.by_id:
            return "", self._directory.partitions[name].topic_id
        return name.topic, NO_UUID

    def _give_up(self, fetches: _NodeFetches, link: SimKafkaLink, number: int) -> None:
        """Closes the connection after a timeout: the node may be another process by now."""
        if fetches.link is link and fetches.number == number:
            if link.end is not None and link.end.fault is KafkaConnectionFault.FAILED:
                raise Violation(f"node {fetches.node} ends the connection of {self.plan.name}: {link.end.detail}")
            self._disconnect(fetches)
            self._directory.refresh()
            self._again(fetches, _LATER_US)

    def _disconnect(self, fetches: _NodeFetches) -> None:
        """Closes the connection, and with it the session."""
        if fetches.link is not None:
            fetches.link.close()
        fetches.link, fetches.number = None, 0
        fetches.ends_session()

    # -- answers ------------------------------------------------------------------------------------------------------

    def _look(self, fetches: _NodeFetches) -> None:
        """Handles the answer, if it has arrived."""
        link, number = fetches.link, fetches.number
        if self._stopped or link is None or number not in link.answers:
            return
        answer = link.answers.pop(number)
        assert isinstance(answer, FetchResponse)
        fetches.number = 0
        if answer.error_code in _SESSION_OVER:
            if not fetches.epoch:
                raise Violation(f"{self.plan.name} starts a session, which is over: {answer.error_code}")
            fetches.ends_session()
        elif answer.error_code:
            self._directory.refresh()
        else:
            self._follow(fetches, answer)
        self._again(fetches, _LATER_US if answer.throttle_time_ms or answer.error_code else _SOON_US)

    def _follow(self, fetches: _NodeFetches, answer: FetchResponse) -> None:
        """Updates the session's state, and stores new records."""
        began = fetches.epoch == 0
        wishes = {**fetches.named, **fetches.asked}
        for name in fetches.forgotten:
            wishes.pop(name, None)
        reported = dict(self._told(answer))
        strangers = reported.keys() - wishes.keys()
        if strangers:
            raise Violation(
                f"node {fetches.node} returns to {self.plan.name} {sorted(strangers)}, which it does not want"
            )
        if began and wishes.keys() - reported.keys():
            missing = sorted(wishes.keys() - reported.keys())
            raise Violation(f"node {fetches.node} returns to {self.plan.name} nothing of {missing}, which it asks for")
        if not began:
            self.incremental += 1
            if answer.session_id != fetches.session and wishes:
                raise Violation(f"session {fetches.session} of {self.plan.name} is answered as {answer.session_id}")
        if answer.session_id:
            fetches.session, fetches.epoch, fetches.named = answer.session_id, fetches.epoch + 1, wishes
            if not answer.throttle_time_ms:
                self._judge_silence(fetches, wishes, reported)
        else:
            fetches.ends_session()
        for name, data in reported.items():
            self._take(name, data, wishes[name], fetches)

    def _judge_silence(
        self, fetches: _NodeFetches, wishes: Mapping[PartitionName, _Wish], told: Mapping[PartitionName, PartitionData]
    ) -> None:
        """Checks that records before the reported ends are served, each partition in its turn."""
        ends = fetches.ends = {name: end for name, end in fetches.ends.items() if name in wishes}
        fetches.silent = {name: fetches.silent.get(name, 0) + 1 for name, end in ends.items() if wishes[name][0] < end}
        for name, data in told.items():
            if data.records or data.error_code:
                fetches.silent.pop(name, None)
            if data.error_code:
                ends.pop(name, None)
            else:
                ends[name] = max(ends.get(name, 0), data.high_watermark)
        for name, times in fetches.silent.items():
            if times > _MOST_SILENT * len(wishes):
                raise Violation(
                    f"node {fetches.node} has reported that {name} ends at {ends[name]}, but omits it in"
                    f" {times} answers: {self.plan.name} is at {wishes[name][0]}, in session {fetches.session}"
                )

    def _told(self, answer: FetchResponse) -> Iterator[tuple[PartitionName, PartitionData]]:
        topics = {known.topic_id: name.topic for name, known in self._directory.partitions.items()}
        for topic in answer.responses:
            name = topics[topic.topic_id] if self.plan.by_id else topic.topic
            for data in topic.partitions:
                yield PartitionName(name, data.partition_index), data

    def _take(self, name: PartitionName, data: PartitionData, wish: _Wish, fetches: _NodeFetches) -> None:
        position = self.positions[name]
        if data.error_code == KafkaError.OFFSET_OUT_OF_RANGE and data.log_start_offset > position:
            self.positions[name] = data.log_start_offset
            self._note(OperationKind.RESET, name, fetches, offset=data.log_start_offset)
            return
        if data.error_code:
            self._directory.refresh()
            return
        if not data.records or wish[0] != position or self._does(self.plan.throws_away):
            return
        records, end = _records_in(bytes(data.records), position)
        if records:
            unique = [(at, f"{value}@{name}@{at}" if value == TOMBSTONE else value) for at, value in records]
            self._note(OperationKind.POLL, name, fetches, records=unique, high_watermark=data.high_watermark)
        self.positions[name] = max(position, end)

    def _note(
        self,
        kind: OperationKind,
        name: PartitionName,
        fetches: _NodeFetches,
        *,
        offset: int = -1,
        records: Sequence[tuple[int, str]] = (),
        high_watermark: int = -1,
    ) -> None:
        group = self._directory.partitions[name].group
        points = self._cluster.invariants.model(group).log.compaction.points
        self._history.add(
            Operation(
                process=self.plan.name,
                kind=kind,
                invoked_us=fetches.began_us,
                returned_us=self._scheduler.now,
                outcome=OperationOutcome.OK,
                partition=str(name),
                offset=offset,
                records=list(records),
                high_watermark=high_watermark,
                # Kafka's answers do not contain the compaction point of a log.
                compacted_offset=max((point.end_offset for point in points), default=0),
            )
        )


def _records_in(data: bytes, position: int) -> tuple[list[tuple[int, str]], int]:
    """Returns offsets and values of the records in a partition's batches from a position on, and the end of the last
    batch.
    """
    from quorumlog.wire.kafka.batch import verify_kafka_batch
    from quorumlog.wire.kafka.records import read_kafka_columns
    from quorumlog.wire.payload import OFFSET_DELTA, VALUE, has_gaps

    found: list[tuple[int, str]] = []
    at = end = 0
    while at < len(data):
        _, size = _BATCH.unpack_from(data, at)
        batch = data[at : at + _BATCH.size + size]
        at += len(batch)
        header = verify_kafka_batch(batch)
        columns = read_kafka_columns(batch, header)
        deltas: Any = columns.column(OFFSET_DELTA).to_pylist() if has_gaps(columns) else range(columns.num_rows)
        for delta, value in zip(deltas, columns.column(VALUE).to_pylist(), strict=True):
            if header.base_offset + delta >= position:
                found.append((header.base_offset + delta, TOMBSTONE if value is None else value.decode()))
        end = header.base_offset + header.last_offset_delta + 1
    return found, end

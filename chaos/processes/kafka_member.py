"""A member of a group with Kafka's own client: librdkafka, through confluent-kafka, in a group of either kind."""

from __future__ import annotations

import time
from collections import deque
from pathlib import Path
from typing import Any

import confluent_kafka
from confluent_kafka import KafkaError, KafkaException

from quorumlog.chaos.processes.member_log import Event, MemberLog, WorkedRecord
from quorumlog.chaos.processes.member_plan import MemberPlan
from quorumlog.chaos.processes.once_writers import VALUE

POLL_S = 0.1


class KafkaMember:
    """Processes records until it is asked to leave."""

    def __init__(self, plan: MemberPlan, log: MemberLog) -> None:
        self.leaving = False
        self._plan = plan
        self._log = log
        self._given: dict[int, list[WorkedRecord]] = {}
        self._worked: dict[int, int] = {}
        self._commits: deque[tuple[dict[int, int], int]] = deque()
        settings: dict[str, Any] = {
            **plan.kafka_options,
            "client.id": Path(plan.log).stem,
            "group.id": plan.group,
            "group.protocol": plan.kafka_protocol,
            "enable.auto.commit": False,
            "enable.auto.offset.store": False,
            "auto.offset.reset": "earliest",
            "max.poll.interval.ms": plan.max_poll_interval_ms,
            "reconnect.backoff.max.ms": 500,
            "socket.timeout.ms": 10_000,
            "log_level": 2,
            "on_commit": self._settled,
        }
        if plan.kafka_protocol == "classic":
            settings["partition.assignment.strategy"] = plan.kafka_assignor
            settings["session.timeout.ms"] = plan.session_timeout_ms
            settings["heartbeat.interval.ms"] = plan.heartbeat_interval_ms
        if plan.instance:
            settings["group.instance.id"] = plan.instance
        self._consumer = confluent_kafka.Consumer(settings)

    def work(self) -> None:
        """Polls, processes and commits; leaves the group when asked to."""
        topic = self._plan.topic
        name = f"^{topic[:-1]}[{topic[-1]}]$" if self._plan.by_pattern else topic
        self._consumer.subscribe([name], on_assign=self._assigned, on_revoke=self._revoked, on_lost=self._lost)
        polls = 0
        while not self.leaving:
            asked_ns = time.monotonic_ns()
            self._poll()
            given_ns = time.monotonic_ns()
            if not self._given:
                continue
            if self._plan.work_ms:
                time.sleep(self._plan.work_ms / 1_000)
            for partition, records in self._given.items():
                self._log.worked(partition, asked_ns, given_ns, records)
                self._worked[partition] = records[-1].offset + 1
            self._given = {}
            polls += 1
            if polls % self._plan.commit_every == 0:
                self._commit(wait=not self._plan.asynchronous)
        self._consumer.close()

    def _poll(self) -> None:
        """Polls records. Callbacks discard those of partitions that are revoked in the meantime."""
        wait_s = POLL_S
        for _ in range(self._plan.max_poll_records):
            message = self._consumer.poll(wait_s)
            if message is None:
                return
            wait_s = 0.0
            problem = message.error()
            if problem is not None:
                if problem.fatal():
                    raise KafkaException(problem)
                continue
            place: Any = message
            number, writer, key = VALUE.unpack(place.value())
            self._given.setdefault(place.partition(), []).append(WorkedRecord(place.offset(), writer, number, key))

    def _commit(self, *, wait: bool) -> None:
        """Commits the records processed since the last commit."""
        if not self._worked:
            return
        offsets = [confluent_kafka.TopicPartition(self._plan.topic, p, at) for p, at in self._worked.items()]
        commit = self._log.committing(self._worked)
        worked, self._worked = self._worked, {}
        try:
            if wait:
                self._consumer.commit(offsets=offsets, asynchronous=False)
                self._log.committed(commit)
            else:
                self._commits.append((worked, commit))
                self._consumer.commit(offsets=offsets, asynchronous=True)
        except KafkaException as error:
            if not wait:
                self._commits.remove((worked, commit))
            self._refused(commit, error.args[0])

    def _settled(self, error: Any, partitions: list[Any]) -> None:
        """Handles the result of an asynchronous commit; the client does not number commits, and reports them in any
        order.
        """
        offsets = {each.partition: each.offset for each in partitions}
        for waiting in self._commits:
            if waiting[0] == offsets:
                self._commits.remove(waiting)
                if error is None:
                    self._log.committed(waiting[1])
                else:
                    self._refused(waiting[1], error)
                return

    def _refused(self, commit: int, error: KafkaError) -> None:
        # The client reports the last answer only: an earlier attempt without an answer may have been stored.
        self._log.refused(commit, False, f"{error.name()}: {error.str()}")

    # -- rebalance callbacks --------------------------------------------------------------------------------------

    def _assigned(self, _consumer: Any, partitions: list[Any]) -> None:
        self._log.assigned(Event.ASSIGNED, (each.partition for each in partitions))

    def _revoked(self, _consumer: Any, partitions: list[Any]) -> None:
        self._commit(wait=True)
        self._give_up(Event.REVOKED, partitions)

    def _lost(self, _consumer: Any, partitions: list[Any]) -> None:
        self._give_up(Event.LOST, partitions)

    def _give_up(self, event: Event, partitions: list[Any]) -> None:
        for each in partitions:
            self._given.pop(each.partition, None)
            self._worked.pop(each.partition, None)
        self._log.assigned(event, (each.partition for each in partitions))

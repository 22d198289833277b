"""A member of a group in a process of its own: reads, processes, commits after that, and logs its actions.

``python -m quorumlog.chaos.processes.group_member '{"group": …}'``, with the fields of :class:`MemberPlan`. SIGTERM
makes it leave the group; the end of its standard input, and so of its parent process, ends it immediately.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

from quorumlog.chaos.processes.member_log import Event, MemberLog, WorkedRecord
from quorumlog.chaos.processes.member_plan import MemberPlan
from quorumlog.chaos.processes.once_writers import VALUE
from quorumlog.sdk import Consumer, ConsumerRebalanceListener, ConsumerRecord, OffsetAndMetadata, TopicPartition
from quorumlog.sdk.errors import QuorumlogError

#: Maximum time that a poll waits for records (ms): it bounds how late a member notices a rebalance.
POLL_MS = 100


class WorkingMember(ConsumerRebalanceListener):
    """Processes records until it is asked to leave."""

    def __init__(self, plan: MemberPlan, log: MemberLog) -> None:
        self.leaving = False
        self._plan = plan
        self._log = log
        self._worked: dict[int, int] = {}
        self._consumer = Consumer(
            **plan.clients,
            group_id=plan.group,
            group_instance_id=plan.instance or None,
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            session_timeout_ms=plan.session_timeout_ms,
            heartbeat_interval_ms=plan.heartbeat_interval_ms,
            max_poll_interval_ms=plan.max_poll_interval_ms,
            group_assignor=plan.assignor,
            max_poll_records=plan.max_poll_records,
            client_id=Path(plan.log).stem,
        )

    def work(self) -> None:
        """Polls, processes and commits; leaves the group when asked to."""
        topic = self._plan.topic
        if self._plan.by_pattern:
            self._consumer.subscribe(pattern=f"{topic[:-1]}[{topic[-1]}]", listener=self)
        else:
            self._consumer.subscribe([topic], listener=self)
        polls = 0
        while not self.leaving:
            asked_ns = time.monotonic_ns()
            polled = self._consumer.poll(timeout_ms=POLL_MS)
            given_ns = time.monotonic_ns()
            if polled and self._plan.work_ms:
                time.sleep(self._plan.work_ms / 1_000)
            for partition, records in polled.items():
                self._write_down(partition, records, asked_ns, given_ns)
            polls += bool(polled)
            if polls and polls % self._plan.commit_every == 0:
                self._commit(wait=not self._plan.asynchronous)
        self._consumer.close()

    def _write_down(
        self, partition: TopicPartition, records: list[ConsumerRecord], asked_ns: int, given_ns: int
    ) -> None:
        worked = []
        for record in records:
            assert record.value is not None
            number, writer, key = VALUE.unpack(record.value)
            worked.append(WorkedRecord(record.offset, writer, number, key))
        self._log.worked(partition.partition, asked_ns, given_ns, worked)
        self._worked[partition.partition] = records[-1].offset + 1

    def _commit(self, *, wait: bool) -> None:
        """Commits the records processed since the last commit."""
        if not self._worked:
            return
        offsets = {
            TopicPartition(self._plan.topic, partition): OffsetAndMetadata(offset)
            for partition, offset in self._worked.items()
        }
        commit = self._log.committing(self._worked)
        self._worked = {}
        if wait:
            try:
                self._consumer.commit(offsets)
            except QuorumlogError as error:
                self._refused(commit, error)
            else:
                self._log.committed(commit)
            return

        def settled(offsets: Mapping[TopicPartition, OffsetAndMetadata], outcome: Exception | None) -> None:
            if outcome is None:
                self._log.committed(commit)
            else:
                self._refused(commit, outcome)

        self._consumer.commit_async(offsets, callback=settled)

    def _refused(self, commit: int, error: Exception) -> None:
        definite = isinstance(error, QuorumlogError) and error.definite
        self._log.refused(commit, definite, f"{type(error).__name__}: {error}")

    # -- rebalance callbacks --------------------------------------------------------------------------------------

    def on_partitions_assigned(self, assigned: set[TopicPartition]) -> None:
        """Logs partitions that it owns from now on."""
        self._log.assigned(Event.ASSIGNED, (one.partition for one in assigned))

    def on_partitions_revoked(self, revoked: set[TopicPartition]) -> None:
        """Commits the processed records, then revokes."""
        self._commit(wait=True)
        self._log.assigned(Event.REVOKED, (one.partition for one in revoked))

    def on_partitions_lost(self, lost: set[TopicPartition]) -> None:
        """Drops partitions that belong to others already: nothing can be committed."""
        for one in lost:
            self._worked.pop(one.partition, None)
        self._log.assigned(Event.LOST, (one.partition for one in lost))


class Member(Protocol):
    """A member with any client."""

    leaving: bool

    def work(self) -> None: ...


def _member_of(plan: MemberPlan, log: MemberLog) -> Member:
    if not plan.kafka_options:
        return WorkingMember(plan, log)
    from quorumlog.chaos.processes.kafka_member import KafkaMember

    return KafkaMember(plan, log)


def _end_with_the_starter() -> None:
    # Not by way of sys.stdin: a terminating interpreter would wait for the blocked reader.
    os.read(0, 1)
    os._exit(1)


def main() -> None:
    """Runs the member whose plan is given as JSON."""
    plan = MemberPlan(**json.loads(sys.argv[1]))
    log = MemberLog(Path(plan.log))
    threading.Thread(target=_end_with_the_starter, daemon=True).start()
    member: Member | None = None
    asked_early = False

    def leave(number: int, frame: object) -> None:
        nonlocal asked_early
        asked_early = True
        if member is not None:
            member.leaving = True

    signal.signal(signal.SIGTERM, leave)
    may_join = threading.Event()
    signal.signal(signal.SIGUSR1, lambda number, frame: may_join.set())
    try:
        member = _member_of(plan, log)
        log.note(Event.STARTED)
        if plan.awaits_signal:
            may_join.wait()
        member.leaving = asked_early
        member.work()
    except Exception as error:  # any failure of a member is a finding
        log.note(Event.FAILED, f"{type(error).__name__}: {error}")
        raise
    log.note(Event.LEFT)


if __name__ == "__main__":
    main()

"""The work of one simulated member on one partition: it reads from the committed offset, processes, and requests
commits.
"""

from __future__ import annotations

from typing import Protocol

from google.protobuf.message import Message as ProtoMessage

from quorumlog.chaos.checkers.group_history import Act, Ending
from quorumlog.sdk.consumer.group_membership import GroupPartition
from quorumlog.simulator.consumer_groups.member_link import MemberLink
from quorumlog.simulator.models.committed_partition import Violation
from quorumlog.simulator.models.records import records_of
from quorumlog.simulator.world.clients import Directory, KnownPartition, PartitionName, Unanswered
from quorumlog.v1 import data_plane_pb2 as pb
from quorumlog.v1.errors_pb2 import ErrorCode

FETCH_WAIT_MS = 200
FETCH_PATIENCE_US = 1_000_000
#: Maximum number of commits without an answer before a revoked partition is released.
MOST_LAST_COMMITS = 3


class Worker(Protocol):
    """The member that does the work."""

    link: MemberLink
    directory: Directory

    def still_owns(self, work: PartitionWork) -> bool:
        """True if the member may continue with it, by its own clock."""

    def wants_commit(self, works: list[PartitionWork]) -> None:
        """Handles uncommitted work."""

    def read_committed(self, work: PartitionWork) -> None:
        """Reads the group's committed offset; answered by ``begin_at``."""

    def note(self, work: PartitionWork, act: Act, since_us: int, offset: int, end: int = -1) -> None:
        """Records work in the history."""

    def work_time_us(self) -> int:
        """Returns the duration of the next work."""

    def work_size(self) -> int:
        """Returns the number of records of the next work."""

    def gave_up(self, work: PartitionWork) -> None:
        """Completes the revocation of a partition."""


class PartitionWork:
    """One partition for as long as one member owns it.

    Attributes:
        name, partition: the partition.
        member_id: the member to which it was assigned.
        since_us: start of the ownership.
        position: the next record to process; -1 while it is unknown.
        committed: the known committed offset.
        revoked: True if it was revoked, and must be released.
    """

    def __init__(self, worker: Worker, partition: GroupPartition, name: PartitionName, member_id: str) -> None:
        self.name = name
        self.partition = partition
        self.member_id = member_id
        self.since_us = worker.link.scheduler.now
        self.position = self.committed = -1
        self.revoked = False
        self.ended: Ending | None = None
        self._worker = worker
        self._link = worker.link
        self._busy = False
        self._last_commits = 0
        self._waiting: list[tuple[int, int]] = []
        self._attempt = 0

    @property
    def dirty(self) -> bool:
        """True if there is work that is not known to be committed."""
        return self.position > max(self.committed, 0)

    # -- its life -------------------------------------------------------------------------------------------------

    def begin_at(self, committed: int, since_us: int) -> None:
        """Starts at the group's committed offset; -1 if none exists."""
        if self.ended is not None or self.position >= 0:
            return
        self._worker.note(self, Act.READ_COMMITTED, since_us, committed)
        self.committed = committed
        self.position = max(committed, 0)
        self._fetch()

    def revoke(self) -> None:
        """Revokes it: no new work is started."""
        if not self.revoked:
            self.revoked = True
            del self._waiting[1 if self._busy else 0 :]
            self.give_up()

    def give_up(self) -> None:
        """Releases it once its work is committed, or the commit has failed."""
        if self.ended is None and not self._busy:
            if self.dirty and self._last_commits < MOST_LAST_COMMITS:
                self._last_commits += 1
                self._worker.wants_commit([self])
            else:
                self._worker.gave_up(self)

    def end(self, ending: Ending) -> None:
        """Ends the ownership."""
        self.ended = ending

    # -- reading ----------------------------------------------------------------------------------------------------

    def _fetch(self) -> None:
        if self.ended is not None or self.revoked:
            return
        known = self._worker.directory.partitions.get(self.name)
        if known is None or known.leader < 0 or known.topic_id != self.partition.topic_id:
            self._worker.directory.refresh()
            self._fetch_later()
            return
        node = known.leader
        request = pb.FetchRequest(
            max_wait_ms=FETCH_WAIT_MS,
            min_bytes=1,
            max_bytes=self._link.rng.choice((300, 1 << 20)),
            takes_kafka_batches=True,
        )
        request.partitions.add(
            topic_id=known.topic_id,
            partition=self.name.number,
            fetch_offset=self.position,
            leader_epoch=-1,
            max_bytes=1 << 20,
        )

        def served(message: ProtoMessage) -> None:
            assert isinstance(message, pb.FetchResponse)
            for result in message.results:
                self._link.port.entries_served(node, self.name, known.group, request, result)

        self._link.ask(node, request, lambda answer: self._fetched(known, answer), FETCH_PATIENCE_US, served)

    def _fetch_later(self) -> None:
        self._link.later(20_000, 120_000, self._fetch)

    def _fetched(self, known: KnownPartition, answer: ProtoMessage | Unanswered) -> None:
        if self.ended is not None or self.revoked:
            return
        if not isinstance(answer, pb.FetchResponse):
            self._worker.directory.refresh()
            self._fetch_later()
            return
        result = answer.results[0]
        if result.error.code == ErrorCode.OFFSET_OUT_OF_RANGE and result.log_start_offset > self.position:
            self._pass_to(result.log_start_offset)
            self._worker.wants_commit([])
        elif result.error.code != ErrorCode.NONE:
            self._worker.directory.learn(self.name, result.error)
            self._fetch_later()
            return
        else:
            self._take(result)
        self._work()

    def _take(self, result: pb.FetchResult) -> None:
        """Divides fetched records into steps of work: (first offset, end)."""
        expected = self.position
        size = 0
        for entry in result.entries:
            for record in records_of(entry):
                if record.offset < expected:
                    continue
                if record.offset > max(expected, result.compacted_offset):
                    raise Violation(f"{self.name} skips from {expected} to {record.offset}")
                if size == 0 or record.offset > expected:
                    self._waiting.append((record.offset, record.offset))
                    size = self._worker.work_size()
                self._waiting[-1] = (self._waiting[-1][0], record.offset + 1)
                expected, size = record.offset + 1, size - 1

    # -- working ----------------------------------------------------------------------------------------------------

    def _work(self) -> None:
        if self.ended is not None or self.revoked:
            return
        if not self._waiting:
            self._link.later(1_000, 30_000, self._fetch)
            return
        self._busy = True
        begun_us = self._link.scheduler.now
        time_us = self._worker.work_time_us()
        self._link.later(time_us, time_us, lambda: self._worked(begun_us))

    def _worked(self, begun_us: int) -> None:
        self._busy = False
        if not self._worker.still_owns(self):
            return
        if self._waiting:
            first, end = self._waiting.pop(0)
            self._pass_to(first)
            self._worker.note(self, Act.PROCESS, begun_us, first, end)
            self.position = end
        if self.revoked:
            self.give_up()
        else:
            self._worker.wants_commit([])
            self._work()

    def _pass_to(self, offset: int) -> None:
        """Skips records that are no longer retained."""
        if offset > self.position:
            self._worker.note(self, Act.PASS, self._link.scheduler.now, self.position, offset)
            self.position = offset

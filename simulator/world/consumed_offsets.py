"""Offsets that transactional clients commit in their transactions, and the outcome of each.

Each client reads one partition of its topic for a consumer group, and commits how far it has come in the transaction
with its results. A client that starts, or starts again, continues at the committed offset. So what committed
transactions have consumed is a chain: each part starts where the one before it ends. In some seeds the clients share
groups and partitions, and commits outside of transactions overtake theirs; then only the outcome of each commit counts.
"""

from __future__ import annotations

from typing import NamedTuple

from quorumlog.simulator.models.committed_partition import Violation
from quorumlog.simulator.models.coordinator_model import OUTSIDER, CommitLabel
from quorumlog.simulator.models.pending_model import TopicIdPartition
from quorumlog.simulator.world.cluster import SimCluster
from quorumlog.simulator.world.transactions import TransactionTopic
from quorumlog.v1 import groups_pb2, transactions_pb2
from quorumlog.v1.groups_pb2 import CommitOffsetsRequest, FetchOffsetsRequest, FetchOffsetsResponse

#: Share of seeds whose clients share groups and partitions.
_SHARED = 0.3
#: Epoch of a client that is not a member.
_NO_MEMBER = -1
_TIMEOUT_MS = 1_000


class Commit(NamedTuple):
    """A part of a partition that a client has consumed.

    Arguments:
        label: identifies the commit.
        sent_us: when it was first sent (µs).
    """

    name: str
    first: int
    end: int
    label: str
    sent_us: int


class Consumption:
    """The consumer groups of the clients of a topic.

    Attributes:
        is_shared: clients commit the same offsets.
    """

    def __init__(self, topic: TransactionTopic, cluster: SimCluster, is_shared: bool) -> None:
        self.is_shared = is_shared
        self._topic = topic
        self._cluster = cluster
        self._commits = 0
        self._committed: list[Commit] = []

    @staticmethod
    def share(drawn: float) -> bool:
        """Returns whether clients share groups, from a number between 0 and 1."""
        return drawn < _SHARED

    def group_of(self, name: str) -> str:
        """Returns the consumer group of a transactional id."""
        return "payees" if self.is_shared else f"payees-of-{name}"

    def partition_of(self, name: str) -> int:
        """Returns the partition that a transactional id consumes."""
        return int(name.rpartition("-")[2]) % self._topic.plan.partitions

    def end_of(self, name: str) -> int:
        """Returns the end of the partition that a transactional id consumes."""
        group = self._topic.group_of(self.partition_of(name))
        return 0 if group is None else self._topic.log_of(group).next_offset

    # -- requests -----------------------------------------------------------------------------------------------------

    def fetch(self, name: str) -> FetchOffsetsRequest:
        """Returns the request for the offset at which a client continues."""
        request = FetchOffsetsRequest(
            group_id=self.group_of(name), member_epoch=_NO_MEMBER, timeout_ms=_TIMEOUT_MS, require_stable=True
        )
        request.topics.add(topic_id=self._topic.topic_id(), partitions=[self.partition_of(name)])
        return request

    @staticmethod
    def position_in(answer: object) -> int | None:
        """Returns the offset at which a client continues; None if it must ask again."""
        if not isinstance(answer, FetchOffsetsResponse) or answer.HasField("error") or answer.unstable:
            return None
        return answer.offsets[0].offset if answer.offsets else 0

    def begin(self, name: str, first: int, end: int, now_us: int) -> Commit:
        """Returns a new commit."""
        self._commits += 1
        commit = Commit(name, first, end, str(CommitLabel(OUTSIDER, _NO_MEMBER, self._commits)), now_us)
        self._committed.append(commit)
        return commit

    def request(self, commit: Commit) -> CommitOffsetsRequest:
        """Returns the request for a commit outside of transactions."""
        request = CommitOffsetsRequest(
            group_id=self.group_of(commit.name), member_epoch=_NO_MEMBER, timeout_ms=_TIMEOUT_MS
        )
        number = self.partition_of(commit.name)
        request.offsets.add(
            topic_id=self._topic.topic_id(),
            partition=number,
            offset=commit.end,
            leader_epoch=-1,
            metadata=commit.label,
        )
        return request

    def request_in(
        self, commit: Commit, identity: transactions_pb2.ProducerIdentity, *, adds_group: bool
    ) -> CommitOffsetsRequest:
        """Returns the request for a commit in a transaction."""
        request = self.request(commit)
        request.transactional_id, request.adds_group = commit.name, adds_group
        request.producer.CopyFrom(identity)
        return request

    @staticmethod
    def is_stored(answer: object) -> bool:
        """True if a commit was accepted."""
        if not isinstance(answer, groups_pb2.CommitOffsetsResponse) or answer.HasField("error"):
            return False
        return not any(each.error.code for each in answer.results)

    # -- judging ------------------------------------------------------------------------------------------------------

    def is_in_effect(self, label: str) -> bool | None:
        """True if a commit is that of a committed transaction; False if it was dropped; None if it is pending, or no
        coordinator has stored it."""
        return self._cluster.invariants.coordinators.outcome_of(label)

    def missing(self) -> str:
        """Returns a group with pending offsets, in words; empty if none has any."""
        pending = self._cluster.invariants.coordinators.with_pending
        return f"groups have pending offsets: {pending}" if pending else ""

    def judge(self) -> None:
        """Judges what each transactional id has consumed.

        Raises:
            Violation: something was consumed twice, or left out.
        """
        if self.is_shared:
            return
        parts: dict[str, list[Commit]] = {}
        for commit in self._committed:
            if self.is_in_effect(commit.label):
                parts.setdefault(commit.name, []).append(commit)
        for name, commits in parts.items():
            partition = TopicIdPartition(self._topic.topic_id(), self.partition_of(name))
            reached = 0
            for commit in sorted(commits):
                if commit.first != reached:
                    raise Violation(f"{name} consumes {commit}, after all up to {reached}: {sorted(commits)}")
                reached = commit.end
            group = self._cluster.invariants.coordinators.group(self.group_of(name))
            stored = group.offsets.get(partition) if group is not None else None
            if stored is None or stored.offset != reached:
                raise Violation(f"{self.group_of(name)} has {stored}, after {sorted(commits)}")

"""Bounds of what a coordinator keeps and takes, and the intervals that it asks for."""

from __future__ import annotations

from dataclasses import dataclass

from quorumlog.server.step.wire_errors import error
from quorumlog.v1 import errors_pb2
from quorumlog.v1.errors_pb2 import ErrorCode


@dataclass(slots=True, frozen=True)
class ConsumerGroupLimits:
    """Bounds of a coordinator. Past each comes an error that names it. Times are in milliseconds.

    Arguments:
        groups: that one coordinator keeps.
        coordinator_bytes: that one coordinator keeps of all its groups: what members say of themselves, assignments,
            committed offsets. They are in memory, and one snapshot has all of them.
        members: of one group.
        offsets: committed ones of one group.
        topics_per_member: that a member names in its subscription.
        pattern_length: characters of a topic pattern.
        metadata_bytes: of the text beside a committed offset.
        min_session_timeout_ms: a member must not be taken for dead while a coordinator is elected.
        classic_member_bytes: of what one member of a classic group says of itself, in all of its protocols.
        classic_group_bytes: of what all its members say; as many again of assignments.
        classic_protocols: that one such member can take part in.
        initial_rebalance_delay_ms: how long the first round of a classic group waits for further members.
        session_timeout_ms: of members that do not choose one; see ``usual_session_ms``.
        heartbeat_interval_ms: after which a member is to be heard again, or a third of its session if that is shorter.
        waiting_interval_ms: the same of a member that waits for partitions, and whose heartbeats do not wait for news.
    """

    groups: int = 10_000
    coordinator_bytes: int = 64 << 20
    members: int = 1_000
    offsets: int = 100_000
    topics_per_member: int = 1_000
    pattern_length: int = 1_000
    metadata_bytes: int = 4_096
    min_session_timeout_ms: int = 1_000
    max_session_timeout_ms: int = 1_800_000
    max_rebalance_timeout_ms: int = 86_400_000
    session_timeout_ms: int = 45_000
    heartbeat_interval_ms: int = 3_000
    waiting_interval_ms: int = 500
    classic_member_bytes: int = 1 << 20
    classic_group_bytes: int = 8 << 20
    classic_protocols: int = 100
    initial_rebalance_delay_ms: int = 500

    @property
    def usual_session_ms(self) -> int:
        """The session of members that do not choose one: within what others may choose."""
        return min(max(self.session_timeout_ms, self.min_session_timeout_ms), self.max_session_timeout_ms)


def refuse_growth(group_id: str, limits: ConsumerGroupLimits) -> errors_pb2.Error:
    """The error of somebody for whom a coordinator would have to keep more than it may."""
    return error(
        ErrorCode.GROUP_MAX_SIZE_REACHED,
        f"the coordinator of group {group_id} keeps {limits.coordinator_bytes >> 20} MiB of its groups and takes no"
        " more: delete groups that nobody needs",
    )

"""Bounds of a group coordinator's state, and the intervals that it asks members to keep."""

from __future__ import annotations

from dataclasses import dataclass

from quorumlog.server.step.wire_errors import error
from quorumlog.v1 import errors_pb2
from quorumlog.v1.errors_pb2 import ErrorCode


@dataclass(slots=True, frozen=True)
class ConsumerGroupLimits:
    """Bounds of a coordinator. A request beyond one gets an error that names it. Times are in milliseconds.

    Arguments:
        groups: maximum per coordinator.
        coordinator_bytes: size of all groups of one coordinator: member data, assignments, committed offsets. All of it
            is in memory and in one snapshot.
        members: maximum per group.
        offsets: maximum number of committed offsets per group.
        topics_per_member: maximum number of topics in a member's subscription.
        pattern_length: maximum length of a topic pattern, in characters.
        metadata_bytes: maximum size of the metadata string of a committed offset.
        min_session_timeout_ms: a member must not expire while a coordinator is elected.
        classic_member_bytes: maximum size of the subscription data of one member of a classic group, over all its
            protocols.
        classic_group_bytes: maximum size of all members' subscription data; the assignments have the same limit.
        classic_protocols: maximum number of protocols of one classic member.
        initial_rebalance_delay_ms: how long the first rebalance of a classic group waits for more members.
        session_timeout_ms: session timeout of members that do not choose one; see ``usual_session_ms``.
        heartbeat_interval_ms: heartbeat interval, or a third of the member's session timeout if that is shorter.
        waiting_interval_ms: heartbeat interval of a member that waits for partitions, whose heartbeats are answered at
            once.
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
        """The session timeout of members that do not choose one, clamped to the range that members may choose from."""
        return min(max(self.session_timeout_ms, self.min_session_timeout_ms), self.max_session_timeout_ms)


def refuse_growth(group_id: str, limits: ConsumerGroupLimits) -> errors_pb2.Error:
    """Returns the error for a request that would make a coordinator exceed its size limit."""
    return error(
        ErrorCode.GROUP_MAX_SIZE_REACHED,
        f"the coordinator of group {group_id} is full ({limits.coordinator_bytes >> 20} MiB): delete unused groups",
    )

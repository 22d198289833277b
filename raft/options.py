"""Limits and times of a Raft group."""

from __future__ import annotations

from dataclasses import dataclass

MIB = 1024 * 1024


@dataclass(slots=True, frozen=True)
class RaftOptions:
    """Limits and times of a Raft group. All its replicas should have the same.

    Arguments:
        election_timeout_us: silence of the leader after which a follower campaigns, drawn from [1x, 2x) for each wait;
            also the leader's lease and the time in which it must hear from a quorum.
        heartbeat_interval_us: interval at which the driver calls ``heartbeat``; the core only validates it.
        witness_silence_us: silence of a data replica after which witnesses are sent entries that it lacks.
        peer_lost_delay_us: (least, most) wait before a pre-vote once the connection to the leader broke.
        max_uncommitted_bytes: a leader refuses proposals while this much of its own is uncommitted.
        max_append_bytes: most bytes of entries in one AppendRequest (a single larger entry is sent alone).
        max_inflight_appends: AppendRequests with entries that one follower has not acknowledged.
        max_inflight_bytes: the same in bytes; the request that crosses the bound is the last.
        max_apply_bytes: most bytes of committed entries in one Ready (a single larger entry is delivered alone).
        cache_bytes: recent durable entries that a leader keeps in memory for its followers.
    """

    election_timeout_us: int = 600_000
    heartbeat_interval_us: int = 100_000
    witness_silence_us: int = 300_000
    peer_lost_delay_us: tuple[int, int] = (20_000, 120_000)
    max_uncommitted_bytes: int = 64 * MIB
    max_append_bytes: int = MIB
    max_inflight_appends: int = 64
    max_inflight_bytes: int = 8 * MIB
    max_apply_bytes: int = 8 * MIB
    cache_bytes: int = MIB

    def __post_init__(self) -> None:
        low, high = self.peer_lost_delay_us
        if not 0 < self.heartbeat_interval_us * 2 <= self.election_timeout_us:
            raise ValueError("the election timeout must be at least two heartbeat intervals")
        if not self.heartbeat_interval_us * 2 < self.witness_silence_us:
            raise ValueError("witness_silence_us must be more than two heartbeat intervals: one answer may be late")
        if not 0 <= low <= high:
            raise ValueError("peer_lost_delay_us is (least, most), in microseconds")
        limits = (
            self.max_uncommitted_bytes,
            self.max_append_bytes,
            self.max_inflight_appends,
            self.max_inflight_bytes,
            self.max_apply_bytes,
        )
        if min(limits) < 1 or self.cache_bytes < 0:
            raise ValueError("limits of a Raft group are positive")

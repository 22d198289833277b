"""A leader's state of one follower, and its flow control (Probe, Replicate, Snapshot, as in etcd)."""

from __future__ import annotations

from enum import Enum


class ProgressState(Enum):
    """Modes of sending entries to a follower.

    PROBE: it is unknown where the logs agree; one AppendRequest at a time, the next after a response to it or to a
    heartbeat.
    REPLICATE: it is known; requests are sent ahead of their responses, within the in-flight window.
    SNAPSHOT: the follower needs entries that were compacted; nothing is sent until the snapshot is settled.
    """

    PROBE = "probe"
    REPLICATE = "replicate"
    SNAPSHOT = "snapshot"


class Inflights:
    """AppendRequests in flight, limited by count and bytes; the one that crosses the byte limit is the last."""

    __slots__ = ("_last_indexes", "_max_bytes", "_max_count", "_sizes", "bytes")

    def __init__(self, max_count: int, max_bytes: int) -> None:
        self._max_count = max_count
        self._max_bytes = max_bytes
        self._last_indexes: list[int] = []
        self._sizes: list[int] = []
        self.bytes = 0

    def __len__(self) -> int:
        return len(self._sizes)

    @property
    def full(self) -> bool:
        """True if nothing more may be sent."""
        return self.bytes >= self._max_bytes or len(self._sizes) >= self._max_count

    def add(self, last_index: int, size_bytes: int) -> None:
        """Records that a request whose last entry is ``last_index`` was sent."""
        self._last_indexes.append(last_index)
        self._sizes.append(size_bytes)
        self.bytes += size_bytes

    def free_to(self, index: int) -> None:
        """Records that everything up to and including ``index`` was acknowledged."""
        count = 0
        for last_index in self._last_indexes:
            if last_index > index:
                break
            count += 1
        if count:
            self.bytes -= sum(self._sizes[:count])
            del self._last_indexes[:count]
            del self._sizes[:count]

    def clear(self) -> None:
        """Empties the window: what was in flight is lost, or no longer relevant."""
        self._last_indexes.clear()
        self._sizes.clear()
        self.bytes = 0


class Progress:
    """A leader's state of one follower.

    Attributes:
        match_index: the follower durably holds the leader's log up to here. Never decreases within a term: an
            acknowledgement is a promise that was counted.
        next_index: the next entry to send; always above ``match_index``.
        state: ProgressState.
        last_contact: microseconds, when the follower's last message arrived.
        recent_active: a message has arrived since its connection last broke.
        lost: its connection broke, and no message has arrived since.
        paused: in PROBE, the probe is out and unanswered.
        pending_snapshot: in SNAPSHOT, the index at which the offered snapshot ends.
        confirmed_round: the newest heartbeat round that it has answered in this term.
        has_readers: clients read from it: a newer commit index alone is sent to it.
        told_commit: the largest commit index sent to it in an AppendRequest.
        known_commit: commit index of a heartbeat that it has answered.
        called_round: the heartbeat round in which it was requested to become quiescent, and which it has not answered;
            0 if none.
        recheck: in REPLICATE, an empty AppendRequest is sent next, to find out if the entries in flight arrived.
    """

    __slots__ = (
        "_acknowledged_since_heartbeat",
        "_heartbeat_commit",
        "_heartbeat_round",
        "called_round",
        "confirmed_round",
        "has_readers",
        "inflights",
        "known_commit",
        "last_contact",
        "lost",
        "match_index",
        "next_index",
        "paused",
        "pending_snapshot",
        "recent_active",
        "recheck",
        "state",
        "told_commit",
    )

    def __init__(self, next_index: int, now: int, inflights: Inflights) -> None:
        self.match_index = 0
        self.next_index = next_index
        self.state = ProgressState.PROBE
        self.last_contact = now
        self.recent_active = False
        self.lost = False
        self.paused = False
        self.pending_snapshot = 0
        self.told_commit = 0
        self.known_commit = 0
        # Of the first heartbeat that it has not answered.
        self._heartbeat_round = self._heartbeat_commit = 0
        self.confirmed_round = 0
        self.called_round = 0
        self.recheck = False
        self.has_readers = False
        self.inflights = inflights
        self._acknowledged_since_heartbeat = True

    def heard(self, now: int) -> None:
        """Records that any message of this term came from the follower."""
        self.last_contact = now
        self.recent_active = True
        self.lost = False

    def acknowledge(self, index: int) -> bool:
        """Records that it durably holds everything up to ``index``. Returns True if that is more than was known."""
        self._acknowledged_since_heartbeat = True
        self.next_index = max(self.next_index, index + 1)
        self.inflights.free_to(index)
        if index <= self.match_index:
            return False
        self.match_index = index
        return True

    def refuse(self, rejected: int, agree_at_most: int) -> bool:
        """Handles its refusal of entries after ``rejected``; the logs agree at ``agree_at_most`` or below.

        Returns False for an outdated refusal: a delayed one must not move ``next_index``, or a follower that has caught
        up would be sent everything again.
        """
        if self.state is ProgressState.REPLICATE:
            if rejected <= self.match_index:
                return False
        elif self.state is ProgressState.SNAPSHOT or self.next_index - 1 != rejected:
            return False
        self._probe_from(max(min(rejected, agree_at_most + 1), self.match_index + 1))
        return True

    def probe(self) -> None:
        """Enters PROBE, since requests in flight may be lost: finds where the logs agree, from what is certain on."""
        self._probe_from(self.match_index + 1)

    def probe_after_snapshot(self, delivered: bool) -> None:
        """Enters PROBE after a snapshot was delivered or failed. Waits for a sign of life before the next step."""
        self._probe_from((max(self.pending_snapshot, self.match_index) if delivered else self.match_index) + 1)
        self.paused = True

    def replicate(self) -> None:
        """Enters REPLICATE: the logs agree up to ``match_index``, so requests are sent ahead."""
        self._enter(ProgressState.REPLICATE, self.match_index + 1)

    def await_snapshot(self, index: int) -> None:
        """Enters SNAPSHOT: a snapshot that ends at ``index`` is being sent."""
        self._enter(ProgressState.SNAPSHOT, index + 1)
        self.pending_snapshot = index

    def sent_heartbeat(self, number: int, commit: int) -> None:
        """Records that a heartbeat of that round was sent, with that commit index."""
        if self.confirmed_round >= self._heartbeat_round:
            self._heartbeat_round, self._heartbeat_commit = number, commit

    def answered_heartbeat(self, number: int) -> None:
        """Handles a response to a heartbeat, which shows that the follower is alive.

        A lost probe is sent again. If entries were sent ahead but nothing was acknowledged between two responses, an
        empty
        AppendRequest finds out if they arrived: a slow disk acknowledges it later, a gap refuses it.

        Arguments:
            number: of the heartbeat's round. It includes everything that an earlier round reported.
        """
        self.confirmed_round = max(self.confirmed_round, number)
        if number >= self._heartbeat_round:
            self.known_commit = self._heartbeat_commit
        self.paused = False
        if self.state is ProgressState.REPLICATE:
            silent = not self._acknowledged_since_heartbeat
            self.recheck = silent and self.match_index < self.next_index - 1
        self._acknowledged_since_heartbeat = False

    def _probe_from(self, next_index: int) -> None:
        self._enter(ProgressState.PROBE, next_index)
        self.told_commit = 0

    def _enter(self, state: ProgressState, next_index: int) -> None:
        # Every change of state starts with an empty window. Otherwise bytes in flight before a probe are never freed,
        # and the follower is throttled forever (docs/internals/raft.md, scenario 18).
        self.state = state
        self.next_index = next_index
        self.inflights.clear()
        self.paused = False
        self.recheck = False
        self.pending_snapshot = 0

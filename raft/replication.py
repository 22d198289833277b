"""The leader's side of replication, for one term: the state of each follower, what to send next, and what is committed.

It exists only while its replica leads; stepping down drops it with all its state.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping
from collections.abc import Set as AbstractSet

from quorumlog.raft.engagement import Engagement
from quorumlog.raft.errors import InvariantViolationError
from quorumlog.raft.log import RaftLog, size_of
from quorumlog.raft.options import RaftOptions
from quorumlog.raft.progress import Inflights, Progress, ProgressState
from quorumlog.raft.quorum import Halves, reached_by_quorum
from quorumlog.raft.types import (
    NO_DATA,
    AppendRequest,
    AppendResponse,
    Configuration,
    Entry,
    EntryKind,
    InstallSnapshot,
    Snapshot,
    SnapshotSource,
)

#: Later than every time: a deadline that never comes, a contact that never ends.
NEVER = (1 << 63) - 1


class Replication:
    """A leader's replication to its followers in one term.

    Attributes:
        term: the leader's.
        term_start: index of the entry that opened the term.
        progress: one Progress per member, the leader included.
        engagement: decides if witnesses are sent everything.
        uncommitted_bytes: exact size of the entries proposed in this term that are not committed.
    """

    __slots__ = (
        "_configuration",
        "_data_electors",
        "_halves",
        "_log",
        "_node_id",
        "_options",
        "_trace",
        "_uncommitted",
        "engagement",
        "progress",
        "term",
        "term_start",
        "uncommitted_bytes",
    )

    def __init__(
        self,
        *,
        node_id: int,
        term: int,
        log: RaftLog,
        options: RaftOptions,
        configuration: Configuration,
        now: int,
        lost_peers: AbstractSet[int],
        trace: Callable[[Entry, int], Entry],
    ) -> None:
        self._node_id = node_id
        self._log = log
        self._options = options
        # Sizes of the log's last entries. A list, although it is consumed from the front: an empty deque takes 700 B.
        self._uncommitted: list[int] = []
        self.term = term
        self.term_start = log.last.index + 1
        self.uncommitted_bytes = 0
        self._trace = trace
        self.engagement = Engagement(options.witness_silence_us, log.commit_index)
        self.progress = {member: self._fresh(now) for member in configuration.members}
        for member in lost_peers & self.progress.keys():
            self.progress[member].lost = True
        self._take(configuration)
        self.note_own_durability()
        # A leader is mostly elected because the previous one is gone: its witness need not wait for its silence.
        self.review_engagement(now)

    def _take(self, configuration: Configuration) -> None:
        self._configuration = configuration
        self._halves: Halves = configuration.halves
        self._data_electors = configuration.candidates

    def configure(self, configuration: Configuration) -> int:
        """Applies a change of members.

        A member that stays keeps its progress. A new one is probed, and counts as if it had just sent a message.

        Returns:
            The time that counts as now: when the last message of a member arrived.
        """
        known = self.progress
        newest_contact = max(progress.last_contact for progress in known.values())
        self.progress = {member: known.get(member) or self._fresh(newest_contact) for member in configuration.members}
        self._take(configuration)
        return newest_contact

    def _fresh(self, now: int) -> Progress:
        inflights = Inflights(self._options.max_inflight_appends, self._options.max_inflight_bytes)
        return Progress(self._log.last.index + 1, now, inflights)

    # -- the leader's own log ---------------------------------------------------------------------------------

    def appended(self, entry: Entry) -> None:
        """Accounts for an entry that the leader appended in its term."""
        size = len(entry.data)
        self._uncommitted.append(size)
        self.uncommitted_bytes += size

    def note_own_durability(self) -> None:
        """Counts the leader's own log, as for any other replica, only as far as it is durable.

        Otherwise the group would commit on disks of which one has nothing (scenario 3).
        """
        own = self.progress.get(self._node_id)
        if own is not None:
            own.acknowledge(self._log.durable_index)
            own.recent_active = True

    def advance_commit(self) -> bool:
        """Commits what a quorum holds durably. Returns True if the commit index advanced.

        Only an entry of this term is committed by counting; older ones follow with it (Raft §5.4.2, figure 8).
        Otherwise a later leader that never saw the old entry could still replace it (scenario 1).
        """
        progress = self.progress
        reached = reached_by_quorum(self._halves, lambda voter: progress[voter].match_index)
        if reached < self.term_start or not self._log.commit_to(reached):
            return False
        committed = reached - (self._log.last.index - len(self._uncommitted))
        self.uncommitted_bytes -= sum(self._uncommitted[:committed])
        del self._uncommitted[:committed]
        return True

    def quorum_contact(self) -> int:
        """Returns the latest time at which a quorum had sent messages, in microseconds; NEVER for a single voter."""
        progress = self.progress
        own = self._node_id
        return reached_by_quorum(self._halves, lambda voter: NEVER if voter == own else progress[voter].last_contact)

    def match_of(self, copies: int, voters: tuple[int, ...]) -> int:
        """Returns the highest index that is durable on at least ``copies`` of the voters; 0 if there are fewer."""
        own = self._node_id
        if copies <= 0:
            raise InvariantViolationError("an acknowledgement needs at least one copy")
        matches = [self._log.durable_index if node == own else self.progress[node].match_index for node in voters]
        return sorted(matches, reverse=True)[copies - 1] if copies <= len(matches) else 0

    # -- sending to followers ----------------------------------------------------------------------------------

    def wants_append(self, to: int, *, commit_only: bool) -> bool:
        """True if ``to`` should get entries, a probe, or a newer commit index, and its window has space.

        With ``commit_only``, or for a follower that clients read from, a newer commit index alone suffices.
        """
        progress = self.progress.get(to)
        if progress is None or to == self._node_id:
            return False
        if progress.state is ProgressState.PROBE:
            return not progress.paused
        if progress.state is ProgressState.SNAPSHOT:
            return False
        following = progress.next_index
        if following <= self._end_for(to) and not progress.inflights.full:
            return True
        commit_only = commit_only or progress.has_readers
        return progress.recheck or (commit_only and min(self._log.commit_index, following - 1) > progress.told_commit)

    def next_append(
        self, to: int, max_bytes: int, snapshot_source: SnapshotSource | None
    ) -> AppendRequest | InstallSnapshot | None:
        """Returns the next message for ``to``; None if there is nothing to send. Counted as sent."""
        if not self.wants_append(to, commit_only=True):
            return None
        progress = self.progress[to]
        previous = progress.next_index - 1
        if previous < self._log.anchor.index:
            return self._offer_snapshot(to, progress, snapshot_source)
        # Before anything counts as sent: the entry that has to be read may be damaged.
        previous_term = self._log.term_at(previous)
        entries: list[Entry] = []
        probing = progress.state is ProgressState.PROBE
        end = self._end_for(to)
        if previous < end and (probing or not progress.inflights.full):
            limit = min(max_bytes, self._options.max_append_bytes)
            entries = self._log.slice(previous + 1, end, limit)
            if to in self._configuration.witnesses:
                entries = self._traces_of(entries)
        sent_to = previous + len(entries)
        if probing:
            progress.paused = True
        elif entries:
            progress.next_index = sent_to + 1
            progress.inflights.add(sent_to, size_of(entries))
        progress.recheck = False
        commit = min(self._log.commit_index, sent_to)
        progress.told_commit = max(progress.told_commit, commit)
        return AppendRequest(self._node_id, to, self.term, previous, previous_term, commit, entries)

    def _offer_snapshot(
        self, to: int, progress: Progress, snapshot_source: SnapshotSource | None
    ) -> InstallSnapshot | None:
        if to in self._configuration.witnesses:
            # A witness needs only the position, and all members may learn what is committed.
            snapshot: Snapshot | None = Snapshot(self._log.id_at(self._log.applied_index), self._configuration, NO_DATA)
        else:
            snapshot = snapshot_source() if snapshot_source is not None else None
        if snapshot is None:
            # Nothing to offer yet: the next sign of life triggers another attempt.
            progress.probe()
            progress.paused = True
            return None
        if snapshot.last.index < self._log.anchor.index:
            raise InvariantViolationError(
                f"the snapshot ends at {snapshot.last.index}, the log starts after {self._log.anchor.index}: "
                "what is between them is lost"
            )
        progress.await_snapshot(snapshot.last.index)
        return InstallSnapshot(self._node_id, to, self.term, snapshot)

    # -- witnesses --------------------------------------------------------------------------------------------

    def review_engagement(self, now: int) -> None:
        """Decides if the witnesses are sent everything from now on (engagement.py)."""
        if self._configuration.witnesses:
            progress, own = self.progress, self._node_id
            others = [progress[node] for node in self._data_electors if node != own]
            self.engagement.review(now, self._log.last.index, others)

    def _end_for(self, to: int) -> int:
        """Returns the index of the last entry that a member may be sent now."""
        if to not in self._configuration.witnesses:
            return self._log.last.index
        if self.engagement.engaged:
            # The witness must not store what no disk has: if the leader failed before it is synced, the witness would
            # refuse the only candidate that is left, the leader itself (scenario 23).
            return self._log.durable_index
        # The witness must not store what only the leader has: if the leader failed, no node could be elected (scenario
        # 23).
        progress = self.progress
        return min(progress[node].match_index for node in self._data_electors)

    def _traces_of(self, entries: list[Entry]) -> list[Entry]:
        """Returns entries as a witness gets them: changes of members whole, all others without payload."""
        previous_hash = self._log.id_at(entries[0].index - 1).hash
        traces: list[Entry] = []
        for entry in entries:
            traces.append(entry if entry.kind is EntryKind.CONFIG else self._trace(entry, previous_hash))
            previous_hash = entry.hash
        return traces

    # -- responses of followers --------------------------------------------------------------------------------

    def append_response(self, now: int, message: AppendResponse) -> bool:
        """Processes a response to an AppendRequest. Returns True if more is known to be durable than before."""
        progress = self.progress.get(message.sender)
        if progress is None:
            return False
        progress.heard(now)
        if message.rejected:
            progress.refuse(message.index, self._agreement(message))
            return False
        progress.has_readers = message.has_readers
        news = self._acknowledged(progress, message.sender, message.index)
        if self.engagement.engaged:
            self.review_engagement(now)
        return news

    def snapshot_response(self, now: int, sender: int, index: int, rejected: bool) -> bool:
        """Processes a follower's response to a snapshot, after it was synced or refused.

        Returns True if more is known to be durable than before.
        """
        progress = self.progress.get(sender)
        if progress is None:
            return False
        progress.heard(now)
        if not rejected:
            return self._acknowledged(progress, sender, index)
        if progress.state is ProgressState.SNAPSHOT and progress.pending_snapshot == index:
            progress.probe_after_snapshot(delivered=False)
        return False

    def heartbeat_response(self, now: int, sender: int, heartbeat_round: int, quiescent: bool) -> None:
        """Processes a follower's response to a heartbeat, on which it may have become quiescent."""
        progress = self.progress.get(sender)
        if progress is not None:
            if quiescent and heartbeat_round >= progress.called_round:
                progress.called_round = 0
            progress.heard(now)
            progress.answered_heartbeat(heartbeat_round)

    def confirmed_round(self, newest: int) -> int:
        """Returns the newest heartbeat round that a quorum has answered; ``newest`` is the leader's own."""
        progress, own = self.progress, self._node_id
        return reached_by_quorum(
            self._halves, lambda voter: newest if voter == own else progress[voter].confirmed_round
        )

    def _acknowledged(self, progress: Progress, sender: int, index: int) -> bool:
        if index > self._log.last.index:
            raise InvariantViolationError(
                f"node {sender} acknowledges entry {index}, but its leader's log ends at {self._log.last.index}"
            )
        news = progress.acknowledge(index)
        if progress.state is ProgressState.PROBE and (news or index == progress.match_index):
            # A follower that already has everything must leave PROBE, too (scenario 18).
            progress.replicate()
        elif progress.state is ProgressState.SNAPSHOT and progress.match_index >= self._log.anchor.index:
            progress.replicate()
        return news

    def _agreement(self, refusal: AppendResponse) -> int:
        """Returns the largest index at which the follower's log may agree with this one, given its hint."""
        hint = min(refusal.hint_index, self._log.last.index)
        if hint <= self._log.anchor.index:
            return hint
        return self._log.last_at_most(hint, refusal.hint_term, self._log.anchor.index)

    # -- quiescence -------------------------------------------------------------------------------------------

    def is_settled(self, reachable: Container[int]) -> bool:
        """True if every reachable member durably holds the whole log and has learned that, and these are a quorum."""
        own, last_index = self._node_id, self._log.last.index
        for member, progress in self.progress.items():
            behind = progress.state is not ProgressState.REPLICATE or progress.match_index != last_index
            if member != own and member in reachable and behind:
                return False
        return bool(reached_by_quorum(self._halves, lambda voter: int(voter == own or voter in reachable)))

    def awake_members(self, reachable: Container[int]) -> list[int]:
        """Returns the reachable members that were requested to become quiescent and have not confirmed it."""
        for member, progress in self.progress.items():
            if member not in reachable:
                progress.called_round = 0
        return [member for member, progress in self.progress.items() if progress.called_round]

    def call_to_sleep(self, members: Iterable[int], heartbeat_round: int) -> None:
        """Records that these members are requested to become quiescent in that round."""
        for member in members:
            self.progress[member].called_round = heartbeat_round

    def resume(self, now: int, contacts: Mapping[int, int]) -> None:
        """Ends a quiescence, in which leases replaced heartbeats: the last messages of followers arrived at
        ``contacts``, or just now."""
        for member, progress in self.progress.items():
            progress.called_round = 0
            if progress.state is ProgressState.REPLICATE:
                progress.last_contact = max(progress.last_contact, contacts.get(member, now))

    # -- connections ------------------------------------------------------------------------------------------

    def peer_lost(self, now: int, peer: int) -> None:
        """Handles a broken connection: what is in flight is lost. The peer counts as unheard, with a short grace."""
        progress = self.progress.get(peer)
        if progress is None or peer == self._node_id:
            return
        grace = self._options.peer_lost_delay_us[1]
        progress.recent_active = False
        progress.lost = True
        progress.last_contact = min(progress.last_contact, now - self._options.election_timeout_us + grace)
        progress.probe()
        self.review_engagement(now)

    def peer_unreachable(self, peer: int) -> None:
        """Handles the possible loss of frames in flight to the peer."""
        progress = self.progress.get(peer)
        if progress is not None and peer != self._node_id and progress.state is not ProgressState.SNAPSHOT:
            progress.probe()

    def snapshot_status(self, peer: int, delivered: bool) -> None:
        """Records the end of the snapshot stream to the peer."""
        progress = self.progress.get(peer)
        if progress is not None and progress.state is ProgressState.SNAPSHOT:
            progress.probe_after_snapshot(delivered)

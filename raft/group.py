"""One replica of one Raft group, without I/O: messages, deadlines and completions in, Ready out.

The driver's contract is in docs/raft.md. Times are integer microseconds on the driver's monotonic clock.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Container, Mapping
from types import MappingProxyType

from quorumlog.raft import membership
from quorumlog.raft.errors import (
    InvariantViolationError,
    NotLeaderError,
    ProposalRefusedError,
    Refusal,
    UnsupportedChangeError,
)
from quorumlog.raft.log import ChainCheck
from quorumlog.raft.options import RaftOptions
from quorumlog.raft.progress import Progress
from quorumlog.raft.replica import Replica
from quorumlog.raft.replication import Replication, SnapshotSource
from quorumlog.raft.types import (
    NO_NODE,
    AppendRequest,
    Configuration,
    DurableToken,
    Entry,
    EntryId,
    EntryKind,
    EntrySealer,
    HardState,
    Heartbeat,
    InstallSnapshot,
    LogStore,
    Ready,
    Role,
)

#: Builds an entry from its index, its term and the hash of the entry before it.
Seal = Callable[[int, int, int], Entry]

_NO_PROGRESS: Mapping[int, Progress] = MappingProxyType({})


class RaftGroup(Replica):
    """One replica of one group.

    Arguments:
        node_id: this replica's node.
        group: the group's id; errors name it.
        configuration: members as of ``applied``.
        hard_state: as last made durable.
        last: identity of the last durable entry, the anchor's if there is none.
        first_index: of the first durable entry; ``anchor.index + 1``.
        anchor: identity of the entry before ``first_index`` (ORIGIN, or the end of a snapshot or compaction).
        applied: entries up to here are not delivered again.
        store: the durable log.
        sealer: builds the core's own entries.
        rng: for the jitter of timeouts.
        now: the time, in microseconds.
        options: limits and times.
        snapshot_source: gives the newest snapshot, or None, for followers that need entries that are gone.
        check_chain: called with (identity of the predecessor, entry) for every entry that is appended; raises if the
            entry does not name that predecessor.
        votes_from: of a replica that was removed from the group and has come back: an index that its former life cannot
            have gone beyond as a voter. It votes for nobody before it knows that to be committed.

    Raises:
        InvariantViolationError: what was found on disk cannot be what was written.
    """

    __slots__ = ("_handed_hard_state", "_heartbeat_memory_index", "_heartbeat_round", "_snapshot_source")

    def __init__(
        self,
        *,
        node_id: int,
        group: int,
        configuration: Configuration,
        hard_state: HardState,
        last: EntryId,
        first_index: int,
        anchor: EntryId,
        applied: int,
        store: LogStore,
        sealer: EntrySealer,
        rng: random.Random,
        now: int,
        options: RaftOptions,
        snapshot_source: SnapshotSource | None = None,
        check_chain: ChainCheck | None = None,
        votes_from: int = 0,
    ) -> None:
        if first_index != anchor.index + 1:
            raise InvariantViolationError(
                f"group {group}: the log begins at {first_index}, its anchor is {anchor.index}"
            )
        super().__init__(
            node_id=node_id,
            group=group,
            configuration=configuration,
            hard_state=hard_state,
            last=last,
            anchor=anchor,
            applied=applied,
            store=store,
            sealer=sealer,
            rng=rng,
            now=now,
            options=options,
            check_chain=check_chain,
            votes_from=votes_from,
        )
        self._snapshot_source = snapshot_source
        self._handed_hard_state = (hard_state.term, hard_state.vote)
        self._heartbeat_round = 0
        self._heartbeat_memory_index = 0

    # -- state ------------------------------------------------------------------------------------------------

    @property
    def commit_index(self) -> int:
        """Entries up to here are committed."""
        return self._log.commit_index

    @property
    def last_id(self) -> EntryId:
        """Identity of the log's last entry, durable or not."""
        return self._log.last

    @property
    def durable_index(self) -> int:
        """Entries up to here are synced on this replica."""
        return self._log.durable_index

    @property
    def applied_index(self) -> int:
        """Entries up to here were delivered in Ready.committed."""
        return self._log.applied_index

    @property
    def first_index(self) -> int:
        """Index of the first entry kept."""
        return self._log.first_index

    @property
    def anchor(self) -> EntryId:
        """Identity of the entry before the first one kept."""
        return self._log.anchor

    @property
    def is_leader(self) -> bool:
        """True when this replica leads its term, as far as it knows."""
        return self.role is Role.LEADER

    @property
    def leads_committed(self) -> bool:
        """True for a leader of whose term an entry is committed: only then does it know what is committed."""
        replication = self._replication
        return replication is not None and self._log.commit_index >= replication.term_start

    @property
    def is_transferring(self) -> bool:
        """True while leadership is being handed over and proposals are refused."""
        return self._transferee != NO_NODE

    @property
    def is_calling(self) -> bool:
        """True for a quiescent leader some of whose followers have not said that they sleep."""
        progress = self.progress.values() if self.quiescent else ()
        return any(each.called_round for each in progress)

    @property
    def uncommitted_bytes(self) -> int:
        """Exact size of this leader's entries that are not committed; 0 for others."""
        return self._replication.uncommitted_bytes if self._replication is not None else 0

    @property
    def memory_bytes(self) -> int:
        """Bytes of the entries kept in memory."""
        return self._log.memory_bytes

    @property
    def progress(self) -> Mapping[int, Progress]:
        """What a leader knows of each member, itself included; empty for others."""
        return self._replication.progress if self._replication is not None else _NO_PROGRESS

    @property
    def confirmed_round(self) -> int:
        """The newest heartbeat round that a quorum has answered; 0 without leadership. Once it reaches the round of a
        heartbeat, this replica was the leader when that was sent: what was committed then may be read (§6.4)."""
        return self._replication.confirmed_round(self._heartbeat_round) if self._replication is not None else 0

    def lacks(self, last: EntryId) -> bool:
        """True where a snapshot that ends at ``last`` brings what is neither committed here nor in the log."""
        return last.index > self._log.commit_index and not self._log.holds(last.index, last.term)

    def entry_id(self, index: int) -> EntryId:
        """Identity of an entry, or of the anchor.

        Raises:
            CompactedError: it is gone.
        """
        return self._log.id_at(index)

    def entries_between(self, first: int, last: int, max_bytes: int) -> list[Entry]:
        """Entries ``first..last`` inclusive, durable or not, cut once ``max_bytes`` is reached; at least one.

        Raises:
            CompactedError: ``first`` is gone.
        """
        return self._log.slice(first, last, max_bytes)

    # -- inputs -----------------------------------------------------------------------------------------------

    def on_time(self, now: int) -> None:
        """Acts on deadlines that have come: campaign, check-quorum, end of a transfer. Early calls do nothing."""
        replication = self._replication
        if self.quiescent:
            return
        if replication is None:
            if self.is_voter and now >= self._timer.deadline:
                self._campaign(now)
        else:
            if now >= self._transfer_deadline:
                self._end_transfer()
            if now >= replication.quorum_contact() + self._options.election_timeout_us:
                # Check-quorum: it may long have been deposed without hearing of it, and clients wait (thesis §6.2).
                self._become_follower(now, self.term, NO_NODE)
        self._schedule(now)

    def propose(self, now: int, seal: Seal) -> Entry:
        """Appends an entry, if this replica leads.

        Arguments:
            now: the time.
            seal: builds the entry from (index, term, previous hash). Not called when the proposal is refused.

        Raises:
            NotLeaderError: it does not lead.
            ProposalRefusedError: not now; nothing was appended.
        """
        replication = self._leading()
        if replication.uncommitted_bytes >= self._options.max_uncommitted_bytes:
            raise ProposalRefusedError(Refusal.TOO_MANY_UNCOMMITTED)
        self._stir(now)
        return self._append_own(seal)

    def propose_configuration(self, now: int, configuration: Configuration) -> Entry:
        """Appends a change of members; it applies once committed, one at a time.

        New voters are learners first, and it is for the caller to wait until they have caught up. Where the voters
        change, the group passes through the joint configuration (thesis §4.3), which its leader leaves by itself.

        Arguments:
            now: the time.
            configuration: the members wanted in the end; not joint.

        Raises:
            NotLeaderError: it does not lead.
            ProposalRefusedError: not now; nothing was appended.
            UnsupportedChangeError: no such change can be made.
        """
        self._leading()
        if self._pending_configuration_index > self._log.applied_index or self.configuration.is_joint:
            raise ProposalRefusedError(Refusal.CONFIGURATION_PENDING)
        change = membership.next_step(self.configuration, configuration)
        self._stir(now)
        return self._append_configuration(change)

    def _leading(self) -> Replication:
        replication = self._replication
        if replication is None:
            raise NotLeaderError(self.leader_id)
        if self._transferee != NO_NODE:
            # An entry taken now could be one that the next leader does not have (scenario 14).
            raise ProposalRefusedError(Refusal.TRANSFERRING)
        return replication

    def _stir(self, now: int) -> None:
        """Something is to be done here: a quiescent leader takes up its duties."""
        if self.quiescent:
            self._rouse(now, {})

    def campaign(self, now: int) -> None:
        """Starts an election at once, with a pre-vote. Nothing happens on a leader, or where it may not campaign."""
        self._stir(now)
        self._campaign(now)
        self._schedule(now)

    def transfer_leadership(self, now: int, to: int) -> None:
        """Hands leadership to a voter as soon as it has everything; given up after an election timeout.

        While the voters are being replaced only one of the new ones will do.

        Raises:
            NotLeaderError: this replica does not lead.
            UnsupportedChangeError: ``to`` is not another voter.
        """
        if self._replication is None:
            raise NotLeaderError(self.leader_id)
        if to == self.node_id or to not in self.configuration.voters:
            raise UnsupportedChangeError(f"leadership can only go to another voter, node {to} is none")
        if to == self._transferee:
            return
        self._stir(now)
        self._transferee = to
        self._transfer_deadline = now + self._options.election_timeout_us
        self._hand_over_when_caught_up()
        self._schedule(now)

    def peer_lost(self, now: int, peer: int) -> None:
        """The connection to a peer broke. A follower of it looks for a new leader soon, a leader probes it again."""
        self._lost_peers.add(peer)
        if self._replication is not None:
            self._stir(now)
            self._replication.peer_lost(now, peer)
            if peer == self._transferee:
                self._end_transfer()
        elif peer == self.leader_id:
            self._stir(now)
            self.leader_id = NO_NODE
            self._timer.leader_lost(now, self._turn())
        self._schedule(now)

    def peer_unreachable(self, now: int, peer: int) -> None:
        """Frames in flight to a peer may be lost: its leader probes it again."""
        if self._replication is not None:
            self._stir(now)
            self._replication.peer_unreachable(peer)

    def snapshot_status(self, now: int, peer: int, ok: bool) -> None:
        """The snapshot for a peer was delivered whole, or not. Must follow every InstallSnapshot that was sent."""
        if self._replication is not None:
            self._replication.snapshot_status(peer, ok)

    def heartbeat(self, now: int) -> int:
        """Puts a heartbeat for every member into the outbox and returns its round; the driver calls it every heartbeat
        interval, and more often to have its leadership confirmed."""
        replication = self._replication
        if replication is None:
            return self._heartbeat_round
        self._stir(now)
        # Where a transfer of leadership held it up.
        self._leave_joint()
        self._heartbeat_round += 1
        commit_index = self._log.commit_index
        for member, progress in replication.progress.items():
            if member != self.node_id:
                # Never beyond what it is known to hold: its log may still end in another leader's entries.
                commit = min(progress.match_index, commit_index)
                self._send(Heartbeat(self.node_id, member, self.term, commit, self._heartbeat_round))
        if self._heartbeat_memory_index == self._log.last.index:
            # Nothing came in for a whole interval: an idle group keeps nothing in memory.
            self._log.trim(0)
        self._heartbeat_memory_index = self._log.last.index
        return self._heartbeat_round

    def quiesce(self, now: int, reachable: Container[int]) -> bool:
        """Puts an idle group to sleep, in place of a heartbeat: its followers are called to sleep too, again each time
        until they answer (``is_calling``), and nothing more is sent until somebody stirs. The driver sees to the leases
        that stand for the heartbeats (docs/raft.md).

        Arguments:
            reachable: the nodes whose lease stands. Whoever is not among them is left out.

        Returns:
            False, with nothing done, unless this replica leads, everything is committed, applied and held by all
            reachable members, these are a quorum, nothing was appended since the last heartbeat, and the voters are not
            being replaced.
        """
        replication, log = self._replication, self._log
        if replication is None or self._transferee != NO_NODE or self._heartbeat_memory_index != log.last.index:
            return False
        if self.configuration.is_joint:
            return False
        at_rest = log.applied_index == log.commit_index == log.durable_index == log.last.index
        if not at_rest or not self.leads_committed or not replication.is_settled(reachable):
            return False
        if self.quiescent:
            called = replication.awake_members(reachable)
        else:
            called = [member for member in replication.progress if member != self.node_id and member in reachable]
            log.trim(0)
            self.quiescent = True
            self._schedule(now)
        if called:
            self._heartbeat_round += 1
            replication.call_to_sleep(called, self._heartbeat_round)
        for member in called:
            # A follower that missed the call would wait for a heartbeat that never comes, and campaign.
            self._send(Heartbeat(self.node_id, member, self.term, log.last.index, self._heartbeat_round, True))
        return True

    def on_durable(self, now: int, token: DurableToken) -> None:
        """The write of the Ready that carried ``token`` is synced, and all writes before it."""
        self._outbox.durable(token.number)
        self._durable_term = max(self._durable_term, token.term)
        advanced = self._log.mark_durable(token)
        replication = self._replication
        if replication is not None:
            if advanced:
                replication.note_own_durability()
                replication.advance_commit()
        elif self.role is Role.CANDIDATE and token.term == self.term and token.vote == self.node_id:
            self._ballot.record(self.node_id, True)
            self._count_votes(now)
            self._schedule(now)

    def compact(self, up_to: EntryId) -> None:
        """The log up to and including ``up_to`` leaves the store: readers and followers find it no more.

        Arguments:
            up_to: identity of an applied and durable entry, the new anchor.
        """
        self._log.compact(up_to)

    # -- outputs ----------------------------------------------------------------------------------------------

    def has_ready(self) -> bool:
        """True when ``take_ready`` has something to do."""
        return (
            self._outbox.has_messages
            or self._log.has_unhanded
            or (self.term, self.vote) != self._handed_hard_state
            or self._log.applied_index < self._log.commit_index
        )

    def take_ready(self) -> Ready:
        """What is to be done now. It counts as handed out: the driver must do all of it, or stop the node."""
        log = self._log
        snapshot, truncate_from, entries = log.take_unhanded()
        voted = (self.term, self.vote)
        hard_state = None
        if voted != self._handed_hard_state or snapshot is not None or membership.is_changed_by(entries):
            # Term and vote go in one write, with the entries (scenario 2); a snapshot with its commit (scenario 6).
            # A change of members too: whoever has a change on disk knows from that moment on that the one before it is
            # committed. Else a replica that restarts with both could campaign among voters who are two changes old,
            # and a quorum of them need not have met one of today's (scenario 9).
            hard_state = HardState(self.term, self.vote, log.commit_index)
            self._handed_hard_state = voted
        committed = self._deliver()
        writes = hard_state is not None or bool(entries) or truncate_from is not None
        now, after, number = self._outbox.take(writes=writes)
        token = DurableToken(log.last, log.generation, self.term, self.vote, number) if writes else None
        log.trim(self._options.cache_bytes if self._replication is not None else 0)
        return Ready(now, hard_state, truncate_from, entries, snapshot, after, token, committed)

    def _deliver(self) -> list[Entry]:
        committed = self._log.deliver(self._options.max_apply_bytes)
        for entry in committed:
            if entry.kind is EntryKind.CONFIG:
                self._configure(entry.index, self._sealer.configuration_of(entry))
        if committed:
            self._leave_joint()
        return committed

    @property
    def is_configuration_everywhere(self) -> bool:
        """True for a leader all of whose voters durably hold the change that made them voters, and all before it, with
        no other change under way.

        Only then may a replica that was removed be destroyed: one of these that knew less could still be elected with
        its vote, and a replica that is made anew there would have forgotten what it must refuse.
        """
        replication = self._replication
        if replication is None or self.configuration.is_joint or not self.leads_committed:
            return False
        if self._pending_configuration_index > self._log.applied_index:
            return False
        wanted = max(replication.term_start, self.configuration_index)
        return all(self.progress[voter].match_index >= wanted for voter in self.configuration.voters)

    def wants_append(self, to: int, *, commit_only: bool = True) -> bool:
        """True when ``to`` should get entries, a probe, or a newer commit index, and its window has room.

        Without ``commit_only`` a newer commit index alone is no reason: it rides on the next append or heartbeat.
        """
        return self._replication is not None and self._replication.wants_append(to, commit_only=commit_only)

    def match_of(self, copies: int) -> int:
        """The highest index that is durable on at least ``copies`` voters, of those that will remain if they are being
        replaced; leaders only."""
        assert self._replication is not None
        matches = [
            self.durable_index if node == self.node_id else self.progress[node].match_index
            for node in self.configuration.voters
        ]
        return sorted(matches, reverse=True)[copies - 1] if copies <= len(matches) else 0

    def next_append(self, now: int, to: int, max_bytes: int) -> AppendRequest | InstallSnapshot | None:
        """What ``to`` gets next, or None. It counts as sent, so it must be sent, before or after any fsync.

        Arguments:
            now: the time.
            to: a member.
            max_bytes: of entries; one larger entry comes alone.
        """
        if self._replication is None:
            return None
        return self._replication.next_append(to, max_bytes, self._snapshot_source)

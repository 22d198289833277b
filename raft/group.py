"""One replica of one Raft group, without I/O: messages, deadlines and completions in, Ready out.

The driver's contract is in docs/raft.md. Times are integer microseconds on the driver's monotonic clock.
"""

from __future__ import annotations

import random
from collections.abc import Container, Mapping
from types import MappingProxyType

from quorumlog.raft import membership
from quorumlog.raft.candidacy import Candidacy
from quorumlog.raft.configuration_changes import ConfigurationChanges
from quorumlog.raft.errors import (
    MalformedMessageError,
    NotLeaderError,
    ProposalRefusedError,
    Refusal,
)
from quorumlog.raft.following import Following, check_sequence
from quorumlog.raft.leading import Leading
from quorumlog.raft.options import RaftOptions
from quorumlog.raft.progress import Progress
from quorumlog.raft.quiescence import Quiescence
from quorumlog.raft.replication import NEVER
from quorumlog.raft.state import ReplicaState
from quorumlog.raft.types import (
    MESSAGE_KINDS,
    NO_NODE,
    AppendRequest,
    AppendResponse,
    Configuration,
    DurableToken,
    Entry,
    EntryId,
    HardState,
    Heartbeat,
    HeartbeatResponse,
    InstallSnapshot,
    Message,
    RaftLogServices,
    Ready,
    RestoredReplica,
    Role,
    Seal,
    SnapshotResponse,
    TimeoutNow,
    VoteRequest,
    VoteResponse,
)

_NO_PROGRESS: Mapping[int, Progress] = MappingProxyType({})


class RaftGroup(ReplicaState):
    """One replica of one Raft group, as its driver sees it. Each rule stands in the part that it hands the input to.

    It is itself the state that its parts share: the driver reads term, role and members on every step, and they are
    plain attributes. The driver changes none of them.

    Arguments:
        restored: who the replica is, and what was found of it on disk.
        services: what the driver knows of the log: its store, its seals, its snapshots.
        options: limits and times.
        rng: for the jitter of timeouts.
        now: the time, in microseconds.

    Attributes:
        next_deadline: microseconds; the driver calls ``on_time`` then or soon after.

    Raises:
        InvariantViolationError: what was found on disk cannot be what was written.
    """

    __slots__ = (
        "_candidacy",
        "_changes",
        "_following",
        "_handed_commit",
        "_handed_hard_state",
        "_leading",
        "_quiescence",
        "_snapshot_source",
        "next_deadline",
    )

    def __init__(
        self, restored: RestoredReplica, services: RaftLogServices, options: RaftOptions, rng: random.Random, now: int
    ) -> None:
        super().__init__(restored, services, options)
        self._leading = Leading(self, services.sealer)
        self._candidacy = Candidacy(self, self._leading, restored.votes_from, rng, now)
        self._following = Following(self, self._candidacy)
        self._changes = ConfigurationChanges(self, self._leading, self._candidacy, services.sealer)
        self._quiescence = Quiescence(self, self._leading, self._candidacy)
        self._snapshot_source = services.snapshot_source
        self._handed_hard_state = (self.term, self.vote)
        self._handed_commit = self.durable_commit
        self._set_deadline()

    # -- state ------------------------------------------------------------------------------------------------

    @property
    def commit_index(self) -> int:
        """Entries up to here are committed."""
        return self.log.commit_index

    @property
    def last_id(self) -> EntryId:
        """Identity of the log's last entry, durable or not."""
        return self.log.last

    @property
    def durable_index(self) -> int:
        """Entries up to here are synced on this replica."""
        return self.log.durable_index

    @property
    def applied_index(self) -> int:
        """Entries up to here were delivered in Ready.committed."""
        return self.log.applied_index

    @property
    def first_index(self) -> int:
        """Index of the first entry kept."""
        return self.log.first_index

    @property
    def anchor(self) -> EntryId:
        """Identity of the entry before the first one kept."""
        return self.log.anchor

    @property
    def is_leader(self) -> bool:
        """True when this replica leads its term, as far as it knows."""
        return self.role is Role.LEADER

    @property
    def leads_committed(self) -> bool:
        """True for a leader of whose term an entry is committed: only then does it know what is committed."""
        return self._leading.leads_committed

    @property
    def is_configuration_pending(self) -> bool:
        """True for a leader whose log may hold a change of members that is not applied yet."""
        return self._changes.is_pending

    @property
    def is_transferring(self) -> bool:
        """True while leadership is being handed over and proposals are refused."""
        return self._leading.transfer.to != NO_NODE

    @property
    def witnesses_engaged(self) -> bool:
        """True for a leader whose witnesses are sent what not all data replicas have."""
        replication = self._leading.replication
        return replication is not None and replication.engagement.engaged

    @property
    def is_calling(self) -> bool:
        """True for a quiescent leader some of whose followers have not said that they sleep."""
        return self.quiescent and any(each.called_round for each in self.progress.values())

    @property
    def uncommitted_bytes(self) -> int:
        """Exact size of this leader's entries that are not committed; 0 for others."""
        replication = self._leading.replication
        return replication.uncommitted_bytes if replication is not None else 0

    @property
    def memory_bytes(self) -> int:
        """Bytes of the entries kept in memory."""
        return self.log.memory_bytes

    @property
    def progress(self) -> Mapping[int, Progress]:
        """What a leader knows of each member, itself included; empty for others."""
        replication = self._leading.replication
        return replication.progress if replication is not None else _NO_PROGRESS

    @property
    def confirmed_round(self) -> int:
        """The newest heartbeat round that a quorum has answered; 0 without leadership. Once it reaches the round of a
        heartbeat, this replica was the leader when that was sent: what was committed then may be read (§6.4)."""
        leading = self._leading
        return leading.replication.confirmed_round(leading.heartbeat_round) if leading.replication is not None else 0

    @property
    def newest_round(self) -> int:
        """Number of the newest round of heartbeats that this replica has sent; the next one has a higher number."""
        return self._leading.heartbeat_round

    @property
    def is_configuration_everywhere(self) -> bool:
        """True for a leader all of whose voters durably hold the change that made them voters, and all before it, and
        have said that they know it to be committed and will know it after a restart, with no other change under way.

        Only then may a replica that was removed be destroyed: one of these that knew less could still be elected with
        its vote, and a replica that is made anew there would have forgotten what it must refuse. And one that knew less
        could only be elected with its vote: without this leader nobody would ever be.
        """
        return self._changes.is_everywhere

    def lacks(self, last: EntryId) -> bool:
        """True where a snapshot that ends at ``last`` brings what is neither committed here nor in the log."""
        return last.index > self.log.commit_index and not self.log.holds(last.index, last.term)

    def entry_id(self, index: int) -> EntryId:
        """Identity of an entry, or of the anchor.

        Raises:
            CompactedError: it is gone.
        """
        return self.log.id_at(index)

    def entries_between(self, first: int, last: int, max_bytes: int) -> list[Entry]:
        """Entries ``first..last`` inclusive, durable or not, cut once ``max_bytes`` is reached; at least one.

        Raises:
            CompactedError: ``first`` is gone.
        """
        return self.log.slice(first, last, max_bytes)

    def last_up_to_term(self, term: int, high: int) -> tuple[int, int] | None:
        """Index and term of the last entry up to index ``high`` whose term is at most ``term``, the anchor included;
        None if there is none."""
        index = self.log.last_at_most(high, term, self.log.anchor.index)
        return None if index < self.log.anchor.index else (index, self.log.term_at(index))

    # -- messages ---------------------------------------------------------------------------------------------

    def step(self, now: int, message: Message) -> None:
        """Takes a message from a peer.

        Raises:
            MalformedMessageError: no correct peer sends this; nothing was changed.
            InvariantViolationError: the group is broken; stop the node.
        """
        if type(message) not in MESSAGE_KINDS:
            raise MalformedMessageError(f"no Raft message: {type(message).__name__}")
        if type(message) is AppendRequest:
            check_sequence(message)
        candidacy = self._candidacy
        if candidacy.lost_peers:
            candidacy.lost_peers.discard(message.sender)
        if self.quiescent and not self._quiescence.sleeps_through(message):
            self._wake_up(now, {})
            if message.sender != self.leader_id:
                self._quiescence.say_awake()
        if message.term > self.term:
            if not candidacy.meet_higher_term(now, message):
                return
        elif message.term < self.term:
            candidacy.answer_stale(message)
            return
        self._hand_to_part(now, message)
        if self._leading.replication is None:
            self._set_deadline()

    def _hand_to_part(self, now: int, message: Message) -> None:
        """Gives a message to the part that it concerns. The most frequent kinds come first."""
        if isinstance(message, AppendRequest):
            self._following.take_append_request(now, message)
        elif isinstance(message, AppendResponse):
            self._leading.take_append_response(now, message)
        elif isinstance(message, Heartbeat):
            self._following.take_heartbeat(now, message)
        elif isinstance(message, HeartbeatResponse):
            self._leading.take_heartbeat_response(now, message)
        elif isinstance(message, VoteRequest):
            self._candidacy.take_vote_request(now, message)
        elif isinstance(message, VoteResponse):
            if self._candidacy.take_vote_response(now, message):
                self._set_deadline()
        elif isinstance(message, InstallSnapshot):
            self._following.take_install_snapshot(now, message)
        elif isinstance(message, SnapshotResponse):
            self._leading.take_snapshot_response(now, message)
        elif isinstance(message, TimeoutNow):
            self._candidacy.take_timeout_now(now, message)

    # -- time and connections ---------------------------------------------------------------------------------

    def on_time(self, now: int) -> None:
        """Acts on deadlines that have come: campaign, check-quorum, end of a transfer. Early calls do nothing."""
        candidacy, leading = self._candidacy, self._leading
        if self.quiescent:
            return
        if leading.replication is None:
            if self.may_lead and now >= candidacy.timer.deadline:
                candidacy.campaign(now)
        else:
            if now >= leading.transfer.deadline:
                leading.transfer.end()
            if now >= leading.replication.quorum_contact() + self.options.election_timeout_us:
                # Check-quorum: another one may have deposed it long ago unheard, and clients wait (thesis §6.2).
                candidacy.become_follower(now, self.term, NO_NODE)
        self._set_deadline()

    def _set_deadline(self) -> None:
        """Sets ``next_deadline`` after anything that can move it."""
        replication = self._leading.replication
        if self.quiescent:
            self.next_deadline = NEVER
        elif replication is not None:
            self.next_deadline = self._leading.next_deadline(replication)
        elif self.may_lead:
            self.next_deadline = self._candidacy.timer.deadline
        else:
            self.next_deadline = NEVER

    def campaign(self, now: int) -> None:
        """Starts an election at once, with a pre-vote. Nothing happens on a leader, or where it may not campaign."""
        self._take_up_duties(now)
        self._candidacy.campaign(now)
        self._set_deadline()

    def peer_lost(self, now: int, peer: int) -> None:
        """The connection to a peer broke. A follower of it looks for a new leader soon, a leader probes it again."""
        leading, candidacy = self._leading, self._candidacy
        candidacy.lost_peers.add(peer)
        if leading.replication is not None:
            self._take_up_duties(now)
            leading.replication.peer_lost(now, peer)
            if peer == leading.transfer.to:
                leading.transfer.end()
        elif peer == self.leader_id:
            self._take_up_duties(now)
            candidacy.lose_leader(now)
        self._set_deadline()

    def has_just_lost_leader(self, now: int) -> bool:
        """Whether the connection to the leader broke a moment ago, and nothing was heard of a leader since."""
        return self.leader_id == NO_NODE and self._candidacy.timer.hurries(now)

    def peer_unreachable(self, now: int, peer: int) -> None:
        """Frames in flight to a peer may be lost: its leader probes it again."""
        replication = self._leading.replication
        if replication is not None:
            self._take_up_duties(now)
            replication.peer_unreachable(peer)

    def snapshot_status(self, now: int, peer: int, ok: bool) -> None:
        """The snapshot for a peer was delivered whole, or not. Must follow every InstallSnapshot that was sent."""
        replication = self._leading.replication
        if replication is not None:
            replication.snapshot_status(peer, ok)

    # -- sleep ------------------------------------------------------------------------------------------------

    def quiesce(self, now: int, reachable: Container[int]) -> bool:
        """Puts an idle group to sleep, in place of a heartbeat: its followers are called to sleep too, again each time
        until they answer (``is_calling``), and nothing more is sent until something happens here. The driver sees to
        the leases that stand for the heartbeats (docs/raft.md).

        Arguments:
            reachable: the nodes whose lease stands. The others are left out.

        Returns:
            False, with nothing done, unless this replica leads, everything is committed, applied and held by all
            reachable members, these are a quorum, nothing was appended since the last heartbeat, and the voters are not
            being replaced.
        """
        asleep = self._quiescence.call_to_sleep(reachable)
        if asleep:
            self._set_deadline()
        return asleep

    def sleeps_through(self, message: Message) -> bool:
        """True for what a quiescent replica takes without waking: the leader's call to sleep, and its answer."""
        return self._quiescence.sleeps_through(message)

    def wake(self, now: int, contacts: Mapping[int, int]) -> None:
        """Ends the sleep of a quiescent replica: the lease of a node no longer stands, or there is something to do.

        Arguments:
            contacts: node -> when it was last heard (µs), of a leader's followers when they last answered. A node that
                is not named counts as heard just now.
        """
        if self.quiescent:
            self._wake_up(now, contacts)
            self._quiescence.say_awake()

    def _wake_up(self, now: int, contacts: Mapping[int, int]) -> None:
        self._quiescence.end(now, contacts)
        self._set_deadline()

    def _take_up_duties(self, now: int) -> None:
        """Something is to be done here: a quiescent replica wakes."""
        if self.quiescent:
            self._wake_up(now, {})

    # -- what a leader does -----------------------------------------------------------------------------------

    def propose(self, now: int, seal: Seal) -> Entry:
        """Appends an entry, if this replica leads.

        Arguments:
            now: the time.
            seal: builds the entry from (index, term, previous hash). Not called when the proposal is refused.

        Raises:
            NotLeaderError: it does not lead.
            ProposalRefusedError: not now; nothing was appended.
        """
        replication = self._leading.open_for_proposals()
        if replication.uncommitted_bytes >= self.options.max_uncommitted_bytes:
            raise ProposalRefusedError(Refusal.TOO_MANY_UNCOMMITTED)
        self._take_up_duties(now)
        return self._leading.append_own(seal)

    def propose_configuration(self, now: int, configuration: Configuration) -> Entry:
        """Appends a change of members; it applies once committed, one at a time.

        New voters are learners first, and the caller waits until they have caught up. Where the voters change, the
        group passes through the joint configuration (thesis §4.3), which its leader leaves by itself.

        Arguments:
            now: the time.
            configuration: the members wanted in the end; not joint.

        Raises:
            NotLeaderError: it does not lead.
            ProposalRefusedError: not now; nothing was appended.
            UnsupportedChangeError: no such change can be made.
        """
        self._leading.open_for_proposals()
        change = self._changes.next_step_to(configuration)
        self._take_up_duties(now)
        return self._changes.append(change)

    def transfer_leadership(self, now: int, to: int) -> None:
        """Hands leadership to a voter as soon as it has everything; given up after an election timeout.

        While the voters are being replaced only one of the new ones will do.

        Raises:
            NotLeaderError: this replica does not lead.
            UnsupportedChangeError: ``to`` is not another voter.
        """
        leading = self._leading
        if leading.replication is None:
            raise NotLeaderError(self.leader_id)
        leading.transfer.check_receiver(to)
        if to != leading.transfer.to:
            self._take_up_duties(now)
            leading.transfer.begin(now, to, leading.replication)
            self._set_deadline()

    def heartbeat(self, now: int) -> int:
        """Puts a heartbeat for every member into the outbox and returns its round; the driver calls it every heartbeat
        interval, and more often to have its leadership confirmed."""
        leading = self._leading
        replication = leading.replication
        if replication is not None:
            self._take_up_duties(now)
            # Where a transfer of leadership held it up.
            self._changes.leave_joint()
            leading.send_heartbeats(now, replication)
        return leading.heartbeat_round

    def wants_append(self, to: int, *, commit_only: bool = True) -> bool:
        """True when ``to`` should get entries, a probe, or a newer commit index, and its window has room.

        Without ``commit_only`` a newer commit index alone is no reason: it rides on the next append or heartbeat.
        """
        replication = self._leading.replication
        return replication is not None and replication.wants_append(to, commit_only=commit_only)

    def match_of(self, copies: int) -> int:
        """The highest index that is durable on at least ``copies`` voters, of those that will remain if they are being
        replaced; leaders only. What a witness has is no copy."""
        assert self._leading.replication is not None
        return self._leading.replication.match_of(copies, self.configuration.data_voters)

    def next_append(self, now: int, to: int, max_bytes: int) -> AppendRequest | InstallSnapshot | None:
        """What ``to`` gets next, or None. It counts as sent, so it must be sent, before or after any fsync.

        Arguments:
            now: the time.
            to: a member.
            max_bytes: of entries; one larger entry comes alone.
        """
        replication = self._leading.replication
        if replication is None:
            return None
        return replication.next_append(to, max_bytes, self._snapshot_source)

    # -- Ready ------------------------------------------------------------------------------------------------

    def has_ready(self) -> bool:
        """True when ``take_ready`` has something to do."""
        log = self.log
        return (
            self.outbox.has_messages
            or log.has_unhanded
            or (self.term, self.vote) != self._handed_hard_state
            or log.has_deliverable
        )

    def take_ready(self) -> Ready:
        """What is to be done now. It counts as handed out: the driver must do all of it, or stop the node."""
        log = self.log
        snapshot, truncate_from, entries = log.take_unhanded()
        # What is applied below may append: a joint configuration is left at once. That is of the next write.
        written, generation = log.last, log.generation
        voted = (self.term, self.vote)
        committed = log.deliver(self.options.max_apply_bytes)
        if committed and self._changes.apply_those_in(committed):
            self._set_deadline()
        hard_state = None
        changed = membership.is_changed_by(entries) or self.would_forget_change(self._handed_commit)
        if voted != self._handed_hard_state or snapshot is not None or changed:
            # Term and vote go in one write, with the entries (scenario 2); a snapshot with its commit (scenario 6).
            # A change of members too: a replica that has a change on disk knows from that moment on that the one before
            # it is committed. Otherwise a replica that restarts with both could campaign among voters who are two
            # changes old, and a quorum of them need not have met one of today's (scenario 9). And that a change is
            # committed is written as soon as it is known: then those that it removed are destroyed (scenario 12i).
            hard_state = HardState(self.term, self.vote, log.commit_index)
            self._handed_hard_state = voted
            self._handed_commit = log.commit_index
        writes = hard_state is not None or bool(entries) or truncate_from is not None
        now, after, number = self.outbox.take(writes=writes)
        token = DurableToken(written, generation, self.term, self.vote, number, self._handed_commit) if writes else None
        log.trim(self.options.cache_bytes if self._leading.replication is not None else 0)
        return Ready(now, hard_state, truncate_from, entries, snapshot, after, token, committed)

    def on_durable(self, now: int, token: DurableToken) -> None:
        """The write of the Ready that carried ``token`` is synced, and all writes before it."""
        self.outbox.durable(token.number)
        self.durable_term = max(self.durable_term, token.term)
        self.durable_commit = max(self.durable_commit, token.commit)
        advanced = self.log.mark_durable(token)
        replication = self._leading.replication
        if replication is not None:
            if advanced:
                replication.note_own_durability()
                replication.advance_commit()
        elif self.role is Role.CANDIDATE:
            self._candidacy.own_vote_is_durable(now, token)
            self._set_deadline()

    def mended(self) -> None:
        """A damaged entry was mended in the store: what waited for it goes on."""
        self.log.mended()

    def compact(self, up_to: EntryId) -> None:
        """The log up to and including ``up_to`` leaves the store: readers and followers find it no more.

        Arguments:
            up_to: identity of an applied and durable entry, the new anchor.
        """
        self.log.compact(up_to)

"""One replica of one Raft group, without I/O: messages, deadlines and completions in, Ready out.

The driver's contract is in docs/internals/raft.md. Times are integer microseconds on the driver's monotonic clock.
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
    """One replica of one Raft group, as its driver sees it. Each rule is in the part that gets the input.

    It is itself the state that its parts share: the driver reads term, role and members on every step, and they are
    plain attributes. The driver changes none of them.

    Arguments:
        restored: the replica's identity, and its state found on disk.
        services: the driver's side of the log: its store, its seals, its snapshots.
        options: limits and times.
        rng: for the jitter of timeouts.
        now: the time, in microseconds.

    Attributes:
        next_deadline: microseconds; the driver calls ``on_time`` then or soon after.

    Raises:
        InvariantViolationError: the state on disk cannot be what was written.
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
    def leads_committed(self) -> bool:
        """True for a leader that has committed an entry of its term: only then can it tell what is committed."""
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
        """True for a leader whose witnesses are sent entries that not all data replicas have."""
        replication = self._leading.replication
        return replication is not None and replication.engagement.engaged

    @property
    def is_calling(self) -> bool:
        """True for a quiescent leader some of whose followers have not confirmed that they are quiescent, too."""
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
        """A leader's state of each member, including itself; empty for others."""
        replication = self._leading.replication
        return replication.progress if replication is not None else _NO_PROGRESS

    @property
    def confirmed_round(self) -> int:
        """The newest heartbeat round that a quorum has answered; 0 if this replica does not lead.

        Once it reaches the round of a heartbeat, this replica was the leader when that was sent: what was committed
        then may be
        read (§6.4).
        """
        leading = self._leading
        return leading.replication.confirmed_round(leading.heartbeat_round) if leading.replication is not None else 0

    @property
    def newest_round(self) -> int:
        """Number of the newest round of heartbeats that this replica has sent; the next one has a higher number."""
        return self._leading.heartbeat_round

    @property
    def is_configuration_everywhere(self) -> bool:
        """True for a leader whose voters have all confirmed its configuration, with no other change in progress.

        Each voter durably holds the change that made it a voter, and all before it, and has confirmed that it has
        learned the change to be committed and will still have that after a restart.

        Only then may a replica that was removed be destroyed. A voter that had learned less could still be elected with
        its vote, and a replica that was recreated there would have forgotten what it must refuse. Also, a voter that
        had learned less could only be elected with its vote: without this leader none ever would be.
        """
        return self._changes.is_everywhere

    def set_readers(self, has_readers: bool) -> None:
        """Records whether clients read from this replica although it does not lead. Its responses report that to the
        leader, which otherwise notifies it of a commit with the next entries or heartbeat."""
        self.has_readers = has_readers

    def lacks(self, last: EntryId) -> bool:
        """True if a snapshot that ends at ``last`` has what is neither committed here nor in the log."""
        return last.index > self.log.commit_index and not self.log.holds(last.index, last.term)

    def entry_id(self, index: int) -> EntryId:
        """Returns the identity of an entry, or of the anchor.

        Raises:
            CompactedError: it was compacted.
        """
        return self.log.id_at(index)

    def entries_between(self, first: int, last: int, max_bytes: int) -> list[Entry]:
        """Returns entries ``first..last`` inclusive, durable or not, cut once ``max_bytes`` is reached; at least one.

        Raises:
            CompactedError: ``first`` was compacted.
        """
        return self.log.slice(first, last, max_bytes)

    def last_up_to_term(self, term: int, high: int) -> tuple[int, int] | None:
        """Returns index and term of the last entry up to index ``high`` whose term is at most ``term``, or None.

        The anchor is included.
        """
        index = self.log.last_at_most(high, term, self.log.anchor.index)
        return None if index < self.log.anchor.index else (index, self.log.term_at(index))

    # -- messages ---------------------------------------------------------------------------------------------

    def step(self, now: int, message: Message) -> None:
        """Processes a message from a peer.

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
        """Passes a message to the part that it concerns. The most frequent kinds come first."""
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
        """Acts on deadlines that have passed: campaign, check-quorum, end of a transfer. Early calls do nothing."""
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
                # Check-quorum: another leader may have deposed it long ago without its knowledge, and clients wait
                # (thesis §6.2).
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
        """Starts an election immediately, with a pre-vote. Does nothing on a leader, or where it may not campaign."""
        self._take_up_duties(now)
        self._candidacy.campaign(now)
        self._set_deadline()

    def peer_lost(self, now: int, peer: int) -> None:
        """Handles a broken connection: a follower of the peer looks for a new leader soon, a leader probes it."""
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
        """True if the connection to the leader broke recently, and no message of a leader has arrived since."""
        return self.leader_id == NO_NODE and self._candidacy.timer.hurries(now)

    def peer_unreachable(self, now: int, peer: int) -> None:
        """Handles the possible loss of frames to a peer: its leader probes it again."""
        replication = self._leading.replication
        if replication is not None:
            self._take_up_duties(now)
            replication.peer_unreachable(peer)

    def snapshot_status(self, now: int, peer: int, ok: bool) -> None:
        """Records if the snapshot for a peer was delivered completely. Must follow every sent InstallSnapshot."""
        replication = self._leading.replication
        if replication is not None:
            replication.snapshot_status(peer, ok)

    # -- quiescence --------------------------------------------------------------------------------------------

    def quiesce(self, now: int, reachable: Container[int]) -> bool:
        """Makes an idle group quiescent, in place of a heartbeat.

        Its followers are requested to become quiescent, too, again each time until they respond (``is_calling``), and
        nothing more is sent until something happens here. The driver maintains the leases that replace the heartbeats
        (docs/internals/raft.md).

        Arguments:
            reachable: the nodes whose lease is valid. The others are left out.

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
        """True for messages that do not wake a quiescent replica: the leader's call to quiescence, and its response."""
        return self._quiescence.sleeps_through(message)

    def wake(self, now: int, contacts: Mapping[int, int]) -> None:
        """Ends the quiescence of a replica: the lease of a node is no longer valid, or there is something to do.

        Arguments:
            contacts: node -> when its last message arrived (µs), of a leader's followers when they last responded. A
                node that is not named counts as if its message had just arrived.
        """
        if self.quiescent:
            self._wake_up(now, contacts)
            self._quiescence.say_awake()

    def _wake_up(self, now: int, contacts: Mapping[int, int]) -> None:
        self._quiescence.end(now, contacts)
        self._set_deadline()

    def _take_up_duties(self, now: int) -> None:
        """Wakes a quiescent replica, because there is something to do."""
        if self.quiescent:
            self._wake_up(now, {})

    # -- duties of a leader ------------------------------------------------------------------------------------

    def propose(self, now: int, seal: Seal) -> Entry:
        """Appends an entry, if this replica leads.

        Arguments:
            now: the time.
            seal: builds the entry from (index, term, previous hash). Not called if the proposal is refused.

        Raises:
            NotLeaderError: it does not lead.
            ProposalRefusedError: not possible now; nothing was appended.
        """
        replication = self._leading.open_for_proposals()
        if replication.uncommitted_bytes >= self.options.max_uncommitted_bytes:
            raise ProposalRefusedError(Refusal.TOO_MANY_UNCOMMITTED)
        self._take_up_duties(now)
        return self._leading.append_own(seal)

    def propose_configuration(self, now: int, configuration: Configuration) -> Entry:
        """Appends a change of members; it applies once committed, one at a time.

        New voters are learners first, and the caller waits until they have caught up. If the voters change, the group
        passes through the joint configuration (thesis §4.3), which its leader leaves automatically.

        Arguments:
            now: the time.
            configuration: the desired final members; not joint.

        Raises:
            NotLeaderError: it does not lead.
            ProposalRefusedError: not possible now; nothing was appended.
            UnsupportedChangeError: the change is not supported.
        """
        self._leading.open_for_proposals()
        change = self._changes.next_step_to(configuration)
        self._take_up_duties(now)
        return self._changes.append(change)

    def transfer_leadership(self, now: int, to: int) -> None:
        """Hands leadership to a voter as soon as it has everything; abandoned after an election timeout.

        While the voters are being replaced, it must be one of the new ones.

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
        """Puts a heartbeat for every member into the outbox and returns its round.

        The driver calls it every heartbeat interval, and more often to have its leadership confirmed.
        """
        leading = self._leading
        replication = leading.replication
        if replication is not None:
            self._take_up_duties(now)
            # If a transfer of leadership delayed it.
            self._changes.leave_joint()
            leading.send_heartbeats(now, replication)
        return leading.heartbeat_round

    def wants_append(self, to: int, *, commit_only: bool = True) -> bool:
        """True when ``to`` should get entries, a probe, or a newer commit index, and its window has room.

        Without ``commit_only`` a newer commit index alone does not count: it rides on the next append or heartbeat.
        """
        replication = self._leading.replication
        return replication is not None and replication.wants_append(to, commit_only=commit_only)

    def match_of(self, copies: int) -> int:
        """Returns the highest index that is durable on at least ``copies`` voters; leaders only.

        While voters are being replaced, only those that will remain count. A witness has no copy.
        """
        assert self._leading.replication is not None
        return self._leading.replication.match_of(copies, self.configuration.data_voters)

    def next_append(self, now: int, to: int, max_bytes: int) -> AppendRequest | InstallSnapshot | None:
        """Returns the next message for ``to``, or None. It counts as sent, so it must be sent, at any time.

        Arguments:
            now: the time.
            to: a member.
            max_bytes: of entries; a single larger entry is sent alone.
        """
        replication = self._leading.replication
        if replication is None:
            return None
        return replication.next_append(to, max_bytes, self._snapshot_source)

    # -- Ready ------------------------------------------------------------------------------------------------

    def has_ready(self) -> bool:
        """True when ``take_ready`` has something to do."""
        outbox = self.outbox
        return (
            bool(outbox.now or outbox.after_durable)
            or self.log.has_work
            or (self.term, self.vote) != self._handed_hard_state
        )

    def take_ready(self) -> Ready:
        """Returns the work to do now. It counts as handed out: the driver must do all of it, or stop the node."""
        log = self.log
        snapshot, truncate_from, entries = log.take_unhanded()
        # Applying entries below may append: a joint configuration is left immediately. That entry belongs to the next
        # write.
        written, generation = log.last, log.generation
        voted = (self.term, self.vote)
        committed = log.deliver(self.options.max_apply_bytes)
        if committed and self._changes.apply_those_in(committed):
            self._set_deadline()
        hard_state = None
        changed = membership.is_changed_by(entries) or self.would_forget_change(self._handed_commit)
        if voted != self._handed_hard_state or snapshot is not None or changed:
            # Term and vote are written together, with the entries (scenario 2); a snapshot with its commit (scenario
            # 6). So is a change of members: a replica that has a change on disk has learned by then that the
            # previous one is committed. Otherwise a replica that restarts with both could campaign among voters who are
            # two changes old, and a quorum of them need not have met one of today's (scenario 9). And that a change is
            # committed is written as soon as it is known: then the replicas that it removed are destroyed (scenario
            # 12i).
            hard_state = HardState(self.term, self.vote, log.commit_index)
            self._handed_hard_state = voted
            self._handed_commit = log.commit_index
        writes = hard_state is not None or bool(entries) or truncate_from is not None
        now, after, number = self.outbox.take(writes=writes)
        token = DurableToken(written, generation, self.term, self.vote, number, self._handed_commit) if writes else None
        log.trim(self.options.cache_bytes if self._leading.replication is not None else 0)
        return Ready(now, hard_state, truncate_from, entries, snapshot, after, token, committed)

    def on_durable(self, now: int, token: DurableToken) -> None:
        """Records that the write of the Ready with ``token`` is synced, and all writes before it."""
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
        """Resumes what waited for a damaged entry, which was repaired in the store."""
        self.log.mended()

    def compact(self, up_to: EntryId) -> None:
        """Drops the log up to and including ``up_to``: readers and followers can no longer read it.

        Arguments:
            up_to: identity of an applied and durable entry, the new anchor.
        """
        self.log.compact(up_to)

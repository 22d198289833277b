"""A cluster of cores that checks, as it goes, everything that Raft promises (paper, figure 3) and the driver relies on.

Checked after every step: one leader per term; a leader has every entry that is committed; logs match, on disk and in
memory; state machines agree and apply in order; what is committed is synced on a quorum; terms, votes and commit
indexes are never taken back; no message promises what a crash could undo; what a leader believes of its followers is
true; uncommitted and in-flight bytes are exact; deadlines can be waited for.
"""

from __future__ import annotations

import itertools

from raft_cluster import Cluster

from quorumlog.raft.group import RaftGroup
from quorumlog.raft.membership import after_joint
from quorumlog.raft.options import RaftOptions
from quorumlog.raft.progress import Progress, ProgressState
from quorumlog.raft.quorum import Halves
from quorumlog.raft.replication import NEVER
from quorumlog.raft.types import (
    NO_NODE,
    Configuration,
    Entry,
    EntryKind,
    HardState,
    Role,
)

#: Small limits, so that a run meets them.
SMALL = RaftOptions(
    max_uncommitted_bytes=40,
    max_append_bytes=8,
    max_inflight_appends=3,
    max_inflight_bytes=16,
    max_apply_bytes=12,
    cache_bytes=10,
)

#: Rounds of heartbeats in which a healed cluster must have come together.
HEALING_ROUNDS = 100


class CheckedCluster(Cluster):
    """A cluster that fails as soon as a promise is broken."""

    def __init__(
        self,
        voters: tuple[int, ...],
        learners: tuple[int, ...],
        seed: int,
        lazy_commit: bool,
        spare: tuple[int, ...] = (),
        witnesses: tuple[int, ...] = (),
    ) -> None:
        self.leaders: dict[int, int] = {}
        self.committed: dict[int, tuple[int, int]] = {}
        self.committed_in: dict[int, int] = {}
        self.seen: dict[int, tuple[int, int, Role]] = {}
        self.promised: dict[int, HardState] = {}
        self.identities: dict[tuple[int, int], int] = {}
        #: Members as of each change that is known to be committed, by its index.
        self.configurations = {0: Configuration(voters, learners, witnesses=witnesses)}
        super().__init__(voters, learners, seed=seed, options=SMALL, spare=spare, witnesses=witnesses)
        self.lazy_commit = lazy_commit

    # -- what the driver does -------------------------------------------------------------------------------------

    def destroy_removed(self, node_id: int) -> None:
        """Destroys a replica that is no longer a member, as soon as a leader may have that done."""
        for leader in self.leading():
            core = self.core(leader)
            if core.is_configuration_everywhere and node_id not in core.configuration.members:
                configuration = Configuration(core.configuration.voters, (node_id,))
                self.destroy(node_id, configuration, votes_from=core.applied_index)
                self.seen.pop(node_id, None)
                return

    def crash(self, node_id: int, synced: int = 0) -> None:
        super().crash(node_id, synced)
        self.seen.pop(node_id, None)

    def on_time(self, node_id: int) -> None:
        """Wakes a replica if its deadline has come."""
        core = self.core(node_id)
        if core.next_deadline <= self.now:
            core.on_time(self.now)
            assert core.next_deadline > self.now or core.has_ready(), f"{node_id} would be woken again and again"

    def applying(self, node_id: int, entry: Entry) -> None:
        agreed = self.committed.setdefault(entry.index, (entry.term, entry.hash))
        # The term in which it was seen to be committed: leaders of earlier terms may not have learned of it.
        self.committed_in.setdefault(entry.index, self.core(node_id).term)
        assert agreed == (entry.term, entry.hash), f"state machines disagree at {entry.index}"
        expected = self.replicas[node_id].applied_from + len(self.replicas[node_id].applied) + 1
        assert entry.index == expected, "applied out of order"
        self.check_quorum_holds(entry.index, entry.hash)

        if entry.kind is EntryKind.CONFIG:
            self.changed_members(entry)

    def changed_members(self, entry: Entry) -> None:
        """A joint configuration is left exactly once, for its own new voters; and entered from the one before it."""
        if entry.index in self.configurations:
            return
        before = self.configurations[max(index for index in self.configurations if index < entry.index)]
        after = self.sealer.configuration_of(entry)
        assert before.is_joint or after.outgoing in ((), before.voters), f"{before} becomes {after}"
        assert not before.is_joint or after == after_joint(before), f"{before}: {after}"
        self.configurations[entry.index] = after

    # -- what must hold -------------------------------------------------------------------------------------------

    def check(self) -> None:
        """Checks everything that can have changed."""
        for node_id, replica in self.replicas.items():
            self.check_disk(node_id, replica.disk.hard_state)
            if replica.core is not None:
                self.check_core(node_id, replica.core)
        self.check_logs_match()

    def check_disk(self, node_id: int, hard_state: HardState) -> None:
        before = self.promised.get(node_id, HardState())
        assert hard_state.term >= before.term, "a durable term went back"
        if hard_state.term == before.term:
            assert before.vote in (NO_NODE, hard_state.vote), f"{node_id} took its vote back: {before}, {hard_state}"
        self.promised[node_id] = hard_state

    def check_core(self, node_id: int, core: RaftGroup) -> None:
        term, commit, role = self.seen.get(node_id, (0, 0, Role.FOLLOWER))
        assert core.term >= term, "a term went back"
        assert core.commit_index >= commit, "a commit index went back"
        if core.commit_index > commit:
            self.check_commit(core, counted=role is Role.LEADER and core.role is role and core.term == term)
        self.seen[node_id] = (core.term, core.commit_index, core.role)
        if core.quiescent:
            assert core.last_id.index == core.commit_index, "asleep with an uncommitted tail"
        if core.durable_index >= core.first_index:
            durable = core.entry_id(core.durable_index)
            assert self.holds(node_id, durable.index, durable.hash), f"{node_id} takes {durable} for durable"
        timeout = self.options.election_timeout_us
        if core.role is Role.LEADER:
            if self.leaders.setdefault(core.term, node_id) != node_id:
                raise AssertionError(f"two leaders in term {core.term}")
            assert node_id not in self.witnesses, "a witness leads"
            self.check_leader(node_id, core)
            alone = core.configuration.electors == (node_id,)
            latest = NEVER if alone else self.now + timeout
        else:
            assert core.uncommitted_bytes == 0
            latest = self.now + 2 * timeout if core.may_lead else NEVER
        if core.quiescent:
            latest = NEVER
        assert core.next_deadline <= latest, f"{node_id} sleeps too long: until {core.next_deadline} at {self.now}"

    def check_commit(self, core: RaftGroup, counted: bool) -> None:
        """Asserts that replicas commit the same entries, and that a leader counts replicas only for its own term."""
        commit = core.entry_id(core.commit_index)
        assert self.committed.get(commit.index, commit[1:]) == commit[1:], f"another {commit} is committed"
        assert not counted or commit.term == core.term, f"{commit} of an old term is committed by counting replicas"
        self.check_quorum_holds(commit.index, commit.hash)

    def check_leader(self, node_id: int, core: RaftGroup) -> None:
        kept = self.replicas[node_id].disk.hard_state
        assert (kept.term, kept.vote) == (core.term, node_id), f"{node_id} leads on a vote that is not durable: {kept}"
        newest = max((index for index, term in self.committed_in.items() if term <= core.term), default=0)
        assert core.last_id.index >= newest, "a leader lacks a committed entry"
        for index in range(max(core.first_index, newest - 3), newest + 1):
            entry_id = core.entry_id(index)
            assert self.committed[index] == (entry_id.term, entry_id.hash), "a leader lacks a committed entry"
        if core.leads_committed:
            commit = core.entry_id(core.commit_index)
            self.check_quorum_holds(commit.index, commit.hash)
        own = [e for e in self.uncommitted(node_id) if e.term == core.term]
        assert core.uncommitted_bytes == sum(len(e.data) for e in own), "uncommitted bytes drift"
        for peer, progress in core.progress.items():
            if peer != node_id:
                self.check_progress(core, peer, progress)

    def check_progress(self, core: RaftGroup, peer: int, progress: Progress) -> None:
        """A follower really has what its leader counts on, and exactly what is unanswered is in flight."""
        assert progress.match_index < progress.next_index
        assert progress.match_index <= core.last_id.index
        if progress.match_index >= core.first_index and self.replicas[peer].disk.hard_state.term <= core.term:
            believed = core.entry_id(progress.match_index)
            assert self.holds(peer, believed.index, believed.hash), f"{peer} does not hold {believed}"
        window = progress.inflights
        ends, sizes = window._last_indexes, window._sizes
        assert window.bytes == sum(sizes), "in-flight bytes drift"
        if not ends:
            return
        assert progress.state is ProgressState.REPLICATE, "only REPLICATE sends ahead"
        assert progress.match_index < ends[0] <= ends[-1] == progress.next_index - 1
        assert len(ends) <= self.options.max_inflight_appends
        assert sum(sizes[:-1]) < self.options.max_inflight_bytes
        for (before, after), size in zip(itertools.pairwise(ends), sizes[1:], strict=True):
            assert before < after
            if before >= core.first_index - 1 and peer not in self.witnesses:
                entries = core.entries_between(before + 1, after, 1 << 30)
                assert size == sum(len(entry.data) for entry in entries), "in-flight bytes are of other entries"

    def check_quorum_holds(self, index: int, entry_hash: int) -> None:
        # By the voters of today, or by those before them: who committed it may not have applied the last change yet.
        newest = sorted(self.configurations)[-2:]
        assert any(self.quorum_holds(self.configurations[at].halves, index, entry_hash) for at in newest), (
            f"entry {index} is committed, but not synced on a quorum"
        )

    def quorum_holds(self, halves: Halves, index: int, entry_hash: int) -> bool:
        return all(
            sum(self.holds(voter, index, entry_hash) for voter in voters) > len(voters) // 2
            and any(self.holds(voter, index, entry_hash) for voter in voters if voter not in self.witnesses)
            for voters in halves
        )

    def uncommitted(self, node_id: int) -> list[Entry]:
        core = self.core(node_id)
        if core.commit_index == core.last_id.index:
            return []
        return core.entries_between(core.commit_index + 1, core.last_id.index, 1 << 30)

    def holds(self, node_id: int, index: int, entry_hash: int) -> bool:
        disk = self.replicas[node_id].disk
        if index <= disk.anchor.index:
            return True
        return index <= disk.last.index and disk.entries(index, index, 0)[0].hash == entry_hash

    def check_logs_match(self) -> None:
        """Equal index and term mean equal entries, and so (they are chained) equal logs before them."""
        for node_id, replica in self.replicas.items():
            written = (entry for ready in replica.unsynced for entry in ready.entries)
            for entry in itertools.chain(replica.disk.log, written):
                identity = (entry.index, entry.term)
                assert self.identities.setdefault(identity, entry.hash) == entry.hash, "logs do not match"
                traced = entry.kind in (EntryKind.TRACE, EntryKind.CONFIG)
                assert traced if node_id in self.witnesses else entry.kind is not EntryKind.TRACE, "payload and traces"

    # -- healing --------------------------------------------------------------------------------------------------

    def recover(self) -> None:
        """Everything heals; the cluster must find a leader and one log, within a bounded time."""
        for node_id, replica in self.replicas.items():
            if replica.core is None:
                self.start(node_id)
        for node_id in self.up:
            self.core(node_id).wake(self.now, {})
        for _ in range(HEALING_ROUNDS):
            self.settle()
            self.check()
            if self.converged():
                return
            self.now += self.options.heartbeat_interval_us
            for node_id in self.up:
                self.on_time(node_id)
                self.core(node_id).heartbeat(self.now)
        state = [
            (core.node_id, core.role, core.term, core.commit_index, core.last_id.index, dict(core.progress))
            for core in map(self.core, self.up)
        ]
        raise AssertionError(f"no convergence: {state}")

    def leading(self) -> list[int]:
        """Returns the nodes that consider themselves leaders."""
        return [node_id for node_id in self.up if self.core(node_id).is_leader]

    def converged(self) -> bool:
        """One leader, one log, everything applied everywhere, nothing in flight."""
        leaders = self.leading()
        if len(leaders) != 1:
            return False
        leader = self.core(leaders[0])
        if leader.configuration.is_joint:
            return False
        members = [self.core(member) for member in leader.configuration.members]
        return all(
            core.last_id == leader.last_id
            and core.applied_index == leader.last_id.index
            and core.leader_id == leaders[0]
            for core in members
        ) and all(
            progress.state is ProgressState.REPLICATE and progress.inflights.bytes == 0
            for member, progress in leader.progress.items()
            if member != leaders[0]
        )

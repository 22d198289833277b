"""A deterministic little cluster of Raft cores: a disk that keeps written and synced apart, and a bag of messages.

It is the smallest correct driver (docs/internals/raft.md): each write is one step, everything that waits for it waits.
"""

from __future__ import annotations

import random
import zlib
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace

from quorumlog.raft.errors import CompactedError
from quorumlog.raft.group import RaftGroup
from quorumlog.raft.options import RaftOptions
from quorumlog.raft.types import (
    ORIGIN,
    Configuration,
    Entry,
    EntryId,
    EntryKind,
    HardState,
    InstallSnapshot,
    Message,
    RaftLogServices,
    Ready,
    RestoredReplica,
    Snapshot,
    SnapshotData,
)
from quorumlog.simulator.world.invariants import check_promise

MAX_FRAME_BYTES = 1 << 20


def chained_hash(previous_hash: int, index: int, term: int, data: bytes) -> int:
    return hash((previous_hash, index, term, data)) & ((1 << 63) - 1)


class Sealer:
    """Entries whose hash covers everything before them; configurations as text."""

    def entry(self, kind: EntryKind, index: int, term: int, previous_hash: int, data: bytes) -> Entry:
        return Entry(index, term, kind, chained_hash(previous_hash, index, term, data), data)

    def noop(self, index: int, term: int, previous_hash: int) -> Entry:
        return self.entry(EntryKind.NOOP, index, term, previous_hash, b"")

    def config(self, index: int, term: int, previous_hash: int, configuration: Configuration) -> Entry:
        parts = [configuration.voters, configuration.learners, configuration.outgoing]
        if configuration.witnesses:
            parts.append(configuration.witnesses)
        text = "|".join(",".join(map(str, part)) for part in parts)
        return self.entry(EntryKind.CONFIG, index, term, previous_hash, text.encode())

    def configuration_of(self, entry: Entry) -> Configuration:
        parts = (tuple(int(node) for node in part.split(",") if node) for part in entry.data.decode().split("|"))
        return Configuration(*parts)

    def trace(self, entry: Entry, previous_hash: int) -> Entry:
        return Entry(entry.index, entry.term, EntryKind.TRACE, entry.hash, str(previous_hash).encode())


def check_chain(previous: EntryId, entry: Entry) -> None:
    if entry.kind is EntryKind.TRACE:
        assert int(entry.data) == previous.hash, (previous, entry)
        return
    assert entry.hash == chained_hash(previous.hash, entry.index, entry.term, entry.data), (previous, entry)


@dataclass
class Disk:
    """The synced state of one replica, which is also its LogStore."""

    configuration: Configuration
    hard_state: HardState = field(default_factory=HardState)
    anchor: EntryId = ORIGIN
    log: list[Entry] = field(default_factory=list)
    snapshot: Snapshot | None = None

    def term_at(self, index: int) -> int:
        return self.entries(index, index, 0)[0].term

    def entries(self, first: int, last: int, max_bytes: int) -> list[Entry]:
        if first <= self.anchor.index:
            raise CompactedError(first, self.anchor.index + 1)
        found: list[Entry] = []
        for entry in self.log[first - self.anchor.index - 1 : last - self.anchor.index]:
            max_bytes -= len(entry.data)
            if max_bytes < 0 and found:
                break
            found.append(entry)
        assert found and found[0].index == first, f"{first}..{last} is not in {[e.index for e in self.log]}"
        return found

    @property
    def last(self) -> EntryId:
        if not self.log:
            return self.anchor
        return EntryId(self.log[-1].index, self.log[-1].term, self.log[-1].hash)

    def sync(self, ready: Ready) -> None:
        if ready.snapshot is not None:
            assert ready.hard_state is not None, "a snapshot without its hard state"
            self.snapshot, self.anchor, self.log = ready.snapshot, ready.snapshot.last, []
            self.configuration = ready.snapshot.configuration
        if ready.truncate_from is not None:
            del self.log[ready.truncate_from - self.anchor.index - 1 :]
        if ready.entries:
            assert ready.entries[0].index == self.last.index + 1, "a gap on disk"
            self.log += ready.entries
        if ready.hard_state is not None:
            assert ready.hard_state.commit <= self.last.index
            self.hard_state = ready.hard_state

    def compact(self, up_to: EntryId) -> None:
        del self.log[: up_to.index - self.anchor.index]
        self.anchor = up_to


@dataclass
class Replica:
    """A core with its disk and the writes that are not synced yet. ``core`` is None while it is down."""

    node_id: int
    disk: Disk
    core: RaftGroup | None = None
    unsynced: list[Ready] = field(default_factory=list)
    applied: list[Entry] = field(default_factory=list)
    #: (index, hash) of everything ever applied here, over all restarts.
    applied_from: int = 0
    #: From which index on a replica that returned has a say.
    votes_from: int = 0


class Cluster:
    """Replicas of one group, with the messages under way between them."""

    def __init__(
        self,
        voters: tuple[int, ...],
        learners: tuple[int, ...] = (),
        *,
        seed: int = 0,
        options: RaftOptions | None = None,
        spare: tuple[int, ...] = (),
        witnesses: tuple[int, ...] = (),
    ) -> None:
        """Arguments:
        spare: nodes that are not members yet.
        witnesses: those that are witnesses for as long as they exist, members or spare.
        """
        members = {*voters, *learners}
        self.configuration = Configuration(voters, learners, (), tuple(n for n in witnesses if n in members))
        self.witnesses = set(witnesses)
        self.options = options or RaftOptions()
        self.rng = random.Random(seed)
        self.sealer = Sealer()
        #: Commit indexes ride on the next append or heartbeat.
        self.lazy_commit = False
        self.now = 0
        self.network: list[Message] = []
        self.replicas = {
            node_id: Replica(node_id, Disk(self.configuration)) for node_id in (*voters, *learners, *spare)
        }
        for node_id in self.replicas:
            self.start(node_id)

    def core(self, node_id: int) -> RaftGroup:
        core = self.replicas[node_id].core
        assert core is not None, f"{node_id} is down"
        return core

    @property
    def up(self) -> list[int]:
        return [node_id for node_id, replica in self.replicas.items() if replica.core is not None]

    def start(self, node_id: int) -> None:
        """Starts a replica from what is synced; it applies again from its anchor."""
        replica = self.replicas[node_id]
        disk = replica.disk
        replica.unsynced = []
        replica.applied = []
        replica.applied_from = disk.anchor.index
        restored = RestoredReplica(
            node_id=node_id,
            group=1,
            configuration=disk.configuration,
            hard_state=disk.hard_state,
            last=disk.last,
            first_index=disk.anchor.index + 1,
            anchor=disk.anchor,
            applied=disk.anchor.index,
            votes_from=replica.votes_from,
            is_witness=node_id in self.witnesses,
        )
        services = RaftLogServices(disk, self.sealer, lambda: self.snapshot_of(node_id), check_chain)
        replica.core = RaftGroup(restored, services, self.options, self.rng, self.now)

    def crash(self, node_id: int, synced: int = 0) -> None:
        """Kills a replica; of its unsynced writes the first ``synced`` reached the disk all the same."""
        replica = self.replicas[node_id]
        for ready in replica.unsynced[:synced]:
            replica.disk.sync(ready)
        replica.unsynced = []
        replica.core = None

    def destroy(self, node_id: int, configuration: Configuration, votes_from: int) -> None:
        """Destroys a replica that was removed and makes a new one in its place, a learner as of ``configuration``.

        Two things of the former replica are kept: its term, after which the new one starts, so that no leader mistakes
        an old answer for one of its own and no vote is cast twice; and an index at which it no longer had a vote.
        """
        term = self.replicas[node_id].disk.hard_state.term
        self.crash(node_id)
        self.replicas[node_id] = Replica(node_id, Disk(configuration, HardState(term + 1)), votes_from=votes_from)
        self.start(node_id)

    def snapshot_of(self, node_id: int) -> Snapshot | None:
        """The newest state: here it is only what was applied."""
        assert node_id not in self.witnesses, "a witness has no state"
        replica, core = self.replicas[node_id], self.core(node_id)
        if core.applied_index == 0:
            return None
        state = b";".join(e.data for e in replica.applied if e.kind is EntryKind.COMMAND)
        data = SnapshotData(core.applied_index, 1, len(state), zlib.crc32(state))
        return Snapshot(core.entry_id(core.applied_index), core.configuration, data)

    def compact(self, node_id: int, index: int) -> None:
        """Drops the log up to ``index`` on disk, as after a snapshot of one's own."""
        replica, core = self.replicas[node_id], self.core(node_id)
        assert not replica.unsynced, "compact between writes"
        up_to = core.entry_id(index)
        # The configuration on disk is that of the applied index; the state up to the anchor counts as kept.
        replica.disk.configuration = core.configuration
        core.compact(up_to)
        replica.disk.compact(up_to)

    def propose(self, node_id: int, data: bytes) -> Entry:
        return self.core(node_id).propose(
            self.now, lambda index, term, previous: self.sealer.entry(EntryKind.COMMAND, index, term, previous, data)
        )

    def drain(self, node_id: int, *, pull: bool = True) -> bool:
        """Takes what a core wants done. Writes wait for ``persist``. Returns True when there was anything."""
        replica, core = self.replicas[node_id], self.core(node_id)
        busy = False
        if pull:
            busy = self.pull(node_id)
        while core.has_ready():
            busy = True
            ready = core.take_ready()
            self.send(node_id, ready.messages)
            if ready.snapshot is not None:
                replica.applied_from = ready.snapshot.last.index
                replica.applied = []
            for entry in ready.committed:
                self.applying(node_id, entry)
                replica.applied.append(entry)
            if ready.must_write:
                assert ready.durable is not None
                replica.unsynced.append(ready)
            else:
                assert not ready.messages_after_durable
                assert ready.durable is None
            if pull:
                self.pull(node_id)
        return busy

    def send(self, node_id: int, messages: list[Message]) -> None:
        """Puts messages into the bag. Each must be true of what is synced at its sender."""
        disk = self.replicas[node_id].disk
        for message in messages:
            check_promise(1, message, disk.hard_state, disk.last)
        self.network += messages

    def pull(self, node_id: int) -> bool:
        """Moves everything that a leader has for its followers to the network."""
        core = self.core(node_id)
        busy = False
        for peer in tuple(core.progress):
            while core.wants_append(peer, commit_only=not self.lazy_commit):
                message = core.next_append(self.now, peer, MAX_FRAME_BYTES)
                if message is None:
                    break
                self.send(node_id, [message])
                busy = True
        return busy

    def applying(self, node_id: int, entry: Entry) -> None:
        """Hook for checkers: an entry is applied."""

    def persist(self, node_id: int, writes: int = 1) -> None:
        """Syncs the oldest unsynced writes of a replica as one, and lets go what waited for them.

        The last write's token stands for all of them.
        """
        replica, core = self.replicas[node_id], self.core(node_id)
        synced, replica.unsynced = replica.unsynced[:writes], replica.unsynced[writes:]
        if not synced:
            return
        for ready in synced:
            replica.disk.sync(ready)
        for ready in synced:
            self.send(node_id, ready.messages_after_durable)
        assert synced[-1].durable is not None
        core.on_durable(self.now, synced[-1].durable)

    def deliver(self, message: Message) -> None:
        """Hands a message to its receiver; lost if it is down."""
        replica = self.replicas[message.to]
        if replica.core is None:
            self.lose(message)
            return
        replica.core.step(self.now, replace(message))
        self._snapshot_ended(message, delivered=True)

    def lose(self, message: Message) -> None:
        """A message does not arrive."""
        self._snapshot_ended(message, delivered=False)

    def _snapshot_ended(self, message: Message, *, delivered: bool) -> None:
        sender = self.replicas[message.sender].core
        if isinstance(message, InstallSnapshot) and sender is not None:
            sender.snapshot_status(self.now, message.to, delivered)

    def settle(
        self, limit: int = 10_000, cut: AbstractSet[int] = frozenset(), stalled: AbstractSet[int] = frozenset()
    ) -> None:
        """Carries on until nothing is under way. Nodes in ``cut`` neither send, receive nor write, those in ``stalled``
        do not write."""
        for _ in range(limit):
            busy = False
            for node_id in self.up:
                if node_id in cut:
                    continue
                busy |= self.drain(node_id)
                while self.replicas[node_id].unsynced and node_id not in stalled:
                    self.persist(node_id)
                    busy = True
            messages, self.network = self.network, []
            for message in messages:
                if message.to not in cut and message.sender not in cut:
                    self.deliver(message)
                else:
                    self.lose(message)
            if not busy and not messages:
                return
        raise AssertionError("the cluster does not settle")

    def elect(self, node_id: int) -> None:
        """Makes a replica leader by a campaign in which nothing goes wrong."""
        self.core(node_id).campaign(self.now)
        self.settle()
        assert self.core(node_id).is_leader

"""A Raft group's replica from what is durable of it, and the durable log as that replica reads it."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

from quorumlog.raft.errors import UnreadableEntryError
from quorumlog.raft.group import RaftGroup
from quorumlog.raft.types import Entry, EntryId, HardState, RaftLogServices, RestoredReplica, Snapshot
from quorumlog.server.config.options import NodeOptions
from quorumlog.server.hosting.sealing import GroupSealer
from quorumlog.storage.interface import DamageError, StorageReader
from quorumlog.storage.transaction import RaftGroupState
from quorumlog.wire.entry import CorruptEntryError, parse_envelope


class DurableLog:
    """One Raft group's view of the storage: implements `quorumlog.raft.types.LogStore`.

    Arguments:
        damaged: is told of each damaged entry that is come upon.
    """

    __slots__ = ("_damaged", "_group", "_reader")

    def __init__(self, group: int, reader: StorageReader, damaged: Callable[[DamageError], None]) -> None:
        self._group = group
        self._reader = reader
        self._damaged = damaged

    def term_at(self, index: int) -> int:
        """Term of a durable entry."""
        try:
            return self._reader.term_at(self._group, index)
        except DamageError as damage:
            raise self._unreadable(damage) from damage

    def hash_at(self, index: int) -> int:
        """Hash of a durable entry, even of one that is damaged."""
        try:
            return self._reader.hash_at(self._group, index)
        except DamageError as damage:
            raise self._unreadable(damage) from damage

    def entries(self, first: int, last: int, max_bytes: int) -> list[Entry]:
        """Durable entries first..last inclusive, cut after ``max_bytes`` or before a damaged one; at least one."""
        try:
            return self._reader.entries(self._group, first, last, max_bytes)
        except DamageError as damage:
            raise self._unreadable(damage) from damage

    def _unreadable(self, damage: DamageError) -> Exception:
        if damage.index is None:
            return damage
        self._damaged(damage)
        return UnreadableEntryError(damage.index, str(damage))


def check_chain(previous: EntryId, entry: Entry) -> None:
    """Checks that an entry names the one before it.

    Raises:
        CorruptEntryError: two logs agree in index and term but not in content: one of them is damaged.
    """
    envelope = parse_envelope(entry.data)
    if (envelope.index, envelope.term) != (entry.index, entry.term):
        raise CorruptEntryError(
            f"entry {entry.index} of term {entry.term} is sealed as {envelope.index}/{envelope.term}"
        )
    if envelope.previous_hash != previous.hash:
        raise CorruptEntryError(
            f"entry {entry.index} of group {envelope.group} follows hash {envelope.previous_hash:#018x}, but entry"
            f" {previous.index} here has {previous.hash:#018x}"
        )


@dataclass(slots=True, frozen=True)
class RaftGroupFactory:
    """Makes a node's Raft replicas from what is durable of them.

    Arguments:
        rng: one for all Raft groups: a generator of its own would cost each of them 2.5 KiB.
        damaged: is told of damaged entries.
    """

    options: NodeOptions
    reader: StorageReader
    rng: random.Random
    damaged: Callable[[DamageError], None]

    def make(
        self,
        now: int,
        state: RaftGroupState,
        sealer: GroupSealer,
        *,
        applied: int,
        committed: int,
        snapshot_source: Callable[[], Snapshot | None],
        votes_from: int = 0,
        is_witness: bool = False,
    ) -> RaftGroup:
        """One Raft group's replica.

        Arguments:
            applied: entries up to here are in the state machine already.
            committed: entries up to here are known to be committed, whatever the hard state says.
            snapshot_source: gives what followers are offered that need entries which are gone.
            votes_from: the replica has a say once it knows that this index is committed.
            is_witness: it keeps no payload.
        """
        hard_state = state.hard_state
        committed = min(max(hard_state.commit, committed), state.last.index)
        restored = RestoredReplica(
            node_id=self.options.node_id,
            group=state.group,
            configuration=state.configuration,
            hard_state=HardState(hard_state.term, hard_state.vote, committed),
            last=state.last,
            first_index=state.anchor.index + 1,
            anchor=EntryId(*state.anchor),
            applied=max(applied, state.anchor.index),
            votes_from=votes_from,
            is_witness=is_witness,
        )
        log = DurableLog(state.group, self.reader, self.damaged)
        services = RaftLogServices(log, sealer, snapshot_source, check_chain)
        return RaftGroup(restored, services, self.options.raft, self.rng, now)

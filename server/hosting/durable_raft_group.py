"""Builds a Raft group's replica from its durable state, and reads the durable log for it."""

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
        damaged: called with each damaged entry that is read.
    """

    __slots__ = ("_damaged", "_group", "_reader")

    def __init__(self, group: int, reader: StorageReader, damaged: Callable[[DamageError], None]) -> None:
        self._group = group
        self._reader = reader
        self._damaged = damaged

    def term_at(self, index: int) -> int:
        """Returns the term of a durable entry."""
        try:
            return self._reader.term_at(self._group, index)
        except DamageError as damage:
            raise self._unreadable(damage) from damage

    def hash_at(self, index: int) -> int:
        """Returns the hash of a durable entry, even of a damaged one."""
        try:
            return self._reader.hash_at(self._group, index)
        except DamageError as damage:
            raise self._unreadable(damage) from damage

    def entries(self, first: int, last: int, max_bytes: int) -> list[Entry]:
        """Returns durable entries first..last inclusive, cut after ``max_bytes`` or before a damaged one; at least
        one."""
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
    """Checks that an entry names the entry before it.

    Raises:
        CorruptEntryError: two logs agree in index and term but not in content, so one of them is damaged.
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
    """Builds a node's Raft replicas from their durable state.

    Arguments:
        rng: shared by all Raft groups, because a generator per group would cost 2.5 KiB each.
        damaged: called with each damaged entry.
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
        """Returns one Raft group's replica.

        Arguments:
            applied: entries up to this index are already in the state machine.
            committed: entries up to this index are known to be committed, whatever the hard state says.
            snapshot_source: returns the snapshot to offer to followers that need entries which have been dropped.
            votes_from: the replica may vote once it has learned that this index is committed.
            is_witness: the replica keeps no payload.
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

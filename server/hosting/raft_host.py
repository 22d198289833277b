"""Many Raft groups in one node: their rounds, their shared write transaction, their timers.

A round steps every group that has something to do, gathers what must become durable in one transaction for all of them,
and holds back the messages that depend on it until that transaction is synced. While it is in progress, the next
transaction gathers (group commit).
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Protocol

from quorumlog.raft.group import RaftGroup
from quorumlog.raft.log import size_of
from quorumlog.raft.membership import is_changed_by
from quorumlog.raft.replication import NEVER
from quorumlog.raft.types import AppendResponse, DurableToken, Entry, EntryId, Message, Ready, Snapshot
from quorumlog.storage.transaction import RaftGroupWrite, SnapshotSlice, StorageTransaction


class StateMachine(Protocol):
    """The state machine that a group replicates."""

    def apply(self, entries: list[Entry]) -> None:
        """Applies committed entries, in order."""

    def restore(self, snapshot: Snapshot) -> None:
        """Replaces the state with a snapshot's."""

    def take_rows(self) -> dict[bytes, bytes | None]:
        """Removes and returns the rows of the table that changed since the last call."""


@dataclass(slots=True)
class HostedReplica:
    """One group on this node.

    ``lazy_commit``: followers may learn of commits with the next append or heartbeat.
    """

    raft: RaftGroup
    machine: StateMachine
    lazy_commit: bool


@dataclass(slots=True)
class _Batch:
    """The content of one transaction, and the messages and callbacks that wait for it."""

    writes: dict[int, RaftGroupWrite] = field(default_factory=dict)
    node_state: dict[bytes, bytes | None] = field(default_factory=dict)
    tokens: list[tuple[int, DurableToken]] = field(default_factory=list)
    messages: list[tuple[int, Message]] = field(default_factory=list)
    callbacks: list[Callable[[], None]] = field(default_factory=list)
    entry_bytes: int = 0

    def __bool__(self) -> bool:
        return bool(self.writes or self.node_state or self.tokens or self.messages or self.callbacks)


class RaftHost:
    """The groups of a node.

    Arguments:
        send: called with each (group, message) that may be sent now.
    """

    def __init__(self, send: Callable[[int, Message], None]) -> None:
        self.replicas: dict[int, HostedReplica] = {}
        #: Groups led here, except those asleep with all their followers: only these cost anything while idle.
        self.awake_led: set[int] = set()
        #: Called with every group whose state a snapshot has replaced.
        self.restored: Callable[[int], None] = lambda group: None
        #: True if a node may have a replica of a group, regardless of what the group's own replica here has learned of
        #: it.
        self.is_host: Callable[[int, int], bool] = lambda group, node: False
        self._send = send
        self._active: set[int] = set()
        self._gathering = _Batch()
        #: Groups whose replica here is not yet on disk.
        self._unborn: set[int] = set()
        self._in_flight: _Batch | None = None
        self._transaction: StorageTransaction | None = None
        self._number = 0
        self._timers: list[tuple[int, int]] = []
        self._armed: dict[int, int] = {}
        self.in_flight_since = 0
        #: How long the disk took for the transaction that became durable in this step (µs); 0 if none did.
        self.sync_us = 0

    # -- groups -----------------------------------------------------------------------------------------------

    def add(self, group: int, replica: HostedReplica) -> None:
        """Adds a replica that was read from disk, or that will be created in this round."""
        assert group not in self.replicas
        self.replicas[group] = replica
        self.touch(group)

    def create(self, write: RaftGroupWrite, decided_by: int | None = None) -> None:
        """Creates a replica with the next transaction; its messages wait for that transaction (raft.md 4).

        Arguments:
            decided_by: see ``destroy``.
        """
        assert write.create is not None and write.group not in self._gathering.writes
        self._gathering.writes[write.group] = write
        self._unborn.add(write.group)
        if decided_by is not None:
            self._witness(decided_by)

    def is_ending(self, group: int) -> bool:
        """True if the destruction of a group's replica is not durable yet; no new one can be created before that."""
        batches = (self._gathering, self._in_flight)
        return any(batch is not None and group in batch.writes and batch.writes[group].destroy for batch in batches)

    def _witness(self, group: int) -> None:
        """Adds the changed rows of a group's table to the next transaction."""
        write, replica = self._write_of(group), self.replicas.get(group)
        if replica is not None:
            write.table.update(replica.machine.take_rows())

    def destroy(self, group: int, decided_by: int) -> None:
        """Destroys a replica, in memory or on disk, with the next transaction. Nothing more of it is written or sent.

        Arguments:
            decided_by: the group whose state contains the decision; the rows of its table go into the same transaction.
                Otherwise a restart could find the replica destroyed but the decision not recorded, create an empty one
                in its place, and let it vote; or find a newer replica and destroy it for an older decision.
        """
        self.replicas.pop(group, None)
        self._active.discard(group)
        self._unborn.discard(group)
        self.awake_led.discard(group)
        batch = self._gathering
        before = batch.writes.pop(group, None)
        batch.tokens = [token for token in batch.tokens if token[0] != group]
        batch.messages = [message for message in batch.messages if message[0] != group]
        if before is not None:
            batch.entry_bytes -= size_of(before.entries)
        if before is None or before.create is None:
            batch.writes[group] = RaftGroupWrite(group, destroy=True)
            self._witness(decided_by)

    def touch(self, group: int) -> None:
        """Marks a group that may have something to do in this round."""
        self._active.add(group)

    def set_node_state(self, key: bytes, value: bytes | None) -> None:
        """Writes a row of the node itself with the next transaction."""
        self._gathering.node_state[key] = value

    def after_durable(self, callback: Callable[[], None]) -> None:
        """Calls back once everything gathered so far is durable; at once if there is nothing to write."""
        if self._gathering:
            self._gathering.callbacks.append(callback)
        elif self._in_flight is not None:
            self._in_flight.callbacks.append(callback)
        else:
            callback()

    def stage(self, group: int, piece: SnapshotSlice) -> None:
        """Stores a slice of a snapshot with the next transaction."""
        self._write_of(group).stage.append(piece)

    def unstage(self, group: int, stage: int) -> None:
        """Turns the slices of an abandoned stage into garbage with the next transaction."""
        self._write_of(group).unstage.append(stage)

    def mend(self, group: int, entry: Entry) -> None:
        """Writes a damaged entry again with the next transaction."""
        self._write_of(group).mend.append(entry)

    def checkpoint(self, group: int, snapshot: Snapshot) -> None:
        """Switches to a staged snapshot of this node and drops the entries that it replaces, with the next transaction.

        The current table and configuration go into the same transaction: dropped entries must never be needed again to
        bring them up to date.
        """
        replica = self.replicas[group]
        write = self._write_of(group)
        write.checkpoint = snapshot
        write.configuration = replica.raft.configuration
        write.compact_to = snapshot.last
        write.table.update(replica.machine.take_rows())

    def give_up_log(self, group: int, up_to: EntryId) -> None:
        """Drops the entries up to ``up_to``, applied and durable, with the next transaction, without a snapshot.

        Only for a witness, which has no state. The table and the configuration are included, as in ``checkpoint``.
        """
        replica = self.replicas[group]
        write = self._write_of(group)
        write.configuration = replica.raft.configuration
        write.compact_to = up_to
        write.table.update(replica.machine.take_rows())
        replica.raft.compact(up_to)

    def may_speak(self, group: int, node: int) -> bool:
        """True if a node may send messages to a group with a replica here: it is a member, or reported to host a
        replica.

        A replica that is behind does not have the current members, but must still receive messages of their leader.
        """
        return node in self.replicas[group].raft.configuration.members or self.is_host(group, node)

    @property
    def has_work(self) -> bool:
        """True if another round has something to do."""
        return bool(self._active)

    # -- rounds -----------------------------------------------------------------------------------------------

    def run_round(self) -> list[int]:
        """Steps every active group until none has anything to do; returns the groups that were active, sorted.

        Nothing is written here: what the groups want durable is gathered, and one transaction with one fsync serves all
        of them.
        """
        touched: set[int] = set()
        while self._active:
            # Sorted, so that a simulated run with the same seed takes the same course. Applying entries of one group
            # may activate others, such as those of a new topic, hence the outer loop.
            groups = sorted(self._active)
            self._active.clear()
            for group in groups:
                replica = self.replicas.get(group)
                if replica is None:
                    continue  # An entry that another group has just applied has removed it.
                touched.add(group)
                while replica.raft.has_ready():
                    self._carry_out(group, replica, replica.raft.take_ready())
        touched.intersection_update(self.replicas)
        for group in touched:
            self._arm(group)
            raft = self.replicas[group].raft
            if raft.is_leader and (not raft.quiescent or raft.is_calling):
                self.awake_led.add(group)
            else:
                self.awake_led.discard(group)
        return sorted(touched)

    def _carry_out(self, group: int, replica: HostedReplica, ready: Ready) -> None:
        # The order matters. Messages that need no fsync (a leader's appends, Raft thesis, section 10.2.1) leave first,
        # so that followers write while this node does. Answers that promise durability leave after the transaction.
        if group in self._unborn:
            # The replica assumes that its initial term is durable; a crash could still lose it.
            self._gathering.messages.extend((group, message) for message in ready.messages)
        else:
            for message in ready.messages:
                self._send(group, message)
        if ready.snapshot is not None:
            replica.machine.restore(ready.snapshot)
            self.restored(group)
        if ready.must_write:
            self._gather(group, ready)
        if ready.durable is not None:
            self._gathering.tokens.append((group, ready.durable))
        for message in ready.messages_after_durable:
            self._gathering.messages.append((group, message))
        if ready.committed:
            replica.machine.apply(ready.committed)
            # This node's own write of them may still be under way: a quorum holds them. What their application changes
            # becomes durable in the same transaction, or in a later one.
            if is_changed_by(ready.committed):
                # In one transaction with the table's rows, which record the applied index: a restart applies nothing
                # twice.
                self._write_of(group).configuration = replica.raft.configuration
        if group in self._gathering.writes:
            self._gathering.writes[group].table.update(replica.machine.take_rows())

    def _write_of(self, group: int) -> RaftGroupWrite:
        write = self._gathering.writes.get(group)
        if write is None:
            write = self._gathering.writes[group] = RaftGroupWrite(group)
        return write

    def _gather(self, group: int, ready: Ready) -> None:
        write = self._write_of(group)
        if ready.hard_state is not None:
            write.hard_state = ready.hard_state
        if ready.snapshot is not None:
            for replaced in (write.snapshot, write.checkpoint):
                if replaced is not None:
                    write.unstage.append(replaced.data.stage)
            write.snapshot = ready.snapshot
            write.configuration = ready.snapshot.configuration
            write.checkpoint = write.compact_to = write.truncate_from = None
            write.entries.clear()
            write.table.clear()
        if ready.truncate_from is not None:
            self._truncate(group, write, ready.truncate_from)
        assert not (write.entries and ready.entries) or write.entries[-1].index + 1 == ready.entries[0].index
        write.entries.extend(ready.entries)
        self._gathering.entry_bytes += size_of(ready.entries)

    def _truncate(self, group: int, write: RaftGroupWrite, first: int) -> None:
        while write.entries and write.entries[-1].index >= first:
            write.entries.pop()
        if not write.entries and (write.truncate_from is None or first < write.truncate_from):
            write.truncate_from = first
        # Truncated before it became durable: its acknowledgement must never be sent.
        self._gathering.messages = [
            (other, message)
            for other, message in self._gathering.messages
            if not (
                other == group
                and isinstance(message, AppendResponse)
                and not message.rejected
                and message.index >= first
            )
        ]

    # -- the transaction --------------------------------------------------------------------------------------

    def take_transaction(self, now: int) -> StorageTransaction | None:
        """Returns the transaction to write now; None while one is in progress or if there is nothing to write."""
        self.sync_us = 0
        if self._in_flight is not None:
            return None
        batch = self._gathering
        if not batch.writes and not batch.node_state:
            if batch:
                # No part of it needs the disk, and no transaction is in progress: everything before it is durable.
                self._gathering = _Batch()
                self._speak(now, batch)
            return None
        self._number += 1
        self._in_flight, self._gathering = batch, _Batch()
        self._transaction = StorageTransaction(self._number, list(batch.writes.values()), batch.node_state)
        self.in_flight_since = now
        return self._transaction

    @property
    def gathered_bytes(self) -> int:
        """Bytes of the entries that wait for the next transaction."""
        return self._gathering.entry_bytes

    def stalled(self, now: int, limit_us: int) -> bool:
        """True if the transaction in progress has taken longer than ``limit_us``."""
        return self._in_flight is not None and now - self.in_flight_since > limit_us

    def on_durable(self, now: int, number: int) -> None:
        """Completes the synced transaction and sends the messages that waited for it."""
        assert self._in_flight is not None and number == self._number, f"completion {number}, expected {self._number}"
        batch, self._in_flight = self._in_flight, None
        self._transaction = None
        self.sync_us = now - self.in_flight_since
        if self._unborn:
            self._unborn.difference_update(group for group, write in batch.writes.items() if write.create is not None)
        self._speak(now, batch)

    def retry(self, number: int) -> StorageTransaction:
        """Returns the transaction that failed for lack of space, to be submitted again."""
        assert self._transaction is not None and number == self._number
        return self._transaction

    def _speak(self, now: int, batch: _Batch) -> None:
        for group, message in batch.messages:
            self._send(group, message)
        for group, token in batch.tokens:
            replica = self.replicas.get(group)
            if replica is not None:
                replica.raft.on_durable(now, token)
                self.touch(group)
        for callback in batch.callbacks:
            callback()

    # -- time -------------------------------------------------------------------------------------------------

    def _arm(self, group: int) -> None:
        # Deadlines mostly move later (a heartbeat arrived): the old timer then fires early and is set again.
        deadline = self.replicas[group].raft.next_deadline
        armed = self._armed.get(group)
        if deadline < NEVER and (armed is None or deadline < armed):
            self._armed[group] = deadline
            heapq.heappush(self._timers, (deadline, group))

    def fire_timers(self, now: int) -> None:
        """Runs the timers that are due."""
        while self._timers and self._timers[0][0] <= now:
            armed, group = heapq.heappop(self._timers)
            if self._armed.get(group) != armed:
                continue
            del self._armed[group]
            replica = self.replicas.get(group)
            if replica is None:
                continue
            if replica.raft.next_deadline <= now:
                replica.raft.on_time(now)
                self.touch(group)
            self._arm(group)

    @property
    def next_deadline(self) -> int | None:
        """The time at which the next timer is due; None if no timer is set."""
        return self._timers[0][0] if self._timers else None

    def led(self) -> Iterator[tuple[int, HostedReplica]]:
        """Yields the groups that this node leads."""
        for group, replica in self.replicas.items():
            if replica.raft.is_leader:
                yield group, replica

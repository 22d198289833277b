"""Receives snapshots: each slice is staged on disk as it arrives, and acknowledged once it is durable.

A snapshot takes effect only when all of it is staged and its checksum matches. Then Raft gets the InstallSnapshot of
the transfer; if Raft accepts it, the group's snapshot row is pointed to the stage, in one transaction with hard state,
anchor and configuration. A transfer that ends early leaves a stage to be swept; a retry starts from the first slice in
a new stage, so slices of two attempts never mix.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

import google_crc32c

from quorumlog.raft.errors import UnreadableEntryError
from quorumlog.raft.group import RaftGroup
from quorumlog.raft.types import InstallSnapshot, Snapshot, SnapshotData
from quorumlog.server.config.options import NodeOptions
from quorumlog.server.hosting.raft_host import RaftHost
from quorumlog.server.step.events import ChunkReceipt, EventLog, PeerFrame, SnapshotChunk, SnapshotOffer, Stream
from quorumlog.storage.transaction import SnapshotSlice


@dataclass(slots=True)
class _Incoming:
    """One snapshot that is being staged (slices: ``durable`` <= ``received`` <= those of the offer)."""

    group: int
    peer: int
    transfer: int
    offer: SnapshotOffer
    stage: int
    deadline: int
    received: int = 0
    durable: int = 0
    size_bytes: int = 0
    checksum: int = 0


class SnapshotReceiver:
    """The transfers to this node: at most one per group, the newest.

    Arguments:
        rng: generates stage numbers.
        has_room: True if the disk has space for a snapshot now.
        install: passes the message to a group's Raft replica.

    Attributes:
        incoming: by Raft group.
        answers: the receipts to send, by peer.
    """

    def __init__(
        self,
        options: NodeOptions,
        host: RaftHost,
        rng: random.Random,
        has_room: Callable[[], bool],
        install: Callable[[int, InstallSnapshot], None],
        log: EventLog,
    ) -> None:
        self._options = options
        self._limits = options.limits
        self._host = host
        self._rng = rng
        self._has_room = has_room
        self._install = install
        self._log = log
        self.incoming: dict[int, _Incoming] = {}
        self.answers: dict[int, PeerFrame] = {}

    def on_chunk(self, now: int, peer: int, chunk: SnapshotChunk) -> None:
        """Stages a slice, or refuses it, which also ends the transfer at its sender."""
        incoming = self.incoming.get(chunk.group)
        if incoming is None or (incoming.peer, incoming.transfer) != (peer, chunk.transfer):
            incoming = self._begin(now, peer, chunk)
            if incoming is None:
                return
        elif chunk.number < incoming.received:
            return
        offer = incoming.offer
        incoming.size_bytes += len(chunk.data)
        if chunk.number != incoming.received or chunk.number >= offer.slices or incoming.size_bytes > offer.size_bytes:
            self._refuse(incoming, f"slice {chunk.number} came after {incoming.received} of {offer.slices}")
            return
        incoming.received += 1
        incoming.checksum = google_crc32c.extend(incoming.checksum, chunk.data)
        incoming.deadline = now + self._options.snapshot_stall_us
        self._host.stage(incoming.group, SnapshotSlice(incoming.stage, chunk.number, chunk.data))
        self._host.after_durable(self._durable(incoming, incoming.received))

    def _begin(self, now: int, peer: int, chunk: SnapshotChunk) -> _Incoming | None:
        """Starts a transfer, replacing one of the same group; None if nothing has to be staged."""
        offer, before = chunk.offer, self.incoming.get(chunk.group)
        if offer is None or (before is not None and before.peer == peer and before.transfer > chunk.transfer):
            reason = "this transfer has ended here"
        else:
            reason = self._reason_against(peer, chunk.group, offer, before)
        lacks = False
        if offer is not None and not reason and offer.slices:
            try:
                lacks = self._raft(chunk.group).lacks(offer.last)
            except UnreadableEntryError:
                reason = "an entry here is damaged and not yet repaired"
        if offer is None or reason:
            self._answer(peer, ChunkReceipt(chunk.group, chunk.transfer, refused=reason))
            return None
        if before is not None:
            self._drop(before, "superseded by another transfer")
        stage = self._rng.getrandbits(64)
        deadline = now + self._options.snapshot_stall_us
        incoming = _Incoming(chunk.group, peer, chunk.transfer, offer, stage, deadline)
        if not lacks:
            self._finish(incoming)
            return None
        self.incoming[chunk.group] = incoming
        return incoming

    def _reason_against(self, peer: int, group: int, offer: SnapshotOffer, before: _Incoming | None) -> str:
        replica = self._host.replicas.get(group)
        if replica is None or not self._host.may_speak(group, peer):
            return "no such group here, or its sender is not a member"
        if offer.term < max(replica.raft.term, before.offer.term if before is not None else 0):
            return "its term is over"
        if (offer.slices == 0) != replica.raft.is_witness:
            return "only a witness accepts a snapshot without data"
        if offer.size_bytes > self._limits.snapshot_bytes:
            return f"larger than {self._limits.snapshot_bytes} bytes"
        alike = sum((each.offer.slices <= 1) == (offer.slices <= 1) for each in self.incoming.values())
        if before is None and alike >= self._limits.transfers_of(offer.slices):
            return "too many snapshots arrive at once"
        return "" if self._has_room() else "the disk is nearly full"

    def _durable(self, incoming: _Incoming, slices: int) -> Callable[[], None]:
        def tell() -> None:
            # The transfer may have ended while its slice was being synced, and another may have started since.
            if self.incoming.get(incoming.group) is incoming:
                incoming.durable = slices
                if slices == incoming.offer.slices:
                    del self.incoming[incoming.group]
                    self._finish(incoming)
                else:
                    self._answer(incoming.peer, ChunkReceipt(incoming.group, incoming.transfer, slices))

        return tell

    def _finish(self, incoming: _Incoming) -> None:
        """Lets Raft decide once everything is staged, or the log already contains what the snapshot covers."""
        offer, group = incoming.offer, incoming.group
        raft = self._raft(group)
        complete = (incoming.size_bytes, incoming.checksum) == (offer.size_bytes, offer.checksum)
        if raft.lacks(offer.last) and not complete:
            self._refuse(incoming, f"its {incoming.size_bytes} bytes were damaged on their way")
            return
        data = SnapshotData(incoming.stage, offer.slices, offer.size_bytes, offer.checksum)
        before = raft.anchor
        snapshot = Snapshot(offer.last, offer.configuration, data)
        self._install(group, InstallSnapshot(incoming.peer, self._options.node_id, offer.term, snapshot))
        if raft.anchor != before:
            self._log("info", "snapshot_installed", group=group, peer=incoming.peer, last_index=offer.last.index)
        elif incoming.received:
            self._host.unstage(group, incoming.stage)
        self._answer(incoming.peer, ChunkReceipt(group, incoming.transfer, offer.slices))

    # -- the end of a transfer ------------------------------------------------------------------------------------

    def on_time(self, now: int) -> None:
        """Ends transfers of a past term, those that are no longer needed, and stalled ones."""
        for incoming in list(self.incoming.values()):
            replica = self._host.replicas.get(incoming.group)
            if replica is None or replica.raft.term > incoming.offer.term:
                self._refuse(incoming, "its term is over")
            elif not replica.raft.lacks(incoming.offer.last):
                del self.incoming[incoming.group]
                self._finish(incoming)
            elif now >= incoming.deadline:
                if incoming.durable < incoming.received:
                    # This node's disk is slow, and the sender waits for it.
                    incoming.deadline = now + self._options.snapshot_stall_us
                else:
                    self._refuse(incoming, "no slice in time")

    @property
    def next_deadline(self) -> int | None:
        """The time at which ``on_time`` is due."""
        return min(incoming.deadline for incoming in self.incoming.values()) if self.incoming else None

    def peer_lost(self, peer: int) -> None:
        """Drops the peer's transfers: no more slices will arrive."""
        self.answers.pop(peer, None)
        for incoming in list(self.incoming.values()):
            if incoming.peer == peer:
                self._drop(incoming, "the connection broke")

    def group_gone(self, group: int) -> None:
        """Forgets a group that no longer has a replica on this node."""
        self.incoming.pop(group, None)

    def _refuse(self, incoming: _Incoming, reason: str) -> None:
        self._drop(incoming, reason)
        self._answer(incoming.peer, ChunkReceipt(incoming.group, incoming.transfer, refused=reason))

    def _drop(self, incoming: _Incoming, reason: str) -> None:
        self.incoming.pop(incoming.group, None)
        if incoming.group in self._host.replicas and incoming.received:
            self._host.unstage(incoming.group, incoming.stage)
        self._log("warning", "snapshot_not_received", group=incoming.group, peer=incoming.peer, reason=reason)

    # -- answers --------------------------------------------------------------------------------------------------

    def _raft(self, group: int) -> RaftGroup:
        return self._host.replicas[group].raft

    def _answer(self, peer: int, receipt: ChunkReceipt) -> None:
        frame = self.answers.setdefault(peer, PeerFrame(Stream.SNAPSHOT_ANSWER))
        frame.receipts.append(receipt)

    def collect(self) -> list[tuple[int, PeerFrame]]:
        """Removes and returns the receipts to send."""
        answers, self.answers = self.answers, {}
        return list(answers.items())

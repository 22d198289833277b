"""Sends snapshots to followers that need entries which have been dropped, slice by slice, at each follower's pace.

A slice is read from storage when its turn comes, and at most a window of slices is not known to be durable at the
follower. So memory use is small, however large a snapshot is and however many followers need it. A transfer exists
exactly as long as Raft's progress of its follower waits for that snapshot. It ends early with the connection, with the
term, if a slice is not acknowledged in time, or if the follower refuses it. Raft is then notified of the failure and
offers the newest snapshot again, from its first slice, at the follower's next sign of life.
"""

from __future__ import annotations

from dataclasses import dataclass

from quorumlog.raft.progress import ProgressState
from quorumlog.raft.types import InstallSnapshot, Snapshot
from quorumlog.server.config.options import NodeOptions
from quorumlog.server.hosting.raft_host import RaftHost
from quorumlog.server.hosting.replication_throttle import ReplicationThrottle
from quorumlog.server.step.events import ChunkReceipt, EventLog, PeerFrame, SnapshotChunk, SnapshotOffer, Stream
from quorumlog.storage.interface import StorageReader


@dataclass(slots=True)
class _Transfer:
    """One snapshot in transit to one follower (slices: ``durable`` <= ``sent`` <= ``durable`` + window)."""

    number: int
    group: int
    peer: int
    term: int
    snapshot: Snapshot
    deadline: int
    sent: int = 0
    durable: int = 0


class SnapshotSender:
    """The transfers from this node.

    Arguments:
        storage: contains the slices.
        pace: throttle for slices to replicas that are being added.

    Attributes:
        transfers: by Raft group and peer.
    """

    def __init__(
        self,
        options: NodeOptions,
        host: RaftHost,
        storage: StorageReader,
        pace: ReplicationThrottle,
        log: EventLog,
    ) -> None:
        self._options = options
        self._limits = options.limits
        self._host = host
        self._storage = storage
        self._pace = pace
        self._log = log
        self.transfers: dict[tuple[int, int], _Transfer] = {}
        self._number = 0

    def offer(self, now: int, group: int, message: InstallSnapshot) -> None:
        """Starts to send the snapshot that Raft offers to a follower.

        Beyond the limit on transfers the offer is reported to Raft as failed, and Raft offers it again later.
        """
        key = group, message.to
        small = message.snapshot.data.slices <= 1
        alike = sum((each.snapshot.data.slices <= 1) == small for each in self.transfers.values())
        if key not in self.transfers and alike >= self._limits.transfers_of(message.snapshot.data.slices):
            self._tell_raft(now, group, message.to, ok=False)
            return
        self._number += 1
        deadline = now + self._options.snapshot_stall_us
        self.transfers[key] = _Transfer(
            self._number, group, message.to, message.term, message.snapshot, deadline
        )  # fmt: skip

    def is_sending(self, group: int) -> bool:
        """True if a snapshot of the group is in transit: its slices, and the entries after it, must be kept."""
        return any(transfer.group == group for transfer in self.transfers.values())

    def group_gone(self, group: int) -> None:
        """Drops the transfers of a group that no longer has a replica on this node."""
        for key in [key for key in self.transfers if key[0] == group]:
            del self.transfers[key]

    def on_receipt(self, now: int, peer: int, receipt: ChunkReceipt) -> None:
        """Handles a follower's report that slices are durable, or that it wants no more."""
        transfer = self.transfers.get((receipt.group, peer))
        if transfer is None or transfer.number != receipt.transfer:
            return
        if receipt.refused:
            self._fail(now, transfer, receipt.refused)
            return
        if receipt.durable == transfer.snapshot.data.slices:
            # Perhaps not all were sent: the follower's log may already contain what the snapshot covers.
            del self.transfers[transfer.group, peer]
            size = transfer.snapshot.data.size_bytes
            self._log("info", "snapshot_sent", group=transfer.group, peer=peer, size_bytes=size)
            self._tell_raft(now, transfer.group, peer, ok=True)
        elif receipt.durable > transfer.sent:
            self._fail(now, transfer, f"receipt of {receipt.durable} slices, {transfer.sent} were sent")
        elif receipt.durable > transfer.durable:
            transfer.durable = receipt.durable
            transfer.deadline = now + self._options.snapshot_stall_us

    def on_time(self, now: int) -> None:
        """Fails the transfers whose followers have acknowledged nothing for too long."""
        for transfer in list(self.transfers.values()):
            if transfer.deadline <= now:
                self._fail(now, transfer, "no receipt in time")

    @property
    def next_deadline(self) -> int | None:
        """The time at which ``on_time`` is due."""
        return min(transfer.deadline for transfer in self.transfers.values()) if self.transfers else None

    def peer_lost(self, now: int, peer: int) -> None:
        """Fails the transfers to the peer: nothing in transit will arrive."""
        for transfer in list(self.transfers.values()):
            if transfer.peer == peer:
                self._fail(now, transfer, "the connection broke")

    def collect(self, now: int) -> list[tuple[int, PeerFrame]]:
        """Returns the frames that may be sent now, one slice each, so that other traffic waits for at most one
        slice."""
        frames: list[tuple[int, PeerFrame]] = []
        for key, transfer in list(self.transfers.items()):
            if not self._is_wanted(transfer):
                del self.transfers[key]
                continue
            paced = self._is_paced(transfer)
            # Without slices only the offer is sent: a witness's snapshot.
            pieces = max(transfer.snapshot.data.slices, 1)
            end = min(pieces, transfer.durable + self._limits.snapshot_window)
            while transfer.sent < end:
                if paced and self._pace.holds(now, transfer.group):
                    if transfer.sent == transfer.durable:
                        # The delay is on this side, not the follower's.
                        transfer.deadline = now + self._options.snapshot_stall_us
                    break
                chunk = self._chunk(transfer, transfer.sent)
                frames.append((transfer.peer, PeerFrame(Stream.SNAPSHOT, chunks=[chunk])))
                transfer.sent += 1
                if paced:
                    self._pace.sent(now, transfer.group, len(chunk.data))
                    # The other transfers take precedence now.
                    self.transfers[key] = self.transfers.pop(key)
        return frames

    def _is_paced(self, transfer: _Transfer) -> bool:
        raft = self._host.replicas[transfer.group].raft
        return transfer.peer in raft.configuration.learners and self._pace.is_paced(transfer.group)

    def _chunk(self, transfer: _Transfer, number: int) -> SnapshotChunk:
        last, configuration, data = transfer.snapshot.last, transfer.snapshot.configuration, transfer.snapshot.data
        offer = None
        if number == 0:
            offer = SnapshotOffer(
                transfer.term, last, configuration, data.slices, data.size_bytes, data.checksum
            )  # fmt: skip
        piece = self._storage.snapshot_slice(transfer.group, data.stage, number) if data.slices else b""
        return SnapshotChunk(transfer.group, transfer.number, number, piece, offer)

    def _is_wanted(self, transfer: _Transfer) -> bool:
        replica = self._host.replicas.get(transfer.group)
        if replica is None or not replica.raft.is_leader or replica.raft.term != transfer.term:
            return False
        progress = replica.raft.progress.get(transfer.peer)
        if progress is None or progress.state is not ProgressState.SNAPSHOT:
            return False
        return progress.pending_snapshot == transfer.snapshot.last.index

    def _fail(self, now: int, transfer: _Transfer, reason: str) -> None:
        del self.transfers[transfer.group, transfer.peer]
        self._log("warning", "snapshot_not_sent", group=transfer.group, peer=transfer.peer, reason=reason)
        if self._is_wanted(transfer):
            self._tell_raft(now, transfer.group, transfer.peer, ok=False)

    def _tell_raft(self, now: int, group: int, peer: int, *, ok: bool) -> None:
        self._host.replicas[group].raft.snapshot_status(now, peer, ok)
        self._host.touch(group)

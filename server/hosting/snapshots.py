"""Snapshots of a node: sent, received, and written of its own state."""

from __future__ import annotations

import random
from collections.abc import Callable

from quorumlog.raft.types import InstallSnapshot
from quorumlog.server.config.options import NodeOptions
from quorumlog.server.hosting.checkpoint_writer import CheckpointWriter
from quorumlog.server.hosting.raft_host import RaftHost
from quorumlog.server.hosting.replication_throttle import ReplicationThrottle
from quorumlog.server.hosting.snapshot_receiver import SnapshotReceiver
from quorumlog.server.hosting.snapshot_sender import SnapshotSender
from quorumlog.server.step.deadlines import earlier
from quorumlog.server.step.events import EventLog, PeerFrame
from quorumlog.storage.interface import StorageReader


class Snapshots:
    """The node's side of snapshots of any group.

    Arguments:
        pace: throttle for slices to replicas that are being added.
        has_room: True if the disk has space for a snapshot now.
        install: passes a completely staged snapshot to a group's Raft replica.
    """

    def __init__(
        self,
        options: NodeOptions,
        host: RaftHost,
        storage: StorageReader,
        rng: random.Random,
        pace: ReplicationThrottle,
        has_room: Callable[[], bool],
        install: Callable[[int, InstallSnapshot], None],
        log: EventLog,
    ) -> None:
        self.sender = SnapshotSender(options, host, storage, pace, log)
        self.receiver = SnapshotReceiver(options, host, rng, has_room, install, log)
        self.checkpoints = CheckpointWriter(host, rng, options.limits.snapshot_slice_bytes)
        host.restored = self.checkpoints.abandon

    def on_frame(self, now: int, peer: int, frame: PeerFrame) -> None:
        """Passes a frame's slices to the receiver and its receipts to the sender."""
        for chunk in frame.chunks:
            self.receiver.on_chunk(now, peer, chunk)
        for receipt in frame.receipts:
            self.sender.on_receipt(now, peer, receipt)

    def on_time(self, now: int) -> None:
        """Ends transfers that have expired or are no longer needed."""
        if self.sender.transfers:
            self.sender.on_time(now)
        if self.receiver.incoming:
            self.receiver.on_time(now)

    def peer_lost(self, now: int, peer: int) -> None:
        """Drops the transfers from and to a peer whose streams broke."""
        self.sender.peer_lost(now, peer)
        self.receiver.peer_lost(peer)

    def group_gone(self, group: int) -> None:
        """Forgets a group that no longer has a replica on this node. Its staged slices are removed with the replica."""
        self.sender.group_gone(group)
        self.receiver.group_gone(group)
        self.checkpoints.abandon(group)

    def collect(self, now: int) -> list[tuple[int, PeerFrame]]:
        """Removes and returns every frame about snapshots that may be sent now."""
        frames = self.receiver.collect() if self.receiver.answers else []
        if self.sender.transfers:
            frames += self.sender.collect(now)
        return frames

    @property
    def next_deadline(self) -> int | None:
        """The time at which ``on_time`` is due."""
        if not self.sender.transfers and not self.receiver.incoming:
            return None
        return earlier(self.sender.next_deadline, self.receiver.next_deadline)

    def may_checkpoint(self, group: int) -> bool:
        """True if a new checkpoint of a Raft group may start: none is being written, and none is being sent.

        A new one would remove the slices from under the transfer, and the entries that its follower needs next. A
        follower that is slower than the checkpoints would then never catch up.
        """
        return not self.checkpoints.is_writing(group) and not self.sender.is_sending(group)

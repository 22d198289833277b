"""Everything of a node that has to do with snapshots: sent, received, and written of its own state."""

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
        pace: of what is sent to replicas that are being added.
        has_room: whether the disk can take a snapshot now.
        install: gives a group's Raft replica a snapshot that is staged whole.
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
        """Takes what a frame brings of snapshots."""
        for chunk in frame.chunks:
            self.receiver.on_chunk(now, peer, chunk)
        for receipt in frame.receipts:
            self.sender.on_receipt(now, peer, receipt)

    def on_time(self, now: int) -> None:
        """Ends transfers that have no sense any more."""
        self.sender.on_time(now)
        self.receiver.on_time(now)

    def peer_lost(self, now: int, peer: int) -> None:
        """The streams of a peer broke."""
        self.sender.peer_lost(now, peer)
        self.receiver.peer_lost(peer)

    def group_gone(self, group: int) -> None:
        """There is no replica of a group here any more. What was staged of it goes with all that it had."""
        self.sender.group_gone(group)
        self.receiver.group_gone(group)
        self.checkpoints.abandon(group)

    def collect(self, now: int) -> list[tuple[int, PeerFrame]]:
        """Everything of snapshots that may leave now."""
        return [*self.receiver.collect(), *self.sender.collect(now)]

    @property
    def next_deadline(self) -> int | None:
        """When ``on_time`` is due."""
        return earlier(self.sender.next_deadline, self.receiver.next_deadline)

    def may_checkpoint(self, group: int) -> bool:
        """Whether a new checkpoint of a Raft group may begin: not while the one before is being written, and not while
        it is being sent. It would take the slices from under the transfer, and the entries that its follower needs
        next. Then a follower that is slower than the checkpoints come would never catch up."""
        return not self.checkpoints.is_writing(group) and not self.sender.is_sending(group)

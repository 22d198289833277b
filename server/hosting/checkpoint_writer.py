"""Writes snapshots of a node's own state machines, slice by slice, next to the log that they replace.

Each transaction carries one slice, so that a large image delays neither the storage thread nor the groups that share
it. The transaction with the last slice also points the snapshot's row to the slices and drops the log before it. Until
then the log stays complete; a crash leaves slices that are swept when the storage is opened.
"""

from __future__ import annotations

import random
from collections.abc import Callable

import google_crc32c

from quorumlog.raft.types import Configuration, EntryId, Snapshot, SnapshotData
from quorumlog.server.hosting.raft_host import RaftHost
from quorumlog.storage.transaction import SnapshotSlice


class Checkpoint:
    """A snapshot that is being written. The number of slices need not be known in advance.

    Attributes:
        stage: the stage under which its slices are stored.
        slices, size_bytes: staged so far.
        finished: the switch to it has been submitted.
    """

    def __init__(self, host: RaftHost, group: int, stage: int, ended: Callable[[int], None]) -> None:
        self.group = group
        self.slices = 0
        self.size_bytes = 0
        self.abandoned = False
        self._host = host
        self.stage = stage
        self._checksum = 0
        self._ended = ended
        self.finished = False

    def add(self, data: bytes) -> None:
        """Stages the next slice with the next transaction.

        A caller that adds many slices waits in between until the previous ones are durable
        (``RaftHost.after_durable``).
        """
        assert not self.abandoned and not self.finished
        self._host.stage(self.group, SnapshotSlice(self.stage, self.slices, data))
        self.slices += 1
        self.size_bytes += len(data)
        self._checksum = google_crc32c.extend(self._checksum, data)

    def finish(
        self,
        last: EntryId,
        configuration: Configuration,
        done: Callable[[Snapshot], None],
    ) -> None:
        """Switches to the added slices and drops the log up to ``last``, with the next transaction.

        Arguments:
            last: the last entry that the snapshot covers; applied and durable.
            configuration: the configuration at that entry, or at a later one that is applied.
            done: called with the snapshot once it is durable; never, if it was abandoned.
        """
        assert not self.abandoned and not self.finished and self.slices
        self.finished = True
        data = SnapshotData(self.stage, self.slices, self.size_bytes, self._checksum)
        snapshot = Snapshot(last, configuration, data)
        self._host.checkpoint(self.group, snapshot)
        self._host.replicas[self.group].raft.compact(last)

        def durable() -> None:
            if not self.abandoned:
                self._ended(self.group)
                done(snapshot)

        self._host.after_durable(durable)

    def abandon(self, *, exists: bool) -> None:
        """Abandons the checkpoint. Its staged slices become garbage if the replica still exists."""
        self.abandoned = True
        if exists and self.slices and not self.finished:
            self._host.unstage(self.group, self.stage)


class CheckpointWriter:
    """The checkpoints in progress, at most one per group.

    Arguments:
        rng: generates stage numbers.
    """

    def __init__(self, host: RaftHost, rng: random.Random, slice_bytes: int) -> None:
        self._host = host
        self._rng = rng
        self._slice_bytes = slice_bytes
        self._writing: dict[int, Checkpoint] = {}

    def __len__(self) -> int:
        return len(self._writing)

    def is_writing(self, group: int) -> bool:
        """True if a checkpoint of the group is in progress."""
        return group in self._writing

    def is_switching(self, group: int) -> bool:
        """True if the group's snapshot is about to be superseded: the switch to another has been submitted."""
        return group in self._writing and self._writing[group].finished

    def open(self, group: int) -> Checkpoint:
        """Opens a new checkpoint, to which slices can be added."""
        assert group not in self._writing
        checkpoint = Checkpoint(self._host, group, self._rng.getrandbits(64), self._ended)
        self._writing[group] = checkpoint
        return checkpoint

    def begin(
        self,
        group: int,
        last: EntryId,
        configuration: Configuration,
        data: bytes,
        done: Callable[[Snapshot], None],
    ) -> None:
        """Writes a state that is available as a whole, one slice with each transaction.

        Arguments:
            last: the last entry included in the state; applied and durable.
            configuration: the configuration at that entry.
            data: the state. It is sliced as it is written, so no second copy exists.
            done: called with the snapshot once it is durable; never, if it was abandoned.
        """
        checkpoint = self.open(group)

        def add_next_slice() -> None:
            if checkpoint.abandoned:
                return
            start = checkpoint.size_bytes
            checkpoint.add(data[start : start + self._slice_bytes])
            if checkpoint.size_bytes == len(data):
                checkpoint.finish(last, configuration, done)
            else:
                self._host.after_durable(add_next_slice)

        add_next_slice()

    def abandon(self, group: int) -> None:
        """Abandons the group's checkpoint: a received snapshot has replaced the state, or the replica has been
        removed."""
        checkpoint = self._writing.pop(group, None)
        if checkpoint is not None:
            checkpoint.abandon(exists=group in self._host.replicas)

    def _ended(self, group: int) -> None:
        del self._writing[group]

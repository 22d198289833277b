"""Writes snapshots of a node's own state machines, slice by slice, beside the log that they shorten.

One slice joins each transaction, so that a large image neither holds up the storage thread nor the groups that share
it. With the last slice the snapshot's row is pointed to them and the log before it is given up, in one transaction.
Until then the log stays whole; a crash leaves slices that opening sweeps away.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

from quorumlog.raft.types import Configuration, EntryId, Snapshot
from quorumlog.server.group_host import GroupHost
from quorumlog.storage.snapshot_slices import cut, describe


@dataclass(slots=True)
class _Writing:
    """A checkpoint of which ``staged`` slices have been handed over. ``done`` is told once all of it is durable."""

    group: int
    snapshot: Snapshot
    data: bytes
    done: Callable[[Snapshot], None]
    staged: int = 0


class CheckpointWriter:
    """The checkpoints that are being written, at most one per group.

    Arguments:
        rng: names stages.
    """

    def __init__(self, host: GroupHost, rng: random.Random, slice_bytes: int) -> None:
        self._host = host
        self._rng = rng
        self._slice_bytes = slice_bytes
        self._writing: dict[int, _Writing] = {}

    def is_writing(self, group: int) -> bool:
        """Whether a checkpoint of the group is under way."""
        return group in self._writing

    def begin(
        self,
        group: int,
        last: EntryId,
        configuration: Configuration,
        data: bytes,
        done: Callable[[Snapshot], None],
    ) -> None:
        """Starts to write a state.

        Arguments:
            last: the last entry that is in it; applied and durable.
            configuration: at that entry.
            data: the state. The only copy: it is cut as it is written.
            done: told of the snapshot once it is durable; never, if it was abandoned.
        """
        assert group not in self._writing
        described = describe(self._rng.getrandbits(64), data, self._slice_bytes)
        writing = _Writing(group, Snapshot(last, configuration, described), data, done)
        self._writing[group] = writing
        self._go_on(writing)

    def abandon(self, group: int) -> None:
        """A received snapshot has replaced the state: what is being written is older."""
        writing = self._writing.pop(group, None)
        if writing is not None and writing.staged < writing.snapshot.data.slices:
            self._host.unstage(group, writing.snapshot.data.stage)

    def _go_on(self, writing: _Writing) -> None:
        if self._writing.get(writing.group) is not writing:
            return
        group, snapshot = writing.group, writing.snapshot
        if writing.staged == snapshot.data.slices:
            del self._writing[group]
            writing.done(snapshot)
            return
        self._host.stage(group, cut(snapshot.data.stage, writing.data, self._slice_bytes, writing.staged))
        writing.staged += 1
        if writing.staged == snapshot.data.slices:
            self._host.checkpoint(group, snapshot)
            self._host.replicas[group].raft.compact(snapshot.last)
        self._host.after_durable(lambda: self._go_on(writing))

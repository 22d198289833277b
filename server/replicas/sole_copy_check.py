"""Reads a replica that will be the only copy of its partition, before the others are removed.

A disk may have lost an entry that was not read since. While there are other copies, that does no harm: a read of the
entry triggers its repair. When a partition is moved to one node, the others' replicas are destroyed, and entries that
only they had are lost. So the leader, which is the one that stays, reads all of its log first. Damaged entries are
repaired from the replicas that are about to leave, which stay until then.
"""

from __future__ import annotations

from collections.abc import Callable, Container
from dataclasses import dataclass
from functools import partial

from quorumlog.raft.group import RaftGroup
from quorumlog.server.hosting.entry_repair import EntryRepair
from quorumlog.server.step.events import EventLog, Job, JobDone
from quorumlog.storage.interface import DamageError, StorageReader

#: Bytes of entries that one job reads.
SLICE_BYTES = 1 << 20
#: The number of its jobs, one at a time: below those of the scrub and of damaged replicas.
_JOB = -(1 << 50)


@dataclass(slots=True)
class _LastCopyReading:
    """Progress of reading the log of one replica.

    Attributes:
        term: term of the leadership that needs it.
        following: the next entry to be read.
        last: later entries were written since the reading started, and are not read.
    """

    term: int
    following: int
    last: int

    @property
    def is_done(self) -> bool:
        return self.following > self.last


class LastCopyCheck:
    """Replicas that this node leads and that will be the only copy."""

    def __init__(
        self,
        storage: StorageReader,
        mender: EntryRepair,
        start_job: Callable[[Job], None],
        log: EventLog,
    ) -> None:
        self._storage = storage
        self._mender = mender
        self._start_job = start_job
        self._log = log
        self._readings: dict[int, _LastCopyReading] = {}
        #: The Raft group of which a slice is being read.
        self._busy: int | None = None

    def is_whole(self, raft: RaftGroup) -> bool:
        """True if a replica has been read to its end, and no damaged entry is left to repair. Called repeatedly; the
        first call starts to read.

        Arguments:
            raft: Raft group of the replica, which leads.
        """
        reading = self._readings.get(raft.group)
        if reading is None or reading.term != raft.term:
            reading = self._readings[raft.group] = _LastCopyReading(raft.term, raft.first_index, raft.durable_index)
        reading.following = max(reading.following, raft.first_index)
        if not reading.is_done:
            self._read_on(raft.group, reading)
        return reading.is_done and not self._mender.may_mend(raft.group)

    def forget_all_but(self, groups: Container[int]) -> None:
        """Keeps the progress of these groups only; another one is read from the start the next time."""
        for group in [group for group in self._readings if group not in groups]:
            del self._readings[group]

    def _read_on(self, group: int, reading: _LastCopyReading) -> None:
        if self._busy is None:
            self._busy = group
            self._start_job(Job(_JOB, partial(self._read, group, reading.following, reading.last)))

    def _read(self, group: int, first: int, last: int) -> int:
        """Reads a slice; returns the index after it. Called on the jobs' thread."""
        return self._storage.entries(group, first, last, SLICE_BYTES)[-1].index + 1

    def on_done(self, event: JobDone) -> None:
        """Handles the end of a slice.

        Raises:
            DamageError: something other than an entry of a log is damaged.
        """
        if event.number != _JOB or self._busy is None:
            return
        group, self._busy = self._busy, None
        reading = self._readings.get(group)
        if isinstance(event.error, LookupError):
            return  # The log now starts later: the next call continues from there.
        if isinstance(event.error, DamageError) and event.error.index is not None:
            self._mender.take_up(event.error)
            behind = event.error.index + 1
        elif event.error is not None:
            raise event.error
        else:
            assert isinstance(event.result, int)
            behind = event.result
        if reading is None:
            return
        reading.following = max(reading.following, behind)
        if reading.is_done:
            self._log("info", "last_copy_read", group=group, last_index=reading.last)
        else:
            self._read_on(group, reading)

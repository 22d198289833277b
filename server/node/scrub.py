"""Scrub of a node: everything on its disk is read again from time to time, slowly, in the background.

So damage is found while the other replicas still have the lost data, even where no client reads. The position of the
scrub is stored on disk, so a node that restarts often still completes a pass.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import cast

from quorumlog.server.config.options import ScrubOptions
from quorumlog.server.hosting.entry_repair import EntryRepair
from quorumlog.server.hosting.raft_host import RaftHost
from quorumlog.server.observability.metric_catalogue import Readings
from quorumlog.server.step.events import Job, JobDone
from quorumlog.server.step.node_service import ServiceHooks
from quorumlog.storage.interface import ScrubPosition, ScrubSlice, StorageReader

SCRUB_ROW = b"scrub"
_ROW = struct.Struct("<QQB")
#: Bytes of rows that one job reads: this takes a few milliseconds, during which an old commit must stay readable.
SLICE_BYTES = 256 << 10
#: Bytes read before the position is stored again; this is repeated after a restart.
KEPT_AFTER_BYTES = 64 << 20


class Scrub:
    """Reads the storage slice by slice, at its configured rate.

    Arguments:
        rows: the node's own state, as read from disk.
        start_job: reads a slice; answered with ``on_done``. These jobs have negative numbers.

    Attributes:
        read_bytes: since the process started.
        last_finished_ms: when the last complete pass ended, in milliseconds since the epoch; 0: never.
    """

    def __init__(
        self,
        options: ScrubOptions,
        rows: Mapping[bytes, bytes],
        host: RaftHost,
        storage: StorageReader,
        mender: EntryRepair,
        start_job: Callable[[Job], None],
    ) -> None:
        self._options = options
        self._host = host
        self._storage = storage
        self._mender = mender
        self._start_job = start_job
        self.read_bytes = 0
        self._position = ScrubPosition()
        self._began_ms = self.last_finished_ms = 0
        row = rows.get(SCRUB_ROW)
        if row is not None:
            self._began_ms, self.last_finished_ms, database = _ROW.unpack_from(row)
            self._position = ScrubPosition(database, row[_ROW.size :])
        self._kept_at = 0
        self._job = 0
        self._busy = False
        self._due: int | None = 0 if options.bytes_per_second else None

    def register(self, hooks: ServiceHooks) -> None:
        hooks.on_time(self.on_time)
        hooks.deadline(self)

    def set_rate(self, now: int, bytes_per_second: int) -> None:
        """Changes the maximum read rate; 0: no scrub. A slice that is being read is finished."""
        if bytes_per_second and self._due is None:
            self._due = now
        self._options = replace(self._options, bytes_per_second=bytes_per_second)

    @property
    def next_deadline(self) -> int | None:
        """The time at which ``on_time`` is due."""
        return None if self._busy else self._due

    def on_time(self, now: int, wall_ms: int) -> None:
        """Reads the next slice, if it is due."""
        if self._due is None or self._busy or now < self._due:
            return
        if not self._options.bytes_per_second:
            self._due = None
            return
        if self._position == ScrubPosition():
            wait_ms = self._began_ms + self._options.interval_ms - wall_ms
            # A clock that was ahead when the last pass started must not delay the next one for years.
            if self._began_ms and 0 < wait_ms <= self._options.interval_ms:
                self._due = now + wait_ms * 1_000
                return
            self._began_ms = wall_ms
        self._job -= 1
        self._busy = True
        self._due = now
        self._start_job(Job(self._job, partial(self._storage.scrub, self._position, SLICE_BYTES)))

    def on_done(self, now: int, wall_ms: int, event: JobDone) -> None:
        """Handles the result of reading a slice.

        Raises:
            DamageError: something other than a log entry is damaged.
        """
        if event.number != self._job or not self._busy:
            return
        self._busy = False
        if event.error is not None:
            raise event.error
        done = cast("ScrubSlice", event.result)
        for damage in done.found:
            if damage.index is None:
                raise damage
            self._mender.take_up(damage)
        self.read_bytes += done.read_bytes
        self._due = self._due_after(now, done.read_bytes)
        self._position = done.position or ScrubPosition()
        if done.position is None:
            self.last_finished_ms = wall_ms
            self._keep()
        elif self.read_bytes - self._kept_at >= KEPT_AFTER_BYTES:
            self._keep()

    def _due_after(self, now: int, read_bytes: int) -> int | None:
        """Returns when the next slice may be read after this many bytes; None: the scrub is switched off."""
        rate = self._options.bytes_per_second
        if not rate:
            return None
        return max(now, (now if self._due is None else self._due) + read_bytes * 1_000_000 // rate)

    def _keep(self) -> None:
        self._kept_at = self.read_bytes
        row = _ROW.pack(self._began_ms, self.last_finished_ms, self._position.database) + self._position.key
        self._host.set_node_state(SCRUB_ROW, row)

    def readings(self) -> Readings:
        """Returns the figures for metrics, by name."""
        return {"scrub_read_bytes": self.read_bytes, "scrub_last_finished_seconds": self.last_finished_ms / 1_000}

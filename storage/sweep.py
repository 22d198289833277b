"""Physical deletion, in slices, of rows that no longer have a meaning.

Compaction moves a group's anchor, destruction removes its configuration, and superseded or abandoned snapshots leave
their slices behind; each is one small write. What it leaves can be millions of rows, and deleting them at once would
block the writer for seconds and dirty pages without bound. The rows themselves show that they are garbage (an index at
or below the anchor, a group that does not exist, a stage that no snapshot names), so a crash between two slices needs
no bookkeeping: opening finds the rest again.
"""

from __future__ import annotations

from quorumlog.storage import rows
from quorumlog.storage.environment import EngineSource, EngineTransaction, Environment
from quorumlog.storage.garbage import MANY_PER_GROUP, Garbage
from quorumlog.storage.overflow_page_check import look_before_freeing
from quorumlog.storage.reading import LogReading


class Sweeper:
    """Deletes garbage within one LMDB transaction, up to a number of rows."""

    def __init__(self, environment: Environment, txn: EngineTransaction, max_deletes: int) -> None:
        self._environment = environment
        self._txn = txn
        self._databases = environment.databases
        self._reading = LogReading(EngineSource(environment, txn), environment.data_dir)
        self.left = max_deletes

    def sweep_all(self, garbage: Garbage) -> None:
        """Deletes as much as the limit permits, and removes what is finished from the list."""
        while garbage.logs and self.left > 0:
            group, anchor = next(iter(garbage.logs.items()))
            if self.sweep(group, anchor):
                del garbage.logs[group]
        while garbage.stages and self.left > 0:
            group, stage = next(iter(garbage.stages))
            if self.sweep_stage(group, stage):
                del garbage.stages[group, stage]

    def sweep(self, group: int, anchor: int | None) -> bool:
        """Deletes a Raft group's rows at or below index ``anchor``; with None, all rows of a destroyed group.

        Returns:
            True when nothing is left.
        """
        if anchor is None:
            prefix = rows.group_key(group)
            return all(self._delete_prefix(name, prefix) for name in MANY_PER_GROUP)
        return self._delete_entries(group, anchor) and self._delete_offsets(group, anchor)

    def sweep_stage(self, group: int, stage: int) -> bool:
        """Deletes the slices of a snapshot that is not referred to. Returns True when nothing is left."""
        return self._delete_prefix(rows.SLICES, rows.stage_key(group, stage))

    def _delete_prefix(self, database: bytes, prefix: bytes) -> bool:
        look_before_freeing(self._environment, database, prefix, lambda key: key.startswith(prefix), self.left)
        with self._txn.cursor(self._databases[database]) as cursor:
            cursor.set_range(prefix)
            while cursor.key().startswith(prefix):
                if not self._spend():
                    return False
                cursor.delete()
        return True

    def _delete_entries(self, group: int, anchor: int) -> bool:
        prefix, end = rows.group_key(group), rows.position_key(group, anchor + 1)
        look_before_freeing(self._environment, rows.ENTRIES, prefix, lambda key: key < end, self.left)
        with self._txn.cursor(self._databases[rows.ENTRIES]) as cursor:
            cursor.set_range(prefix)
            while prefix < cursor.key() < end:
                if not self._spend():
                    return False
                cursor.delete()
        return True

    def _delete_offsets(self, group: int, anchor: int) -> bool:
        prefix = rows.group_key(group)
        with self._txn.cursor(self._databases[rows.OFFSETS]) as cursor:
            cursor.set_range(prefix)
            while cursor.key().startswith(prefix) and self._reading.batch_row(cursor).index <= anchor:
                if not self._spend():
                    return False
                cursor.delete()
        return True

    def _spend(self) -> bool:
        self.left -= 1
        return self.left >= 0

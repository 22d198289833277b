"""Physical deletion, in slices, of rows that no longer mean anything.

Compaction moves a group's anchor and destruction removes its configuration; both are one small write. What that
leaves behind can be millions of rows, and deleting them at once would hold the writer for seconds and dirty pages
without bound. The rows themselves say that they are garbage (an index at or below the anchor, a group that does not
exist), so a crash between two slices needs no bookkeeping: opening finds the rest again.
"""

from __future__ import annotations

from quorumlog.storage import rows
from quorumlog.storage.environment import EngineSource, EngineTransaction, Environment
from quorumlog.storage.reading import LogReading


class Sweeper:
    """Deletes garbage within one LMDB transaction, up to a number of rows."""

    def __init__(self, environment: Environment, txn: EngineTransaction, max_deletes: int) -> None:
        self._txn = txn
        self._databases = environment.databases
        self._reading = LogReading(EngineSource(environment, txn), environment.data_dir)
        self.left = max_deletes

    def sweep(self, group: int, anchor: int | None) -> bool:
        """Deletes a group's rows at or below index ``anchor``; with None all that a destroyed group left.

        Returns:
            True when nothing is left.
        """
        if anchor is None:
            return all(self._delete_prefix(name, group) for name in (rows.ENTRIES, rows.OFFSETS, rows.TABLES))
        return self._delete_entries(group, anchor) and self._delete_offsets(group, anchor)

    def _delete_prefix(self, database: bytes, group: int) -> bool:
        prefix = rows.group_key(group)
        with self._txn.cursor(self._databases[database]) as cursor:
            cursor.set_range(prefix)
            while cursor.key().startswith(prefix):
                if not self._spend():
                    return False
                cursor.delete()
        return True

    def _delete_entries(self, group: int, anchor: int) -> bool:
        prefix, end = rows.group_key(group), rows.position_key(group, anchor)
        with self._txn.cursor(self._databases[rows.ENTRIES]) as cursor:
            cursor.set_range(prefix)
            while prefix < cursor.key() <= end:
                if not self._spend():
                    return False
                cursor.delete()
        return True

    def _delete_offsets(self, group: int, anchor: int) -> bool:
        prefix = rows.group_key(group)
        with self._txn.cursor(self._databases[rows.OFFSETS]) as cursor:
            cursor.set_range(prefix)
            while cursor.key().startswith(prefix) and self._reading.offset_row(cursor).index <= anchor:
                if not self._spend():
                    return False
                cursor.delete()
        return True

    def _spend(self) -> bool:
        self.left -= 1
        return self.left >= 0

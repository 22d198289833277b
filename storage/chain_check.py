"""The hash chain through the logs that a scrub reads: each entry follows the one before it, and none is missing.

An entry may be whole, with its right checksum, and yet be another than was written last: a disk that has lost a write
gives back what was there before. Only the entry after it tells.
"""

from __future__ import annotations

from collections.abc import Mapping

from quorumlog.storage.interface import DamageError
from quorumlog.storage.reading import LogReading, RaftGroupLog
from quorumlog.v1.entry import Envelope

#: Of the entries that are missing in one place, so many are named; the next scrub finds others.
MAX_MISSING = 100


class ChainCheck:
    """Follows entries in the order of their keys, from any of them on.

    Arguments:
        logs: their ends, at the commit that is read.

    Attributes:
        found: what is wrong between entries; what is wrong within one is for others to say.
    """

    def __init__(self, reading: LogReading, logs: Mapping[int, RaftGroupLog]) -> None:
        self._reading = reading
        self._logs = logs
        self.found: list[DamageError] = []
        #: Of the entry before: group, index, and hash, None of one that is damaged. None: the slice begins here.
        self._before: tuple[int, int, int | None] | None = None

    def follow(self, group: int, index: int, envelope: Envelope | None, entry_hash: int) -> None:
        """The next entry.

        Arguments:
            envelope: None if it is damaged.
        """
        log = self._logs.get(group)
        if log is None or not log.anchor.index < index <= log.last.index:
            # To be swept.
            self._before = (group, index, None)
            return
        known, known_hash = self._entry_before(log, group, index)
        for missing in range(known + 1, min(index, known + 1 + MAX_MISSING)):
            self.found.append(self._reading.damage(group, missing, "it is missing"))
        if envelope is not None and known + 1 == index and known_hash not in (None, envelope.previous_hash):
            if known == log.anchor.index:
                said = self._reading.damage(group, index, "it does not follow the anchor of its log (hash chain)")
                self.found.append(DamageError(str(said), group))
            else:
                self.found.append(self._reading.chain_damage(group, index, entry_hash))
        self._before = (group, index, None if envelope is None else entry_hash)

    def _entry_before(self, log: RaftGroupLog, group: int, index: int) -> tuple[int, int | None]:
        """Index and hash of the last entry that there is before one, or of the anchor."""
        if self._before is None and index - 1 > log.anchor.index:
            # The slice before this one has read it; that it is missing it cannot have seen.
            try:
                return index - 1, self._reading.entry_id(group, index - 1).hash
            except DamageError:
                return (index - 1 if self._reading.has_entry(group, index - 1) else index - 2), None
        if self._before is not None and self._before[0] == group and self._before[1] > log.anchor.index:
            return self._before[1], self._before[2]
        return log.anchor.index, log.anchor.hash

"""A replica's log: a tail in memory over the durable store, with commit and applied indexes.

In memory are all entries that are not durable yet, and before them some recent durable ones. Everything older is read
from the store. ``RaftLog`` is independent of roles and messages.
"""

from __future__ import annotations

from quorumlog.raft.errors import CompactedError, InvariantViolationError, UnreadableEntryError
from quorumlog.raft.types import ChainCheck, DurableToken, Entry, EntryId, LogStore, Snapshot


def size_of(entries: list[Entry]) -> int:
    """Returns the size of entries in bytes."""
    size = 0  # A loop, because this runs several times for every batch, mostly of one entry.
    for entry in entries:
        size += len(entry.data)
    return size


class RaftLog:
    """One replica's log.

    Attributes (indexes obey: anchor <= applied <= commit <= last; durable <= handed <= last):
        anchor: identity of the entry before the first one.
        last: identity of the last entry, the anchor's if the log is empty.
        commit_index: known to be committed. Never decreases.
        applied_index: handed out as committed.
        durable_index: synced here. Decreases when the tail is truncated, never below ``commit_index`` as it was
            durable.
        generation: counts truncations and installs. A write names the generation that it was made in: a completion from
            before a truncation does not apply to the entries written since at the same indexes (scenario 5: ABA).
    """

    __slots__ = (
        "_check_chain",
        "_entries",
        "_handed_index",
        "_memory_bytes",
        "_offset",
        "_snapshot",
        "_store",
        "_truncate_from",
        "_unreadable",
        "anchor",
        "applied_index",
        "commit_index",
        "durable_index",
        "generation",
        "last",
    )

    def __init__(
        self,
        *,
        store: LogStore,
        anchor: EntryId,
        last: EntryId,
        commit: int,
        applied: int,
        check_chain: ChainCheck | None = None,
    ) -> None:
        if not anchor.index <= applied <= last.index or commit > last.index:
            raise InvariantViolationError(
                f"a log from {anchor.index} to {last.index} cannot be applied up to {applied} "
                f"and committed to {commit}: the disk lost entries that were acknowledged"
            )
        self._store = store
        self._check_chain = check_chain
        self.anchor = anchor
        self.last = last
        self.commit_index = max(commit, applied)
        self.applied_index = applied
        self.durable_index = last.index
        self.generation = 0
        self._handed_index = last.index
        self._truncate_from: int | None = None
        self._unreadable = False
        self._snapshot: Snapshot | None = None
        self._entries: list[Entry] = []
        self._offset = last.index + 1
        self._memory_bytes = 0

    # -- reading ----------------------------------------------------------------------------------------------

    @property
    def first_index(self) -> int:
        """Index of the first entry kept; ``last.index + 1`` if none is."""
        return self.anchor.index + 1

    @property
    def memory_bytes(self) -> int:
        """Bytes of the entries in memory."""
        return self._memory_bytes

    @property
    def has_work(self) -> bool:
        """True if something was not handed out for writing yet, or ``deliver`` would return entries."""
        return (
            self._handed_index < self.last.index
            or self._snapshot is not None
            or self._truncate_from is not None
            or (self.applied_index < self.commit_index and not self._unreadable)
        )

    @property
    def has_pending_snapshot(self) -> bool:
        """True while an installed snapshot is not durable."""
        return self.durable_index < self.anchor.index

    def term_at(self, index: int) -> int:
        """Returns the term of the entry at ``index``, including the anchor.

        Raises:
            CompactedError: it is before the anchor.
        """
        if index >= self._offset:
            return self._entries[index - self._offset].term
        if index == self.last.index:
            return self.last.term
        if index == self.anchor.index:
            return self.anchor.term
        if index < self.anchor.index:
            raise CompactedError(index, self.first_index)
        return self._store.term_at(index)

    def id_at(self, index: int) -> EntryId:
        """Returns the identity of the entry at ``index``, including the anchor. Raises as ``term_at``."""
        if index == self.last.index:
            return self.last
        if index == self.anchor.index:
            return self.anchor
        entry = self.slice(index, index, 0)[0]
        return EntryId(entry.index, entry.term, entry.hash)

    def holds(self, index: int, term: int) -> bool:
        """True if the entry at ``index`` is here, with that term (Raft's log matching check)."""
        return self.anchor.index <= index <= self.last.index and self.term_at(index) == term

    def slice(self, first: int, last: int, max_bytes: int) -> list[Entry]:
        """Returns entries ``first..last`` inclusive, in memory or durable, cut at ``max_bytes``; at least one.

        Raises:
            CompactedError: ``first`` was compacted.
        """
        if first <= self.anchor.index:
            raise CompactedError(first, self.first_index)
        if not first <= last <= self.last.index:
            raise InvariantViolationError(f"entries {first}..{last} wanted of a log that ends at {self.last.index}")
        found: list[Entry] = []
        budget = max_bytes
        if first < self._offset:
            end = min(last, self._offset - 1)
            found = self._store.entries(first, end, max_bytes)
            budget -= size_of(found)
            if budget <= 0 or not found or found[-1].index < end or end == last:
                return found
            first = self._offset
        for entry in self._entries[first - self._offset : last - self._offset + 1]:
            budget -= len(entry.data)
            if budget < 0 and found:
                break
            found.append(entry)
        return found

    def last_at_most(self, high: int, term: int, low: int) -> int:
        """Returns the largest index in ``low..high`` whose term is at most ``term``; ``low - 1`` if none is.

        Terms never decrease along a log, so a binary search finds it with few reads. Both sides of a refused append
        skip whole terms with it (Raft §5.3, the fast backtracking).
        """
        low, high = max(low, self.anchor.index), min(high, self.last.index)
        floor = low - 1
        while low <= high:
            middle = (low + high) // 2
            if self.term_at(middle) <= term:
                floor = middle
                low = middle + 1
            else:
                high = middle - 1
        return floor

    # -- writing ----------------------------------------------------------------------------------------------

    def append(self, entries: list[Entry]) -> None:
        """Adds entries at the end. They become durable by ``take_unhanded`` and ``mark_durable``.

        Raises:
            InvariantViolationError: they do not follow the last one.
        """
        if entries[0].index != self.last.index + 1 or entries[0].term < self.last.term:
            raise InvariantViolationError(f"{entries[0][:2]} does not follow {self.last[:2]}")
        self._check(self.last, entries)
        self._extend(entries)

    def _check(self, previous: EntryId, entries: list[Entry]) -> None:
        if self._check_chain is not None:
            for entry in entries:
                self._check_chain(previous, entry)
                previous = EntryId(entry.index, entry.term, entry.hash)

    def _extend(self, entries: list[Entry]) -> None:
        self._entries.extend(entries)
        self._memory_bytes += size_of(entries)
        newest = entries[-1]
        self.last = EntryId(newest.index, newest.term, newest.hash)

    def merge(self, previous_index: int, entries: list[Entry]) -> int:
        """Merges a leader's entries, which follow ``previous_index``, into the log.

        Entries that are here already stay, and so do those after them: only an entry that conflicts, and all after it,
        are replaced. Otherwise a delayed, shorter duplicate would remove entries that were acknowledged since (scenario
        8).

        Returns:
            The last index up to which this log now equals the leader's.
        """
        fresh = self._count_held(entries) if previous_index < self.last.index else 0
        last_index = previous_index + len(entries)
        if fresh < len(entries):
            new = entries[fresh:] if fresh else entries
            # Checked before anything is truncated: damaged entries replace nothing.
            self._check(self.id_at(new[0].index - 1), new)
            if new[0].index <= self.last.index:
                self._truncate(new[0].index)
            self._extend(new)
        return last_index

    def _count_held(self, entries: list[Entry]) -> int:
        """Returns how many of a leader's entries are here already, from the first on.

        If neighbours are damaged, even the hash of the first of them is unknown, but a later entry decides: if it is
        here, so
        are all before it. If it is not, they are written again with it, in one write, so that nothing that was
        acknowledged is
        missing in between. Otherwise a leader that has others in their place would offer them forever.

        Raises:
            UnreadableEntryError: it is unknown, even from the last of them.
        """
        unknown: tuple[int, UnreadableEntryError] | None = None
        for place, entry in enumerate(entries):
            try:
                is_here = self._has(entry)
            except UnreadableEntryError as damage:
                if entry.term <= self.last.term:
                    unknown = unknown or (place, damage)
                    continue
                # Terms never decrease: nothing in this log has such a new one.
                is_here = False
            if not is_here:
                return place if unknown is None else unknown[0]
            unknown = None
        if unknown is not None:
            raise unknown[1]
        return len(entries)

    def _has(self, entry: Entry) -> bool:
        """True if a leader's entry is here. A damaged one is identified by its hash.

        A damaged entry may be one that was never committed and that no other node still has: then the leader's must
        replace it.
        """
        try:
            return self.holds(entry.index, entry.term)
        except UnreadableEntryError:
            return self._store.hash_at(entry.index) == entry.hash

    def commit_to(self, index: int) -> bool:
        """Records that entries up to ``index`` are committed. Returns True if that is new; ignores lower indexes."""
        if index <= self.commit_index:
            return False
        if index > self.last.index:
            raise InvariantViolationError(
                f"the leader counts on entry {index} here, but the log ends at {self.last.index}: "
                "acknowledged entries were lost from this disk"
            )
        self.commit_index = index
        return True

    def install(self, snapshot: Snapshot) -> None:
        """Replaces the whole log with a snapshot, to be written with the next ``take_unhanded``."""
        last = snapshot.last
        if last.index <= self.commit_index:
            # A lower index would un-apply what was acknowledged (scenario 6).
            raise InvariantViolationError(f"snapshot up to {last.index} is older than commit index {self.commit_index}")
        self.durable_index = min(self.durable_index, self.commit_index)
        self.generation += 1
        self.anchor = self.last = last
        self.commit_index = self.applied_index = self._handed_index = last.index
        self._entries = []
        self._memory_bytes = 0
        self._offset = last.index + 1
        self._truncate_from = None
        self._snapshot = snapshot

    def compact(self, up_to: EntryId) -> None:
        """Drops everything up to and including ``up_to``, the new anchor. The store drops it before or after."""
        if up_to.index <= self.anchor.index:
            return
        if up_to.index > min(self.applied_index, self.durable_index):
            raise InvariantViolationError(f"entries up to {up_to.index} are still needed: applied {self.applied_index}")
        if not self._may_be(up_to):
            raise InvariantViolationError(f"entry {up_to.index} is of another term than {up_to.term}")
        self.anchor = up_to
        if self._offset <= up_to.index:
            self._forget(up_to.index - self._offset + 1)

    def _may_be(self, entry: EntryId) -> bool:
        """True if that can be the entry here, damaged or not.

        If the next one is damaged, too, it is unknown; what will replace them was made of them while they were intact.
        """
        try:
            return self.term_at(entry.index) == entry.term
        except UnreadableEntryError:
            pass
        try:
            return self._store.hash_at(entry.index) == entry.hash
        except UnreadableEntryError:
            return True

    # -- durability -------------------------------------------------------------------------------------------

    def take_unhanded(self) -> tuple[Snapshot | None, int | None, list[Entry]]:
        """Returns what must be written and was not handed out before, in order: (snapshot, truncate_from, entries)."""
        snapshot, truncate_from = self._snapshot, self._truncate_from
        entries = self._entries[self._handed_index + 1 - self._offset :] if self._handed_index < self.last.index else []
        self._snapshot = None
        self._truncate_from = None
        self._handed_index = self.last.index
        return snapshot, truncate_from, entries

    def mark_durable(self, token: DurableToken) -> bool:
        """Records that a write is synced. Returns True if more of this log is durable than before."""
        if token.generation != self.generation or token.last.index <= self.durable_index:
            return False
        if token.last.index > self._handed_index:
            raise InvariantViolationError(
                f"entry {token.last.index} is said to be durable, but was never handed to storage: "
                f"what was ends at {self._handed_index}"
            )
        self.durable_index = token.last.index
        return True

    def deliver(self, max_bytes: int) -> list[Entry]:
        """Returns the next committed entries, in order; they count as applied from now on.

        A quorum holds them; this replica's own disk may be behind, as long as no trace of their application becomes
        durable before they do. Waiting for it would let a leader with a slow disk acknowledge records that its readers
        cannot see.
        """
        first, last = self.applied_index + 1, self.commit_index
        if first > last:
            return []
        try:
            entries = self.slice(first, last, max_bytes)
        except UnreadableEntryError:
            # Everything else continues: this log is appended to, acknowledged and voted with, as far as it is known.
            self._unreadable = True
            return []
        self.applied_index = entries[-1].index
        return entries

    def mended(self) -> None:
        """Records that an entry that was damaged in the store can be read again."""
        self._unreadable = False

    def trim(self, keep_bytes: int) -> None:
        """Removes the oldest entries from memory, as far as they are durable and applied, down to ``keep_bytes``."""
        if self._memory_bytes <= keep_bytes:
            return
        excess = self._memory_bytes - keep_bytes
        releasable = min(self.durable_index, self.applied_index) - self._offset + 1
        count = 0
        for entry in self._entries:
            if excess <= 0 or count >= releasable:
                break
            excess -= len(entry.data)
            count += 1
        if count:
            self._forget(count)

    def _forget(self, count: int) -> None:
        self._memory_bytes -= size_of(self._entries[:count])
        del self._entries[:count]
        self._offset += count

    def _truncate(self, index: int) -> None:
        if index <= self.commit_index:
            raise InvariantViolationError(
                f"entry {index} conflicts with a leader's, but {self.commit_index} is committed"
            )
        previous = self.id_at(index - 1)
        self.generation += 1
        if index <= self._handed_index:
            # A later, lower truncation includes an earlier one that was not handed out yet.
            self._truncate_from = index if self._truncate_from is None else min(index, self._truncate_from)
            self._handed_index = index - 1
        self.durable_index = min(self.durable_index, index - 1)
        self.last = previous
        kept = max(index - self._offset, 0)
        self._memory_bytes -= size_of(self._entries[kept:])
        del self._entries[kept:]
        self._offset = min(self._offset, index)

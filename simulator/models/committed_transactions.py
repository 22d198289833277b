"""The transactions of one partition by its committed log: what is open, and which batches count."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, field
from enum import Enum
from itertools import pairwise
from typing import NamedTuple

from quorumlog.v1.partition_log_pb2 import OpenTransaction
from quorumlog.wire.entry import Attributes, BatchHeader
from quorumlog.wire.kafka.control import LogPlace, decided_in


class BatchFate(Enum):
    """The state of a batch."""

    PLAIN = "outside of all transactions"
    OPEN = "of an open transaction"
    COMMITTED = "committed"
    ABORTED = "aborted"
    MARKER = "a marker"


class _Ended(NamedTuple):
    """A transaction that has ended.

    Arguments:
        index: of the entry with its marker.
        decided: where the coordinator's log has the decision.
    """

    producer_id: int
    first_offset: int
    marker_offset: int
    index: int  # type: ignore[assignment]
    commit: bool
    decided: LogPlace


@dataclass(slots=True)
class _Open:
    """A transaction that is open."""

    epoch: int
    first_offset: int
    enlisted: LogPlace


@dataclass(slots=True)
class CommittedTransactions:
    """The transactions of one log.

    Arguments:
        group: its Raft group, for messages.
        open: by producer.
        ended: by producer, in the order of the log.
    """

    group: int
    open: dict[int, _Open] = field(default_factory=dict)
    ended: dict[int, list[_Ended]] = field(default_factory=dict)
    _decided: dict[int, LogPlace] = field(default_factory=dict)
    #: The first open offset from each entry on; None: nothing is open.
    _first_open: list[tuple[int, int | None]] = field(default_factory=lambda: [(0, None)])

    def __bool__(self) -> bool:
        """True if the log has had a transaction."""
        return len(self._first_open) > 1

    def apply_open(self, command: OpenTransaction, index: int, next_offset: int) -> bool:
        """Applies a committed command; returns False if it has no effect."""
        enlisted = LogPlace(command.enlisted_term, command.enlisted_index)
        producer = command.producer_id
        if producer in self.open or enlisted <= self._decided.get(producer, LogPlace(0, 0)):
            return False
        self.open[producer] = _Open(command.producer_epoch, next_offset, enlisted)
        self._note(index)
        return True

    def apply_batch(self, header: BatchHeader, index: int, data: bytes) -> str:
        """Applies a committed batch; returns why no leader should have appended it, or an empty string."""
        producer = header.producer_id
        opened = self.open.get(producer)
        if not header.is_control:
            if header.is_transactional and (opened is None or opened.epoch != header.producer_epoch):
                return f"belongs to no open transaction of producer {producer}"
            if not header.is_transactional and opened is not None:
                return f"is of producer {producer}, whose transaction is open, and does not belong to it"
            return ""
        decided = decided_in(data)
        if opened is None or opened.enlisted > decided:
            return f"is a marker of producer {producer}'s decision at {decided}, which ends nothing"
        if decided <= self._decided.get(producer, LogPlace(0, 0)):
            return f"is another marker of producer {producer}'s decision at {decided}"
        del self.open[producer]
        self._decided[producer] = decided
        commit = bool(header.attributes & Attributes.COMMIT)
        self.ended.setdefault(producer, []).append(
            _Ended(producer, opened.first_offset, header.base_offset, index, commit, decided)
        )
        self._note(index)
        return ""

    def _note(self, index: int) -> None:
        first = min((each.first_offset for each in self.open.values()), default=None)
        self._first_open.append((index, first))

    def stable_at(self, index: int, high_watermark: int) -> int:
        """Returns the last stable offset once the entry at ``index`` is applied, of a log that starts at 0."""
        first = self._first_open[bisect_right(self._first_open, index, key=lambda each: each[0]) - 1][1]
        return high_watermark if first is None else min(first, high_watermark)

    def fate_of(self, header: BatchHeader) -> BatchFate:
        """Returns the state of a committed batch."""
        if header.is_control:
            return BatchFate.MARKER
        if not header.is_transactional:
            return BatchFate.PLAIN
        for each in self.ended.get(header.producer_id, ()):
            if each.first_offset <= header.base_offset < each.marker_offset:
                return BatchFate.COMMITTED if each.commit else BatchFate.ABORTED
        return BatchFate.OPEN

    def markers(self) -> list[tuple[int, LogPlace, bool]]:
        """Returns the producer, the place and the outcome of each decision that has a marker."""
        return [(each.producer_id, each.decided, each.commit) for ended in self.ended.values() for each in ended]

    def aborted_at(self, index: int) -> dict[int, tuple[int, int]]:
        """Returns the aborted transactions once the entry at ``index`` is applied: by the offset of the marker, the
        producer and the first offset."""
        return {
            each.marker_offset: (each.producer_id, each.first_offset)
            for ended in self.ended.values()
            for each in ended
            if each.index <= index and not each.commit
        }

    def never_goes_back(self) -> bool:
        """True if the last stable offset has only risen so far."""
        firsts = [first for _, first in self._first_open if first is not None]
        return all(before <= after for before, after in pairwise(firsts))

"""The transactions of a partition: those that are open, the newest decision of each producer, and the aborted ones.

The applied part is a function of the committed log alone, equal on every replica. It changes by two kinds of entries:
the command ``open_transaction``, and a marker, which ends a transaction. The overlay exists on a leader: it also has
the entries that are appended but not committed, and is rebuilt whenever a leadership starts, like that of producers.

The order of the coordinator's log is the fence. A partition joins a transaction at one place of that log, where it is
enlisted; the transaction ends where it is decided, in a later entry or in the same one, in which no other starts. A
partition opens nothing that was enlisted at or before the newest decision that it has of that producer, and a decision
ends nothing that was enlisted behind it. So whatever comes late or twice has no effect.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from quorumlog.server.partition.aborted_ranges import AbortedRange, AbortedRanges
from quorumlog.server.step.newest_decisions import NewestDecisions
from quorumlog.v1.partition_log_pb2 import OpenTransaction as OpenCommand
from quorumlog.wire.entry import Attributes, BatchHeader
from quorumlog.wire.kafka.control import LogPlace, decided_in

ROW_PREFIX = b"t"
#: Key of the row with the offset before which the log has no transactional batch. Without it the log has none at all.
BEGAN_ROW = b"x"
#: Limits of one partition.
MAX_OPEN = 5_000
MAX_ABORTED = 262_144

_NOWHERE = LogPlace(0, 0)
_ROW_KEY = struct.Struct(">cQ")
_ROW = struct.Struct("<BqqIQQQQ")
_BEGAN = struct.Struct("<q")
_IS_OPEN, _IS_DECIDED = 1, 2


class OpenedTransaction(NamedTuple):
    """A transaction that is open in a partition.

    Arguments:
        epoch: of its producer.
        first_offset: the end of the log when it was opened: none of its batches is before that.
        coordinator: the partition of the coordinator.
        enlisted: where the coordinator's log has the partition as part of the transaction.
    """

    epoch: int
    first_offset: int
    coordinator: int
    enlisted: LogPlace


_NEVER_OPEN = OpenedTransaction(0, 0, 0, _NOWHERE)


def opened_by(command: OpenCommand, first_offset: int) -> OpenedTransaction:
    """Returns the transaction that a command opens.

    Arguments:
        first_offset: the end of the log there.
    """
    enlisted = LogPlace(command.enlisted_term, command.enlisted_index)
    return OpenedTransaction(command.producer_epoch, first_offset, command.coordinator, enlisted)


class ProducerTransaction(NamedTuple):
    """A producer's transaction at the end of a log.

    Arguments:
        opened: the open one; None without one.
        decided: the newest decision; (0, 0) without any.
        marker_offset: of the marker that is not applied yet; -1 without one.
        index: the last entry of the log that is not applied yet and changed this; 0 without one.
    """

    opened: OpenedTransaction | None
    decided: LogPlace
    marker_offset: int = -1
    index: int = 0  # type: ignore[assignment]


class OpenTransactions:
    """The transactions of one partition.

    Attributes:
        open: by producer, the one with the lowest first offset first.
        aborted: the aborted ones.
        began: the log has no transactional batch before this offset; None: none at all.
    """

    __slots__ = ("_decided", "_dirty", "_first_seen", "_remembered", "_tail", "aborted", "began", "open")

    def __init__(self) -> None:
        self.open: dict[int, OpenedTransaction] = {}
        self.aborted = AbortedRanges()
        self.began: int | None = None
        self._decided: dict[int, LogPlace] = {}
        self._dirty: set[int] = set()
        self._tail: dict[int, ProducerTransaction] = {}
        # Leader only: decisions for which nothing was open, and since when this leadership has seen each as open (µs).
        self._remembered: NewestDecisions[int] = NewestDecisions()
        self._first_seen: dict[int, tuple[LogPlace, int]] = {}

    # -- the replicated state -------------------------------------------------------------------------------------

    @property
    def first_open(self) -> int | None:
        """The first offset of the transaction that has been open for longest; None if none is open."""
        for opened in self.open.values():
            return opened.first_offset
        return None

    def apply_open(self, producer_id: int, opened: OpenedTransaction, index: int) -> bool:
        """Opens a transaction by a committed command; returns False if it is over, or another one is open."""
        self._applied(producer_id, index)
        if producer_id in self.open or opened.enlisted <= self._decided.get(producer_id, _NOWHERE):
            return False
        self.open[producer_id] = opened
        if self.began is None:
            self.began = opened.first_offset
        self._dirty.add(producer_id)
        return True

    def apply_marker(self, header: BatchHeader, marker: bytes, index: int) -> None:
        """Ends a transaction by a committed marker, the entry at ``index``."""
        producer_id, offset, decided = header.producer_id, header.base_offset, decided_in(marker)
        self._applied(producer_id, index)
        opened = self.open.get(producer_id)
        if opened is not None and opened.enlisted <= decided:
            del self.open[producer_id]
            if not header.attributes & Attributes.COMMIT:
                first_open = self.first_open
                stable_offset = offset + 1 if first_open is None else first_open
                self.aborted.add(AbortedRange(producer_id, opened.first_offset, offset), stable_offset)
        self._decided[producer_id] = max(decided, self._decided.get(producer_id, _NOWHERE))
        self._dirty.add(producer_id)

    def _applied(self, producer_id: int, index: int) -> None:
        tail = self._tail.get(producer_id)
        if tail is not None and tail.index <= index:
            del self._tail[producer_id]

    def forget(self, producer_id: int) -> None:
        """Forgets the decision of a producer that is forgotten. It has no open transaction."""
        assert producer_id not in self.open
        if self._decided.pop(producer_id, None) is not None:
            self._dirty.add(producer_id)

    # -- on a leader ----------------------------------------------------------------------------------------------

    def known(self, producer_id: int) -> ProducerTransaction:
        """Returns the state of a producer's transaction, on a leader with its uncommitted entries."""
        tail = self._tail.get(producer_id)
        if tail is not None:
            return tail
        return ProducerTransaction(self.open.get(producer_id), self._decided.get(producer_id, _NOWHERE))

    def newest_decision(self, producer_id: int) -> LogPlace:
        """Returns the newest decision that this leader has of a producer, also one for which nothing was open."""
        return max(self.known(producer_id).decided, self._remembered.newest(producer_id))

    @property
    def count(self) -> int:
        """Number of open transactions, with those that are not committed yet."""
        return len(self.open) + sum(
            state.opened is not None and producer not in self.open for producer, state in self._tail.items()
        )

    def append_open(self, producer_id: int, opened: OpenedTransaction, index: int) -> None:
        """Records a command that a leader appended after its checks."""
        self._tail[producer_id] = ProducerTransaction(opened, self.known(producer_id).decided, -1, index)

    def append_marker(self, header: BatchHeader, marker: bytes, offset: int, index: int) -> None:
        """Records a marker that a leader appended after its checks."""
        self._tail[header.producer_id] = ProducerTransaction(None, decided_in(marker), offset, index)

    def drop_tail(self) -> None:
        """Drops what only a leader has, at the start and the end of a leadership."""
        self._tail.clear()
        self._remembered.clear()
        self._first_seen.clear()

    def remember(self, producer_id: int, decided: LogPlace, now: int) -> bool:
        """Remembers a decision for which nothing was open, for a minute; returns False if too many are remembered."""
        return self._remembered.remember(producer_id, decided, now)

    def open_longer_than(self, now: int, age_us: int) -> list[tuple[int, OpenedTransaction]]:
        """Returns the committed transactions that this leadership has known to be open for at least ``age_us``; one
        that it has not been asked about before counts from now."""
        seen = self._first_seen
        self._first_seen = {
            producer: seen[producer] if seen.get(producer, (None,))[0] == opened.enlisted else (opened.enlisted, now)
            for producer, opened in self.open.items()
        }
        return [
            (producer, self.open[producer])
            for producer, (_, since) in self._first_seen.items()
            if since <= now - age_us
        ]

    # -- rows -----------------------------------------------------------------------------------------------------

    def _row(self, producer_id: int) -> bytes | None:
        opened, decided = self.open.get(producer_id), self._decided.get(producer_id)
        if opened is None and decided is None:
            return None
        kind = _IS_OPEN * (opened is not None) | _IS_DECIDED * (decided is not None)
        epoch, first_offset, coordinator, enlisted = opened or _NEVER_OPEN
        return _ROW.pack(kind, epoch, first_offset, coordinator, *enlisted, *(decided or _NOWHERE))

    def take_rows(self) -> dict[bytes, bytes | None]:
        """Returns the rows that changed since the last call."""
        rows = self.aborted.take_rows()
        for producer in sorted(self._dirty):
            rows[_ROW_KEY.pack(ROW_PREFIX, producer)] = self._row(producer)
        if self._dirty and self.began is not None:
            rows[BEGAN_ROW] = _BEGAN.pack(self.began)
        self._dirty.clear()
        return rows

    def rows(self) -> dict[bytes, bytes]:
        """Returns every row of the applied part, for a snapshot."""
        if self.began is None:
            return {}
        rows = dict(self.aborted.rows())
        rows[BEGAN_ROW] = _BEGAN.pack(self.began)
        for producer in {**self.open, **self._decided}:
            row = self._row(producer)
            assert row is not None
            rows[_ROW_KEY.pack(ROW_PREFIX, producer)] = row
        return rows

    @classmethod
    def of_table(cls, rows: dict[bytes, bytes]) -> OpenTransactions | None:
        """Returns the transactions in a partition's table; None if its log has none."""
        if BEGAN_ROW not in rows:
            return None
        made = cls()
        (made.began,) = _BEGAN.unpack(rows[BEGAN_ROW])
        made.aborted.load(rows)
        found: list[tuple[int, OpenedTransaction]] = []
        for key, row in rows.items():
            if key[:1] != ROW_PREFIX:
                continue
            kind, epoch, first_offset, coordinator, *places = _ROW.unpack(row)
            producer = _ROW_KEY.unpack(key)[1]
            if kind & _IS_OPEN:
                found.append((producer, OpenedTransaction(epoch, first_offset, coordinator, LogPlace(*places[:2]))))
            if kind & _IS_DECIDED:
                made._decided[producer] = LogPlace(*places[2:])
        made.open.update(sorted(found, key=lambda item: item[1].first_offset))
        return made

"""The idempotent producers of a partition: the applied table, and an overlay of the uncommitted tail.

The applied part is a function of the committed log alone, equal on every replica. The overlay exists on a leader: it
also has the batches that are appended but not committed. It is rebuilt whenever a leadership starts; without that, a
deposed leader would keep a truncated batch and later call its retry a duplicate (KIP-98, raft.md 22).

A batch is a duplicate if the log has it: one of the producer's last five, which is answered with its offset, or an
older one of the same epoch, whose offset is no longer known. The log accepts only the next sequence, so that it has
every sequence below that. In a replayable epoch a duplicate must also have the content of the original.

The decision to forget a producer is in the log, and every replica applies it alike. Unnamed producers are forgotten
when they have been inactive for long, by a command of the leader; and when there are too many, the one whose last batch
is oldest in the order of the log.

Named identities are forgotten when their names are deleted, never before; a batch of one too many is refused. A leader
that has not been notified of the deletion yet could then append their batches a second time. So the command that
forgets them names the entry of the metadata log that deleted them. A node that has not applied that entry accepts no
batch of a named identity that is not known here. Nor does any node of an identity that is not in its metadata: ids that
were never assigned would take up all the places, and could not be deleted.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from operator import itemgetter

from quorumlog.server.metadata.producer_names import NamedProducers
from quorumlog.server.partition.epoch_digests import MAX_EPOCH_BATCHES, EpochDigests
from quorumlog.server.partition.open_transactions import OpenTransactions
from quorumlog.server.partition.producer_records import RestoredProducer, record_of
from quorumlog.server.partition.producer_state import (
    ProducerState,
    decode,
    encode,
    is_named,
    with_batch,
    without_batches,
)
from quorumlog.v1.admin_pb2 import ProducerRecord
from quorumlog.v1.errors_pb2 import ErrorCode
from quorumlog.wire.entry import SEQUENCE_MODULUS, BatchHeader

ROW_PREFIX = b"p"
#: Key of the row with the index of the metadata entry since which named producers may have been forgotten.
FORGOTTEN_ROW = b"f"
#: Key of the row that exists once the log has a command to count named producers separately.
NAMED_APART_ROW = b"n"
DIGEST_ROW_PREFIX = b"d"
_ROW_KEY = struct.Struct(">cQ")
_FORGOTTEN = struct.Struct("<Q")
_DIGEST_ROW_KEY = struct.Struct(">cQH")


@dataclass(slots=True, frozen=True)
class DuplicateBatch:
    """The batch is in the log already.

    Arguments:
        log_index: the entry that must be committed before the batch may be acknowledged.
        base_offset: offset of the batch; -1 if it is older than those remembered.
    """

    log_index: int
    base_offset: int


@dataclass(slots=True, frozen=True)
class Refused:
    """The batch must not be appended."""

    code: ErrorCode.ValueType
    message: str


def nobody_has_claimed() -> NamedProducers:
    """Returns no names, for partitions without metadata."""
    return NamedProducers()


class ProducerTable:
    """Producers of one partition.

    Arguments:
        limit: maximum number of unnamed producers, and in addition four fifths as many named ones. The same on every
            replica: beyond it the unnamed producer that has been inactive for longest (in log order) is forgotten, as
            batches are applied. Before ``count_named_apart`` named producers count, too.
        names: returns the named identities that this node has.
    """

    __slots__ = (
        "_applied", "_digests", "_dirty", "_dirty_digests", "_forgotten_dirty", "_forgotten_index", "_limit", "_named",
        "_named_apart_dirty", "_names", "_tail", "named_apart", "transactions",
    )  # fmt: skip

    def __init__(self, limit: int, names: Callable[[], NamedProducers] = nobody_has_claimed) -> None:
        # Both in the order of last use, which is the log's.
        self._applied: dict[int, ProducerState] = {}
        self._named: dict[int, ProducerState] = {}
        self._tail: dict[int, ProducerState] = {}
        #: By producer and epoch: until a new epoch's first batch is applied, the one before may become current again.
        self._digests: dict[tuple[int, int], EpochDigests] = {}
        self._limit = limit
        self._names = names
        #: The transactions of the partition: a producer with an open one is never forgotten.
        self.transactions: OpenTransactions | None = None
        #: Deletions up to this entry of the metadata log have made the log forget named identities.
        self._forgotten_index = 0
        self._forgotten_dirty = False
        #: True if the log states that named producers do not count when an unnamed one must be forgotten.
        self.named_apart = self._named_apart_dirty = False
        self._dirty: set[int] = set()
        #: Rows of digests to be written or deleted, as a half-open range.
        self._dirty_digests: dict[int, tuple[int, int]] = {}

    # -- on a leader ----------------------------------------------------------------------------------------------

    def check(self, header: BatchHeader, digest: int = 0) -> DuplicateBatch | Refused | None:
        """Returns None if a batch may be appended now; otherwise the reason.

        Arguments:
            digest: digest of its content, in a replayable epoch.
        """
        known = self.known(header.producer_id)
        newest = known.epoch if known is not None else -1
        if is_named(header.producer_id):
            refused = self._check_identity(header.producer_id, known)
            if refused is not None:
                return refused
            # The log fences by the epochs that it has seen; the metadata do if the new holder has not written yet.
            newest = max(newest, self._names().epoch_of(header.producer_id))
        if header.producer_epoch < newest:
            return Refused(
                ErrorCode.INVALID_PRODUCER_EPOCH,
                f"producer {header.producer_id} has epoch {newest}; epoch {header.producer_epoch} is fenced: another"
                " instance has taken over",
            )
        if known is None or header.producer_epoch > known.epoch:
            return self._check_first(header, known)
        if header.replayable is not known.replayable:
            return Refused(
                ErrorCode.DUPLICATE_SEQUENCE_MISMATCH,
                f"epoch {known.epoch} of producer {header.producer_id} was started as one that"
                f" {'can' if known.replayable else 'cannot'} be replayed; claim a later epoch",
            )
        if known.replayable:
            return self._check_replayable(header, digest, known)
        return _check_sequence(header, known)

    def _check_identity(self, producer_id: int, known: ProducerState | None) -> Refused | None:
        """Returns the refusal if a named identity does not exist according to this node's metadata, or was deleted."""
        names = self._names()
        if names.is_deleted(producer_id):
            return Refused(
                ErrorCode.INVALID_PRODUCER_EPOCH,
                f"the name of producer {producer_id} was deleted: its earlier holders can no longer write; open"
                " a new producer",
            )
        if known is None and names.deleted_index < self._forgotten_index:
            # It may be one whose deletion this node has not applied. The log had its batches, and does not recognise
            # them any longer: a retry of the first would be appended again.
            return Refused(
                ErrorCode.SERVER_BUSY, "this node has yet to learn which producer names were deleted; try again shortly"
            )
        if known is None and not names.is_claimed(producer_id):
            # The id is invented, or so new that this node's metadata do not have it yet. If accepted, an invented one
            # would keep its place permanently: there is no name to delete.
            return Refused(
                ErrorCode.SERVER_BUSY,
                f"no name has producer id {producer_id} in this node's metadata; try again shortly if it was claimed"
                " just now, otherwise claim a name",
            )
        return None

    def known(self, producer_id: int) -> ProducerState | None:
        """Returns the state of a producer, on a leader with its uncommitted batches; None if it is not known."""
        return self._tail.get(producer_id) or self._table_of(producer_id).get(producer_id)

    def _table_of(self, producer_id: int) -> dict[int, ProducerState]:
        return self._named if is_named(producer_id) else self._applied

    def _check_first(self, header: BatchHeader, known: ProducerState | None) -> Refused | None:
        """Checks the first batch of an epoch, or of a producer."""
        if header.base_sequence != 0 and known is None:
            return Refused(
                ErrorCode.UNKNOWN_PRODUCER_ID,
                f"producer {header.producer_id} is not known here and starts with sequence"
                f" {header.base_sequence}; open a new producer",
            )
        if header.base_sequence != 0:
            return Refused(
                ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
                f"epoch {header.producer_epoch} of producer {header.producer_id} starts with sequence"
                f" {header.base_sequence}, not 0",
            )
        if known is None and is_named(header.producer_id):
            named = len(self._named) + sum(is_named(each) and each not in self._named for each in self._tail)
            if named >= self._most_named:
                return Refused(
                    ErrorCode.PRODUCER_LIMIT_EXCEEDED,
                    f"{self._most_named} named producers have written to this partition, which is the limit: use the"
                    " names again, or delete unused ones (quorumlog producers delete)",
                )
        return None

    def _check_replayable(
        self, header: BatchHeader, digest: int, known: ProducerState
    ) -> DuplicateBatch | Refused | None:
        digests = self._digests[header.producer_id, known.epoch]
        if header.base_sequence == known.next_sequence:
            # Counted, not derived from the sequence: in an epoch that has wrapped around nothing could be recognised.
            if len(digests) < MAX_EPOCH_BATCHES and known.records + header.record_count < SEQUENCE_MODULUS:
                return None
            return Refused(
                ErrorCode.PRODUCER_LIMIT_EXCEEDED,
                f"epoch {known.epoch} of producer {header.producer_id} has {len(digests)} batches in this partition; at"
                f" most {MAX_EPOCH_BATCHES} and 2^31 records can be replayed: send larger batches or more epochs",
            )
        if header.base_sequence > known.next_sequence:
            return _out_of_order(header, known)
        if digests.holds(header.base_sequence, digest):
            batch = known.remembered(header)
            if batch is None:
                return DuplicateBatch(known.last.log_index, -1)
            return DuplicateBatch(batch.log_index, batch.base_offset)
        return Refused(
            ErrorCode.DUPLICATE_SEQUENCE_MISMATCH,
            f"sequence {header.base_sequence} of epoch {known.epoch} of producer {header.producer_id} is in the log"
            " with other records: the replay differs from what was sent first; nothing was appended",
        )

    def next_sequence(self, producer_id: int) -> int:
        """Returns the sequence after a known producer's newest batch."""
        known = self.known(producer_id)
        assert known is not None
        return known.next_sequence

    def append(self, header: BatchHeader, base_offset: int, index: int, digest: int = 0) -> None:
        """Records a batch that `check` allowed and a leader appended."""
        if header.producer_id < 0:
            return
        state = with_batch(self.known(header.producer_id), header, base_offset, index)
        self._tail[header.producer_id] = state
        if state.replayable:
            self._digests_of(header).append(header.base_sequence, digest)

    def _digests_of(self, header: BatchHeader) -> EpochDigests:
        return self._digests.setdefault((header.producer_id, header.producer_epoch), EpochDigests())

    def rebuild_tail(self, uncommitted: Iterable[tuple[BatchHeader, int, int]]) -> None:
        """Rebuilds the overlay at the start of a leadership, from the log after the applied part: (header, index,
        digest) in order."""
        self.drop_tail()
        for header, index, digest in uncommitted:
            self.append(header, header.base_offset, index, digest)

    def drop_tail(self) -> None:
        """Drops the overlay at the end of a leadership."""
        self._tail.clear()
        for key, digests in list(self._digests.items()):
            digests.drop_tail()
            if not digests:
                del self._digests[key]

    # -- the replicated state -------------------------------------------------------------------------------------

    def apply(self, header: BatchHeader, index: int, digest: int = 0) -> None:
        """Records a committed batch."""
        producer = header.producer_id
        if producer < 0:
            return
        table = self._table_of(producer)
        # Removed and inserted again: the dict's order is the order of last use, the same on every replica.
        before = table.pop(producer, None)
        state = table[producer] = with_batch(before, header, header.base_offset, index)
        self._dirty.add(producer)
        if before is not None and before.replayable and before.epoch < state.epoch:
            self._mark_digests(producer, 0, self._digests.pop((producer, before.epoch)).rows)
        if state.replayable:
            digests = self._digests_of(header)
            digests.apply(header.base_sequence, digest)
            self._mark_digests(producer, digests.rows - 1, digests.rows)
        tail = self._tail.get(producer)
        if tail is not None and tail.last.log_index <= index:
            del self._tail[producer]
        self._forget_one_too_many()

    def _forget_one_too_many(self) -> None:
        # Named producers have a limit of their own: they must not shorten how long the others are remembered.
        counted = len(self._applied) if self.named_apart else len(self)
        if counted > self._limit and (oldest := self._oldest()) is not None:
            self._forget(oldest)

    def _oldest(self) -> int | None:
        """Returns the unnamed producer that has been inactive for longest, of those that may be forgotten."""
        return next(filter(self._may_forget, self._applied), None)

    def _may_forget(self, producer: int) -> bool:
        return self.transactions is None or producer not in self.transactions.open

    def raise_epoch(self, producer: int, epoch: int, offset: int, index: int, *, applied: bool) -> None:
        """Starts an epoch of an unnamed producer by an entry of a transaction: earlier ones are fenced from there on.
        It has no effect if the producer has that epoch already, or a later one.

        Arguments:
            offset: the end of the log there.
            index: of the entry.
            applied: the entry is committed; otherwise a leader has appended it.
        """
        known = self._applied.get(producer) if applied else self.known(producer)
        if known is not None and known.epoch >= epoch:
            return
        state = without_batches(epoch, offset, index)
        if not applied:
            self._tail[producer] = state
            return
        self._applied.pop(producer, None)
        self._applied[producer] = state
        self._dirty.add(producer)
        tail = self._tail.get(producer)
        if tail is not None and tail.last.log_index <= index:
            del self._tail[producer]
        self._forget_one_too_many()

    def _mark_digests(self, producer: int, first: int, end: int) -> None:
        marked = self._dirty_digests.get(producer, (first, end))
        self._dirty_digests[producer] = (min(first, marked[0]), max(end, marked[1]))

    def forget(self, up_to_index: int) -> None:
        """Forgets the unnamed producers whose last batch is at or below an index."""
        for producer, state in list(self._applied.items()):
            if state.last.log_index > up_to_index:
                return
            if self._may_forget(producer):
                self._forget(producer)

    def forget_named(self, producers: Iterable[int], deleted_index: int) -> None:
        """Forgets named identities whose names are deleted.

        Arguments:
            deleted_index: a node that has not applied this entry of the metadata log may not have the deletions.
        """
        self._forgotten_index = max(self._forgotten_index, deleted_index)
        self._forgotten_dirty = True
        for producer in producers:
            # The uncommitted state is removed too: once applied it is known again, until the next such command.
            known = self._named.pop(producer, None), self._tail.pop(producer, None)
            if known[0] is not None:
                self._dirty.add(producer)
            for state in known:
                digests = self._digests.pop((producer, state.epoch), None) if state is not None else None
                if digests is not None and digests.rows:
                    self._mark_digests(producer, 0, digests.rows)

    def restore(self, producers: Iterable[RestoredProducer]) -> None:
        """Adds producers from a backup, each in place of its present state."""
        # In the order of their ids, as `load` finds them: all of one command have the same index.
        for producer, state, digests in sorted(producers, key=itemgetter(0)):
            if is_named(producer):
                self.count_named_apart()
            table = self._table_of(producer)
            before = table.pop(producer, None)
            if before is not None and before.replayable:
                self._mark_digests(producer, 0, self._digests.pop((producer, before.epoch)).rows)
            table[producer] = state
            self._dirty.add(producer)
            if digests is not None:
                self._digests[producer, state.epoch] = digests
                self._mark_digests(producer, 0, digests.rows)
        while len(self._applied) > self._limit and (oldest := self._oldest()) is not None:
            self._forget(oldest)

    def has_room_for(self, producers: Iterable[int]) -> bool:
        """True if the named identities among some producers fit within the limit."""
        return len(self._named.keys() | filter(is_named, producers)) <= self._most_named

    @property
    def _most_named(self) -> int:
        return max(1, self._limit * 4 // 5)

    def records(self, after: int) -> Iterator[ProducerRecord]:
        """Yields the backup records of the applied part: the producers with ids above ``after``, in their order."""
        for producer in sorted(each for each in (*self._applied, *self._named) if each > after):
            state = self._table_of(producer)[producer]
            if not state.records:
                continue  # Only transactions without records have started its epoch.
            yield record_of(producer, state, self._digests[producer, state.epoch] if state.replayable else None)

    def states(self, after: int) -> Iterator[tuple[int, ProducerState]]:
        """Yields the producers of the applied part with ids above ``after``, in their order."""
        for producer in sorted(each for each in (*self._applied, *self._named) if each > after):
            yield producer, self._table_of(producer)[producer]

    def count_named_apart(self) -> None:
        """Counts only unnamed producers towards their limit from now on. The log contains the entry where that starts:
        an older node counts all, and every replica must forget the same."""
        self.named_apart = self._named_apart_dirty = True

    def deleted(self) -> list[int]:
        """Returns the remembered named identities whose names are deleted according to this node's metadata."""
        is_deleted = self._names().is_deleted
        return sorted(producer for producer in {*self._named, *self._tail} if is_deleted(producer))

    @property
    def has_named(self) -> bool:
        """True if a named identity is remembered."""
        return bool(self._named) or any(map(is_named, self._tail))

    def _forget(self, producer: int) -> None:
        del self._applied[producer]
        self._dirty.add(producer)
        if self.transactions is not None:
            self.transactions.forget(producer)

    @property
    def oldest_index(self) -> int | None:
        """Index of the last batch of the unnamed producer that has been inactive for longest, of those that may be
        forgotten."""
        oldest = self._oldest()
        return None if oldest is None else self._applied[oldest].last.log_index

    def __len__(self) -> int:
        return len(self._applied) + len(self._named)

    # -- rows -----------------------------------------------------------------------------------------------------

    def take_rows(self) -> dict[bytes, bytes | None]:
        """Returns the rows of the applied part that changed since the last call."""
        rows: dict[bytes, bytes | None] = {}
        for producer in sorted(self._dirty):
            state = self._table_of(producer).get(producer)
            rows[_ROW_KEY.pack(ROW_PREFIX, producer)] = None if state is None else encode(state)
        for producer, (first, end) in sorted(self._dirty_digests.items()):
            state = self._named.get(producer)
            digests = self._digests.get((producer, state.epoch)) if state is not None else None
            for number in range(first, end):
                row = digests.row(number) if digests is not None else None
                rows[_DIGEST_ROW_KEY.pack(DIGEST_ROW_PREFIX, producer, number)] = row
        if self._forgotten_dirty:
            rows[FORGOTTEN_ROW] = _FORGOTTEN.pack(self._forgotten_index)
        if self._named_apart_dirty:
            rows[NAMED_APART_ROW] = b"\x01"
        self._forgotten_dirty = self._named_apart_dirty = False
        self._dirty.clear()
        self._dirty_digests.clear()
        return rows

    def rows(self) -> dict[bytes, bytes]:
        """Returns every row of the applied part, for a snapshot."""
        rows: dict[bytes, bytes] = {}
        if self._forgotten_index:
            rows[FORGOTTEN_ROW] = _FORGOTTEN.pack(self._forgotten_index)
        if self.named_apart:
            rows[NAMED_APART_ROW] = b"\x01"
        for producer, state in (*self._applied.items(), *self._named.items()):
            rows[_ROW_KEY.pack(ROW_PREFIX, producer)] = encode(state)
            digests = self._digests.get((producer, state.epoch))
            for number in range(digests.rows if digests is not None else 0):
                row = digests.row(number) if digests is not None else None
                assert row is not None
                rows[_DIGEST_ROW_KEY.pack(DIGEST_ROW_PREFIX, producer, number)] = row
        return rows

    def load(self, rows: dict[bytes, bytes]) -> None:
        """Replaces the state by the applied part in the partition's table rows."""
        states: list[tuple[int, ProducerState]] = []
        digest_rows: dict[int, list[bytes]] = {}
        for key, value in sorted(rows.items()):
            if key[:1] == ROW_PREFIX:
                states.append((_ROW_KEY.unpack(key)[1], decode(value)))
            elif key[:1] == DIGEST_ROW_PREFIX:
                digest_rows.setdefault(_DIGEST_ROW_KEY.unpack(key)[1], []).append(value)
        states.sort(key=lambda item: item[1].last.log_index)
        for kept in (self._applied, self._named, self._tail, self._digests, self._dirty, self._dirty_digests):
            kept.clear()
        (self._forgotten_index,) = _FORGOTTEN.unpack(rows[FORGOTTEN_ROW]) if FORGOTTEN_ROW in rows else (0,)
        self.named_apart = NAMED_APART_ROW in rows
        self._forgotten_dirty = self._named_apart_dirty = False
        for producer, state in states:
            self._table_of(producer)[producer] = state
            if state.replayable:
                self._digests[producer, state.epoch] = EpochDigests.from_rows(digest_rows[producer])


def _check_sequence(header: BatchHeader, known: ProducerState) -> DuplicateBatch | Refused | None:
    if header.base_sequence == known.next_sequence:
        return None
    batch = known.remembered(header)
    if batch is not None:
        return DuplicateBatch(batch.log_index, batch.base_offset)
    if known.is_older(header):
        # The newest batch represents all before it: once it is committed, so are they.
        return DuplicateBatch(known.last.log_index, -1)
    return _out_of_order(header, known)


def _out_of_order(header: BatchHeader, known: ProducerState) -> Refused:
    return Refused(
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        f"producer {header.producer_id} sent sequence {header.base_sequence};"
        f" {known.next_sequence} comes next; send the earlier batches first",
    )

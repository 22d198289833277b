"""The transactions in which the consumer groups of one coordinator take part, as far as its leader has learned.

The log holds pending offsets. A leader also remembers, for its term: the groups that are enlisted, and decisions that
it has received. An answer to an enlistment counts only in the term in which it was requested. So a new leader needs no
decisions of former terms: it asks the coordinator of the transaction again, which refuses a transaction that is over.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from quorumlog.server.deciding.transaction_participants import Identity, OpenHere, Participant
from quorumlog.server.groups.group_table import GroupTable
from quorumlog.server.step.newest_decisions import NewestDecisions
from quorumlog.wire.kafka.control import LogPlace

#: Maximum number of enlisted groups that a leader remembers. One that is forgotten is enlisted again.
MAX_ENLISTED = 65_536

_NOWHERE = LogPlace(0, 0)


class _Key(NamedTuple):
    """A producer in a consumer group."""

    group_id: str
    producer_id: int


@dataclass(slots=True)
class _Enlisted:
    """A group that takes part in a transaction. ``transactional_id`` is empty until a commit has requested it."""

    transaction: OpenHere
    transactional_id: str = ""


class EnlistedGroups:
    """The transactions of the consumer groups of one coordinator, during one term of its leader."""

    def __init__(self) -> None:
        self._enlisted: dict[_Key, _Enlisted] = {}
        self._received: NewestDecisions[_Key] = NewestDecisions()
        #: Since when this leader has seen the pending offsets of each transaction (µs).
        self._seen: dict[_Key, tuple[LogPlace, int]] = {}

    def open(self, transaction: OpenHere) -> bool:
        """Adds a transaction that the coordinator has confirmed. Returns False if it is over."""
        key = _Key(transaction.participant.group_id, transaction.identity.producer_id)
        if transaction.place <= self._received.newest(key):
            return False
        known = self._enlisted.pop(key, None)
        is_same = known is not None and known.transaction == transaction
        if len(self._enlisted) >= MAX_ENLISTED:
            del self._enlisted[next(iter(self._enlisted))]
        self._enlisted[key] = known if known is not None and is_same else _Enlisted(transaction)
        return True

    def requested_by(self, group_id: str, identity: Identity, transactional_id: str) -> None:
        """Records the transactional id whose producer has enlisted a group."""
        enlisted = self._enlisted.get(_Key(group_id, identity.producer_id))
        if enlisted is not None and enlisted.transaction.identity == identity:
            enlisted.transactional_id = transactional_id

    def transaction_of(self, group_id: str, identity: Identity, transactional_id: str) -> OpenHere | None:
        """Returns the transaction of a producer in which a group is enlisted; None if the coordinator must be asked."""
        enlisted = self._enlisted.get(_Key(group_id, identity.producer_id))
        if enlisted is None or enlisted.transaction.identity != identity:
            return None
        return enlisted.transaction if enlisted.transactional_id == transactional_id else None

    def decided(self, now_us: int, group_id: str, producer_id: int, decided: LogPlace) -> bool:
        """Records a decision: no offset of a transaction that started at or before its place is stored from now on.
        Returns False if too many decisions are remembered.

        Arguments:
            now_us: microseconds.
        """
        key = _Key(group_id, producer_id)
        enlisted = self._enlisted.get(key)
        if enlisted is not None and enlisted.transaction.place <= decided:
            del self._enlisted[key]
        return self._received.remember(key, decided, now_us)

    def pending_longer_than(self, now_us: int, table: GroupTable, age_us: int) -> Iterator[OpenHere]:
        """Yields the transactions whose pending offsets this leader has seen for at least ``age_us``. One that it has
        not been asked about before counts from now.

        Arguments:
            now_us: microseconds.
        """
        seen, self._seen = self._seen, {}
        for group_id in table.with_pending:
            for producer_id, pending in table.groups[group_id].pending.items():
                key = _Key(group_id, producer_id)
                place, since_us = seen.get(key, (_NOWHERE, now_us))
                if place != pending.place:
                    since_us = now_us
                self._seen[key] = (pending.place, since_us)
                if since_us <= now_us - age_us:
                    identity = Identity(producer_id, pending.epoch)
                    yield OpenHere(Participant(b"", 0, group_id), identity, pending.coordinator, pending.place)

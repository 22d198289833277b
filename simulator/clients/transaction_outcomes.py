"""Transactions of the SDK's producers as their processes saw them, and what became of each by the committed logs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

from quorumlog.sdk.types import TransactionToken
from quorumlog.simulator.clients.committed_values import CommittedValues, Place
from quorumlog.simulator.models.committed_partition import CommittedBatch, Violation
from quorumlog.simulator.models.committed_transactions import BatchFate
from quorumlog.simulator.world.transactional_clients import Outcome
from quorumlog.wire.entry import parse_header


@dataclass(slots=True, eq=False)
class SentTransaction:
    """A transaction.

    Arguments:
        token: the identity of its producer.
        fenced_us: when another producer of the id had a later identity; None if none had.
        values: the records that count if it is committed, and when each was sent (µs).
        left_out: the records of joined writers that the commit does not name.
        work: the number of its work.
    """

    token: TransactionToken
    fenced_us: int | None = None
    values: dict[str, int] = field(default_factory=dict)
    left_out: set[str] = field(default_factory=set)
    work: int | None = None
    outcome: Outcome = Outcome.OPEN


class SentTransactions:
    """All transactions of a load, and the rules for them."""

    def __init__(self, values: CommittedValues) -> None:
        self._values = values
        #: The last epoch that was received, by transactional id and producer id.
        self._newest: dict[tuple[str, int], int] = {}
        self._sent: list[SentTransaction] = []

    @property
    def outcomes(self) -> Counter[Outcome]:
        """The number of transactions by outcome."""
        return Counter(each.outcome for each in self._sent)

    def begin(self, token: TransactionToken, now_us: int, work: int | None = None) -> SentTransaction:
        """Registers a transaction whose block was entered. From now on, nothing counts that is sent with an earlier
        identity than that of its producer.
        """
        key = (token.transactional_id, token.producer_id)
        begun = SentTransaction(token, work=work)
        if token.producer_epoch < self._newest.get(key, -1):
            begun.fenced_us = now_us
        self._newest[key] = max(token.producer_epoch, self._newest.get(key, -1))
        for other in self._sent:
            is_former = (other.token.transactional_id, other.token.producer_id) == key
            if is_former and other.token.producer_epoch < token.producer_epoch and other.fenced_us is None:
                other.fenced_us = now_us
        self._sent.append(begun)
        return begun

    # -- what became of them ------------------------------------------------------------------------------------------

    def fate_of(self, place: Place) -> BatchFate:
        """Returns the state of the record at a position."""
        log = self._values.log(place.group)
        batch = log.batch_of(place.offset)
        return BatchFate.OPEN if batch is None else log.transactions.fate_of(parse_header(batch.entry.data))

    def committed_in(self, topic: str) -> Iterator[tuple[CommittedBatch, str]]:
        """Yields the records of a topic that count: the batch and the value."""
        for group, name, _ in self._values.groups():
            if name.topic != topic:
                continue
            log = self._values.log(group)
            for batch in log.batches_in_order:
                if log.transactions.fate_of(parse_header(batch.entry.data)) is BatchFate.COMMITTED:
                    for value in batch.values:
                        yield batch, value

    def _counts(self, value: str) -> bool:
        places = self._values.places(value)
        if len(places) > 1:
            raise Violation(f"{value} is in the logs more than once: {places}")
        return bool(places) and self.fate_of(places[0]) is BatchFate.COMMITTED

    def judge_one(self, transaction: SentTransaction) -> None:
        """Judges one transaction.

        Raises:
            Violation: it has another outcome than its process received, or takes effect in a part.
        """
        where = f"the transaction of {transaction.token}, {transaction.outcome.value},"
        counted = {value for value in transaction.values if self._counts(value)}
        missing = transaction.values.keys() - counted
        if transaction.outcome is Outcome.COMMITTED and missing:
            raise Violation(f"{where} has records that do not count: {sorted(missing)}")
        if transaction.outcome in (Outcome.ABORTED, Outcome.OPEN) and counted:
            raise Violation(f"{where} has records that count: {sorted(counted)}")
        if counted and missing:
            raise Violation(f"{where} counts in a part: {sorted(counted)}, without {sorted(missing)}")
        strangers = sorted(value for value in transaction.left_out if self._counts(value))
        if strangers:
            raise Violation(f"{where} has records of writers that it does not name: {strangers}")
        fenced_us = transaction.fenced_us
        late = sorted(value for value in counted if fenced_us is not None and transaction.values[value] > fenced_us)
        if late:
            raise Violation(f"{where} was fenced at {fenced_us}, and these count: {late}")

    def judge(self) -> None:
        """Judges all transactions, and that no numbered work is committed twice.

        Raises:
            Violation: see above.
        """
        works: Counter[tuple[str, int]] = Counter()
        for each in self._sent:
            self.judge_one(each)
            if each.work is not None and any(self._counts(value) for value in each.values):
                works[each.token.transactional_id, each.work] += 1
        twice = [work for work, count in works.items() if count > 1]
        if twice:
            raise Violation(f"work is committed twice: {twice}")

"""Checkers of transfers between accounts: each is a transaction's debit and credit, in partitions of two accounts.

A `Ledger` is what one reader of committed records has read. `check_attempts` compares the final one with the
outcomes that workers received, and a `TransferHistory` has both for Elle.
"""

from __future__ import annotations

from array import array
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import NamedTuple

from quorumlog.chaos.checkers.checkers import MOST_REPORTED, Anomaly


class TransactionOutcome(Enum):
    """Outcome of a transaction, as its worker received it. UNKNOWN: also if the worker died before it had one."""

    COMMITTED = "committed"
    ABORTED = "aborted"
    UNKNOWN = "unknown"


@dataclass(slots=True)
class Attempt:
    """One transaction of a worker.

    Arguments:
        begun_ns, ended_ns: before its first record, and when the worker had its outcome (None: it never had).
    """

    name: str
    worker: str
    begun_ns: int
    transfers: Sequence[int]
    outcome: TransactionOutcome = TransactionOutcome.UNKNOWN
    ended_ns: int | None = None


class Transfer(NamedTuple):
    """A requested transfer."""

    source: int
    target: int
    amount: int


class Posting(NamedTuple):
    """A record of a transfer: one half of it."""

    transfer: int
    account: int
    amount: int
    attempt: str

    @classmethod
    def parse(cls, value: bytes) -> Posting:
        """Returns the content of a record."""
        number, account, amount, attempt = value.decode().split(",")
        return cls(int(number), int(account), int(amount), attempt)


class Ledger:
    """Postings as one reader of committed records has read them.

    Arguments:
        transfers: all that were ever requested, by number.
        partitions: account ``n`` is in partition ``n % partitions``.
    """

    def __init__(self, name: str, transfers: Sequence[Transfer], partitions: int) -> None:
        self.name = name
        self.anomalies: list[Anomaly] = []
        self.postings: list[list[Posting]] = [[] for _ in range(partitions)]
        self.whole = 0
        #: Transfers of which only one half was read, with the attempt that made it.
        self.halves: dict[int, str] = {}
        self.balances: defaultdict[int, int] = defaultdict(int)
        self._offsets = [array("q") for _ in range(partitions)]
        self._transfers = transfers
        #: Halves read of each transfer: 1 for the debit, 2 for the credit.
        self._seen = bytearray(len(transfers))

    @property
    def read(self) -> int:
        """The number of records."""
        return sum(map(len, self.postings))

    def take_record(self, partition: int, offset: int, value: bytes) -> None:
        """Checks the next record of a partition."""
        posting, offsets = Posting.parse(value), self._offsets[partition]
        place = f"{self.name}: transfer {posting.transfer} at partition {partition} offset {offset}"
        if offsets and offset <= offsets[-1]:
            self._report("X2", f"{place} was read after offset {offsets[-1]}")
        offsets.append(offset)
        self.postings[partition].append(posting)
        number, account, amount, attempt = posting
        transfer = self._transfers[number]
        expected = {transfer.source: -transfer.amount, transfer.target: transfer.amount}
        if expected.get(account) != amount or account % len(self.postings) != partition:
            self._report("X2", f"{place} is {amount} for account {account}: no client has requested that")
            return
        self.balances[account] += amount
        half = 1 if account == transfer.source else 2
        if self._seen[number] & half:
            self._report("X4", f"{place} was made twice, again by transaction {attempt}")
            return
        self._seen[number] |= half
        if self._seen[number] != 3:
            self.halves[number] = attempt
            return
        self.whole += 1
        if (other := self.halves.pop(number)) != attempt:
            self._report("X4", f"{place} is of transaction {attempt}, its other half of {other}")

    def torn(self, numbers: set[int]) -> None:
        """Reports transfers whose other half is still missing although it must have been read by now."""
        for number in sorted(numbers & self.halves.keys()):
            self._report("X4", f"{self.name}: only one half of transfer {number} is visible ({self.halves[number]})")

    def check_sum(self) -> None:
        """Compares the sum of all accounts with that of all halves: it is constant."""
        open_halves = sum(
            (-1 if self._seen[number] == 1 else 1) * self._transfers[number].amount for number in self.halves
        )
        if (total := sum(self.balances.values())) != open_halves:
            self._report("X4", f"{self.name}: the sum of all accounts is off by {total - open_halves}")

    def check_prefix_of(self, other: Ledger) -> None:
        """Compares with a reader that has read at least as much: every reader gets the same records at same offsets."""
        for number, (mine, others) in enumerate(zip(self._offsets, other._offsets, strict=True)):
            if mine != others[: len(mine)] or self.postings[number] != other.postings[number][: len(mine)]:
                self._report("X2", f"{self.name} and {other.name} read different records of partition {number}")

    def finish(self) -> None:
        """Checks for lost transfers, after everything has been requested, processed and read."""
        self.torn(set(self.halves))
        for number, seen in enumerate(self._seen):
            if not seen:
                self._report("X4", f"{self.name}: transfer {number} is lost")

    def offsets_of(self, partition: int) -> Sequence[int]:
        """Returns the offsets read from a partition."""
        return self._offsets[partition]

    def _report(self, invariant: str, message: str) -> None:
        if sum(anomaly.invariant == invariant for anomaly in self.anomalies) < MOST_REPORTED:
            self.anomalies.append(Anomaly(invariant, message))


def check_attempts(attempts: Sequence[Attempt], ledger: Ledger) -> list[Anomaly]:
    """Compares everything that was read with the outcomes that workers received."""
    found: list[Anomaly] = []
    by_name = {attempt.name: attempt for attempt in attempts}
    visible: defaultdict[str, set[int]] = defaultdict(set)
    for postings in ledger.postings:
        for posting in postings:
            visible[posting.attempt].add(posting.transfer)
    for name, seen in visible.items():
        attempt = by_name.get(name)
        if attempt is None:
            found.append(Anomaly("X4", f"transaction {name} is visible, and no worker has started it"))
        elif attempt.outcome is TransactionOutcome.ABORTED:
            found.append(Anomaly("X4", f"transaction {name} was aborted, and is visible"))
        elif seen != set(attempt.transfers):
            found.append(
                Anomaly("X4", f"transaction {name} has {len(attempt.transfers)} transfers, {len(seen)} visible")
            )
    found.extend(
        Anomaly("X4", f"transaction {attempt.name} was committed, and is lost")
        for attempt in attempts
        if attempt.outcome is TransactionOutcome.COMMITTED and attempt.name not in visible
    )
    found.extend(_late_writes(by_name, ledger))
    return found[:MOST_REPORTED]


def _late_writes(by_name: Mapping[str, Attempt], ledger: Ledger) -> Iterator[Anomaly]:
    """Yields committed transactions that are behind one that started after they had ended: a cycle of the order of
    appends and of real time.
    """
    for number, postings in enumerate(ledger.postings):
        newest: Attempt | None = None
        for posting in postings:
            attempt = by_name.get(posting.attempt)
            if attempt is None:
                continue
            if newest is not None and attempt.ended_ns is not None and attempt.ended_ns < newest.begun_ns:
                late = f"transaction {attempt.name} had ended before {newest.name} started, and is behind it"
                yield Anomaly("X2", f"{late} in partition {number}")
            if newest is None or attempt.begun_ns > newest.begun_ns:
                newest = attempt


@dataclass(slots=True)
class ListReads:
    """The lists of all accounts as one reader has read them between two moments."""

    begun_ns: int
    ended_ns: int
    lists: Mapping[int, Sequence[tuple[str, int]]]

    @classmethod
    def of(cls, ledger: Ledger, begun_ns: int, ended_ns: int) -> ListReads:
        """Returns the lists in a ledger: the attempt and transfer of each posting."""
        lists: defaultdict[int, list[tuple[str, int]]] = defaultdict(list)
        for postings in ledger.postings:
            for posting in postings:
                lists[posting.account].append((posting.attempt, posting.transfer))
        return cls(begun_ns, ended_ns, lists)


@dataclass(slots=True)
class TransferHistory:
    """Transactions of workers, and reads.

    Elle reads it as a list-append history: an account is a key, a transfer appends to two of them. A read is of one
    account: readers of several partitions get no snapshot. Write cycles of concurrent transactions (G0) are allowed, as
    with Kafka: each partition orders them for itself.
    """

    transfers: Sequence[Transfer]
    attempts: list[Attempt] = field(default_factory=list)
    reads: list[ListReads] = field(default_factory=list)

    def save(self, path: Path) -> None:
        """Writes it as EDN, one operation per line."""
        path.write_text("".join(f"{line}\n" for line in self._lines()), encoding="utf-8")

    def _lines(self) -> Iterator[str]:
        elements: dict[tuple[str, int], int] = {}
        moments: list[tuple[int, int, str, str, int]] = []
        for attempt in self.attempts:
            appends = []
            for number in attempt.transfers:
                element = elements.setdefault((attempt.name, number), len(elements))
                transfer = self.transfers[number]
                appends += [f"[:append {account} {element}]" for account in (transfer.source, transfer.target)]
            value, kind = f"[{' '.join(appends)}]", _KINDS[attempt.outcome]
            moments.append((attempt.begun_ns, len(moments), ":invoke", value, -1))
            ended = attempt.ended_ns or max(attempt.begun_ns + 1, self._end_ns)
            moments.append((ended, len(moments), kind, value, len(moments) - 1))
        for reads in self.reads:
            for account, postings in sorted(reads.lists.items()):
                read = " ".join(str(elements.setdefault(each, len(elements))) for each in postings)
                moments.append((reads.begun_ns, len(moments), ":invoke", f"[[:r {account} nil]]", -1))
                moments.append((reads.ended_ns, len(moments), ":ok", f"[[:r {account} [{read}]]]", len(moments) - 1))
        yield from _in_order(moments)

    @property
    def _end_ns(self) -> int:
        return max((reads.ended_ns for reads in self.reads), default=0)


_KINDS = {TransactionOutcome.COMMITTED: ":ok", TransactionOutcome.ABORTED: ":fail", TransactionOutcome.UNKNOWN: ":info"}


def _in_order(moments: list[tuple[int, int, str, str, int]]) -> Iterator[str]:
    """Yields the operations by time. A process has one operation at a time, and none after an unknown outcome."""
    processes: dict[int, int] = {}
    idle: list[int] = []
    started = 0
    for index, (moment, number, kind, value, invoked) in enumerate(sorted(moments)):
        if invoked < 0:
            if idle:
                process = idle.pop()
            else:
                process, started = started, started + 1
            processes[number] = process
        else:
            process = processes.pop(invoked)
            if kind != ":info":
                idle.append(process)
        fields = f":index {index}, :time {moment}, :type {kind}, :process {process}, :f :txn, :value {value}"
        yield f"{{{fields}}}"

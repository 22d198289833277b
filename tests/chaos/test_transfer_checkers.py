"""The checkers of transfers notice the faults that they must detect."""

from __future__ import annotations

from pathlib import Path

import pytest

from quorumlog.chaos.checkers.transfer_checkers import (
    Attempt,
    Ledger,
    ListReads,
    TransactionOutcome,
    Transfer,
    TransferHistory,
    check_attempts,
)

#: Accounts 0 and 1, in partitions of the same numbers.
TRANSFERS = [Transfer(0, 1, 5), Transfer(1, 0, 7), Transfer(0, 1, 2)]


class Reading:
    """A ledger, and a log that the test makes up."""

    def __init__(self) -> None:
        self.ledger = Ledger("reader", TRANSFERS, 2)
        self._next = [0, 0]

    def post(self, number: int, attempt: str, *accounts: int, amount: int | None = None) -> None:
        """The reader gets one half of a transfer for each account."""
        transfer = TRANSFERS[number]
        for account in accounts:
            right = -transfer.amount if account == transfer.source else transfer.amount
            value = f"{number},{account},{right if amount is None else amount},{attempt}"
            self.ledger.take_record(account, self._next[account], value.encode())
            self._next[account] += 3

    def found(self) -> list[str]:
        self.ledger.check_sum()
        self.ledger.finish()
        return [anomaly.message for anomaly in self.ledger.anomalies]


def whole() -> Reading:
    reading = Reading()
    reading.post(0, "a.1", 0, 1)
    reading.post(1, "a.2", 0, 1)
    reading.post(2, "b.1", 1, 0)
    return reading


def attempts() -> list[Attempt]:
    return [
        Attempt("a.1", "a", 10, [0], TransactionOutcome.COMMITTED, 20),
        Attempt("a.2", "a", 30, [1], TransactionOutcome.COMMITTED, 40),
        Attempt("b.1", "b", 15, [2], TransactionOutcome.UNKNOWN, None),
    ]


def test_whole_transfers_are_fine() -> None:
    reading = whole()
    assert reading.found() == []
    assert check_attempts(attempts(), reading.ledger) == []
    assert (reading.ledger.whole, reading.ledger.read) == (3, 6)


def test_halves_and_losses_are_found() -> None:
    reading = Reading()
    reading.post(0, "a.1", 0)
    assert reading.ledger.halves == {0: "a.1"}
    assert reading.found() == [
        "reader: only one half of transfer 0 is visible (a.1)",
        "reader: transfer 1 is lost",
        "reader: transfer 2 is lost",
    ]


def test_second_applications_are_found() -> None:
    reading = whole()
    reading.post(1, "b.9", 0, 1)
    assert [message.partition(", ")[0] for message in reading.found()[:2]] == [
        "reader: transfer 1 at partition 0 offset 9 was made twice",
        "reader: transfer 1 at partition 1 offset 9 was made twice",
    ]


def test_halves_of_different_transactions_are_found() -> None:
    reading = Reading()
    reading.post(0, "a.1", 0)
    reading.post(0, "a.2", 1)
    assert reading.found()[0].endswith("is of transaction a.2, its other half of a.1")


def test_wrong_amounts_are_found() -> None:
    reading = Reading()
    reading.post(0, "a.1", 0, amount=-6)
    assert reading.found()[0].endswith("is -6 for account 0: no client has requested that")


def test_order_of_offsets_is_checked() -> None:
    ledger = Ledger("reader", TRANSFERS, 2)
    ledger.take_record(0, 4, b"0,0,-5,a.1")
    ledger.take_record(0, 4, b"1,0,7,a.2")
    assert [anomaly.invariant for anomaly in ledger.anomalies] == ["X2"]


def test_readers_with_other_records_are_found() -> None:
    one, other = whole(), Reading()
    other.post(0, "a.1", 0, 1)
    other.ledger.check_prefix_of(one.ledger)
    assert other.ledger.anomalies == []
    other.post(2, "b.1", 0)
    other.ledger.check_prefix_of(one.ledger)
    assert [anomaly.message for anomaly in other.ledger.anomalies] == [
        "reader and reader read different records of partition 0"
    ]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ((1, TransactionOutcome.ABORTED, [1]), "transaction a.2 was aborted, and is visible"),
        ((1, TransactionOutcome.COMMITTED, [1, 5]), "transaction a.2 has 2 transfers, 1 visible"),
    ],
)
def test_outcomes_that_do_not_hold_are_found(change: tuple[int, TransactionOutcome, list[int]], message: str) -> None:
    place, outcome, transfers = change
    made = attempts()
    made[place].outcome, made[place].transfers = outcome, transfers
    assert [anomaly.message for anomaly in check_attempts(made, whole().ledger)] == [message]


def test_lost_commits_are_found() -> None:
    made = [*attempts(), Attempt("c.1", "c", 1, [2], TransactionOutcome.COMMITTED, 2)]
    assert [each.message for each in check_attempts(made, whole().ledger)] == [
        "transaction c.1 was committed, and is lost"
    ]


def test_unknown_transactions_are_found() -> None:
    assert [each.message for each in check_attempts(attempts()[:2], whole().ledger)] == [
        "transaction b.1 is visible, and no worker has started it"
    ]


def test_transactions_behind_later_ones_are_found() -> None:
    made = attempts()
    made[0].begun_ns = 50
    assert [each.message for each in check_attempts(made, whole().ledger)] == [
        "transaction a.2 had ended before a.1 started, and is behind it in partition 0",
        "transaction a.2 had ended before a.1 started, and is behind it in partition 1",
    ]


def test_histories_are_written_for_elle(tmp_path: Path) -> None:
    reading = whole()
    made = attempts()
    history = TransferHistory(TRANSFERS, made, [ListReads.of(reading.ledger, 60, 70)])
    history.save(tmp_path / "history.edn")
    lines = (tmp_path / "history.edn").read_text().splitlines()
    assert lines[0] == (
        "{:index 0, :time 10, :type :invoke, :process 0, :f :txn, :value [[:append 0 0] [:append 1 0]]}"
    )
    assert len(lines) == 2 * (3 + 2)
    assert [line for line in lines if ":info" in line] == [
        "{:index 7, :time 70, :type :info, :process 1, :f :txn, :value [[:append 0 2] [:append 1 2]]}"
    ]
    assert any(":value [[:r 0 [0 1 2]]]" in line and ":ok" in line for line in lines)

"""The storage thread answers each transaction once, in order, whatever happens."""

from __future__ import annotations

import queue
import threading
from pathlib import Path

import pytest
from storage_samples import CONFIGURATION, LogBuilder, create, transaction

from quorumlog.storage.interface import DiskFullError, FatalStorageError, StorageEngineError
from quorumlog.storage.storage import Storage
from quorumlog.storage.transaction import RaftGroupWrite, StorageTransaction
from quorumlog.storage.writer import StorageWriter

DEADLINE_S = 60


class Answers:
    """Collects completions."""

    def __init__(self) -> None:
        self._queue: queue.Queue[tuple[int, StorageEngineError | None]] = queue.Queue()

    def __call__(self, number: int, error: StorageEngineError | None) -> None:
        self._queue.put((number, error))

    def next(self) -> tuple[int, StorageEngineError | None]:
        return self._queue.get(timeout=DEADLINE_S)

    @property
    def none_left(self) -> bool:
        return self._queue.empty()


@pytest.fixture
def storage(tmp_path: Path):
    with Storage(tmp_path, max_deletes=10) as opened:
        yield opened


def test_transactions_are_answered_in_order_and_durable(storage: Storage) -> None:
    answers = Answers()
    writer = StorageWriter(storage, answers)
    log = LogBuilder(1)
    writer.submit(transaction(create(1), number=1))
    assert answers.next() == (1, None)
    for number in range(2, 12):
        writer.submit(transaction(RaftGroupWrite(1, entries=log.batches(2)), number=number))
        assert answers.next() == (number, None)
        assert storage.term_at(1, 2 * (number - 1)) == 1
    writer.stop()
    assert answers.none_left


def test_stopping_finishes_what_was_submitted(storage: Storage) -> None:
    answers = Answers()
    writer = StorageWriter(storage, answers)
    for number in range(4):
        writer.submit(transaction(create(number), number=number))
    writer.stop()
    writer.stop()
    assert [answers.next() for _ in range(4)] == [(number, None) for number in range(4)]
    with pytest.raises(StorageEngineError, match="after the storage thread was stopped"):
        writer.submit(transaction(create(9)))


def test_no_more_wait_than_the_capacity(storage: Storage, monkeypatch: pytest.MonkeyPatch) -> None:
    began, go_on = threading.Event(), threading.Event()

    def slow(transaction: StorageTransaction) -> None:
        began.set()
        assert go_on.wait(DEADLINE_S)

    monkeypatch.setattr(storage, "commit", slow)
    answers = Answers()
    writer = StorageWriter(storage, answers, capacity=2)
    writer.submit(StorageTransaction(1))
    assert began.wait(DEADLINE_S)
    writer.submit(StorageTransaction(2))
    writer.submit(StorageTransaction(3))
    with pytest.raises(StorageEngineError, match="more than 2 transactions wait"):
        writer.submit(StorageTransaction(4))
    go_on.set()
    writer.stop()
    assert [answers.next()[0] for _ in range(3)] == [1, 2, 3]


def test_a_full_disk_is_answered_and_the_next_transaction_tried(
    storage: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit = storage.commit
    outcomes = [DiskFullError("full"), None]

    def failing(transaction: StorageTransaction) -> None:
        error = outcomes.pop(0)
        if error is not None:
            raise error
        commit(transaction)

    monkeypatch.setattr(storage, "commit", failing)
    answers = Answers()
    writer = StorageWriter(storage, answers)
    writer.submit(transaction(create(1), number=1))
    number, error = answers.next()
    assert number == 1
    assert isinstance(error, DiskFullError)
    writer.submit(transaction(create(1), number=2))
    assert answers.next() == (2, None)
    writer.stop()


@pytest.mark.parametrize("error", [FatalStorageError("EIO"), RuntimeError("a bug")])
def test_after_a_failure_nothing_is_written(
    storage: Storage, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    def failing(transaction: StorageTransaction) -> None:
        raise error

    monkeypatch.setattr(storage, "commit", failing)
    answers = Answers()
    writer = StorageWriter(storage, answers)
    for number in (1, 2):
        writer.submit(transaction(create(1), number=number))
        assert answers.next()[0] == number
    monkeypatch.undo()
    writer.submit(transaction(create(1), number=3))
    number, last = answers.next()
    assert isinstance(last, FatalStorageError)
    assert str(error) in str(last)
    writer.stop()
    assert storage.groups() == {}


def test_a_sweep_that_fails_in_any_way_answers_the_next_transaction(
    storage: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The node would wait indefinitely if the error ended the thread."""

    swept = threading.Event()

    def failing() -> bool:
        swept.set()
        raise RuntimeError("a bug")

    monkeypatch.setattr(storage, "sweep", failing)
    answers = Answers()
    writer = StorageWriter(storage, answers)
    assert swept.wait(DEADLINE_S)
    writer.submit(transaction(create(1), number=1))
    number, error = answers.next()
    assert number == 1
    assert isinstance(error, FatalStorageError)
    assert "a bug" in str(error)
    writer.stop()
    assert storage.groups() == {}


def test_garbage_is_swept_while_nothing_is_submitted(storage: Storage) -> None:
    swept = threading.Event()
    sweep = storage.sweep

    def watched() -> bool:
        more = sweep()
        if not more:
            swept.set()
        return more

    log = LogBuilder(1)
    storage.commit(transaction(create(1, log.batches(200, 3000))))
    storage.commit(transaction(RaftGroupWrite(1, destroy=True), RaftGroupWrite(2, create=CONFIGURATION)))
    used = storage.space().used_bytes
    storage.sweep = watched  # type: ignore[method-assign]
    writer = StorageWriter(storage, Answers())
    assert swept.wait(DEADLINE_S)
    writer.stop()
    assert storage.space().used_bytes < used / 5

"""The outcome of a transaction whose coordinator answers with each kind of error, or not at all."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from types import SimpleNamespace
from typing import Any, cast

import pytest

from quorumlog.sdk.cluster.transaction_coordinator import EndedTransaction, InitializedProducer
from quorumlog.sdk.configuration import build_config
from quorumlog.sdk.errors import (
    CommitUnknownError,
    IllegalArgumentError,
    IllegalStateError,
    InvalidProducerEpochError,
    InvalidTxnStateError,
    NetworkError,
    QuorumlogError,
    RecordTooLargeError,
    TransactionAbortableError,
    TransactionAbortedError,
)
from quorumlog.sdk.producer.async_producer import ProducerCore
from quorumlog.sdk.producer.async_transaction import AsyncTransaction
from quorumlog.sdk.producer.config import ProducerConfig
from quorumlog.sdk.producer.transaction_control import Phase, TransactionControl, TransactionProgress
from quorumlog.sdk.types import TransactionToken


class Consumer:
    """Counts how often the positions were returned, and the commits that were reported to it."""

    def __init__(self) -> None:
        self.returned = 0
        self.committed: list[object] = []
        self.kept: list[object] = []

    def check_transactional(self) -> None: ...

    def to_commit(self, offsets: None) -> object: ...

    async def commit_in(self, offsets: object, transaction: TransactionToken) -> None: ...

    def return_to_begin(self) -> None:
        self.returned += 1

    def return_to(self, offsets: object) -> None:
        self.kept.append(offsets)

    def transaction_committed(self, offsets: object) -> None:
        self.committed.append(offsets)


class Coordinator:
    """Answers with scripted errors, then as a coordinator does."""

    def __init__(self) -> None:
        self.errors: list[QuorumlogError] = []
        self.errors_of_init: list[QuorumlogError] = []
        self.calls: list[str] = []
        self._token = TransactionToken("t", 7, 0)

    async def init(self, timeout_ms: int, token: TransactionToken | None, work: int | None) -> InitializedProducer:
        self.calls.append("init")
        if self.errors_of_init:
            raise self.errors_of_init.pop(0)
        return InitializedProducer(self._token, work_committed=work == 1)

    async def join(self, token: TransactionToken) -> TransactionToken:
        self.calls.append("join")
        return token._replace(producer_id=8)

    async def end(self, token: TransactionToken, *, commit: bool, writers: set[int] = frozenset()) -> EndedTransaction:  # type: ignore[assignment]
        self.calls.append("commit" if commit else "abort")
        assert token == self._token
        if self.errors:
            raise self.errors.pop(0)
        self._token = token._replace(producer_epoch=token.producer_epoch + 1)
        return EndedTransaction(self._token, True)


class Rig:
    """The control of a producer without nodes."""

    def __init__(self) -> None:
        core = ProducerCore(build_config(ProducerConfig, {"transactional_id": "t"}))
        assert core.transactions is not None
        self.control: TransactionControl = core.transactions
        self.coordinator = Coordinator()
        self.control._coordinator = cast(Any, self.coordinator)
        self.consumer = Consumer()

    def begin(self, *, with_consumer: bool = False, work: int | None = None) -> TransactionProgress:
        state = TransactionProgress(cast(Any, self.consumer) if with_consumer else None, work)
        self.control.settle(run(self.control.finish_former()))
        run(self.control.begin(state))
        return state

    def transaction(self) -> AsyncTransaction:
        """A transaction with the consumer, whose block is not entered yet."""
        holder = cast(Any, SimpleNamespace(_core=self.consumer))
        return AsyncTransaction(self.control, cast(Any, None), cast(Any, None), holder, None)

    def touched(self, *, with_consumer: bool = False) -> TransactionProgress:
        state = self.begin(with_consumer=with_consumer)
        self.control.token(state)
        state.offsets = {"a": 1}
        return state


def run(work: Coroutine[Any, Any, Any]) -> Any:
    return asyncio.run(work)


def test_a_transaction_in_which_nothing_was_sent_asks_nobody() -> None:
    rig = Rig()
    state = rig.begin()
    run(rig.control.commit(state))
    rig.control.settle(state)
    assert (state.phase, rig.coordinator.calls) == (Phase.COMMITTED, ["init"])


def test_the_next_transaction_finds_out_an_unknown_outcome() -> None:
    rig = Rig()
    state = rig.touched(with_consumer=True)
    rig.coordinator.errors = [NetworkError("lost")]
    with pytest.raises(CommitUnknownError) as raised:
        run(rig.control.commit(state))
    assert not raised.value.definite
    rig.begin()
    assert rig.coordinator.calls == ["init", "commit", "commit"]
    assert rig.consumer.committed == [state.offsets] and not rig.consumer.returned


@pytest.mark.parametrize("kind", [TransactionAbortableError, InvalidTxnStateError])
def test_an_unknown_outcome_that_is_an_abort_is_said_once(kind: type[QuorumlogError]) -> None:
    rig = Rig()
    state = rig.touched(with_consumer=True)
    rig.coordinator.errors = [NetworkError("lost"), kind("aborted")]
    with pytest.raises(CommitUnknownError):
        run(rig.control.commit(state))
    with pytest.raises(TransactionAbortedError):
        rig.begin()
    assert rig.consumer.returned == 1
    rig.begin()


def test_who_is_fenced_after_a_lost_answer_is_not_told_that_nothing_is_committed() -> None:
    rig = Rig()
    state = rig.touched()
    rig.coordinator.errors = [NetworkError("lost"), InvalidProducerEpochError("another instance")]
    with pytest.raises(CommitUnknownError):
        run(rig.control.commit(state))
    with pytest.raises(InvalidProducerEpochError) as raised:
        run(rig.control.finish_former())
    assert not raised.value.definite


def test_who_is_fenced_is_told_so() -> None:
    rig = Rig()
    state = rig.touched()
    fenced = InvalidProducerEpochError("another instance")
    rig.coordinator.errors = [fenced, fenced]
    with pytest.raises(InvalidProducerEpochError):
        run(rig.control.commit(state))
    assert run(rig.control.aborted(state, fenced)) is fenced


def test_a_failed_record_aborts() -> None:
    rig = Rig()
    state = rig.touched()
    rig.control._sender.failure = RecordTooLargeError("too large")
    with pytest.raises(RecordTooLargeError) as raised:
        run(rig.control.commit(state))
    error = run(rig.control.aborted(state, raised.value))
    assert isinstance(error, TransactionAbortedError) and error.definite and not error.retriable
    assert rig.coordinator.calls == ["init", "abort"]


def test_a_transaction_that_was_left_open_is_aborted_by_the_next() -> None:
    rig = Rig()
    left = rig.touched()
    rig.begin()
    assert rig.coordinator.calls == ["init", "abort"]
    with pytest.raises(TransactionAbortedError, match="another transaction"):
        run(rig.control.commit(left))


def test_with_a_consumer_that_is_said_and_the_positions_return() -> None:
    rig = Rig()
    rig.touched(with_consumer=True)
    with pytest.raises(TransactionAbortedError, match="former"):
        rig.begin()
    assert rig.consumer.returned == 1
    rig.begin()


def test_records_of_a_block_that_is_not_entered_come_again() -> None:
    """No identity is available: the block has not processed what the consumer has returned."""
    rig = Rig()
    rig.coordinator.errors_of_init = [NetworkError("lost")]
    transaction = rig.transaction()
    with pytest.raises(NetworkError):
        run(transaction.__aenter__())
    assert rig.consumer.returned == 1 and not rig.consumer.kept


def test_records_behind_an_unknown_outcome_come_again() -> None:
    """Those of the transaction itself must not come again: it may be committed."""
    rig = Rig()
    former = rig.touched(with_consumer=True)
    rig.coordinator.errors = [NetworkError("lost"), NetworkError("lost again")]
    with pytest.raises(CommitUnknownError):
        run(rig.control.commit(former))
    with pytest.raises(CommitUnknownError):
        run(rig.transaction().__aenter__())
    assert rig.consumer.kept == [former.offsets] and not rig.consumer.returned
    run(rig.transaction().__aenter__())
    assert rig.consumer.committed == [former.offsets] and not rig.consumer.returned


def test_committed_work_is_not_begun() -> None:
    rig = Rig()
    state = rig.begin(work=1)
    assert state.work_committed
    with pytest.raises(IllegalStateError):
        rig.control.guarded(lambda: None, state)()
    run(rig.control.commit(state))
    assert rig.coordinator.calls == ["init"]


def test_work_without_records_is_committed_too() -> None:
    rig = Rig()
    run(rig.control.commit(rig.begin(work=2)))
    assert rig.coordinator.calls == ["init", "join", "commit"]


def test_records_outside_of_the_block_are_refused() -> None:
    rig = Rig()
    state = rig.begin()
    rig.control.guarded(lambda: None, state)()
    rig.control.stop_accepting(state)
    for which in (state, None):
        with pytest.raises(IllegalStateError, match="send needs an open transaction"):
            rig.control.guarded(lambda: None, which)()


@pytest.mark.parametrize(
    "options",
    [
        {"transactional_id": ""},
        {"transactional_id": "t", "producer_name": "n"},
        {"transactional_id": "t", "acks": 1},
        {"joins": "token"},
        {"transactional_id": "t", "joins": TransactionToken("t", 1, 0)},
    ],
)
def test_options_that_do_not_fit_are_refused(options: dict[str, object]) -> None:
    with pytest.raises(IllegalArgumentError):
        build_config(ProducerConfig, options)

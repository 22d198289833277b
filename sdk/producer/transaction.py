"""A transaction of a synchronous producer: the object of its ``with`` block."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Coroutine, Iterable
from types import TracebackType
from typing import Any, Protocol, Self

from quorumlog.sdk.errors import CommitUnknownError, QuorumlogError
from quorumlog.sdk.producer.delivery import RecordFuture
from quorumlog.sdk.producer.transaction_control import Phase, TransactionControl, TransactionProgress, core_of
from quorumlog.sdk.runtime.event_loop import BackgroundLoop
from quorumlog.sdk.types import GivenHeaders, TransactionToken

_Run = Callable[[Coroutine[Any, Any, Any]], Any]


class TransactionalClient(Protocol):
    """A ``Consumer``."""

    _core: Any
    _background: BackgroundLoop


class Transaction:
    """The records of one ``with`` block: readers of committed records receive all of them, or none.

    :meth:`quorumlog.sdk.Producer.transaction` documents it.

    Attributes:
        work_committed: work of the given number is committed already: send nothing.
    """

    def __init__(
        self,
        control: TransactionControl,
        run: _Run,
        flush: Callable[[], None],
        send: Callable[..., RecordFuture],
        consumer: TransactionalClient | None,
        work: int | None,
    ) -> None:
        self._control = control
        self._run = run
        self._flush = flush
        self._send = send
        self._consumer = consumer
        self._state = TransactionProgress(core_of(consumer, is_asynchronous=False), work)

    @property
    def work_committed(self) -> bool:
        """True if work of the given number, or a later one, is committed already."""
        return self._state.work_committed

    @property
    def token(self) -> TransactionToken:
        """The token by which producers in other processes join: ``Producer(joins=token)``."""
        return self._control.token(self._state)

    def include(self, writers: Iterable[int | None]) -> None:
        """Names joined writers whose records count, by what their ``finish()`` has returned; all others abort."""
        self._state.writers.update(each for each in writers if each is not None)

    def send(
        self,
        topic: str,
        value: Any = None,
        key: Any = None,
        headers: GivenHeaders | None = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
    ) -> RecordFuture:
        """Sends a record in this transaction; see :meth:`quorumlog.sdk.Producer.send`.

        Raises:
            TransactionAbortedError: a record of the transaction has failed.
            IllegalStateError: the block has ended.
        """
        return self._send(self._state, topic, value, key, headers, partition, timestamp_ms)

    def __enter__(self) -> Self:
        # An interruption in any line leaves a transaction that the next one ends first.
        try:
            self._control.settle(self._run(self._control.finish_former()))
            self._run(self._control.begin(self._state))
        except BaseException:
            self._control.give_back(self._state)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        state, control = self._state, self._control
        control.stop_accepting(state)
        if error is not None:
            state.return_consumer()
            with contextlib.suppress(QuorumlogError):  # The next transaction aborts it, or finds that it is fenced.
                self._run(control.abort(state))
            return
        try:
            self._flush()
            self._run(self._check())
            self._commit_offsets()
            self._run(control.commit(state))
        except CommitUnknownError:
            raise
        except QuorumlogError as failure:
            if state.doubtful and state.phase is Phase.COMMITTING:
                raise  # Fenced, while the commit had no answer.
            state.return_consumer()
            raise self._run(control.aborted(state, failure)) from failure
        control.settle(state)

    async def _check(self) -> None:
        self._control.check_delivered(self._state)

    def _commit_offsets(self) -> None:
        if self._consumer is None:
            return
        core = self._consumer._core
        offsets = core.to_commit(None)
        if offsets:
            self._state.offsets = offsets
            self._consumer._background.run(core.commit_in(offsets, self._control.token_of(self._state)))

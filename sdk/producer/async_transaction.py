"""A transaction of an asynchronous producer: the object of its ``async with`` block."""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable, Iterable
from types import TracebackType
from typing import Any, Protocol, Self

from quorumlog.sdk.errors import CommitUnknownError, QuorumlogError
from quorumlog.sdk.producer.delivery import RecordFuture
from quorumlog.sdk.producer.transaction_control import Phase, TransactionControl, TransactionProgress, core_of
from quorumlog.sdk.types import GivenHeaders, TransactionToken


class AsyncTransactionalClient(Protocol):
    """An ``AsyncConsumer``."""

    _core: Any


class AsyncTransaction:
    """As :class:`quorumlog.sdk.Transaction`, from asyncio. A task that is cancelled within the block aborts it."""

    def __init__(
        self,
        control: TransactionControl,
        flush: Callable[[], Awaitable[None]],
        send: Callable[..., Awaitable[RecordFuture]],
        consumer: AsyncTransactionalClient | None,
        work: int | None,
    ) -> None:
        self._control = control
        self._flush = flush
        self._send = send
        self._state = TransactionProgress(core_of(consumer, is_asynchronous=True), work)

    @property
    def work_committed(self) -> bool:
        """True if work of the given number, or a later one, is committed already."""
        return self._state.work_committed

    @property
    def token(self) -> TransactionToken:
        """The token by which producers in other processes join: ``AsyncProducer(joins=token)``."""
        return self._control.token(self._state)

    def include(self, writers: Iterable[int | None]) -> None:
        """Names joined writers whose records count, by what their ``finish()`` has returned; all others abort."""
        self._state.writers.update(each for each in writers if each is not None)

    async def send(
        self,
        topic: str,
        value: Any = None,
        key: Any = None,
        headers: GivenHeaders | None = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
    ) -> RecordFuture:
        """Sends a record in this transaction; see :meth:`quorumlog.sdk.Transaction.send`."""
        return await self._send(self._state, topic, value, key, headers, partition, timestamp_ms)

    async def __aenter__(self) -> Self:
        try:
            self._control.settle(await self._control.finish_former())
            await self._control.begin(self._state)
        except BaseException:
            self._control.give_back(self._state)
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        state, control = self._state, self._control
        control.stop_accepting(state)
        if error is not None:
            state.return_consumer()
            with contextlib.suppress(QuorumlogError):  # The next transaction aborts it, or finds that it is fenced.
                await control.abort(state)
            return
        try:
            await self._flush()
            control.check_delivered(state)
            if state.consumer is not None and (offsets := state.consumer.to_commit(None)):
                state.offsets = offsets
                await state.consumer.commit_in(offsets, control.token_of(state))
            await control.commit(state)
        except CommitUnknownError:
            raise
        except QuorumlogError as failure:
            if state.doubtful and state.phase is Phase.COMMITTING:
                raise  # Fenced, while the commit had no answer.
            state.return_consumer()
            raise await control.aborted(state, failure) from failure
        control.settle(state)

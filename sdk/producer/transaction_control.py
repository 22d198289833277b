"""The transactions of one producer: their beginning, outcome, and what an interruption or a lost answer leaves behind.

Only this producer commits its transactions. One whose commit was never requested is therefore aborted for certain,
whether or not the coordinator has been reached: it aborts a transaction that is open for too long.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Coroutine
from enum import Enum, auto
from typing import Any, Protocol, TypeVar, runtime_checkable

from quorumlog.sdk.cluster.cluster import Cluster
from quorumlog.sdk.cluster.transaction_coordinator import TransactionCoordinator
from quorumlog.sdk.errors import (
    CommitFailedError,
    CommitUnknownError,
    IllegalArgumentError,
    IllegalStateError,
    InvalidProducerEpochError,
    InvalidProducerIdMappingError,
    InvalidTxnStateError,
    QuorumlogError,
    RequestTimedOutError,
    TransactionAbortableError,
    TransactionAbortedError,
)
from quorumlog.sdk.producer.config import ProducerConfig
from quorumlog.sdk.producer.identity import ProducerIdentity
from quorumlog.sdk.producer.sender import Sender
from quorumlog.sdk.types import TransactionToken

Result = TypeVar("Result")

_OUTSIDE = "send needs an open transaction: use `with producer.transaction() as tx:` and tx.send"
#: Causes of an abort that may be absent when the transaction is run again.
_PASSING = (InvalidProducerEpochError, TransactionAbortableError, RequestTimedOutError, CommitFailedError)


@runtime_checkable
class TransactionalConsumer(Protocol):
    """A consumer whose offsets are committed in transactions; see ``ConsumerCore``."""

    def check_transactional(self) -> None: ...

    def to_commit(self, offsets: None, /) -> Any: ...

    def commit_in(self, offsets: Any, transaction: TransactionToken, /) -> Coroutine[Any, Any, None]: ...

    def transaction_committed(self, offsets: Any, /) -> None: ...

    def return_to_begin(self) -> None: ...

    def return_to(self, offsets: Any, /) -> None: ...


def core_of(consumer: object, *, is_asynchronous: bool) -> TransactionalConsumer | None:
    """Returns the core of a consumer; None without one.

    Raises:
        IllegalArgumentError: it is not a consumer, or not of the producer's kind.
    """
    if consumer is None:
        return None
    core = getattr(consumer, "_core", None)
    if not isinstance(core, TransactionalConsumer) or hasattr(consumer, "_background") is is_asynchronous:
        kind = "an AsyncConsumer" if is_asynchronous else "a Consumer"
        raise IllegalArgumentError(f"consumer is {type(consumer).__name__}: give {kind}, or None")
    return core


class Phase(Enum):
    """Progress of a transaction."""

    OPEN = auto()
    #: The commit was requested, and no answer has arrived.
    COMMITTING = auto()
    COMMITTED = auto()
    ABORTED = auto()


#: Phases of a transaction that is committed, or may be.
_MAY_COUNT = (Phase.COMMITTING, Phase.COMMITTED)


class TransactionProgress:
    """One transaction, from its beginning until its outcome is known.

    Attributes:
        accepts: records may be sent.
        touched: the coordinator may have the transaction.
        doubtful: a request to commit has had no answer.
        returned: the consumer's positions are back where the transaction started.
    """

    def __init__(self, consumer: TransactionalConsumer | None, work: int | None) -> None:
        if consumer is not None:
            consumer.check_transactional()
        if work is not None and (isinstance(work, bool) or not isinstance(work, int) or not 0 <= work < 1 << 63):
            raise IllegalArgumentError(f"work is {work!r}: give a whole number from 0 to 2^63 - 1")
        self.consumer = consumer
        self.work = work
        self.work_committed = False
        self.phase = Phase.OPEN
        self.accepts = False
        self.touched = False
        self.doubtful = False
        self.returned = False
        self.writers: set[int] = set()
        self.offsets: Any = None

    def return_consumer(self) -> None:
        """Moves the consumer's positions back to where the transaction started. May be repeated."""
        if self.consumer is not None and not self.returned:
            self.consumer.return_to_begin()
            self.returned = True


class TransactionControl:
    """Starts and ends the transactions of a producer, on its event loop. What concerns the consumer is called on the
    caller's thread."""

    def __init__(self, config: ProducerConfig, cluster: Cluster, sender: Sender) -> None:
        self._config = config
        self._sender = sender
        self._coordinator = TransactionCoordinator(cluster, config.transaction_id, config.max_block_ms / 1000)
        self._lock = threading.RLock()
        self._current: TransactionProgress | None = None
        self._token: TransactionToken | None = None

    # --- records -------------------------------------------------------------------------------------------------

    def guarded(self, attempt: Callable[[], Result], state: TransactionProgress | None = None) -> Callable[[], Result]:
        """Returns a function that makes an attempt to add records, in an open transaction only.

        Arguments:
            state: the transaction that the records are for; None: whichever is open.
        """

        def in_transaction() -> Result:
            with self._lock:  # The transaction does not end between the check and the attempt.
                current = self._current
                if current is None or not current.accepts or (state is not None and state is not current):
                    raise IllegalStateError(_OUTSIDE)
                if self._sender.failure is not None:
                    raise TransactionAbortedError(
                        f"the transaction cannot be committed: {self._sender.failure.message}"
                    )
                return attempt()

        return in_transaction

    def stop_accepting(self, state: TransactionProgress) -> None:
        """Accepts no more records for a transaction."""
        with self._lock:
            state.accepts = False

    def token(self, state: TransactionProgress) -> TransactionToken:
        """Returns the identity by which other writers join a transaction."""
        if state is not self._current or not state.accepts or self._token is None:
            raise IllegalStateError(_OUTSIDE)
        state.touched = True
        return self._token

    # --- the beginning -------------------------------------------------------------------------------------------

    async def finish_former(self) -> TransactionProgress | None:
        """Finds out the outcome of the former transaction, if an interruption or a lost answer left it open."""
        former = self._current
        if former is None:
            return None
        self.stop_accepting(former)
        if former.phase is Phase.COMMITTING:
            try:
                await self._decide(former)
            except CommitUnknownError:
                raise
            except QuorumlogError as error:
                if former.doubtful and isinstance(error, InvalidProducerEpochError):
                    raise
                await self.abort(former)
        elif former.phase is Phase.OPEN:
            await self.abort(former)
        return former

    def settle(self, former: TransactionProgress | None) -> None:
        """Applies the outcome of a transaction to its consumer.

        Raises:
            TransactionAbortedError: it is aborted, and no call has reported that.
        """
        if former is None:
            return
        if former.phase is Phase.COMMITTED:
            if former.consumer is not None and former.offsets is not None:
                former.consumer.transaction_committed(former.offsets)
            self._current = None
            return
        news = former.doubtful or (former.consumer is not None and not former.returned)
        former.return_consumer()
        self._current = None
        if news:
            raise TransactionAbortedError("the former transaction was aborted: run it again")

    async def begin(self, state: TransactionProgress) -> None:
        """Starts a transaction. The first one fences former instances of the producer."""
        if self._token is None or state.work is not None:
            begun = await self._coordinator.init(self._config.transaction_timeout_ms, self._token, state.work)
            self._token = begun.token
            state.work_committed = begun.work_committed
        token = self._token
        self._sender.begin_transaction(ProducerIdentity(token.producer_id, token.producer_epoch, transactional=True))
        self._current = state
        state.accepts = not state.work_committed

    def give_back(self, state: TransactionProgress) -> None:
        """Has the consumer return again what it has returned for a transaction whose block is not entered."""
        former, consumer = self._current, state.consumer
        if consumer is None:
            return
        is_same = former is not None and former.consumer is consumer
        if former is not None and is_same and former.phase in _MAY_COUNT and former.offsets is not None:
            consumer.return_to(former.offsets)
        else:
            state.return_consumer()

    # --- the end -------------------------------------------------------------------------------------------------

    def token_of(self, state: TransactionProgress) -> TransactionToken:
        """Returns the identity for requests in a transaction that ends."""
        assert self._token is not None, "a started transaction has an identity"
        state.touched = True
        return self._token

    async def commit(self, state: TransactionProgress) -> None:
        """Commits a transaction whose records were flushed.

        Raises:
            CommitUnknownError: no answer has arrived.
            QuorumlogError: it is not committed; abort it.
        """
        self.check_delivered(state)
        if state.work_committed:
            state.phase = Phase.COMMITTED
            return
        if state.work is not None or (state.touched and state.offsets is None):
            # Opens the transaction if no record has: the work is then committed, and writers that follow are refused.
            state.touched = True
            await self._coordinator.join(self.token_of(state))
        if not (state.touched or state.writers or self._sender.has_written):
            state.phase = Phase.COMMITTED
            return
        state.touched = True
        state.phase = Phase.COMMITTING
        await self._decide(state)

    def check_delivered(self, state: TransactionProgress) -> None:
        """Raises the error of the first record that has failed."""
        if state is not self._current:
            raise TransactionAbortedError("another transaction of this producer has started, which aborts this one")
        if self._sender.failure is not None:
            raise self._sender.failure

    async def _decide(self, state: TransactionProgress) -> None:
        try:
            ended = await self._coordinator.end(self.token_of(state), commit=True, writers=state.writers)
        except QuorumlogError as error:
            decided = isinstance(error, (TransactionAbortableError, InvalidTxnStateError))
            if decided or (error.definite and not state.doubtful):
                state.phase = Phase.OPEN
                raise
            state.doubtful = True
            if isinstance(error, InvalidProducerEpochError):
                raise error.as_indefinite("the commit") from None
            raise CommitUnknownError(
                f"it is not known whether the transaction is committed: {error.message}; the next transaction() finds"
                " out"
            ) from error
        except BaseException:  # Cancelled: the request may arrive.
            state.doubtful = True
            raise
        self._token = ended.token
        state.phase = Phase.COMMITTED

    async def abort(self, state: TransactionProgress) -> None:
        """Aborts a transaction.

        Raises:
            InvalidProducerEpochError: another instance of the producer has started, and has aborted it.
            QuorumlogError: the coordinator was not reached; the next transaction aborts this one first.
        """
        state.touched |= self._sender.has_written
        if state is self._current:
            self._sender.end_transaction(TransactionAbortedError("the transaction was aborted"))
        if state.touched:
            try:
                self._token = (await self._coordinator.end(self.token_of(state), commit=False)).token
            except (InvalidProducerIdMappingError, InvalidTxnStateError):
                self._token = None
            except InvalidProducerEpochError:
                state.phase = Phase.ABORTED
                raise
        state.phase = Phase.ABORTED

    async def aborted(self, state: TransactionProgress, cause: QuorumlogError) -> QuorumlogError:
        """Aborts a transaction that could not be committed; returns the error to raise."""
        try:
            await self.abort(state)
        except InvalidProducerEpochError as fenced:
            return fenced
        except QuorumlogError:
            pass  # The next transaction aborts it.
        if isinstance(cause, TransactionAbortedError):
            return cause
        again = cause.retriable or isinstance(cause, _PASSING)
        return TransactionAbortedError(f"the transaction is aborted: {cause.message}", retriable=again)

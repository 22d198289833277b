"""Storage thread: commits transactions one after the other, and sweeps garbage while none are queued."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable

from quorumlog.storage.interface import DiskFullError, FatalStorageError, StorageEngineError
from quorumlog.storage.storage import Storage
from quorumlog.storage.transaction import StorageTransaction

#: Transactions that may be queued. The node has one in progress; a longer queue would only show missing flow control.
CAPACITY = 4


class StorageWriter:
    """Owns the thread that commits to a ``Storage``.

    Every submitted transaction is completed exactly once, in order, by ``completed(number, error)`` on the storage
    thread:
    an adapter forwards it to its loop, with ``call_soon_threadsafe``. ``error`` is None once it is durable, a
    DiskFullError
    if nothing happened; any other is fatal, and completes all transactions from then on.
    """

    def __init__(
        self, storage: Storage, completed: Callable[[int, StorageEngineError | None], None], *, capacity: int = CAPACITY
    ) -> None:
        """Starts the thread.

        Arguments:
            completed: must not block, and must not raise.
            capacity: transactions that may be queued.
        """
        self._storage = storage
        self._completed = completed
        self._queue: queue.Queue[StorageTransaction | None] = queue.Queue(capacity + 1)
        self._capacity = capacity
        self._stopped = False
        self._failure: StorageEngineError | None = None
        # A daemon, so that a crashing process is not delayed; LMDB's commits are atomic.
        self._thread = threading.Thread(target=self._run, name="quorumlog-storage", daemon=True)
        self._thread.start()

    def submit(self, transaction: StorageTransaction) -> None:
        """Queues a transaction. Never blocks.

        Raises:
            StorageError: the writer has been stopped, or ``capacity`` transactions are queued already.
        """
        if self._stopped:
            raise StorageEngineError(
                f"transaction {transaction.number} was submitted after the storage thread was stopped"
            )
        if self._queue.qsize() >= self._capacity:
            raise StorageEngineError(f"more than {self._capacity} transactions wait for the storage thread")
        self._queue.put_nowait(transaction)

    def stop(self) -> None:
        """Completes what was submitted and stops the thread. May be called twice."""
        if not self._stopped:
            self._stopped = True
            self._queue.put(None)
        self._thread.join()

    def _run(self) -> None:
        more_garbage = True
        while True:
            try:
                transaction = self._queue.get(block=not more_garbage)
            except queue.Empty:
                more_garbage = self._sweep()
                continue
            if transaction is None:
                return
            error = self._commit(transaction)
            more_garbage = error is None
            self._completed(transaction.number, error)

    def _commit(self, transaction: StorageTransaction) -> StorageEngineError | None:
        if self._failure is not None:
            return self._failure
        try:
            self._storage.commit(transaction)
        except DiskFullError as error:
            return error
        except Exception as error:
            self._failure = _failure(error)
        return self._failure

    def _sweep(self) -> bool:
        """Sweeps one slice of garbage; False if none is left, or sweeping now is pointless."""
        try:
            return self._failure is None and self._storage.sweep()
        except DiskFullError:
            return False
        except Exception as error:
            # It completes the next transaction, where the node notices it. If the thread ended, the node would wait
            # forever.
            self._failure = _failure(error)
            return False


def _failure(error: Exception) -> StorageEngineError:
    if isinstance(error, StorageEngineError):
        return error
    failure = FatalStorageError(f"the storage thread failed: {error!r}")
    failure.__cause__ = error
    return failure

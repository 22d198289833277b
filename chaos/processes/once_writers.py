"""Writers of numbered records, each of which must be in the log exactly once: without a name, named, and replaying."""

from __future__ import annotations

import random
import struct
import threading
import time
from abc import abstractmethod
from array import array
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from enum import Enum, IntEnum

from quorumlog.chaos.processes.scenario_cluster import ClientOptions
from quorumlog.sdk import Producer
from quorumlog.sdk.errors import QuorumlogError, RequestTimedOutError
from quorumlog.sdk.producer.delivery import RecordFuture

#: A record's value: its number, its writer's number, and its key's.
VALUE = struct.Struct("<QII")
KEYS = 64
#: Small, so that many batches are in flight whenever a fault is injected.
BATCH_BYTES = 2_048
DELIVERY_TIMEOUT_MS = 120_000
RESULT_TIMEOUT_S = DELIVERY_TIMEOUT_MS / 1000 + 10
#: Records after which a named writer closes its producer and claims its name again.
RECORDS_PER_CLAIM = 10_000
#: Records of one replayed epoch, and those between two flushes of it.
RECORDS_PER_EPOCH = 1_000
RECORDS_PER_FLUSH = 250


class WriterKind(Enum):
    """Kind of a writer's producers."""

    UNNAMED = "unnamed"
    NAMED = "named"
    REPLAYING = "replaying"


class Fate(IntEnum):
    """Outcome of a record, as reported to its writer."""

    UNSENT = 0
    ACKNOWLEDGED = 1
    UNKNOWN = 2
    FAILED = 3


class Gate:
    """Lets every writer continue up to a number, and counts those that have reached it."""

    def __init__(self) -> None:
        self.limit = 0
        self._waiting = 0
        self._closed = False
        self._changed = threading.Condition()

    def open_to(self, limit: int) -> None:
        """Lets writers send the records before ``limit``."""
        with self._changed:
            self.limit = limit
            self._waiting = 0
            self._changed.notify_all()

    def close(self) -> None:
        """Closes the gate: writers end when they reach the limit."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def wait_beyond(self, end: int) -> bool:
        """Blocks a writer without records in flight until records before ``end`` may be sent.

        Returns:
            False: they may never be sent.
        """
        with self._changed:
            while self.limit < end and not self._closed:
                self._waiting += 1
                self._changed.wait()
            return self.limit >= end

    @property
    def waiting(self) -> int:
        """The number of writers that have reached the limit."""
        return self._waiting


class OnceWriter(threading.Thread):
    """One writer. Numbers its records from 0; record ``n`` has key ``n % KEYS``.

    Arguments:
        count: total number of records to send.
    """

    def __init__(self, number: int, count: int, topic: str, gate: Gate, name: str) -> None:
        super().__init__(name=name, daemon=True)
        self.number = number
        self.count = count
        #: The acknowledged offset of each record (-1: unknown), and its outcome.
        self.offsets = array("q", [-1]) * count
        self.fates = bytearray(count)
        self.settled = 0
        self.failure: str | None = None
        self._topic = topic
        self._gate = gate
        self._base_ms = time.time_ns() // 1_000_000

    def run(self) -> None:
        """Sends everything, and records the outcomes."""
        try:
            self.send_all()
        except Exception as error:  # any failure of a writer is a finding
            self.failure = f"{self.name}: {type(error).__name__}: {error}"

    @abstractmethod
    def send_all(self) -> None:
        """Sends everything as far as the gate allows, and records the outcomes."""

    def laid_out(self, record: int) -> tuple[bytes, bytes]:
        """Returns a record's value and key."""
        key = record % KEYS
        return VALUE.pack(record, self.number, key), b"%d" % key

    def told(self, fate: Fate) -> int:
        """Returns the number of records with an outcome."""
        return self.fates.count(fate)


class SdkOnceWriter(OnceWriter):
    """A writer with our own client.

    Arguments:
        seed: determines when it interrupts replays.
    """

    def __init__(
        self, number: int, kind: WriterKind, count: int, clients: ClientOptions, topic: str, gate: Gate, seed: int
    ) -> None:
        super().__init__(number, count, topic, gate, f"{kind.value}-{number}")
        self._kind = kind
        self._clients = clients
        self._rng = random.Random(seed)
        self._run = f"{self.name}-{self._base_ms}"

    def send_all(self) -> None:
        """Sends everything, and records the outcomes."""
        if self._kind is WriterKind.REPLAYING:
            for epoch, first in enumerate(range(0, self.count, RECORDS_PER_EPOCH)):
                end = min(first + RECORDS_PER_EPOCH, self.count)
                if not self._gate.wait_beyond(end):
                    return
                self._epoch(epoch, first, end)
        else:
            step = RECORDS_PER_CLAIM if self._kind is WriterKind.NAMED else self.count
            for first in range(0, self.count, step):
                self._stretch(first, min(first + step, self.count))

    def _producer(self, epoch: int | None = None) -> Producer:
        return Producer(
            **self._clients,
            batch_size=BATCH_BYTES,
            delivery_timeout_ms=DELIVERY_TIMEOUT_MS,
            request_timeout_ms=5_000,
            client_id=self.name,
            producer_name=None if self._kind is WriterKind.UNNAMED else self._run,
            producer_epoch=epoch,
        )

    def _send(self, producer: Producer, record: int) -> RecordFuture:
        value, key = self.laid_out(record)
        return producer.send(self._topic, value, key=key, timestamp_ms=self._base_ms)

    def _stretch(self, first: int, end: int) -> None:
        waiting: deque[tuple[int, RecordFuture]] = deque()
        with self._producer() as producer:
            for record in range(first, end):
                if record >= self._gate.limit:
                    self._settle_all(waiting)
                    if not self._gate.wait_beyond(record + 1):
                        return
                waiting.append((record, self._send(producer, record)))
                while waiting and waiting[0][1].done():
                    self._settle(*waiting.popleft())
            self._settle_all(waiting)

    def _epoch(self, epoch: int, first: int, end: int) -> None:
        """Starts an epoch, abandons it at a random record like a crashed process, and replays it to its end."""
        given_up = self._producer(epoch)
        with suppress(RequestTimedOutError):
            for start in range(first, self._rng.randrange(first, end), RECORDS_PER_FLUSH):
                for record in range(start, min(start + RECORDS_PER_FLUSH, end)):
                    self._send(given_up, record)
                given_up.flush(timeout=self._rng.choice((0.001, 0.01, 0.1)))
        given_up.close(timeout=0)
        waiting: deque[tuple[int, RecordFuture]] = deque()
        with self._producer(epoch) as producer:
            for start in range(first, end, RECORDS_PER_FLUSH):
                for record in range(start, min(start + RECORDS_PER_FLUSH, end)):
                    waiting.append((record, self._send(producer, record)))
                producer.flush(RESULT_TIMEOUT_S)
                self._settle_all(waiting)
            producer.end_epoch(RESULT_TIMEOUT_S)

    def _settle_all(self, waiting: deque[tuple[int, RecordFuture]]) -> None:
        while waiting:
            self._settle(*waiting.popleft())

    def _settle(self, record: int, future: RecordFuture) -> None:
        try:
            self.offsets[record] = future.result(RESULT_TIMEOUT_S).offset
            self.fates[record] = Fate.ACKNOWLEDGED
        except QuorumlogError as error:
            self.fates[record] = Fate.FAILED if error.definite else Fate.UNKNOWN
        self.settled += 1


def await_ended(writers: Sequence[OnceWriter], timeout_s: float) -> None:
    """Waits until every started writer has ended: outcomes that are unknown by then stay so.

    Raises:
        TimeoutError: a writer is still running.
    """
    deadline = time.monotonic() + timeout_s
    for writer in writers:
        if writer.ident is not None:
            writer.join(max(0.0, deadline - time.monotonic()))
            if writer.is_alive():
                raise TimeoutError(f"{writer.name} does not end within {timeout_s:g} s: some call of the SDK hangs")

"""The workload during faults: writers of unique values and readers, through the SDK, recorded."""

from __future__ import annotations

import itertools
import threading
import time
from collections import deque
from collections.abc import Callable

from quorumlog.chaos.checkers.history import History, Operation, OperationKind, OperationOutcome
from quorumlog.chaos.processes.scenario_cluster import ClientOptions
from quorumlog.sdk import Consumer, Producer, TopicPartition
from quorumlog.sdk.errors import QuorumlogError
from quorumlog.sdk.producer.delivery import RecordFuture

#: Time after which a send counts as unknown (ms).
DELIVERY_TIMEOUT_MS = 60_000
#: Maximum number of records in flight of the pipelined writer.
PIPELINED_RECORDS = 50
_JOIN_TIMEOUT_S = DELIVERY_TIMEOUT_MS / 1000 + 10


class Recorder:
    """A history that many threads write, on one clock that starts at 0."""

    def __init__(self) -> None:
        self.history = History()
        self._acknowledged: dict[tuple[str, str], list[int]] = {}
        self._lock = threading.Lock()
        self._began_ns = time.monotonic_ns()

    def now_us(self) -> int:
        """Returns microseconds since the recorder was created."""
        return (time.monotonic_ns() - self._began_ns) // 1_000

    def add(self, operation: Operation) -> None:
        """Records an operation that has ended."""
        with self._lock:
            self.history.add(operation)
            if operation.kind is OperationKind.SEND and operation.outcome is OperationOutcome.OK:
                moments = self._acknowledged.setdefault((operation.process, operation.partition), [])
                moments.append(operation.returned_us)

    def acknowledgements(self, process: str, partition: str) -> list[int]:
        """Returns when one writer's sends to one partition were acknowledged (µs)."""
        with self._lock:
            return list(self._acknowledged.get((process, partition), ()))


def sequential_writer(partition: TopicPartition) -> str:
    """Returns the name of the writer that sends to a partition one record at a time: the gaps between its
    acknowledgements are the times in which the partition could not be written.
    """
    return f"sequential-{partition.topic}-{partition.partition}"


class Workload:
    """For each partition a writer that sends one record at a time, and one that keeps many in flight; one reader of
    all.

    Arguments:
        clients: connection settings.
        partitions: of one topic or several.
        interval_s: pause of a sequential writer after each acknowledgement.
    """

    def __init__(
        self, clients: ClientOptions, partitions: list[TopicPartition], recorder: Recorder, interval_s: float = 0.005
    ) -> None:
        self.failures: list[str] = []
        self._clients = clients
        self._partitions = partitions
        self._recorder = recorder
        self._interval_s = interval_s
        self._stop_writing = threading.Event()
        self._stop_reading = threading.Event()
        self._writers = [self._thread(lambda p=p: self._write_one_by_one(p)) for p in partitions]  # type: ignore[misc]
        self._writers.append(self._thread(self._write_many))
        self._reader = self._thread(self._read)

    def start(self) -> None:
        """Starts to write and read."""
        for thread in (*self._writers, self._reader):
            thread.start()

    def stop(self) -> None:
        """Stops writers, once every send has its outcome, and the reader. Idempotent; may be called without a start."""
        self._stop_writing.set()
        self._join(self._writers)
        self._stop_reading.set()
        self._join([self._reader])

    def _join(self, threads: list[threading.Thread]) -> None:
        deadline = time.monotonic() + _JOIN_TIMEOUT_S
        for thread in threads:
            if thread.ident is not None:
                thread.join(max(0.0, deadline - time.monotonic()))
                if thread.is_alive():
                    self.failures.append(f"{thread.name} does not end: some call of the SDK hangs")

    def _thread(self, work: Callable[[], None]) -> threading.Thread:
        def run() -> None:
            try:
                work()
            except Exception as error:  # any failure of a client is a finding
                self.failures.append(f"{threading.current_thread().name}: {type(error).__name__}: {error}")

        return threading.Thread(target=run, daemon=True)

    # -- writing --------------------------------------------------------------------------------------------------

    def _producer(self, name: str) -> Producer:
        return Producer(
            **self._clients,
            linger_ms=0,
            delivery_timeout_ms=DELIVERY_TIMEOUT_MS,
            request_timeout_ms=5_000,
            client_id=name,
        )

    def _write_one_by_one(self, partition: TopicPartition) -> None:
        name = threading.current_thread().name = sequential_writer(partition)
        with self._producer(name) as producer:
            for number in itertools.count():
                if self._stop_writing.wait(self._interval_s):
                    return
                value, invoked = f"{name}.{number}", self._recorder.now_us()
                future = producer.send(partition.topic, value.encode(), partition=partition.partition)
                self._record(name, partition, value, invoked, future)

    def _write_many(self) -> None:
        name = threading.current_thread().name = "pipelined"
        waiting: deque[tuple[TopicPartition, str, int, RecordFuture]] = deque()
        with self._producer(name) as producer:
            for number, partition in enumerate(itertools.cycle(self._partitions)):
                if self._stop_writing.wait(self._interval_s / 5):
                    break
                value, invoked = f"{name}.{number}", self._recorder.now_us()
                future = producer.send(partition.topic, value.encode(), partition=partition.partition)
                waiting.append((partition, value, invoked, future))
                while waiting and (len(waiting) >= PIPELINED_RECORDS or waiting[0][3].done()):
                    self._record(name, *waiting.popleft())
            for sent in waiting:
                self._record(name, *sent)

    def _record(self, name: str, partition: TopicPartition, value: str, invoked_us: int, future: RecordFuture) -> None:
        outcome, offset = OperationOutcome.OK, -1
        try:
            offset = future.result(_JOIN_TIMEOUT_S).offset
        except QuorumlogError as error:
            outcome = OperationOutcome.FAIL if error.definite else OperationOutcome.INFO
        self._recorder.add(
            Operation(
                process=name,
                kind=OperationKind.SEND,
                invoked_us=invoked_us,
                returned_us=self._recorder.now_us(),
                outcome=outcome,
                partition=f"{partition.topic}-{partition.partition}",
                value=value,
                offset=offset,
            )
        )

    # -- reading --------------------------------------------------------------------------------------------------

    def _read(self) -> None:
        name = threading.current_thread().name = "reader"
        with Consumer(**self._clients, client_id=name) as consumer:
            consumer.assign(self._partitions)
            while not self._stop_reading.is_set():
                self._poll(consumer, name, final=False)

    def read_all(self, timeout_s: float) -> None:
        """Reads every partition from 0 to its end with a fresh reader.

        Raises:
            TimeoutError: it has not reached the end in time; the message states how far it is.
        """
        deadline = time.monotonic() + timeout_s
        with Consumer(**self._clients, client_id="final") as consumer:
            consumer.assign(self._partitions)
            consumer.seek_to_beginning(*self._partitions)
            ends = consumer.end_offsets(self._partitions)
            while any(consumer.position(partition) < ends[partition] for partition in self._partitions):
                if time.monotonic() > deadline:
                    places = [
                        f"{p.topic}-{p.partition} at {consumer.position(p)} of {ends[p]}" for p in self._partitions
                    ]
                    raise TimeoutError(f"a fresh reader does not reach the end: {', '.join(places)}")
                self._poll(consumer, "final", final=True)

    def _poll(self, consumer: Consumer, name: str, final: bool) -> None:
        invoked = self._recorder.now_us()
        polled = consumer.poll(timeout_ms=200, max_records=2_000)
        for partition, records in polled.items():
            self._recorder.add(
                Operation(
                    process=name,
                    kind=OperationKind.POLL,
                    invoked_us=invoked,
                    returned_us=self._recorder.now_us(),
                    outcome=OperationOutcome.OK,
                    partition=f"{partition.topic}-{partition.partition}",
                    records=[(record.offset, record.value.decode()) for record in records],
                    final=final,
                )
            )

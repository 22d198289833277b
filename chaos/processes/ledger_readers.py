"""Readers of committed postings: one that follows the accounts all the time, and fresh ones that audit them."""

from __future__ import annotations

import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from types import TracebackType
from typing import Any, Self

from quorumlog.chaos.checkers.transfer_checkers import Ledger, ListReads
from quorumlog.chaos.processes.scenario_cluster import ClientOptions
from quorumlog.sdk import Consumer, TopicPartition
from quorumlog.sdk.errors import QuorumlogError

POLL_RECORDS = 20_000
_POLL_MS = 200
#: Pause after an error (s).
_RETRY_S = 0.1
#: Time limit of one request for an end (s).
_END_S = 10
#: Time in which the other half of a transfer must become visible, and in which a reader must reach an end (s).
WHOLE_TIMEOUT_S = 120.0

#: Partition, offset and value of a record.
Line = tuple[int, int, bytes]


class CommittedReader(ABC):
    """Reads all partitions of a topic from the start, with any client, committed records only."""

    @abstractmethod
    def ends(self) -> Mapping[int, int]:
        """Returns the last stable offset of each partition."""

    @abstractmethod
    def positions(self) -> Mapping[int, int]:
        """Returns how far each partition has been read, beyond markers and aborted records."""

    @abstractmethod
    def poll(self) -> Iterator[Line]:
        """Yields the next records, for which it waits for a short time."""

    @abstractmethod
    def close(self) -> None:
        """Closes the client."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class SdkReader(CommittedReader):
    """A reader with our own client."""

    def __init__(self, options: ClientOptions, topic: str, partitions: int) -> None:
        self._consumer = Consumer(**options, client_id="auditor", isolation_level="read_committed")
        self._names = [TopicPartition(topic, number) for number in range(partitions)]
        self._consumer.assign(self._names)
        self._consumer.seek_to_beginning(*self._names)

    def ends(self) -> Mapping[int, int]:
        """Returns the last stable offset of each partition."""
        return {tp.partition: end for tp, end in self._consumer.end_offsets(self._names).items()}

    def positions(self) -> Mapping[int, int]:
        """Returns the position in each partition."""
        return {tp.partition: self._consumer.position(tp) for tp in self._names}

    def poll(self) -> Iterator[Line]:
        """Yields the next records."""
        table = self._consumer.poll_arrow(timeout_ms=_POLL_MS, max_records=POLL_RECORDS)
        columns = (table.column(name).to_pylist() for name in ("partition", "offset", "value"))
        return zip(*columns, strict=True)

    def close(self) -> None:
        """Closes the client."""
        self._consumer.close()


class KafkaReader(CommittedReader):
    """A reader with librdkafka."""

    def __init__(self, options: Mapping[str, str], topic: str, partitions: int) -> None:
        import confluent_kafka

        settings: dict[str, Any] = {**options, "group.id": "auditors", "log_level": 2, "reconnect.backoff.max.ms": 500}
        settings |= {"isolation.level": "read_committed", "enable.auto.commit": False, "enable.partition.eof": True}
        self._consumer = confluent_kafka.Consumer(settings)
        start = confluent_kafka.OFFSET_BEGINNING
        self._names = [confluent_kafka.TopicPartition(topic, number, start) for number in range(partitions)]
        self._consumer.assign(self._names)
        self._positions = dict.fromkeys(range(partitions), 0)
        self._eof = confluent_kafka.KafkaError._PARTITION_EOF
        self._failure = confluent_kafka.KafkaException

    def ends(self) -> Mapping[int, int]:
        """Returns the last stable offset of each partition."""
        return {name.partition: self._end(name) for name in self._names}

    def _end(self, name: Any) -> int:
        deadline = time.monotonic() + WHOLE_TIMEOUT_S
        while True:
            try:
                return int(self._consumer.get_watermark_offsets(name, timeout=_END_S)[1])
            except self._failure as failure:
                # A node that has just started may not have the topic yet, and a partition may have no leader.
                if time.monotonic() > deadline:
                    raise TimeoutError(f"the end of partition {name.partition} cannot be read: {failure}") from None
                time.sleep(_RETRY_S)

    def positions(self) -> Mapping[int, int]:
        """Returns the position in each partition. The client's own stays before markers at the end."""
        return self._positions

    def poll(self) -> Iterator[Line]:
        """Yields the next records."""
        for message in self._consumer.consume(POLL_RECORDS, _POLL_MS / 1_000):
            number, offset = message.partition() or 0, message.offset() or 0
            error = message.error()
            if error is None:
                self._positions[number] = offset + 1
                yield number, offset, message.value() or b""
            elif error.code() == self._eof:
                self._positions[number] = offset

    def close(self) -> None:
        """Closes the client."""
        self._consumer.close()


class LedgerFollower(threading.Thread):
    """Reads all the time. Its ledger is consistent under its lock."""

    def __init__(self, reader: CommittedReader, ledger: Ledger) -> None:
        super().__init__(name="follower", daemon=True)
        self.ledger = ledger
        self.failure: str | None = None
        #: When the number of whole transfers last grew, on the monotonic clock.
        self.progress_s: list[float] = []
        self._reader = reader
        self._stop_asked = threading.Event()

    def run(self) -> None:
        """Reads until it is stopped."""
        try:
            with self._reader as reader:
                while not self._stop_asked.is_set():
                    self._read(reader)
        except Exception as error:  # any failure of a reader is a finding
            self.failure = f"{self.name}: {type(error).__name__}: {error}"

    def _read(self, reader: CommittedReader) -> None:
        before = self.ledger.whole
        try:
            for line in reader.poll():
                self.ledger.take_record(*line)
        except QuorumlogError as error:
            if not error.retriable:
                raise
            time.sleep(_RETRY_S)
        if self.ledger.whole > before:
            self.progress_s.append(time.monotonic())

    def stop(self) -> None:
        """Stops it."""
        self._stop_asked.set()
        self.join(WHOLE_TIMEOUT_S)
        if self.is_alive():
            self.failure = f"{self.name} does not end: some call of the SDK hangs"


def audit(reader: CommittedReader, ledger: Ledger) -> ListReads:
    """Reads everything that is committed now, closes the reader, and returns the lists.

    Partitions have their ends at different moments, and a commit reaches them one after the other. So a transfer may be
    visible by half at first; the audit reads on until all of these are whole, and then the sum must be right.

    Raises:
        TimeoutError: it does not reach the ends in time.
    """
    begun_ns = time.monotonic_ns()
    deadline = time.monotonic() + WHOLE_TIMEOUT_S
    with reader:
        _read_to_the_ends(reader, ledger, deadline)
        halves = set(ledger.halves)
        while halves & ledger.halves.keys() and time.monotonic() < deadline:
            _read_to_the_ends(reader, ledger, deadline)
    ledger.torn(halves)
    ledger.check_sum()
    return ListReads.of(ledger, begun_ns, time.monotonic_ns())


def _read_to_the_ends(reader: CommittedReader, ledger: Ledger, deadline: float) -> None:
    ends = reader.ends()
    while any(position < ends[number] for number, position in reader.positions().items()):
        if time.monotonic() > deadline:
            behind = {number: position for number, position in reader.positions().items() if position < ends[number]}
            raise TimeoutError(f"{ledger.name} is at {behind} of {ends}: a fresh reader does not reach the end in time")
        for line in reader.poll():
            ledger.take_record(*line)

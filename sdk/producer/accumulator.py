"""Gathers records into batches, between the threads that send and the loop that ships.

Callers append under one lock, a few list appends each. The sender drains batches that are full, that have lingered, and
that are for a node with no request in flight: so a single record is sent at once, and under load batches grow
automatically with the response time (Nagle's algorithm, RFC 896, with a time limit). Memory is reserved in steps, not
per record, so that a record usually costs one comparison of its size with the remaining bytes.

A signal handler may raise in a caller between any two instructions. Each change therefore has one step that commits it,
a single call of C: a record joins the list of its batch, or a batch with its first record joins the waiting batches.
Steps before it have no effect without it, or waste a few bytes of a batch. Everything after it, and the memory count,
is derived again by :meth:`Accumulator._mend` if the change was interrupted.
"""

from __future__ import annotations

import math
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterable
from typing import TypeVar

import pyarrow as pa

from quorumlog.sdk.cluster.metadata import TopicView
from quorumlog.sdk.producer.batch import PIECE_BYTES, ProducerBatch, RecordColumns
from quorumlog.sdk.producer.delivery import BatchRows, RecordFuture
from quorumlog.sdk.producer.explanation import BatchNotes
from quorumlog.sdk.records.record_batch import BATCH_BASE_BYTES
from quorumlog.sdk.runtime.caller_lock import held_by_caller, let_go
from quorumlog.sdk.types import Headers

#: Key, value, timestamp in nanoseconds, and headers.
GivenRecord = tuple[bytes | None, bytes | None, int, Headers | None]
Result = TypeVar("Result")

#: Memory is reserved from the producer's budget in steps of this size.
RESERVATION_BYTES = 16 * 1024
#: Limit of records sent by signal handlers that have interrupted another send.
MOST_ASIDE = 1_000


class PartitionBuffer:
    """The waiting batches of one partition, oldest first; only the last may be open."""

    __slots__ = ("partition", "topic", "waiting")

    def __init__(self, topic: str, partition: int) -> None:
        self.topic = topic
        self.partition = partition
        self.waiting: deque[ProducerBatch] = deque()


class TopicBuffers:
    """The partitions of one topic, and the current sticky partition for keyless records."""

    __slots__ = ("available", "compacted", "max_batch_bytes", "name", "partitions", "rotation", "sticky",
                 "sticky_rows")  # fmt: skip

    def __init__(self, name: str) -> None:
        self.name = name
        #: Every record needs a key, according to the last metadata.
        self.compacted = False
        #: The topic accepts no larger batches, according to the last metadata.
        self.max_batch_bytes = sys.maxsize
        self.partitions: list[PartitionBuffer] = []
        #: Numbers of the partitions that have a leader, according to the last metadata.
        self.available: list[int] = []
        self.sticky: PartitionBuffer | None = None
        #: The same for rows of Arrow tables, which share no batch with records.
        self.sticky_rows: PartitionBuffer | None = None
        self.rotation = 0

    def resize(self, partition_count: int) -> None:
        """Adds buffers for new partitions of the topic."""
        for partition in range(len(self.partitions), partition_count):
            self.partitions.append(PartitionBuffer(self.name, partition))

    def learn(self, view: TopicView) -> None:
        """Applies a topic's metadata. Removed partitions stay until ``drop_partitions``."""
        self.resize(len(view.partitions))
        self.compacted = view.compacted
        # Incompressible data grows slightly.
        self.max_batch_bytes = view.max_message_bytes - view.max_message_bytes // 256
        self.available = [each.partition for each in view.partitions if each.leader >= 0]

    def next_partition(self) -> PartitionBuffer:
        """Returns the partition for the next batch: round-robin, but only among those with the fewest waiting batches.

        Round-robin alone would continue to fill a partition without a leader until it held all of the memory.
        """
        candidates = self.available or range(len(self.partitions))
        count = len(candidates)
        self.rotation += 1
        best: PartitionBuffer | None = None
        for step in range(count):
            buffer = self.partitions[candidates[(self.rotation + step) % count]]
            if not buffer.waiting:
                return buffer
            if best is None or len(buffer.waiting) < len(best.waiting):
                best = buffer
        assert best is not None, "a topic has at least one partition"
        return best


class Accumulator:
    """A bounded buffer of batches.

    Arguments:
        batch_size: bytes at which a batch is full.
        linger_s: longest time that a batch waits for more records while its partition's leader is busy with others.
        buffer_memory: limit in bytes shared by all batches until they are acknowledged.
        clock: monotonic seconds.
        wake: called, on any thread, when the sender has work.
        cut_by_time: True if batches are also closed when they have lingered or when memory is short; otherwise only
            when they are full or flushed, the same in each run.
    """

    def __init__(
        self,
        *,
        batch_size: int,
        linger_s: float,
        buffer_memory: int,
        clock: Callable[[], float],
        wake: Callable[[], None],
        cut_by_time: bool = True,
    ) -> None:
        self.lock = threading.RLock()
        #: True if this thread is inside one of the sections below and calls again, for example from a signal handler.
        self.is_entered: Callable[[], bool] = held_by_caller(self.lock)
        self._enter: Callable[[], object] = self.lock.acquire
        self._leave: Callable[[], None] = self.lock.release
        self.topics: dict[str, TopicBuffers] = {}
        self.loop_thread = 0
        self._batch_size = batch_size
        self._linger_s = linger_s if cut_by_time else math.inf
        self._cut_by_time = cut_by_time
        self._shut = False
        self._memory_bytes = buffer_memory
        self._free_bytes = buffer_memory
        self._clock = clock
        self._wake = wake
        self._flushes = 0
        self._active: dict[PartitionBuffer, None] = {}
        self._incomplete: dict[ProducerBatch, None] = {}
        self._room_waiters: deque[Callable[[], None]] = deque()
        #: True while several fields are being changed; if it is set at the start of a section, a change was
        #: interrupted.
        self._changing = False
        #: Records of signal handlers that interrupted a section on their thread, each a batch of its own.
        self._aside: deque[tuple[PartitionBuffer, ProducerBatch]] = deque()

    @property
    def free_bytes(self) -> int:
        """Bytes that no batch has reserved."""
        return self._free_bytes

    def has_waiting(self) -> bool:
        """True while any batch waits to be sent."""
        return bool(self._active)

    def add_topic(self, view: TopicView) -> None:
        """Accepts records for a topic from now on."""
        with self.lock:
            if view.name not in self.topics:
                buffers = TopicBuffers(view.name)
                buffers.learn(view)
                self.topics[view.name] = buffers

    def append(
        self,
        topic: TopicBuffers,
        partition: int | None,
        key: bytes | None,
        value: bytes | None,
        timestamp_ns: int,
        headers: Headers | None,
        size: int,
    ) -> RecordFuture | None:
        """Adds a record to its partition's open batch; returns None if the memory is full.

        Arguments:
            partition: None uses the sticky one.
            size: bytes of the record in the batch.
        """
        if self.is_entered():
            return self._append_aside(topic, partition, (key, value, timestamp_ns, headers), size)
        try:
            # Not ``with``, which takes twice as long. After an exception, _broken_off releases the lock if it is held.
            self._enter()
            buffer = batch = future = None
            if partition is None:
                buffer = topic.sticky
            elif partition < len(topic.partitions):
                buffer = topic.partitions[partition]
            else:
                self._leave()
                return None  # It was dropped after the caller's check: the next attempt reports it.
            if buffer is not None and buffer.waiting:
                batch = buffer.waiting[-1]
                room = batch.room - size
                if room >= 0:
                    batch.room = room
                    future = RecordFuture(batch.delivery, batch.add(key, value, timestamp_ns, headers))
            if future is None:
                record = (key, value, timestamp_ns, headers)
                future = self._append_slowly(topic, buffer, batch, partition, size, record)
            self._leave()
            return future
        except BaseException:
            self._broken_off()
            raise

    def _append_slowly(
        self,
        topic: TopicBuffers,
        buffer: PartitionBuffer | None,
        batch: ProducerBatch | None,
        partition: int | None,
        size: int,
        record: GivenRecord,
    ) -> RecordFuture | None:
        if self._changing:
            self._mend()
        self._changing = True
        future = None
        opened = self._make_room(topic, buffer, batch, partition, size)
        if opened is not None:
            is_new = not opened.values
            opened.room -= size
            future = RecordFuture(opened.delivery, opened.add(*record))
            if is_new:
                self._enqueue(topic.partitions[opened.partition], opened)
        self._changing = False
        return future

    def _append_aside(
        self, topic: TopicBuffers, partition: int | None, record: GivenRecord, size: int
    ) -> RecordFuture | None:
        """Adds a record while this thread is inside a section, whose state must not be touched.

        The record becomes a batch that is queued when the section has ended. Returns None if there are too many, or the
        memory is full.
        """
        reserved = size + BATCH_BASE_BYTES
        aside = sum(batch.reserved_bytes for _, batch in self._aside)
        if self._shut or len(self._aside) >= MOST_ASIDE or aside + reserved > self._free_bytes:
            return None
        try:
            buffer = (topic.sticky or topic.next_partition()) if partition is None else topic.partitions[partition]
        except IndexError:
            return None
        batch = ProducerBatch(buffer.topic, buffer.partition, self._clock(), self.loop_thread)
        batch.reserved_bytes = reserved
        future = RecordFuture(batch.delivery, batch.add(*record))
        self._aside.append((buffer, batch))
        self._wake()
        return future

    def _broken_off(self) -> None:
        """Releases the lock and completes the change after an exception in the outermost section of a caller."""
        let_go(self.lock)
        if self._changing:
            with self.lock:
                self._settle()

    def _settle(self) -> None:
        """Completes an interrupted section and queues the records put aside. The caller holds the lock."""
        if not (self._changing or self._aside):
            return
        self._changing = True
        while self._aside:
            buffer, batch = self._aside[0]
            if batch not in self._incomplete and batch not in buffer.waiting:
                self._cut_open(buffer)
                self._enqueue(buffer, batch)
            self._aside.popleft()
        self._mend()

    def _mend(self) -> None:
        """Derives all fields again from the waiting and the unresolved batches."""
        for topic in self.topics.values():
            for buffer in topic.partitions:
                if buffer.waiting:
                    self._active.setdefault(buffer)
                    self._incomplete.update(dict.fromkeys(buffer.waiting))
        self._free_bytes = self._memory_bytes - sum(batch.reserved_bytes for batch in self._incomplete)
        self._changing = False
        self._wake()

    def append_many(
        self, topic: TopicBuffers, partition: int | None, records: RecordColumns, first: int
    ) -> BatchRows | None:
        """Adds as many records as one batch accepts, at least one; returns None if the memory is full.

        Records come into the same batches as by :meth:`append`, one by one.

        Arguments:
            partition: None uses the sticky one.
            first: the row of the first record to add.
        """
        return self._change(lambda: self._append_many(topic, partition, records, first))

    def _append_many(
        self, topic: TopicBuffers, partition: int | None, records: RecordColumns, first: int
    ) -> BatchRows | None:
        try:
            buffer = topic.sticky if partition is None else topic.partitions[partition]
        except IndexError:
            return None  # It was dropped after the caller's check: the next attempt reports it.
        batch = buffer.waiting[-1] if buffer is not None and buffer.waiting else None
        size = records.sizes[first]
        if batch is None or batch.room < size:
            batch = self._make_room(topic, buffer, batch, partition, size)
            if batch is None:
                return None
        wanted = min(
            records.bytes_between(first, len(records.values)) - batch.room, self._full_at(topic) - batch.reserved_bytes
        )
        if wanted > 0:
            self._reserve(batch, min(wanted, self._free_bytes))
        is_new = not batch.values
        end = records.end_within(first, batch.room)
        batch.room -= records.bytes_between(first, end)
        rows = BatchRows(batch.delivery, batch.add_many(records, first, end), end - first)
        if is_new:
            self._enqueue(topic.partitions[batch.partition], batch)
        return rows

    def append_alone(
        self,
        topic: TopicBuffers,
        partition: int | None,
        key: bytes | None,
        value: bytes | None,
        timestamp_ns: int,
        headers: Headers | None,
        size: int,
        notes: BatchNotes,
    ) -> RecordFuture | None:
        """Adds a record as a batch of its own, ready at once, after the waiting ones; returns None if the memory is
        full.

        Arguments:
            partition: None chooses the next in turn.
            size: as for ``append``.
            notes: filled with the times of the batch.
        """
        record = (key, value, timestamp_ns, headers)
        return self._change(lambda: self._append_alone(topic, partition, record, size, notes))

    def _append_alone(
        self, topic: TopicBuffers, partition: int | None, record: GivenRecord, size: int, notes: BatchNotes
    ) -> RecordFuture | None:
        try:
            buffer = topic.next_partition() if partition is None else topic.partitions[partition]
        except IndexError:
            return None  # It was dropped after the caller's check: the next attempt reports it.
        batch = self._open(topic, buffer, size)
        if batch is None:
            return None
        self._cut_open(buffer)
        batch.room -= size
        future = RecordFuture(batch.delivery, batch.add(*record))
        batch.notes = notes
        notes.taken_s = batch.created_s
        self._cut(batch)
        self._enqueue(buffer, batch)
        self._wake()
        return future

    def _change(self, work: Callable[[], Result | None]) -> Result | None:
        """Runs a change of a caller's thread under the lock; returns None if it cannot be made now."""
        if self.is_entered():
            return None
        try:
            with self.lock:
                if self._shut:
                    return None
                self._settle()
                self._changing = True
                result = work()
                self._changing = False
                return result
        except BaseException:
            self._broken_off()
            raise

    def _make_room(
        self,
        topic: TopicBuffers,
        buffer: PartitionBuffer | None,
        batch: ProducerBatch | None,
        partition: int | None,
        size: int,
    ) -> ProducerBatch | None:
        """Returns a batch with room for ``size`` bytes: the open one extended, or a new one that is not queued yet."""
        if self._shut:
            return None
        if batch is not None and not batch.closed:
            allowance = self._full_at(topic) - batch.reserved_bytes
            if size - batch.room <= allowance and not batch.pieces:
                step = min(allowance, max(RESERVATION_BYTES, size - batch.room))
                if not self._reserve(batch, step):
                    return None
                return batch
            self._cut(batch)
            self._wake()
        if partition is None:
            buffer = topic.sticky = topic.next_partition()
            # It may have an open batch of its own, started by records with keys.
            newest = buffer.waiting[-1] if buffer.waiting else None
            if newest is not None and not newest.closed and newest is not batch:
                return self._make_room(topic, buffer, newest, buffer.partition, size)
        assert buffer is not None
        return self._open(topic, buffer, size)

    def _full_at(self, topic: TopicBuffers) -> int:
        """Returns the bytes at which a batch for a topic is full.

        Replayable batches must be cut the same way in each run, so they ignore a topic configuration that may change.
        """
        return min(self._batch_size, topic.max_batch_bytes) if self._cut_by_time else self._batch_size

    def _cut(self, batch: ProducerBatch) -> None:
        if not self._cut_by_time:
            # It may have waited a long time for more records; its delivery time starts now.
            batch.created_s = self._clock()
        batch.close()

    def _cut_open(self, buffer: PartitionBuffer) -> None:
        if buffer.waiting and not buffer.waiting[-1].closed:
            self._cut(buffer.waiting[-1])

    def _open(self, topic: TopicBuffers, buffer: PartitionBuffer, size: int) -> ProducerBatch | None:
        batch = ProducerBatch(buffer.topic, buffer.partition, self._clock(), self.loop_thread)
        wanted = max(size + BATCH_BASE_BYTES, min(RESERVATION_BYTES, self._full_at(topic)))
        if not self._reserve(batch, wanted):
            return None
        batch.room -= BATCH_BASE_BYTES
        return batch

    def _enqueue(self, buffer: PartitionBuffer, batch: ProducerBatch) -> None:
        """Queues a batch with its first record. The first step commits the change."""
        buffer.waiting.append(batch)
        self._incomplete[batch] = None
        if buffer not in self._active:
            self._active[buffer] = None
            self._wake()

    def _reserve(self, batch: ProducerBatch, wanted: int) -> bool:
        if wanted > self._free_bytes:
            return False
        self._free_bytes -= wanted
        batch.reserved_bytes += wanted
        batch.room += wanted
        return True

    def append_rows(self, topic: TopicBuffers, partition: int | None, rows: pa.RecordBatch) -> BatchRows | None:
        """Adds rows after the waiting batches; returns None if the memory is full.

        A few rows wait for more, as records do; a batch that could not accept as many again is full.

        Arguments:
            partition: None uses the partition of the previous rows while those wait.
            rows: of ``LOG_SCHEMA``.
        """
        # If one piece has a null, the batch has bitmaps for all of its rows: one for keys and one for values.
        size = rows.nbytes + 2 * (rows.num_rows // 8 + 1)
        return self._change(lambda: self._append_rows(topic, partition, rows, size))

    def _append_rows(
        self, topic: TopicBuffers, partition: int | None, rows: pa.RecordBatch, size: int
    ) -> BatchRows | None:
        try:
            buffer = topic.sticky_rows if partition is None else topic.partitions[partition]
        except IndexError:
            return None  # It was dropped after the caller's check: the next attempt reports it.
        full_at = self._full_at(topic)
        batch = buffer.waiting[-1] if buffer is not None and buffer.waiting else None
        is_new = batch is None or not batch.takes_rows(size, full_at)
        if batch is None or is_new:
            if partition is None:
                buffer = topic.sticky_rows = topic.next_partition()
            assert buffer is not None
            batch = ProducerBatch(buffer.topic, buffer.partition, self._clock(), self.loop_thread)
            batch.delivery.timestamps_ns = None
        if not self._reserve(batch, size + PIECE_BYTES + (BATCH_BASE_BYTES if is_new else 0)):
            return None
        batch.room -= size + PIECE_BYTES + (BATCH_BASE_BYTES if is_new else 0)
        part = BatchRows(batch.delivery, batch.add_rows(rows), rows.num_rows)
        is_full = not self._cut_by_time or not batch.takes_rows(size, full_at)
        if is_full:
            batch.close()
        if is_new:
            assert buffer is not None
            self._cut_open(buffer)
            self._enqueue(buffer, batch)
        if is_new or is_full:
            self._wake()
        return part

    def drain(
        self, can_send: Callable[[PartitionBuffer], bool], is_idle: Callable[[PartitionBuffer], bool]
    ) -> tuple[list[ProducerBatch], float | None]:
        """Removes and closes at most one ready batch per partition that may send.

        Arguments:
            can_send: True if a partition's pipeline accepts a batch now.
            is_idle: True if no request to a partition's leader is in flight: then there is nothing to wait for.

        Returns:
            the batches, and when the next one will have lingered long enough (by the clock; None if none is lingering).
        """
        drained: list[ProducerBatch] = []
        next_deadline: float | None = None
        with self.lock:
            self._settle()
            now = self._clock()
            hurry = self._cut_by_time and (self._flushes > 0 or bool(self._room_waiters))
            for buffer in list(self._active):
                batch = buffer.waiting[0]
                deadline = batch.created_s + self._linger_s
                if not (batch.closed or hurry or now >= deadline or (self._cut_by_time and is_idle(buffer))):
                    if self._cut_by_time:
                        next_deadline = deadline if next_deadline is None else min(next_deadline, deadline)
                    continue
                if not can_send(buffer):
                    continue
                buffer.waiting.popleft()
                if not batch.closed:
                    batch.close()
                topic = self.topics[buffer.topic]
                if not buffer.waiting:
                    topic.sticky = None if topic.sticky is buffer else topic.sticky
                    topic.sticky_rows = None if topic.sticky_rows is buffer else topic.sticky_rows
                if not buffer.waiting:
                    del self._active[buffer]
                drained.append(batch)
        return drained, next_deadline

    def drop_partitions(self, topic: TopicBuffers, count: int) -> list[ProducerBatch]:
        """Keeps the first ``count`` partitions of a topic; returns the batches that waited for the others."""
        dropped: list[ProducerBatch] = []
        with self.lock:
            self._settle()
            for buffer in topic.partitions[count:]:
                self._active.pop(buffer, None)
                for batch in buffer.waiting:
                    if not batch.closed:
                        batch.close()
                    dropped.append(batch)
                buffer.waiting.clear()
            del topic.partitions[count:]
            topic.available = [number for number in topic.available if number < count]
            topic.sticky = topic.sticky_rows = None
        return dropped

    def expire(self, created_before_s: float) -> list[ProducerBatch]:
        """Removes and returns the waiting batches that were created before a time."""
        expired: list[ProducerBatch] = []
        with self.lock:
            self._settle()
            for buffer in list(self._active):
                while buffer.waiting and buffer.waiting[0].created_s < created_before_s:
                    if not (self._cut_by_time or buffer.waiting[0].closed):
                        break
                    batch = buffer.waiting.popleft()
                    if not batch.closed:
                        batch.close()
                    expired.append(batch)
                if not buffer.waiting:
                    del self._active[buffer]
        return expired

    def complete(self, batch: ProducerBatch) -> None:
        """Returns a resolved batch's memory and lets waiting senders try again."""
        with self.lock:
            self._settle()
            del self._incomplete[batch]
            self._free_bytes += batch.reserved_bytes
            batch.reserved_bytes = 0
            batch.release()
            waiters, self._room_waiters = self._room_waiters, deque()
        for waiter in waiters:
            waiter()

    def when_room(self, callback: Callable[[], None]) -> None:
        """Calls ``callback`` when memory has become free, or never will. While a caller waits, no batch lingers."""
        try:
            with self.lock:
                shut = self._shut
                if not shut:
                    self._room_waiters.append(callback)
        except BaseException:
            let_go(self.lock)
            raise
        if shut:
            callback()
        else:
            self._wake()

    def shut(self) -> Iterable[ProducerBatch]:
        """Stops accepting records and notifies callers that wait for memory.

        Returns:
            the unresolved batches, waiting or sent.
        """
        with self.lock:
            self._settle()
            self._shut = True
            for buffer in self._active:
                self._cut_open(buffer)
            left = list(self._incomplete)
            waiters, self._room_waiters = self._room_waiters, deque()
        for waiter in waiters:
            waiter()
        return left

    def begin_flush(self) -> list[ProducerBatch]:
        """Disables lingering until :meth:`end_flush`. Returns the batches to flush."""
        with self.lock:
            self._settle()
            self._flushes += 1
            if not self._cut_by_time:
                for buffer in self._active:
                    self._cut_open(buffer)
            batches = list(self._incomplete)
        self._wake()
        return batches

    def end_flush(self) -> None:
        """Ends one :meth:`begin_flush`."""
        with self.lock:
            self._flushes -= 1
            assert self._flushes >= 0

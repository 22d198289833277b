"""Gathers records into batches: the meeting point of the threads that send and the loop that ships.

Callers append under one lock, a few list appends each. The sender drains what is full, what has lingered, and what is
for a node that it waits for nothing from: so a record by itself goes out at once, and under load batches grow by
themselves with the time that an answer takes (Nagle's algorithm, RFC 896, with a limit in time). Memory is reserved in
steps, not per record, so that a record usually costs one comparison of its size with the room left.
"""

from __future__ import annotations

import math
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterable

import pyarrow as pa

from quorumlog.sdk.cluster.metadata import TopicView
from quorumlog.sdk.producer.batch import PIECE_BYTES, ProducerBatch
from quorumlog.sdk.producer.delivery import ArrowRows, RecordFuture
from quorumlog.sdk.producer.explanation import BatchNotes
from quorumlog.sdk.records.record_batch import BATCH_BASE_BYTES
from quorumlog.sdk.types import Headers

#: Memory is taken from the producer's budget in steps of this size.
RESERVATION_BYTES = 16 * 1024


class PartitionBuffer:
    """The batches of one partition that wait to be sent, oldest first; only the last may be open."""

    __slots__ = ("partition", "topic", "waiting")

    def __init__(self, topic: str, partition: int) -> None:
        self.topic = topic
        self.partition = partition
        self.waiting: deque[ProducerBatch] = deque()


class TopicBuffers:
    """The partitions of one topic, and the one that keyless records stick to at the moment."""

    __slots__ = ("available", "compacted", "max_batch_bytes", "name", "partitions", "rotation", "sticky",
                 "sticky_rows")  # fmt: skip

    def __init__(self, name: str) -> None:
        self.name = name
        #: Every record needs a key, as far as is known.
        self.compacted = False
        #: The topic takes no larger batches, as far as is known.
        self.max_batch_bytes = sys.maxsize
        self.partitions: list[PartitionBuffer] = []
        #: Numbers of the partitions that have a leader, as far as is known.
        self.available: list[int] = []
        self.sticky: PartitionBuffer | None = None
        #: The same for rows of Arrow tables, which share no batch with records.
        self.sticky_rows: PartitionBuffer | None = None
        self.rotation = 0

    def resize(self, partition_count: int) -> None:
        """Adds buffers for partitions that the topic has gained."""
        for partition in range(len(self.partitions), partition_count):
            self.partitions.append(PartitionBuffer(self.name, partition))

    def learn(self, view: TopicView) -> None:
        """Takes in what the metadata say of the topic. Partitions that it has lost stay (``drop_partitions``)."""
        self.resize(len(view.partitions))
        self.compacted = view.compacted
        # What does not compress grows by a little.
        self.max_batch_bytes = view.max_message_bytes - view.max_message_bytes // 256
        self.available = [each.partition for each in view.partitions if each.leader >= 0]

    def next_partition(self) -> PartitionBuffer:
        """The partition for the next batch: in turn, but one with the fewest waiting batches.

        In turn alone would go on filling a partition whose leader is away until it held all of the memory.
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
    """Bounded memory full of batches.

    Arguments:
        batch_size: bytes at which a batch is full.
        linger_s: how long a batch waits for company at most, while its partition's leader is busy with others.
        buffer_memory: bytes that all batches together may take, until they are acknowledged.
        clock: monotonic seconds.
        wake: called, under no promise about the thread, when the sender has something to look at.
        cut_by_time: whether batches are closed when they have lingered, or when memory is short; else only when they
            are full or flushed, the same in each run.
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
        self.lock = threading.Lock()
        self.topics: dict[str, TopicBuffers] = {}
        self.loop_thread = 0
        self._batch_size = batch_size
        self._linger_s = linger_s if cut_by_time else math.inf
        self._cut_by_time = cut_by_time
        self._shut = False
        self._free_bytes = buffer_memory
        self._clock = clock
        self._wake = wake
        self._flushes = 0
        self._active: dict[PartitionBuffer, None] = {}
        self._incomplete: dict[ProducerBatch, None] = {}
        self._room_waiters: deque[Callable[[], None]] = deque()

    @property
    def free_bytes(self) -> int:
        """Memory that no batch has reserved."""
        return self._free_bytes

    def has_waiting(self) -> bool:
        """True while any batch waits to be sent."""
        return bool(self._active)

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
        """Adds a record to its partition's open batch; None when the memory is full.

        Arguments:
            partition: None sticks to the current one.
            size: what the record will take in the batch, in bytes.
        """
        with self.lock:
            try:
                buffer = topic.sticky if partition is None else topic.partitions[partition]
            except IndexError:
                return None  # It was dropped since the caller looked: who tries again is told.
            if buffer is not None and buffer.waiting:
                batch = buffer.waiting[-1]
                room = batch.room - size
                if room >= 0:
                    batch.room = room
                    return RecordFuture(batch.delivery, batch.add(key, value, timestamp_ns, headers))
            else:
                batch = None
            opened = self._make_room(topic, buffer, batch, partition, size)
            if opened is None:
                return None
            opened.room -= size
            return RecordFuture(opened.delivery, opened.add(key, value, timestamp_ns, headers))

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
        """Adds a record as a batch of its own, which is ready at once, behind what waits already; None when the memory
        is full.

        Arguments:
            partition: None takes the next in turn.
            size: as for ``append``.
            notes: what is to be noted of it.
        """
        with self.lock:
            if self._shut:
                return None
            try:
                buffer = topic.next_partition() if partition is None else topic.partitions[partition]
            except IndexError:
                return None  # It was dropped since the caller looked: who tries again is told.
            if buffer.waiting and not buffer.waiting[-1].closed:
                self._cut(buffer.waiting[-1])
            batch = self._open(topic, buffer, size)
            if batch is None:
                return None
            batch.room -= size
            future = RecordFuture(batch.delivery, batch.add(key, value, timestamp_ns, headers))
            batch.notes = notes
            notes.taken_s = batch.created_s
            self._cut(batch)
            self._wake()
            return future

    def _make_room(
        self,
        topic: TopicBuffers,
        buffer: PartitionBuffer | None,
        batch: ProducerBatch | None,
        partition: int | None,
        size: int,
    ) -> ProducerBatch | None:
        """A batch with room for ``size`` bytes: the open one grown, or a new one."""
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
            # It may have an open batch of its own, begun by records with keys.
            newest = buffer.waiting[-1] if buffer.waiting else None
            if newest is not None and not newest.closed and newest is not batch:
                return self._make_room(topic, buffer, newest, buffer.partition, size)
        assert buffer is not None
        return self._open(topic, buffer, size)

    def _full_at(self, topic: TopicBuffers) -> int:
        """Bytes at which a batch for a topic is full. What is cut the same way in each run heeds no configuration that
        may change meanwhile."""
        return min(self._batch_size, topic.max_batch_bytes) if self._cut_by_time else self._batch_size

    def _cut(self, batch: ProducerBatch) -> None:
        batch.close()
        if not self._cut_by_time:
            # It may have waited for company for long; the time to deliver it begins now.
            batch.created_s = self._clock()

    def _open(self, topic: TopicBuffers, buffer: PartitionBuffer, size: int) -> ProducerBatch | None:
        batch = ProducerBatch(buffer.topic, buffer.partition, self._clock(), self.loop_thread)
        wanted = max(size + BATCH_BASE_BYTES, min(RESERVATION_BYTES, self._full_at(topic)))
        if not self._reserve(batch, wanted):
            return None
        batch.room -= BATCH_BASE_BYTES
        self._enqueue(buffer, batch)
        return batch

    def _enqueue(self, buffer: PartitionBuffer, batch: ProducerBatch) -> None:
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

    def append_rows(self, topic: TopicBuffers, partition: int | None, rows: pa.RecordBatch) -> ArrowRows | None:
        """Adds rows behind what waits already; None when the memory is full.

        Few rows wait for company as records do; a batch that would not take as many again is full.

        Arguments:
            partition: None sticks to the one of the rows before, while they wait.
            rows: of ``LOG_SCHEMA``.
        """
        # Where one piece has a null, the batch has a bitmap of them for all of its rows: of keys, and of values.
        size = rows.nbytes + 2 * (rows.num_rows // 8 + 1)
        with self.lock:
            if self._shut:
                return None
            try:
                buffer = topic.sticky_rows if partition is None else topic.partitions[partition]
            except IndexError:
                return None  # It was dropped since the caller looked: who tries again is told.
            full_at = self._full_at(topic)
            batch = buffer.waiting[-1] if buffer is not None and buffer.waiting else None
            if batch is None or not batch.takes_rows(size, full_at):
                if partition is None:
                    buffer = topic.sticky_rows = topic.next_partition()
                assert buffer is not None
                batch = self._open_rows(buffer, size)
            elif not self._reserve(batch, size + PIECE_BYTES):
                return None
            if batch is None:
                return None
            batch.room -= size + PIECE_BYTES
            part = ArrowRows(batch.delivery, batch.add_rows(rows), rows.num_rows)
            if not self._cut_by_time or not batch.takes_rows(size, full_at):
                batch.close()
                self._wake()
            return part

    def _open_rows(self, buffer: PartitionBuffer, size: int) -> ProducerBatch | None:
        batch = ProducerBatch(buffer.topic, buffer.partition, self._clock(), self.loop_thread)
        batch.delivery.timestamps_ns = None
        if not self._reserve(batch, size + PIECE_BYTES + BATCH_BASE_BYTES):
            return None
        batch.room -= BATCH_BASE_BYTES
        if buffer.waiting and not buffer.waiting[-1].closed:
            self._cut(buffer.waiting[-1])
            self._wake()
        self._enqueue(buffer, batch)
        return batch

    def drain(
        self, can_send: Callable[[PartitionBuffer], bool], is_idle: Callable[[PartitionBuffer], bool]
    ) -> tuple[list[ProducerBatch], float | None]:
        """Takes out at most one ready batch per partition that may send, and closes it.

        Arguments:
            can_send: whether a partition's pipeline takes a batch now.
            is_idle: whether nothing is under way to a partition's leader: then there is nothing to wait for.

        Returns:
            the batches, and when the next one will have lingered enough (by the clock; None if none waits for that).
        """
        drained: list[ProducerBatch] = []
        next_deadline: float | None = None
        with self.lock:
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
        """Takes out the waiting batches that began before a time."""
        expired: list[ProducerBatch] = []
        with self.lock:
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
        """Gives a resolved batch's memory back and lets waiting senders try again."""
        with self.lock:
            del self._incomplete[batch]
            self._free_bytes += batch.reserved_bytes
            batch.reserved_bytes = 0
            batch.release()
            waiters, self._room_waiters = self._room_waiters, deque()
        for waiter in waiters:
            waiter()

    def when_room(self, callback: Callable[[], None]) -> None:
        """Calls ``callback`` when memory has become free, or never will. While somebody waits, no batch lingers."""
        with self.lock:
            shut = self._shut
            if not shut:
                self._room_waiters.append(callback)
        if shut:
            callback()
        else:
            self._wake()

    def shut(self) -> Iterable[ProducerBatch]:
        """Takes no more records; who waits for room is told. Returns the batches that are not resolved yet, waiting or
        sent."""
        with self.lock:
            self._shut = True
            for buffer in self._active:
                if buffer.waiting and not buffer.waiting[-1].closed:
                    self._cut(buffer.waiting[-1])
            left = list(self._incomplete)
            waiters, self._room_waiters = self._room_waiters, deque()
        for waiter in waiters:
            waiter()
        return left

    def begin_flush(self) -> list[ProducerBatch]:
        """Until :meth:`end_flush` no batch lingers. Returns the batches that the flush is about."""
        with self.lock:
            self._flushes += 1
            if not self._cut_by_time:
                for buffer in self._active:
                    if not buffer.waiting[-1].closed:
                        self._cut(buffer.waiting[-1])
            batches = list(self._incomplete)
        self._wake()
        return batches

    def end_flush(self) -> None:
        """Ends one :meth:`begin_flush`."""
        with self.lock:
            self._flushes -= 1
            assert self._flushes >= 0

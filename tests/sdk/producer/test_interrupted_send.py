"""A signal handler that raises, or sends, between any two instructions of ``send``: other records are not affected."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial
from typing import Any, cast

import pyarrow as pa
import pytest
from interruptions import at_step, interrupted, steps

from quorumlog.sdk.cluster.metadata import TopicView
from quorumlog.sdk.configuration import build_config
from quorumlog.sdk.producer.accumulator import MOST_ASIDE, TopicBuffers
from quorumlog.sdk.producer.async_producer import ProducerCore
from quorumlog.sdk.producer.batch import ProducerBatch
from quorumlog.sdk.producer.config import ProducerConfig
from quorumlog.sdk.producer.delivery import RecordFuture
from quorumlog.sdk.producer.explanation import BatchNotes
from quorumlog.sdk.records.record_batch import decode
from quorumlog.sdk.runtime.caller_lock import let_go
from quorumlog.wire.entry import Codec, seal_batch

pytestmark = [
    pytest.mark.thorough,
    pytest.mark.interpreted("compiled code has no instructions of Python to stop at"),
]

MEMORY = 2_000_000
PARTITIONS = 1
LIMIT_S = 10.0


class StubLoop:
    """Keeps the callbacks for the loop's thread."""

    def __init__(self) -> None:
        self.calls: list[Callable[[], None]] = []

    def call_soon_threadsafe(self, callback: Callable[[], None]) -> None:
        self.calls.append(callback)

    def run(self) -> None:
        """Makes the calls."""
        calls, self.calls = self.calls, []
        for call in calls:
            call()


class Rig:
    """A producer without nodes: the test drains its batches and reads what they hold."""

    def __init__(self, *, keyed: bool, value_bytes: int = 5_000, **options: Any) -> None:
        options = {"bootstrap_servers": "127.0.0.1:1", "buffer_memory": MEMORY, "batch_size": 30_000} | options
        self.core = ProducerCore(build_config(ProducerConfig, options))
        self.accumulator = self.core.accumulator
        buffers = self.accumulator.topics["t"] = TopicBuffers("t")
        buffers.resize(PARTITIONS)
        buffers.available = list(range(PARTITIONS))
        self.loop = StubLoop()
        self.wakes = 0
        self.core.bind(cast(Any, self.loop), thread_id=-1)
        self.core.sender.wake = self._woken  # type: ignore[method-assign]
        self.keyed = keyed
        self._value_bytes = value_bytes
        self.handles: dict[int, RecordFuture] = {}

    def _woken(self) -> None:
        self.wakes += 1

    def _record(self, number: int) -> tuple[bytes, bytes | None, list[tuple[str, bytes]] | None]:
        """Returns value, key and headers of a record, which follow from its number; every third has headers."""
        key = b"key-%d" % number if self.keyed else None
        headers = [("number", b"%d" % number)] if number % 3 == 0 else None
        return b"%d" % number + bytes(self._value_bytes), key, headers

    def send(self, number: int, notes: BatchNotes | None = None) -> None:
        """Sends a record."""
        value, key, headers = self._record(number)
        handle = self.core.intake.try_send("t", value, key, headers, None, number, notes)
        assert handle is not None
        self.handles[number] = handle

    def send_list(self, numbers: range) -> None:
        """Sends records as a list."""
        values, keys, headers = zip(*map(self._record, numbers), strict=True)
        sending = self.core.intake.begin_many("t", values, keys if self.keyed else None, headers, None, numbers)
        while not sending.is_complete:
            assert sending.add_some() is not None
        self.handles |= dict(zip(numbers, sending.future().futures(), strict=True))

    def send_rows(self, number: int) -> None:
        """Sends rows as Arrow."""
        table = pa.table({"value": [b"%d" % number]})
        for target, piece in self.core.cut_arrow(self.accumulator.topics["t"], table, None):
            assert self.accumulator.append_rows(self.accumulator.topics["t"], target, piece) is not None

    def drain(self) -> list[ProducerBatch]:
        """All batches, as the sender would take them."""
        found: list[ProducerBatch] = []
        while batches := self.accumulator.drain(lambda buffer: True, lambda buffer: True)[0]:
            found += batches
        return found

    def check(self, *doubtful: int) -> None:
        """Checks that each record is in the log once and whole, where its handle says.

        Of the ``doubtful``, only the first ones may be in the log.
        """
        self.loop.run()
        assert self.wakes, "the sender was woken"
        self.wakes = 0
        self.core._wake()
        self.loop.run()
        assert self.wakes, "the next wake reaches it too"
        found: dict[int, tuple[ProducerBatch, int]] = {}
        batches = self.drain()
        for batch in batches:
            assert batch.reserved_bytes > sum(len(value or b"") for value in batch.values)
            entry = seal_batch(
                batch.seal(Codec.LZ4, None, -1), group=1, term=1, index=1, previous_hash=0, base_offset=0
            )
            for row, record in enumerate(decode(entry).columns.to_pylist()):
                number = int(record["value"].rstrip(b"\0"))
                assert number not in found, "each record is sent once"
                found[number] = batch, row
                if number in self.handles:
                    self._check_record(number, record, batch, row)
        assert found.keys() - {*doubtful} == self.handles.keys() - {*doubtful}
        there = [number for number in doubtful if number in found]
        assert there == [*doubtful[: len(there)]]
        for batch in batches:
            batch.delivery.succeed(0, -1)
            self.accumulator.complete(batch)
        for number, handle in self.handles.items():
            assert handle.result(0).timestamp == number
        assert self.accumulator.free_bytes == MEMORY and not self.accumulator._incomplete
        assert not self.accumulator.has_waiting()

    def _check_record(self, number: int, record: dict[str, Any], batch: ProducerBatch, row: int) -> None:
        assert record["key"] == (b"key-%d" % number if self.keyed else None)
        assert round(record["timestamp"].timestamp() * 1000) == number
        headers = [{"key": "number", "value": b"%d" % number}] if number % 3 == 0 else None
        assert record["headers"] == headers
        assert (self.handles[number]._delivery, self.handles[number]._index) == (batch.delivery, row)

    def is_locked(self) -> bool:
        """True if another thread cannot enter."""
        entered = threading.Event()

        def enter() -> None:
            with self.accumulator.lock:
                entered.set()

        threading.Thread(target=enter, daemon=True).start()
        return not entered.wait(LIMIT_S)


@pytest.mark.parametrize("lines", [False, True])
@pytest.mark.parametrize("keyed", [False, True])
@pytest.mark.parametrize("before", range(7))
def test_interrupted_send_loses_one_record(before: int, keyed: bool, lines: bool) -> None:
    """The record opens a batch, fits, needs more memory, or fills the batch; its successor must have its own key."""
    for step in steps():
        rig = Rig(keyed=keyed)
        for number in range(before):
            rig.send(number)
        was_interrupted = interrupted(step, partial(rig.send, before), lines=lines)
        assert not rig.is_locked(), f"step {step} keeps the lock"
        for number in range(before + 1, before + 4):
            rig.send(number)
        rig.check(*[before] if was_interrupted else ())
        if not was_interrupted:
            return


@pytest.mark.parametrize("keyed", [False, True])
@pytest.mark.parametrize(("before", "value_bytes"), [(0, 5_000), (5, 5_000), (2, 1_000)])
def test_interrupted_list_keeps_its_first_records(before: int, value_bytes: int, keyed: bool) -> None:
    """A list opens batches, or joins an open one; what is sent afterwards has its own keys and headers."""
    listed = range(before, before + 8)
    for step in steps(every=5):
        rig = Rig(keyed=keyed, value_bytes=value_bytes)
        for number in range(before):
            rig.send(number)
        was_interrupted = interrupted(step, partial(rig.send_list, listed))
        assert not rig.is_locked(), f"step {step} keeps the lock"
        if step % 2:
            rig.send_list(range(before + 8, before + 13))
        else:
            for number in range(before + 8, before + 13):
                rig.send(number)
        rig.check(*listed if was_interrupted else ())
        if not was_interrupted:
            return


@pytest.mark.parametrize("what", ["alone", "rows", "room"])
def test_interrupted_rare_calls_change_nothing_else(what: str) -> None:
    def call(rig: Rig) -> None:
        if what == "alone":
            rig.send(1, BatchNotes())
        elif what == "rows":
            rig.send_rows(1)
        else:
            rig.accumulator.when_room(lambda: None)

    for step in steps():
        rig = Rig(keyed=False)
        rig.send(0)
        was_interrupted = interrupted(step, partial(call, rig))
        assert not rig.is_locked(), f"step {step} keeps the lock"
        rig.send(2)
        rig.handles.pop(1, None)
        rig.check(1)
        if not was_interrupted:
            return


@pytest.mark.parametrize("before", [0, 3, 5])
def test_interrupted_twice_is_mended_later(before: int) -> None:
    """A second exception keeps the first from being dealt with: the next use does it."""
    for step in steps():
        rig = Rig(keyed=True)
        for number in range(before):
            rig.send(number)
        rig.accumulator._broken_off = partial(let_go, rig.accumulator.lock)  # type: ignore[method-assign]
        was_interrupted = interrupted(step, partial(rig.send, before))
        if step % 2:  # Otherwise it is the sender that comes next.
            for number in range(before + 1, before + 4):
                rig.send(number)
        rig.core._wake()
        rig.check(*[before] if was_interrupted else ())
        if not was_interrupted:
            return


@pytest.mark.parametrize("keyed", [False, True])
@pytest.mark.parametrize("before", [0, 1, 3, 5])
def test_send_within_send_takes_both(before: int, keyed: bool) -> None:
    """A signal handler that sends while its own thread is in ``send`` returns at once."""
    for step in steps():
        rig = Rig(keyed=keyed)
        for number in range(before):
            rig.send(number)
        acted = at_step(step, partial(rig.send, before), partial(rig.send, before + 1))
        rig.send(before + 2)
        if not acted:
            rig.send(before + 1)
        rig.check()
        if not acted:
            return


def test_sends_within_send_are_bounded() -> None:
    rig = Rig(keyed=False, value_bytes=10)
    with rig.accumulator.lock:
        for number in range(MOST_ASIDE):
            rig.send(number)
        assert rig.core.intake.try_send("t", b"one too many", None, None, None, 1) is None
    rig.check()


def test_sends_within_send_respect_the_memory() -> None:
    rig = Rig(keyed=False, value_bytes=10)
    rig.accumulator._memory_bytes = rig.accumulator._free_bytes = 40_000
    with rig.accumulator.lock:
        assert rig.core.intake.try_send("t", bytes(29_000), None, None, None, 1) is not None
        assert rig.core.intake.try_send("t", bytes(29_000), None, None, None, 1) is None
    rig.drain()
    with rig.accumulator.lock:
        assert rig.core.intake.try_send("t", bytes(29_000), None, None, None, 1) is None


def test_added_topic_keeps_its_buffers() -> None:
    rig = Rig(keyed=False)
    known = rig.accumulator.topics["t"]
    rig.accumulator.add_topic(TopicView("t", b"id", ()))
    assert rig.accumulator.topics["t"] is known

"""A signal handler that raises between any two instructions of a consumer's calls: no record is skipped or repeated,
and every partition is as it was or as it should be."""

from __future__ import annotations

import asyncio
import threading
from array import array
from collections.abc import Callable
from contextlib import suppress
from functools import cache, partial
from typing import Any, cast

import pytest
from interruptions import at_step, interrupted, steps
from scripted_cluster import ScriptedCluster
from scripted_reading import consumer_on, fill

from quorumlog.sdk import Consumer, IllegalStateError, TopicPartition
from quorumlog.sdk.consumer.assignment import PartitionState
from quorumlog.sdk.records.fetched import FetchedRows
from quorumlog.sdk.records.record_batch import batch_from_columns, encode
from quorumlog.sdk.types import ConsumerRecord
from quorumlog.wire.entry import Codec, build_batch, seal_batch

pytestmark = pytest.mark.thorough

P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)
LIMIT_S = 10.0


@cache
def fetched(tp: TopicPartition, first: int, count: int) -> FetchedRows:
    """A batch of records whose keys, values and headers say their offsets."""
    offsets = [b"%d" % offset for offset in range(first, first + count)]
    columns = batch_from_columns(
        offsets, offsets, array("q", range(0, count * 1_000_000, 1_000_000)), {0: [("offset", offsets[0])]}
    )
    made = encode(columns, Codec.ZSTD)
    batch = build_batch(
        made.payload, record_count=count, codec=Codec.ZSTD, base_timestamp_ms=0, max_timestamp_ms=count - 1
    )
    return FetchedRows.of_entry(tp, seal_batch(batch, group=1, term=1, index=1, previous_hash=0, base_offset=first))


class StubLoop:
    """Counts the calls that wake the fetcher."""

    def __init__(self) -> None:
        self.wakes = 0

    def call_soon_threadsafe(self, callback: Callable[..., None], *arguments: object) -> None:
        self.wakes += 1


class Rig:
    """A consumer whose records the test puts where the fetcher would."""

    def __init__(self) -> None:
        self.consumer = Consumer(bootstrap_servers="127.0.0.1:1", consumer_timeout_ms=200)
        core = self.consumer._core
        self.assignment = core.assignment
        self.assignment._partition_limit_bytes = 1  # A partition with anything queued is full.
        self.assignment.add([P0, P1], "earliest")
        core.assigned = True
        self.loop = StubLoop()
        core._loop = cast(Any, self.loop)
        for state in self.assignment.states.values():
            state.position = state.fetch_offset = 0
        self.read: dict[TopicPartition, list[int]] = {P0: [], P1: []}

    def fetch(self, tp: TopicPartition, count: int) -> None:
        """Fetches a batch of records."""
        state = self.assignment.states[tp]
        first = state.fetch_offset or 0
        with self.assignment.lock:
            rows = fetched(tp, first, count)
            state.queued.append(rows)
            state.queued_bytes += rows.size_bytes
            state.fetch_offset = first + count

    def begin(self) -> None:
        """Goes to the beginning of everything, so that each step is the same instruction in the same state."""
        self.assignment._turn = 0
        self.loop.wakes = 0
        for tp, state in self.assignment.states.items():
            state.move(0, "earliest")
            self.read[tp] = []

    def take(self, records: list[ConsumerRecord]) -> None:
        """Notes what the application was given."""
        for record in records:
            assert record.key == record.value == b"%d" % record.offset
            self.read[TopicPartition(record.topic, record.partition)].append(record.offset)

    def poll(self, most: int = 4) -> None:
        for records in self.consumer.poll(max_records=most).values():
            self.take(records)

    def poll_arrow(self) -> None:
        for row in self.consumer.poll_arrow(max_records=4).to_pylist():
            self.read[TopicPartition(row["topic"], row["partition"])].append(row["offset"])

    def iterate(self) -> None:
        self.take([next(self.consumer)])

    def check(self) -> None:
        """Checks what must hold between any two calls."""
        assert not self.assignment.is_entered()
        entered = threading.Event()

        def enter() -> None:
            with self.assignment.lock:
                entered.set()

        threading.Thread(target=enter, daemon=True).start()
        assert entered.wait(LIMIT_S), "the lock is kept"
        handed = self.consumer._core.iteration.positions()
        for tp, state in self.assignment.states.items():
            assert state.queued_bytes == sum(rows.size_bytes for rows in state.queued)
            expected = state.position
            for rows in state.queued:
                assert rows.offset == expected
                expected = rows.next_offset
            assert expected == state.fetch_offset
            assert handed.get(tp, state.position) == len(self.read[tp]), "the position is after what was returned"

    def check_all_read(self) -> None:
        """Reads the rest, and checks that each record came once and in order."""
        self.poll(most=100)
        while any(state.queued for state in self.assignment.states.values()) or self.assignment.handed:
            self.poll(most=100)
        for tp, state in self.assignment.states.items():
            assert self.read[tp] == list(range(state.fetch_offset or 0))
        assert not self.assignment.unannounced and self.loop.wakes, "the fetcher was woken"


@pytest.mark.parametrize("begun", [False, True])
@pytest.mark.parametrize("lines", [False, True])
@pytest.mark.parametrize("call", ["poll", "poll_arrow", "iterate"])
def test_interrupted_poll_skips_nothing(call: str, lines: bool, begun: bool) -> None:
    """Between batches, or in the middle of an iteration over one."""
    rig = Rig()
    for step in steps():
        rig.begin()
        rig.fetch(P0, 3)
        rig.fetch(P0, 2)
        rig.fetch(P1, 3)
        if begun:
            rig.iterate()
        was_interrupted = interrupted(step, getattr(rig, call), lines=lines)
        rig.check()
        for _ in range(step % 3):
            rig.iterate()
        rig.check_all_read()
        if not was_interrupted:
            return


def state_of(rig: Rig) -> str:
    """All that is known of the partitions."""
    states = rig.assignment.states.values()
    return repr([[getattr(state, name) for name in PartitionState.__slots__] for state in states])


@pytest.mark.parametrize("call", ["seek", "seek_to_beginning", "pause"])
def test_interrupted_move_is_whole_or_none(call: str) -> None:
    """Half a seek would drop what is on its way for the former position, and ask for nothing instead."""

    def make() -> Rig:
        rig = Rig()
        rig.fetch(P0, 3)
        rig.fetch(P1, 3)
        rig.iterate()
        return rig

    arguments: list[object] = {"seek": [P0, 2], "pause": [P0, P1]}.get(call, [])
    rig = make()
    rig.consumer._core.iteration.give_back()
    before = state_of(rig)
    getattr(rig.consumer, call)(*arguments)
    after = state_of(rig)
    for step in steps():
        fresh = make()
        was_interrupted = interrupted(step, partial(getattr(fresh.consumer, call), *arguments))
        fresh.loop.wakes = 0
        fresh.consumer._core.iteration.give_back()
        is_moved = state_of(fresh) == after
        assert is_moved or state_of(fresh) == before, f"step {step}"
        if is_moved and fresh.assignment.unannounced:
            fresh.poll()
            assert fresh.loop.wakes, "the next poll wakes the fetcher"
        if not was_interrupted:
            return


def test_interrupted_twice_is_rolled_back_later() -> None:
    """A second exception keeps the first from being dealt with: the next use does it."""
    for step in steps():
        rig = Rig()
        rig.fetch(P0, 3)
        rig.fetch(P1, 3)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(rig.assignment, "_roll_back", lambda: None)
            rig.assignment.lock._roll_back = lambda: None
            was_interrupted = interrupted(step, rig.poll)
        rig.assignment.lock._roll_back = rig.assignment._roll_back
        if step % 2:  # Otherwise it is the poll that comes first.
            rig.check()
        rig.check_all_read()
        if not was_interrupted:
            return


@pytest.mark.parametrize("call", ["poll", "seek"])
def test_call_within_poll_returns_or_raises(call: str) -> None:
    """A signal handler that uses the consumer which it has interrupted is not waited for."""
    for step in steps():
        rig = Rig()
        rig.fetch(P0, 3)

        def act(rig: Rig = rig) -> None:
            with suppress(IllegalStateError):
                rig.consumer.poll() if call == "poll" else rig.consumer.seek(P1, 0)

        if not at_step(step, rig.poll, act):
            return


@pytest.mark.parametrize("how", ["unsubscribe", "subscribe"])
def test_unsubscribing_ends_an_iteration(how: str) -> None:
    """The rest of the earlier poll is neither returned nor counted as read."""
    rig = Rig()
    rig.fetch(P0, 3)
    rig.iterate()
    if how == "unsubscribe":
        rig.consumer.unsubscribe()
    else:
        rig.consumer.subscribe(["other"])
        assert rig.assignment.states[P0].position == 1
        rig.assignment.remove([P0, P1])  # As the first poll of the other topic does.
    other = TopicPartition("other", 0)
    rig.assignment.add([other], "earliest")
    rig.consumer._core.assigned = True
    rig.assignment.states[other].position = rig.assignment.states[other].fetch_offset = 0
    rig.fetch(other, 2)
    assert [record.topic for record in rig.consumer] == ["other", "other"]


@pytest.mark.parametrize("one_by_one", [False, True])
async def test_cancelled_poll_skips_nothing(cluster: ScriptedCluster, one_by_one: bool) -> None:
    """A task that polls is cancelled at any step of its loop."""
    fill(cluster, 300)
    seen: list[int] = []
    async with consumer_on(cluster, "t", max_poll_records=3) as consumer, asyncio.timeout(60):
        moment = 0
        while len(seen) < 300:
            moment += 1
            polling = asyncio.ensure_future(anext(consumer) if one_by_one else consumer.poll(200))
            for _ in range(moment % 12):
                await asyncio.sleep(0)
            polling.cancel()
            await asyncio.wait([polling])
            if polling.cancelled():
                continue
            result = polling.result()
            given = result.get(P0, []) if isinstance(result, dict) else [result]
            seen += [int(record.value) for record in given]
    assert seen == list(range(300))

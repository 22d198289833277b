"""Looks up start positions for partitions without a position, or with one that the log may not reach."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

from quorumlog.sdk.cluster.cluster import Cluster
from quorumlog.sdk.cluster.offset_lookup import find_offsets
from quorumlog.sdk.cluster.offset_search import EARLIEST, LATEST
from quorumlog.sdk.consumer.assignment import Assignment, PartitionState
from quorumlog.sdk.consumer.config import ConsumerConfig
from quorumlog.sdk.errors import NoOffsetForPartitionError, QuorumlogError


class PositionLookUps:
    """The look-ups of one consumer, on its event loop.

    Arguments:
        wake: wakes the fetcher.
    """

    def __init__(
        self, config: ConsumerConfig, cluster: Cluster, assignment: Assignment, wake: Callable[[], None]
    ) -> None:
        self._cluster = cluster
        self._assignment = assignment
        self._wake = wake
        self._isolation_level = config.isolation_level
        self._limit_s = config.request_timeout_ms / 1000
        self._tasks: dict[asyncio.Task[None], None] = {}

    def reset(self, states: Sequence[PartitionState]) -> None:
        """Looks up the start of partitions without a position, according to their ``reset``."""
        self._start(self._reset([(state, state.generation, state.reset) for state in states]))

    async def _reset(self, states: Sequence[tuple[PartitionState, int, str]]) -> None:
        wanted = {
            state.tp: EARLIEST if reset == "earliest" else LATEST for state, _, reset in states if reset != "none"
        }
        failure: QuorumlogError | None = None
        found = {}
        try:
            found = await find_offsets(self._cluster, wanted, self._limit_s, self._isolation_level) if wanted else {}
        except QuorumlogError as error:
            failure = error
        with self._assignment.lock:
            for state, generation, reset in states:
                if state.generation != generation:
                    continue
                state.resetting = False
                if state.tp in found:
                    state.position = state.fetch_offset = found[state.tp].offset
                elif reset == "none":
                    where = f"{state.tp.topic}-{state.tp.partition}"
                    state.error = NoOffsetForPartitionError(
                        f"{where} has no position and auto_offset_reset is 'none': call seek"
                    )
                else:
                    state.error = failure
        self._assignment.notify()
        self._wake()

    def prove(self, state: PartitionState, offset: int) -> None:
        """Checks that the log of a partition reaches a committed offset."""
        self._start(self._prove(state, state.generation, offset))

    async def _prove(self, state: PartitionState, generation: int, offset: int) -> None:
        failure: QuorumlogError | None = None
        end = -1
        try:
            # The end of all records: a reader of uncommitted ones may have committed beyond the last stable offset.
            found = await find_offsets(self._cluster, {state.tp: LATEST}, self._limit_s, "read_uncommitted")
            end = found[state.tp].offset
        except QuorumlogError as error:
            failure = error
        with self._assignment.lock:
            if state.generation == generation:
                state.resetting = False
                state.error = failure
                if failure is None:
                    state.unproven = False
                    # If the log ends before the offset, the next fetch resets according to auto_offset_reset.
                    state.high_watermark = max(state.high_watermark, end)
        self._assignment.notify()
        self._wake()

    def _start(self, look_up: Coroutine[Any, Any, None]) -> None:
        task = self._cluster.in_background(look_up)
        self._tasks[task] = None
        task.add_done_callback(lambda ended: self._tasks.pop(ended, None))

    def close(self) -> None:
        """Cancels look-ups in progress."""
        for task in self._tasks:
            task.cancel()

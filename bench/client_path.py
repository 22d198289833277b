"""Processor time of a record in a producer's own process, by the call that sends it.

``python -m bench.client_path`` needs no nodes: batches are drained and encoded as if they were sent, and dropped. Each
repetition has all calls in turn, another one first.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from statistics import median
from typing import Any, cast

import pyarrow as pa
from rich.console import Console

from bench.target_table import FigureLine, show
from quorumlog.pure import version_line
from quorumlog.sdk import Producer
from quorumlog.sdk.producer.accumulator import TopicBuffers
from quorumlog.wire.entry import Codec

RECORD_BYTES = 100
KEY_BYTES = 16
KEYS = 1_000
PARTITIONS = 12
#: Records of a list of ``send_many``, and rows of a table of ``send_arrow``.
LIST_RECORDS = 1_000
TABLE_ROWS = 50_000


class _NoLoop:
    """An event loop that never runs."""

    def call_soon_threadsafe(self, callback: Callable[[], None]) -> None:
        pass


class _Path:
    """A producer without nodes, and what it is given."""

    def __init__(self, count: int) -> None:
        self.producer = Producer(bootstrap_servers="127.0.0.1:1", buffer_memory=4 << 30)
        core = self.producer._core
        buffers = core.accumulator.topics["t"] = TopicBuffers("t")
        buffers.resize(PARTITIONS)
        buffers.available = list(range(PARTITIONS))
        core.bind(cast(Any, _NoLoop()), thread_id=-1)
        self._count = count
        self._value = os.urandom(RECORD_BYTES)
        self._keys = [os.urandom(KEY_BYTES) for _ in range(KEYS)]

    def send(self, *, keyed: bool) -> list[Any]:
        """One call per record."""
        send, value, keys = self.producer.send, self._value, self._keys if keyed else [None]
        return [send("t", value, keys[number % len(keys)]) for number in range(self._count)]

    def send_many(self, *, keyed: bool) -> list[Any]:
        """One call per list."""
        values = [self._value] * LIST_RECORDS
        keys = [self._keys[number % KEYS] for number in range(LIST_RECORDS)] if keyed else None
        return [self.producer.send_many("t", values, keys) for _ in range(self._count // LIST_RECORDS)]

    def send_arrow(self, *, keyed: bool) -> list[Any]:
        """One call per table."""
        columns = {"value": [self._value] * TABLE_ROWS}
        if keyed:
            columns["key"] = [self._keys[number % KEYS] for number in range(TABLE_ROWS)]
        table = pa.table(columns)
        return [self.producer.send_arrow("t", table) for _ in range(self._count // TABLE_ROWS)]

    def encode(self) -> None:
        """Takes all batches out, and encodes them as the loop's thread does."""
        while batches := self.producer._core.accumulator.drain(lambda _: True, lambda _: True)[0]:
            for batch in batches:
                batch.seal(Codec.NONE, None, -1)


@dataclass(slots=True, frozen=True)
class _Cost:
    """Processor time per record in µs: of the caller, and of encoding."""

    call_us: float
    encode_us: float


def _measured(call: str, keyed: bool, count: int) -> _Cost:
    path = _Path(count)
    begin = time.thread_time()
    handles = getattr(path, call)(keyed=keyed)
    called = time.thread_time()
    path.encode()
    encoded = time.thread_time()
    del handles
    path.producer.close(timeout=0)
    return _Cost(1e6 * (called - begin) / count, 1e6 * (encoded - called) / count)


def main() -> None:
    """Measures, and prints the medians."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, default=200_000, help="records of each call in a repetition")
    parser.add_argument("--repetitions", type=int, default=7)
    chosen = parser.parse_args()
    count = max(TABLE_ROWS, chosen.records // TABLE_ROWS * TABLE_ROWS)
    calls = [(call, keyed) for keyed in (False, True) for call in ("send", "send_many", "send_arrow")]
    costs: dict[tuple[str, bool], list[_Cost]] = {call: [] for call in calls}
    for repetition in range(chosen.repetitions):
        for number in range(len(calls)):
            call, keyed = calls[(repetition + number) % len(calls)]
            costs[call, keyed].append(_measured(call, keyed, count))
    lines = []
    for call, keyed in calls:
        times = [cost.call_us for cost in costs[call, keyed]]
        encoding = median(cost.encode_us for cost in costs[call, keyed])
        figure = f"{median(times):.3f} ({min(times):.3f}-{max(times):.3f}) + {encoding:.3f}"
        lines.append(FigureLine(f"{call}, {f'keys of {KEY_BYTES} B' if keyed else 'without keys'}", figure))
    show(Console(), f"µs per record of {RECORD_BYTES} B: the call (min-max) + encoding; {version_line()}", lines)


if __name__ == "__main__":
    main()

"""Reads back what writers of numbered records have written: one copy of each, in order, at the offsets they were told.

A history of a million operations would take gigabytes; numbers in arrays take a few bytes each.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

import pyarrow as pa

from quorumlog.chaos.checkers.checkers import MOST_REPORTED, Anomaly
from quorumlog.chaos.processes.once_writers import VALUE, Fate, OnceWriter
from quorumlog.chaos.processes.scenario_cluster import ClientOptions
from quorumlog.sdk import Consumer, TopicPartition
from quorumlog.sdk.records.partitioner import partition_for_key

POLL_RECORDS = 20_000
#: What takes a reader that comes to the end.
ONCE_EACH = "I3 and I4"


class OnceChecker:
    """What was read so far, and what is wrong with it.

    Arguments:
        writers: those whose records are read, by their numbers.
        partitions: how many the topic has.
    """

    def __init__(self, writers: Sequence[OnceWriter], partitions: int) -> None:
        self.read = 0
        self.anomalies: list[Anomaly] = []
        self._writers = writers
        self._seen = [bytearray(writer.count) for writer in writers]
        self._newest = [[-1] * partitions for _ in writers]
        #: Where each partition ends, as far as it has been read.
        self.ends = [0] * partitions
        self._partitions = partitions

    def take_record(self, partition: int, offset: int, value: bytes) -> None:
        """Looks at the next record of a partition."""
        self.read += 1
        place = f"partition {partition} offset {offset}"
        if offset != self.ends[partition]:
            self._report("I8", f"offset {self.ends[partition]} of partition {partition} is missing: {offset} came")
        self.ends[partition] = offset + 1
        number, who, key = VALUE.unpack(value)
        name = f"record {number} of {self._writers[who].name}"
        if self._seen[who][number]:
            self._report("I2", f"{name} is there once more, at {place}")
        self._seen[who][number] = 1
        if number <= self._newest[who][partition]:
            self._report("I6", f"{name} comes after record {self._newest[who][partition]}, at {place}")
        self._newest[who][partition] = number
        if partition_for_key(b"%d" % key, self._partitions) != partition:
            self._report("I6", f"{name} has key {key}, which does not belong to {place}")
        said = self._writers[who].offsets[number]
        if said not in (-1, offset):
            self._report("I1", f"{name} was acknowledged at offset {said} and is at {place}")

    def finish(self) -> None:
        """Everything has been read: looks for what is not there, or should not be."""
        for writer, seen in zip(self._writers, self._seen, strict=True):
            for number, (fate, there) in enumerate(zip(writer.fates, seen, strict=True)):
                if fate == Fate.ACKNOWLEDGED and not there:
                    self._report("I3", f"record {number} of {writer.name} was acknowledged and is lost")
                elif fate == Fate.FAILED and there:
                    self._report("I4", f"record {number} of {writer.name} failed definitely and is there")

    def _report(self, invariant: str, message: str) -> None:
        if sum(anomaly.invariant == invariant for anomaly in self.anomalies) < MOST_REPORTED:
            self.anomalies.append(Anomaly(invariant, message))


def read_back(clients: ClientOptions, topic: str, partitions: int, checker: OnceChecker, timeout_s: float) -> None:
    """Reads every partition from its start to its end into the checker.

    Raises:
        TimeoutError: it does not get there in time.
    """
    names = [TopicPartition(topic, number) for number in range(partitions)]
    deadline = time.monotonic() + timeout_s
    with Consumer(**clients, client_id="final") as consumer:
        consumer.assign(names)
        consumer.seek_to_beginning(*names)
        ends = consumer.end_offsets(names)
        while any(consumer.position(name) < ends[name] for name in names):
            if time.monotonic() > deadline:
                raise TimeoutError(f"a fresh reader does not get to the end within {timeout_s:g} s")
            _take_table(consumer.poll_arrow(timeout_ms=200, max_records=POLL_RECORDS), checker)


def _take_table(table: pa.Table, checker: OnceChecker) -> None:
    columns = (table.column(name).to_pylist() for name in ("partition", "offset", "value"))
    for partition, offset, value in zip(*columns, strict=True):
        checker.take_record(partition, offset, value)

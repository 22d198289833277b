"""Reads back the records of writers of numbered records: one copy of each, in order, at the acknowledged offsets.

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
#: Invariants that require a reader to reach the end.
ONCE_EACH = "I3 and I4"


class OnceChecker:
    """The records read so far, and the anomalies found.

    Arguments:
        writers: the writers of these records, by their numbers.
        partitions: number of partitions of the topic.
    """

    def __init__(self, writers: Sequence[OnceWriter], partitions: int) -> None:
        self.read = 0
        self.anomalies: list[Anomaly] = []
        self._writers = writers
        self._seen = [bytearray(writer.count) for writer in writers]
        self._newest = [[-1] * partitions for _ in writers]
        #: The end of each partition, as far as it has been read.
        self.ends = [0] * partitions
        self._partitions = partitions

    def take_record(self, partition: int, offset: int, value: bytes) -> None:
        """Checks the next record of a partition."""
        self.read += 1
        place = f"partition {partition} offset {offset}"
        if offset != self.ends[partition]:
            self._report("I8", f"offset {self.ends[partition]} of partition {partition} is missing: {offset} was read")
        self.ends[partition] = offset + 1
        number, who, key = VALUE.unpack(value)
        name = f"record {number} of {self._writers[who].name}"
        if self._seen[who][number]:
            self._report("I2", f"{name} is stored twice, again at {place}")
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
        """Checks for missing and unexpected records, after everything has been read."""
        for writer, seen in zip(self._writers, self._seen, strict=True):
            for number, (fate, there) in enumerate(zip(writer.fates, seen, strict=True)):
                if fate == Fate.ACKNOWLEDGED and not there:
                    self._report("I3", f"record {number} of {writer.name} was acknowledged and is lost")
                elif fate == Fate.FAILED and there:
                    self._report("I4", f"record {number} of {writer.name} failed definitely, but is stored")

    def _report(self, invariant: str, message: str) -> None:
        if sum(anomaly.invariant == invariant for anomaly in self.anomalies) < MOST_REPORTED:
            self.anomalies.append(Anomaly(invariant, message))


def read_back(clients: ClientOptions, topic: str, partitions: int, checker: OnceChecker, timeout_s: float) -> None:
    """Reads every partition from its start to its end into the checker.

    Raises:
        TimeoutError: it does not reach the end in time.
    """
    names = [TopicPartition(topic, number) for number in range(partitions)]
    deadline = time.monotonic() + timeout_s
    with Consumer(**clients, client_id="final") as consumer:
        consumer.assign(names)
        consumer.seek_to_beginning(*names)
        ends = consumer.end_offsets(names)
        while any(consumer.position(name) < ends[name] for name in names):
            if time.monotonic() > deadline:
                raise TimeoutError(f"a fresh reader does not reach the end within {timeout_s:g} s")
            _take_table(consumer.poll_arrow(timeout_ms=200, max_records=POLL_RECORDS), checker)


def _take_table(table: pa.Table, checker: OnceChecker) -> None:
    columns = (table.column(name).to_pylist() for name in ("partition", "offset", "value"))
    for partition, offset, value in zip(*columns, strict=True):
        checker.take_record(partition, offset, value)

"""The checker of numbered records notices the faults that it must detect."""

from quorumlog.chaos.processes.once_checker import OnceChecker
from quorumlog.chaos.processes.once_writers import VALUE, Fate, Gate, SdkOnceWriter, WriterKind
from quorumlog.sdk.records.partitioner import partition_for_key


def key_of(partition: int) -> int:
    return next(key for key in range(100) if partition_for_key(b"%d" % key, 2) == partition)


class Reading:
    """One writer of ten records, and a log that the test makes up."""

    def __init__(self, *fates: Fate) -> None:
        self.writer = SdkOnceWriter(0, WriterKind.UNNAMED, 10, {"bootstrap_servers": "127.0.0.1:1"}, "t", Gate(), 1)
        self.writer.fates[: len(fates)] = bytes(fates)
        self.checker = OnceChecker([self.writer], 2)

    def take(self, offset: int, number: int, partition: int = 0, key: int | None = None) -> None:
        chosen = key_of(partition) if key is None else key
        self.checker.take_record(partition, offset, VALUE.pack(number, 0, chosen))

    def found(self) -> list[str]:
        self.checker.finish()
        return [anomaly.invariant for anomaly in self.checker.anomalies]


def test_one_copy_of_each_in_order_is_fine() -> None:
    reading = Reading(Fate.ACKNOWLEDGED, Fate.UNKNOWN, Fate.FAILED, Fate.UNKNOWN)
    reading.writer.offsets[0] = 0
    reading.take(0, 0)
    reading.take(1, 3)
    reading.take(0, 1, partition=1)
    assert reading.found() == []
    assert reading.checker.read == 3


def test_a_second_copy_is_found_in_whatever_partition() -> None:
    reading = Reading(Fate.ACKNOWLEDGED)
    reading.take(0, 0)
    reading.take(0, 0, partition=1)
    assert reading.found() == ["I2"]


def test_lost_and_resurrected_records_are_found() -> None:
    reading = Reading(Fate.ACKNOWLEDGED, Fate.FAILED)
    reading.take(0, 1)
    assert reading.found() == ["I3", "I4"]


def test_disorder_gaps_wrong_places_and_wrong_offsets_are_found() -> None:
    reading = Reading()
    reading.writer.offsets[2] = 7
    reading.take(0, 1)
    reading.take(1, 0)
    reading.take(3, 2)
    reading.take(0, 3, partition=1, key=key_of(0))
    assert reading.found() == ["I6", "I8", "I1", "I6"]

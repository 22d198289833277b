"""Copies each line of a file into a topic exactly once, even if the copy is interrupted and restarted.

The producer has a name, and an epoch that identifies this piece of work. A second run claims the same epoch and sends
everything again: records that the log already has are recognised and not added. For that the second run must be equal
to the first: same lines, same order, same timestamps (here, of the file), and a key or a partition.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import tutorial

from quorumlog.sdk import Consumer, InvalidProducerEpochError, Producer, TopicPartition

LINES = 1000


class PowerCutError(Exception):
    """Simulates anything that ends a program in the middle of its work."""


def copy(servers: str, topic: str, file: Path, *, epoch: int, break_off_at: int | None = None) -> None:
    """Copies a file, or fails at the line ``break_off_at``."""
    at_ms = file.stat().st_mtime_ns // 1_000_000
    with (
        Producer(
            bootstrap_servers=servers, producer_name="file-copier", producer_epoch=epoch, batch_size=4096
        ) as producer,
        file.open("rb") as lines,
    ):
        for number, line in enumerate(lines):
            if number == break_off_at:
                raise PowerCutError
            producer.send(topic, line.rstrip(b"\n"), partition=0, timestamp_ms=at_ms)
        producer.end_epoch()  # Everything is in the log, and nothing else of this epoch.


def story(servers: str) -> None:
    with tempfile.TemporaryDirectory() as directory, tutorial.topic(servers, "lines") as topic:
        file = Path(directory, "lines.txt")
        file.write_text("".join(f"line {number}\n" for number in range(LINES)))

        try:
            copy(servers, topic, file, epoch=1, break_off_at=600)
        except PowerCutError:
            print(f"broke off at line 600: {count(servers, topic)} lines are in the topic")
        copy(servers, topic, file, epoch=1)
        print(f"ran again from the start: {count(servers, topic)} lines")
        copy(servers, topic, file, epoch=1)
        print(f"and again, for no reason: {count(servers, topic)} lines")
        assert count(servers, topic) == LINES

        with Producer(bootstrap_servers=servers, producer_name="file-copier", producer_epoch=2) as producer:
            producer.send(topic, b"the next piece of work", partition=0, timestamp_ms=1)
            producer.flush()
        try:
            copy(servers, topic, file, epoch=1)
        except InvalidProducerEpochError as error:
            print(f"a straggler of the old epoch is refused: {error}")


def count(servers: str, topic: str) -> int:
    """Returns the number of records in a topic that has one partition."""
    partition = TopicPartition(topic, 0)
    with Consumer(bootstrap_servers=servers) as consumer:
        return consumer.end_offsets([partition])[partition]


if __name__ == "__main__":
    tutorial.run(story, __doc__)

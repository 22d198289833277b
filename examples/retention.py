"""Old records are deleted, by command and by the topic's retention. Shows what a consumer notices, and how it reacts.

A partition starts at its log start. Offsets never change: the remaining records keep theirs. A consumer whose next
record is gone either continues at the new log start or gets an error, depending on its ``auto_offset_reset``.
"""

from __future__ import annotations

import time

import tutorial

from quorumlog.sdk import Admin, Consumer, OffsetOutOfRangeError, Producer, TopicPartition

KIB = 1024


def story(servers: str) -> None:
    with (
        Admin(bootstrap_servers=servers) as admin,
        Consumer(bootstrap_servers=servers) as tolerant,
        Consumer(bootstrap_servers=servers, auto_offset_reset="none") as strict,
        tutorial.topic(servers, "clicks") as topic,
    ):
        partition = TopicPartition(topic, 0)
        produce(servers, topic, 100)
        start = admin.delete_records({partition: 60})[partition]
        print(f"deleted the records before 60: the log starts at {start}")

        for consumer in (tolerant, strict):
            consumer.assign([partition])
            consumer.seek(partition, 10)
        (records,) = tolerant.poll(timeout_ms=5000).values()
        print(f"a consumer that asks for 10 continues at {records[0].offset}")
        assert records[0].offset == start
        try:
            strict.poll(timeout_ms=5000)
        except OffsetOutOfRangeError as error:
            print(f"one with auto_offset_reset='none' gets an error: {error}")
            strict.seek_to_beginning(partition)
            print(f"and chooses the new position itself: {strict.position(partition)}")

        admin.alter_configs({topic: {"retention.bytes": 64 * KIB}})
        produce(servers, topic, 400)
        deadline = time.monotonic() + 30
        while (start := tolerant.beginning_offsets([partition])[partition]) == 60:
            assert time.monotonic() < deadline, "retention has not moved the log start"
            time.sleep(0.05)
        end = tolerant.end_offsets([partition])[partition]
        print(f"with retention.bytes=65536 the log goes from {start} to {end}: the last {end - start} records")


def produce(servers: str, topic: str, count: int) -> None:
    """Sends records of 1 KiB, a few per batch."""
    with Producer(bootstrap_servers=servers, batch_size=8 * KIB) as producer:
        for _ in range(count):
            producer.send(topic, b"x" * KIB)


if __name__ == "__main__":
    tutorial.run(story, __doc__)

"""Reads again from an offset, and from a point in time.

A log is not emptied by reading. A consumer can go anywhere: to an offset that it has noted, or to the first record at
or after a moment, for which the cluster is asked where it is.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import tutorial

from quorumlog.sdk import Consumer, Producer, TopicPartition

READINGS = 48


def story(servers: str) -> None:
    midnight = datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0) - timedelta(days=1)
    with tutorial.topic(servers, "temperatures") as topic:
        with Producer(bootstrap_servers=servers) as producer:
            for half_hour in range(READINGS):
                at = midnight + timedelta(minutes=30 * half_hour)
                reading = f"{at:%H:%M} {15 + half_hour % 7} °C".encode()
                producer.send(topic, reading, timestamp_ms=int(at.timestamp() * 1000))

        with Consumer(bootstrap_servers=servers) as consumer:
            partition = TopicPartition(topic, 0)
            consumer.assign([partition])

            consumer.seek(partition, READINGS - 3)
            print("the last three, by offset:", [record.value.decode() for record in next_records(consumer)])

            noon = midnight + timedelta(hours=12)
            found = consumer.offsets_for_times({partition: int(noon.timestamp() * 1000)})[partition]
            assert found is not None, "there are records from that time on"
            consumer.seek(partition, found.offset)
            first, *_ = next_records(consumer)
            print(f"from noon on, by time: offset {found.offset}, {first.value.decode()}")
            assert first.value.startswith(b"12:00")

            tomorrow = int((midnight + timedelta(days=3)).timestamp() * 1000)
            print("from the day after tomorrow on:", consumer.offsets_for_times({partition: tomorrow})[partition])


def next_records(consumer: Consumer) -> list:
    """Returns the records of the next poll."""
    (records,) = consumer.poll(timeout_ms=5000).values()
    return records


if __name__ == "__main__":
    tutorial.run(story, __doc__)

"""A compacted topic is a table: the last value of each key is kept, and a record without a value deletes its key.

Reading the topic from its beginning builds the table; following it keeps the table current. Nothing that is read
depends on whether the cluster has compacted already: compaction only removes what later records have replaced.
"""

from __future__ import annotations

import tutorial

from quorumlog.sdk import Consumer, Producer, TopicPartition

CHANGES: list[tuple[str, str | None]] = [
    ("anna", "Berlin"), ("bert", "Oslo"), ("carla", "Rome"), ("anna", "Bern"), ("bert", None), ("anna", "Basel"),
]  # fmt: skip


def story(servers: str) -> None:
    with tutorial.topic(servers, "addresses", cleanup_policy="compact") as topic:
        with Producer(bootstrap_servers=servers, key_serializer=str.encode, value_serializer=str.encode) as producer:
            for person, city in CHANGES:
                producer.send(topic, city, key=person)
                print(f"{person}: {city or '(moved away)'}")

        print("the table:", table(servers, topic))
        assert table(servers, topic) == {"anna": "Basel", "carla": "Rome"}


def table(servers: str, topic: str) -> dict[str, str]:
    """Returns the current table: everything up to the end offset at the time of the call."""
    rows: dict[str, str] = {}
    with Consumer(
        bootstrap_servers=servers, key_deserializer=bytes.decode, value_deserializer=bytes.decode
    ) as consumer:
        partitions = [TopicPartition(topic, number) for number in consumer.partitions_for_topic(topic)]
        consumer.assign(partitions)
        ends = consumer.end_offsets(partitions)
        while any(consumer.position(partition) < end for partition, end in ends.items()):
            for records in consumer.poll(timeout_ms=1000).values():
                for record in records:
                    if record.value is None:
                        rows.pop(record.key, None)
                    else:
                        rows[record.key] = record.value
    return rows


if __name__ == "__main__":
    tutorial.run(story, __doc__)

"""Order per user: records with the same key go to the same partition, and are read in the order sent.

Across keys there is no order: partitions are read side by side. That is what lets a topic grow beyond one machine.
"""

from __future__ import annotations

from collections import defaultdict

import tutorial

from quorumlog.sdk import Consumer, Producer

USERS = ("anna", "bert", "carla", "dmitri")
STEPS = ("logged in", "filled the cart", "paid", "logged out")


def story(servers: str) -> None:
    with tutorial.topic(servers, "activity", partitions=3) as topic:
        with Producer(bootstrap_servers=servers, key_serializer=str.encode, value_serializer=str.encode) as producer:
            for step in STEPS:
                for user in USERS:
                    producer.send(topic, step, key=user)
        # Leaving the block has flushed: everything is acknowledged.

        steps: dict[str, list[str]] = defaultdict(list)
        partitions: dict[str, set[int]] = defaultdict(set)
        with Consumer(
            topic, bootstrap_servers=servers, key_deserializer=bytes.decode, value_deserializer=bytes.decode
        ) as consumer:
            while sum(map(len, steps.values())) < len(USERS) * len(STEPS):
                for records in consumer.poll(timeout_ms=1000).values():
                    for record in records:
                        steps[record.key].append(record.value)
                        partitions[record.key].add(record.partition)
        for user in USERS:
            (partition,) = partitions[user]
            assert tuple(steps[user]) == STEPS
            print(f"{user} (partition {partition}): {', '.join(steps[user])}")


if __name__ == "__main__":
    tutorial.run(story, __doc__)

"""A group reads again: from an offset, from a point in time, or, all its members, from where an operator resets it.

A member may go anywhere in what it reads (``seek``); what it commits then is the group's position. From outside, a
group that is stopped is put somewhere with ``quorumlog groups reset-offsets``, which only shows what it would do
without ``--execute``.
"""

from __future__ import annotations

import subprocess
import sys
from datetime import UTC, datetime, timedelta

import tutorial

from quorumlog.sdk import Consumer, Producer, TopicPartition

GROUP = "meteorologists"
READINGS = 48


def read(consumer: Consumer, count: int) -> list[str]:
    """Reads the next records of a consumer."""
    found: list[str] = []
    for _, record in tutorial.read([consumer], lambda: len(found) >= count):
        found.append(record.value.decode())
    return found


def operate(servers: str, *arguments: str) -> str:
    """Runs the command line as an operator would."""
    command = [sys.executable, "-m", "quorumlog.cli.main", "groups", "reset-offsets", GROUP, *arguments]
    return subprocess.run(
        [*command, "--bootstrap-servers", servers], check=True, stdout=subprocess.PIPE, text=True
    ).stdout


def story(servers: str) -> None:
    midnight = datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0) - timedelta(days=1)
    noon = midnight + timedelta(hours=12)
    with tutorial.topic(servers, "weather") as topic:
        partition = TopicPartition(topic, 0)
        with Producer(bootstrap_servers=servers) as producer:
            for half_hour in range(READINGS):
                at = midnight + timedelta(minutes=30 * half_hour)
                producer.send(topic, f"{at:%H:%M}".encode(), timestamp_ms=int(at.timestamp() * 1000))

        with Consumer(topic, bootstrap_servers=servers, group_id=GROUP) as consumer:
            print(f"the group has read everything, from {read(consumer, READINGS)[0]} on")
            consumer.seek(partition, READINGS - 3)
            print("a member goes back to an offset:", ", ".join(read(consumer, 3)))
            found = consumer.offsets_for_times({partition: int(noon.timestamp() * 1000)})[partition]
            assert found is not None
            consumer.seek(partition, found.offset)
            print(f"and to a time: offset {found.offset}, {read(consumer, READINGS // 2)[0]}")

        options = ("--topic", topic, "--to-datetime", f"{noon:%Y-%m-%dT%H:%M:%SZ}")
        print(operate(servers, *options))
        with Consumer(bootstrap_servers=servers, group_id=GROUP) as consumer:
            assert consumer.committed(partition) == READINGS, "so far it was only a proposal"
        print(operate(servers, *options, "--execute"))
        with Consumer(topic, bootstrap_servers=servers, group_id=GROUP) as consumer:
            again = read(consumer, READINGS // 2)
        assert again[0] == "12:00"
        print(f"the group reads again from {again[0]} to {again[-1]}")


if __name__ == "__main__":
    tutorial.run(story, __doc__)

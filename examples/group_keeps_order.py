"""Keeps the order of each user, even while partitions move between members of a group.

All that one user does has one key, so it is in one partition, which one member reads at a time. A member that has to
give a partition up finishes first what it was handed, and says how far it has come; the next one starts there.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection

import tutorial

from quorumlog.sdk import Consumer, ConsumerRebalanceListener, Producer, TopicPartition

USERS = tuple(f"user {number}" for number in range(12))
STEPS = 30
FIRST_MEMBER, SECOND_MEMBER = "first", "second"


class Announcing(ConsumerRebalanceListener):
    """Prints which partitions a member gains and loses. Called from within the member's own ``poll``."""

    def __init__(self, name: str) -> None:
        self.name = name

    def on_partitions_revoked(self, revoked: Collection[TopicPartition]) -> None:
        print(f"the {self.name} member gives up partitions {sorted(partition.partition for partition in revoked)}")

    def on_partitions_assigned(self, assigned: Collection[TopicPartition]) -> None:
        print(f"the {self.name} member takes partitions {sorted(partition.partition for partition in assigned)}")


def story(servers: str) -> None:
    history: dict[str, list[tuple[str, int]]] = defaultdict(list)
    with tutorial.topic(servers, "clicks", partitions=4) as topic, Producer(bootstrap_servers=servers) as producer:
        members: dict[Consumer, str] = {}

        def join(name: str) -> None:
            member = Consumer(bootstrap_servers=servers, group_id="trackers", max_poll_records=5)
            member.subscribe([topic], listener=Announcing(name))
            members[member] = name

        def send(steps: range) -> None:
            for step in steps:
                for user in USERS:
                    producer.send(topic, str(step).encode(), key=user.encode())

        def follow(until: Callable[[], bool]) -> None:
            for member, record in tutorial.read(list(members), until):
                history[record.key.decode()].append((members[member], int(record.value)))

        send(range(STEPS))
        join(FIRST_MEMBER)
        follow(lambda: len(history) == len(USERS))  # The second one comes while the first has started with every user.
        join(SECOND_MEMBER)
        follow(lambda: all(member.assignment() for member in members))
        send(range(STEPS, 2 * STEPS))
        follow(lambda: sum(map(len, history.values())) == len(USERS) * STEPS * 2)
        for member in members:
            member.close()

    for user in USERS:
        assert [step for _, step in history[user]] == list(range(2 * STEPS)), f"{user}: {history[user]}"
    moved = [user for user in USERS if len({name for name, _ in history[user]}) == 2]
    assert moved
    print(f"{len(moved)} of {len(USERS)} users passed to the second member; the steps of all are in order, each once")


if __name__ == "__main__":
    tutorial.run(story, __doc__)

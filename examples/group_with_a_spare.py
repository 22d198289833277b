"""More members than partitions: the extra members are idle until an active one leaves.

A partition is read by one member at a time: two partitions keep two members busy, and the third is the spare. When a
member is closed, its partitions pass on at once; when it dies, after ``session_timeout_ms`` without a sign of life.
"""

from __future__ import annotations

import tutorial

from quorumlog.sdk import Consumer, Producer


def story(servers: str) -> None:
    with tutorial.topic(servers, "alarms", partitions=2) as topic:
        members = [Consumer(topic, bootstrap_servers=servers, group_id="guards") for _ in range(3)]
        tutorial.settle(members, 1, 1, 0)
        (spare,) = (member for member in members if not member.assignment())
        active = [member for member in members if member is not spare]
        print(f"three members, two partitions: {len(active)} are active, one is idle")

        with Producer(bootstrap_servers=servers) as producer:
            for number in range(10):
                producer.send(topic, f"alarm {number}".encode(), partition=number % 2)
        seen: list[bytes] = []
        for member, record in tutorial.read(members, lambda: len(seen) == 10):
            assert member is not spare
            seen.append(record.value)

        leaving, staying = active
        kept = staying.assignment()
        (passed_on,) = leaving.assignment()
        leaving.close()  # Commits how far it has come, and leaves the group.
        tutorial.settle([spare, staying], 1, 1)
        assert spare.assignment() == {passed_on}
        assert staying.assignment() == kept, "the one that stays is not disturbed"
        print(f"one has left; the idle one takes over partition {passed_on.partition}")

        with Producer(bootstrap_servers=servers) as producer:
            producer.send(topic, b"alarm 10", partition=passed_on.partition)
        for member, record in tutorial.read([spare, staying], lambda: len(seen) == 11):
            assert member is spare
            seen.append(record.value)
        assert seen[-1] == b"alarm 10", "it continues where the other one stopped"
        print(f"and continues where that one stopped: {seen[-1].decode()}")
        spare.close()
        staying.close()


if __name__ == "__main__":
    tutorial.run(story, __doc__)

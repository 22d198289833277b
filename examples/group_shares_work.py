"""A consumer group shares the work: three producers, three partitions, two consumers.

Each partition is read by one member of the group, so each record is worked on once. Who reads which is the cluster's
to decide: as evenly as it goes, here two partitions and one. Start as many members as you like, wherever you like.
"""

from __future__ import annotations

import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from queue import SimpleQueue

import tutorial

from quorumlog.sdk import Consumer, Producer

SHOPS = ("north", "south", "west")
ORDERS = 100
WORKERS = ("worker 1", "worker 2")


def sell(servers: str, topic: str, shop: str) -> None:
    """Runs one of several producers, which are independent of each other and of the consumers."""
    with Producer(bootstrap_servers=servers) as producer:
        for number in range(ORDERS):
            producer.send(topic, f"order {number} of {shop}".encode(), key=f"customer {number}".encode())


def work(servers: str, topic: str, name: str, ready: threading.Barrier, done: SimpleQueue[tuple[str, bytes]]) -> None:
    """Runs a consumer, which is a member of the group while it is open."""
    with Consumer(topic, bootstrap_servers=servers, group_id="packers", consumer_timeout_ms=1000) as consumer:
        for _ in tutorial.read([consumer], lambda: 1 <= len(consumer.assignment()) <= 2):
            raise AssertionError("nothing has been sold yet")
        print(f"{name} reads partitions {sorted(partition.partition for partition in consumer.assignment())}")
        ready.wait(timeout=30)
        for record in consumer:
            done.put((name, record.value))


def story(servers: str) -> None:
    with tutorial.topic(servers, "orders-to-pack", partitions=3) as topic, ThreadPoolExecutor() as threads:
        done: SimpleQueue[tuple[str, bytes]] = SimpleQueue()
        ready = threading.Barrier(len(WORKERS) + 1)
        workers = [threads.submit(work, servers, topic, name, ready, done) for name in WORKERS]
        ready.wait(timeout=30)
        for sold in [threads.submit(sell, servers, topic, shop) for shop in SHOPS]:
            sold.result()
        for ended in workers:
            ended.result()

        packed = [done.get() for _ in range(done.qsize())]
        for name, count in sorted(Counter(name for name, _ in packed).items()):
            print(f"{name} has packed {count} orders")
        assert len(packed) == len({order for _, order in packed}) == ORDERS * len(SHOPS)
        print(f"together {len(packed)}, each once")


if __name__ == "__main__":
    tutorial.run(story, __doc__)

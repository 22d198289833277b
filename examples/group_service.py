"""A service that consumes orders and produces bills, in several instances that share the work as a group.

Each instance reads its part of the orders, sends the bills, waits until they are in the log, and then commits. Start
one more when there is much to do, stop one when there is not: the others take over what it had, where it stopped.
"""

from __future__ import annotations

import json
import threading
from concurrent.futures import ThreadPoolExecutor

import tutorial

from quorumlog.sdk import Consumer, Producer

PRICES = {"apple": 30, "pear": 45, "plum": 12}
ORDERS = 300


def serve(servers: str, orders: str, bills: str, stop: threading.Event) -> int:
    """Runs an instance of the service until it is stopped; returns the number of bills it has written."""
    written = 0
    with (
        Consumer(
            orders, bootstrap_servers=servers, group_id="billing", enable_auto_commit=False, max_poll_records=20
        ) as consumer,
        Producer(bootstrap_servers=servers) as producer,
    ):
        while not stop.is_set():
            for records in consumer.poll(timeout_ms=100).values():
                for record in records:
                    order = json.loads(record.value)
                    order["total"] = order["count"] * PRICES[order["fruit"]]
                    producer.send(bills, json.dumps(order).encode())
                    written += 1
            producer.flush()
            consumer.commit()
    return written


def story(servers: str) -> None:
    with (
        tutorial.topic(servers, "orders-to-bill", partitions=3) as orders,
        tutorial.topic(servers, "bills") as bills,
        ThreadPoolExecutor() as threads,
        Producer(bootstrap_servers=servers) as shop,
        Consumer(bills, bootstrap_servers=servers) as reader,
    ):
        seen: list[int] = []

        def order(numbers: range) -> None:
            for number in numbers:
                bought = {"number": number, "fruit": list(PRICES)[number % len(PRICES)], "count": 1 + number % 4}
                shop.send(orders, json.dumps(bought).encode(), partition=number % 3)

        def bill(until: int) -> None:
            for _, record in tutorial.read([reader], lambda: len(seen) >= until):
                seen.append(json.loads(record.value)["number"])

        stops = [threading.Event(), threading.Event()]
        try:
            instances = [threads.submit(serve, servers, orders, bills, stop) for stop in stops]
            order(range(ORDERS // 2))
            bill(until=ORDERS // 2)
            stops[0].set()
            print(f"one instance is stopped; it has written {instances[0].result(timeout=30)} bills")
            order(range(ORDERS // 2, ORDERS))
            bill(until=ORDERS)
        finally:
            for stop in stops:
                stop.set()
        print(f"the other has written {instances[1].result(timeout=30)}")
        assert sorted(seen) == list(range(ORDERS)), "each order is billed once"
        print(f"{len(seen)} orders, {len(seen)} bills")


if __name__ == "__main__":
    tutorial.run(story, __doc__)

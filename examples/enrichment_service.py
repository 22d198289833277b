"""A service between two topics: it consumes orders, adds the price, and produces the priced orders.

One process is consumer and producer. It keeps its place itself: the offset of the order is a header of what it has
made of it, so that after a restart it finds in its own output how far it has come. Here it is stopped in the middle
and started again, and no order is priced twice.
"""

from __future__ import annotations

import json

import tutorial

from quorumlog.sdk import Consumer, Producer, TopicPartition

PRICES = {"apple": 30, "pear": 45, "plum": 12}
ORDERS = 20
STOP_AFTER = 8


def next_order(servers: str, priced: str) -> int:
    """Returns the offset of the first order that has not been priced yet."""
    output = TopicPartition(priced, 0)
    with Consumer(bootstrap_servers=servers) as consumer:
        consumer.assign([output])
        end = consumer.end_offsets([output])[output]
        if end == 0:
            return 0
        consumer.seek(output, end - 1)
        (last,) = consumer.poll(timeout_ms=5000)[output]
        return int(dict(last.headers)["order-offset"] or b"") + 1


def serve(servers: str, orders: str, priced: str, at_most: int) -> int:
    """Prices orders until ``at_most`` are done or none is left; returns the number of priced orders."""
    start = next_order(servers, priced)
    print(f"the service starts with order {start}")
    done = 0
    with (
        Consumer(bootstrap_servers=servers, consumer_timeout_ms=1000) as consumer,
        Producer(bootstrap_servers=servers) as producer,
    ):
        consumer.assign([TopicPartition(orders, 0)])
        consumer.seek(TopicPartition(orders, 0), start)
        for record in consumer:
            order = json.loads(record.value)
            order["total"] = order["count"] * PRICES[order["fruit"]]
            headers = [("order-offset", str(record.offset).encode())]
            producer.send(priced, json.dumps(order).encode(), key=record.key, headers=headers)
            done += 1
            if done == at_most:
                break
    return done


def story(servers: str) -> None:
    with tutorial.topic(servers, "fruit-orders") as orders, tutorial.topic(servers, "priced-orders") as priced:
        with Producer(bootstrap_servers=servers) as producer:
            for number in range(ORDERS):
                order = {"number": number, "fruit": list(PRICES)[number % len(PRICES)], "count": 1 + number % 4}
                producer.send(orders, json.dumps(order).encode())
        print(f"stopped after {serve(servers, orders, priced, at_most=STOP_AFTER)} orders")
        print(f"priced the other {serve(servers, orders, priced, at_most=ORDERS)}")

        with Consumer(priced, bootstrap_servers=servers, consumer_timeout_ms=1000) as consumer:
            bills = [json.loads(record.value) for record in consumer]
        assert [bill["number"] for bill in bills] == list(range(ORDERS))
        print(f"{len(bills)} bills, {sum(bill['total'] for bill in bills)} in all; the first: {bills[0]}")


if __name__ == "__main__":
    tutorial.run(story, __doc__)

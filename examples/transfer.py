"""Transfers between accounts that survive ``kill -9`` at any moment: each is done once, and never by half.

A worker reads orders, and books each with two records: one account gives, another one receives. Both records and the
offset of the order are one transaction. The worker is killed several times; a reader of the accounts never sees money
appear or vanish.
"""

from __future__ import annotations

import random
import subprocess
import sys
from collections import Counter
from pathlib import Path

import tutorial

from quorumlog.sdk import Consumer, Producer, TopicPartition, TransactionAbortedError

ORDERS, ACCOUNTS, KILLS = 300, 4, 4


def work(servers: str) -> None:
    """Books orders until it is killed."""
    with (
        Consumer(bootstrap_servers=servers, group_id="transfers", enable_auto_commit=False) as consumer,
        Producer(bootstrap_servers=servers, transactional_id="transfers-0") as producer,
    ):
        with producer.transaction():
            pass  # Ends what a killed worker has left open, so that its offsets are certain.
        consumer.assign([TopicPartition("transfer-orders", 0)])
        while True:
            orders = [each for part in consumer.poll(timeout_ms=500, max_records=10).values() for each in part]
            if not orders:
                continue
            try:
                with producer.transaction(consumer) as tx:
                    for order in orders:
                        giver, receiver, amount = map(int, order.value.split())
                        tx.send("transfer-accounts", b"%d" % -amount, key=b"%d" % order.offset, partition=giver)
                        tx.send("transfer-accounts", b"%d" % amount, key=b"%d" % order.offset, partition=receiver)
            except TransactionAbortedError:
                pass  # Nothing of it has taken effect: the next poll returns the same orders.


def start(servers: str) -> subprocess.Popen[bytes]:
    code = f"import transfer; transfer.work({servers!r})"
    return subprocess.Popen([sys.executable, "-c", code], cwd=Path(__file__).parent)


def story(servers: str) -> None:
    with (
        tutorial.topic(servers, "transfer-orders"),
        tutorial.topic(servers, "transfer-accounts", ACCOUNTS),
        Producer(bootstrap_servers=servers) as ordering,
        Consumer("transfer-accounts", bootstrap_servers=servers) as accounts,
    ):
        rng = random.Random(36)
        pairs = [rng.sample(range(ACCOUNTS), 2) for _ in range(ORDERS)]
        orders = [b"%d %d %d" % (*pair, rng.randrange(1, 100)) for pair in pairs]
        ordering.send_many("transfer-orders", orders).result(timeout=30)
        bookings: Counter[bytes] = Counter()
        total, kills, worker = 0, 0, start(servers)
        try:
            while sum(bookings.values()) < 2 * ORDERS:
                for records in accounts.poll(timeout_ms=100).values():
                    bookings.update(each.key for each in records)
                    total += sum(int(each.value) for each in records)
                if kills < KILLS and len(bookings) > ORDERS * (kills + 1) // (KILLS + 1):
                    worker.kill()
                    worker.wait()
                    kills += 1
                    print(f"killed: {len(bookings)} of {ORDERS} orders are booked")
                    worker = start(servers)
        finally:
            worker.kill()
            worker.wait()
        assert total == 0 and set(bookings.values()) == {2} and len(bookings) == ORDERS
        print(f"{ORDERS} transfers, each once, the sum of all accounts is {total}")


if __name__ == "__main__":
    tutorial.run(story, __doc__)

"""The demo's consumer group: each member runs in its own thread and counts the records it has processed."""

from __future__ import annotations

import threading
import time
from collections import Counter

from quorumlog.sdk import Consumer


class Group:
    """Members of a group that process records and then commit.

    Attributes:
        error: the error that ended a member early, or None.
    """

    def __init__(self, bootstrap_servers: str, topic: str, group_id: str, members: int) -> None:
        self.error: BaseException | None = None
        self._bootstrap_servers = bootstrap_servers
        self._topic = topic
        self._group_id = group_id
        self._stopped = threading.Event()
        self._worked_on: list[Counter[bytes]] = [Counter() for _ in range(members)]
        self._partitions: list[list[tuple[int, ...]]] = [[] for _ in range(members)]
        self._threads = [
            threading.Thread(target=self._run, args=(number,), name="member", daemon=True) for number in range(members)
        ]

    def __enter__(self) -> Group:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_exception: object) -> None:
        self._stopped.set()
        for thread in self._threads:
            thread.join()

    @property
    def worked_on(self) -> Counter[bytes]:
        """Number of times that each record was processed, by any member."""
        return sum((counter.copy() for counter in self._worked_on), Counter())

    @property
    def partitions(self) -> list[tuple[int, ...]]:
        """The partitions of each member."""
        return [changes[-1] if changes else () for changes in self._partitions]

    @property
    def settled(self) -> bool:
        """True once every member has a partition, and no partition has two members."""
        held = [number for partitions in self.partitions for number in partitions]
        return all(self.partitions) and len(held) == len(set(held))

    def changes(self) -> int:
        """The number of assignment changes so far."""
        return sum(map(len, self._partitions))

    def await_all(self, records: int, timeout_s: float) -> bool:
        """Waits until that many records have been processed; returns false after the timeout."""
        deadline = time.monotonic() + timeout_s
        while sum(counter.total() for counter in self._worked_on) < records:
            if self.error is not None or time.monotonic() > deadline:
                return False
            time.sleep(0.05)
        return True

    def _run(self, number: int) -> None:
        try:
            with Consumer(
                self._topic,
                bootstrap_servers=self._bootstrap_servers,
                group_id=self._group_id,
                enable_auto_commit=False,
            ) as consumer:
                while not self._stopped.is_set():
                    self._work(consumer, number)
        except BaseException as error:
            self.error = self.error or error

    def _work(self, consumer: Consumer, number: int) -> None:
        polled = consumer.poll(timeout_ms=100)
        partitions = tuple(sorted(partition.partition for partition in consumer.assignment()))
        changes = self._partitions[number]
        if partitions != (changes[-1] if changes else ()):
            changes.append(partitions)
        for records in polled.values():
            self._worked_on[number].update(record.value for record in records)
        if polled:
            consumer.commit()

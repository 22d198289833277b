"""Clients that write and read the topic "orders" while something is done to the cluster, and note what they notice."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable

from quorumlog.sdk import Consumer, Producer, TopicPartition

LIMIT_S = 30.0
#: The longest that nothing may be acknowledged or read: what a killed leader costs, on a machine with other work.
FAILOVER_S = 5.0


class Load:
    """A client that continues until it is stopped, and records the longest gap."""

    def __init__(self, name: str, run: Callable[[Load], None]) -> None:
        self.name = name
        self.done = 0
        self.longest_s = 0.0
        self.errors: list[BaseException] = []
        self.ended = threading.Event()
        self._last_s = time.monotonic()
        self._run = run
        self._thread = threading.Thread(target=self._guarded, name=name)
        self._thread.start()

    def _guarded(self) -> None:
        try:
            self._run(self)
        except BaseException as error:
            self.errors.append(error)

    def progress(self, count: int = 1) -> None:
        """Something was acknowledged or read."""
        now_s = time.monotonic()
        if self.done:
            self.longest_s = max(self.longest_s, now_s - self._last_s)
        self._last_s = now_s
        self.done += count

    def wait_for(self, count: int) -> None:
        """Waits for as much more."""
        wanted, deadline = self.done + count, time.monotonic() + LIMIT_S
        while self.done < wanted:
            assert not self.errors, (self.name, self.errors)
            assert time.monotonic() < deadline, f"{self.name} is stalled at {self.done}"
            time.sleep(0.02)

    def end(self) -> None:
        self.ended.set()
        self._thread.join(LIMIT_S)
        assert not self.errors, (self.name, self.errors)
        assert not self._thread.is_alive(), self.name


def written(options: dict[str, str], partition: int, *, ahead: int = 1) -> Callable[[Load], None]:
    """Writes numbers; ``ahead`` of them are under way all the time."""

    def run(load: Load) -> None:
        with Producer(**options) as producer:  # type: ignore[arg-type]
            sent = []
            for number in itertools.count():
                if load.ended.is_set():
                    break
                sent.append(producer.send("orders", b"%d" % number, partition=partition))
                if len(sent) >= ahead:
                    sent.pop(0).result(LIMIT_S)
                    load.progress()
                time.sleep(0.005)
            for future in sent:
                future.result(LIMIT_S)

    return run


def read(options: dict[str, str], partition: int | None = None) -> Callable[[Load], None]:
    """Reads one partition, or as a member of a group, which commits automatically."""

    def run(load: Load) -> None:
        group = "readers" if partition is None else None
        with Consumer(group_id=group, auto_offset_reset="earliest", **options) as consumer:  # type: ignore[arg-type]
            if partition is None:
                consumer.subscribe(["orders"])
            else:
                consumer.assign([TopicPartition("orders", partition)])
            while not load.ended.is_set():
                if count := sum(map(len, consumer.poll(200).values())):
                    load.progress(count)

    return run

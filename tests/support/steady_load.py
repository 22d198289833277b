"""A load that continues beside what a test does to a cluster."""

from __future__ import annotations

import itertools
import threading
import time
from typing import Self

from command_line import PATIENCE_S, until

from quorumlog.local import LocalCluster
from quorumlog.sdk import Producer


class SteadyLoad:
    """A thread that sends rounds of records, and waits for each round to be acknowledged.

    Attributes:
        failures: what ended it, if anything did.
        gaps: of each round when it ended, by the monotonic clock, and how long after the one before, in seconds.
        longest_gap_s: the longest of them.
    """

    def __init__(self, cluster: LocalCluster) -> None:
        self.failures: list[BaseException] = []
        self.gaps: list[tuple[float, float]] = []
        self.longest_gap_s = 0.0
        self._cluster = cluster
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)

    @property
    def count(self) -> int:
        """Records that are acknowledged."""
        raise NotImplementedError

    def send_round(self, producer: Producer, number: int) -> None:
        """Sends a round, and returns once it is acknowledged."""
        raise NotImplementedError

    def _run(self) -> None:
        try:
            with Producer(bootstrap_servers=self._cluster.bootstrap_servers, linger_ms=0) as producer:
                last = time.monotonic()
                for number in itertools.count():
                    if self._stop.is_set():
                        return
                    self.send_round(producer, number)
                    now = time.monotonic()
                    self.gaps.append((now, now - last))
                    self.longest_gap_s = max(self.longest_gap_s, now - last)
                    last = now
        except BaseException as failure:
            self.failures.append(failure)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join(PATIENCE_S)

    def goes_on(self) -> None:
        """Waits until more is acknowledged."""
        before = self.count
        until(lambda: self.count > before + 20 or bool(self.failures), "the load continues")
        assert self.failures == []

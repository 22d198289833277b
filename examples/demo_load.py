"""The demo's load: one producer at a steady rate, which measures when records are acknowledged."""

from __future__ import annotations

import threading
import time
from itertools import pairwise

from quorumlog.sdk import Producer, RecordFuture

#: The number of records sent between two checks of the clock.
BURST = 25
#: The longest wait for the last acknowledgements.
SETTLE_TIMEOUT_S = 60.0


class Load:
    """Sends ``records`` records with keys to a topic at ``rate`` per second, in its own thread.

    Every record's value is unique (``order-000123``) and grows, so that a reader can detect lost, duplicated
    and swapped records.

    Attributes:
        acknowledged: the number of records acknowledged so far.
        error: the error that ended the load early, or None.
    """

    def __init__(self, bootstrap_servers: str, topic: str, records: int, rate: int) -> None:
        self.acknowledged = 0
        self.error: BaseException | None = None
        self._bootstrap_servers = bootstrap_servers
        self._topic = topic
        self._records = records
        self._rate = rate
        self._acknowledged_at: dict[int, list[float]] = {}
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="load", daemon=True)

    def __enter__(self) -> Load:
        self._thread.start()
        return self

    def __exit__(self, *_exception: object) -> None:
        self._stopped.set()
        self._thread.join()

    @property
    def running(self) -> bool:
        """True until every record is acknowledged, or the load has failed."""
        return self._thread.is_alive()

    def longest_gap_s(self, partition: int, begin: float, end: float) -> float:
        """The longest time between two consecutive acknowledgements of a partition, among those that reach into
        [begin, end] (``time.monotonic()``)."""
        times = self._acknowledged_at.get(partition, [])
        gaps = [later - earlier for earlier, later in pairwise(times) if later > begin and earlier < end]
        return max(gaps, default=0.0)

    def _run(self) -> None:
        try:
            with Producer(bootstrap_servers=self._bootstrap_servers, acks="all", linger_ms=5) as producer:
                self._send_all(producer)
                producer.flush(timeout=SETTLE_TIMEOUT_S)
        except BaseException as error:
            self.error = self.error or error

    def _send_all(self, producer: Producer) -> None:
        begin = time.monotonic()
        for number in range(self._records):
            if number % BURST == 0:
                ahead_s = begin + number / self._rate - time.monotonic()
                if self._stopped.wait(max(0.0, ahead_s)) or self.error is not None:
                    return
            future = producer.send(
                self._topic, key=f"customer-{number % 97:02d}".encode(), value=f"order-{number:06d}".encode()
            )
            future.add_done_callback(self._settled)

    def _settled(self, future: RecordFuture) -> None:
        """Handles the acknowledgement or failure of one record; called on the producer's own thread."""
        error = future.exception()
        if error is not None:
            self.error = self.error or error
            return
        self.acknowledged += 1
        self._acknowledged_at.setdefault(future.result().partition, []).append(time.monotonic())

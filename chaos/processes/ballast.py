"""Load in a process of its own, so that its cost is not attributed to the cluster: many writers, each with one record
in flight.

``python -m quorumlog.chaos.processes.ballast '{"clients": …, "rate": …, "seconds": …}'`` prints its figures as JSON.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time
from array import array
from collections.abc import Callable
from dataclasses import asdict, dataclass

import uvloop

from quorumlog.chaos.processes.scenario_cluster import ClientOptions
from quorumlog.sdk.aio import AsyncProducer
from quorumlog.sdk.errors import QuorumlogError

TOPIC = "ballast"
#: One writer each: records of different partitions never share a batch, so every record is an entry of its own.
PARTITIONS = 48
VALUE = b"x" * 100
DELIVERY_TIMEOUT_MS = 60_000
_POLL_S = 0.5
_ANSWER_TIMEOUT_S = 90.0


@dataclass(slots=True, frozen=True)
class BallastFigures:
    """Results of the writers.

    Arguments:
        rate: acknowledged records per second.
        p50_ms, p99_ms, p999_ms, most_ms: time from when a record was due to be sent to its acknowledgement.
        failed: records that were not acknowledged in time.
    """

    seconds: float
    acknowledged: int
    failed: int
    rate: float
    p50_ms: float
    p99_ms: float
    p999_ms: float
    most_ms: float


class BallastError(Exception):
    """Raised if the load's process fails; the message is the last line of its output."""


def run_ballast(
    clients: ClientOptions, rate: float, seconds: float, meanwhile: Callable[[], None] = lambda: None
) -> BallastFigures:
    """Loads a cluster from a new process.

    Arguments:
        clients: connection settings.
        rate: records per second; 0 for as many as the cluster accepts.
        in the meantime: called twice a second; an exception that it raises ends the load.

    Raises:
        BallastError: the process failed.
    """
    task = json.dumps({"clients": clients, "rate": rate, "seconds": seconds})
    command = [sys.executable, "-m", "quorumlog.chaos.processes.ballast", task]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            deadline = time.monotonic() + seconds + _ANSWER_TIMEOUT_S
            while process.poll() is None and time.monotonic() < deadline:
                meanwhile()
                time.sleep(_POLL_S)
        finally:
            process.kill()
        said, complaint = process.communicate()
    if process.returncode != 0:
        raise BallastError(f"the load failed: {(complaint.strip().splitlines() or ['no output'])[-1]}")
    return BallastFigures(**json.loads(said))


class _Writers:
    """All writers of one process."""

    def __init__(self, rate: float, seconds: float) -> None:
        self.latencies_ms = array("f")
        self.failed = 0
        self._interval_s = PARTITIONS / rate if rate else 0.0
        self._seconds = seconds

    async def write(self, producer: AsyncProducer, began_s: float, partition: int) -> None:
        """Runs one writer, which sends on its schedule, or as soon as the last record is acknowledged."""
        # Spread evenly: otherwise all writers would send at once, every interval.
        due = began_s + self._interval_s * partition / PARTITIONS
        while (now := time.monotonic()) < began_s + self._seconds:
            if self._interval_s and now < due:
                await asyncio.sleep(due - now)
            elif not self._interval_s:
                due = now
            try:
                await (await producer.send(TOPIC, VALUE, partition=partition))
                self.latencies_ms.append((time.monotonic() - due) * 1_000)
            except QuorumlogError:
                self.failed += 1
            due += self._interval_s


async def _load(clients: ClientOptions, rate: float, seconds: float) -> BallastFigures:
    writers = _Writers(rate, seconds)
    async with AsyncProducer(**clients, linger_ms=0, delivery_timeout_ms=DELIVERY_TIMEOUT_MS) as producer:
        for partition in range(PARTITIONS):
            await (await producer.send(TOPIC, VALUE, partition=partition))
        began = time.monotonic()
        await asyncio.gather(*(writers.write(producer, began, partition) for partition in range(PARTITIONS)))
        took = time.monotonic() - began
    ordered = sorted(writers.latencies_ms) or [0.0]

    def at(share: float) -> float:
        return round(ordered[min(len(ordered) - 1, int(len(ordered) * share))], 3)

    count = len(writers.latencies_ms)
    return BallastFigures(
        took, count, writers.failed, count / took, at(0.5), at(0.99), at(0.999), round(ordered[-1], 3)
    )


def main() -> None:
    """Runs the load given as JSON."""
    task = json.loads(sys.argv[1])
    print(json.dumps(asdict(uvloop.run(_load(**task)))))


if __name__ == "__main__":
    main()

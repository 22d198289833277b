"""Results of one run of a measurement."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True, frozen=True)
class Figures:
    """One run.

    Arguments:
        seconds: from the first byte sent to the last acknowledgement or byte received.
        operations: records or batches, depending on the measurement.
        payload_bytes: users' data.
        p50_ms, p99_ms: latency of one operation; None if it is not measured.
        program_s, kernel_s: processor time of all servers together: in their own code, and in the kernel; None if it is
            not measured.
    """

    seconds: float
    operations: int
    payload_bytes: int
    p50_ms: float | None = None
    p99_ms: float | None = None
    program_s: float | None = None
    kernel_s: float | None = None

    @property
    def megabytes_per_second(self) -> float:
        """Users' data per second, in units of 10^6 bytes."""
        return self.payload_bytes / self.seconds / 1e6

    @property
    def operations_per_second(self) -> float:
        """Records or batches per second."""
        return self.operations / self.seconds


def summarize(seconds: float, operations: int, payload_bytes: int, latencies_s: list[float]) -> Figures:
    """Returns figures of a run from each operation's latency in seconds, if they were measured."""
    if not latencies_s:
        return Figures(seconds, operations, payload_bytes)
    ordered = sorted(latencies_s)
    p99 = ordered[min(len(ordered) - 1, len(ordered) * 99 // 100)]
    return Figures(seconds, operations, payload_bytes, ordered[len(ordered) // 2] * 1e3, p99 * 1e3)

"""Measurements: each figure of the cluster beside the same load on the bare path."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from bench.figures import Figures
from bench.process_cost import TICK_S

KIB = 1024
PARTITIONS = 8
RECORD_BYTES = 100


@dataclass(slots=True, frozen=True)
class Load:
    """A job for a client process, without its address."""

    job: str
    arguments: Mapping[str, object] = field(default_factory=dict)


@dataclass(slots=True, frozen=True)
class Figure:
    """A number taken from a run.

    Arguments:
        name: what it is called in the report.
        unit: of the number.
        of: takes it.
        target: what the ratio to the bare path ought to be; None where none is set.
        lower_is_better: for latencies.
    """

    name: str
    unit: str
    of: Callable[[Figures], float]
    target: float | None = None
    lower_is_better: bool = False


@dataclass(slots=True, frozen=True)
class Measurement:
    """A load on the cluster, the same on the bare path, and what is compared.

    Arguments:
        topic: which it writes or reads.
        reads: what must have been written before, by another measurement or for this one's sake.
    """

    topic: str
    cluster: Load
    bare: Load
    figures: tuple[Figure, ...]
    reads: Load | None = None


def megabytes_per_second(figures: Figures) -> float:
    """Rate of users' data."""
    return figures.megabytes_per_second


def _median_ms(figures: Figures) -> float:
    assert figures.p50_ms is not None
    return figures.p50_ms


def _p99_ms(figures: Figures) -> float:
    assert figures.p99_ms is not None
    return figures.p99_ms


def _rate(name: str, target: float | None = None) -> tuple[Figure, ...]:
    return (Figure(name, "MB/s", megabytes_per_second, target),)


def _batches(size: str) -> tuple[Figure, ...]:
    """The rate of ready-made batches, and what one of them costs the servers: as many cores as there are set a rate."""
    name = f"produce batches of {size}"
    return (
        *_rate(name, target=0.8),
        Figure(f"{name}: the servers' programs", "µs a batch", _program_us, lower_is_better=True),
        Figure(f"{name}: the kernel for them", "µs a batch", _kernel_us, lower_is_better=True),
    )


def _program_us(figures: Figures) -> float:
    assert figures.program_s is not None
    return 1e6 * max(figures.program_s, TICK_S) / figures.operations


def _kernel_us(figures: Figures) -> float:
    assert figures.kernel_s is not None
    return 1e6 * max(figures.kernel_s, TICK_S) / figures.operations


def _latency(name: str, p50: float | None, p99: float | None) -> tuple[Figure, ...]:
    return (
        Figure(f"{name}, p50", "ms", _median_ms, p50, lower_is_better=True),
        Figure(f"{name}, p99", "ms", _p99_ms, p99, lower_is_better=True),
    )


def measurements(scale: float) -> list[Measurement]:
    """All measurements in the order in which a repetition runs them.

    Arguments:
        scale: 1 for a whole run; the amounts of data grow with it.
    """
    records, rows = int(400_000 * scale), int(1_000_000 * scale)
    single = {"size": RECORD_BYTES, "count": max(200, int(600 * scale))}
    one = {**single, "window": 1}

    def batches(kib: int, megabytes: int, window: int) -> dict[str, object]:
        return {"size": kib * KIB, "count": int(megabytes * 1_000_000 * scale) // (kib * KIB), "window": window}

    def bare_batches(kib: int, megabytes: int, window: int) -> Load:
        return Load("bare-produce", {**batches(kib, megabytes, window), "partitions": PARTITIONS})

    small, large = batches(64, 128, 32), batches(256, 128, 16)
    stream = Load("bare-read", {"size": 128 * KIB, "count": rows * RECORD_BYTES // (128 * KIB)})
    read = {"partitions": PARTITIONS, "size": RECORD_BYTES, "count": rows}
    rows_written = Load("produce-arrow", {"size": RECORD_BYTES, "count": rows})

    def consume(name: str, target: float | None, *, arrow: bool) -> Measurement:
        load = Load("consume", {**read, "arrow": arrow})
        return Measurement("arrow", load, stream, _rate(name, target), reads=rows_written)

    return [
        Measurement(
            "records",
            Load("produce-records", {"size": RECORD_BYTES, "count": records}),
            bare_batches(128, 64, 32),
            _rate("produce records of 100 B, Producer.send"),
        ),
        Measurement(
            "arrow",
            rows_written,
            bare_batches(256, 100, 16),
            _rate("produce records of 100 B, send_arrow"),
        ),
        consume("consume records of 100 B, poll_arrow", 0.8, arrow=True),
        consume("consume records of 100 B, poll", None, arrow=False),
        Measurement(
            "bytes",
            Load("raw-produce", small),
            Load("bare-produce", {**small, "partitions": PARTITIONS}),
            _batches("64 KiB"),
        ),
        Measurement(
            "bytes",
            Load("raw-produce", large),
            Load("bare-produce", {**large, "partitions": PARTITIONS}),
            _batches("256 KiB"),
        ),
        Measurement(
            "bytes",
            Load("raw-produce", one),
            Load("bare-produce", {**one, "partitions": 1}),
            _latency("latency of one batch of 100 B", 1.5, 2.0),
        ),
        Measurement(
            "bytes",
            Load("produce-singly", single),
            Load("bare-produce", {**one, "partitions": 1}),
            _latency("latency of one record, send().result()", None, None),
        ),
    ]

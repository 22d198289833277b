"""What the port is held against: figures of two sides, pairwise, and what they ought to be."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from dataclasses import dataclass, field

from bench.figures import Figures

LARGE, SMALL = 1_200, 140
CONNECTIONS, IDLE_PARTITIONS = 1_000, 1_000

#: Puts a load on the nodes.
Side = Callable[[], Figures]


@dataclass(slots=True)
class Budget:
    """A figure of two sides, pairwise: the n-th of each was measured right after the other.

    Arguments:
        what, unit: of the figure.
        target: what the median of the ratios, the port's side to the other, ought to be; None: no ratio is asked for.
        is_most: the target is the most that it may be.
        is_difference: what one side is more than the other stands for the ratio.
    """

    what: str
    unit: str
    target: float | None = None
    is_most: bool = False
    is_difference: bool = False
    port: list[float] = field(default_factory=list)
    beside: list[float] = field(default_factory=list)

    @property
    def ratios(self) -> list[float]:
        """Of each pair, the port's side to the other."""
        pairs = zip(self.port, self.beside, strict=True)
        return [port - beside if self.is_difference else port / beside for port, beside in pairs]

    @property
    def met(self) -> bool | None:
        """Whether the median of the ratios is what it ought to be; None without a target."""
        if self.target is None:
            return None
        ratio = statistics.median(self.ratios)
        return ratio <= self.target if self.is_most else ratio >= self.target


def budgets() -> dict[str, Budget]:
    """All of them, by the names that ``_measured`` has for them."""
    return {
        "produce": Budget("produce, librdkafka / send_arrow", "k records/s", 0.8),
        "consume": Budget("consume, librdkafka / poll_arrow", "k records/s", 0.8),
        "translated": Budget("consume what the SDK wrote, librdkafka / poll_arrow", "k records/s", 0.25),
        "raw in": Budget(f"ready-made batches of {LARGE:,} in, the port / gRPC", "k records/s", 0.8),
        "raw out": Budget("bytes out, the port / gRPC", "k records/s", 0.8),
        "large": Budget(f"poll_arrow, Kafka's batches of {LARGE:,} / the SDK's", "k records/s", 0.4),
        "small": Budget(f"poll_arrow, Kafka's batches of {SMALL} / the SDK's", "k records/s", 0.4),
        "cpu": Budget(f"leader's CPU, a kept batch of {LARGE:,} / one of the SDK's", "µs", 1.4, is_most=True),
        "idle": Budget(
            f"{CONNECTIONS:,} idle connections, and what they are more than none",
            "% of a core",
            2.0,
            is_most=True,
            is_difference=True,
        ),
        "session": Budget(f"fetch of {IDLE_PARTITIONS:,} idle partitions, incremental / full", "µs of CPU"),
    }


def apache_budgets() -> dict[str, Budget]:
    """Those of librdkafka on the port beside itself on Apache Kafka: what is the client's is on both sides."""
    return {
        "apache produce": Budget("produce, librdkafka here / on Apache Kafka", "k records/s"),
        "apache consume": Budget("consume, librdkafka here / on Apache Kafka", "k records/s"),
    }


class Turns:
    """Runs the two sides of a budget one right after the other.

    Arguments:
        is_first: whether the port's side goes first.
    """

    def __init__(self, budget: Budget, is_first: bool) -> None:
        self._budget = budget
        self._is_first = is_first

    def take(self, port: Side, beside: Side) -> None:
        """Measures both, in thousands of records a second."""
        sides = ((port, self._budget.port), (beside, self._budget.beside))
        for measure, into in sides if self._is_first else reversed(sides):
            into.append(measure().operations_per_second / 1_000)

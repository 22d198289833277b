"""Targets of the port: figures of two sides, pairwise, and their required ratios."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from dataclasses import dataclass, field

from bench.figures import Figures

LARGE, SMALL = 1_200, 140
CONNECTIONS, IDLE_PARTITIONS = 1_000, 1_000

#: Runs a load on the nodes.
Side = Callable[[], Figures]


@dataclass(slots=True)
class Budget:
    """A figure of two sides, pairwise: the n-th of each were measured in direct succession.

    Arguments:
        what, unit: description of the figure.
        target: required median of the ratios of the port's side to the other; None: none exists.
        is_most: the target is a maximum.
        is_difference: the difference of the sides replaces the ratio.
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
        """The ratio of the port's side to the other, for each pair."""
        pairs = zip(self.port, self.beside, strict=True)
        return [port - beside if self.is_difference else port / beside for port, beside in pairs]

    @property
    def met(self) -> bool | None:
        """True if the median of the ratios meets the target; None without a target."""
        if self.target is None:
            return None
        ratio = statistics.median(self.ratios)
        return ratio <= self.target if self.is_most else ratio >= self.target


def budgets() -> dict[str, Budget]:
    """Returns all budgets, by the names that ``_measured`` uses."""
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
            f"{CONNECTIONS:,} idle connections, beyond none",
            "% of a core",
            2.0,
            is_most=True,
            is_difference=True,
        ),
        "session": Budget(f"fetch of {IDLE_PARTITIONS:,} idle partitions, incremental / full", "µs of CPU"),
    }


def apache_budgets() -> dict[str, Budget]:
    """Returns the budgets of librdkafka on the port beside Apache Kafka: the client's part is on both sides."""
    return {
        "apache produce": Budget("produce, librdkafka here / on Apache Kafka", "k records/s"),
        "apache consume": Budget("consume, librdkafka here / on Apache Kafka", "k records/s"),
    }


class Turns:
    """Runs the two sides of a budget in direct succession.

    Arguments:
        is_first: True if the port's side goes first.
    """

    def __init__(self, budget: Budget, is_first: bool) -> None:
        self._budget = budget
        self._is_first = is_first

    def take(self, port: Side, beside: Side) -> None:
        """Measures both, in thousands of records per second."""
        sides = ((port, self._budget.port), (beside, self._budget.beside))
        for measure, into in sides if self._is_first else reversed(sides):
            into.append(measure().operations_per_second / 1_000)

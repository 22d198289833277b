"""The figures of clients for OpenTelemetry. It needs the extra ``otel`` (``opentelemetry-api``).

Example::

    from opentelemetry.metrics import get_meter
    from quorumlog.sdk.metrics.opentelemetry import observe

    observe(get_meter("orders"), producer=producer, consumer=consumer)
"""

from __future__ import annotations

import math
import threading
from collections.abc import Iterator
from functools import partial

from opentelemetry.metrics import CallbackOptions, Meter, Observation

from quorumlog.sdk.metrics.figures import sentence
from quorumlog.sdk.metrics.series import MeasuredClient, Series, counts, series_names, series_of


def observe(meter: Meter, **clients: MeasuredClient) -> None:
    """Has a meter observe the figures of clients, whenever it is read.

    Arguments:
        clients: producers and consumers, by the name that the attribute ``client`` gets.
    """
    reading = _CollectedFigures(clients)
    for name, figure in series_names().items():
        create = meter.create_observable_counter if counts(figure) else meter.create_observable_gauge
        create(name, callbacks=[partial(reading.observe, name)], description=sentence(figure))


class _CollectedFigures:
    """The figures of clients, looked at once in each collection. A meter asks for one name after the other, and a
    consumer of a thousand partitions has thousands of figures: to go through all of them for each name is slow."""

    def __init__(self, clients: dict[str, MeasuredClient]) -> None:
        self._clients = clients
        self._lock = threading.Lock()
        self._series: dict[str, list[Series]] = {}
        #: Names that were asked for since the look. Another collection has begun when one is asked for again.
        self._told: set[str] = set()

    def observe(self, name: str, _options: CallbackOptions) -> Iterator[Observation]:
        """The series of one name."""
        with self._lock:
            if name in self._told or not self._told:
                self._look()
            self._told.add(name)
            found = self._series.get(name, [])
        for series in found:
            if not math.isnan(series.value):  # There was none of late.
                yield Observation(series.value, series.labels)

    def _look(self) -> None:
        self._told.clear()
        self._series = {}
        for series in series_of(self._clients.items()):
            self._series.setdefault(series.name, []).append(series)

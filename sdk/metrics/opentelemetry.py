"""Metrics of clients for OpenTelemetry. Requires the extra ``otel`` (``opentelemetry-api``).

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
    """Registers observable instruments for the metrics of clients, which are read at each collection.

    Arguments:
        clients: producers and consumers, by the value of the attribute ``client``.
    """
    reading = _CollectedFigures(clients)
    for name, figure in series_names().items():
        create = meter.create_observable_counter if counts(figure) else meter.create_observable_gauge
        create(name, callbacks=[partial(reading.observe, name)], description=sentence(figure))


class _CollectedFigures:
    """The metrics of clients, read once per collection.

    A meter requests one name after the other, and a consumer of a thousand partitions has thousands of metrics: reading
    all of them for each name would be slow.
    """

    def __init__(self, clients: dict[str, MeasuredClient]) -> None:
        self._clients = clients
        self._lock = threading.Lock()
        self._series: dict[str, list[Series]] = {}
        #: Names requested since the last read. A repeated name starts another collection.
        self._told: set[str] = set()

    def observe(self, name: str, _options: CallbackOptions) -> Iterator[Observation]:
        """Yields the series of one name."""
        with self._lock:
            if name in self._told or not self._told:
                self._look()
            self._told.add(name)
            found = self._series.get(name, [])
        for series in found:
            if not math.isnan(series.value):  # There was no recent value.
                yield Observation(series.value, series.labels)

    def _look(self) -> None:
        self._told.clear()
        self._series = {}
        for series in series_of(self._clients.items()):
            self._series.setdefault(series.name, []).append(series)

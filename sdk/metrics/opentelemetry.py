"""The figures of clients for OpenTelemetry. It needs the extra ``otel`` (``opentelemetry-api``).

Example::

    from opentelemetry.metrics import get_meter
    from quorumlog.sdk.metrics.opentelemetry import observe

    observe(get_meter("orders"), producer=producer, consumer=consumer)
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import partial

from opentelemetry.metrics import CallbackOptions, Meter, Observation

from quorumlog.sdk.metrics.figures import sentence
from quorumlog.sdk.metrics.series import MeasuredClient, counts, series_names, series_of


def observe(meter: Meter, **clients: MeasuredClient) -> None:
    """Has a meter observe the figures of clients, whenever it is read.

    Arguments:
        clients: producers and consumers, by the name that the attribute ``client`` gets.
    """
    for name, figure in series_names().items():
        create = meter.create_observable_counter if counts(figure) else meter.create_observable_gauge
        create(name, callbacks=[partial(_observed, clients, name)], description=sentence(figure))


def _observed(clients: dict[str, MeasuredClient], name: str, _options: CallbackOptions) -> Iterator[Observation]:
    for series in series_of(clients.items()):
        if series.name == name and not math.isnan(series.value):  # There was none of late.
            yield Observation(series.value, series.labels)

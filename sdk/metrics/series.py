"""Metrics of clients as series with labels, for monitoring systems."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple, Protocol

from quorumlog.sdk.metrics.figures import FETCHES, MIRROR, NAMES, PRODUCER_TOPIC, ClientFigures, sentence

#: Limit of series per metric; further ones are left out, to protect the monitoring system's storage.
MOST_SERIES = 2_000
#: Monitoring systems derive rates from totals themselves.
_LEFT_OUT = "-rate"


class MeasuredClient(Protocol):
    """A producer or a consumer, of either kind, or a mirror."""

    def metrics(self) -> ClientFigures:
        """Returns its metrics."""


class Series(NamedTuple):
    """One metric of one client.

    Attributes:
        name: such as ``quorumlog_producer_record_send`` without the ``total`` of a counter.
        counts: True for a counter, which never decreases.
        labels: ``client``, and ``topic`` and ``partition`` if applicable.
    """

    name: str
    counts: bool
    text: str
    labels: dict[str, str]
    value: float


def series_of(clients: Iterable[tuple[str, MeasuredClient]]) -> Iterator[Series]:
    """Yields the series of clients, each with its value of the label ``client``.

    At most ``MOST_SERIES`` of each metric.
    """
    shown: dict[str, int] = {}
    for client, measured in clients:
        for group, figures in measured.metrics().items():
            for figure, value in figures.items():
                if figure.endswith(_LEFT_OUT):
                    continue
                name = series_name(group, figure)
                shown[name] = shown.get(name, 0) + 1
                if shown[name] <= MOST_SERIES:
                    labels = {"client": client} | _labels(group)
                    yield Series(name, counts(figure), sentence(figure), labels, value)


def series_names() -> dict[str, str]:
    """Returns the metrics that have series, by the name of the series."""
    return {
        series_name(group, figure): figure
        for group, figures in NAMES.items()
        for figure in figures
        if not figure.endswith(_LEFT_OUT)
    }


def counts(figure: str) -> bool:
    """True for a counter, which never decreases."""
    return figure.endswith("-total")


def series_name(group: str, figure: str) -> str:
    """Returns the name of a series, such as ``quorumlog_consumer_records_lag_max``; without the ``total`` of a
    counter."""
    name, dot, _ = group.partition(".")
    kind = name.removesuffix("-metrics").removesuffix("-fetch-manager").removesuffix("-coordinator")
    if name in (FETCHES, MIRROR) and dot:
        kind += "-partition"
    return f"quorumlog_{kind}_{figure.removesuffix('-total')}".replace("-", "_")


def _labels(group: str) -> dict[str, str]:
    """Returns the topic and partition in a group's name, as labels."""
    name, _, rest = group.partition(".")
    if name == PRODUCER_TOPIC:
        return {"topic": rest}
    if name in (FETCHES, MIRROR) and rest:
        topic, _, partition = rest.rpartition("-")
        return {"topic": topic, "partition": partition}
    return {}

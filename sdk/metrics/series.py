"""The figures of clients as series with labels: what bridges make of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple, Protocol

from quorumlog.sdk.metrics.figures import FETCHES, NAMES, PRODUCER_TOPIC, ClientFigures, sentence

#: Series of one figure that a bridge shows; what else there is goes without, so that nobody's store is flooded.
MOST_SERIES = 2_000
#: What collects series makes rates of totals by itself.
_LEFT_OUT = "-rate"


class MeasuredClient(Protocol):
    """A producer or a consumer, of either kind."""

    def metrics(self) -> ClientFigures:
        """Its figures."""


class Series(NamedTuple):
    """One figure of one client.

    Attributes:
        name: such as ``quorumlog_producer_record_send`` without the ``total`` of a counter.
        counts: it only grows.
        labels: ``client``, and ``topic`` and ``partition`` where it is about those.
    """

    name: str
    counts: bool
    text: str
    labels: dict[str, str]
    value: float


def series_of(clients: Iterable[tuple[str, MeasuredClient]]) -> Iterator[Series]:
    """The series of clients, each with its name for the label ``client``.

    At most ``MOST_SERIES`` of each figure.
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
    """Every figure that a series is made of, by the name of the series."""
    return {
        series_name(group, figure): figure
        for group, figures in NAMES.items()
        for figure in figures
        if not figure.endswith(_LEFT_OUT)
    }


def counts(figure: str) -> bool:
    """Whether a figure only grows."""
    return figure.endswith("-total")


def series_name(group: str, figure: str) -> str:
    """What a figure is called, such as ``quorumlog_consumer_records_lag_max``; without the ``total`` of a counter."""
    name, dot, _ = group.partition(".")
    kind = name.removesuffix("-metrics").removesuffix("-fetch-manager").removesuffix("-coordinator")
    if name == FETCHES and dot:
        kind = "consumer-partition"
    return f"quorumlog_{kind}_{figure.removesuffix('-total')}".replace("-", "_")


def _labels(group: str) -> dict[str, str]:
    """What a group's name says of a topic, or of a partition."""
    name, _, rest = group.partition(".")
    if name == PRODUCER_TOPIC:
        return {"topic": rest}
    if name == FETCHES and rest:
        topic, _, partition = rest.rpartition("-")
        return {"topic": topic, "partition": partition}
    return {}

"""Metrics of clients for Prometheus.

Example::

    from prometheus_client import start_http_server
    from quorumlog.sdk.metrics.prometheus import register

    register(producer, consumer)
    start_http_server(9400, addr="127.0.0.1")
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from prometheus_client import REGISTRY, CollectorRegistry, start_http_server
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from quorumlog.sdk.errors import IllegalArgumentError
from quorumlog.sdk.metrics.series import MeasuredClient, series_of


class ClientCollector(Collector):
    """Reads the metrics of clients at each collection, without any cost in between.

    Arguments:
        clients: producers and consumers, by the value of the label ``client``.
    """

    def __init__(self, clients: dict[str, MeasuredClient]) -> None:
        self._clients = clients

    def collect(self) -> Iterator[Metric]:
        """Yields all metrics except rates, which Prometheus derives from totals."""
        families: dict[str, Metric] = {}
        for series in series_of(self._clients.items()):
            family = families.get(series.name)
            if family is None:
                kind = CounterMetricFamily if series.counts else GaugeMetricFamily
                family = families[series.name] = kind(series.name, series.text)
            sample = f"{series.name}_total" if series.counts else series.name
            family.add_sample(sample, series.labels, series.value)
        yield from families.values()


def register(
    *clients: MeasuredClient, registry: CollectorRegistry = REGISTRY, **named: MeasuredClient
) -> ClientCollector:
    """Registers the metrics of clients, until ``registry.unregister`` is called with the returned collector.

    Arguments:
        clients: producers and consumers; the label ``client`` numbers them.
        named: the same, with values for the label.
    """
    collector = ClientCollector({str(number): each for number, each in enumerate(clients, 1)} | named)
    registry.register(collector)
    return collector


def serve(address: str, clients: dict[str, MeasuredClient]) -> Callable[[], None]:
    """Serves the metrics of clients, and no others, over HTTP; returns the call that ends it.

    Arguments:
        address: host:port.
        clients: by the value of the label ``client``.

    Raises:
        IllegalArgumentError: the address is invalid, or in use.
    """
    host, _, port = address.rpartition(":")
    registry = CollectorRegistry()
    registry.register(ClientCollector(clients))
    try:
        server, thread = start_http_server(int(port), addr=host.strip("[]"), registry=registry)
    except (OSError, ValueError, OverflowError) as error:
        raise IllegalArgumentError(
            f"metrics cannot be served at {address!r}, which must be host:port: {error}"
        ) from None

    def end() -> None:
        server.shutdown()
        server.server_close()
        thread.join()

    return end

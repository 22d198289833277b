"""The names of the series that a node exports, as an expression for Prometheus asks for them."""

from __future__ import annotations

from collections.abc import Mapping

from quorumlog.server.observability.metric_catalogue import MetricFamily, MetricKind

_SUFFIXES = {
    MetricKind.COUNTER: ("_total",),
    MetricKind.GAUGE: ("",),
    MetricKind.HISTOGRAM: ("_bucket", "_sum", "_count"),
}


def exported_names(catalogue: Mapping[str, MetricFamily]) -> set[str]:
    return {f"quorumlog_{name}{suffix}" for name, family in catalogue.items() for suffix in _SUFFIXES[family.kind]}

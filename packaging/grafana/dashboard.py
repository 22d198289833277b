"""The dashboard for Grafana, made of the catalogue of metrics: what is shown first is chosen here, the rest follows.

python packaging/grafana/dashboard.py > packaging/grafana/quorumlog.json
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from quorumlog.server.observability.metric_catalogue import CATALOGUE, MetricKind

#: Which nodes: those of the job that is chosen above the panels. And the time that a rate is of, as Grafana reckons it.
NODES = '{job="$job"}'
WINDOW = "$__rate_interval"
#: Of topics, groups and the like that many are shown, the largest.
MOST_SHOWN = 20
#: The grid of a dashboard has 24 columns.
COLUMNS, STAT_HEIGHT, GRAPH_HEIGHT = 24, 4, 8
#: Seconds, bytes and times have units of their own in Grafana; a counter's name says what it counts a second.
UNITS = {"_seconds": "s", "_bytes": "bytes"}


@dataclass(frozen=True, slots=True)
class Query:
    """One line of a panel, or several: an expression, and what a line is called."""

    expression: str
    legend: str


@dataclass(frozen=True, slots=True)
class Panel:
    """One picture.

    Arguments:
        unit: Grafana's name of it.
        kind: ``stat`` for a figure, ``timeseries`` for lines.
    """

    title: str
    queries: tuple[Query, ...]
    unit: str = "short"
    description: str = ""
    kind: str = "timeseries"


def exported(name: str, suffix: str = "") -> str:
    """A metric of the chosen nodes, by its name in the catalogue.

    Arguments:
        suffix: of a histogram: ``_sum`` or ``_count`` where its buckets are not shown.
    """
    suffix = suffix or {MetricKind.COUNTER: "_total", MetricKind.HISTOGRAM: "_bucket"}.get(CATALOGUE[name].kind, "")
    return f"quorumlog_{name}{suffix}{NODES}"


def of_metric(name: str, legend: str = "") -> Query:
    """A metric per node, or per topic or group where it has such a label: of a counter what comes in a second."""
    family = CATALOGUE[name]
    value = f"rate({exported(name)}[{WINDOW}])" if family.kind is MetricKind.COUNTER else exported(name)
    by = [label for label in family.labels if label != "partition"] or ["instance"]
    if family.kind is MetricKind.HISTOGRAM:
        return quantile(0.99, name)
    total = f"sum by ({', '.join(by)}) ({value})"
    return Query(f"topk({MOST_SHOWN}, {total})" if family.labels else total, f"{legend} {_named(by)}".strip())


def quantile(share: float, name: str) -> Query:
    """A quantile of a histogram, per node, or per label where it has one."""
    by = list(CATALOGUE[name].labels) or ["instance"]
    rates = f"sum by ({', '.join(by)}, le) (rate({exported(name)}[{WINDOW}]))"
    return Query(f"histogram_quantile({share:g}, {rates})", f"p{share * 100:g} {_named(by)}")


def mean(name: str) -> Query:
    """The mean of a histogram with labels: means of parts add up to that of the whole, quantiles do not."""
    by = ", ".join(CATALOGUE[name].labels)
    both = [f"sum by ({by}) (rate({exported(name, suffix)}[{WINDOW}]))" for suffix in ("_sum", "_count")]
    return Query(" / ".join(both), _named(CATALOGUE[name].labels))


def _named(labels: Iterable[str]) -> str:
    """Returns the legend of a line with these labels, in Grafana's braces."""
    return " ".join(f"{{{{{label}}}}}" for label in labels)


def figure(title: str, expression: str, name: str, unit: str = "short") -> Panel:
    """One number of the whole cluster; ``name`` is the metric that explains it."""
    return Panel(title, (Query(expression, ""),), unit, CATALOGUE[name].help, "stat")


def at_a_glance() -> list[Panel]:
    """The overall health."""
    used, free = exported("storage_used_bytes"), exported("storage_free_bytes")
    return [
        figure("Nodes that serve", f"sum({exported('ready')})", "ready"),
        figure("Active controllers", f"sum({exported('active_controller')})", "active_controller"),
        figure("Partitions without a leader", f"sum({exported('offline_partitions')})", "offline_partitions"),
        figure(
            "Partitions that take no acks=all",
            f"sum({exported('under_min_isr_partitions')})",
            "under_min_isr_partitions",
        ),
        figure(
            "Partitions that lack a replica",
            f"sum({exported('under_replicated_partitions')})",
            "under_replicated_partitions",
        ),
        figure("Fullest storage", f"max({used} / ({used} + {free}))", "storage_used_bytes", "percentunit"),
    ]


def load() -> list[Panel]:
    """Client traffic and its latency."""
    committed = f"max by (group, topic, partition) ({exported('consumer_group_committed_offset')})"
    ends = f"max by (topic, partition) ({exported('partition_high_watermark')})"
    starts = f"max by (topic, partition) ({exported('partition_log_start_offset')})"
    behind = f"({ends} - on (topic, partition) group_right {committed})"
    # Records that retention has removed can no longer be read: a group is behind by what the log has at most.
    kept = f"({committed} * 0 + on (topic, partition) group_left () ({ends} - {starts}))"
    lag = f"sum by (group, topic) (clamp_min({behind} < {kept} or {kept}, 0))"
    return [
        Panel("Bytes in", (of_metric("topic_appended_bytes"),), "Bps", CATALOGUE["topic_appended_bytes"].help),
        Panel("Bytes out", (of_metric("topic_read_bytes"),), "Bps", CATALOGUE["topic_read_bytes"].help),
        Panel("Records in", (of_metric("topic_appended_records"),), "ops", CATALOGUE["topic_appended_records"].help),
        Panel(
            "How far consumer groups are behind",
            (Query(f"topk({MOST_SHOWN}, {lag})", "{{group}} {{topic}}"),),
            description="Records that are committed in the log, and that the group has not committed yet.",
        ),
        Panel(
            "Requests",
            tuple(of_metric(f"{kind}_requests", kind) for kind in ("produce", "fetch", "admin")),
            "ops",
            "Requests taken in a second.",
        ),
        Panel("Errors", (of_metric("request_errors"),), "ops", CATALOGUE["request_errors"].help),
        Panel("Requests take", (quantile(0.99, "request_seconds"),), "s", CATALOGUE["request_seconds"].help),
        Panel(
            "A Produce request, by stage",
            (mean("produce_stage_seconds"),),
            "s",
            "The mean time that a Produce request spends in each stage; they add up to its whole.",
        ),
        Panel(
            "A storage transaction",
            (quantile(0.5, "fsync_seconds"), quantile(0.99, "fsync_seconds")),
            "s",
            CATALOGUE["fsync_seconds"].help,
        ),
        Panel(
            "What waits",
            tuple(
                of_metric(name, name.replace("_", " "))
                for name in ("pending_produces", "parked_fetches", "parked_heartbeats")
            ),
            description="Requests that are not answered yet.",
        ),
        Panel(
            "Since the scrub was last through",
            (Query(f"time() - ({exported('scrub_last_finished_seconds')} > 0)", "{{instance}}"),),
            "s",
            "How long ago a node had last read and checked all of its storage.",
        ),
        Panel(
            "In-sync replicas",
            (of_metric("isr_shrinks", "lost"), of_metric("isr_expansions", "back")),
            "ops",
            "Replicas that leave and rejoin the in-sync set, per second.",
        ),
    ]


def the_rest(shown: str) -> list[Panel]:
    """A panel for each metric that no other one asks for.

    Arguments:
        shown: all expressions of the others.
    """
    panels = []
    for name, family in CATALOGUE.items():
        if exported(name) not in shown:
            unit = next((unit for ending, unit in UNITS.items() if name.endswith(ending)), "short")
            if family.kind is MetricKind.COUNTER:
                unit = "Bps" if unit == "bytes" else "ops"
            title = name.replace("_", " ")
            panels.append(Panel(title[0].upper() + title[1:], (of_metric(name),), unit, family.help))
    return panels


def rows() -> dict[str, list[Panel]]:
    """All panels, by the row that they are in."""
    chosen = {"At a glance": at_a_glance(), "Load": load()}
    shown = " ".join(query.expression for panels in chosen.values() for panel in panels for query in panel.queries)
    return chosen | {"Everything else": the_rest(shown)}


def laid_out() -> Iterator[dict[str, Any]]:
    """The panels as Grafana takes them, each in its place."""
    top = 0
    for title, panels in rows().items():
        yield {"type": "row", "title": title, "gridPos": _place(0, top, COLUMNS, 1), "collapsed": False, "panels": []}
        top += 1
        height = STAT_HEIGHT if panels[0].kind == "stat" else GRAPH_HEIGHT
        per_line = len(panels) if panels[0].kind == "stat" else 3
        width = COLUMNS // per_line
        for number, panel in enumerate(panels):
            place = _place(number % per_line * width, top + number // per_line * height, width, height)
            yield _as_grafana_takes_it(panel, place)
        top += -(-len(panels) // per_line) * height


def _place(left: int, top: int, width: int, height: int) -> dict[str, int]:
    return {"x": left, "y": top, "w": width, "h": height}


def _as_grafana_takes_it(panel: Panel, place: dict[str, int]) -> dict[str, Any]:
    source = {"type": "prometheus", "uid": "${datasource}"}
    return {
        "type": panel.kind,
        "title": panel.title,
        "description": panel.description,
        "datasource": source,
        "gridPos": place,
        "fieldConfig": {"defaults": {"unit": panel.unit, "min": 0}, "overrides": []},
        "targets": [
            {
                "refId": chr(ord("A") + number),
                "datasource": source,
                "expr": each.expression,
                "legendFormat": each.legend,
            }
            for number, each in enumerate(panel.queries)
        ],
    }


def dashboard() -> dict[str, Any]:
    """The whole, with the two things that a reader chooses: whose metrics, and of which cluster."""
    panels = [{"id": number, **panel} for number, panel in enumerate(laid_out(), 1)]
    choices = [
        {"name": "datasource", "label": "Data source", "type": "datasource", "query": "prometheus"},
        {
            "name": "job",
            "label": "Cluster",
            "type": "query",
            "datasource": {"type": "prometheus", "uid": "${datasource}"},
            "query": {"query": "label_values(quorumlog_ready, job)", "refId": "job"},
            "refresh": 2,
        },
    ]
    return {
        "title": "quorumlog",
        "uid": "quorumlog",
        "tags": ["quorumlog"],
        "schemaVersion": 39,
        "editable": True,
        "refresh": "30s",
        "time": {"from": "now-1h", "to": "now"},
        "templating": {"list": choices},
        "panels": panels,
    }


if __name__ == "__main__":
    print(json.dumps(dashboard(), indent=2))

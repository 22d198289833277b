"""``quorumlog cluster describe``, ``cluster health`` and ``features``: state and health of the cluster."""

from __future__ import annotations

import time
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from quorumlog.cli.boundary import FAILED, CommandError, say
from quorumlog.cli.moves.returned_empty import nodes_returned_empty, what_to_type
from quorumlog.cli.options import (
    DEFAULT_BOOTSTRAP_SERVERS,
    BootstrapServers,
    Linearizable,
    Output,
    OutputFormat,
    connect,
)
from quorumlog.cli.rendering import node_list, plural, print_json, print_table
from quorumlog.cli.topic_text import is_unavailable, is_under_min_isr, is_under_replicated, shares_machine

if TYPE_CHECKING:
    from quorumlog.sdk import Admin, ClusterDescription

DESCRIBE_EXAMPLE = "Example: quorumlog cluster describe --output json"
HEALTH_EXAMPLE = "Example: quorumlog cluster health --watch"

WATCH_INTERVAL_S = 1.0

features = typer.Typer()


@dataclass(slots=True, frozen=True)
class Health:
    """A verdict with its reasons; healthy without any."""

    nodes: int
    topics: int
    partitions: int
    reasons: tuple[str, ...]

    @property
    def line(self) -> str:
        """The verdict in one line."""
        if self.reasons:
            return "unhealthy: " + "; ".join(self.reasons)
        counted = (plural(self.nodes, "node"), plural(self.topics, "topic"), plural(self.partitions, "partition"))
        return f"healthy: {', '.join(counted)}, all led and in sync"


def describe(
    *,
    linearizable: Linearizable = False,
    bootstrap_servers: BootstrapServers = DEFAULT_BOOTSTRAP_SERVERS,
    output: Output = OutputFormat.TABLE,
) -> None:
    """Describes the cluster's nodes, with their states and versions, and the active controller."""
    with connect(bootstrap_servers) as admin:
        cluster = admin.describe_cluster(linearizable=linearizable)
        if not cluster.brokers:
            raise CommandError(_why_no_nodes(admin))
    warn_of_age(cluster)
    brokers = sorted(cluster.brokers, key=lambda broker: broker.node_id)
    if output is OutputFormat.JSON:
        nodes = [
            {
                "node_id": broker.node_id,
                "host": broker.host,
                "port": broker.port,
                "rack": broker.rack,
                "machine": broker.machine,
                "fenced": broker.fenced,
                "version": broker.version,
            }
            for broker in brokers
        ]
        print_json({"cluster_id": cluster.cluster_id, "controller_id": cluster.controller_id, "brokers": nodes})
        return
    print(f"ClusterId: {cluster.cluster_id}")
    shares_machine = any(broker.machine for broker in brokers)
    rows = (
        (
            broker.node_id,
            f"{broker.host}:{broker.port}",
            broker.rack or "-",
            *([broker.machine or "-"] if shares_machine else []),
            "down" if broker.fenced else "up",
            "active" if broker.node_id == cluster.controller_id else "",
            broker.version,
        )
        for broker in brokers
    )
    machine = ("Machine",) if shares_machine else ()
    print_table(("Node", "Address", "Rack", *machine, "State", "Controller", "Version"), rows)


def warn_of_age(cluster: ClusterDescription) -> None:
    """Warns that the shown state may be outdated if no controller is active."""
    if cluster.controller_id is not None:
        return
    age = "" if cluster.image_age_ms is None else f", {cluster.image_age_ms / 1000:.0f} s ago"
    say(
        f"warning: no controller is active, so this is the last known state{age}: nodes that are shown as up or in sync"
        " may be down; 'quorumlog quorum describe' says which voters can be reached"
    )


@features.callback()
def features_group() -> None:
    """The cluster's feature level."""


@features.command("describe", epilog="Example: quorumlog features describe")
def describe_features(
    bootstrap_servers: BootstrapServers = DEFAULT_BOOTSTRAP_SERVERS, output: Output = OutputFormat.TABLE
) -> None:
    """Shows the cluster's feature level and that of each node: the level can rise once all nodes support more."""
    with connect(bootstrap_servers) as admin:
        cluster = admin.describe_cluster(linearizable=True)
    nodes = [
        {"node_id": each.node_id, "supported": each.feature_level, "version": each.version}
        for each in sorted(cluster.brokers, key=lambda broker: broker.node_id)
    ]
    if output is OutputFormat.JSON:
        print_json({"feature_level": cluster.feature_level, "nodes": nodes})
        return
    print(f"FeatureLevel: {cluster.feature_level}")
    print_table(("Node", "Supports", "Version"), (tuple(node.values()) for node in nodes))


@features.command("upgrade", epilog="Example: quorumlog features upgrade --dry-run")
def upgrade_features(
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only check if the level can be raised.")] = False,
    bootstrap_servers: BootstrapServers = DEFAULT_BOOTSTRAP_SERVERS,
    output: Output = OutputFormat.TABLE,
) -> None:
    """Raises the feature level to the highest that all nodes support. You cannot downgrade the nodes afterwards."""
    with connect(bootstrap_servers) as admin:
        level = admin.upgrade_features(validate_only=dry_run)
    if output is OutputFormat.JSON:
        print_json({"feature_level": level, "result": "could be raised to" if dry_run else "reached"})
    else:
        print(f"feature level {level}: all nodes support it" if dry_run else f"the cluster is at feature level {level}")


def health(
    watch: Annotated[bool, typer.Option("--watch", help="Keep running, and print a line on every change.")] = False,
    bootstrap_servers: BootstrapServers = DEFAULT_BOOTSTRAP_SERVERS,
    output: Output = OutputFormat.TABLE,
) -> None:
    """Checks the cluster, and lists problems: nodes down, partitions without leader, replicas out of sync. Exits
    with 1 if it finds one.
    """
    with connect(bootstrap_servers) as admin:
        verdict = _judge(admin)
        _print(verdict, output, with_time=watch)
        while watch:
            time.sleep(WATCH_INTERVAL_S)
            latest = _judge(admin)
            if latest != verdict:
                _print(latest, output, with_time=True)
            verdict = latest
    if verdict.reasons:
        raise typer.Exit(FAILED)


def _judge(admin: Admin) -> Health:
    from quorumlog.sdk import NodeDescription

    cluster = admin.describe_cluster()
    if not cluster.brokers:
        return Health(0, 0, 0, (_why_no_nodes(admin),))
    topics = admin.describe_topics()
    found = [(topic, partition) for topic in topics for partition in topic.partitions]
    reasons = []
    if cluster.controller_id is None:
        reasons.append("no active controller: a majority of the controllers must be up")
    # The controller reports which nodes are fenced; without one, or in its first seconds, every node must be queried.
    answers = dict(zip((broker.node_id for broker in cluster.brokers), admin.describe_nodes(), strict=False))
    silent = {node for node, answer in answers.items() if not isinstance(answer, NodeDescription)}
    down = sorted(silent | {broker.node_id for broker in cluster.brokers if broker.fenced})
    # A node with an empty disk may answer too, and reports what it waits for.
    empty = nodes_returned_empty(admin, cluster.brokers)
    replaced = [each for each in cluster.brokers if each.lost or each.returning]
    down = [node for node in down if node not in empty and node not in {each.node_id for each in replaced if each.lost}]
    if down:
        reasons.append(f"node{'s' if len(down) > 1 else ''} down: {node_list(down)}")
        leaving = 0 if cluster.controller_id in (None, *down) else _made_anew(admin, down)
        if leaving:
            reasons.append(f"{plural(leaving, 'replica')} of nodes that are down being recreated on other nodes")
    for each in replaced:
        left = f"{plural(each.returning, 'replica')} to be restored"
        given_up = "the old one is given up, start the node with an empty one, " if each.lost else ""
        reasons.append(f"the disk of node {each.node_id} is being replaced: {given_up}{left}")
    # Without a controller no command can help: the node itself reports what does.
    reported = empty if cluster.controller_id is not None else {}
    for node, directory in reported.items():
        hint = what_to_type(admin, node, directory)
        reasons.append(
            f"node {node} returned with an empty data directory, and had {directory}: if that disk is lost: {hint};"
            " otherwise restore that directory to the node"
        )
    for node, answer in answers.items():
        if isinstance(answer, NodeDescription) and answer.reason and node not in down and node not in reported:
            reasons.append(f"node {node}{'' if answer.ready else ' not ready'}: {answer.reason}")
    for test, complaint in (
        (is_unavailable, "without a leader"),
        (is_under_min_isr, "with too few replicas in sync for acks=all"),
        (is_under_replicated, "under-replicated"),
        (
            partial(shares_machine, {broker.node_id: broker.machine for broker in cluster.brokers}),
            "with two replicas on one machine: quorumlog partitions rebalance separates them",
        ),
    ):
        affected = [f"{topic.name}-{partition.partition}" for topic, partition in found if test(topic, partition)]
        if affected:
            shown = ", ".join(affected[:3]) + (", …" if len(affected) > 3 else "")
            reasons.append(f"{plural(len(affected), 'partition')} {complaint} ({shown})")
    return Health(len(cluster.brokers), len(topics), len(found), tuple(reasons))


def _made_anew(admin: Admin, down: list[int]) -> int:
    """Returns the number of partitions that are being moved off nodes that are down; 0 if the controller does not
    report it.
    """
    from quorumlog.sdk import QuorumlogError

    try:
        moves = admin.list_partition_reassignments().values()
    except QuorumlogError:
        return 0
    return sum(not set(down).isdisjoint(move.removing_replicas) for move in moves)


def _why_no_nodes(admin: Admin) -> str:
    """Returns why the contacted node belongs to no cluster yet."""
    return admin.describe_node().reason or "this node has not found the cluster yet: try again"


def _print(verdict: Health, output: OutputFormat, *, with_time: bool) -> None:
    if output is OutputFormat.JSON:
        counts = {"nodes": verdict.nodes, "topics": verdict.topics, "partitions": verdict.partitions}
        print_json({"healthy": not verdict.reasons, "reasons": list(verdict.reasons)} | counts)
    else:
        print((time.strftime("%H:%M:%S ") if with_time else "") + verdict.line, flush=True)

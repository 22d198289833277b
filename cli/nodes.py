"""``quorumlog nodes``: the nodes of the cluster, and how they leave it."""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from quorumlog.cli.boundary import CommandError
from quorumlog.cli.options import DEFAULT_BOOTSTRAP_SERVERS, BootstrapServers, Output, OutputFormat, connect
from quorumlog.cli.progress import progress
from quorumlog.cli.rendering import node_list, plural, print_json, print_table

if TYPE_CHECKING:
    from quorumlog.sdk import Admin, NodePlan

app = typer.Typer(no_args_is_help=True, help="Nodes: list, drain, undrain, replace, remove.")

_LOOK_EVERY_S = 0.5
#: How long the controller may need to notice that a node is down: a few sessions of a broker.
_NOTICE_S = 15
#: Moves that a plan in a table shows.
_SHOWN_MOVES = 20

Node = Annotated[int, typer.Argument(metavar="NODE", help="Its node id.")]
Wait = Annotated[bool, typer.Option("--wait/--no-wait", help="Return once the node is empty.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Show what would be done, and do nothing.")]


@dataclass(slots=True, frozen=True)
class _Holdings:
    """What each node holds.

    Arguments:
        replicas: of partitions, by node; new ones that are being copied count too.
        leaders: partitions that each leads.
    """

    replicas: Counter[int]
    leaders: Counter[int]


@app.callback()
def nodes() -> None:
    """Nodes of the cluster."""


@app.command("list", epilog="Example: quorumlog nodes list")
def list_nodes(
    *, bootstrap_servers: BootstrapServers = DEFAULT_BOOTSTRAP_SERVERS, output: Output = OutputFormat.TABLE
) -> None:
    """All nodes: where they are, whether they are up, what they hold, who votes on the metadata."""
    with connect(bootstrap_servers) as admin:
        brokers = sorted(admin.describe_cluster().brokers, key=lambda broker: broker.node_id)
        held = _held(admin)
        quorum = admin.describe_quorum()
    voters = {voter.node_id for voter in quorum.voters}
    rows = [
        {
            "node_id": broker.node_id,
            "address": f"{broker.host}:{broker.port}",
            "rack": broker.rack,
            "state": ("down" if broker.fenced else "up") + (", draining" if broker.leaving else ""),
            "replicas": held.replicas[broker.node_id],
            "leaders": held.leaders[broker.node_id],
            "votes": broker.node_id in voters,
            "version": broker.version,
        }
        for broker in brokers
    ]
    if output is OutputFormat.JSON:
        print_json(rows)
        return
    columns = ("Node", "Address", "Rack", "State", "Replicas", "Leaders", "Votes", "Version")
    print_table(
        columns,
        ((*list(row.values())[:2], row["rack"] or "-", *list(row.values())[3:6], "yes" if row["votes"] else "no",
          row["version"]) for row in rows),
    )  # fmt: skip


@app.command("drain", epilog="Example: quorumlog nodes drain 3 --dry-run")
def drain(
    node: Node,
    *,
    wait: Wait = True,
    dry_run: DryRun = False,
    bootstrap_servers: BootstrapServers = DEFAULT_BOOTSTRAP_SERVERS,
    output: Output = OutputFormat.TABLE,
) -> None:
    """Moves all replicas of a node to others, dead or alive, over racks, while clients write and read.

    The cluster goes on with it by itself when this command is interrupted. `nodes undrain` calls it off.
    """
    with connect(bootstrap_servers) as admin:
        plan = admin.drain_node(node, validate_only=dry_run)
        if wait and not dry_run:
            _wait(admin, node, plan)
    _print_plan(node, plan, output, dry_run=dry_run, waited=wait)


@app.command("undrain", epilog="Example: quorumlog nodes undrain 3")
def undrain(node: Node, *, bootstrap_servers: BootstrapServers = DEFAULT_BOOTSTRAP_SERVERS) -> None:
    """Lets a node stay that is being drained. Moves under way go back; what has left it stays where it is."""
    with connect(bootstrap_servers) as admin:
        admin.undrain_node(node)
    print(f"node {node} stays")


@app.command("replace", epilog="Example: quorumlog nodes replace 3 --with 4")
def replace(
    node: Node,
    *,
    successor: Annotated[int, typer.Option("--with", metavar="NODE", help="The node that takes over.")],
    wait: Wait = True,
    dry_run: DryRun = False,
    bootstrap_servers: BootstrapServers = DEFAULT_BOOTSTRAP_SERVERS,
    output: Output = OutputFormat.TABLE,
) -> None:
    """Lets one node take over all that another has: its replicas, and its vote on the metadata if it has one.

    A node that is down is struck off in the end: its id is never used again. One that is up stays, without replicas.
    """
    removed = False
    with connect(bootstrap_servers) as admin:
        plan = admin.drain_node(node, to=successor, validate_only=dry_run)
        if wait and not dry_run:
            _wait(admin, node, plan)
            removed = _remove_if_down(admin, node)
    _print_plan(node, plan, output, dry_run=dry_run, waited=wait)
    if removed and output is OutputFormat.TABLE:
        print(f"node {node} is removed")


@app.command("remove", epilog="Example: quorumlog nodes remove 3")
def remove(
    node: Node, *, dry_run: DryRun = False, bootstrap_servers: BootstrapServers = DEFAULT_BOOTSTRAP_SERVERS
) -> None:
    """Strikes a node off that is down, has no replicas and no vote. Its id is never used again."""
    with connect(bootstrap_servers) as admin:
        admin.remove_node(node, validate_only=dry_run)
    print(f"node {node} {'could be' if dry_run else 'is'} removed")


def _held(admin: Admin) -> _Holdings:
    partitions = [each for topic in admin.describe_topics(include_internal=True) for each in topic.partitions]
    replicas = Counter(node for partition in partitions for node in partition.replicas)
    # A node is empty once its witnesses have left it, too.
    replicas.update(partition.witness for partition in partitions if partition.witness is not None)
    for move in admin.list_partition_reassignments().values():
        replicas.update(move.adding_replicas)
    return _Holdings(replicas, Counter(partition.leader for partition in partitions if partition.leader is not None))


def _wait(admin: Admin, node: int, plan: NodePlan) -> None:
    """Waits until a node holds nothing, and votes no more if another takes that over."""
    with progress(f"emptying node {node}", plan.all_moves, "replicas moved") as tell:
        while True:
            left = _held(admin).replicas[node]
            tell(max(0, plan.all_moves - left))
            if not left and (not plan.voters or _votes_have_moved(admin, plan.voters)):
                return
            if not any(broker.node_id == node and broker.leaving for broker in admin.describe_cluster().brokers):
                raise CommandError(f"node {node} is not being drained any more: somebody has called it off")
            time.sleep(_LOOK_EVERY_S)


def _votes_have_moved(admin: Admin, voters: tuple[int, ...]) -> bool:
    quorum = admin.describe_quorum()
    return {voter.node_id for voter in quorum.voters} == set(voters) and not quorum.wanted_voters


def _remove_if_down(admin: Admin, node: int) -> bool:
    """Strikes a node off that does not answer; the controller may need a while to count it as down."""
    deadline = time.monotonic() + _NOTICE_S
    while True:
        brokers = admin.describe_cluster(linearizable=True).brokers
        if any(broker.node_id == node and broker.fenced for broker in brokers):
            admin.remove_node(node)
            return True
        if time.monotonic() > deadline or _answers(admin, node):
            return False
        time.sleep(_LOOK_EVERY_S)


def _answers(admin: Admin, node: int) -> bool:
    from quorumlog.sdk import NodeDescription

    return any(isinstance(each, NodeDescription) and each.node_id == node for each in admin.describe_nodes())


def _print_plan(node: int, plan: NodePlan, output: OutputFormat, *, dry_run: bool, waited: bool) -> None:
    if output is OutputFormat.JSON:
        moves = [
            {"topic": each.topic, "partition": each.partition, "replicas": each.replicas, "wanted": each.wanted}
            for each in plan.moves
        ]
        print_json({"node_id": node, "all_moves": plan.all_moves, "moves": moves, "voters": plan.voters or None})
        return
    verb = "would leave" if dry_run else "left" if waited else "leave"
    print(f"{plural(plan.all_moves, 'replica')} {verb} node {node}")
    if plan.moves:
        shown = plan.moves[:_SHOWN_MOVES]
        cells = ((each.topic, each.partition, node_list(each.replicas), node_list(each.wanted)) for each in shown)
        print_table(("Topic", "Partition", "From", "To"), cells)
        if plan.all_moves > len(shown):
            print(f"… and {plan.all_moves - len(shown)} more")
    if plan.voters:
        print(f"metadata quorum: nodes {node_list(plan.voters)}")

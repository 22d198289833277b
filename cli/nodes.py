"""``quorumlog nodes``: lists, drains, replaces, removes and configures nodes."""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Container
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from quorumlog.cli.boundary import WRONG_USAGE, CommandError
from quorumlog.cli.moves.bytes_left import BytesLeft, copies_under_way
from quorumlog.cli.moves.returned_empty import nodes_returned_empty, what_to_type
from quorumlog.cli.moves.stalls import Stalls, what_is_waited_for
from quorumlog.cli.options import DEFAULT_BOOTSTRAP_SERVERS, BootstrapServers, Output, OutputFormat, Throttle, connect
from quorumlog.cli.progress import copying, progress
from quorumlog.cli.rendering import node_list, plural, print_json, print_table, size

if TYPE_CHECKING:
    from quorumlog.sdk import Admin, BrokerDescription, NodeDescription, NodePlan, PartitionDescription

app = typer.Typer()

_LOOK_EVERY_S = 0.5
#: Time that the controller may need to notice that a node is down (s): a few broker sessions.
_NOTICE_S = 15
#: After this time without a leader (s) a partition has lost too many of its nodes to elect one.
_LEADERLESS_S = 20
#: Maximum number of moves shown in the table of a plan.
_SHOWN_MOVES = 20
_LOG_LEVEL = "log_level"

Node = Annotated[int, typer.Argument(metavar="NODE", help="Id of the node.")]
NodeOrMachine = Annotated[
    int | None, typer.Argument(metavar="[NODE]", help="Id of the node, unless --machine is given.")
]
Machine = Annotated[str | None, typer.Option("--machine", metavar="NAME", help="All nodes of this machine.")]
Wait = Annotated[bool, typer.Option("--wait/--no-wait", help="Wait until all replicas have moved.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Print what would be done, and change nothing.")]


@dataclass(slots=True, frozen=True)
class _Holdings:
    """Replicas and leaders on each node.

    Arguments:
        replicas: number of replicas by node; new ones that are being copied count too.
        leaders: number of partitions that each node leads.
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
    """Lists all nodes: address, state, replicas, leaders, vote in the metadata quorum, and time of the last complete
    scrub of their storage.
    """
    from quorumlog.sdk import NodeDescription

    with connect(bootstrap_servers) as admin:
        brokers = sorted(admin.describe_cluster().brokers, key=lambda broker: broker.node_id)
        held = _held(admin)
        quorum = admin.describe_quorum()
        empty = nodes_returned_empty(admin, brokers)
        hints = {node: what_to_type(admin, node, directory) for node, directory in empty.items()}
        answers = {each.node_id: each for each in admin.describe_nodes() if isinstance(each, NodeDescription)}
    voters = {voter.node_id for voter in quorum.voters}
    rows = [
        {
            "node_id": broker.node_id,
            "address": f"{broker.host}:{broker.port}",
            "rack": broker.rack,
            "machine": broker.machine,
            "state": _state(broker, empty),
            "replicas": held.replicas[broker.node_id],
            "leaders": held.leaders[broker.node_id],
            "votes": broker.node_id in voters,
            "version": broker.version,
            "last_scrubbed": _last_scrubbed(answers.get(broker.node_id)),
        }
        for broker in brokers
    ]
    if output is OutputFormat.JSON:
        print_json(rows)
        return
    shown = [{**row, "node": row["node_id"]} for row in rows]
    for node, hint in sorted(hints.items()):
        print(f"node {node} returned empty; if its disk is lost: {hint}")
    columns = [
        "Node",
        "Address",
        "Rack",
        "Machine",
        "State",
        "Replicas",
        "Leaders",
        "Votes",
        "Version",
        "Last scrubbed",
    ]
    if not any(row["machine"] for row in rows):
        columns.remove("Machine")
    print_table(columns, ([_cell(row[column.lower().replace(" ", "_")]) for column in columns] for row in shown))


def _cell(value: object) -> object:
    """Returns a value as a table shows it."""
    match value:
        case None:
            return "-"
        case bool():
            return "yes" if value else "no"
        case _:
            return value


def _last_scrubbed(node: NodeDescription | None) -> str | None:
    """Returns when all of a node's storage was last read, in UTC; None if that is unknown or never happened."""
    if node is None or not node.last_scrubbed_ms:
        return None
    return datetime.fromtimestamp(node.last_scrubbed_ms / 1_000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


@app.command("drain", epilog="Example: quorumlog nodes drain 3 --dry-run")
def drain(
    node: NodeOrMachine = None,
    *,
    machine: Machine = None,
    wait: Wait = True,
    dry_run: DryRun = False,
    throttle: Throttle = None,
    bootstrap_servers: BootstrapServers = DEFAULT_BOOTSTRAP_SERVERS,
    output: Output = OutputFormat.TABLE,
) -> None:
    """Moves all replicas of a node, running or not, to other nodes, spread over racks, while clients write and read.

    With --machine, all nodes of a machine are drained together: their replicas move to other machines.

    The cluster continues automatically if this command is interrupted. `nodes undrain` cancels the drain. To change
    the throttle of the moves in progress, run the same command with another one.
    """
    with connect(bootstrap_servers) as admin:
        first, *others = chosen = _chosen(admin, node, machine)
        plan = admin.drain_node(first, together=others, throttle_bytes_per_second=throttle or 0, validate_only=dry_run)
        for each in chosen if wait and not dry_run else ():
            _wait(admin, each, _part_of(plan, each) if others else plan)
    _print_plan(_Subject(first, machine, tuple(chosen)), plan, output, dry_run=dry_run, waited=wait)


@app.command("undrain", epilog="Example: quorumlog nodes undrain 3")
def undrain(
    node: NodeOrMachine = None,
    *,
    machine: Machine = None,
    bootstrap_servers: BootstrapServers = DEFAULT_BOOTSTRAP_SERVERS,
    output: Output = OutputFormat.TABLE,
) -> None:
    """Cancels the drain or the disk replacement of a node, which stays in the cluster.

    Moves in progress are reverted; replicas that have left the node are not moved back, except those of a lost disk.
    """
    with connect(bootstrap_servers) as admin:
        chosen = _chosen(admin, node, machine)
        for each in chosen:
            admin.undrain_node(each)
    _print_results(_Subject(chosen[0], machine, tuple(chosen)), "stays", output)


@app.command("replace", epilog="Example: quorumlog nodes replace 3 --with 4")
def replace(
    node: Node,
    *,
    successor: Annotated[int, typer.Option("--with", metavar="NODE", help="Node that takes over.")],
    wait: Wait = True,
    dry_run: DryRun = False,
    throttle: Throttle = None,
    bootstrap_servers: BootstrapServers = DEFAULT_BOOTSTRAP_SERVERS,
    output: Output = OutputFormat.TABLE,
) -> None:
    """Moves all replicas of a node to another node, and its vote in the metadata quorum if it has one.

    A node that is down is then removed, and its id is never used again. A running node stays, without replicas.

    `nodes replace 3 --with 3` is for a node that is down because its disk is lost. When node 3 starts with an empty
    data directory, it copies its replicas from the other nodes. Until then, `nodes undrain` cancels the replacement.
    """
    if node == successor:
        _replace_disk(bootstrap_servers, node, output, throttle or 0, dry_run=dry_run, wait=wait)
        return
    removed = False
    with connect(bootstrap_servers) as admin:
        plan = admin.drain_node(node, to=successor, throttle_bytes_per_second=throttle or 0, validate_only=dry_run)
        if wait and not dry_run:
            _wait(admin, node, plan)
            removed = _remove_if_down(admin, node)
    _print_plan(_Subject(node, None, (node,)), plan, output, dry_run=dry_run, waited=wait)
    if removed and output is OutputFormat.TABLE:
        print(f"node {node} is removed")


@app.command("remove", epilog="Example: quorumlog nodes remove 3")
def remove(
    node: NodeOrMachine = None,
    *,
    machine: Machine = None,
    dry_run: DryRun = False,
    bootstrap_servers: BootstrapServers = DEFAULT_BOOTSTRAP_SERVERS,
    output: Output = OutputFormat.TABLE,
) -> None:
    """Removes a node that is down and has no replicas and no vote. Its id is never used again.

    With --machine, all nodes of a machine are removed, or none if one of them cannot be.
    """
    with connect(bootstrap_servers) as admin:
        chosen = _chosen(admin, node, machine)
        for each in chosen if len(chosen) > 1 else ():
            admin.remove_node(each, validate_only=True)
        for each in chosen:
            admin.remove_node(each, validate_only=dry_run)
    result = "could be removed" if dry_run else "is removed"
    _print_results(_Subject(chosen[0], machine, tuple(chosen)), result, output)


def _chosen(admin: Admin, node: int | None, machine: str | None) -> list[int]:
    """Returns the node of a command, or all nodes of its machine."""
    if (node is None) == (machine is None):
        given = "no node is given" if node is None else f"node {node} is given with --machine"
        raise CommandError(f"{given}: give the id of a node, or --machine NAME", WRONG_USAGE)
    if node is not None:
        return [node]
    brokers = admin.describe_cluster(linearizable=True).brokers
    chosen = sorted(broker.node_id for broker in brokers if broker.machine == machine)
    if not chosen:
        names = ", ".join(sorted({broker.machine for broker in brokers if broker.machine}))
        known = f"the machines are {names}" if names else "no node has the setting machine: give the id of a node"
        raise CommandError(f"no node is on machine {machine!r:.60}; {known}")
    return chosen


def _part_of(plan: NodePlan, node: int) -> NodePlan:
    """Returns the part of a plan for several nodes that is about one of them."""
    from quorumlog.sdk import NodePlan

    moves = tuple(each for each in plan.moves if node in each.replicas)
    return NodePlan(moves, len(moves), plan.voters, sum(each.size_bytes for each in moves))


@dataclass(slots=True, frozen=True)
class _Subject:
    """The subject of a command: a node, or a machine with its nodes.

    Arguments:
        first: the node, or the first one of the machine.
        machine: its name; None if a node was given.
        nodes: all nodes.
    """

    first: int
    machine: str | None
    nodes: tuple[int, ...]

    @property
    def text(self) -> str:
        """A phrase for messages."""
        if self.machine is None:
            return f"node {self.first}"
        return f"machine {self.machine} (nodes {node_list(self.nodes)})"

    @property
    def fields(self) -> dict[str, object]:
        """The fields of JSON output."""
        if self.machine is None:
            return {"node_id": self.first}
        return {"machine": self.machine, "node_ids": list(self.nodes)}


def _print_results(place: _Subject, result: str, output: OutputFormat) -> None:
    if output is OutputFormat.JSON:
        print_json({**place.fields, "result": result})
    else:
        print(f"{place.text} {result}")


def _state(broker: BrokerDescription, empty: Container[int]) -> str:
    if broker.lost:
        state = "down, its disk given up"
    elif broker.node_id in empty:
        state = "returned empty"
    else:
        state = "down" if broker.fenced else "up"
    if broker.witness_only:
        state += ", witnesses only"
    if broker.returning and not broker.lost:
        state += f", {plural(broker.returning, 'replica')} to be restored"
    return state + (", draining" if broker.leaving else "")


def _replace_disk(servers: str, node: int, output: OutputFormat, throttle: int, *, dry_run: bool, wait: bool) -> None:
    from quorumlog.sdk import NodePlan

    with connect(servers) as admin:
        former = _broker(admin, node)
        is_on_its_way = bool(former.returning) and not former.lost and not former.fenced
        if is_on_its_way:
            # The disk has been given up already.
            plan = NodePlan((), former.returning, ())
        else:
            plan = _give_up_disk(admin, former, throttle, dry_run=dry_run)
        if wait and not dry_run:
            _wait_for_disk(admin, former, plan, may_be_called_off=not is_on_its_way)
    if output is OutputFormat.JSON:
        _print_plan(_Subject(node, None, (node,)), plan, output, dry_run=dry_run, waited=wait)
        return
    if plan.moves:
        print(f"{plural(plan.all_moves, 'replica')} {'would be' if dry_run else 'are'} copied to node {node} again")
        _print_moves(plan)
    if plan.voters:
        print(f"metadata quorum: nodes {node_list(plan.voters)}")
    if dry_run:
        return
    if wait:
        print(f"node {node} has all of its replicas again")
    else:
        print(f"start node {node} with an empty data directory; quorumlog nodes list shows its progress")


def _broker(admin: Admin, node: int) -> BrokerDescription:
    brokers = admin.describe_cluster(linearizable=True).brokers
    found = next((broker for broker in brokers if broker.node_id == node), None)
    if found is None:
        nodes = node_list([broker.node_id for broker in brokers])
        raise CommandError(f"node {node} is not registered; the nodes are {nodes}")
    return found


def _give_up_disk(admin: Admin, broker: BrokerDescription, throttle: int, *, dry_run: bool) -> NodePlan:
    """Gives the disk up; waits up to ``_NOTICE_S`` for the controller to count the node as down."""
    from quorumlog.sdk import NodePlan
    from quorumlog.sdk.errors import InvalidRequestError

    deadline = time.monotonic() + _NOTICE_S
    while True:
        try:
            return admin.replace_disk(
                broker.node_id,
                directory_id=broker.directory_id,
                throttle_bytes_per_second=throttle,
                validate_only=dry_run,
            )
        except InvalidRequestError:
            now = _broker(admin, broker.node_id)
            if now.directory_id != broker.directory_id:
                # A node that has moved its storage aside requests this itself, and was faster.
                return NodePlan((), now.returning, ())
            if now.fenced or time.monotonic() > deadline or _answers_with(admin, now):
                raise
        time.sleep(_LOOK_EVERY_S)


def _answers_with(admin: Admin, broker: BrokerDescription) -> bool:
    """True if a node answers that still has the data directory with which it registered."""
    from quorumlog.sdk import NodeDescription

    answers = (each for each in admin.describe_nodes() if isinstance(each, NodeDescription))
    return any((each.node_id, each.directory_id) == (broker.node_id, broker.directory_id) for each in answers)


def _wait_for_disk(admin: Admin, former: BrokerDescription, plan: NodePlan, *, may_be_called_off: bool) -> None:
    """Waits until a node has another data directory, with all replicas that it had on the former one."""
    node, hinted = former.node_id, False
    with progress(f"replacing the disk of node {node}", plan.all_moves, "replicas copied") as tell:
        while True:
            broker = _broker(admin, node)
            called_off = may_be_called_off and not broker.lost and broker.directory_id == former.directory_id
            if called_off:
                raise CommandError(f"the replacement of node {node}'s disk was canceled by someone else")
            if broker.lost and not hinted and not _answers_with_another(admin, broker):
                hinted = True
                print(f"start node {node} with an empty data directory", file=sys.stderr)
            if not broker.lost and not broker.fenced:
                tell(plan.all_moves - broker.returning)
                if not broker.returning and _is_in_sync(admin, node, votes=node in plan.voters):
                    return
            time.sleep(_LOOK_EVERY_S)


def _answers_with_another(admin: Admin, broker: BrokerDescription) -> bool:
    from quorumlog.sdk import NodeDescription

    answers = (each for each in admin.describe_nodes() if isinstance(each, NodeDescription))
    return any(each.node_id == broker.node_id and each.directory_id != broker.directory_id for each in answers)


def _is_in_sync(admin: Admin, node: int, *, votes: bool) -> bool:
    """True if a node is in sync for all of its replicas, and votes on the metadata if it should."""
    partitions = [each for topic in admin.describe_topics(include_internal=True) for each in topic.partitions]
    in_sync = all(node in each.isr for each in partitions if node in each.replicas)
    if not in_sync or not votes:
        return in_sync
    quorum = admin.describe_quorum()
    return not quorum.wanted_voters and any(voter.node_id == node for voter in quorum.voters)


def _held(admin: Admin) -> _Holdings:
    partitions = [each for topic in admin.describe_topics(include_internal=True) for each in topic.partitions]
    replicas = Counter(node for partition in partitions for node in partition.replicas)
    # A node is empty only once its witnesses have left it, too.
    replicas.update(partition.witness for partition in partitions if partition.witness is not None)
    for move in admin.list_partition_reassignments().values():
        replicas.update(move.adding_replicas)
    return _Holdings(replicas, Counter(partition.leader for partition in partitions if partition.leader is not None))


def _wait(admin: Admin, node: int, plan: NodePlan) -> None:
    """Waits until a node holds no replicas, and has lost its vote if another node takes it over."""
    stuck_since: float | None = None
    planned = {(each.topic, each.partition): each.size_bytes for each in plan.moves}
    mean = plan.all_bytes // plan.all_moves if plan.all_moves else 0
    stalls = Stalls()
    with copying(f"emptying node {node}", plan.all_moves, plan.all_bytes) as tell:
        while True:
            left = _left_on(admin, node)
            places = [(topic, each.partition) for topic, each in left]
            meter = BytesLeft(places, {place: planned.get(place, mean) for place in places})
            # Querying all nodes is worthwhile only if the progress is shown.
            looked_at = bool(plan.all_bytes) and sys.stderr.isatty()
            tell(len(left), meter.of(places, copies_under_way(admin)) if looked_at else 0)
            if not left and (not plan.voters or _has_given_its_vote(admin, node)):
                return
            # Linearizable: a node that is behind may not have the drain yet.
            brokers = admin.describe_cluster(linearizable=True).brokers
            if not any(broker.node_id == node and broker.leaving for broker in brokers):
                raise CommandError(f"node {node} is no longer being drained: the drain was canceled by someone else")
            if not left or any(partition.leader is not None for _, partition in left):
                stuck_since = None
            elif stuck_since is None:
                stuck_since = time.monotonic()
            elif time.monotonic() - stuck_since > _LEADERLESS_S:
                raise CommandError(_why_stuck(node, left, brokers))
            stalls.look(places, partial(_waiting, admin, node, left, meter))
            time.sleep(_LOOK_EVERY_S)


def _waiting(
    admin: Admin, node: int, left: list[tuple[str, PartitionDescription]], meter: BytesLeft
) -> tuple[int, str]:
    """Returns how many bytes are left to be copied, and what the moves wait for."""
    if not left:
        return 0, f"node {node} is empty, and votes until {_who_is_to_vote(admin)}"
    down = [broker.node_id for broker in admin.describe_cluster().brokers if broker.fenced]
    copies = copies_under_way(admin)
    left_bytes = meter.of([(topic, each.partition) for topic, each in left], copies)
    return left_bytes, what_is_waited_for(left, admin.list_partition_reassignments(), copies, down)


def _who_is_to_vote(admin: Admin) -> str:
    quorum = admin.describe_quorum()
    voting = {voter.node_id for voter in quorum.voters}
    return f"nodes {node_list(sorted(set(quorum.wanted_voters) - voting))} have copied the metadata"


def _left_on(admin: Admin, node: int) -> list[tuple[str, PartitionDescription]]:
    """Returns the partitions, with their topics, of which a node has a replica."""
    topics = admin.describe_topics(include_internal=True)
    return [(topic.name, each) for topic in topics for each in topic.partitions if node in each.replicas]


def _why_stuck(node: int, left: list[tuple[str, PartitionDescription]], brokers: tuple[BrokerDescription, ...]) -> str:
    """Returns why no replica can move: only a partition's leader can copy it."""
    topic, partition = left[0]
    down = [broker.node_id for broker in brokers if broker.fenced and broker.node_id in partition.replicas]
    many = f"{plural(len(left), 'replica')} cannot leave node {node}: no node leads"
    of_its = f"of its nodes {node_list(partition.replicas)}"
    why = f"and {of_its} these are down: {node_list(down)}" if down else f"although all {of_its} are up"
    return (
        f"{many} {topic}-{partition.partition}, {why}; start them, or delete the topic if their disks are lost."
        f" Node {node} keeps draining: replicas move automatically once they can"
    )


def _has_given_its_vote(admin: Admin, node: int) -> bool:
    """True if a node no longer votes. Its successor may have been changed again by another command."""
    quorum = admin.describe_quorum()
    if quorum.leader_id is None or quorum.outgoing_voters:
        return False
    if quorum.wanted_voters and node not in quorum.wanted_voters:
        # If it has lost its vote already, another node must still get it.
        return False
    if node in quorum.wanted_voters:
        raise CommandError(f"node {node} keeps its vote in the metadata quorum: another command has changed the voters")
    return all(voter.node_id != node for voter in quorum.voters)


def _remove_if_down(admin: Admin, node: int) -> bool:
    """Removes a node that does not answer; waits up to ``_NOTICE_S`` for the controller to count it as down."""
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


def _print_plan(place: _Subject, plan: NodePlan, output: OutputFormat, *, dry_run: bool, waited: bool) -> None:
    if output is OutputFormat.JSON:
        moves = [
            {"topic": each.topic, "partition": each.partition, "replicas": each.replicas, "wanted": each.wanted}
            for each in plan.moves
        ]
        print_json(
            {
                **place.fields,
                "all_moves": plan.all_moves,
                "all_bytes": plan.all_bytes,
                "moves": moves,
                "voters": plan.voters or None,
            }
        )
        return
    verb = "would leave" if dry_run else "left" if waited else "leave"
    size_text = f" ({size(plan.all_bytes)})" if plan.all_bytes else ""
    print(f"{plural(plan.all_moves, 'replica')}{size_text} {verb} {place.text}")
    if plan.moves:
        _print_moves(plan)
    if plan.voters:
        print(f"metadata quorum: nodes {node_list(plan.voters)}")


def _print_moves(plan: NodePlan) -> None:
    shown = plan.moves[:_SHOWN_MOVES]
    cells = ((each.topic, each.partition, node_list(each.replicas), node_list(each.wanted)) for each in shown)
    print_table(("Topic", "Partition", "From", "To"), cells)
    if plan.all_moves > len(shown):
        print(f"… and {plan.all_moves - len(shown)} more")


# -- settings at run time ---------------------------------------------------------------------------------------------


@app.command("configure", epilog="Example: quorumlog nodes configure 2 log_level=server.partition=debug")
def configure(
    words: Annotated[
        list[str] | None,
        typer.Argument(metavar="[NODE] [KEY=VALUE...]", help="Id of the node, unless --all is given, and settings."),
    ] = None,
    *,
    every: Annotated[
        bool, typer.Option("--all", help="Configure all nodes; settings of single nodes override it.")
    ] = False,
    delete: Annotated[
        list[str] | None,
        typer.Option("--delete", metavar="KEY", help="Setting to remove, so that the node's file counts; repeatable."),
    ] = None,
    dry_run: DryRun = False,
    bootstrap_servers: BootstrapServers = DEFAULT_BOOTSTRAP_SERVERS,
    output: Output = OutputFormat.TABLE,
) -> None:
    """Changes settings of a node, or of all nodes, without a restart.

    The settings are stored in the cluster's metadata. They take precedence over the node's file, its environment and
    its command line until they are deleted, also after a restart. `nodes settings` lists those that can be changed.
    `log_level=server.groups=debug` sets the level of one package.
    """
    node, pairs = _target(words or [], every=every)
    settings = _changes(pairs, delete or [])
    target = "all nodes" if node is None else f"node {node}"
    with connect(bootstrap_servers) as admin:
        changed = admin.alter_node_settings(settings, node_id=node, validate_only=dry_run)
    if output is OutputFormat.JSON:
        print_json({"node_id": node, "settings": settings, "changed": bool(changed)})
        return
    for key, value in settings.items():
        change = "is deleted" if value is None else f"= {value}"
        print(f"{target}: {key} {change}{', not changed (dry run)' if dry_run else ''}")


@app.command("settings", epilog="Example: quorumlog nodes settings 2")
def settings(
    node: Node,
    *,
    every: Annotated[bool, typer.Option("--all", help="Also list settings that need a restart.")] = False,
    bootstrap_servers: BootstrapServers = DEFAULT_BOOTSTRAP_SERVERS,
    output: Output = OutputFormat.TABLE,
) -> None:
    """Lists the settings of a node that can be changed at run time, with their sources.

    A value with the source `node` or `cluster` was set by `nodes configure`; the next one in brackets would count
    without it.
    """
    with connect(bootstrap_servers) as admin:
        described = admin.describe_node_settings(node)
    shown = [each for each in described.settings if every or each.is_dynamic]
    if output is OutputFormat.JSON:
        print_json(
            [
                {
                    "name": each.name,
                    "value": each.value,
                    "source": each.source,
                    "dynamic": each.is_dynamic,
                    "values": [{"value": value, "source": source} for value, source in each.values],
                }
                for each in shown
            ]
        )
        return
    rows = []
    for each in shown:
        beneath = ", ".join(f"{value or '-'} ({source})" for value, source in each.values[1:])
        rows.append((each.name, each.value or "-", each.source, beneath or "-"))
    print_table(("Setting", "Value", "Source", "Otherwise"), rows)


def _target(words: list[str], *, every: bool) -> tuple[int | None, list[str]]:
    """Returns the node, None for all nodes, and the settings that follow."""
    if every:
        if words and "=" not in words[0]:
            raise CommandError(f"{words[0]!r:.60} is given with --all: give a node or --all", WRONG_USAGE)
        return None, words
    if not words or not (words[0].isascii() and words[0].isdecimal()):
        given = f"{words[0]!r:.60} is not the id of a node" if words else "no node is given"
        raise CommandError(
            f"{given}: give one, such as quorumlog nodes configure 2 log_level=debug, or --all", WRONG_USAGE
        )
    return int(words[0]), words[1:]


def _changes(pairs: list[str], deleted: list[str]) -> dict[str, str | None]:
    """Returns the settings to change; None for those to delete."""
    changes: dict[str, str | None] = {}
    given: list[tuple[str, str | None]] = [(each, None) for each in deleted]
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not key or not equals:
            raise CommandError(f"{pair!r:.60} is not KEY=VALUE, such as log_level=debug", WRONG_USAGE)
        if key == _LOG_LEVEL:
            # Levels of packages have keys of their own, so that one can be changed without the others.
            for each in value.split(","):
                logger, of_logger, level = each.strip().rpartition("=")
                given.append((f"{_LOG_LEVEL}.{logger}" if of_logger else _LOG_LEVEL, level))
        else:
            given.append((key, value))
    for key, wanted in given:
        if key in changes:
            raise CommandError(f"{key:.60} is given twice: give it once", WRONG_USAGE)
        changes[key] = wanted
    if not changes:
        raise CommandError("no setting is given: give KEY=VALUE or --delete KEY", WRONG_USAGE)
    return changes

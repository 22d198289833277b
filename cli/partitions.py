"""``quorumlog partitions``: placement of partition replicas on nodes."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping, Set
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from quorumlog.cli.boundary import WRONG_USAGE, CommandError
from quorumlog.cli.moves.bytes_left import BytesLeft, Place, copies_under_way
from quorumlog.cli.moves.stalls import Stalls, what_is_waited_for
from quorumlog.cli.options import (
    DEFAULT_BOOTSTRAP_SERVERS,
    BootstrapServers,
    Output,
    OutputFormat,
    Throttle,
    connect,
    file_path,
    read_json,
)
from quorumlog.cli.progress import copying
from quorumlog.cli.rendering import node_list, plural, print_json, print_table, size

if TYPE_CHECKING:
    from quorumlog.sdk import Admin, PartitionReassignment, TopicPartition

app = typer.Typer()

REASSIGN_EXAMPLE = "Example: quorumlog partitions reassign --topic orders --partition 0 --replicas 1,2,4 --wait"
_FILE_FORM = '{"version": 1, "partitions": [{"topic": "orders", "partition": 0, "replicas": [1, 2, 4]}]}'
_LOOK_EVERY_S = 0.5

#: The target nodes of each partition; None cancels its move.
_Wishes = dict["TopicPartition", "list[int] | None"]


@app.callback()
def partitions() -> None:
    """Partition replicas."""


@app.command("reassign", epilog=REASSIGN_EXAMPLE)
def reassign(
    *,
    topic: Annotated[str | None, typer.Option("--topic", "-t", help="Name of the topic; omit with --file.")] = None,
    partition: Annotated[
        list[int] | None, typer.Option("--partition", "-p", help="Number of a partition; repeatable; by default all.")
    ] = None,
    replicas: Annotated[
        str | None, typer.Option("--replicas", metavar="NODE,…", help="Target nodes; the preferred leader first.")
    ] = None,
    file: Annotated[
        Path | None,
        typer.Option(
            "--file",
            metavar="FILE",
            parser=file_path,
            help="Plan in the format of kafka-reassign-partitions; replaces the other options.",
        ),
    ] = None,
    cancel: Annotated[
        bool, typer.Option("--cancel", help="Cancel moves in progress: partitions return to their former nodes.")
    ] = False,
    wait: Annotated[bool, typer.Option("--wait", help="Wait until all moves have finished.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Check the request, and change nothing.")] = False,
    throttle: Throttle = None,
    bootstrap_servers: BootstrapServers = DEFAULT_BOOTSTRAP_SERVERS,
    output: Output = OutputFormat.TABLE,
) -> None:
    """Moves partitions to other nodes while they are written and read; clients are not interrupted.

    Every new replica copies the log before the voters change. Until then, --cancel undoes the move. To change
    the throttle of a move in progress, run the same command with another one.
    """
    _check_usage(topic, partition, replicas, file, cancel)
    with connect(bootstrap_servers) as admin:
        wishes = _wishes(admin, topic, partition, replicas, file, cancel)
        admin.reassign_partitions(wishes, throttle_bytes_per_second=throttle or 0, validate_only=dry_run)
        if wait and not dry_run:
            wait_for_moves(admin, set(wishes), {})
    result = "could be moved" if dry_run else "moved" if wait else "is being moved"
    if cancel:
        result = "could be canceled" if dry_run else "canceled" if wait else "is being canceled"
    rows = [
        {"topic": tp.topic, "partition": tp.partition, "replicas": wanted, "result": result}
        for tp, wanted in wishes.items()
    ]
    if output is OutputFormat.JSON:
        print_json(rows)
    else:
        cells = ((tp.topic, tp.partition, node_list(nodes or ()) or "-", result) for tp, nodes in wishes.items())
        print_table(("Topic", "Partition", "Replicas", "Result"), cells)


@app.command("rebalance", epilog="Example: quorumlog partitions rebalance --dry-run")
def rebalance(
    *,
    most_moves: Annotated[
        int, typer.Option("--most-moves", min=1, max=1_000, help="Maximum number of partitions to change, best first.")
    ] = 1_000,
    throttle: Throttle = None,
    wait: Annotated[bool, typer.Option("--wait", help="Wait until all moves have finished.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print what would be done, and change nothing.")] = False,
    bootstrap_servers: BootstrapServers = DEFAULT_BOOTSTRAP_SERVERS,
    output: Output = OutputFormat.TABLE,
) -> None:
    """Spreads replicas, their bytes and leaderships evenly over nodes and racks, with few moves.

    Nodes that are down are left out. `partitions reassign --cancel` cancels single moves.
    """
    from quorumlog.sdk import TopicPartition

    with connect(bootstrap_servers) as admin:
        plan = admin.rebalance_partitions(
            most_moves=most_moves, throttle_bytes_per_second=throttle or 0, validate_only=dry_run
        )
        if wait and not dry_run:
            sizes = {(each.topic, each.partition): each.size_bytes for each in plan.moves}
            wait_for_moves(admin, {TopicPartition(*place) for place in sizes}, sizes)
    if output is OutputFormat.JSON:
        moves = [
            {
                "topic": each.topic,
                "partition": each.partition,
                "replicas": each.replicas,
                "wanted": each.wanted,
                "size_bytes": each.size_bytes,
            }
            for each in plan.moves
        ]
        print_json({"all_bytes": plan.all_bytes, "moves": moves, "loads": [asdict(load) for load in plan.loads]})
        return
    if not plan.moves:
        print("Nothing to do: replicas, bytes and leaders are evenly spread.")
        return
    verb = "would change" if dry_run else "changed" if wait else "are changing"
    print(f"{plural(len(plan.moves), 'partition')} {verb}, {size(plan.all_bytes)} to copy")
    rows = (
        (
            load.node_id,
            f"{load.replicas} → {load.replicas_after}",
            f"{load.leaders} → {load.leaders_after}",
            f"{size(load.size_bytes)} → {size(load.size_bytes_after)}",
        )
        for load in plan.loads
    )
    print_table(("Node", "Replicas", "Preferred leader of", "Bytes"), rows)


@app.command("list-reassignments", epilog="Example: quorumlog partitions list-reassignments")
def list_reassignments(
    *, bootstrap_servers: BootstrapServers = DEFAULT_BOOTSTRAP_SERVERS, output: Output = OutputFormat.TABLE
) -> None:
    """Lists the partitions that are being moved."""
    with connect(bootstrap_servers) as admin:
        moves = sorted(admin.list_partition_reassignments().items())
    if output is OutputFormat.JSON:
        print_json(
            [
                {
                    "topic": tp.topic,
                    "partition": tp.partition,
                    "replicas": list(move.replicas),
                    "adding_replicas": list(move.adding_replicas),
                    "removing_replicas": list(move.removing_replicas),
                    "throttle_bytes_per_second": move.throttle_bytes_per_second,
                }
                for tp, move in moves
            ]
        )
    elif moves:
        columns = ("Topic", "Partition", "Replicas", "Adding", "Removing", "Throttle")
        cells = (
            (*tp, *(node_list(nodes) or "-" for nodes in move[:3]), size(move[3]) + "/s" if move[3] else "-")
            for tp, move in moves
        )
        print_table(columns, cells)
    else:
        print("No partition is being moved.")


def _check_usage(
    topic: str | None, partition: list[int] | None, replicas: str | None, file: Path | None, cancel: bool
) -> None:
    if (file is None) == (topic is None) or (file is not None and (partition or replicas)):
        raise CommandError("give --topic TOPIC with --replicas NODE,… or --cancel; or --file FILE", WRONG_USAGE)
    if topic is not None and (replicas is None) != cancel:
        raise CommandError("give either --replicas NODE,… or --cancel", WRONG_USAGE)


def _wishes(
    admin: Admin, topic: str | None, partition: list[int] | None, replicas: str | None, file: Path | None, cancel: bool
) -> _Wishes:
    from quorumlog.sdk import TopicPartition

    if file is not None:
        return {tp: None if cancel else nodes for tp, nodes in _from_file(file).items()}
    assert topic is not None
    wanted = None if replicas is None else _nodes(replicas)
    [description] = admin.describe_topics([topic])
    numbers = [each.partition for each in description.partitions]
    if cancel and not partition:
        moving = admin.list_partition_reassignments()
        numbers = [number for number in numbers if (topic, number) in moving]
        if not numbers:
            raise CommandError(f"no partition of topic {topic} is being moved: nothing to cancel")
    return {TopicPartition(topic, number): wanted for number in partition or numbers}


def _nodes(text: str) -> list[int]:
    nodes = text.split(",")
    if not all(node.isdecimal() and len(node) < 10 for node in nodes):
        raise CommandError(f"--replicas '{text}' is not a list of node ids, such as 1,2,3", WRONG_USAGE)
    return [int(node) for node in nodes]


def _from_file(file: Path) -> dict[TopicPartition, list[int]]:
    from quorumlog.sdk import TopicPartition

    content = read_json(file, _FILE_FORM)
    wanted: dict[TopicPartition, list[int]] = {}
    try:
        for row in content["partitions"]:
            topic, number, nodes = row["topic"], row["partition"], row["replicas"]
            typed = type(topic) is str and type(number) is int and type(nodes) is list
            if not typed or not nodes or not all(type(node) is int and 0 <= node < 2**31 for node in nodes):
                raise TypeError
            if wanted.setdefault(TopicPartition(topic, number), nodes) != nodes:
                raise CommandError(f"{file} names {topic}-{number} twice, with different nodes", WRONG_USAGE)
    except (KeyError, TypeError):
        raise CommandError(f"{file} has a wrong format: expected {_FILE_FORM}", WRONG_USAGE) from None
    if not wanted:
        raise CommandError(f"{file} names no partition; expected {_FILE_FORM}", WRONG_USAGE)
    return wanted


def wait_for_moves(admin: Admin, wanted: set[TopicPartition], sizes: Mapping[Place, int]) -> None:
    """Waits until none of the given partitions is being moved.

    Arguments:
        sizes: sizes of their logs in bytes, as far as they are known.
    """
    meter, stalls = BytesLeft(wanted, sizes), Stalls()
    with copying(f"moving {plural(len(wanted), 'partition')}", len(wanted), 0) as tell:
        while True:
            moves = admin.list_partition_reassignments()
            left = moves.keys() & wanted
            # Querying all nodes is worthwhile only if the progress is shown.
            left_bytes = meter.of(left, copies_under_way(admin)) if sys.stderr.isatty() else 0
            tell(len(left), left_bytes, meter.all_bytes)
            if not left:
                return
            stalls.look(left, partial(_waiting, admin, moves, left, meter))
            time.sleep(_LOOK_EVERY_S)


def _waiting(
    admin: Admin, moves: Mapping[TopicPartition, PartitionReassignment], left: Set[TopicPartition], meter: BytesLeft
) -> tuple[int, str]:
    """Returns how many bytes of moves are left, and what the moves wait for."""
    topics = admin.describe_topics(include_internal=True)
    partitions = [
        (topic.name, each) for topic in topics for each in topic.partitions if (topic.name, each.partition) in left
    ]
    if not partitions:
        return 0, f"{plural(len(left), 'partition')} left: deleted"
    down = [broker.node_id for broker in admin.describe_cluster().brokers if broker.fenced]
    copies = copies_under_way(admin)
    return meter.of(left, copies), what_is_waited_for(partitions, moves, copies, down)

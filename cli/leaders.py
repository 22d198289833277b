"""``quorumlog leaders``: leaders of partitions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from quorumlog.cli.boundary import CommandError
from quorumlog.cli.options import DEFAULT_BOOTSTRAP_SERVERS, BootstrapServers, Output, OutputFormat, connect
from quorumlog.cli.progress import waiting
from quorumlog.cli.rendering import plural, print_json, print_table

if TYPE_CHECKING:
    from quorumlog.sdk import PartitionDescription

app = typer.Typer()


@app.callback()
def leaders() -> None:
    """Partition leaders."""


@app.command("balance", epilog="Example: quorumlog leaders balance --dry-run")
def balance(
    *,
    topic: Annotated[str | None, typer.Option("--topic", "-t", help="Name of a topic; by default all topics.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print what would be done, and change nothing.")] = False,
    bootstrap_servers: BootstrapServers = DEFAULT_BOOTSTRAP_SERVERS,
    output: Output = OutputFormat.TABLE,
) -> None:
    """Transfers leadership back to preferred leaders, the first of their replicas. Producers are not interrupted.

    The nodes do so automatically, about 30 seconds after the preferred leader has caught up; this command does not
    wait.
    """
    from quorumlog.sdk import TopicPartition

    with connect(bootstrap_servers) as admin:
        topics = admin.describe_topics(None if topic is None else [topic], linearizable=True)
        found = {TopicPartition(each.name, p.partition): p for each in topics for p in each.partitions}
        displaced = {name: p for name, p in found.items() if p.leader != p.replicas[0]}
        if dry_run:
            _print([_row(name, p, _outlook(p)) for name, p in displaced.items()], len(found), output)
            return
        with waiting(f"handing over {plural(len(displaced), 'partition')}"):
            outcomes = admin.elect_leaders(list(displaced))
    failed = [error for error in outcomes.values() if error is not None]
    _print(
        [
            _row(name, p, "handed over" if (error := outcomes[name]) is None else error.message)
            for name, p in displaced.items()
        ],
        len(found),
        output,
    )
    if failed:
        raise CommandError(f"{len(failed)} of {plural(len(displaced), 'partition')} not handed over: {failed[0]}")


def _outlook(partition: PartitionDescription) -> str:
    if partition.leader is None:
        return "has no leader"
    return "to be handed over" if partition.replicas[0] in partition.isr else "preferred leader not in sync"


def _row(name: tuple[str, int], partition: PartitionDescription, result: str) -> dict[str, object]:
    return {
        "topic": name[0],
        "partition": name[1],
        "leader": partition.leader,
        "preferred": partition.replicas[0],
        "result": result,
    }


def _print(rows: list[dict[str, object]], partitions: int, output: OutputFormat) -> None:
    if output is OutputFormat.JSON:
        print_json(rows)
    elif rows:
        cells = (["none" if cell is None else cell for cell in row.values()] for row in rows)
        print_table(("Topic", "Partition", "Leader", "Preferred", "Result"), cells)
    else:
        print(f"Nothing to do: {plural(partitions, 'partition')}, all led by their preferred leaders.")

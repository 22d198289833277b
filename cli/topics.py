"""``quorumlog topics``: creates, lists and describes topics; other commands are registered from their modules."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

import typer

from quorumlog.cli import topic_changes, topic_offsets, topic_text
from quorumlog.cli.boundary import WRONG_USAGE, CommandError
from quorumlog.cli.delete_records import delete_records
from quorumlog.cli.health import warn_of_age
from quorumlog.cli.options import (
    DEFAULT_BOOTSTRAP_SERVERS,
    BootstrapServers,
    Linearizable,
    Output,
    OutputFormat,
    connect,
    parse_replica_assignments,
    parse_settings,
    topic_names,
)
from quorumlog.cli.rendering import plural, print_json
from quorumlog.cli.topic_changes import DryRun

if TYPE_CHECKING:
    from quorumlog.cli.topic_text import PartitionFilter

IncludeInternal = Annotated[
    bool, typer.Option("--include-internal", help="Include the cluster's internal topics, such as __groups.")
]

app = typer.Typer()


@app.command("create", epilog="Example: quorumlog topics create orders --partitions 3 --config retention.ms=86400000")
def create(
    name: Annotated[str, typer.Argument(help="Name of the topic: 1 to 249 of the characters a-z A-Z 0-9 . _ -")],
    *,
    partitions: Annotated[
        int | None, typer.Option("--partitions", "-p", help="Number of partitions.", show_default="1")
    ] = None,
    replication_factor: Annotated[
        int | None,
        typer.Option(
            "--replication-factor",
            "-r",
            help="Replicas of each partition; an even number needs one more node, for a witness.",
            show_default="3, or 1 on fewer than 3 nodes",
        ),
    ] = None,
    config: Annotated[
        list[str] | None, typer.Option("--config", metavar="KEY=VALUE", help="Setting of the topic; repeatable.")
    ] = None,
    replica_assignment: Annotated[
        list[str] | None,
        typer.Option(
            "--replica-assignment",
            metavar="NODE,…",
            help="Nodes of a partition, the preferred leader first; repeat for each partition.",
        ),
    ] = None,
    dry_run: DryRun = False,
    bootstrap_servers: BootstrapServers = DEFAULT_BOOTSTRAP_SERVERS,
    output: Output = OutputFormat.TABLE,
) -> None:
    """Creates a topic and waits until each of its partitions has a leader."""
    from quorumlog.sdk import NewTopic

    assignments = parse_replica_assignments(replica_assignment or [])
    topic = NewTopic(
        name,
        num_partitions=(-1 if assignments else 1) if partitions is None else partitions,
        replication_factor=-1 if replication_factor is None else replication_factor,
        topic_configs=parse_settings(config or []),
        replica_assignments=assignments,
    )
    with connect(bootstrap_servers) as admin:
        admin.create_topics([topic], validate_only=dry_run)
        if dry_run:
            if output is OutputFormat.JSON:
                print_json({"name": name, "created": False})
            else:
                print(f"Topic {name} could be created as requested.")
            return
        [description] = admin.describe_topics([name])
        factor = topic_text.replication_factor(description)
        few = (
            len(admin.describe_cluster().brokers)
            if replication_factor is None and factor == 1 and not assignments
            else 0
        )
    if output is OutputFormat.JSON:
        print_json(topic_text.topic_json(description))
    else:
        why = f", since the cluster has {plural(few, 'node')}: it does not survive the loss of a disk" if few else ""
        count = plural(len(description.partitions), "partition")
        print(f"Created topic {name}: {count}, replication factor {factor}{why}.")


@app.command("list", epilog="Example: quorumlog topics list --output json")
def list_topics(
    *,
    include_internal: IncludeInternal = False,
    bootstrap_servers: BootstrapServers = DEFAULT_BOOTSTRAP_SERVERS,
    output: Output = OutputFormat.TABLE,
) -> None:
    """Lists the names of all topics, one per line."""
    with connect(bootstrap_servers) as admin:
        names = admin.list_topics(include_internal=include_internal)
    if output is OutputFormat.JSON:
        print_json(names)
        return
    for name in names:
        print(name)


@app.command("describe", epilog="Example: quorumlog topics describe orders --under-replicated")
def describe(
    names: Annotated[
        list[str] | None, typer.Argument(help="Names of topics; by default all.", autocompletion=topic_names)
    ] = None,
    *,
    under_replicated: Annotated[
        bool, typer.Option("--under-replicated", help="List only partitions with a replica that is not in sync.")
    ] = False,
    under_min_isr: Annotated[
        bool, typer.Option("--under-min-isr", help="List only partitions with too few replicas in sync for acks=all.")
    ] = False,
    unavailable: Annotated[bool, typer.Option("--unavailable", help="List only partitions without a leader.")] = False,
    all_configs: Annotated[
        bool, typer.Option("--all-configs", help="Show every configuration key, including those that are not set.")
    ] = False,
    include_internal: IncludeInternal = False,
    linearizable: Linearizable = False,
    bootstrap_servers: BootstrapServers = DEFAULT_BOOTSTRAP_SERVERS,
    output: Output = OutputFormat.TABLE,
) -> None:
    """Shows leader, replicas and in-sync replicas of each partition, in the format of kafka-topics --describe."""
    chosen = _filter(under_replicated=under_replicated, under_min_isr=under_min_isr, unavailable=unavailable)
    with connect(bootstrap_servers) as admin:
        topics = admin.describe_topics(names or None, linearizable=linearizable, include_internal=include_internal)
        warn_of_age(admin.describe_cluster())
        if all_configs:
            described = admin.describe_configs([topic.name for topic in topics])
            topics = [
                replace(topic, configs={key: entry.value for key, entry in described[topic.name].items()})
                for topic in topics
            ]
    if chosen is None:
        if output is OutputFormat.JSON:
            print_json([topic_text.topic_json(topic) for topic in topics])
            return
        for topic in topics:
            for line in topic_text.topic_lines(topic):
                print(line)
        return
    found = [(topic, partition) for topic in topics for partition in topic.partitions if chosen(topic, partition)]
    if output is OutputFormat.JSON:
        print_json([{"topic": topic.name} | topic_text.partition_json(partition) for topic, partition in found])
        return
    for topic, partition in found:
        print(topic_text.partition_line(topic, partition))


app.command("delete-records", epilog="Example: quorumlog topics delete-records orders --partition 0 --before 42")(
    delete_records
)


def _filter(*, under_replicated: bool, under_min_isr: bool, unavailable: bool) -> PartitionFilter | None:
    requested = {
        topic_text.is_under_replicated: under_replicated,
        topic_text.is_under_min_isr: under_min_isr,
        topic_text.is_unavailable: unavailable,
    }
    wanted = [predicate for predicate, yes in requested.items() if yes]
    if len(wanted) > 1:
        raise CommandError("give one of --under-replicated, --under-min-isr, --unavailable", WRONG_USAGE)
    return wanted[0] if wanted else None


app.command("offsets", epilog=topic_offsets.EXAMPLE)(topic_offsets.offsets)
app.command("alter", epilog=topic_changes.ALTER_EXAMPLE)(topic_changes.alter)
app.command("configs", epilog=topic_changes.CONFIGS_EXAMPLE)(topic_changes.configs)
app.command("add-partitions", epilog=topic_changes.ADD_PARTITIONS_EXAMPLE)(topic_changes.add_partitions)
app.command("delete", epilog=topic_changes.DELETE_EXAMPLE)(topic_changes.delete)

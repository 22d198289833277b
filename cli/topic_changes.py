"""``quorumlog topics delete``, ``add-partitions``, ``alter`` and ``configs``: changes to existing topics."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from quorumlog.cli import topic_text
from quorumlog.cli.boundary import WRONG_USAGE, CommandError
from quorumlog.cli.confirmation import confirm
from quorumlog.cli.options import (
    DEFAULT_BOOTSTRAP_SERVERS,
    BootstrapServers,
    Output,
    OutputFormat,
    connect,
    parse_replica_assignments,
    parse_settings,
    topic_names,
)
from quorumlog.cli.rendering import plural, print_json, print_table
from quorumlog.cli.suggestions import did_you_mean

if TYPE_CHECKING:
    from quorumlog.sdk import Admin, TopicDescription

DELETE_EXAMPLE = "Example: quorumlog topics delete orders payments --yes"
ADD_PARTITIONS_EXAMPLE = "Example: quorumlog topics add-partitions orders --partitions 6"
ALTER_EXAMPLE = "Example: quorumlog topics alter orders --config retention.ms=86400000 --delete-config retention.bytes"
CONFIGS_EXAMPLE = "Example: quorumlog topics configs orders"

DryRun = Annotated[bool, typer.Option("--dry-run", help="Print what would be done, and change nothing.")]


def delete(
    names: Annotated[list[str], typer.Argument(help="Names of the topics.", autocompletion=topic_names)],
    *,
    yes: Annotated[
        bool, typer.Option("--yes", "-y", help="Do not ask for confirmation; required without a terminal.")
    ] = False,
    dry_run: DryRun = False,
    bootstrap_servers: BootstrapServers = DEFAULT_BOOTSTRAP_SERVERS,
    output: Output = OutputFormat.TABLE,
) -> None:
    """Permanently deletes topics with all their records, on every node."""
    with connect(bootstrap_servers) as admin:
        topics = _existing(admin, _once(names))
        if not dry_run:
            confirm(f"Permanently delete {', '.join(names)} with all records?", yes=yes)
            admin.delete_topics(names)
    if output is OutputFormat.JSON:
        print_json([{"name": topic.name, "topic_id": topic.topic_id, "deleted": not dry_run} for topic in topics])
        return
    for topic in topics:
        done = "Would delete" if dry_run else "Deleted"
        print(f"{done} topic {topic.name}: {plural(len(topic.partitions), 'partition')}.")


def add_partitions(
    name: Annotated[str, typer.Argument(help="Name of the topic.", autocompletion=topic_names)],
    *,
    partitions: Annotated[int, typer.Option("--partitions", "-p", help="New total number of partitions.")],
    replica_assignment: Annotated[
        list[str] | None,
        typer.Option(
            "--replica-assignment", metavar="NODE,…", help="Nodes of a new partition, in order; repeat for each."
        ),
    ] = None,
    dry_run: DryRun = False,
    bootstrap_servers: BootstrapServers = DEFAULT_BOOTSTRAP_SERVERS,
    output: Output = OutputFormat.TABLE,
) -> None:
    """Adds partitions to a topic. Keys map to other partitions from then on; the change cannot be undone."""
    from quorumlog.sdk import NewPartitions

    assignments = parse_replica_assignments(replica_assignment or [])
    wanted = NewPartitions(partitions, list(assignments.values()) or None)
    with connect(bootstrap_servers) as admin:
        admin.create_partitions({name: wanted}, validate_only=dry_run)
        [description] = admin.describe_topics([name])
    if output is OutputFormat.JSON:
        print_json(topic_text.topic_json(description))
    else:
        print(f"Topic {name} {'could have' if dry_run else 'has'} {plural(partitions, 'partition')}.")


def alter(
    name: Annotated[str, typer.Argument(help="Name of the topic.", autocompletion=topic_names)],
    *,
    config: Annotated[
        list[str] | None, typer.Option("--config", metavar="KEY=VALUE", help="Setting to change; repeatable.")
    ] = None,
    delete_config: Annotated[
        list[str] | None,
        typer.Option("--delete-config", metavar="KEY", help="Setting to reset to its default; repeatable."),
    ] = None,
    dry_run: DryRun = False,
    bootstrap_servers: BootstrapServers = DEFAULT_BOOTSTRAP_SERVERS,
    output: Output = OutputFormat.TABLE,
) -> None:
    """Sets and resets keys of a topic's configuration, effective immediately. 'topics configs' lists the keys."""
    changes: dict[str, object | None] = {**parse_settings(config or [])}
    for key in delete_config or []:
        if key in changes:
            raise CommandError(f"{key} is given twice: set it or delete it, once", WRONG_USAGE)
        changes[key] = None
    if not changes:
        raise CommandError("give at least one --config KEY=VALUE or --delete-config KEY", WRONG_USAGE)
    with connect(bootstrap_servers) as admin:
        admin.alter_configs({name: changes}, validate_only=dry_run)
        if output is OutputFormat.JSON:
            print_json(_configs(admin, name))
            return
        configs = admin.describe_topics([name])[0].configs
    if dry_run:
        print(f"Topic {name} could be altered as requested.")
    else:
        shown = ",".join(f"{key}={value}" for key, value in sorted(configs.items()))
        print(f"Altered topic {name}. Configs: {shown}")


def configs(
    name: Annotated[str, typer.Argument(help="Name of the topic.", autocompletion=topic_names)],
    *,
    bootstrap_servers: BootstrapServers = DEFAULT_BOOTSTRAP_SERVERS,
    output: Output = OutputFormat.TABLE,
) -> None:
    """Shows every configuration key of a topic: its value, default and meaning."""
    with connect(bootstrap_servers) as admin:
        rows = _configs(admin, name)
    if output is OutputFormat.JSON:
        print_json(rows)
        return
    cells = ((row["name"], row["value"], row["default"], row["documentation"]) for row in rows)
    print_table(("Key", "Value", "Default", "Meaning"), cells)


def _configs(admin: Admin, name: str) -> list[dict[str, object]]:
    return [
        {
            "name": entry.name,
            "value": entry.value,
            "default": entry.default,
            "is_default": entry.is_default,
            "documentation": entry.documentation,
        }
        for entry in admin.describe_configs([name])[name].values()
    ]


def _existing(admin: Admin, names: list[str]) -> list[TopicDescription]:
    """Returns the topics to delete. For a missing one, suggests a similar name rather than creating it."""
    from quorumlog.sdk import UnknownTopicOrPartitionError

    try:
        return admin.describe_topics(names)
    except UnknownTopicOrPartitionError:
        known = admin.list_topics()
        missing = next((name for name in names if name not in known), names[0])
        hint = did_you_mean(missing, known, "'quorumlog topics list' shows all")
        raise CommandError(f"topic '{missing}' does not exist, so nothing was deleted; {hint}") from None


def _once(names: list[str]) -> list[str]:
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise CommandError(f"topic {twice} is named twice; name it once", WRONG_USAGE)
    return names

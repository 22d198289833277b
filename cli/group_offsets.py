"""``quorumlog groups reset-offsets`` and ``delete-offsets``: committed offsets of groups."""

from __future__ import annotations

import csv
import sys
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from quorumlog.cli.boundary import WRONG_USAGE, CommandError, say
from quorumlog.cli.options import (
    DEFAULT_BOOTSTRAP_SERVERS,
    BootstrapServers,
    Output,
    OutputFormat,
    client_options,
    connect,
    file_path,
)
from quorumlog.cli.rendering import node_list, plural, print_json, print_table
from quorumlog.cli.reset_targets import PartitionBeforeReset, ResetTarget, Wish, target, within_log
from quorumlog.cli.suggestions import did_you_mean

if TYPE_CHECKING:
    from quorumlog.sdk import Admin, GroupDescription, TopicPartition

RESET_EXAMPLE = "Example: quorumlog groups reset-offsets billing --topic orders:0,1 --by-duration 1h30m --execute"
DELETE_EXAMPLE = "Example: quorumlog groups delete-offsets billing --topic orders"

Group = Annotated[str, typer.Argument(metavar="GROUP", help="Name of the group.")]
#: Topics mapped to partition numbers; an empty list means all partitions.
_Scope = dict[str, list[int]]


def reset_offsets(
    group: Group,
    *,
    topic: Annotated[
        list[str] | None,
        typer.Option("--topic", "-t", metavar="TOPIC[:0,1,…]", help="Topic, or some of its partitions; repeatable."),
    ] = None,
    all_topics: Annotated[
        bool, typer.Option("--all-topics", help="All topics for which the group has committed offsets.")
    ] = False,
    to_earliest: Annotated[bool, typer.Option("--to-earliest", help="Move to the first available record.")] = False,
    to_latest: Annotated[bool, typer.Option("--to-latest", help="Move to the end: read only new records.")] = False,
    to_current: Annotated[
        bool, typer.Option("--to-current", help="Keep the committed offsets, for example to export them.")
    ] = False,
    to_offset: Annotated[
        int | None, typer.Option("--to-offset", min=0, metavar="N", help="Move to this offset.")
    ] = None,
    to_datetime: Annotated[
        str | None,
        typer.Option(
            "--to-datetime",
            metavar="TIME",
            help="Move to the first record at or after a date and time (UTC without a zone).",
        ),
    ] = None,
    to_timestamp: Annotated[
        int | None,
        typer.Option("--to-timestamp", min=0, metavar="MS", help="Like --to-datetime, in milliseconds since 1970."),
    ] = None,
    shift_by: Annotated[
        int | None, typer.Option("--shift-by", metavar="N", help="Move by N records; backwards with a negative number.")
    ] = None,
    by_duration: Annotated[
        str | None,
        typer.Option("--by-duration", metavar="DURATION", help="Move back by a time span: 1h30m, P7D, PT5M."),
    ] = None,
    from_file: Annotated[
        Path | None,
        typer.Option(
            "--from-file", metavar="FILE", parser=file_path, help="Move to the offsets in a file written by --export."
        ),
    ] = None,
    execute: Annotated[
        bool, typer.Option("--execute", help="Apply the reset; without this nothing is changed.")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Change nothing; the default without --execute.")] = False,
    export: Annotated[bool, typer.Option("--export", help="Print the new offsets as CSV for --from-file.")] = False,
    bootstrap_servers: BootstrapServers = DEFAULT_BOOTSTRAP_SERVERS,
    output: Output = OutputFormat.TABLE,
) -> None:
    """Moves the committed offsets of a group without members; a dry run unless --execute.

    An offset outside a partition's log is replaced by the nearest one in it.
    """
    if execute and dry_run:
        raise CommandError("give one of --execute, --dry-run", WRONG_USAGE)
    if export and output is OutputFormat.JSON:
        raise CommandError("give one of --export, --output json", WRONG_USAGE)
    request = Wish(
        to_earliest, to_latest, to_current, to_offset, to_datetime, to_timestamp, shift_by, by_duration, from_file
    )
    goal = target(request)
    if (bool(topic), all_topics, goal.offsets is not None).count(True) != 1:
        raise CommandError("give one of --topic, --all-topics, --from-file", WRONG_USAGE)
    scope = _scope(topic or [])
    with connect(bootstrap_servers) as admin:
        _check_inactive(admin, group)
        committed = {tp: each.offset for tp, each in admin.list_group_offsets(group).items()}
        partitions = _partitions(admin, group, scope, goal, committed)
        places = _places(bootstrap_servers, partitions, committed, goal)
        found = {place.tp: within_log(place, goal.offset(place)) for place in places}
        wanted = {tp: offset for tp, (offset, _) in found.items()}
        if execute:
            admin.alter_group_offsets(group, wanted)
    for _, warning in found.values():
        if warning is not None:
            say(f"warning: {warning}")
    if export:
        csv.writer(sys.stdout, lineterminator="\n").writerows((*tp, offset) for tp, offset in wanted.items())
    else:
        _show(group, wanted, committed, executed=execute, output=output)


def delete_offsets(
    group: Group,
    *,
    topic: Annotated[
        list[str],
        typer.Option("--topic", "-t", metavar="TOPIC[:0,1,…]", help="Topic, or some of its partitions; repeatable."),
    ],
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print what would be done, and change nothing.")] = False,
    bootstrap_servers: BootstrapServers = DEFAULT_BOOTSTRAP_SERVERS,
    output: Output = OutputFormat.TABLE,
) -> None:
    """Deletes a group's committed offsets of topics to which none of its members subscribes."""
    scope = _scope(topic)
    with connect(bootstrap_servers) as admin:
        committed = admin.list_group_offsets(group)
        deleted = {tp: each for tp, each in committed.items() if _is_in(tp, scope)}
        for name, numbers in scope.items():
            if not any(_is_in(tp, {name: numbers}) for tp in deleted):
                which = f"{name}:{node_list(numbers)}" if numbers else name
                groups = [each.group_id for each in admin.list_groups()]
                nothing = "nothing to delete"
                hint = nothing if group in groups else did_you_mean(group, groups, nothing)
                raise CommandError(f"group {group} has committed no offsets of {which}: {hint}")
        if not dry_run:
            admin.delete_group_offsets(group, list(deleted))
    rows = [
        {"group": group, "topic": tp.topic, "partition": tp.partition, "offset": each.offset, "deleted": not dry_run}
        for tp, each in deleted.items()
    ]
    if output is OutputFormat.JSON:
        print_json(rows)
        return
    print_table(("GROUP", "TOPIC", "PARTITION", "OFFSET"), ([group, *tp, each.offset] for tp, each in deleted.items()))
    print(f"{'Would delete' if dry_run else 'Deleted'} {plural(len(rows), 'committed offset')}.")


def _scope(topics: Iterable[str]) -> _Scope:
    """Parses topics such as ``orders`` and ``orders:0,1``.

    Raises:
        CommandError: a text has neither form, or a topic is named twice.
    """
    scope: _Scope = {}
    for text in topics:
        name, colon, listed = text.partition(":")
        numbers = listed.split(",") if colon else []
        if not name or not all(number.isdecimal() and len(number) < 10 for number in numbers):
            raise CommandError(f"--topic '{text}' is not TOPIC or TOPIC:0,1, such as orders:0,2", WRONG_USAGE)
        if name in scope:
            raise CommandError(f"--topic {name} is given twice; give it once", WRONG_USAGE)
        scope[name] = sorted({int(number) for number in numbers})
    return scope


def _is_in(tp: TopicPartition, scope: Mapping[str, Collection[int]]) -> bool:
    numbers = scope.get(tp.topic)
    return numbers is not None and (not numbers or tp.partition in numbers)


def _check_inactive(admin: Admin, group: str) -> None:
    from quorumlog.sdk import GroupIdNotFoundError

    try:
        [described] = admin.describe_groups([group])
    except GroupIdNotFoundError:
        return  # Offsets may be set before the group exists.
    check_without_members(described)


def check_without_members(group: GroupDescription) -> None:
    """Raises CommandError if a group has members: they would not notice the change."""
    if any(member.present for member in group.members):
        count = plural(len(group.members), "member")
        raise CommandError(f"group {group.group_id} is active ({group.state.value}, {count}): stop its members first")
    if group.members:
        names = ", ".join(str(member.instance_id) for member in group.members)
        raise CommandError(
            f"group {group.group_id} waits for its static members {names} to return: try again when they have been"
            " absent for their session timeout"
        )


def _partitions(
    admin: Admin, group: str, scope: _Scope, goal: ResetTarget, committed: Mapping[TopicPartition, int]
) -> list[TopicPartition]:
    """Returns the partitions to reset, all of which exist.

    Raises:
        CommandError: the group has none, or one does not exist.
    """
    from quorumlog.sdk import TopicPartition

    if goal.offsets is not None:
        for tp in goal.offsets:
            scope.setdefault(tp.topic, []).append(tp.partition)
    elif not scope:
        if not committed:
            raise CommandError(f"group {group} has committed no offsets: name its topics with --topic")
        return sorted(committed)
    partitions: list[TopicPartition] = []
    for topic in admin.describe_topics(list(scope)):
        known = [each.partition for each in topic.partitions]
        numbers = scope[topic.name] or known
        missing = next((number for number in numbers if number not in known), None)
        if missing is not None:
            raise CommandError(f"topic {topic.name} has no partition {missing}; it has {node_list(known)}")
        partitions += [TopicPartition(topic.name, number) for number in numbers]
    return sorted(partitions)


def _places(
    bootstrap_servers: str, partitions: list[TopicPartition], committed: Mapping[TopicPartition, int], goal: ResetTarget
) -> list[PartitionBeforeReset]:
    from quorumlog.sdk import Consumer

    with Consumer(bootstrap_servers=bootstrap_servers, **client_options()) as consumer:
        # The end is looked up first: records written between the two lookups must not be missed where no record is that
        # late.
        ends = consumer.end_offsets(partitions)
        starts = consumer.beginning_offsets(partitions)
        times: Mapping[TopicPartition, int | None] = {}
        if goal.time_ms is not None:
            found = consumer.offsets_for_times(dict.fromkeys(partitions, goal.time_ms))
            times = {tp: None if at is None else at.offset for tp, at in found.items()}
    return [
        PartitionBeforeReset(
            tp, committed.get(tp), starts[tp], max(ends[tp], starts[tp], times.get(tp) or 0), times.get(tp)
        )
        for tp in partitions
    ]


def _show(
    group: str,
    wanted: Mapping[TopicPartition, int],
    committed: Mapping[TopicPartition, int],
    *,
    executed: bool,
    output: OutputFormat,
) -> None:
    rows = [
        {
            "group": group,
            "topic": tp.topic,
            "partition": tp.partition,
            "current_offset": committed.get(tp),
            "new_offset": offset,
            "executed": executed,
        }
        for tp, offset in wanted.items()
    ]
    if output is OutputFormat.JSON:
        print_json(rows)
        return
    cells = ([group, *tp, committed.get(tp, "-"), offset] for tp, offset in wanted.items())
    print_table(("GROUP", "TOPIC", "PARTITION", "CURRENT-OFFSET", "NEW-OFFSET"), cells)
    if not executed:
        print("Nothing was changed: this was a dry run. Add --execute to apply it.")

"""``quorumlog groups describe``: offsets, members or state of groups, in the columns of kafka-consumer-groups."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from quorumlog.cli.boundary import WRONG_USAGE, CommandError
from quorumlog.cli.options import (
    DEFAULT_BOOTSTRAP_SERVERS,
    BootstrapServers,
    Output,
    OutputFormat,
    client_options,
    connect,
)
from quorumlog.cli.rendering import print_json, print_table

if TYPE_CHECKING:
    from quorumlog.sdk import Admin, GroupDescription, MemberDescription, OffsetAndMetadata, TopicPartition

EXAMPLE = "Example: quorumlog groups describe billing --members --verbose"

_OFFSET_COLUMNS = {
    "GROUP": "group",
    "TOPIC": "topic",
    "PARTITION": "partition",
    "CURRENT-OFFSET": "current_offset",
    "LOG-END-OFFSET": "log_end_offset",
    "LAG": "lag",
    "CONSUMER-ID": "consumer_id",
    "HOST": "host",
    "CLIENT-ID": "client_id",
}
_MEMBER_COLUMNS = {
    "GROUP": "group",
    "CONSUMER-ID": "consumer_id",
    "INSTANCE-ID": "instance_id",
    "HOST": "host",
    "CLIENT-ID": "client_id",
    "EPOCH": "epoch",
    "#PARTITIONS": "partitions",
}
_STATE_COLUMNS = {
    "GROUP": "group",
    "COORDINATOR": "coordinator",
    "ASSIGNMENT-STRATEGY": "assignment_strategy",
    "STATE": "state",
    "KIND": "kind",
    "GROUP-EPOCH": "group_epoch",
    "#MEMBERS": "members",
}

_Row = dict[str, object]


def describe(
    names: Annotated[
        list[str] | None, typer.Argument(metavar="[GROUP]…", help="Names of groups; by default all.")
    ] = None,
    *,
    offsets: Annotated[
        bool, typer.Option("--offsets", help="Show committed offsets, lag and the reading members (default).")
    ] = False,
    members: Annotated[bool, typer.Option("--members", help="Show the group's members.")] = False,
    verbose: Annotated[
        bool, typer.Option("--verbose", help="With --members: show current and target assignments.")
    ] = False,
    state: Annotated[bool, typer.Option("--state", help="Show the group's state and coordinator.")] = False,
    bootstrap_servers: BootstrapServers = DEFAULT_BOOTSTRAP_SERVERS,
    output: Output = OutputFormat.TABLE,
) -> None:
    """Shows the lag, the members or the state of groups, read from their coordinators when the command runs."""
    if offsets + members + state > 1:
        raise CommandError("give one of --offsets, --members, --state", WRONG_USAGE)
    if verbose and not members:
        raise CommandError("--verbose needs --members", WRONG_USAGE)
    with connect(bootstrap_servers) as admin:
        wanted = names or [group.group_id for group in admin.list_groups()]
        groups = admin.describe_groups(wanted, include_offsets=not state and not members)
        if state:
            rows, columns = _state_rows(admin, groups), _STATE_COLUMNS
        elif members:
            rows = [_member_row(group, member) for group in groups for member in group.members]
            columns = _MEMBER_COLUMNS | ({"ASSIGNMENT": "assignment", "TARGET": "target"} if verbose else {})
        else:
            committed = {group.group_id: group.offsets or {} for group in groups}
            logs = _logs(admin, bootstrap_servers, groups, committed)
            rows = [row for group in groups for row in _offset_rows(group, committed[group.group_id], logs)]
            columns = _OFFSET_COLUMNS
    if output is OutputFormat.JSON:
        print_json(rows)
        return
    if not state:
        for group in groups:
            if not group.members:
                print(f"Group {group.group_id} has no active members.")
    if rows:
        print_table(tuple(columns), ([_cell(row[key]) for key in columns.values()] for row in rows))
    elif not groups:
        print("No groups exist.")


def _cell(value: object) -> object:
    if isinstance(value, Mapping):
        if "node_id" in value:
            return f"{value['host']}:{value['port']} ({value['node_id']})"
        return ",".join(f"{topic}({','.join(map(str, numbers))})" for topic, numbers in value.items()) or "-"
    return "-" if value is None else value


def _state_rows(admin: Admin, groups: Iterable[GroupDescription]) -> list[_Row]:
    from quorumlog.sdk import GroupKind

    brokers = {broker.node_id: broker for broker in admin.describe_cluster().brokers}
    rows: list[_Row] = []
    for group in groups:
        broker = brokers.get(group.coordinator)
        coordinator = None
        if broker is not None:
            coordinator = {"node_id": broker.node_id, "host": broker.host, "port": broker.port}
        rows.append(
            {
                "group": group.group_id,
                "coordinator": coordinator,
                "assignment_strategy": group.assignor,
                "state": group.state.value,
                "kind": group.kind.value,
                # For a classic group this is its generation, which its members call their epoch.
                "group_epoch": group.generation if group.kind is GroupKind.CLASSIC else group.group_epoch,
                "assignment_epoch": group.assignment_epoch,
                "protocol_type": group.protocol_type,
                "leader": group.leader,
                "members": len(group.members),
            }
        )
    return rows


def _member_row(group: GroupDescription, member: MemberDescription) -> _Row:
    return {
        "group": group.group_id,
        "consumer_id": member.member_id,
        "instance_id": member.instance_id,
        "rack": member.rack,
        "host": member.host,
        "client_id": member.client_id,
        "epoch": member.member_epoch,
        "present": member.present,
        "topics": list(member.topics),
        "topic_pattern": member.topic_pattern,
        "partitions": len(member.assignment),
        "assignment": _by_topic(member.assignment),
        "target": _by_topic(member.target),
    }


def _by_topic(partitions: Sequence[TopicPartition]) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for topic, number in sorted(partitions):
        found.setdefault(topic, []).append(number)
    return found


class _LogEnds(NamedTuple):
    """The start and the end of a log: its first offset, and that of its next record."""

    start: int
    end: int


def _logs(
    admin: Admin,
    bootstrap_servers: str,
    groups: Iterable[GroupDescription],
    committed: Mapping[str, Mapping[TopicPartition, OffsetAndMetadata]],
) -> dict[TopicPartition, _LogEnds]:
    """Returns the bounds of each partition's log, except for partitions without a leader and deleted topics."""
    from quorumlog.sdk import Consumer, TopicPartition

    shown = {tp for offsets in committed.values() for tp in offsets}
    shown |= {tp for group in groups for member in group.members for tp in member.assignment}
    if not shown:
        return {}
    led = {
        TopicPartition(topic.name, partition.partition)
        for topic in admin.describe_topics()
        for partition in topic.partitions
        if partition.leader is not None
    }
    with Consumer(bootstrap_servers=bootstrap_servers, **client_options()) as consumer:
        known = sorted(shown & led)
        starts, ends = consumer.beginning_offsets(known), consumer.end_offsets(known)
        return {tp: _LogEnds(starts[tp], ends[tp]) for tp in known}


def _offset_rows(
    group: GroupDescription,
    committed: Mapping[TopicPartition, OffsetAndMetadata],
    logs: Mapping[TopicPartition, _LogEnds],
) -> list[_Row]:
    from quorumlog.sdk.cluster.offset_search import lag

    readers = {tp: member for member in group.members for tp in member.assignment}
    rows: list[_Row] = []
    for tp in sorted(committed.keys() | readers.keys()):
        current, log, reader = committed.get(tp), logs.get(tp), readers.get(tp)
        rows.append(
            {
                "group": group.group_id,
                "topic": tp.topic,
                "partition": tp.partition,
                "current_offset": None if current is None else current.offset,
                "leader_epoch": None if current is None else current.leader_epoch,
                "metadata": None if current is None else current.metadata,
                "log_start_offset": None if log is None else log.start,
                "log_end_offset": None if log is None else log.end,
                "lag": None if current is None or log is None else lag(current.offset, log.start, log.end),
                "consumer_id": None if reader is None else reader.member_id,
                "host": None if reader is None else reader.host,
                "client_id": None if reader is None else reader.client_id,
            }
        )
    return rows

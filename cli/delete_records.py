"""``quorumlog topics delete-records``: advances the log start offset of partitions."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from quorumlog.cli.boundary import WRONG_USAGE, CommandError
from quorumlog.cli.options import (
    DEFAULT_BOOTSTRAP_SERVERS,
    BootstrapServers,
    Output,
    OutputFormat,
    connect,
    file_path,
    read_json,
)
from quorumlog.cli.rendering import print_json, print_table

if TYPE_CHECKING:
    from quorumlog.sdk import TopicPartition

_FILE_FORM = '{"partitions": [{"topic": "orders", "partition": 0, "offset": 42}]}'


def delete_records(
    topic: Annotated[str | None, typer.Argument(help="Name of the topic; omit with --offset-json-file.")] = None,
    *,
    partition: Annotated[
        list[int] | None, typer.Option("--partition", "-p", help="Number of a partition; repeatable; by default all.")
    ] = None,
    before: Annotated[
        int | None, typer.Option("--before", metavar="OFFSET", help="First offset to keep; -1 deletes all records.")
    ] = None,
    offset_json_file: Annotated[
        Path | None,
        typer.Option(
            "--offset-json-file",
            metavar="FILE",
            parser=file_path,
            help="Offsets in the format of kafka-delete-records; replaces the other options.",
        ),
    ] = None,
    bootstrap_servers: BootstrapServers = DEFAULT_BOOTSTRAP_SERVERS,
    output: Output = OutputFormat.TABLE,
) -> None:
    """Permanently deletes the records before an offset on every replica. Disk space is freed in whole batches."""
    from quorumlog.sdk import TopicPartition

    # Other arguments would be ignored beside a file: it would be unclear which records should be deleted.
    named = (topic is not None, before is not None, bool(partition))
    if not all(named[:2]) if offset_json_file is None else any(named):
        raise CommandError("give a topic and --before OFFSET, or --offset-json-file FILE", WRONG_USAGE)
    with connect(bootstrap_servers) as admin:
        if offset_json_file is not None:
            wanted = _from_file(offset_json_file)
        else:
            assert topic is not None and before is not None
            if before < -1:
                raise CommandError(f"--before {before}: give an offset of 0 or more, or -1 for all", WRONG_USAGE)
            [description] = admin.describe_topics([topic])
            numbers = partition or [each.partition for each in description.partitions]
            wanted = {TopicPartition(topic, number): before for number in numbers}
        starts = admin.delete_records(wanted)
    rows = [
        {"topic": tp.topic, "partition": tp.partition, "log_start_offset": start}
        for tp, start in sorted(starts.items())
    ]
    if output is OutputFormat.JSON:
        print_json(rows)
    else:
        print_table(("Topic", "Partition", "LogStartOffset"), (list(row.values()) for row in rows))


def _from_file(file: Path) -> dict[TopicPartition, int]:
    from quorumlog.sdk import TopicPartition

    content = read_json(file, _FILE_FORM)
    wanted: dict[TopicPartition, int] = {}
    try:
        for row in content["partitions"]:
            topic, number, offset = row["topic"], row["partition"], row["offset"]
            if type(topic) is not str or type(number) is not int or type(offset) is not int or offset < -1:
                raise TypeError
            if wanted.setdefault(TopicPartition(topic, number), offset) != offset:
                raise CommandError(f"{file} names {topic}-{number} twice, with different offsets", WRONG_USAGE)
    except (KeyError, TypeError):
        raise CommandError(f"{file} has a wrong format: expected {_FILE_FORM}", WRONG_USAGE) from None
    if not wanted:
        raise CommandError(f"{file} names no partition; expected {_FILE_FORM}", WRONG_USAGE)
    return wanted

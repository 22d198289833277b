"""``quorumlog topics offsets``: first and last offsets of partitions, or those at a time, like kafka-get-offsets."""

from __future__ import annotations

from typing import Annotated

import typer

from quorumlog.cli.boundary import CommandError
from quorumlog.cli.options import (
    DEFAULT_BOOTSTRAP_SERVERS,
    BootstrapServers,
    Output,
    OutputFormat,
    client_options,
    connect,
    topic_names,
)
from quorumlog.cli.rendering import node_list, print_json, print_table
from quorumlog.cli.times import parse_time_ms

EXAMPLE = "Example: quorumlog topics offsets orders --time 2024-05-01T12:00:00"


def offsets(
    name: Annotated[str, typer.Argument(help="Name of the topic.", autocompletion=topic_names)],
    *,
    time: Annotated[
        str,
        typer.Option(
            "--time",
            metavar="earliest|latest|TIME",
            help="First available offset, the offset after the last record, or the first record at or after a time"
            " (milliseconds since 1970, or a date and time).",
        ),
    ] = "latest",
    partition: Annotated[
        int | None, typer.Option("--partition", min=0, help="Number of the partition; by default all.")
    ] = None,
    bootstrap_servers: BootstrapServers = DEFAULT_BOOTSTRAP_SERVERS,
    output: Output = OutputFormat.TABLE,
) -> None:
    """Prints one offset per partition. Linearizable: the latest one includes every record acknowledged before."""
    time_ms = None if time in ("earliest", "latest") else parse_time_ms(time, "--time")
    from quorumlog.sdk import Consumer, TopicPartition

    with connect(bootstrap_servers) as admin:
        [topic] = admin.describe_topics([name])
    numbers = [known.partition for known in topic.partitions]
    if partition is not None and partition not in numbers:
        raise CommandError(f"topic {name} has no partition {partition}; it has {node_list(numbers)}")
    wanted = [TopicPartition(name, number) for number in numbers if partition in (None, number)]
    found: dict[TopicPartition, tuple[int | None, int | None]]
    with Consumer(bootstrap_servers=bootstrap_servers, **client_options()) as consumer:
        if time_ms is not None:
            places = consumer.offsets_for_times(dict.fromkeys(wanted, time_ms))
            found = {tp: (None, None) if at is None else (at.offset, at.timestamp) for tp, at in places.items()}
        else:
            edges = consumer.beginning_offsets(wanted) if time == "earliest" else consumer.end_offsets(wanted)
            found = {tp: (offset, None) for tp, offset in edges.items()}
    if output is OutputFormat.JSON:
        print_json(
            [
                {"topic": tp.topic, "partition": tp.partition, "offset": offset, "timestamp": timestamp}
                for tp, (offset, timestamp) in sorted(found.items())
            ]
        )
        return
    rows = [
        (tp.topic, tp.partition, *("none" if value is None else value for value in place))
        for tp, place in sorted(found.items())
    ]
    if time_ms is None:
        print_table(("TOPIC", "PARTITION", "OFFSET"), [row[:3] for row in rows])
    else:
        print_table(("TOPIC", "PARTITION", "OFFSET", "TIMESTAMP"), rows)

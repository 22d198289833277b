"""``quorumlog mirror``: copies topics, records and groups of a Kafka cluster into this one."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from quorumlog.cli.boundary import WRONG_USAGE, CommandError
from quorumlog.cli.options import (
    DEFAULT_BOOTSTRAP_SERVERS,
    BootstrapServers,
    Output,
    OutputFormat,
    client_options,
    file_path,
    read_properties,
)
from quorumlog.cli.progress import counting
from quorumlog.cli.rendering import plural, print_json

EXAMPLE = "Example: quorumlog mirror --from kafka://127.0.0.1:9092 --topic orders"


def mirror(
    source: Annotated[
        str,
        typer.Option("--from", metavar="kafka://HOST:PORT[,…]", help="Kafka cluster to copy.", show_default=False),
    ],
    *,
    topics: Annotated[
        list[str] | None, typer.Option("--topic", metavar="NAME", help="Topic to copy; repeatable; by default all.")
    ] = None,
    name: Annotated[str, typer.Option("--name", help="Name under which progress is stored.")] = "kafka",
    follow: Annotated[
        bool,
        typer.Option(
            "--follow", help="Keep copying new records until Ctrl-C; by default stop at the end of the source."
        ),
    ] = False,
    no_groups: Annotated[bool, typer.Option("--no-groups", help="Do not copy committed offsets of groups.")] = False,
    source_config: Annotated[
        Path | None,
        typer.Option(
            "--from-config",
            metavar="FILE",
            parser=file_path,
            help="Client settings for the source: librdkafka properties, such as security.protocol=SASL_SSL.",
        ),
    ] = None,
    bootstrap_servers: BootstrapServers = DEFAULT_BOOTSTRAP_SERVERS,
    output: Output = OutputFormat.TABLE,
) -> None:
    """Copies topics, records and groups of a Kafka cluster into this one, each record once. Run it again to resume."""
    from quorumlog.sdk.mirror.commands import mirror as copy
    from quorumlog.sdk.mirror.source import KafkaSource

    with (
        KafkaSource(source, _properties(source_config)) as cluster,
        _stopped_by_signals() as asked,
        counting("copying", "records", plain_lines=output is OutputFormat.TABLE) as tell,
    ):
        report = copy(
            cluster,
            bootstrap_servers=bootstrap_servers,
            name=name,
            topics=topics,
            with_groups=not no_groups,
            follow=follow,
            should_stop=lambda: bool(asked),
            progress=tell,
            **client_options(),
        )
    if output is OutputFormat.JSON:
        print_json({**report._asdict(), "stopped": bool(asked)})
        return
    said = f"{plural(report.topics, 'topic')} with {plural(report.partitions, 'partition')}"
    done = "Stopped after" if asked and not follow else "Copied"
    groups = "" if no_groups else f"; {plural(report.groups, 'group')}"
    print(f"{done} {report.records:,} records of {said}{groups}. Run the same command to continue.")


@contextmanager
def _stopped_by_signals() -> Iterator[list[int]]:
    """Yields a list that the first Ctrl-C or SIGTERM appends to while the block runs; the second one interrupts."""
    asked: list[int] = []

    def stop(number: int, _frame: object) -> None:
        asked.append(number)
        signal.signal(number, before[signal.Signals(number)])

    before = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield asked
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _properties(file: Path | None) -> dict[str, str]:
    found: dict[str, str] = {}
    for number, key, value in read_properties(file, "--from-config") if file is not None else ():
        if value is None or not key:
            raise CommandError(f"{file}, line {number}: expected KEY=VALUE", WRONG_USAGE)
        found[key] = value
    return found

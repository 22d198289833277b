"""``quorumlog mirror``: copies topics, records and groups of a Kafka cluster into this one."""

from __future__ import annotations

import logging
import re
import signal
from collections.abc import Iterator
from contextlib import contextmanager
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
    file_path,
    read_properties,
)
from quorumlog.cli.progress import counting
from quorumlog.cli.rendering import plural, print_json

if TYPE_CHECKING:
    from quorumlog.sdk.types import TopicPartition

EXAMPLE = "Example: quorumlog mirror --from kafka://127.0.0.1:9092 --topic orders"
_PLACE = re.compile(r"([a-zA-Z0-9._-]{1,249})-([0-9]{1,9}):([0-9]{1,18})")


def mirror(
    source: Annotated[
        str,
        typer.Option("--from", metavar="kafka://HOST:PORT[,…]", help="Kafka cluster to copy.", show_default=False),
    ],
    *,
    topics: Annotated[
        list[str] | None,
        typer.Option(
            "--topic", metavar="NAME", help="Topic or pattern ('shop-*') to copy; repeatable; by default all."
        ),
    ] = None,
    excluded: Annotated[
        list[str] | None, typer.Option("--exclude", metavar="NAME", help="Topic or pattern to leave out; repeatable.")
    ] = None,
    renames: Annotated[
        list[str] | None,
        typer.Option(
            "--rename", metavar="NAME=NAME", help="Name of a topic here, such as '*=eu.*' for a prefix; repeatable."
        ),
    ] = None,
    name: Annotated[str, typer.Option("--name", help="Name under which progress is stored.")] = "kafka",
    follow: Annotated[
        bool,
        typer.Option(
            "--follow",
            help="Copy new records, topics and settings until Ctrl-C; by default stop at the end of the source.",
        ),
    ] = False,
    bidirectional: Annotated[
        bool,
        typer.Option(
            "--bidirectional", help="Do not copy back records that a mirror in the opposite direction has written."
        ),
    ] = False,
    refresh_seconds: Annotated[
        float,
        typer.Option(
            "--refresh-seconds",
            min=0.1,
            max=86_400,
            help="Interval between checks for new topics, partitions, settings.",
        ),
    ] = 30.0,
    paused: Annotated[
        Path | None,
        typer.Option(
            "--paused",
            metavar="FILE",
            parser=file_path,
            help="File with topics or patterns to pause, one per line; read again every second.",
        ),
    ] = None,
    skip_to: Annotated[
        list[str] | None,
        typer.Option(
            "--skip-to",
            metavar="TOPIC-PARTITION:OFFSET",
            help="Continue at this offset, after an unreadable batch; repeatable.",
        ),
    ] = None,
    metrics_listen: Annotated[
        str | None, typer.Option("--metrics-listen", metavar="HOST:PORT", help="Serve Prometheus metrics here.")
    ] = None,
    no_groups: Annotated[bool, typer.Option("--no-groups", help="Do not copy committed offsets of groups.")] = False,
    print_security: Annotated[
        bool,
        typer.Option(
            "--print-security", help="Print a script that creates the users and ACLs of the source; copy nothing."
        ),
    ] = False,
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
    from quorumlog.sdk.mirror.commands import MirrorOptions
    from quorumlog.sdk.mirror.commands import mirror as copy
    from quorumlog.sdk.mirror.security_script import security_script
    from quorumlog.sdk.mirror.source import KafkaSource
    from quorumlog.sdk.mirror.target_topics import TopicRules

    if print_security:
        with KafkaSource(source, _properties(source_config)) as cluster:
            cluster.cluster_id()  # A wrong address fails soon.
            print(security_script(cluster.users(), cluster.acls()), end="")
        return
    options = MirrorOptions(
        name=name,
        rules=TopicRules(tuple(topics) if topics else None, tuple(excluded or ()), tuple(renames or ())),
        with_groups=not no_groups,
        follow=follow,
        bidirectional=bidirectional,
        skip_to=_places(skip_to or []),
        refresh_s=refresh_seconds,
        paused=paused,
        metrics_listen=metrics_listen,
    )
    with (
        KafkaSource(source, _properties(source_config)) as cluster,
        _stopped_by_signals() as signals,
        _logged_events(),
        counting("copying", "records", plain_lines=output is OutputFormat.TABLE) as tell,
    ):
        report = copy(
            cluster,
            bootstrap_servers=bootstrap_servers,
            options=options,
            should_stop=lambda: bool(signals),
            progress=tell,
            **client_options(),
        )
    if output is OutputFormat.JSON:
        print_json({**report._asdict(), "stopped": bool(signals)})
        return
    said = f"{plural(report.topics, 'topic')} with {plural(report.partitions, 'partition')}"
    done = "Stopped after" if signals and not follow else "Copied"
    groups = "" if no_groups else f"; {plural(report.groups, 'group')}"
    print(f"{done} {report.records:,} records of {said}{groups}. Run the same command to continue.")


def _places(texts: list[str]) -> dict[TopicPartition, int]:
    from quorumlog.sdk.types import TopicPartition

    found: dict[TopicPartition, int] = {}
    for text in texts:
        match = _PLACE.fullmatch(text)
        if match is None:
            raise CommandError(f"--skip-to '{text}' is not TOPIC-PARTITION:OFFSET, such as orders-0:1200", WRONG_USAGE)
        found[TopicPartition(match[1], int(match[2]))] = int(match[3])
    return found


class _Events(logging.Handler):
    """Prints what the mirror does, such as copying a new topic; its warnings are printed as those of every command."""

    def emit(self, record: logging.LogRecord) -> None:
        if record.levelno < logging.WARNING:
            say(record.getMessage())


@contextmanager
def _logged_events() -> Iterator[None]:
    """Prints events while the block runs."""
    log, handler = logging.getLogger("quorumlog.sdk.mirror"), _Events()
    level = log.level
    log.setLevel(logging.INFO)
    log.addHandler(handler)
    try:
        yield
    finally:
        log.removeHandler(handler)
        log.setLevel(level)


@contextmanager
def _stopped_by_signals() -> Iterator[list[int]]:
    """Yields a list that the first Ctrl-C or SIGTERM appends to while the block runs; the second one interrupts."""
    received: list[int] = []

    def stop(number: int, _frame: object) -> None:
        received.append(number)
        signal.signal(number, before[signal.Signals(number)])

    before = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield received
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

"""``quorumlog consume``: prints records as lines."""

from __future__ import annotations

import io
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, BinaryIO, Literal, NamedTuple

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
    topic_names,
    unescape,
)
from quorumlog.cli.progress import CountTeller, counting
from quorumlog.cli.records import record_text
from quorumlog.cli.records.reading_start import ReadingStart, parse_start, seek_start
from quorumlog.cli.rendering import node_list, plural

if TYPE_CHECKING:
    from quorumlog.cli.records.record_text import LineFormat
    from quorumlog.sdk import Consumer, TopicPartition

EXAMPLE = "Example: quorumlog consume orders --from-beginning --until-end --format '{partition}:{offset} {key} {value}'"

#: Maximum wait of one poll (ms), so that Ctrl-C and timeouts are noticed.
POLL_MS = 500
#: Maximum number of records per poll.
POLL_RECORDS = 5000


class OnCorrupt(Enum):
    """Action for a batch that cannot be read."""

    SKIP = "skip"
    RAISE = "raise"

    @property
    def name_in_sdk(self) -> Literal["skip", "raise"]:
        """The value of the consumer's option."""
        return "skip" if self is OnCorrupt.SKIP else "raise"


def consume(
    topics: Annotated[
        list[str] | None, typer.Argument(metavar="TOPIC…", help="Topics to read.", autocompletion=topic_names)
    ] = None,
    *,
    group: Annotated[
        str | None,
        typer.Option(
            "--group",
            "-g",
            help="Read as a member of this group: from its committed offsets, and only this member's share of the"
            " partitions; printed records are committed. A group without committed offsets starts at the end, or at the"
            " first record with --from-beginning.",
        ),
    ] = None,
    pattern: Annotated[
        str | None,
        typer.Option(
            "--pattern", metavar="REGEX", help="With --group: read all topics whose whole name matches (RE2)."
        ),
    ] = None,
    instance_id: Annotated[
        str | None,
        typer.Option(
            "--instance-id", help="With --group: join as a static member, which keeps its partitions when it restarts."
        ),
    ] = None,
    from_beginning: Annotated[
        bool,
        typer.Option(
            "--from-beginning", help="Start with the first available record; by default only new records are read."
        ),
    ] = False,
    partition: Annotated[int | None, typer.Option("--partition", min=0, help="Read only this partition.")] = None,
    offset: Annotated[
        str | None,
        typer.Option(
            "--offset",
            metavar="N|-N|earliest|latest",
            help="Start at this offset, which requires --partition; -N: with the last N records of each partition.",
        ),
    ] = None,
    tail: Annotated[
        int | None, typer.Option("--tail", min=0, metavar="N", help="Start with the last N records, like --offset -N.")
    ] = None,
    from_time: Annotated[
        str | None,
        typer.Option(
            "--from-time",
            metavar="TIME",
            help="Start with the first record at or after this: milliseconds since 1970, or a date and time.",
        ),
    ] = None,
    max_records: Annotated[
        int | None, typer.Option("--max-records", "-n", min=1, help="Stop after this many records.")
    ] = None,
    until_end: Annotated[
        bool, typer.Option("--until-end", help="Stop at the end that each partition had when the command started.")
    ] = False,
    timeout: Annotated[
        float | None,
        typer.Option(
            "--timeout", min=0, metavar="SECONDS", help="Stop after this time without a record; by default never."
        ),
    ] = None,
    on_corrupt: Annotated[
        OnCorrupt,
        typer.Option("--on-corrupt", help="Skip a batch that cannot be read with a warning, or stop."),
    ] = OnCorrupt.SKIP,
    line_format: Annotated[
        str | None,
        typer.Option(
            "--format",
            metavar="TEMPLATE",
            help="Line format with {topic} {partition} {offset} {timestamp} {key} {value} {headers}.",
        ),
    ] = None,
    key_separator: Annotated[
        str | None, typer.Option("--key-separator", "-k", help="Print keys too, with this separator before the value.")
    ] = None,
    file: Annotated[
        Path | None, typer.Option("--file", "-f", metavar="FILE", parser=file_path, help="Write to this file.")
    ] = None,
    bootstrap_servers: BootstrapServers = DEFAULT_BOOTSTRAP_SERVERS,
    output: Output = OutputFormat.TABLE,
) -> None:
    """Prints each record as one line until a limit, the end, a timeout or Ctrl-C."""
    to_line = _line_format(output, line_format, key_separator)
    start = parse_start(from_beginning=from_beginning, offset=offset, tail=tail, from_time=from_time)
    source = _Source(bootstrap_servers, tuple(topics or ()), partition, start, on_corrupt)
    if group is not None:
        membership = _Membership(group, pattern, instance_id)
        _check_group_usage(source, membership, until_end)
        opened = _open_in_group(source, membership)
    else:
        _check_usage(source, pattern, instance_id)
        opened = _open(source)
    with (
        opened as (consumer, partitions),
        _output(file) as stream,
        _progress(", ".join(source.topics) or str(pattern), file, ends=until_end or max_records is not None) as show,
    ):
        ends = consumer.end_offsets(partitions) if until_end else None
        received = 0
        for lines in _batches(consumer, to_line, max_records, timeout, ends):
            stream.write(b"".join(lines))
            stream.flush()
            if group is not None:
                _commit(consumer)
            received += len(lines)
            show(received, None if max_records is None else received / max_records)
    if max_records is not None and received < max_records and not until_end:
        raise CommandError(
            f"{plural(received, 'record')} of {max_records:,} received before the timeout of {timeout:g} s"
        )


class _Source(NamedTuple):
    """The topics to read, the start position, and the action for unreadable batches."""

    bootstrap_servers: str
    topics: tuple[str, ...]
    partition: int | None
    start: ReadingStart
    on_corrupt: OnCorrupt


class _Membership(NamedTuple):
    """The group to join, the topic pattern if any, and the static name."""

    group: str
    pattern: str | None
    instance_id: str | None


def _check_usage(source: _Source, pattern: str | None, instance_id: str | None) -> None:
    if pattern is not None or instance_id is not None:
        raise CommandError(f"--{'instance-id' if pattern is None else 'pattern'} needs --group", WRONG_USAGE)
    if not source.topics:
        raise CommandError("no topic given: name at least one", WRONG_USAGE)
    if source.partition is not None and len(source.topics) > 1:
        raise CommandError("--partition needs exactly one topic", WRONG_USAGE)
    if source.start.offset is not None and source.partition is None:
        raise CommandError("--offset needs --partition: offsets are per partition", WRONG_USAGE)


def _check_group_usage(source: _Source, membership: _Membership, until_end: bool) -> None:
    if (membership.pattern is None) == (not source.topics):
        raise CommandError("give either topics or --pattern", WRONG_USAGE)
    if source.partition is not None or not source.start.is_for_groups:
        raise CommandError(
            "--partition, --offset, --tail and --from-time do not apply with --group, which reads from their committed"
            " offsets: omit them; 'quorumlog groups reset-offsets' moves a group",
            WRONG_USAGE,
        )
    if until_end:
        raise CommandError("--until-end does not apply to groups, whose partitions move: use --timeout", WRONG_USAGE)


@contextmanager
def _open(source: _Source) -> Iterator[tuple[Consumer, list[TopicPartition]]]:
    """Yields a consumer of all partitions, or of one, at its start position."""
    partitions = _partitions(source.bootstrap_servers, source.topics, source.partition)
    from quorumlog.sdk import Consumer

    # A user who names an offset wants exactly that one: silently reading from another one would be wrong.
    reset: Literal["none", "earliest"] = "earliest" if source.start.offset is None else "none"
    with Consumer(
        bootstrap_servers=source.bootstrap_servers,
        auto_offset_reset=reset,
        on_corrupt=source.on_corrupt.name_in_sdk,
        **client_options(),
    ) as consumer:
        consumer.assign(partitions)
        seek_start(consumer, partitions, source.start)
        yield consumer, partitions


@contextmanager
def _open_in_group(source: _Source, membership: _Membership) -> Iterator[tuple[Consumer, list[TopicPartition]]]:
    """Yields a member of a group. It leaves the group when it is closed, so that other members take over at once."""
    if source.topics:
        _partitions(source.bootstrap_servers, source.topics, None)  # A group would wait for topics that do not exist.
    from quorumlog.sdk import Consumer

    with (
        _ended_by_sigterm(),
        Consumer(
            bootstrap_servers=source.bootstrap_servers,
            **client_options(),
            on_corrupt=source.on_corrupt.name_in_sdk,
            group_id=membership.group,
            group_instance_id=membership.instance_id,
            # Also commits automatically before the first record: records written while it is away must not be skipped.
            auto_offset_reset="earliest" if source.start.beginning else "latest",
        ) as consumer,
    ):
        consumer.subscribe(source.topics, pattern=membership.pattern)
        yield consumer, []


@contextmanager
def _ended_by_sigterm() -> Iterator[None]:
    """Makes SIGTERM end the command like Ctrl-C: otherwise the group would wait for the member until its session
    expires.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _commit(consumer: Consumer) -> None:
    """Commits the printed records."""
    from quorumlog.sdk import CommitFailedError

    try:
        consumer.commit()
    except CommitFailedError as error:
        # The member was stopped for too long, perhaps by Ctrl-Z: others have its partitions, and it joins again.
        say(f"warning: {error.message}; others may print the last records again")


def _batches(
    consumer: Consumer,
    to_line: LineFormat,
    max_records: int | None,
    timeout: float | None,
    ends: dict[TopicPartition, int] | None,
) -> Iterator[list[bytes]]:
    """Yields the lines of each poll until a limit is reached."""
    received = 0
    quiet_since = time.monotonic()
    while not _at_end(consumer, ends):
        wanted = POLL_RECORDS if max_records is None else min(POLL_RECORDS, max_records - received)
        if wanted == 0:
            return
        wait_ms: float = POLL_MS
        if timeout is not None:
            left_ms = (quiet_since + timeout - time.monotonic()) * 1000
            if left_ms < 0:
                return
            wait_ms = min(POLL_MS, max(1.0, left_ms))
        polled = consumer.poll(timeout_ms=wait_ms, max_records=wanted)
        lines = [
            to_line(record) + b"\n"
            for where, records in polled.items()
            for record in records
            if ends is None or record.offset < ends[where]
        ]
        if lines:
            received += len(lines)
            quiet_since = time.monotonic()
            yield lines


def _at_end(consumer: Consumer, ends: dict[TopicPartition, int] | None) -> bool:
    return ends is not None and all(consumer.position(where) >= end for where, end in ends.items())


def _line_format(output: OutputFormat, template: str | None, key_separator: str | None) -> LineFormat:
    if sum((output is OutputFormat.JSON, template is not None, key_separator is not None)) > 1:
        raise CommandError("give one of --output json, --format, --key-separator", WRONG_USAGE)
    if output is OutputFormat.JSON:
        return record_text.json_line
    if template is not None:
        return record_text.template_line(unescape(template))
    if key_separator is not None:
        return record_text.keyed_line(unescape(key_separator))
    return record_text.value_line


def _partitions(bootstrap_servers: str, topics: tuple[str, ...], partition: int | None) -> list[TopicPartition]:
    """Returns the partitions to read.

    Raises:
        QuorumlogError: a topic does not exist.
        CommandError: the partition does not exist.
    """
    from quorumlog.sdk import TopicPartition

    with connect(bootstrap_servers) as admin:
        described = admin.describe_topics(topics)
    found = [TopicPartition(topic.name, each.partition) for topic in described for each in topic.partitions]
    if partition is None:
        return found
    chosen = [tp for tp in found if tp.partition == partition]
    if not chosen:
        numbers = node_list(tp.partition for tp in found)
        raise CommandError(f"topic {topics[0]} has no partition {partition}; it has {numbers}")
    return chosen


@contextmanager
def _output(file: Path | None) -> Iterator[BinaryIO]:
    if file is not None:
        with file.open("wb") as stream:
            yield stream
    elif isinstance(sys.stdout.buffer, io.RawIOBase):
        # PYTHONUNBUFFERED is set. A raw stream may write only a part: the rest would be lost, and yet committed.
        with open(sys.stdout.fileno(), "wb", closefd=False) as stream:
            yield stream
    else:
        yield sys.stdout.buffer


@contextmanager
def _progress(what: str, file: Path | None, *, ends: bool) -> Iterator[CountTeller]:
    """Shows the progress unless the records themselves go to the terminal; without a terminal, only if the end is
    known.
    """
    if file is None and sys.stdout.isatty():
        yield lambda _received, _share=None: None
        return
    with counting(f"consuming {what}", "records", plain_lines=ends) as show:
        yield show
